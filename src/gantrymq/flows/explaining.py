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

from gantrymq.errors import (
    ConfigError,
    GantryError,
    InvalidInput,
    NotFound,
    TopicNotFound,
)
from gantrymq.flows import clusters, half_messages, lookup, topics, traces
from gantrymq.flows.evidence import GroupEvidence, copies_of, number
from gantrymq.flows.explanations import Explanation
from gantrymq.flows.reaching import Reach
from gantrymq.flows.trace_trees import MessageTrace
from gantrymq.flows.verdicts import Copy, GroupVerdict, Role, judge
from gantrymq.model import ReceivedMessage
from gantrymq.protocol import names
from gantrymq.protocol.configs import GetBrokerConfig
from gantrymq.protocol.group_settings import GetGroups, GroupSettings
from gantrymq.rules.delay import DELAY_LEVELS, DelayLevels
from gantrymq.wire import properties

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
    if about.is_deliverable and not groups:
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
    except (NotFound, TopicNotFound, InvalidInput):
        at = await clusters.every_master(reach)
        for hidden in _HIDDEN:
            for copy in await copies_of(reach, at, hidden, message_id):
                if properties.TIMER_DELETE_UNIQUE_KEY not in copy.all_properties:
                    return copy
        raise


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
    _settings: dict[str, GroupSettings] | None = None
    """Of all groups, once they were asked for."""

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
        own = await copies_of(self.reach, self.at, self.topic, self.unique_id)
        for hidden in _HIDDEN:
            for message in await copies_of(self.reach, self.at, hidden, self.unique_id):
                self._waiting.append(await self._waiting_copy(message))
        mine = [
            copy
            for copy in self._waiting
            if copy.role is Role.RECALL or real_topic_of_wait(copy) == self.topic
        ]
        originals = [Copy(role=Role.MESSAGE, message=message) for message in own]
        settled = [await self._with_end(copy) for copy in _settled(mine, originals)]
        self.copies = sorted(
            [*originals, *settled],
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
            level = number(message.find(properties.DELAY)) or 1
            due = message.stored.store_ms + levels.delay(level) * 1000
            return Copy(role=role, message=message, due_ms=due, note=f"delay level {level}")
        if role is Role.TIMED:
            if message.find(properties.TIMER_DELETE_UNIQUE_KEY) is not None:
                return Copy(role=Role.RECALL, message=message)
            return Copy(
                role=role, message=message, due_ms=number(message.find(properties.TIMER_OUT_MS))
            )
        return Copy(role=role, message=message)

    async def _with_end(self, copy: Copy) -> Copy:
        """A half message with what became of its transaction, if nothing was committed of it."""
        if copy.role is not Role.HALF or copy.note is not None:
            return copy
        address = self.at.get(copy.queue.broker, copy.queue.broker)
        try:
            ended = await half_messages.has_ended(self.reach, address, copy.queue, copy.offset)
        except GantryError as error:
            return replace(copy, note=f"not known: whether its transaction has ended: {error}")
        if ended:
            return replace(copy, note="rolled back, or asked about as a newer copy")
        checks = number(copy.message.find(properties.TRANSACTION_CHECK_TIMES)) or 0
        asked = f"the producer was asked {checks} times" if checks else "nobody was asked yet"
        lately = "minutes" if ended is None else "seconds"
        return replace(copy, note=f"open, or decided within the last {lately}; {asked}")

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
        evidence = await GroupEvidence(
            reach=self.reach,
            at=self.at,
            group=group,
            found=self.found,
            first=self.first,
            delayed=self.delayed_for(names.retry_topic(group)),
            most_retries=await self._most_retries(group),
            told=told,
        ).gather()
        return judge(evidence, now_ms=self.reach.now_ms())

    async def _most_retries(self, group: str) -> int | None:
        """How many retries a group's settings allow; those of all groups come in one answer."""
        if self._settings is None:
            self._settings, broker = {}, self.found.broker
            try:
                said = await self.reach.ask(self.at.get(broker, broker), GetGroups())
                self._settings = said.groups
            except GantryError as error:
                self.notes.append(f"not known: how many retries groups have: {error}")
        found = self._settings.get(group)
        return None if found is None else found.max_retries

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
            settled.append(replace(copy, note="committed") if over else copy)
        elif over:
            settled.append(replace(copy, due_ms=None, note="over: it was delivered"))
        elif recalled and copy.role is Role.TIMED:
            settled.append(replace(copy, due_ms=None, note="taken back: it is never delivered"))
        else:
            settled.append(copy)
    return settled
