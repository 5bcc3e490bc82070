"""Moving a group to other offsets: plan, apply, read back.

**Plan.** For each queue: where the group stands, where it would stand, how many messages it would
skip or be given again. Nothing is changed.

**Apply.** How, depends on the brokers and on whether members are connected:

| | nobody connected | members connected |
|---|---|---|
| brokers that keep resets (5.1 and later, ours) | reset at the broker | reset at the broker |
| older brokers | commit the offset | broker pushes the reset to the members, by time only |

A member of a group remembers where it is; on an older broker a committed offset would last until
its next commit. So what cannot be pushed is refused, and the text says to stop the members first.

**Read back.** An order that was taken is not yet an offset that has changed. The offsets are read
until they are as planned, and what is not is an error with the queue and both numbers.

RocketMQ: ResetOffsetByTimeCommand, AdminBrokerProcessor.resetOffset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from gantrymq.errors import (
    CallTimeout,
    ConsumerOffline,
    GantryError,
    GroupNotFound,
    InvalidInput,
    NoPermission,
    NotSupported,
    PartlyDone,
)
from gantrymq.flows import group_settings, progress
from gantrymq.flows.lookup import ms_of, offset_at
from gantrymq.flows.members import group_members
from gantrymq.flows.reaching import Reach, gather
from gantrymq.flows.topic_changes import owners
from gantrymq.flows.topics import QueueState, status_at
from gantrymq.model import MessageQueue
from gantrymq.protocol.configs import GetBrokerConfig
from gantrymq.protocol.offsets import UpdateConsumerOffset
from gantrymq.protocol.resets import CloneGroupOffsets, ResetOffsets

ResetTo: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""Where to: the first message that is still there, the end, an offset, or a time."""

_END_OF_TIME: Final = -1
_READ_BACK: Final = 5.0
_PUSHED_READ_BACK: Final = 40.0
"""A Java member that is told to move needs ten seconds and the next rebalance."""
_POLL: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMove:
    """What a plan has in mind for one queue."""

    queue: MessageQueue
    before: int | None
    """None: the group has no offset there."""
    wanted: int
    min_offset: int
    max_offset: int

    @property
    def skipped(self) -> int:
        """How many messages the group would never see; unknown offsets count from the beginning."""
        return max(0, self.wanted - max(self.before or 0, self.min_offset))

    @property
    def repeated(self) -> int:
        """How many messages the group would be given again."""
        return 0 if self.before is None else max(0, min(self.before, self.max_offset) - self.wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """What a reset would do; `apply_reset` does it."""

    group: str
    topic: str
    to: ResetTo
    moves: list[OffsetMove]
    members: list[str]
    """The ids of the members that are connected."""
    all_queues: bool

    @property
    def skipped(self) -> int:
        """How many messages the group would never see."""
        return sum(move.skipped for move in self.moves)

    @property
    def repeated(self) -> int:
        """How many messages the group would be given again."""
        return sum(move.repeated for move in self.moves)


# --- plan -----------------------------------------------------------------------------------------


async def plan_reset(
    reach: Reach,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    queues: Collection[int | MessageQueue] | None = None,
) -> ResetPlan:
    """What moving the group would mean, queue by queue; a number is that queue at every broker."""
    await group_settings.group_settings(reach, group)
    at = await owners(reach, topic)
    status = await status_at(reach, topic, at)
    if status.failures:
        raise PartlyDone("read the bounds", "brokers", done=(), failed=status.failures)
    known = [state for state in status.queues if _is_wanted(state.queue, queues)]
    if not known:
        raise InvalidInput(f"topic {topic} has no queue of {queues}; it has {len(status.queues)}")
    held: dict[MessageQueue, int | None] = {}
    for name, address in at.items():
        own = [state.queue for state in known if state.queue.broker == name]
        held |= await progress.offsets_of(reach, address, group, own)
    moves = [
        OffsetMove(
            queue=state.queue,
            before=held[state.queue],
            wanted=await _target(reach, at[state.queue.broker], state, to),
            min_offset=state.min_offset,
            max_offset=state.max_offset,
        )
        for state in known
    ]
    there = await group_members(reach, group)
    return ResetPlan(
        group=group,
        topic=topic,
        to=to,
        moves=moves,
        members=[member.client_id for member in there.members],
        all_queues=len(known) == len(status.queues),
    )


def _is_wanted(queue: MessageQueue, queues: Collection[int | MessageQueue] | None) -> bool:
    return queues is None or queue in queues or queue.queue_id in queues


async def _target(reach: Reach, address: str, state: QueueState, to: ResetTo) -> int:
    if isinstance(to, datetime):
        return await offset_at(reach, address, state, to)
    if to == "earliest":
        return state.min_offset
    if to == "latest":
        return state.max_offset
    if not isinstance(to, int):
        raise InvalidInput(f"a reset goes to earliest, latest, an offset or a time, not {to!r}")
    if not state.min_offset <= to <= state.max_offset:
        raise InvalidInput(
            f"{state.queue} goes from {state.min_offset} to {state.max_offset}: a group cannot "
            f"stand at {to} there"
        )
    return to


# --- apply and read back --------------------------------------------------------------------------


async def reset_offsets(
    reach: Reach,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    queues: Collection[int | MessageQueue] | None = None,
) -> list[OffsetMove]:
    """Move a group, and return when it stands there; what was moved, queue by queue."""
    plan = await plan_reset(reach, group, topic, to, queues=queues)
    await apply_reset(reach, plan)
    return plan.moves


async def apply_reset(reach: Reach, plan: ResetPlan) -> dict[MessageQueue, int]:
    """Do what was planned, and read back; where the group stands now.

    `PartlyDone` names the queues where it does not stand as planned.
    """
    at = await owners(reach, plan.topic)
    by_broker: dict[str, list[OffsetMove]] = {}
    for move in plan.moves:
        by_broker.setdefault(move.queue.broker, []).append(move)
    ways = {name: await _way(reach, at[name], name, plan) for name in by_broker}
    done = await gather(
        by_broker, lambda name: _move(reach, at[name], ways[name], plan, by_broker[name])
    )
    accepted = {queue for queues in done.answers.values() for queue in queues}
    failures: dict[str, GantryError] = {
        str(move.queue): error for name, error in done.failures.items() for move in by_broker[name]
    }
    pushed = any(way == "push" for way in ways.values())
    moves = [move for move in plan.moves if str(move.queue) not in failures]
    now, late = await _read_back(reach, at, plan, moves, accepted, pushed=pushed)
    failures |= late
    if failures:
        raise PartlyDone(
            f"reset {plan.group} in {plan.topic}",
            "queues",
            done=tuple(str(move.queue) for move in plan.moves if str(move.queue) not in failures),
            failed=failures,
        )
    return now


_Way = Literal["keep", "commit", "push"]


async def _way(reach: Reach, address: str, broker: str, plan: ResetPlan) -> _Way:
    """How the group is moved at this broker; refuses what could not last."""
    try:
        properties = (await reach.ask(address, GetBrokerConfig())).properties
    except (NoPermission, NotSupported):
        properties = {"useServerSideResetOffset": "true"}
    if properties.get("useServerSideResetOffset", "").lower() == "true":
        return "keep"
    if not plan.members:
        return "commit"
    if isinstance(plan.to, int) or not plan.all_queues:
        raise InvalidInput(
            f"broker {broker} cannot keep a reset (before 5.1, or useServerSideResetOffset is off):"
            f" as long as {len(plan.members)} members of {plan.group} are connected, it moves all "
            f"queues of a topic to a time, to earliest or latest, but not to an offset. Stop the "
            f"members first"
        )
    return "push"


async def _move(
    reach: Reach, address: str, way: _Way, plan: ResetPlan, moves: list[OffsetMove]
) -> set[MessageQueue]:
    """Give the order; the queues of which the broker said that the offset holds now."""
    try:
        if way == "push":
            await reach.ask(address, _pushed(plan), timeout=max(reach.timeout, 10.0))
            return set()
        accepted: set[MessageQueue] = set()
        for move in moves:
            if way == "commit":
                await reach.ask(address, _committed(plan, move))
            else:
                said = await reach.ask(address, _kept(plan, move))
                accepted |= {q for q, offset in said.offsets.items() if offset == move.wanted}
    except GroupNotFound as absent:
        raise group_settings.unknown(plan.group, [moves[0].queue.broker]) from absent
    except ConsumerOffline as left:
        raise CallTimeout(f"the members of {plan.group} left meanwhile: plan it again") from left
    return accepted


def _pushed(plan: ResetPlan) -> ResetOffsets:
    if isinstance(plan.to, datetime):
        when = ms_of(plan.to)
    else:
        when = _END_OF_TIME if plan.to == "latest" else 0
    return ResetOffsets(topic=plan.topic, group=plan.group, timestamp_ms=when, force=True)


def _kept(plan: ResetPlan, move: OffsetMove) -> ResetOffsets:
    return ResetOffsets(
        topic=plan.topic,
        group=plan.group,
        queue_id=move.queue.queue_id,
        offset=move.wanted,
        timestamp_ms=_END_OF_TIME,
        force=True,
    )


def _committed(plan: ResetPlan, move: OffsetMove) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(
        group=plan.group,
        topic=plan.topic,
        queue_id=move.queue.queue_id,
        offset=move.wanted,
    )


async def _read_back(
    reach: Reach,
    at: Mapping[str, str],
    plan: ResetPlan,
    moves: list[OffsetMove],
    accepted: set[MessageQueue],
    *,
    pushed: bool,
) -> tuple[dict[MessageQueue, int], dict[str, GantryError]]:
    limit = _PUSHED_READ_BACK if pushed else _READ_BACK
    deadline = reach.runtime.now() + limit
    waiting, now = list(moves), dict[MessageQueue, int | None]()
    while True:
        for move in waiting:
            queue = move.queue
            now[queue] = await progress.committed(reach, at[queue.broker], plan.group, queue)
        waiting = [
            move
            for move in waiting
            if not _stands(move, now[move.queue], bool(plan.members), move.queue in accepted)
        ]
        if not waiting or reach.runtime.now() >= deadline:
            break
        await reach.runtime.sleep(_POLL)
    late: dict[str, GantryError] = {
        str(move.queue): CallTimeout(
            f"{limit:.0f}s after the reset {plan.group} stands at {now[move.queue]} in "
            f"{move.queue}, not at {move.wanted}"
        )
        for move in waiting
    }
    return {queue: offset for queue, offset in now.items() if offset is not None}, late


def _stands(move: OffsetMove, now: int | None, connected: bool, accepted: bool) -> bool:
    """Whether the group has been moved; with members it goes on from there at once."""
    if now == move.wanted:
        return True
    if now is None or not connected:
        return False
    moved_back = move.before is not None and move.wanted < move.before
    return now > move.wanted and (accepted or not moved_back or now < (move.before or 0))


# --- clone ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCopy:
    """One queue of a clone: where the source stands, and where the target stood before."""

    queue: MessageQueue
    source: int
    before: int | None


async def plan_clone(
    reach: Reach, source: str, target: str, *, topic: str | None = None
) -> list[OffsetCopy]:
    """What giving `target` the offsets of `source` would mean, queue by queue."""
    lag = await progress.group_lag(reach, source, topic=topic)
    if lag.failures:
        raise PartlyDone("read the offsets", "brokers", done=(), failed=lag.failures)
    standing = {one.queue: one.offset for one in lag.queues if one.offset is not None}
    held: dict[MessageQueue, int | None] = {}
    for name in sorted({queue.topic for queue in standing}):
        for broker, address in (await owners(reach, name)).items():
            own = [queue for queue in standing if (queue.topic, queue.broker) == (name, broker)]
            held |= await progress.offsets_of(reach, address, target, own)
    return [
        OffsetCopy(queue=queue, source=offset, before=held[queue])
        for queue, offset in standing.items()
    ]


async def clone_offsets(
    reach: Reach, source: str, target: str, *, topic: str | None = None
) -> list[OffsetCopy]:
    """Give `target` the offsets of `source`, in one topic or in all, and read back.

    Members of `target` that are connected would write theirs over it: that is refused.
    """
    there = (await group_members(reach, target)).members
    if there:
        raise InvalidInput(
            f"{len(there)} members of {target} are connected "
            f"({', '.join(member.client_id for member in there)}): they would go on from their own "
            f"offsets. Stop them first"
        )
    copies = await plan_clone(reach, source, target, topic=topic)
    if not copies:
        raise InvalidInput(f"{source} has no offset{f' in {topic}' if topic else ''} to copy")
    at = {copy.queue.broker: "" for copy in copies}
    for name in {copy.queue.topic for copy in copies}:
        at |= await owners(reach, name)

    def order() -> CloneGroupOffsets:
        return CloneGroupOffsets(
            source_group=source, target_group=target, topic=topic, offline=True
        )

    brokers = sorted({copy.queue.broker for copy in copies})
    done = await gather(brokers, lambda name: reach.ask(at[name], order()))
    done.whole(f"clone {source} to {target}")
    wrong: dict[str, GantryError] = {}
    for copy in copies:
        now = await progress.committed(reach, at[copy.queue.broker], target, copy.queue)
        if now is None or now < copy.source:
            text = f"{target} stands at {now}, not at {copy.source} as {source}"
            wrong[str(copy.queue)] = CallTimeout(text)
    if wrong:
        right = tuple(str(copy.queue) for copy in copies if str(copy.queue) not in wrong)
        raise PartlyDone(f"clone {source} to {target}", "queues", done=right, failed=wrong)
    return copies
