"""What is put into a broker's store, and all that a broker says of one: any broker, ours or theirs.

`Writer` fills a store through a broker, as producers and consumers would; `picture` asks a broker
for everything that its store holds, so that two brokers on one store can be compared.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from gantrymq.errors import NotFound
from gantrymq.net.blocking import Begun, BlockingPeer
from gantrymq.protocol.base import Request
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.group_settings import ForbidGroup, GetGroups, GroupSettings, PutGroup
from gantrymq.protocol.offsets import (
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.protocol.pulling import PullFlag, PullMessage, QueryMessages, ViewMessage
from gantrymq.protocol.sending import SendBack, SendBatch, SendMessage, SendReply, SendStatus
from gantrymq.protocol.topics import GetTopics, PutTopic
from gantrymq.wire import batch, properties
from gantrymq.wire.record import StoredMessage, iterate

TOPICS: Final = {f"exchange-{number:02d}": 1 + number % 4 for number in range(20)}
"""The topics, and how many queues each has."""
GROUP: Final = "GID_exchange"
RETRY: Final = f"%RETRY%{GROUP}"
DEAD: Final = f"%DLQ%{GROUP}"
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
SOON: Final = 3
"""A delay level that ends within a test: ten seconds."""
LATE: Final = 18
"""One that does not: two hours."""

_BATCH: Final = 125
_IN_FLIGHT: Final = 8
_TIMEOUT: Final = 30.0
_FOR_EVER: Final = 4_102_444_800_000
_SAMPLES: Final = 60


class Queue(NamedTuple):
    """Where messages are."""

    topic: str
    queue_id: int


QUEUES: Final = [Queue(topic, number) for topic, count in TOPICS.items() for number in range(count)]
DELIVERED: Final = Queue("exchange-delivered", 0)
"""Where messages go that wait for `SOON`."""
RETRIES: Final = Queue(RETRY, 0)
_ALL: Final = [
    *QUEUES, RETRIES, Queue(DEAD, 0), Queue(SCHEDULE, LATE - 1), Queue(SCHEDULE, SOON - 1),
]  # fmt: skip
"""Every queue but that one, in which messages may come by themselves."""


class Broker:
    """A connection to a broker; a context manager."""

    def __init__(self, address: str) -> None:
        self._peer = BlockingPeer.connect(address)

    def call(self, request: Request[Any]) -> Any:
        """The reply; a refusal is raised."""
        return self._peer.call(request, timeout=_TIMEOUT)

    def call_each(self, requests: Iterable[Request[Any]]) -> Iterator[Any]:
        """The replies in order, with several requests on the way at any time."""
        begun: deque[Begun[Any]] = deque()
        for request in requests:
            begun.append(self._peer.begin(request, timeout=_TIMEOUT))
            if len(begun) == _IN_FLIGHT:
                yield self._peer.finish(begun.popleft())
        while begun:
            yield self._peer.finish(begun.popleft())

    def pull(self, queue: Queue, offset: int) -> Any:
        """What one pull gives."""
        return self.call(
            PullMessage(
                group="GID_reader", topic=queue.topic, queue_id=queue.queue_id, offset=offset,
                max_messages=4096, flags=PullFlag.SUBSCRIPTION, subscription="*", wait_ms=0,
            )
        )  # fmt: skip

    def records(self, queue: Queue) -> bytes:
        """Every message of the queue as it is stored, back to back."""
        parts, offset = [], self.call(GetMinOffset(**queue._asdict())).offset
        end = self.call(GetMaxOffset(**queue._asdict())).offset
        while offset < end:
            reply = self.pull(queue, offset)
            assert reply.next_offset > offset, f"{queue} stops at {offset} of {end}: {reply.status}"
            parts.append(bytes(reply.body))
            offset = reply.next_offset
        return b"".join(parts)

    def messages(self, queue: Queue) -> list[StoredMessage]:
        """The same, read."""
        return list(iterate(self.records(queue)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._peer.close()


@dataclass(slots=True, kw_only=True)
class Writer:
    """Fills a store through whatever broker has it, and remembers what was acknowledged."""

    rng: Random
    crashes: bool = False
    """Whether brokers are killed: what was delivered just before then comes again, because a queue
    whose newest entries the log has to tell is shorter at first than what is noted of it."""
    sent: dict[Queue, dict[int, bytes]] = field(default_factory=lambda: {one: {} for one in QUEUES})
    """The bodies in each queue, by their offsets."""
    delayed: set[bytes] = field(default_factory=set)
    """The bodies that wait, or waited, for `SOON`."""
    retries: int = 0
    """How many messages were sent back with the shortest delay."""
    _number: int = 0

    def begin(self, broker: Broker) -> None:
        """Make topics and groups."""
        for number, (topic, queues) in enumerate((*TOPICS.items(), (DELIVERED.topic, 1))):
            changes = {"+message.type": "NORMAL"} if number == 3 else None
            broker.call(
                PutTopic(
                    topic=topic, read_queues=queues, write_queues=queues, perm=6,
                    ordered=number == 5, attributes=changes,
                )
            )  # fmt: skip
        broker.call(PutGroup(settings=GroupSettings(group=GROUP, max_retries=3, orderly=True)))
        broker.call(PutGroup(settings=GroupSettings(group="GID_still", enabled=False)))
        broker.call(ForbidGroup(group="GID_still", topic="exchange-01", readable=False))

    def write(self, broker: Broker, count: int) -> None:
        """Send so many messages, most in batches, and some of every other kind."""
        batches = [self._batch(self._queue()) for _ in range(count // _BATCH)]
        for (queue, messages, _), reply in zip(
            batches, broker.call_each(request for *_, request in batches), strict=True
        ):
            self._acknowledged(queue, [one.body for one in messages], reply)
        for _ in range(100):
            queue, body = self._queue(), zlib.compress(self._body())
            reply = broker.call(self._single(queue, body, flags=1, flag=7))
            self._acknowledged(queue, [body], reply)
        self._use(broker)
        for level, wanted in ((LATE, 60), (SOON, 60)):  # at the end: the time of these runs
            for number in range(wanted):
                body = b"later %d %d" % (level, self._number + number)
                found = {"DELAY": str(level)}
                reply = broker.call(self._single(DELIVERED, body, **found))
                assert reply.status == SendStatus.OK
                if level == SOON:
                    self.delayed.add(body)
            self._number += wanted

    def _use(self, broker: Broker) -> None:
        """Commit offsets, send messages back and give some up."""
        for queue in self.rng.sample(QUEUES, 20):
            offset = self.rng.randint(0, len(self.sent[queue]))
            for group in (GROUP, "GID_still"):
                broker.call(UpdateConsumerOffset(group=group, offset=offset, **queue._asdict()))
        for queue in self.rng.sample(QUEUES, 10):
            # RocketMQ sends no message back that has no body
            first = next(one for one in iterate(broker.pull(queue, 0).body) if one.body)
            for level in (1, LATE, -1):
                broker.call(
                    SendBack(
                        log_offset=first.log_offset, group=GROUP, delay_level=level,
                        topic=queue.topic, message_id=first.message_id,
                    )
                )  # fmt: skip
            self.retries += 1

    def _queue(self) -> Queue:
        return self.rng.choice(QUEUES)

    def _body(self) -> bytes:
        return self.rng.randbytes(self.rng.choice((0, 1, 20, 100, 300)) // 2).hex().encode()

    def _batch(self, queue: Queue) -> tuple[Queue, list[batch.BatchMessage], SendBatch]:
        messages = [
            batch.BatchMessage(self._body(), properties.encode(self._properties()), number % 3)
            for number in range(_BATCH)
        ]
        request = SendBatch(
            group="PID_exchange", born_ms=1_700_000_000_000 + self._number,
            body=batch.encode(messages), **queue._asdict(),
        )  # fmt: skip
        return queue, messages, request

    def _single(
        self, queue: Queue, body: bytes, *, flags: int = 0, flag: int = 0, **found: str
    ) -> SendMessage:
        return SendMessage(
            group="PID_exchange", born_ms=1_700_000_000_000, body=body, flags=flags, flag=flag,
            properties=properties.join(self._properties() | found), **queue._asdict(),
        )  # fmt: skip

    def _properties(self) -> dict[str, str]:
        number = self._number = self._number + 1
        return {
            "KEYS": f"k{number} every{number % 500}",
            "UNIQ_KEY": f"7F0000010A1B18B4AAC2{number:012X}",
            "TAGS": f"tag{number % 5}",
            "own": "value ☃",
        }

    def _acknowledged(self, queue: Queue, bodies: list[bytes], reply: SendReply) -> None:
        assert reply.status == SendStatus.OK
        there = self.sent[queue]  # RocketMQ takes requests on the way in any order
        assert there.keys().isdisjoint(range(reply.offset, reply.offset + len(bodies)))
        there.update(enumerate(bodies, reply.offset))


@dataclass(slots=True, kw_only=True)
class Picture:
    """All that a broker says of its store."""

    records: Mapping[Queue, bytes]
    """Every message as it is stored, with its place in the log and in its queue."""
    bounds: Mapping[Queue, tuple[int, int, int]]
    """The first offset, the next one, and when the first was stored."""
    found: Mapping[str, Any]
    """What is found by key, by unique key, by place and by time."""
    topics: Mapping[str, Any]
    groups: Mapping[str, Any]
    offsets: Mapping[str, Mapping[int, int]]
    """Committed offsets."""
    late: int
    """How far the level has come that ends within no test."""


def picture(broker: Broker, writer: Writer) -> Picture:
    """Ask a broker for everything that does not change by itself."""
    wait_until(lambda: _came_back(broker, writer), "what was sent back with the shortest delay")
    lasting = [queue for queue in _ALL if queue != RETRIES or not writer.crashes]
    records = {queue: broker.records(queue) for queue in lasting}
    groups = broker.call(GetGroups())
    topics = broker.call(GetTopics()).table.topics
    table = broker.call(GetAllConsumerOffsets()).offsets
    return Picture(
        records=records,
        bounds={queue: _bounds(broker, queue) for queue in records},
        found=dict(_found(broker, records, Random(0))),
        topics={name: topics[name] for name in (*TOPICS, RETRY, DEAD)},
        groups={
            name: (groups.groups[name], groups.forbidden.get(name)) for name in (GROUP, "GID_still")
        },
        offsets={key: dict(value) for key, value in table.items() if "GID_reader" not in key},
        late=delivered(broker).get(LATE, 0),
    )


def delivered(broker: Broker) -> Mapping[int, int]:
    """How far each level of delay has come."""
    offsets: Mapping[int, int] = broker.call(GetAllDelayOffsets()).offsets
    return offsets


def _came_back(broker: Broker, writer: Writer) -> bool:
    count = len(broker.messages(RETRIES))
    return count >= writer.retries if writer.crashes else count == writer.retries


def _bounds(broker: Broker, queue: Queue) -> tuple[int, int, int]:
    place = queue._asdict()
    return (
        broker.call(GetMinOffset(**place)).offset,
        broker.call(GetMaxOffset(**place)).offset,
        broker.call(GetEarliestStoreTime(**place)).timestamp_ms,
    )


def _found(
    broker: Broker, records: Mapping[Queue, bytes], rng: Random
) -> Iterator[tuple[str, Any]]:
    messages = [one for queue in QUEUES for one in iterate(records[queue])]
    for one in rng.sample(messages, _SAMPLES):
        for key in (one.find("KEYS") or "").split():
            yield f"{one.topic} key {key}", _by_key(broker, one.topic, key)
        yield f"{one.topic} {one.message_id}", _by_key(broker, one.topic, one.message_id, True)
        yield (
            f"at {one.log_offset}",
            bytes(broker.call(ViewMessage(topic=one.topic, log_offset=one.log_offset)).body),
        )
        for boundary in Boundary:
            yield f"{one.topic}[{one.queue_id}] {one.store_ms} {boundary}", broker.call(
                SearchOffset(
                    topic=one.topic, queue_id=one.queue_id, timestamp_ms=one.store_ms,
                    boundary=boundary,
                )
            ).offset  # fmt: skip


def _by_key(broker: Broker, topic: str, key: str, unique: bool = False) -> list[int]:
    """Where the messages are, and never more than really have the key."""
    asked = QueryMessages(
        topic=topic, key=key, max_messages=32, begin_ms=0, end_ms=_FOR_EVER,
        unique=True if unique else None,
    )  # fmt: skip
    try:
        body = broker.call(asked).body
    except NotFound:
        return []
    return sorted(
        one.log_offset for one in iterate(body)
        if key in (one.message_id, *(one.find("KEYS") or "").split())
    )  # fmt: skip


def check_delivered(broker: Broker, writer: Writer) -> None:
    """What waited for `SOON` comes, once, and nothing else with it."""
    wait_until(
        lambda: {one.body for one in broker.messages(DELIVERED)} >= writer.delayed,
        "what was delayed",
    )
    bodies = [one.body for one in broker.messages(DELIVERED)]
    assert len(bodies) == len(writer.delayed) or writer.crashes
    assert set(bodies) == writer.delayed


def check_acknowledged(found: Picture, writer: Writer) -> None:
    """Each acknowledged message is there, once, in its place."""
    for queue, bodies in writer.sent.items():
        messages = list(iterate(found.records[queue]))
        assert [one.queue_offset for one in messages] == list(range(len(bodies)))
        assert {one.queue_offset: one.body for one in messages} == bodies
    if not writer.crashes:
        assert len(list(iterate(found.records[RETRIES]))) == writer.retries


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 40) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g}s"
        time.sleep(0.1)
