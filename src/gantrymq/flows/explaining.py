"""Finding out what became of a message: gathers what there is to know, and has `verdicts` judge it.

A message is looked for by its unique id, which all its copies keep: while it waits for its time or
for the end of its transaction, in the topics where brokers keep such messages; once it failed, in
the topics of the groups that gave it back. Every broker is asked, because a copy may be at another
one than the message. Everything asked is answered by Apache RocketMQ's brokers as well as by ours,
and what one of them does not answer is left out and said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gantrymq.errors import ConfigError, GantryError, NotFound, TopicNotFound
from gantrymq.flows import clusters, group_settings, lookup, progress, topics, traces
from gantrymq.flows.groups import REASON
from gantrymq.flows.members import RELAY_TIMEOUT, GroupMembers, group_members
from gantrymq.flows.reaching import Reach, gather
from gantrymq.flows.trace_trees import MessageTrace
from gantrymq.flows.verdicts import (
    Copy,
    Evidence,
    Explanation,
    GroupVerdict,
    Holding,
    Position,
    Role,
    judge,
)
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol import names
from gantrymq.protocol.configs import GetBrokerConfig
from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.pulling import QueryMessages
from gantrymq.protocol.running import GetRunningInfo, RunningInfo
from gantrymq.protocol.statistics import QueryConsumeQueue
from gantrymq.rules.delay import DELAY_LEVELS, DelayLevels
from gantrymq.wire import properties, record

_LAST: Final = 2**63 - 1
_MOST_COPIES: Final = 32
_MOST_MEMBERS: Final = 64
"""Members that are asked what they have in hand."""
_HIDDEN: Final = {
    names.SCHEDULE_TOPIC: Role.DELAYED,
    names.TIMER_TOPIC: Role.TIMED,
    names.HALF_TOPIC: Role.HALF,
    names.CHECK_MAX_TIME_TOPIC: Role.DISCARDED,
}
"""Where brokers keep messages that are not delivered yet."""


async def explain(
    reach: Reach,
    message_id: str,
    *,
    topic: str | None = None,
    group: str | None = None,
    trace_topic: str = names.TRACE_TOPIC,
) -> Explanation:
    """What became of a message: where it is stored, and how it is with each group, and why.

    `message_id` is of either kind. With `group`, only that group is looked at; otherwise all that
    consume the topic, or did and left an offset. `str()` of the answer is the text to show.
    """
    found = await _find(reach, message_id, topic)
    about = _About(reach, found, await clusters.every_master(reach))
    await about.look_around()
    told = await _told(reach, about, trace_topic)
    groups = [group] if group is not None else await about.groups()
    verdicts = [await about.verdict(name, told) for name in groups] if about.is_deliverable else []
    if not groups:
        about.notes.append("no group consumes this topic, or did and left an offset")
    return Explanation(
        message_id=about.unique_id or found.offset_id,
        topic=about.topic,
        message=found,
        copies=about.copies,
        groups=verdicts,
        trace=told,
        notes=about.notes,
        now_ms=reach.now_ms(),
    )


async def _find(reach: Reach, message_id: str, topic: str | None) -> ReceivedMessage:
    """The message, or a copy of it that waits somewhere."""
    try:
        return await lookup.find_message(reach, message_id, topic=topic)
    except (NotFound, TopicNotFound):
        at = await clusters.every_master(reach)
        for hidden in _HIDDEN:
            for copy in await _copies(reach, at, hidden, message_id):
                if properties.TIMER_DELETE_UNIQUE_KEY not in copy.all_properties:
                    return copy
        raise


async def _copies(
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


async def _told(reach: Reach, about: _About, trace_topic: str) -> MessageTrace | None:
    if about.unique_id is None:
        return None
    try:
        told = await traces.told_of(reach, about.unique_id, trace_topic=trace_topic)
    except GantryError as error:
        about.notes.append(f"not known: what traces tell: {error}")
        return None
    return None if told.is_empty else told


def real_topic(message: ReceivedMessage) -> str:
    """The topic that a message was sent to, whatever topic the copy is in."""
    topic = message.stored.topic
    if topic in _HIDDEN:
        topic = message.find(properties.REAL_TOPIC) or topic
    if topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
        origin = message.find(properties.RETRY_TOPIC) or message.find(properties.DLQ_ORIGIN_TOPIC)
        topic = origin or topic
    return topic


@dataclass(slots=True)
class _About:
    """What is known of one message."""

    reach: Reach
    found: ReceivedMessage
    at: Mapping[str, str]
    """The brokers, and where they are."""
    copies: list[Copy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _waiting: list[Copy] = field(default_factory=list)
    """In the hidden topics, whatever they are for."""
    _levels: dict[str, DelayLevels] = field(default_factory=dict)

    @property
    def unique_id(self) -> str | None:
        return self.found.find(properties.UNIQUE_KEY)

    @property
    def topic(self) -> str:
        return real_topic(self.found)

    @property
    def first(self) -> Copy | None:
        """The message in its own topic, where groups find it."""
        return next((copy for copy in self.copies if copy.role is Role.MESSAGE), None)

    @property
    def is_deliverable(self) -> bool:
        """Whether a group may have it or have had it."""
        return self.first is not None or self.found.stored.topic not in _HIDDEN

    # --- where it is ----------------------------------------------------------------------------

    async def look_around(self) -> None:
        """Find all copies but those of the groups."""
        if self.unique_id is None:
            self.notes.append(
                "it has no unique id, so that other copies of it (delayed, given back, given up) "
                "cannot be found"
            )
            self.copies = [Copy(role=self._role(self.found), message=self.found)]
            return
        own = await _copies(self.reach, self.at, self.topic, self.unique_id)
        for hidden in _HIDDEN:
            for message in await _copies(self.reach, self.at, hidden, self.unique_id):
                self._waiting.append(await self._waiting_copy(message))
        mine = [
            copy
            for copy in self._waiting
            if copy.role is Role.RECALL or real_topic_of_wait(copy) == self.topic
        ]
        originals = [Copy(role=Role.MESSAGE, message=message) for message in own]
        self.copies = sorted(
            [*originals, *_settled(mine, originals)],
            key=lambda copy: (copy.stored_ms, copy.message.stored.log_offset),
        )
        if len(originals) > 1:
            self.notes.append(
                f"it is stored {len(originals)} times: a send was repeated. Groups are judged by "
                f"the first, {originals[0].place}"
            )

    def _role(self, message: ReceivedMessage) -> Role:
        topic = message.stored.topic
        if topic.startswith(names.DEAD_LETTER_PREFIX):
            return Role.DEAD_LETTER
        if topic.startswith(names.RETRY_PREFIX):
            return Role.RETRY
        return _HIDDEN.get(topic, Role.MESSAGE)

    async def _waiting_copy(self, message: ReceivedMessage) -> Copy:
        role = self._role(message)
        if role is Role.DELAYED:
            levels = await self._levels_of(message.broker)
            level = _number(message.find(properties.DELAY)) or 1
            due = message.stored.store_ms + levels.delay(level) * 1000
            return Copy(role=role, message=message, due_ms=due, note=f"delay level {level}")
        if role is Role.TIMED:
            if message.find(properties.TIMER_DELETE_UNIQUE_KEY) is not None:
                return Copy(role=Role.RECALL, message=message)
            return Copy(
                role=role, message=message, due_ms=_number(message.find(properties.TIMER_OUT_MS))
            )
        return Copy(role=role, message=message)

    async def _levels_of(self, broker: str) -> DelayLevels:
        if broker not in self._levels:
            levels = DELAY_LEVELS
            try:
                said = await self.reach.ask(self.at[broker], GetBrokerConfig())
                levels = DelayLevels.parse(said.properties.get("messageDelayLevel", ""))
            except (GantryError, ConfigError):
                self.notes.append(f"not known: the delay levels of {broker}; the usual are assumed")
            self._levels[broker] = levels
        return self._levels[broker]

    # --- groups ---------------------------------------------------------------------------------

    async def groups(self) -> list[str]:
        """Those that consume the topic, or did."""
        try:
            found = await topics.groups_of_topic(self.reach, self.topic)
        except GantryError as error:
            self.notes.append(f"not known: who consumes {self.topic}: {error}")
            return []
        return [name for name in found if name != names.TOOLS_GROUP]

    async def verdict(self, group: str, told: MessageTrace | None) -> GroupVerdict:
        """How it is with one group."""
        evidence = await _Group(self, group, told).evidence()
        return judge(evidence, now_ms=self.reach.now_ms())

    def delayed_for(self, topic: str) -> list[Copy]:
        """The copies that wait to be put into a group's retry topic."""
        return [copy for copy in self._waiting if real_topic_of_wait(copy) == topic]


def real_topic_of_wait(copy: Copy) -> str | None:
    """The topic that a waiting copy is to be put into."""
    return copy.message.find(properties.REAL_TOPIC)


def _settled(waiting: Iterable[Copy], originals: Collection[Copy]) -> list[Copy]:
    """Waiting copies, those without a time to come that are over."""
    copies = list(waiting)
    recalled = any(copy.role is Role.RECALL for copy in copies)
    settled = []
    for copy in copies:
        over = [one for one in originals if one.stored_ms >= copy.stored_ms]
        if copy.role is Role.HALF:
            note = "committed" if over else "open, or rolled back"
            settled.append(replace(copy, note=note))
        elif over:
            settled.append(replace(copy, due_ms=None, note="over: it was delivered"))
        elif recalled and copy.role is Role.TIMED:
            settled.append(replace(copy, due_ms=None, note="taken back: it is never delivered"))
        else:
            settled.append(copy)
    return settled


def _limit(copies: Collection[Copy]) -> int | None:
    """How many retries the consumer allows that gave the message back, if it said so."""
    said = (_number(copy.message.find(properties.MAX_RECONSUME_TIMES)) for copy in copies)
    return next((most for most in said if most), None)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


@dataclass(slots=True)
class _Group:
    """What is known of one message and one group."""

    about: _About
    group: str
    told: MessageTrace | None
    unknown: list[str] = field(default_factory=list)
    _running: dict[str, RunningInfo] | None = None

    async def evidence(self) -> Evidence:
        there = await self._there()
        retry = names.retry_topic(self.group)
        retries = await self._retries(retry, there)
        dead = await self._in_topic(names.dead_letter_topic(self.group), Role.DEAD_LETTER)
        delayed = self.about.delayed_for(retry)
        first = self.about.first
        wanted = there.subscriptions.get(self.about.topic)
        return Evidence(
            group=self.group,
            position=None if first is None else await self._position(first, there),
            subscription=wanted,
            broker_says=await self._broker_says(wanted, first),
            members=[member.client_id for member in there.members],
            broadcast=there.message_model == MessageModel.BROADCASTING,
            most_retries=_limit(delayed) or await self._most_retries(),
            retries=retries,
            delayed=delayed,
            dead=dead[-1] if dead else None,
            dead_reason=dead[-1].message.find(REASON) if dead else None,
            deliveries=[] if self.told is None else self.told.deliveries.get(self.group, []),
            unknown=self.unknown,
        )

    async def _there(self) -> GroupMembers:
        try:
            return await group_members(self.about.reach, self.group)
        except GantryError as error:
            self.unknown.append(f"who is in the group: {error}")
            return GroupMembers(group=self.group)

    async def _broker_says(self, wanted: Subscription | None, first: Copy | None) -> bool | None:
        """Whether the broker lets the message through, for expressions that only it reads."""
        if wanted is None or first is None or wanted.expression_type in ("", "TAG"):
            return None
        queue = first.queue
        question = QueryConsumeQueue(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=first.offset,
            count=1,
            group=self.group,
        )
        try:
            said = await self.about.reach.ask(self.about.at[queue.broker], question)
        except GantryError as error:
            self.unknown.append(f"whether the broker lets it through: {error}")
            return None
        at = first.message.stored.log_offset
        return next((one.matches for one in said.entries if one.log_offset == at), None)

    async def _most_retries(self) -> int | None:
        broker = self.about.found.broker
        address = self.about.at.get(broker, broker)
        try:
            known = await group_settings.settings_at(self.about.reach, address, self.group)
        except GantryError as error:
            self.unknown.append(f"how many retries the group has: {error}")
            return None
        return None if known is None else known.max_retries

    async def _in_topic(self, topic: str, role: Role) -> list[Copy]:
        unique_id = self.about.unique_id
        if unique_id is None:
            return []
        found = await _copies(self.about.reach, self.about.at, topic, unique_id)
        return [Copy(role=role, message=message) for message in found]

    async def _retries(self, retry: str, there: GroupMembers) -> list[Position]:
        copies = await self._in_topic(retry, Role.RETRY)
        positions = [Position(copy=copy, offset=None) for copy in copies]
        if copies:
            last = max(range(len(copies)), key=lambda number: copies[number].message.retries)
            positions[last] = await self._position(copies[last], there)
        return positions

    async def _position(self, copy: Copy, there: GroupMembers) -> Position:
        """How far the group is in the queue of a copy."""
        queue = copy.queue
        address = self.about.at.get(queue.broker, queue.broker)
        offset = None
        try:
            held = await progress.offsets_of(self.about.reach, address, self.group, [queue])
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
        for member in there.members[:_MOST_MEMBERS]:
            question = GetRunningInfo(group=self.group, client_id=member.client_id, stacks=False)
            address = self.about.at[member.brokers[0]]
            try:
                found[member.client_id] = await self.about.reach.ask(
                    address, question, timeout=RELAY_TIMEOUT
                )
            except GantryError as error:
                self.unknown.append(f"what {member.client_id} has in hand: {error}")
        if len(there.members) > _MOST_MEMBERS:
            left = len(there.members) - _MOST_MEMBERS
            self.unknown.append(f"what {left} more members have in hand: too many to ask")
        return found
