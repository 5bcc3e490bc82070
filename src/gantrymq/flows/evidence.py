"""What there is to know of one message and one group, asked of brokers and of its members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from gantrymq.errors import GantryError, NotFound, TopicNotFound
from gantrymq.flows import progress
from gantrymq.flows.groups import REASON
from gantrymq.flows.members import RELAY_TIMEOUT, GroupMembers, group_members
from gantrymq.flows.pulling import Range, read_range
from gantrymq.flows.reaching import Reach, gather
from gantrymq.flows.trace_trees import MessageTrace
from gantrymq.flows.verdicts import Copy, Evidence, Holding, Position, Role
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol import names
from gantrymq.protocol.enums import ConsumeType, MessageModel
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.pulling import QueryMessages
from gantrymq.protocol.running import GetRunningInfo, RunningInfo
from gantrymq.wire import properties, record

_LAST: Final = 2**63 - 1
_MOST_COPIES: Final = 32
_MOST_MEMBERS: Final = 64
"""Members that are asked what they have in hand."""
_LONG_ENOUGH: Final = 20.0
"""Seconds after which no more of them are asked."""
_PATIENCE: Final = 2.0


async def copies_of(
    reach: Reach, at: Mapping[str, str], topic: str, unique_id: str
) -> list[ReceivedMessage]:
    """The messages of a topic with a unique id at any broker, the first stored first."""

    async def one(broker: str) -> list[ReceivedMessage]:
        question = QueryMessages(
            topic=topic,
            key=unique_id,
            max_messages=_MOST_COPIES,
            begin_ms=0,
            end_ms=_LAST,
            unique=True,
        )
        try:
            said = await reach.ask(at[broker], question)
        except (NotFound, TopicNotFound):
            return []
        return [ReceivedMessage(stored, broker) for stored in record.iterate(said.body)]

    answers = (await gather(at, one)).some(f"look for {unique_id} in {topic}")
    found = [message for messages in answers.values() for message in messages]
    own = [
        one
        for one in found
        if one.stored.topic == topic and one.find(properties.UNIQUE_KEY) == unique_id
    ]
    return sorted(own, key=lambda one: (one.stored.store_ms, one.stored.log_offset))


def _limit(copies: Collection[Copy]) -> int | None:
    """How many retries the consumer allows that gave the message back, if it said so."""
    said = (number(copy.message.find(properties.MAX_RECONSUME_TIMES)) for copy in copies)
    return next((most for most in said if most), None)


def number(text: str | None) -> int | None:
    """The number that a property holds, None if it holds none."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


@dataclass(slots=True, kw_only=True)
class GroupEvidence:
    """Gathers what there is to know of one message and one group."""

    reach: Reach
    at: Mapping[str, str]
    """The brokers, and where they are."""
    group: str
    found: ReceivedMessage
    first: Copy | None
    """The message in its own topic."""
    delayed: list[Copy]
    """The copies that wait to be put into the group's retry topic."""
    most_retries: int | None
    """What the group's settings allow."""
    told: MessageTrace | None
    unknown: list[str] = field(default_factory=list)
    _running: dict[str, RunningInfo] | None = None

    async def gather(self) -> Evidence:
        """Ask, and note what could not be found out."""
        there = await self._there()
        retries = await self._retries(there)
        dead = await self._in_topic(names.dead_letter_topic(self.group), Role.DEAD_LETTER)
        first = self.first
        wanted = None if first is None else there.subscriptions.get(first.queue.topic)
        return Evidence(
            group=self.group,
            position=None if first is None else await self._position(first, there),
            subscription=wanted,
            broker_says=await self._broker_says(wanted, first),
            members=[member.client_id for member in there.members],
            broadcast=there.message_model == MessageModel.BROADCASTING,
            pops=there.consume_type == ConsumeType.POP,
            most_retries=_limit(self.delayed) or self.most_retries,
            retries=retries,
            delayed=self.delayed,
            dead=dead[-1] if dead else None,
            dead_reason=dead[-1].message.find(REASON) if dead else None,
            deliveries=[] if self.told is None else self.told.deliveries.get(self.group, []),
            unknown=self.unknown,
        )

    async def _there(self) -> GroupMembers:
        try:
            return await group_members(self.reach, self.group)
        except GantryError as error:
            self.unknown.append(f"who is in the group: {error}")
            return GroupMembers(group=self.group)

    async def _broker_says(self, wanted: Subscription | None, first: Copy | None) -> bool | None:
        """Whether the broker lets the message through, for expressions that only it reads."""
        if wanted is None or first is None or wanted.expression_type in ("", "TAG"):
            return None
        queue, offset = first.queue, first.offset
        address = self.at[queue.broker]
        asked = Range(
            queue=queue,
            start=offset,
            end=offset + 1,
            addresses=(self.reach.reachable.get(address, address),),
            batch=1,
            expression=wanted.expression,
            expression_type=wanted.expression_type,
        )
        try:
            async for messages in read_range(self.reach.runtime, asked, patience=_PATIENCE):
                if any(message.queue_offset == offset for message in messages):
                    return True
        except GantryError as error:
            self.unknown.append(f"whether the broker lets it through: {error}")
            return None
        return False

    async def _in_topic(self, topic: str, role: Role) -> list[Copy]:
        unique_id = self.found.find(properties.UNIQUE_KEY)
        if unique_id is None:
            return []
        found = await copies_of(self.reach, self.at, topic, unique_id)
        return [Copy(role=role, message=message) for message in found]

    async def _retries(self, there: GroupMembers) -> list[Position]:
        known = () if self.first is None else (self.first.queue.topic,)
        copies = [
            copy
            for retry in (
                names.retry_topic(self.group),
                *(names.pop_retry_topic(self.group, topic) for topic in known),
                *(names.pop_retry_topic(self.group, topic, newer=True) for topic in known),
            )
            for copy in await self._in_topic(retry, Role.RETRY)
        ]
        positions = [Position(copy=copy, offset=None) for copy in copies]
        if copies:
            last = max(range(len(copies)), key=lambda number: copies[number].message.retries)
            positions[last] = await self._position(copies[last], there)
        return positions

    async def _position(self, copy: Copy, there: GroupMembers) -> Position:
        """How far the group is in the queue of a copy."""
        queue = copy.queue
        address = self.at.get(queue.broker, queue.broker)
        offset = None
        try:
            held = await progress.offsets_of(self.reach, address, self.group, [queue])
            offset = held.get(queue)
        except GantryError as error:
            self.unknown.append(f"how far the group is in {queue}: {error}")
        if offset is not None and offset > copy.offset:
            return Position(copy=copy, offset=offset)
        return Position(copy=copy, offset=offset, holders=await self._holders(queue, there))

    async def _holders(self, queue: MessageQueue, there: GroupMembers) -> list[Holding]:
        if self._running is None:
            self._running = await self._ask_members(there)
        return [
            Holding(
                client_id=client_id,
                commit_offset=found.commit_offset,
                cached_min=found.cached_min_offset,
                cached_max=found.cached_max_offset,
                cached=found.cached,
                last_consumed_ms=found.last_consume_ms,
            )
            for client_id, info in self._running.items()
            for held, found in info.queues.items()
            if held == queue and not found.dropped
        ]

    async def _ask_members(self, there: GroupMembers) -> dict[str, RunningInfo]:
        found: dict[str, RunningInfo] = {}
        started, asked = self.reach.runtime.now(), 0
        for member in there.members[:_MOST_MEMBERS]:
            if self.reach.runtime.now() - started > _LONG_ENOUGH:
                break
            asked += 1
            question = GetRunningInfo(group=self.group, client_id=member.client_id, stacks=False)
            address = self.at[member.brokers[0]]
            try:
                found[member.client_id] = await self.reach.ask(
                    address, question, timeout=RELAY_TIMEOUT
                )
            except GantryError as error:
                self.unknown.append(f"what {member.client_id} has in hand: {error}")
        if left := len(there.members) - asked:
            why = "too many to ask, or the others took too long to answer"
            self.unknown.append(f"what {left} more members have in hand: {why}")
        return found
