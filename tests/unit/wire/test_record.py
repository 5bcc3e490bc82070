"""Stored messages: what is refused and how it is said, wrapped batches, and patching in place."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import batch, compression, flags, properties, record
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.flags import Compression
from gantrymq.wire.record import StoredMessage, UnknownMagic

IPV6 = bytes(range(16))
MESSAGE = StoredMessage("Topic", b"body", b"TAGS\x01a\x02", queue_id=1, queue_offset=7)
RAW = MESSAGE.encode()


def damaged(at: int, value: int, width: int = 4) -> bytes:
    """`RAW` with another number at byte `at`."""
    return RAW[:at] + value.to_bytes(width, "big", signed=value < 0) + RAW[at + width :]


BODY_AT = 88
TOPIC_AT = BODY_AT + 4
PROPERTIES_AT = TOPIC_AT + 6


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (RAW[:3], "at byte 0: only 3 bytes are left"),
        (RAW[:90], "it says 107 bytes, and only 90 are left"),
        (RAW[:-1], "it says 107 bytes, and only 106 are left"),
        (damaged(0, 0), "it says 0 bytes; the least is 91"),
        (damaged(0, -1), "it says -1 bytes; the least is 91"),
        (damaged(0, 2**31 - 1), "it says 2147483647 bytes, and only 107 are left"),
        (damaged(0, 106), "do not make up 106 bytes"),
        (damaged(0, 108) + b"\0", "do not make up 108 bytes"),
        (damaged(84, -4), "a body of -4 bytes does not fit a record of 107 bytes"),
        (damaged(84, 17), "a body of 17 bytes does not fit"),
        (damaged(TOPIC_AT, 6, 1), "a topic of 6 .* do not make up"),
        (damaged(TOPIC_AT, 128, 1), r"a topic of 128 \(at most 127\)"),
        (damaged(PROPERTIES_AT, 6, 2), r"properties of 6 \(at most 32767\) do not make up"),
        (damaged(PROPERTIES_AT, 8, 2), "properties of 8 .* do not make up"),
        (damaged(36, flags.BORN_HOST_IPV6), "do(es)? not"),
        (damaged(36, flags.IPV6_BITS), "does not fit a record of 107 bytes"),
    ],
)
def test_broken_records_are_refused_with_place_and_number(raw: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        record.decode(raw)
    with pytest.raises(RemoteProtocolError, match=said):
        record.decode(memoryview(raw))
    whole = record.iterate(RAW + raw)
    assert next(whole) == MESSAGE
    with pytest.raises(RemoteProtocolError, match="stored message at byte 107"):
        next(whole)


@pytest.mark.parametrize("magic", [record.MAGIC_BLANK, 0, -1])
def test_an_unknown_magic_number_ends_the_list(magic: int) -> None:
    rest = struct.pack(">ii", 1000, magic)
    assert list(record.iterate(RAW + rest)) == [MESSAGE]
    assert list(record.iterate(RAW + rest + bytes(200))) == [MESSAGE]
    with pytest.raises(UnknownMagic, match=r"at byte 107: 0x.{8} is no message's magic number"):
        record.decode(memoryview(RAW + rest), len(RAW))


def test_properties_longer_than_an_int16_are_refused() -> None:
    # with the sign bit set the length is consistent, and still not one that Java can write
    body_size = 4
    raw = RAW[:PROPERTIES_AT] + (0x8000).to_bytes(2, "big") + bytes(0x8000)
    size = BODY_AT + body_size + 6 + 2 + 0x8000
    with pytest.raises(RemoteProtocolError, match=r"properties of 32768 \(at most 32767\)"):
        record.decode(size.to_bytes(4, "big") + raw[4:])


@pytest.mark.parametrize(
    ("topic_size", "version", "magic"),
    [
        (0, 1, record.MAGIC_V1),
        (127, 1, record.MAGIC_V1),
        (127, 2, record.MAGIC_V2),
        (128, 1, record.MAGIC_V2),
        (32_767, 1, record.MAGIC_V2),
    ],
)
def test_the_version_follows_the_topic(topic_size: int, version: int, magic: int) -> None:
    message = replace(MESSAGE, topic="t" * topic_size, version=version)
    raw = message.encode()
    assert struct.unpack_from(">i", raw, 4) == (magic,)
    assert record.decode(raw).topic == message.topic
    assert record.decode(raw).encode() == raw


def test_hosts_decide_the_shape_whatever_the_flag_said() -> None:
    six = replace(MESSAGE, store_ip=IPV6, sys_flag=flags.BORN_HOST_IPV6 | flags.MULTI_TAGS)
    read = record.decode(six.encode())
    assert (read.born_ip, read.store_ip) == (six.born_ip, IPV6)
    assert read.sys_flag == flags.STORE_HOST_IPV6 | flags.MULTI_TAGS
    assert read.size == len(RAW) + 12


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topic": "t" * 32_768}, r"its topic has 32768 bytes \(at most 32767\)"),
        ({"property_bytes": bytes(32_768)}, r"its properties 32768 \(at most 32767\)"),
        ({"queue_id": 2**31}, "cannot be stored: queue_id 2147483648 does not fit an int32"),
        ({"store_ms": -(2**63) - 1}, "store_ms -9223372036854775809 does not fit an int64"),
        ({"born_ip": b"\0" * 5}, "address of 5 bytes"),
        ({"topic": "\ud800"}, "cannot be stored: .*surrogates not allowed"),
    ],
)
def test_what_cannot_be_stored_is_refused(wrong: dict[str, object], said: str) -> None:
    message = replace(MESSAGE)
    for name, value in wrong.items():
        setattr(message, name, value)
    with pytest.raises(LocalProtocolError, match=said):
        message.encode()


@pytest.mark.parametrize("born_ip", [b"\1\2\3\4", IPV6])
@pytest.mark.parametrize("store_ip", [b"\1\2\3\4", IPV6])
def test_a_log_stamps_place_and_time_into_a_record(born_ip: bytes, store_ip: bytes) -> None:
    message = replace(MESSAGE, born_ip=born_ip, store_ip=store_ip)
    log = bytearray(10) + message.encode()
    record.stamp(log, 10, queue_offset=2**40, log_offset=2**50, store_ms=2**41)
    placed = replace(message, queue_offset=2**40, log_offset=2**50, store_ms=2**41)
    assert bytes(log[10:]) == placed.encode()


def test_the_body_is_checked_only_when_asked() -> None:
    read = record.decode(damaged(BODY_AT, ord("x"), 1))
    assert read.body == b"xody"
    with pytest.raises(RemoteProtocolError, match=r"@ 7.*body CRC 0x.{8}, stored was 0x"):
        read.check_crc()
    assert record.crc(b"") == 0


def test_content_is_decompressed_up_to_a_limit() -> None:
    body = compression.compress(b"A" * 1000, Compression.ZSTD)
    message = replace(MESSAGE, body=body, sys_flag=Compression.ZSTD.bits)
    assert message.content() == b"A" * 1000
    assert MESSAGE.content(limit=0) == b"body"
    with pytest.raises(RemoteProtocolError, match="limit, 999 bytes"):
        message.content(limit=999)


@pytest.mark.parametrize("bits", [0, Compression.LZ4.bits])
def test_wrapped_batches_come_out_as_plain_messages(bits: int) -> None:
    inner = [BatchMessage(b"one", b"TAGS\x01x\x02", 5), BatchMessage(b"two")]
    body = batch.encode(inner)
    if bits:
        body = compression.compress(body, Compression.LZ4)
    sys_flag = flags.WRAPPED_BITS | flags.MULTI_TAGS | bits
    wrapped = replace(MESSAGE, body=body, sys_flag=sys_flag, property_bytes=b"INNER_NUM\x012\x02")
    plain = replace(MESSAGE, sys_flag=flags.MULTI_TAGS, log_offset=wrapped.log_offset)
    found = list(record.iterate(wrapped.encode() + RAW))
    assert found == [
        replace(plain, body=b"one", property_bytes=b"TAGS\x01x\x02", flag=5, queue_offset=7),
        replace(plain, body=b"two", property_bytes=b"", queue_offset=8),
        MESSAGE,
    ]
    for message in found:
        message.check_crc()
    assert [message.body for message in record.iterate(wrapped.encode(), unwrap=False)] == [body]


@pytest.mark.parametrize("bit", [flags.NEED_UNWRAP, flags.INNER_BATCH])
def test_one_wrap_bit_alone_means_nothing(bit: int) -> None:
    message = replace(MESSAGE, sys_flag=bit)
    assert list(record.iterate(message.encode())) == [message]
    assert list(record.unwrapped(message)) == [message]


def test_a_wrapped_batch_is_not_unwrapped_twice_and_has_a_limit() -> None:
    within = replace(MESSAGE, sys_flag=flags.WRAPPED_BITS, body=batch.encode([BatchMessage(RAW)]))
    (once,) = record.iterate(within.encode())
    assert once.body == RAW
    many = batch.encode([BatchMessage(b"")]) * (record.MAX_WRAPPED + 1)
    with pytest.raises(RemoteProtocolError, match="wraps more than 65536 messages"):
        for _ in record.unwrapped(replace(within, body=many)):
            pass


def test_views_are_copied_out_so_that_buffers_can_be_used_again() -> None:
    buffer = bytearray(RAW + RAW)
    second = record.decode(memoryview(buffer), len(RAW))
    listed = list(record.iterate(buffer))
    buffer[:] = bytes(len(buffer))
    assert [second, *listed] == [MESSAGE] * 3
    assert type(second.body) is bytes


def test_a_message_shows_where_it_is_and_not_what_it_holds() -> None:
    assert repr(MESSAGE) == "<StoredMessage Topic[1] @ 7, log 0, body 4 bytes>"
    assert replace(MESSAGE, property_bytes=b"UNIQ_KEY\x01U1\x02").message_id == "U1"
    assert MESSAGE.properties == {properties.TAGS: "a"}


@pytest.mark.parametrize("flags", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("topic", ["T", "T" * 127, "T" * 200, ""])
def test_properties_are_found_without_the_rest(topic: str, flags: int) -> None:
    address = {0: b"\x7f\0\0\1", 1: bytes(16)}
    message = StoredMessage(
        topic, b"body" * 9, b"a\x01b\x02", sys_flag=flags, version=2 if len(topic) > 127 else 1,
        born_ip=address[bool(flags & 0x10)], store_ip=address[bool(flags & 0x20)],
    )  # fmt: skip
    raw = message.encode()
    assert record.properties_at(memoryview(b"12345" + raw), 5, len(raw)) == b"a\x01b\x02"
    assert record.properties_at(memoryview(raw + b"more"), 0, len(raw)) == b"a\x01b\x02"
    assert record.properties_start(b"12345" + raw + b"more", 5, len(raw)) == len(raw) + 1


def test_no_properties_are_found_in_a_record_that_is_not_whole() -> None:
    raw = bytearray(RAW)
    for size in (40, 91, 95):
        assert record.properties_at(memoryview(raw), 0, size) == b""
    for length in (-1, 2**31 - 1, 50):
        raw[84:88] = length.to_bytes(4, "big", signed=True)
        assert record.properties_at(memoryview(raw), 0, len(raw)) == b""
        assert record.properties_start(bytes(raw), 0, len(raw)) == len(raw)
