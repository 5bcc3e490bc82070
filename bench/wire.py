"""What the codecs cost: frames, headers, stored messages, columns; beside RocketMQ's own in Java.

Each case is measured in rounds that alternate with all others, in processor time, since codecs
never wait and other work on the machine should not count; the median of the rounds is what is
shown, and beside it the best. Java's numbers come from the same machine in the same run, through
`bench/java`; where there is no `mvn` or JDK its columns stay empty, and the last line says so.

    ./dev bench wire [--rounds N] [--seconds S] [--json FILE] [--no-java]

Two lines are aims of ours: encode and decode of one send of 1 KiB under 6 µs in all, and columnar
decode of 200-byte messages at 2 million a second or more.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Final

from gantrymq.protocol.sending import SendMessage
from gantrymq.wire import columns, record
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.connection import Connection
from gantrymq.wire.record import StoredMessage

sys.path.insert(0, str(Path(__file__).resolve().parent))
import java_peer

SIZES: Final = (200, 1024, 16384)
PULL_BYTES: Final = 1 << 20
FORMS: Final = {HeaderType.JSON: "json", HeaderType.BINARY: "binary"}
PROPERTIES: Final = (
    "UNIQ_KEY\x010A01020312347B2A9C0E0001E2400007\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)
SEND_AIM_US: Final = 6.0
COLUMNS_AIM: Final = 2_000_000


@dataclass(slots=True, kw_only=True)
class Case:
    """One thing to measure: named as the Java harness names it, with what is done once."""

    name: str
    form: str
    size: int
    once: Callable[[], object]
    messages: int = 1
    bytes: int = 0
    rounds: list[float] | None = None

    def measure(self, seconds: float) -> float:
        """Seconds of one repetition, over about `seconds`."""
        once, count = self.once, 1
        while True:
            started = time.process_time()
            for _ in range(count):
                once()
            elapsed = time.process_time() - started
            if elapsed >= seconds:
                return elapsed / count
            count = max(count * 2, int(count * seconds / max(elapsed, 1e-9)))


@dataclass(slots=True, kw_only=True)
class Row:
    """What came out for one case."""

    name: str
    form: str
    size: int
    ns: float
    best_ns: float
    java_ns: float | None
    messages: int
    messages_per_s: float
    gb_per_s: float

    @property
    def ratio(self) -> float | None:
        """How many times Java's speed ours is."""
        return None if self.java_ns is None else self.java_ns / self.ns


def send_request(size: int) -> SendMessage:
    return SendMessage(
        group="PG",
        topic="TopicTest",
        queue_id=1,
        born_ms=1_700_000_000_000,
        properties=PROPERTIES,
        broker="broker-a",
        body=Random(size).randbytes(size),
    )


def frame_cases(header_type: HeaderType, size: int) -> list[Case]:
    request = send_request(size)
    command = request.command()
    sender = Connection(header_type=header_type)
    frame = b"".join(bytes(part) for part in sender.encode(command))
    receiver = Connection()
    for _ in receiver.feed(frame * 16):
        pass  # as busy connections do, it has a large buffer then

    def receive() -> Command:
        """As a transport does it: room, bytes into it, commands out."""
        receiver.get_buffer()[: len(frame)] = frame
        (received,) = receiver.received(len(frame))
        return received

    def case(name: str, once: Callable[[], object]) -> Case:
        return Case(name=name, form=FORMS[header_type], size=size, once=once)

    decoded = receive()
    cases = [
        case("command.encode", lambda: sender.encode(command)),
        case("command.decode", receive),
        case("request.encode", lambda: sender.encode(request.command())),
        case("request.decode", lambda: SendMessage.from_command(receive())),
    ]
    if size == SIZES[0]:
        cases.append(case("header.decode", lambda: SendMessage.from_command(decoded)))
    return cases


def stored(size: int) -> StoredMessage:
    return StoredMessage(
        topic="TopicTest",
        body=Random(size).randbytes(size),
        property_bytes=PROPERTIES.encode(),
        queue_id=1,
        queue_offset=100,
        log_offset=4096,
        born_ms=1_700_000_000_000,
        store_ms=1_700_000_000_123,
    )


def message_cases(size: int) -> list[Case]:
    message = stored(size)
    data = message.encode()
    return [
        Case(name="message.encode", form="v1", size=size, once=message.encode),
        Case(name="message.decode", form="v1", size=size, once=lambda: record.decode(data)),
    ]


def pull_cases(size: int) -> list[Case]:
    count = PULL_BYTES // len(stored(size).encode())
    data = stored(size).encode() * count
    sizes = [Random(number).randrange(size * 3 // 4, size * 5 // 4) for number in range(count)]
    varied = b"".join(stored(each).encode() for each in sizes)

    def case(name: str, data: bytes, once: Callable[[], object]) -> Case:
        return Case(name=name, form="v1", size=size, once=once, messages=count, bytes=len(data))

    return [
        case("pull.decode", data, lambda: list(record.iterate(data))),
        case("pull.offsets", data, lambda: columns.decode(data)),
        case("pull.columns", data, lambda: used_columns(data)),
        case("varied.offsets", varied, lambda: columns.decode(varied)),
        case("varied.columns", varied, lambda: used_columns(varied)),
    ]


def used_columns(data: bytes) -> object:
    """What a bulk reader takes of a pull: three parts, five numbers, the tags."""
    found = columns.decode(data)
    names = ("queue_id", "queue_offset", "log_offset", "born_ms", "store_ms")
    return [found[name] for name in names], found.property_ranges("TAGS")


def all_cases() -> list[Case]:
    cases = [
        case
        for header_type in HeaderType
        for size in SIZES
        for case in frame_cases(header_type, size)
    ]
    cases += [case for size in SIZES for case in message_cases(size)]
    return cases + [case for size in SIZES[:2] for case in pull_cases(size)]


def run(cases: list[Case], rounds: int, seconds: float) -> None:
    for case in cases:
        case.rounds = []
        case.measure(seconds / 5)
    for number in range(rounds):
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr)
        for case in cases:
            assert case.rounds is not None
            case.rounds.append(case.measure(seconds))


def java_numbers(seconds: float) -> tuple[dict[tuple[str, str, int], float], str]:
    """Java's nanoseconds by case, and what there is to say about them."""
    try:
        measured = java_peer.measure(seconds=seconds)
    except java_peer.JavaUnavailable as error:
        return {}, f"no Java beside it: {error}"
    numbers = {(m.case, m.form, m.size): m.ns for m in measured}
    for size in SIZES[:2]:  # Java has one way to read a pull
        for name in ("pull.offsets", "pull.columns", "varied.offsets", "varied.columns"):
            numbers[name, "v1", size] = numbers["pull.decode", "v1", size]
    return numbers, f"Java: RocketMQ {measured[0].version}"


def row(case: Case, java: dict[tuple[str, str, int], float]) -> Row:
    seconds = statistics.median(case.rounds or [0.0])
    return Row(
        name=case.name,
        form=case.form,
        size=case.size,
        ns=seconds * 1e9,
        best_ns=min(case.rounds or [0.0]) * 1e9,
        java_ns=java.get((case.name, case.form, case.size)),
        messages=case.messages,
        messages_per_s=case.messages / seconds,
        gb_per_s=case.bytes / seconds / 1e9,
    )


def show(rows: list[Row]) -> None:
    print(
        f"{'case':16} {'form':7} {'bytes':>6} {'ns':>10} {'best':>10} {'Java ns':>10} {'ratio':>6}"
    )
    for each in rows:
        beside = f"{each.java_ns:10,.0f} {each.ratio:6.2f}" if each.java_ns else " " * 17
        rate = (
            f"  {each.messages_per_s / 1e6:6.2f} M messages/s, {each.gb_per_s:5.2f} GB/s, "
            f"{each.ns / each.messages:6.1f} ns each"
            if each.messages > 1
            else ""
        )
        ours = f"{each.ns:10,.0f} {each.best_ns:10,.0f}"
        print(f"{each.name:16} {each.form:7} {each.size:6} {ours} {beside}{rate}")


def aims(rows: list[Row]) -> list[str]:
    by_case = {(each.name, each.form, each.size): each for each in rows}
    frame, typed = (
        sum(by_case[f"{what}.{way}", "json", 1024].ns for way in ("encode", "decode")) / 1e3
        for what in ("command", "request")
    )
    even, varied = (by_case[f"{kind}.columns", "v1", 200] for kind in ("pull", "varied"))
    return [
        f"one send of 1 KiB, encode and decode: {frame:.2f} µs as a frame "
        f"(aim: under {SEND_AIM_US}), {typed:.2f} with its typed request",
        f"columns at 200 B, with tags: {even.messages_per_s / 1e6:.2f} M messages/s where all are "
        f"of one size, {varied.messages_per_s / 1e6:.2f} M where sizes vary; places alone: "
        f"{by_case['pull.offsets', 'v1', 200].messages_per_s / 1e6:.2f} M "
        f"(aim: {COLUMNS_AIM / 1e6:.0f} M)",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each case in each round")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--no-java", action="store_true", help="leave Java out")
    options = parser.parse_args()
    cases = all_cases()
    run(cases, options.rounds, options.seconds)
    java, about = ({}, "Java left out") if options.no_java else java_numbers(0.6)
    rows = [row(case, java) for case in cases]
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    show(rows)
    machine = f"Python {platform.python_version()}, {platform.machine()}, {platform.system()}"
    print("\n".join([*aims(rows), f"{machine}; {about}"]))
    if options.json:
        result = {"machine": machine, "java": about, "rows": [asdict(each) for each in rows]}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
