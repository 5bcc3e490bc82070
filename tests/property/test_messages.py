"""Messages survive being written; any bytes give values or our error; columns are records."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import InvalidInput, RemoteProtocolError
from gantrymq.wire import batch, columns, compression, flags, message_id, properties, record
from gantrymq.wire.arrays import Ranges
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.flags import Compression
from gantrymq.wire.message_id import OffsetId, UniqueId
from gantrymq.wire.record import StoredMessage

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IP = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20)
NAMES = st.one_of(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__transactionId__"]),
    TEXT.filter(bool),
)
PROPERTIES = st.dictionaries(NAMES, TEXT.filter(bool), max_size=8)
SEPARATORS = st.lists(
    st.sampled_from(["\x01", "\x01", "\x02", "\x02", "TAGS", "A", "TAGS\x01b\x02"]), max_size=12
).map("".join)
RAW_PROPERTIES = st.one_of(PROPERTIES.map(properties.encode), SEPARATORS.map(str.encode))
TOPICS = st.one_of(
    st.sampled_from(["", "Topic", "%RETRY%group", "t" * 127, "t" * 128, "t" * 200]), TEXT
)
BATCHES = st.lists(
    st.builds(BatchMessage, st.binary(max_size=30), RAW_PROPERTIES, INT32), max_size=5
)
MESSAGES = st.builds(
    StoredMessage,
    topic=TOPICS,
    body=st.binary(max_size=60),
    property_bytes=RAW_PROPERTIES,
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    log_offset=INT64,
    sys_flag=st.one_of(st.just(0), INT32.map(lambda bits: bits & ~flags.IPV6_BITS)),
    born_ms=INT64,
    born_ip=IP,
    born_port=INT32,
    store_ms=INT64,
    store_ip=IP,
    store_port=INT32,
    reconsume_times=INT32,
    prepared_offset=INT64,
    version=st.sampled_from([1, 1, 1, 2]),
)
DAMAGE = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])), max_size=3
)


def as_stored(message: StoredMessage) -> StoredMessage:
    """What reading gives: the flag says which hosts are IPv6, long topics are of version 2."""
    bits = flags.BORN_HOST_IPV6 * (len(message.born_ip) == 16)
    bits |= flags.STORE_HOST_IPV6 * (len(message.store_ip) == 16)
    version = 2 if len(message.topic.encode()) > record.MAX_TOPIC_V1 else message.version
    return replace(message, sys_flag=message.sys_flag | bits, version=version)


def damage(data: bytes, places: list[tuple[int, int]], keep: int) -> bytes:
    damaged = bytearray(data)
    for at, value in places:
        if damaged:
            damaged[at % len(damaged)] = value
    return bytes(damaged[: max(len(damaged) - keep, 0)])


def read(buffer: bytes) -> list[StoredMessage] | str:
    try:
        return list(record.iterate(buffer, unwrap=False))
    except RemoteProtocolError as error:
        return str(error)


def cut(buffer: bytes, ranges: Ranges) -> list[bytes | None]:
    spans = zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
    return [None if start < 0 else buffer[start:end] for start, end in spans]


@given(RAW_PROPERTIES, st.lists(st.sampled_from(["TAGS", "A", "b", "KEYS"])))
def test_what_is_taken_out_of_properties_is_gone_and_nothing_else(raw, names):
    wanted = {k: v for k, v in properties.decode(raw).items() if k not in names}
    assert properties.decode(properties.without(raw, *names)) == wanted


@given(RAW_PROPERTIES, PROPERTIES)
def test_what_is_added_to_properties_counts(raw, more):
    assert properties.decode(properties.added(raw, more)) == properties.decode(raw) | more


@given(st.lists(MESSAGES, max_size=6))
def test_stored_messages_survive(messages: list[StoredMessage]) -> None:
    buffer = b"".join(message.encode() for message in messages)
    found = list(record.iterate(memoryview(buffer), unwrap=False))
    assert found == [as_stored(message) for message in messages]
    assert b"".join(message.encode() for message in found) == buffer
    for message in found:
        message.check_crc()


@given(st.lists(MESSAGES, max_size=4), DAMAGE, st.integers(0, 3))
def test_columns_are_records(
    messages: list[StoredMessage], places: list[tuple[int, int]], keep: int
) -> None:
    buffer = damage(b"".join(message.encode() for message in messages), places, keep)
    expected = read(buffer)
    try:
        found = columns.decode(buffer)
    except RemoteProtocolError as error:
        assert str(error) == expected
        return
    assert not isinstance(expected, str)
    assert [found.message(row) for row in range(len(found))] == expected
    for name in columns.NUMBERS:
        assert found[name].tolist() == [getattr(message, name) for message in expected]
    assert cut(buffer, found.body) == [message.body for message in expected]
    assert cut(buffer, found.properties) == [message.property_bytes for message in expected]
    assert cut(buffer, found.born_ip) == [message.born_ip for message in expected]
    assert cut(buffer, found.store_ip) == [message.store_ip for message in expected]


@given(st.lists(RAW_PROPERTIES, max_size=8))
def test_property_columns_are_properties(rows: list[bytes]) -> None:
    buffer = b"".join(StoredMessage("T", b"", raw).encode() for raw in rows)
    found = columns.decode(buffer)
    expected = [properties.decode(raw) for raw in rows]
    names = {name for values in expected for name in values} | {"TAGS", "missing"}
    for name in names:
        wanted = [values.get(name) for values in expected]
        ranges = cut(buffer, found.property_ranges(name))
        assert [None if value is None else value.decode() for value in ranges] == wanted
        assert [properties.find(raw, name) for raw in rows] == wanted
    entries = found.entries()
    pairs = list(zip(cut(buffer, entries.names), cut(buffer, entries.values), strict=True))
    for row, values in enumerate(expected):
        mine = pairs[entries.offsets[row] : entries.offsets[row + 1]]
        assert sorted(mine) == sorted((n.encode(), v.encode()) for n, v in values.items())


@given(st.binary(max_size=300), st.sampled_from([record.MAGIC_V1, record.MAGIC_V2, 0]))
def test_any_bytes_give_messages_or_our_error(data: bytes, magic: int) -> None:
    size = (8 + len(data)).to_bytes(4, "big")
    for buffer in (data, size + magic.to_bytes(4, "big", signed=True) + data):
        with suppress(RemoteProtocolError):
            for message in record.iterate(buffer, limit=10_000):
                assert message.properties is not None
                assert len(message.content(10_000)) <= 10_000
        with suppress(RemoteProtocolError):
            columns.decode(buffer).entries()


@given(PROPERTIES)
def test_properties_survive(values: dict[str, str]) -> None:
    raw = properties.encode(values)
    assert properties.decode(raw) == properties.decode(raw[:-1]) == values
    assert properties.split(properties.join(values)) == values


@given(SEPARATORS)
def test_one_property_is_what_all_of_them_say(text: str) -> None:
    every = properties.split(text)
    for name in {*every, "TAGS", "A", ""}:
        assert properties.find_text(text, name) == every.get(name)
        assert properties.find(text.encode(), name) == every.get(name)


@given(BATCHES, st.integers(1500, 3000))
def test_batches_survive_and_are_split_within_the_limit(
    messages: list[BatchMessage], limit: int
) -> None:
    assert batch.decode(batch.encode(messages)) == messages
    parts = list(batch.split(messages, limit))
    assert [message for part in parts for message in part] == messages
    assert all(0 < len(batch.encode(part)) <= limit for part in parts)


@given(BATCHES, DAMAGE, st.integers(0, 3))
def test_damaged_batches_give_messages_or_our_error(
    messages: list[BatchMessage], places: list[tuple[int, int]], keep: int
) -> None:
    with suppress(RemoteProtocolError):
        batch.decode(damage(batch.encode(messages), places, keep))


@given(MESSAGES, BATCHES, st.sampled_from([None, *Compression]))
def test_wrapped_batches_survive(
    message: StoredMessage, inner: list[BatchMessage], kind: Compression | None
) -> None:
    body, sys_flag = batch.encode(inner), flags.WRAPPED_BITS
    if kind is not None:
        body, sys_flag = compression.compress(body, kind), sys_flag | kind.bits
    offset = message.queue_offset % 2**62
    stored = replace(message, body=body, sys_flag=sys_flag, queue_offset=offset)
    found = list(record.iterate(stored.encode()))
    assert [BatchMessage(m.body, m.property_bytes, m.flag) for m in found] == inner
    assert [m.queue_offset for m in found] == [offset + number for number in range(len(inner))]
    assert [list(record.unwrapped(m)) for m in found] == [[m] for m in found]


@given(st.binary(max_size=2000), st.sampled_from(Compression))
def test_compressed_bodies_survive(body: bytes, kind: Compression) -> None:
    packed = compression.compress(body * 3, kind)
    assert compression.decompress(packed, kind, len(body) * 3) == body * 3


@given(st.binary(max_size=200), st.sampled_from(Compression), DAMAGE, st.integers(0, 3))
def test_damaged_bodies_give_content_or_our_error(
    body: bytes, kind: Compression, places: list[tuple[int, int]], keep: int
) -> None:
    for data in (body, damage(compression.compress(body * 5, kind), places, keep)):
        with suppress(RemoteProtocolError):
            assert len(compression.decompress(data, kind, limit=2000)) <= 2000


@given(IP, INT32, INT64)
def test_offset_ids_survive(ip: bytes, port: int, log_offset: int) -> None:
    parts = OffsetId(ip, port, log_offset)
    assert message_id.parse_offset_id(str(parts)) == parts


@given(IP, st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF), st.integers(0, 0xFFFF_FFFF))
def test_unique_ids_survive(ip: bytes, short: int, loader_hash: int, month_ms: int) -> None:
    parts = UniqueId(ip, short, loader_hash, month_ms, 0xFFFF - short)
    assert message_id.parse_unique_id(str(parts)) == parts


@given(
    st.one_of(st.text(max_size=60), st.text("0123456789abcdefABCDEF ", min_size=32, max_size=32))
)
def test_any_text_is_an_id_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert str(message_id.parse_unique_id(text)) == text.upper()
        assert str(message_id.parse_offset_id(text)) == text.upper()
