"""The values that all parts and all users share: messages, the queues they live in, receipts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from gantrymq.wire import properties as names
from gantrymq.wire.record import StoredMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MessageQueue(NamedTuple):
    """One queue of a topic at one broker; sorts as RocketMQ sorts, by topic, broker, queue id.

    RocketMQ: MessageQueue.
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.broker}:{self.queue_id}]"


@dataclass(slots=True)
class Message:
    """What a producer sends: a body for a topic, with a tag, keys and properties of the user's own.

    `delay` and `deliver_at` say when it is to be delivered; what of that a cluster can do is looked
    up before it is sent. `delay_level` names one of a broker's own delays. `priority`, from 0 up,
    is for topics of type PRIORITY. `light_queues` names further queues that it is to be in; they
    are read as topics of the name `%LMQ%` and theirs.

    RocketMQ: Message.
    """

    topic: str
    body: bytes | bytearray | memoryview
    _: KW_ONLY
    tag: str | None = None
    keys: tuple[str, ...] = ()
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    wait_stored: bool = True
    delay_level: int = 0
    delay: timedelta | None = None
    deliver_at: datetime | None = None
    priority: int | None = None
    light_queues: tuple[str, ...] = ()


class SendStatus(IntEnum):
    """How safe a stored message is. RocketMQ: SendStatus."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(slots=True, kw_only=True)
class SendReceipt:
    """Where a message was stored, and how safely.

    `message_id` is the unique id that the sender gave it; `offset_id` says where it is stored. A
    delayed message of a 5.x cluster that may be taken back has a `recall_handle`.

    RocketMQ: SendResult.
    """

    message_id: str
    queue: MessageQueue
    offset: int
    offset_id: str | None = None
    status: SendStatus = SendStatus.OK
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    traced: bool = True

    @property
    def stored_safely(self) -> bool:
        """Whether the broker's own rule of when a message is safe was kept."""
        return self.status is SendStatus.OK


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants of a topic: everything, certain tags (`a || b`), or what SQL selects.

    RocketMQ: SubscriptionData.
    """

    topic: str
    expression: str = "*"
    kind: Literal["tag", "sql"] = "tag"


class ReceivedMessage:
    """A message as a consumer gets it.

    Its body is unpacked and its properties are taken apart when somebody asks for them. `topic` is
    the one it was sent to, also when it comes from a group's retry topic.

    RocketMQ: MessageExt.
    """

    __slots__ = ("_all", "_body", "broker", "stored", "topic")

    def __init__(self, stored: StoredMessage, broker: str, *, topic: str | None = None) -> None:
        self.stored: Final = stored
        """The record, as the broker keeps it."""
        self.broker: Final = broker
        self.topic = stored.topic if topic is None else topic
        self._body: bytes | None = None
        self._all: dict[str, str] | None = None

    @property
    def body(self) -> bytes:
        """What was sent; unpacked if it came compressed."""
        if self._body is None:
            self._body = self.stored.content()
        return self._body

    @property
    def all_properties(self) -> Mapping[str, str]:
        """Every property, RocketMQ's own ones included."""
        if self._all is None:
            self._all = self.stored.properties
        return self._all

    @property
    def properties(self) -> dict[str, str]:
        """The properties that are the user's own."""
        reserved = names.RESERVED_PROPERTIES
        return {name: value for name, value in self.all_properties.items() if name not in reserved}

    def find(self, name: str) -> str | None:
        """One property, whosever it is."""
        return self.stored.find(name) if self._all is None else self._all.get(name)

    @property
    def message_id(self) -> str:
        """The sender's unique id, or where it is stored if the sender gave none."""
        return self.find(names.UNIQUE_KEY) or self.stored.offset_id

    @property
    def offset_id(self) -> str:
        """The id that says where it is stored."""
        return self.stored.offset_id

    @property
    def tag(self) -> str | None:
        """The tag it was sent with."""
        return self.find(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it can be found by."""
        return tuple((self.find(names.KEYS) or "").split())

    @property
    def priority(self) -> int | None:
        """The priority that it was sent with, to a topic of type PRIORITY."""
        text = self.find(names.PRIORITY) or ""
        return int(text) if text.isdecimal() else None

    @property
    def flag(self) -> int:
        """The sender's own flag."""
        return self.stored.flag

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return MessageQueue(self.stored.topic, self.broker, self.stored.queue_id)

    @property
    def offset(self) -> int:
        """Its place in that queue."""
        return self.stored.queue_offset

    @property
    def retries(self) -> int:
        """How often it was delivered before and given back."""
        return self.stored.reconsume_times

    @property
    def born_at(self) -> datetime:
        """When it was sent, by the sender's clock."""
        return _time(self.stored.born_ms)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the broker's clock."""
        return _time(self.stored.store_ms)

    @property
    def born_host(self) -> str:
        """Who sent it."""
        return self.stored.born_host

    def __repr__(self) -> str:
        return f"<ReceivedMessage {self.queue} @ {self.offset}, {len(self.stored.body)} bytes>"


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
