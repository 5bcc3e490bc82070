"""Brokers at a name server: coming, staying and going.

The body of `RegisterBroker` has three forms, which `read_registration` tells apart by what the
header, the sender's version and the first byte say:

| sender | body |
|---|---|
| before 3.0.11 | the topic table alone, as JSON |
| since | filter servers and topic table, as JSON |
| `compressed` | a zlib stream of the binary form below |

The binary form is `[length: int32, text]` for the data version, a count and that many lines of
topic settings, `[length, text]` for the filter servers, and from brokers of 5.0.0 on a count and
that many queue mappings. Java's brokers of 5.x deflate the body and say that they do not; the first
byte of a zlib stream (0x78) tells.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from struct import Struct
from typing import Annotated, Any, Final, TypeAlias

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.base import (
    Buffer,
    Done,
    Int,
    Long,
    Reply,
    Request,
    declared,
    named,
    of_frame,
    raw_body,
    whole_body,
)
from gantrymq.protocol.codecs import body_object
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.scalars import Unreadable
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.text_forms import bytes_form
from gantrymq.protocol.topics import TopicSettings, TopicTable
from gantrymq.wire import fastjson
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.versions import CURRENT, V3_0_11, V5_0_0

MOST_INFLATED: Final = 64 * 1024 * 1024
"""Bytes that a compressed registration may come to: some 500,000 topics."""

_I32: Final = Struct(">i")
_ZLIB: Final = 0x78


@declared
class Registration:
    """What a broker has to offer. RocketMQ: RegisterBrokerBody."""

    filter_servers: list[str] | None = named("filterServerList", default=None)
    table: TopicTable = named("topicConfigSerializeWrapper", default_factory=TopicTable)


def _read_order_topics(body: bytes) -> dict[str, str]:
    tree = body_object(body).get("table")
    return {} if tree is None else _TEXTS.read(tree)


def _write_order_topics(table: dict[str, str]) -> bytes:
    return fastjson.dumps({"table": _TEXTS.write(table)})


_TEXTS: Final = shape(dict[str, str])
OrderTopics: TypeAlias = Annotated[
    dict[str, str], bytes_form(_read_order_topics, _write_order_topics)
]


@declared
class RegisterBrokerReply(Reply):
    """Where a replica finds its master, and the table of order topics.

    RocketMQ: RegisterBrokerResponseHeader, KVTable.
    """

    ha_address: str | None = named("haServerAddr", default=None)
    master_address: str | None = named("masterAddr", default=None)
    order_topics: OrderTopics | None = whole_body(default=None)


@declared
class RegisterBroker(Request[RegisterBrokerReply]):
    """Make a broker and its topics known to a name server.

    `registration()` reads the body, `carry()` sets it.

    RocketMQ: RegisterBrokerRequestHeader, code 103.
    """

    CODE = RequestCode.REGISTER_BROKER

    broker: str = named("brokerName")
    address: str = named("brokerAddr")
    cluster: str = named("clusterName")
    ha_address: str = named("haServerAddr")
    broker_id: Long
    timeout_ms: Long | None = named("heartbeatTimeoutMillis", default=None)
    acting_master: bool | None = named("enableActingMaster", default=None)
    compressed: bool = False
    crc: Int = named("bodyCrc32", default=0)
    zone: str | None = named("__ZONE_NAME", default=None)
    version: Int = of_frame("version", default=CURRENT)
    body: Buffer = raw_body(default=b"")

    def carry(self, registration: Registration, *, compressed: bool = False) -> None:
        """Put `registration` into the body, and say so in the header."""
        self.body = write_registration(registration, compressed=compressed, version=self.version)
        self.compressed = compressed
        self.crc = checksum(self.body)

    def registration(self) -> Registration:
        """What the body says; `RemoteProtocolError` if its checksum or what is in it is wrong."""
        if self.crc and checksum(self.body) != self.crc:
            found = checksum(self.body)
            raise RemoteProtocolError(f"registration: crc32 not match, {found} is not {self.crc}")
        return read_registration(self.body, compressed=self.compressed, version=self.version)


def checksum(body: Buffer) -> int:
    """CRC-32 without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def read_registration(body: Buffer, *, compressed: bool, version: int) -> Registration:
    """The registration that a body is; an empty one is an empty table."""
    if not len(body):
        return Registration()
    try:
        if compressed or body[0] == _ZLIB:
            return _read_binary(_inflated(body), version)
        tree = fastjson.loads(body)
        if version < V3_0_11:
            return Registration(table=shape(TopicTable).read(tree))
        found: Registration = shape(Registration).read(tree)
    except Unreadable as error:
        raise RemoteProtocolError(f"registration: {error}") from None
    return found


def write_registration(
    registration: Registration, *, compressed: bool = False, version: int = CURRENT
) -> bytes:
    """The body for a registration."""
    try:
        if compressed:
            return zlib.compress(_write_binary(registration, version), 9)
        if version < V3_0_11:
            return fastjson.dumps(shape(TopicTable).write(registration.table))
        return fastjson.dumps(shape(Registration).write(registration))
    except ValueError as error:
        raise LocalProtocolError(f"registration: {error}") from None


def _inflated(body: Buffer) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, MOST_INFLATED)
    except zlib.error as error:
        raise Unreadable(f"has to be a zlib stream: {error}") from None
    if not stream.eof:
        cut = "is cut off" if len(data) < MOST_INFLATED else f"is over {MOST_INFLATED} bytes"
        raise Unreadable(f"the zlib stream {cut}")
    return data


class _Pieces:
    """Numbers and length-prefixed texts, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        if len(self.data) - self.at < 4:
            raise Unreadable(f"a length is cut off at {self.at} of {len(self.data)}")
        (number,) = _I32.unpack_from(self.data, self.at)
        self.at += 4
        return int(number)

    def count(self) -> range:
        number = self.number()
        if not 0 <= number <= (len(self.data) - self.at) // 4:
            raise Unreadable(
                f"{number} pieces at {self.at - 4} cannot be in {len(self.data)} bytes"
            )
        return range(number)

    def piece(self) -> bytes:
        size = self.number()
        if not 0 <= size <= len(self.data) - self.at:
            raise Unreadable(f"{size} bytes at {self.at}, {len(self.data)} is the end")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, cls: Any) -> Any:
        return shape(cls).read(fastjson.loads(self.piece()))

    @property
    def rest(self) -> int:
        return len(self.data) - self.at


def _read_binary(data: bytes, version: int) -> Registration:
    pieces = _Pieces(data)
    table = TopicTable(version=pieces.value(DataVersion))
    for _ in pieces.count():
        line = str(pieces.piece(), "utf-8", "replace")
        settings = TopicSettings.from_line(line)
        table.topics[str(settings.topic)] = settings
    servers = pieces.value(list[str])
    if version >= V5_0_0 and pieces.rest:
        for _ in pieces.count():
            mapping: QueueMapping = pieces.value(QueueMapping)
            table.mappings[str(mapping.topic)] = mapping
    return Registration(filter_servers=servers, table=table)


def _write_binary(registration: Registration, version: int) -> bytes:
    table = registration.table
    parts = [_piece(_json(DataVersion, table.version))]
    parts += _counted(settings.line().encode() for settings in table.topics.values())
    parts.append(_piece(_json(list[str], registration.filter_servers or [])))
    if version >= V5_0_0:
        parts += _counted(_json(QueueMapping, mapping) for mapping in table.mappings.values())
    return b"".join(parts)


def _json(cls: Any, value: Any) -> bytes:
    return fastjson.dumps(shape(cls).write(value))


def _piece(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _counted(pieces: Iterable[bytes]) -> list[bytes]:
    made = [_piece(piece) for piece in pieces]
    return [_I32.pack(len(made)), *made]


@declared
class UnregisterBroker(Request[Done]):
    """Take a broker out of a name server's tables.

    RocketMQ: UnRegisterBrokerRequestHeader, code 104.
    """

    CODE = RequestCode.UNREGISTER_BROKER

    broker: str = named("brokerName")
    address: str = named("brokerAddr")
    cluster: str = named("clusterName")
    broker_id: Long


@declared
class DataVersionReply(Reply):
    """Whether what a name server holds is something else, and which version that is.

    RocketMQ: QueryDataVersionResponseHeader.
    """

    changed: bool
    held: DataVersion | None = whole_body(default=None)


@declared
class QueryDataVersion(Request[DataVersionReply]):
    """Ask whether a broker has to register again.

    RocketMQ: QueryDataVersionRequestHeader, code 322.
    """

    CODE = RequestCode.QUERY_DATA_VERSION

    broker: str = named("brokerName")
    address: str = named("brokerAddr")
    cluster: str = named("clusterName")
    broker_id: Long
    version: DataVersion = whole_body()


@declared
class BrokerHeartbeat(Request[Done]):
    """Say that a broker is alive.

    RocketMQ: BrokerHeartbeatRequestHeader, code 904.
    """

    CODE = RequestCode.BROKER_HEARTBEAT

    cluster: str = named("clusterName")
    address: str = named("brokerAddr")
    broker: str = named("brokerName")
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    timeout_ms: Long | None = named("heartbeatTimeoutMills", default=None)
    election_priority: Int | None = None


@declared
class NotifyLeastBrokerChanged(Request[Done]):
    """Tell a broker that another one has the smallest id of its name now; one-way.

    RocketMQ: NotifyMinBrokerIdChangeRequestHeader, code 905.
    """

    CODE = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE

    least_id: Long | None = named("minBrokerId", default=None)
    broker: str | None = named("brokerName", default=None)
    least_address: str | None = named("minBrokerAddr", default=None)
    offline_address: str | None = named("offlineBrokerAddr", default=None)
    ha_address: str | None = named("haBrokerAddr", default=None)


@declared
class TopicsWiped(Reply):
    """How many topics were touched. RocketMQ: WipeWritePermOfBrokerResponseHeader."""

    count: Int = named("wipeTopicCount")


@declared
class WipeWritePermission(Request[TopicsWiped]):
    """Have no more messages sent to a broker.

    RocketMQ: WipeWritePermOfBrokerRequestHeader, code 205.
    """

    CODE = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker: str = named("brokerName")


@declared
class TopicsAdded(Reply):
    """How many topics were touched. RocketMQ: AddWritePermOfBrokerResponseHeader."""

    count: Int = named("addTopicCount")


@declared
class AddWritePermission(Request[TopicsAdded]):
    """Have messages sent to a broker again; every topic there becomes readable and writable.

    RocketMQ: AddWritePermOfBrokerRequestHeader, code 327.
    """

    CODE = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker: str = named("brokerName")
