"""What messages are made of, against RocketMQ's own code: properties, batches, bodies and ids."""

from __future__ import annotations

import zlib
from itertools import pairwise
from random import Random
from time import localtime, mktime, time
from typing import Any

import generated
import pytest
from peer import JavaPeer

from gantrymq.wire import batch, compression, message_id, properties
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.flags import Compression

COUNT = 10_000


def test_properties_both_ways(peer: JavaPeer, rng: Random) -> None:
    made = [generated.properties(rng) for _ in range(COUNT)]
    assert peer.ask("properties.read", [properties.join(each) for each in made]) == made
    assert [properties.split(text) for text in peer.ask("properties.write", made)] == made


def test_any_text_gives_the_same_properties(peer: JavaPeer, rng: Random) -> None:
    """Missing ends, empty names and values, separators in odd places."""
    pieces = ("\x01", "\x02", "\x01", "\x02", "a", "b", "ü", "😀", " ", "KEYS")
    texts = ["".join(rng.choices(pieces, k=rng.randint(0, 14))) for _ in range(COUNT)]
    assert peer.ask("properties.read", texts) == [properties.split(text) for text in texts]


def test_property_names_are_javas(peers: Any) -> None:
    (java,) = peers("5.5.0").ask("constants", ["MessageConst"])
    reserved = set(java.pop("STRING_HASH_SET"))
    ours = {value for value in vars(properties).values() if type(value) is str}
    assert reserved == properties.RESERVED_PROPERTIES
    known = {value for name, value in java.items() if name.startswith(("PROPERTY_", "DUP_"))}
    known.remove("__RMQ.TRANSIENT.")  # a prefix of two names, itself no name
    assert known - ours == set()


def batch_of(rng: Random) -> list[BatchMessage]:
    return [
        BatchMessage(
            generated.body(rng),
            properties.encode(generated.properties(rng)),
            generated.int32(rng),
        )
        for _ in range(rng.randint(1, 6))
    ]


def described(message: BatchMessage) -> dict[str, Any]:
    return {"flag": message.flag, "body": message.body, "properties": message.properties}


def test_batches_that_we_write(peer: JavaPeer, rng: Random) -> None:
    batches = [batch_of(rng) for _ in range(COUNT // 4)]
    read = peer.ask("batch.decode", [batch.encode(each) for each in batches])
    for messages, values in zip(batches, read, strict=True):
        expected = [described(message) | {"topic": None} for message in messages]
        assert [value | {"properties": value["properties"] or {}} for value in values] == expected


def test_batches_that_java_writes(peer: JavaPeer, rng: Random) -> None:
    batches = [batch_of(rng) for _ in range(COUNT // 4)]
    written = peer.ask("batch.encode", [[described(m) for m in each] for each in batches])
    for messages, body in zip(batches, written, strict=True):
        assert [described(m) for m in batch.decode(body)] == [described(m) for m in messages]


def body_to_compress(rng: Random) -> bytes:
    return rng.randbytes(rng.randint(1, 300)) * rng.randint(1, 400) or b"-"


@pytest.mark.parametrize("kind", list(Compression), ids=lambda kind: kind.name.lower())
def test_compressed_bodies_both_ways(peer: JavaPeer, kind: Compression, rng: Random) -> None:
    bodies = [body_to_compress(rng) for _ in range(200)]
    levels = [None, *compression.LEVELS[kind]]
    ours = [
        {"flags": kind.bits, "body": compression.compress(body, kind, rng.choice(levels))}
        for body in bodies
    ]
    assert peer.ask("decompress", ours) == bodies
    asked = [{"flags": kind.bits, "level": rng.randint(1, 9), "body": body} for body in bodies]
    theirs = peer.ask("compress", asked)
    assert [compression.decompress(data, kind) for data in theirs] == bodies


def test_the_type_bits_of_old_senders_mean_zlib(peer: JavaPeer) -> None:
    (data,) = peer.ask("compress", [{"flags": 0x1, "level": 5, "body": b"A" * 64}])
    assert data == zlib.compress(b"A" * 64, 5)


def test_checksums_are_the_same(peer: JavaPeer, rng: Random) -> None:
    bodies = [rng.randbytes(rng.randint(0, 200)) for _ in range(1000)]
    assert peer.ask("crc", bodies) == [zlib.crc32(body) & 0x7FFF_FFFF for body in bodies]


def address(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((4, 16)))


def test_offset_ids_both_ways(peer: JavaPeer, rng: Random) -> None:
    made = [
        message_id.OffsetId(address(rng), rng.randint(0, 65535), generated.int64(rng))
        for _ in range(1000)
    ]
    asked = [{"host": [each.ip, each.port], "offset": each.log_offset} for each in made]
    written = peer.ask("ids.offset", asked)
    assert written == [str(each) for each in made]
    assert [message_id.parse_offset_id(text) for text in written] == made
    assert peer.ask("ids.offset.read", written) == asked


def month_start(now_ms: int) -> int:
    year, month, *_ = localtime(now_ms / 1000)
    return int(mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


def test_unique_ids_that_java_makes(peer: JavaPeer) -> None:
    before = int(time() * 1000)
    made = peer.ask("ids.new", [None] * 1000)
    after = int(time() * 1000)
    parsed = [message_id.parse_unique_id(text) for text in made]
    assert [str(each) for each in parsed] == made
    assert len({each.loader_hash for each in parsed}) == len({each.process for each in parsed}) == 1
    assert {(b.counter - a.counter) & 0xFFFF for a, b in pairwise(parsed)} == {1}
    for each in parsed:
        assert before <= each.born_ms(after + 1, month_start) <= after


def test_unique_ids_that_we_make(peer: JavaPeer, rng: Random) -> None:
    now = int(time() * 1000)
    made = []
    for _ in range(200):
        ids = message_id.UniqueIds(
            address(rng), rng.getrandbits(32), rng.getrandbits(32), lambda: now, month_start
        )
        made += [ids.next(), ids.next()]
    for text, read in zip(made, peer.ask("ids.read", made), strict=True):
        parsed = message_id.parse_unique_id(text)
        assert (read["ip"], read["pid"]) == (parsed.ip, parsed.process)
        # Java's reader takes the month from its own clock, as ours does.
        assert read["time"] == parsed.born_ms(now + 60_000, month_start) == now
