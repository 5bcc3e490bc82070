"""Stored messages, batches, ids and compressed bodies as Apache RocketMQ 5.5.0 wrote them.

Taken from `MessageDecoder`, `MessageClientIDSetter` and the compressors, and recomputed by hand.
Everything is checked both ways, except where two libraries may compress differently.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from gantrymq.wire import batch, compression, message_id, properties, record
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.columns import decode as decode_columns
from gantrymq.wire.flags import BORN_HOST_IPV6, STORE_HOST_IPV6, Compression
from gantrymq.wire.message_id import OffsetId, UniqueId, UniqueIds
from gantrymq.wire.record import StoredMessage

PROPERTIES = (
    "554e49515f4b4559013041303130323033313233343742324139433045303030314532343030303037025741495401"
    "747275650254414753015461674102"
)
TAIL = "546f706963546573740015544147530154616741024b455953016b31206b3202"
MESSAGE = StoredMessage(
    "TopicTest",
    b"hello",
    b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02",
    queue_id=2,
    flag=3,
    queue_offset=100,
    log_offset=4096,
    born_ms=1_700_000_000_000,
    born_ip=bytes((10, 1, 2, 3)),
    born_port=51234,
    store_ms=1_700_000_000_123,
    store_ip=bytes((10, 9, 8, 7)),
    store_port=10911,
    reconsume_times=1,
)
RECORDS = {
    "v1": (
        MESSAGE,
        "0000007edaa320a73610a6860000000200000003000000000000006400000000000010000000000000"
        "00018bcfe568000a0102030000c8220000018bcfe5687b0a09080700002a9f00000001000000000000"
        "00000000000568656c6c6f09" + TAIL,
    ),
    "v1 with IPv6 hosts": (
        replace(
            MESSAGE,
            sys_flag=BORN_HOST_IPV6 | STORE_HOST_IPV6,
            born_ip=ip_address("2001:db8::1").packed,
            store_ip=ip_address("2001:db8::2").packed,
        ),
        "00000096daa320a73610a6860000000200000003000000000000006400000000000010000000003000"
        "00018bcfe5680020010db80000000000000000000000010000c8220000018bcfe5687b20010db80000"
        "0000000000000000000200002a9f000000010000000000000000000000"
        "0568656c6c6f09" + TAIL,
    ),
    "v2": (
        replace(MESSAGE, version=2),
        "0000007fdaa320ab3610a6860000000200000003000000000000006400000000000010000000000000"
        "00018bcfe568000a0102030000c8220000018bcfe5687b0a09080700002a9f00000001000000000000"
        "00000000000568656c6c6f0009" + TAIL,
    ),
}
BATCH = (
    "000000310000000000000000000000000000000568656c6c6f001654414753015461674102554e49515f4b4559015531"
    "020000002800000000000000000000000700000006776f726c6421000c554e49515f4b455901553202"
)
BATCH_MESSAGES = [
    BatchMessage(b"hello", b"TAGS\x01TagA\x02UNIQ_KEY\x01U1\x02"),
    BatchMessage(b"world!", b"UNIQ_KEY\x01U2\x02", 7),
]
COMPRESSED = {
    Compression.LZ4: "04224d186070730b0000001f4101002750414141414100000000",
    Compression.ZSTD: "28b52ffd00584400001041410100930016010000",
    Compression.ZLIB: "785e7374a40c0000107e1041",
}


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_read_and_written(name: str) -> None:
    message, text = RECORDS[name]
    raw = bytes.fromhex(text)
    read = record.decode(raw)
    assert read == message
    assert (read.size, read.body_crc) == (len(raw), 907060870)
    read.check_crc()
    assert message.encode() == raw
    assert list(record.iterate(raw + raw)) == [message, message]


def test_records_give_their_properties_hosts_and_ids() -> None:
    four, six = (RECORDS[name][0] for name in ("v1", "v1 with IPv6 hosts"))
    assert four.properties == {"TAGS": "TagA", "KEYS": "k1 k2"}
    assert (four.find("TAGS"), four.find("UNIQ_KEY")) == ("TagA", None)
    assert (four.born_host, four.store_host) == ("10.1.2.3:51234", "10.9.8.7:10911")
    assert (six.born_host, six.store_host) == ("[2001:db8::1]:51234", "[2001:db8::2]:10911")
    assert four.message_id == four.offset_id == "0A09080700002A9F0000000000001000"
    assert six.offset_id == "20010DB800000000000000000000000200002A9F0000000000001000"


def test_records_of_all_shapes_become_columns() -> None:
    raw = b"".join(bytes.fromhex(text) for _, text in RECORDS.values())
    columns = decode_columns(raw)
    assert columns.starts.tolist() == [0, 126, 276]
    assert columns["store_ms"].tolist() == [1_700_000_000_123] * 3
    assert columns["reconsume_times"].tolist() == [1, 1, 1]
    tags = columns.property_ranges("TAGS")
    assert [raw[at:end] for at, end in zip(*tags, strict=True)] == [b"TagA"] * 3


def test_properties_are_read_and_written() -> None:
    values = {"UNIQ_KEY": "0A01020312347B2A9C0E0001E2400007", "WAIT": "true", "TAGS": "TagA"}
    raw = bytes.fromhex(PROPERTIES)
    assert properties.decode(raw) == values
    assert properties.decode(raw[:-1]) == values
    assert properties.encode(values) == raw


def test_batches_are_read_and_written() -> None:
    assert batch.decode(bytes.fromhex(BATCH)) == BATCH_MESSAGES
    assert batch.encode(BATCH_MESSAGES).hex() == BATCH


@pytest.mark.parametrize("kind", Compression)
def test_compressed_bodies_are_read(kind: Compression) -> None:
    assert compression.decompress(bytes.fromhex(COMPRESSED[kind]), kind) == b"A" * 64
    stored = replace(MESSAGE, body=bytes.fromhex(COMPRESSED[kind]), sys_flag=kind.bits)
    assert record.decode(stored.encode()).content() == b"A" * 64


def test_zlib_bodies_are_written_as_java_writes_them() -> None:
    assert compression.compress(b"A" * 64, Compression.ZLIB).hex() == COMPRESSED[Compression.ZLIB]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("10.1.2.3", "0A01020312347B2A9C0E0001E2400007"),
        ("2001:db8::5", "20010DB800000000000000000000000512347B2A9C0E0001E2400007"),
    ],
)
def test_unique_ids_are_read_and_written(address: str, text: str) -> None:
    ip = ip_address(address).packed
    ids = UniqueIds(ip, 0x1234, 0x7B2A9C0E, lambda: 123_456, lambda _ms: 0)
    for _ in range(0x10007 % 0x10000):
        ids.next()
    assert ids.next() == text
    parts = UniqueId(ip, 0x1234, 0x7B2A9C0E, 123_456, 7)
    assert message_id.parse_unique_id(text) == parts
    assert str(parts) == text


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("10.9.8.7", "0A09080700002A9F0000000000001000"),
        ("2001:db8::2", "20010DB800000000000000000000000200002A9F0000000000001000"),
    ],
)
def test_offset_ids_are_read_and_written(address: str, text: str) -> None:
    parts = OffsetId(ip_address(address).packed, 10911, 4096)
    assert message_id.parse_offset_id(text) == parts
    assert str(parts) == text
    assert parts.host == address
