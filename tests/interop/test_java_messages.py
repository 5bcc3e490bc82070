"""Stored messages between our `record` and RocketMQ's `MessageDecoder` and broker encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import generated
import jars
import pytest
from peer import JavaPeer

from gantrymq.wire import batch, columns, compression, flags, properties, record
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.record import StoredMessage

COUNT = 10_000


@pytest.fixture(
    params=[(jars.CURRENT, 1), (jars.CURRENT, 2), (jars.OLD, 1)], ids="{0[0]}-v{0[1]}".format
)
def pair(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A release and a version of stored messages that it knows; 4.9 knows the first alone."""
    made: tuple[str, int] = request.param
    return made


@pytest.fixture
def version(pair: tuple[str, int]) -> str:
    return pair[0]


@pytest.fixture
def message_version(pair: tuple[str, int]) -> int:
    return pair[1]


def stored(message: StoredMessage) -> StoredMessage:
    """`message` with its body as its system flag says, as a broker has it."""
    kind = flags.compression_of(message.sys_flag)
    body = message.body if kind is None else compression.compress(message.body, kind)
    return replace(message, body=body)


def described(message: StoredMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "flag": message.flag,
        "body": message.body,
        "properties": message.properties,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "log_offset": message.log_offset,
        "sys_flag": message.sys_flag,
        "born_time": message.born_ms,
        "born_host": [message.born_ip, message.born_port],
        "store_time": message.store_ms,
        "store_host": [message.store_ip, message.store_port],
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_offset,
    }


def as_java_reads(
    message: StoredMessage, written: StoredMessage, size: int, release: str
) -> dict[str, Any]:
    """What has to come out of Java for `message`, of which `written` took `size` bytes."""
    sys_flag = message.sys_flag
    if release != jars.OLD:
        sys_flag &= ~flags.COMPRESSED  # 5.x clears this bit after reading and leaves the type bits
    return described(message) | {
        "body": message.body or None,  # null stands for no bytes
        "properties": message.properties or None,
        "sys_flag": sys_flag,
        "store_size": size,
        "crc": record.crc(written.body),
        "id": message.message_id,
    }


def test_java_reads_what_we_write(peer: JavaPeer, message_version: int, rng: Random) -> None:
    messages = [generated.message(rng, message_version) for _ in range(COUNT)]
    bodies = [stored(message) for message in messages]
    encoded = [message.encode() for message in bodies]
    read = peer.ask("messages.decode", encoded)
    for message, written, data, values in zip(messages, bodies, encoded, read, strict=True):
        assert values == [as_java_reads(message, written, len(data), peer.version)], message


def test_we_read_what_java_writes(peer: JavaPeer, message_version: int, rng: Random) -> None:
    messages = [generated.message(rng, message_version) for _ in range(COUNT)]
    asked = [described(message) | {"version": message_version} for message in messages]
    written = peer.ask("messages.encode", asked)
    for message, data in zip(messages, written, strict=True):
        read = record.decode(data)
        assert read.version == message_version
        assert read.size == len(data)
        read.check_crc()
        # Java writes properties in the order of its map, so they are compared as values.
        assert described(read) | {"body": read.content()} == described(message), message
        assert list(record.iterate(data, unwrap=False)) == [read]


def test_a_whole_answer_with_what_is_no_message_at_its_end(
    peer: JavaPeer, message_version: int, rng: Random
) -> None:
    messages = [generated.message(rng, message_version) for _ in range(300)]
    data = b"".join(stored(message).encode() for message in messages)
    data += (200).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(192)
    ours = list(record.iterate(data))
    assert [m.content() for m in ours] == [m.body for m in messages]
    if peer.version == jars.OLD:
        # Its reader looks at no magic number and would take the blank for a message.
        data = data[:-200]
    (read,) = peer.ask("messages.decode", [data])
    assert [value["id"] for value in read] == [m.message_id for m in ours]
    assert [value["store_size"] for value in read] == [m.size for m in ours]


def test_columns_of_what_java_writes(peer: JavaPeer, message_version: int, rng: Random) -> None:
    messages = [generated.message(rng, message_version) for _ in range(2000)]
    asked = [described(message) | {"version": message_version} for message in messages]
    data = b"".join(peer.ask("messages.encode", asked))
    found = columns.decode(data)
    assert len(found) == len(messages)
    assert [found.message(row) for row in range(len(found))] == list(
        record.iterate(data, unwrap=False)
    )
    for name in columns.NUMBERS:
        if name != "body_crc":  # of the compressed body, which is Java's own
            assert found[name].tolist() == [getattr(message, name) for message in messages], name
    topics = [data[at:end].decode() for at, end in zip(*found.topic, strict=True)]
    assert topics == [message.topic for message in messages]
    found.check_crc()


def wrapping(rng: Random, version: int) -> tuple[StoredMessage, list[BatchMessage]]:
    inner = [
        BatchMessage(
            generated.body(rng),
            properties.encode(generated.properties(rng)),
            generated.int32(rng),
        )
        for _ in range(rng.randint(1, 9))
    ]
    outer = generated.message(rng, version)
    kind = rng.choice((None, *flags.Compression))
    outer.sys_flag = (
        outer.sys_flag & flags.IPV6_BITS | flags.WRAPPED_BITS | (kind.bits if kind else 0)
    )
    outer.queue_offset = rng.randrange(2**40)
    outer.body = batch.encode(inner)
    return outer, inner


@pytest.mark.parametrize("message_version", [1, 2])  # for 5.x alone: 4.9 has no wrapped batches
def test_wrapped_batches_come_apart_alike(
    peers: Callable[[str], JavaPeer], message_version: int, rng: Random
) -> None:
    made = [stored(wrapping(rng, message_version)[0]).encode() for _ in range(1000)]
    read = peers(jars.CURRENT).ask("messages.decode", made)
    for data, values in zip(made, read, strict=True):
        for ours, java in zip(record.iterate(data), values, strict=True):
            # What Java's reader makes up or leaves out: it keeps the wrap bits and the type bits of
            # the whole, adds the property WAIT, and forgets reconsume times, the prepared offset,
            # size and CRC.
            values_of_ours = described(ours)
            for name in ("sys_flag", "reconsume_times", "prepared_offset"):
                del values_of_ours[name], java[name]
            java["properties"] = {n: v for n, v in java["properties"].items() if n != "WAIT"}
            del java["crc"], java["store_size"], java["id"]
            assert values_of_ours | {"body": ours.body or b""} == java | {
                "body": java["body"] or b""
            }
