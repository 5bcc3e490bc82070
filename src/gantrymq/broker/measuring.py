"""What can be measured of a broker: its counts and tables, as metrics.

Everything here is read when somebody asks; what has to be counted is counted by its owners. The
loop may turn between two samples, hence the copies.

**Types of messages.** A message is not looked at for its type when it is counted, so it is the type
of its topic that is told; what waits for its time is `delay`, in the topic where it waits.

**How far groups are behind** is told for the groups that have members, for each topic that these
want, and for what comes back to them. Messages that the group filters out count until it has passed
them. RocketMQ: ConsumerLagCalculator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gantrymq.broker.attributes import MESSAGE_TYPE
from gantrymq.broker.offsets import end_offset
from gantrymq.observe import metrics
from gantrymq.observe.metrics import Sample
from gantrymq.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, is_system_topic
from gantrymq.wire.codes import Language
from gantrymq.wire.versions import describe

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker

_DISK: Final = ("local", "disk")
_REMOTING: Final = "remoting"
_SYSTEM_GROUPS: Final = "cid_rmq_sys_"


def measure(broker: Broker) -> Iterator[Sample]:
    """All of it."""
    for part in _PARTS:
        yield from part(broker)


# --- messages -------------------------------------------------------------------------------------


def _incoming(broker: Broker) -> Iterator[Sample]:
    for topic, put in broker.counts.sums("TOPIC_PUT"):
        about = (topic, _type_of(topic, broker), is_system_topic(topic))
        yield metrics.MESSAGES_IN.of(put.messages, *about)
        yield metrics.THROUGHPUT_IN.of(put.size, *about)


def _type_of(topic: str, broker: Broker) -> str:
    if topic == SCHEDULE_TOPIC:
        return "delay"
    settings = broker.topics.table.get(topic)
    found = None if settings is None else settings.attributes.get(MESSAGE_TYPE)
    return (found or "normal").lower()


def _outgoing(broker: Broker) -> Iterator[Sample]:
    for key, got in broker.counts.sums("GROUP_GET"):
        topic, _, group = key.partition("@")
        about = (topic, group, topic.startswith(RETRY_PREFIX), _is_system(topic, group))
        yield metrics.MESSAGES_OUT.of(got.messages, *about)
        yield metrics.THROUGHPUT_OUT.of(got.size, *about)
    for key, given_up in broker.counts.sums("DLQ_PUT"):
        topic, _, group = key.partition("@")
        yield metrics.DEAD_LETTERS.of(given_up.messages, group, topic, _is_system(topic, group))


def _is_system(topic: str, group: str) -> bool:
    return is_system_topic(topic) or group.lower().startswith(_SYSTEM_GROUPS)


# --- clients --------------------------------------------------------------------------------------


def _clients(broker: Broker) -> Iterator[Sample]:
    producers = Counter(
        (_language(client.language), _version(client.version))
        for members in broker.producers.members.by_group.values()
        for client in members.values()
    )
    for about, count in producers.items():
        yield metrics.PRODUCERS.of(count, *about, _REMOTING)
    for group, members in list(broker.consumers.members.by_group.items()):
        mode = broker.consumers.groups[group].consume_type.name.lower()
        consumers = Counter(
            (_language(client.language), _version(client.version)) for client in members.values()
        )
        for about, count in consumers.items():
            yield metrics.CONSUMERS.of(count, group, *about, mode, _REMOTING, _is_system("", group))


def _language(code: int) -> str:
    language = Language(code)
    return language.name.lower() if language.known else "unknown"


def _version(number: int) -> str:
    return f"v{describe(number).replace('.', '_')}".lower()


# --- how far groups are behind --------------------------------------------------------------------


@dataclass(slots=True)
class _Behind:
    """Sums over the queues of a topic, and the places in the log of its oldest messages."""

    lag: int = 0
    inflight: int = 0
    ready: int = 0
    oldest: int | None = None
    """Of those that the group is not done with."""
    next: int | None = None
    """Of those that it has not been handed."""


def _groups(broker: Broker) -> Iterator[Sample]:
    for group, online in list(broker.consumers.groups.items()):
        for topic in list(online.subscriptions):
            settings = broker.topics.table.get(topic)
            if settings is not None:
                found = _behind(group, topic, settings.write_queues, broker)
                yield from _told(group, topic, found, broker)


def _behind(group: str, topic: str, queues: int, broker: Broker) -> _Behind:
    found, offsets = _Behind(), broker.offsets
    for queue_id in range(queues):
        end = end_offset(broker.store, topic, queue_id)
        pulled = offsets.query_pulled(group, topic, queue_id)
        done = offsets.query(group, topic, queue_id)
        if done is None:
            done = end if pulled is None else pulled
        if pulled is None:
            pulled = done
        found.lag += max(0, end - done)
        found.inflight += max(0, pulled - done)
        found.ready += max(0, end - pulled)
        found.oldest = _earlier(found.oldest, _place(topic, queue_id, done, broker))
        found.next = _earlier(found.next, _place(topic, queue_id, pulled, broker))
    return found


def _place(topic: str, queue_id: int, offset: int, broker: Broker) -> int | None:
    """Where in the log a message is; None if it is not there."""
    queue = broker.store.queue(topic, queue_id)
    if queue is None or offset >= queue.max_offset:
        return None
    return next((at for at, _, _ in queue.entries(max(offset, queue.min_offset), 1)), None)


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _told(group: str, topic: str, found: _Behind, broker: Broker) -> Iterator[Sample]:
    about = (group, topic, topic.startswith(RETRY_PREFIX), _is_system(topic, group))
    yield metrics.LAG_MESSAGES.of(found.lag, *about)
    yield metrics.LAG_LATENCY.of(_age(found.oldest, broker), *about)
    yield metrics.INFLIGHT_MESSAGES.of(found.inflight, *about)
    yield metrics.QUEUEING_LATENCY.of(_age(found.next, broker), *about)
    yield metrics.READY_MESSAGES.of(found.ready, *about)


def _age(place: int | None, broker: Broker) -> int:
    """Milliseconds since the message there was stored."""
    stored = -1 if place is None else broker.store.log.store_time(place)
    return max(0, broker.clock_ms() - stored) if stored > 0 else 0


# --- the broker and its store ---------------------------------------------------------------------


def _itself(broker: Broker) -> Iterator[Sample]:
    config = broker.config
    yield metrics.PERMISSION.of(config.permission)
    yield metrics.TOPICS.of(len(broker.topics.table))
    yield metrics.GROUPS.of(len(broker.groups.table))
    yield metrics.WATERMARK.of(broker.store.waiting, "send")
    yield metrics.WATERMARK.of(broker.waiting.count, "pull")
    yield metrics.WATERMARK_LIMIT.of(config.flow.waiting_sends, "send")
    yield metrics.WATERMARK_LIMIT.of(config.pulls.waiting, "pull")


def _store(broker: Broker) -> Iterator[Sample]:
    store, usage = broker.store, broker.store.fullness.usage
    yield metrics.STORAGE_SIZE.of(usage.total - usage.free, *_DISK)
    yield metrics.STORAGE_ROOM.of(usage.free, *_DISK)
    yield metrics.FLUSH_BEHIND.of(store.log_end - store.flushed_to, *_DISK)
    yield metrics.DISPATCH_BEHIND.of(store.log_end - store.dispatched_to, *_DISK)
    oldest = store.log_start if store.log_start < store.log_end else None
    yield metrics.RESERVE_TIME.of(_age(oldest, broker), *_DISK)
    yield metrics.LOG_START.of(store.log_start)
    yield metrics.LOG_END.of(store.log_end)
    yield metrics.WRITABLE.of(store.refusal is None)
    yield metrics.FAILED_PUTS.of(broker.counts.failed_puts)


_PARTS: Final[tuple[Callable[[Broker], Iterator[Sample]], ...]] = (
    _incoming,
    _outgoing,
    _clients,
    _groups,
    _itself,
    _store,
)
