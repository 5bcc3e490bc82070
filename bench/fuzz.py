"""Mutated frames and stored messages: only values or a protocol error, in bounded memory.

Takes sound frames (every request and reply there is, in both header types) and sound buffers of
stored messages, damages them in ways that break lengths, texts and structure, and reads them the
way a server and a consumer would. Anything that escapes, other than `RemoteProtocolError`, ends the
run with the seed and the bytes that repeat it.

    ./dev bench fuzz [--frames N] [--buffers N] [--seed N]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from hypothesis import Phase, given, seed, settings

from gantrymq.errors import LocalProtocolError, RemoteProtocolError, ReplyError
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.catalogue import CATALOGUE
from gantrymq.wire import batch, columns, flags, properties, record
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.command import RESPONSE, Command, HeaderType
from gantrymq.wire.compression import compress
from gantrymq.wire.connection import Connection
from gantrymq.wire.flags import Compression
from gantrymq.wire.record import StoredMessage
from tests.strategies import instances

T = TypeVar("T")

REQUESTS: dict[int, type[Request[Any]]] = {int(code): cls for code, cls in CATALOGUE.items()}
REPLIES: list[type[Reply]] = sorted({cls.REPLY for cls in REQUESTS.values()}, key=str)
"""A reply does not say what it answers; here its opaque number does."""

LIMIT = 1024 * 1024
MEMORY_ALLOWED = 64 * 1024 * 1024

INTERESTING = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
)


class Escaped(Exception):
    """Damaged bytes led to something other than a value or a protocol error."""


def mutate(random: Random, sample: bytes) -> bytes:
    """`sample` with one to four kinds of damage."""
    data = bytearray(sample)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(DAMAGES)(random, data)
    return bytes(data)


def flip(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def overwrite(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data) + 1)
    data[at : at + 4] = random.choice(INTERESTING).to_bytes(4, "big")


def overwrite_byte(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(b'"\\{}[]:,0\x00\x01\x02\xff\xc3')


def cut(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    del data[start : start + random.randrange(1, 32)]


def truncate(random: Random, data: bytearray) -> None:
    del data[random.randrange(len(data) + 1) :]


def insert(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.randrange(1, 16))


def repeat(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    piece = data[start : start + random.randrange(1, 64)]
    data[start:start] = piece * random.randrange(1, 4)


DAMAGES: tuple[Callable[[Random, bytearray], None], ...] = (
    flip, flip, overwrite, overwrite, overwrite_byte, cut, truncate, insert, repeat,
)  # fmt: skip


def read_frames(data: bytes) -> int:
    """Read `data` as a server and a client do; how many requests and replies were understood."""
    understood = 0
    for command in Connection(limit=LIMIT).feed(data):
        if command.is_response:
            with suppress(ReplyError):
                REPLIES[command.opaque % len(REPLIES)].from_command(command)
                understood += 1
            continue
        request = REQUESTS.get(command.code)
        if request is not None:
            request.from_command(command)
            understood += 1
    return understood


def read_buffer(data: bytes) -> int:
    """Read `data` as a consumer, a bulk reader and a broker taking a batch do."""
    messages = 0
    for reader in (read_records, read_columns, read_batch):
        try:
            messages += reader(data)
        except RemoteProtocolError:
            continue
    return messages


def read_records(data: bytes) -> int:
    messages = list(record.iterate(data))
    for message in messages:
        open_message(message)
    return len(messages)


def open_message(message: StoredMessage) -> None:
    with suppress(RemoteProtocolError):
        message.content(limit=LIMIT)
    message.properties  # noqa: B018


def read_columns(data: bytes) -> int:
    return len(columns.decode(data))


def read_batch(data: bytes) -> int:
    return sum(1 for _ in batch.iterate(data))


def run(
    read: Callable[[bytes], int], samples: list[bytes], count: int, random: Random
) -> Iterator[tuple[bool, int]]:
    """`count` rounds; for each whether the reader refused, and how much it understood."""
    for _ in range(count):
        data = mutate(random, random.choice(samples))
        try:
            yield False, read(data)
        except RemoteProtocolError:
            yield True, 0
        except Exception as error:
            raise Escaped(f"{type(error).__name__}: {error}; the bytes: {data.hex()}") from error


def frame_samples(random: Random) -> list[bytes]:
    """Sound frames: several of each request and reply there is, in both header types."""
    return frames_of(sample_commands(random))


def frames_of(commands: Iterable[Command]) -> list[bytes]:
    """Their frames in both header types."""
    frames = []
    for command in commands:
        for header_type in HeaderType:
            with suppress(LocalProtocolError):  # a version that binary headers cannot hold
                frames.append(frame(command, header_type))
    return frames


def sample_commands(random: Random, *, sorts: int | None = None) -> Iterator[Command]:
    """Several of each, or of some of the requests and of the replies."""
    requests, replies = sorted(set(REQUESTS.values()), key=str), list(enumerate(REPLIES))
    if sorts is not None:
        requests, replies = random.sample(requests, sorts), random.sample(replies, sorts)
    for cls in requests:
        for request in some(cls, random):
            yield request.command()
    for number, kind in replies:
        for reply in some(kind, random):
            command = reply.command()
            command.flag, command.opaque = RESPONSE, number
            yield command


def some(cls: type[T], random: Random) -> list[T]:
    """A few instances of one class."""
    found: list[T] = []

    @seed(random.randrange(1 << 32))
    @settings(max_examples=5, database=None, phases=[Phase.generate], deadline=None)
    @given(instances(cls))
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def stored_samples(random: Random) -> list[bytes]:
    """Sound buffers of one to eight stored messages of every shape, and bodies of batches."""
    buffers = [
        b"".join(stored(random).encode() for _ in range(random.randrange(1, 9))) for _ in range(200)
    ]
    return buffers + [batch_body(random) for _ in range(50)]


def stored(random: Random) -> StoredMessage:
    """A message of a random shape: version, hosts, compression, wrapped batch."""
    body, sys_flag = random.randbytes(random.randrange(200)), 0
    if random.random() < 0.2:
        body, sys_flag = batch_body(random), flags.WRAPPED_BITS
    if random.random() < 0.4:
        kind = random.choice(list(Compression))
        body, sys_flag = (
            compress(body, kind),
            sys_flag | flags.COMPRESSED | kind << flags.COMPRESSION_SHIFT,
        )
    return StoredMessage(
        topic="T" * random.choice((1, 10, 127, 128, 300)),
        body=body,
        property_bytes=properties.encode({"KEYS": "k", "TAGS": "t" * random.randrange(1, 9)}),
        sys_flag=sys_flag,
        queue_id=random.randrange(8),
        queue_offset=random.randrange(1 << 40),
        born_ip=random.randbytes(random.choice((4, 16))),
        store_ip=random.randbytes(random.choice((4, 16))),
    )


def batch_body(random: Random) -> bytes:
    messages = [
        BatchMessage(random.randbytes(random.randrange(60)), properties.encode({"UNIQ_KEY": "u"}))
        for _ in range(random.randrange(1, 6))
    ]
    return batch.encode(messages)


def frame(command: Command, header_type: HeaderType) -> bytes:
    return b"".join(bytes(part) for part in Connection(header_type=header_type).encode(command))


def peak_memory() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def fuzz(
    name: str, read: Callable[[bytes], int], samples: list[bytes], count: int, seed: int
) -> None:
    """Run and report one kind; exits with 1 where something escaped or memory grew too far."""
    for sample in samples:
        with suppress(RemoteProtocolError):
            read(sample)  # what is cached at first use is not growth
    before, started = peak_memory(), time.perf_counter()
    outcome: Counter[str] = Counter()
    for refused, understood in run(read, samples, count, Random(seed)):
        outcome["refused" if refused else "understood" if understood else "empty"] += 1
        if sum(outcome.values()) % 10_000 == 0 and sys.stderr.isatty():
            print(f"\r{name}: {sum(outcome.values()):,} of {count:,}", end="", file=sys.stderr)
    grown = peak_memory() - before
    seconds = time.perf_counter() - started
    print(
        f"{name}: {count:,} in {seconds:.0f} s, {dict(outcome)}, nothing escaped, "
        f"peak memory +{grown / 2**20:.1f} MiB (allowed {MEMORY_ALLOWED >> 20})"
    )
    if grown > MEMORY_ALLOWED:
        sys.exit(f"{name}: memory grew by {grown} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--buffers", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    random = Random(options.seed)
    try:
        fuzz("frames", read_frames, frame_samples(random), options.frames, options.seed)
        fuzz("buffers", read_buffer, stored_samples(random), options.buffers, options.seed)
    except Escaped as escaped:
        sys.exit(f"seed {options.seed}: {escaped}")


if __name__ == "__main__":
    main()
