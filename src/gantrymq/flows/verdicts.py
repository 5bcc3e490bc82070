"""What became of a message: decided for each group from what brokers, members and traces say.

A broker keeps no list of who consumed what. What there is: how far a group is in the queue, what it
wants of the topic now, what its members have in hand, copies of the message that wait to be given
again or that were given up, and what consumers told in traces. The first of these that fits,
decides:

| what is found | the group's state |
|---|---|
| a copy in the group's dead-letter topic | given up |
| a trace that says it was consumed | acknowledged, and when |
| a copy that waits for its delay to be over | waiting for a retry |
| a copy in the group's retry topic | as for the message itself, there |
| the group is broadcast to | each member for itself |
| what the group wants does not fit | filtered out |
| the group's offset is past it | acknowledged, or skipped |
| a member has its queue, and it in hand | in flight |
| otherwise | waiting |

What cannot be known is said, with the reason, and never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from gantrymq.errors import InvalidInput
from gantrymq.flows.trace_trees import Delivery
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.groups import Subscription
from gantrymq.rules.delay import MAX_RETRIES
from gantrymq.rules.drawing import count, moment, span
from gantrymq.rules.filtering import EVERYTHING, parse_tags


class State(Enum):
    """How it is with a message and a group."""

    ACKNOWLEDGED = "acknowledged"
    PASSED = "acknowledged or skipped"
    IN_FLIGHT = "in flight"
    WAITING = "waiting"
    RETRYING = "waiting for a retry"
    DEAD = "dead-lettered"
    FILTERED = "filtered out"
    BROADCAST = "broadcast"
    UNKNOWN = "not known"


class Role(Enum):
    """What a stored copy of a message is for."""

    MESSAGE = "stored in"
    DELAYED = "delayed in"
    TIMED = "timed in"
    RECALL = "taken back by an order in"
    HALF = "half message in"
    DISCARDED = "transaction given up, in"
    RETRY = "to be consumed again, in"
    DEAD_LETTER = "dead-lettered in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One place where the message is stored."""

    role: Role
    message: ReceivedMessage
    due_ms: int | None = None
    """When it is delivered, if it waits for that."""
    note: str | None = None

    @property
    def queue(self) -> MessageQueue:
        """The queue it is in."""
        return self.message.queue

    @property
    def offset(self) -> int:
        """Its place there."""
        return self.message.offset

    @property
    def stored_ms(self) -> int:
        """When it was stored."""
        return self.message.stored.store_ms

    @property
    def place(self) -> str:
        """Where it is, in short."""
        return f"{self.queue} @ {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a member of a group has of the message's queue."""

    client_id: str
    commit_offset: int
    cached_min: int
    cached_max: int
    cached: int
    last_consumed_ms: int | None = None

    def has(self, offset: int) -> bool:
        """Whether the message at `offset` is among what it has in hand."""
        return self.cached > 0 and self.cached_min <= offset <= self.cached_max

    def is_past(self, offset: int) -> bool:
        """Whether it is done with the message, though the broker may not know yet."""
        return self.commit_offset > offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a group is in the queue of a copy."""

    copy: Copy
    offset: int | None
    """What the group has committed; None if nothing."""
    holders: list[Holding] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of a message and one group."""

    group: str
    position: Position | None
    """In the message's own queue; None if it is not there any more."""
    subscription: Subscription | None = None
    """What the group wants of the topic; None if nobody of it is connected."""
    broker_says: bool | None = None
    """Whether the broker lets the message through to the group; None if it did not say."""
    members: list[str] = field(default_factory=list)
    broadcast: bool = False
    pops: bool = False
    """Whether its offset moves when messages are handed out, not when they are consumed."""
    most_retries: int | None = None
    retries: list[Position] = field(default_factory=list)
    """In the group's retry topic, the first retry first."""
    delayed: list[Copy] = field(default_factory=list)
    """Those that wait to be put into the retry topic."""
    dead: Copy | None = None
    dead_reason: str | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    """As traces tell."""
    unknown: list[str] = field(default_factory=list)
    """What could not be found out, and why."""


@dataclass(slots=True, kw_only=True)
class GroupVerdict:
    """How it is with the message and one group, and why."""

    group: str
    state: State
    why: list[str] = field(default_factory=list)
    """Sentences, the most telling first."""
    retries: int = 0
    """How often the group has given it back."""
    most_retries: int | None = None
    due_ms: int | None = None
    """When the group gets it again, if it waits for that."""
    acknowledged_ms: int | None = None
    """When it was consumed, where a trace tells."""
    holders: list[str] = field(default_factory=list)
    """The members that have it."""
    reason: str | None = None
    """Why it was given up."""
    unknown: list[str] = field(default_factory=list)


# --- filters --------------------------------------------------------------------------------------


def fits(
    subscription: Subscription, tag: str | None, *, broker_says: bool | None
) -> tuple[bool | None, str]:
    """Whether a subscription wants such a message, None if nobody can say; and the reason.

    Tags are compared here. Expressions of other kinds are the broker's to read.
    """
    if subscription.class_filter:
        return None, "the group filters with a Java class of its own"
    if subscription.expression_type not in ("", "TAG", None):
        wanted = f"{subscription.expression_type} {subscription.expression}"
        if broker_says is None:
            return None, f"it wants {wanted}, and the broker does not say whether that fits"
        verdict = "gives it the message" if broker_says else "passes the message over"
        return broker_says, f"it wants {wanted}, for which the broker {verdict}"
    try:
        tags = parse_tags(subscription.expression)
    except InvalidInput as error:
        return None, str(error)
    if tags.expression == EVERYTHING:
        return True, "it wants every tag"
    wanted = " || ".join(sorted(tags.tags))
    has = "the message has none" if tag is None else f"the message's is {tag}"
    return tags.matches(tag), f"it wants tags {wanted}; {has}"


def late(ms: int) -> str:
    """How far off a time is: `in 3 s`, `due for 2 s`."""
    return f"in {span(ms)}" if ms > 0 else f"due for {span(-ms)}"


# --- the verdict ----------------------------------------------------------------------------------


def judge(evidence: Evidence, *, now_ms: int) -> GroupVerdict:
    """How it is with a message and a group."""
    return _Judge(evidence, now_ms).verdict()


class _Judge:
    """Looks at one kind of evidence after the other."""

    def __init__(self, evidence: Evidence, now_ms: int) -> None:
        self._all = evidence
        self._now_ms = now_ms
        most = MAX_RETRIES if evidence.most_retries is None else evidence.most_retries
        self._verdict = GroupVerdict(
            group=evidence.group,
            state=State.UNKNOWN,
            retries=self._failed_before(),
            most_retries=most,
            unknown=list(evidence.unknown),
        )

    def verdict(self) -> GroupVerdict:
        looks = (self._dead, self._told, self._delayed, self._retried, self._first)
        any(look() for look in looks)
        self._tell_deliveries()
        return self._verdict

    def _failed_before(self) -> int:
        copies = [position.copy for position in self._all.retries] + self._all.delayed
        return max((copy.message.retries for copy in copies), default=0)

    def _is(self, state: State, *why: str) -> bool:
        self._verdict.state = state
        self._verdict.why += why
        return True

    def _dead(self) -> bool:
        dead = self._all.dead
        if dead is None:
            return False
        self._verdict.retries = max(self._verdict.retries, dead.message.retries - 1)
        self._verdict.reason = self._all.dead_reason
        tries = count(self._verdict.retries, "retry", "retries")
        self._is(State.DEAD, f"after {tries}, at {moment(dead.stored_ms)}: {dead.place}")
        reason = self._all.dead_reason
        self._verdict.why.append(
            f"because of {reason}" if reason else "the consumer did not say why"
        )
        return True

    def _told(self) -> bool:
        """What traces say, which alone know when."""
        done = [one for one in self._all.deliveries if one.succeeded]
        if not done:
            return False
        self._verdict.acknowledged_ms = done[0].ended_ms
        assert done[0].ended is not None
        at = "" if done[0].ended_ms is None else f" at {moment(done[0].ended_ms)}"
        again = f" at retry {done[0].retries}" if done[0].retries else ""
        return self._is(
            State.ACKNOWLEDGED,
            f"consumed{again}{at}, in {span(done[0].ended.cost_ms)}, as its trace tells",
        )

    def _delayed(self) -> bool:
        there = max((one.copy.message.retries for one in self._all.retries), default=0)
        waiting = [copy for copy in self._all.delayed if copy.message.retries > there]
        if not waiting:
            return False
        last = max(waiting, key=lambda copy: copy.message.retries)
        self._verdict.due_ms = last.due_ms
        when = "at a time that is not known"
        if last.due_ms is not None:
            when = f"at {moment(last.due_ms)} ({late(last.due_ms - self._now_ms)})"
        return self._is(State.RETRYING, f"{self._retry_number()}, {when}")

    def _retry_number(self) -> str:
        return f"retry {self._verdict.retries} of {self._verdict.most_retries}"

    def _retried(self) -> bool:
        if not self._all.retries:
            return False
        last = max(self._all.retries, key=lambda one: one.copy.message.retries)
        self._verdict.why.append(f"{self._retry_number()} is stored: {last.copy.place}")
        return self._stands(last)

    def _first(self) -> bool:
        position = self._all.position
        if position is None:
            return self._is(State.UNKNOWN, "the message itself is not in its topic any more")
        if self._all.broadcast:
            return self._broadcast(position)
        return self._filtered(position) or self._stands(position)

    def _broadcast(self, position: Position) -> bool:
        self._is(State.BROADCAST, "each member gets it, and keeps its own offsets")
        offset = position.copy.offset
        told = {one.client_id: one for one in position.holders}
        for member in self._all.members:
            one = told.get(member)
            if one is None:
                self._verdict.why.append(f"{member} does not say how far it is")
            elif one.is_past(offset):
                self._verdict.why.append(f"{member} is past it, at {one.commit_offset}")
            else:
                self._verdict.why.append(f"{member} is at {one.commit_offset}")
                self._verdict.holders += [member] if one.has(offset) else []
        return True

    def _filtered(self, position: Position) -> bool:
        subscription = self._all.subscription
        if subscription is None:
            self._verdict.unknown.append(
                "what the group wants: nobody of it is connected, and brokers forget it then"
                if not self._all.members
                else "what the group wants: it is connected, but not subscribed to this topic now"
            )
            return False
        message = position.copy.message
        wanted, why = fits(subscription, message.tag, broker_says=self._all.broker_says)
        if wanted is None:
            self._verdict.unknown.append(f"whether the filter lets it through: {why}")
            return False
        if wanted:
            self._verdict.why.append(f"matched: {why}")
            return False
        return self._is(State.FILTERED, f"{why}; that is what it wants now")

    def _stands(self, position: Position) -> bool:
        """How far the group is in the queue of this copy."""
        at, place = position.copy.offset, position.copy.queue
        for holder in position.holders:
            if holder.is_past(at) and not (position.offset or 0) > at:
                return self._is(
                    State.ACKNOWLEDGED,
                    f"{holder.client_id} is past it, at {holder.commit_offset} of {place}; the "
                    f"broker is told within seconds",
                )
        if position.offset is None:
            return self._waits(position, f"the group has no offset in {place} yet")
        if position.offset > at:
            self._verdict.unknown.append(
                "when it was consumed: brokers do not keep that; traces would tell (trace=True)"
            )
            if self._all.pops:
                self._verdict.unknown.append(
                    "whether a member holds it still: of POP consumers brokers tell only what they "
                    "were given"
                )
            self._verdict.unknown.append(
                "whether it was consumed, or skipped by a reset or a first start: it is past "
                "it either way"
            )
            return self._is(State.PASSED, f"the group is past it, at {position.offset} of {place}")
        before = at - position.offset
        where = f"{count(before, 'message')} before it" if before else "it is the next"
        return self._waits(position, f"the group is at {position.offset} of {place}: {where}")

    def _waits(self, position: Position, where: str) -> bool:
        at = position.copy.offset
        having = [one.client_id for one in position.holders if one.has(at)]
        if having:
            self._verdict.holders = having
            return self._is(State.IN_FLIGHT, f"{', '.join(having)} has it", where)
        if not self._all.members:
            return self._is(State.WAITING, where, "nobody of the group is connected")
        owners = [one.client_id for one in position.holders]
        whose = f"{', '.join(owners)} reads this queue" if owners else "no member reads this queue"
        return self._is(State.WAITING, where, whose)

    def _tell_deliveries(self) -> None:
        """What traces say of failures, and of a handler that is still at work."""
        if self._verdict.state is State.ACKNOWLEDGED and self._verdict.acknowledged_ms is not None:
            return
        for one in self._all.deliveries:
            self._verdict.why.append(f"trace: {moment(one.began_ms)} {one}")
