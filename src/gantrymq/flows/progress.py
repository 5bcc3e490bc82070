"""How far groups are behind: in messages, in seconds, and where nobody can know.

What is known of a queue comes from three answers of its broker: where the group stands (208), from
where to where the queue goes (202), and how old the next message for the group is (303). A group
that never committed an offset in a queue is said by brokers to stand at 0, which may be true as
well; then they are asked once more in a way that tells one from the other. What is not known is
None, never 0 or -1, and `why` says the reason.

RocketMQ: ConsumerProgressSubCommand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from gantrymq.errors import BrokerFailure, GantryError, TopicNotFound
from gantrymq.flows import clusters, group_settings, offsets
from gantrymq.flows.members import group_members
from gantrymq.flows.reaching import Gathered, Reach, gather
from gantrymq.model import MessageQueue
from gantrymq.protocol import names
from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.offsets import GetAllConsumerOffsets
from gantrymq.protocol.statistics import (
    ConsumeStatsReply,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetTimeSpans,
    GetTopicStats,
    QueueProgress,
)
from gantrymq.wire import versions

NEVER: Final = "the group never committed an offset here"
_LONG_AGO_MS: Final = 10 * 366 * 24 * 3600 * 1000
"""Later than this no message can be; brokers say it where they looked for one that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group is behind in one queue."""

    queue: MessageQueue
    offset: int | None
    """The next message that the group wants; None if nobody knows."""
    min_offset: int | None
    max_offset: int | None
    seconds: float | None
    """How long the next message has been waiting; 0 where none waits."""
    consumed_ms: int | None = None
    """When the last message that the group consumed was stored."""
    in_flight: int | None = None
    """Messages that the group has fetched and not yet committed."""
    why: str | None = None
    """Why something is not known."""

    @property
    def messages(self) -> int | None:
        """How many messages wait, those not counted that are gone already."""
        if self.offset is None or self.max_offset is None:
            return None
        return max(0, self.max_offset - max(self.offset, self.min_offset or 0))

    @property
    def lost(self) -> int | None:
        """How many messages went before the group consumed them."""
        if self.offset is None or self.min_offset is None:
            return None
        return max(0, self.min_offset - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind in all queues of some topics."""

    group: str
    queues: list[QueueLag] = field(default_factory=list)
    consume_tps: float | None = None
    failures: Mapping[str, GantryError] = field(default_factory=dict)
    """Brokers that did not answer: their queues are missing."""
    why: str | None = None
    """Why there is no queue at all."""

    @property
    def messages(self) -> int | None:
        """How many messages wait in all; None as long as one queue is not known."""
        counts = [lag.messages for lag in self.queues]
        if self.failures or not counts or None in counts:
            return None
        return sum(filter(None, counts))

    @property
    def known_messages(self) -> int:
        """How many messages wait in the queues that are known: there are at least as many."""
        return sum(lag.messages or 0 for lag in self.queues)

    @property
    def seconds(self) -> float | None:
        """How long the oldest waiting message has been waiting; None as long as one is unknown."""
        delays = [lag.seconds for lag in self.queues]
        if self.failures or not delays or None in delays:
            return None
        return max(filter(None, delays), default=0.0)

    @property
    def topics(self) -> list[str]:
        """What is looked at."""
        return sorted({lag.queue.topic for lag in self.queues})

    def of(self, topic: str) -> GroupLag:
        """The same for one topic alone."""
        return GroupLag(
            group=self.group,
            queues=[lag for lag in self.queues if lag.queue.topic == topic],
            failures=self.failures,
        )


async def group_lag(reach: Reach, group: str, *, topic: str | None = None) -> GroupLag:
    """How far a group is behind, in one topic or in all that it consumes, retries included."""
    at = await clusters.every_master(reach)
    said = await gather(at, lambda name: _lags_at(reach, at[name], group, topic))
    answers = said.some(f"ask how far {group} is")
    queues = [lag for lags, _ in answers.values() for lag in lags]
    why = None if queues or said.failures else await _why_nothing(reach, group, at)
    rates = [tps for _, tps in answers.values() if tps is not None]
    return GroupLag(
        group=group,
        queues=sorted(queues, key=lambda lag: lag.queue),
        consume_tps=sum(rates) if rates else None,
        failures=said.failures,
        why=why,
    )


async def _why_nothing(reach: Reach, group: str, at: Mapping[str, str]) -> str:
    """The reason that there is no queue at all; an unknown group is an error."""
    known = await gather(at, lambda name: group_settings.settings_at(reach, at[name], group))
    if not known.failures and not any(known.answers.values()):
        raise group_settings.unknown(group, at)
    there = await group_members(reach, group)
    if there.message_model == MessageModel.BROADCASTING:
        return "the group is broadcast to: each member keeps its offsets for itself"
    if there.members:
        return "its members have not committed an offset yet"
    return "the group never committed an offset anywhere, and nobody is connected"


async def _lags_at(
    reach: Reach, address: str, group: str, topic: str | None
) -> tuple[list[QueueLag], float | None]:
    try:
        said = await reach.ask(address, GetConsumeStats(group=group, topic=topic))
    except BrokerFailure:  # no such group there
        return [], None
    by_topic: dict[str, dict[MessageQueue, QueueProgress]] = {}
    for queue, progress in said.queues.items():
        by_topic.setdefault(queue.topic, {})[queue] = progress
    never = await _never_committed(reach, address, group, said)
    found: list[QueueLag] = []
    for name, queues in by_topic.items():
        found += await _topic_lags(reach, address, group, name, queues, never)
    return found, said.consume_tps


async def _topic_lags(
    reach: Reach,
    address: str,
    group: str,
    topic: str,
    queues: Mapping[MessageQueue, QueueProgress],
    never: set[MessageQueue],
) -> list[QueueLag]:
    lows = await _lowest(reach, address, topic)
    delays = await _delays(reach, address, group, topic)
    found: list[QueueLag] = []
    for queue, progress in queues.items():
        low, high = lows.get(queue), max(0, progress.broker_offset)
        if queue in never:
            found.append(
                QueueLag(
                    queue=queue,
                    offset=None,
                    min_offset=low,
                    max_offset=high,
                    seconds=None,
                    why=NEVER,
                )
            )
            continue
        waits = high > progress.consumer_offset
        seconds = delays.get(queue) if waits else 0.0
        found.append(
            QueueLag(
                queue=queue,
                offset=progress.consumer_offset,
                min_offset=low,
                max_offset=high,
                seconds=seconds,
                consumed_ms=progress.last_ms if progress.last_ms > 0 else None,
                in_flight=max(0, progress.pull_offset - progress.consumer_offset),
                why=None if seconds is not None else "the broker does not say when it was stored",
            )
        )
    return found


async def _lowest(reach: Reach, address: str, topic: str) -> dict[MessageQueue, int]:
    try:
        said = await reach.ask(address, GetTopicStats(topic=topic))
    except (TopicNotFound, BrokerFailure):
        return {}
    return {queue: max(0, bounds.min_offset) for queue, bounds in said.queues.items()}


async def _delays(reach: Reach, address: str, group: str, topic: str) -> dict[MessageQueue, float]:
    """How long the next message of each queue has waited, by the broker's clock."""
    try:
        said = await reach.ask(address, GetTimeSpans(topic=topic, group=group))
    except (TopicNotFound, BrokerFailure):
        return {}
    return {
        span.queue: max(0, span.delay_ms) / 1000
        for span in said.spans
        if span.queue is not None and span.delay_ms < _LONG_AGO_MS
    }


# --- never committed, or 0 ------------------------------------------------------------------------


async def _never_committed(
    reach: Reach, address: str, group: str, said: ConsumeStatsReply
) -> set[MessageQueue]:
    """The queues in which the group has no offset at all, out of those that say 0."""
    doubtful = [queue for queue, one in said.queues.items() if one.consumer_offset <= 0]
    held = await offsets_of(reach, address, group, doubtful)
    return {queue for queue, offset in held.items() if offset is None}


async def offsets_of(
    reach: Reach, address: str, group: str, queues: Collection[MessageQueue]
) -> dict[MessageQueue, int | None]:
    """The offsets that a group has committed in queues of one broker; None if it never did.

    Before 5.0 brokers answer 0 for some queues where that is so: those show their whole table.
    """
    if not queues:
        return {}
    version = await clusters.broker_version(reach, address)
    if version >= versions.V5_0_0:
        return {queue: await committed(reach, address, group, queue) for queue in queues}
    table = (await reach.ask(address, GetAllConsumerOffsets())).offsets
    return {queue: table.get(f"{queue.topic}@{group}", {}).get(queue.queue_id) for queue in queues}


async def committed(reach: Reach, address: str, group: str, queue: MessageQueue) -> int | None:
    """The same for one queue, where it does not matter whether the group stands at 0 or never did.

    RocketMQ: QueryConsumerOffsetRequestHeader.
    """
    place = reach.reachable.get(address, address)
    return await offsets.committed(reach.runtime, place, queue, group, timeout=reach.timeout)


# --- all groups -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBacklog:
    """How many messages wait for a group, by topic, as its brokers count them."""

    group: str
    by_topic: dict[str, int]
    consume_tps: float

    @property
    def messages(self) -> int:
        """How many in all; a queue in which the group has no offset counts from 0 on."""
        return sum(self.by_topic.values())


async def backlogs(reach: Reach) -> Gathered[list[GroupBacklog]]:
    """How many messages wait for each group, by broker: one question each, for lists."""
    at = await clusters.every_master(reach)

    async def one(name: str) -> list[GroupBacklog]:
        said = await reach.ask(at[name], GetBrokerConsumeStats())
        found: list[GroupBacklog] = []
        for by_group in said.groups:
            for group, progresses in by_group.items():
                by_topic: dict[str, int] = {}
                for progress in progresses:
                    for queue, where in progress.queues.items():
                        behind = max(0, where.broker_offset - where.consumer_offset)
                        by_topic[queue.topic] = by_topic.get(queue.topic, 0) + behind
                tps = sum(progress.consume_tps for progress in progresses)
                found.append(GroupBacklog(group=group, by_topic=by_topic, consume_tps=tps))
        return found

    return await gather(at, one)


def is_retry_of(group: str, topic: str) -> bool:
    """Whether a topic holds what the group is to be given again."""
    return names.is_retry_topic(topic) and names.group_of_derived_topic(topic) == group
