"""Where a group stands in a queue, where the queue begins and ends, and where a new group begins.

**A group without an offset.** A broker that has none for a group says so when it is asked in the
way of 5.x (`zero_if_unknown=False`). Releases before 5.0 do not know that way. Where a queue still
has its first message in memory they answer 0, which may mean "at the beginning, as committed" or
"never heard of". For a group that is to begin at the beginning both are the same; for any other
`committed` has the broker's whole table of offsets tell which it is.

RocketMQ: RebalancePushImpl.computePullFromWhere, MQClientAPIImpl.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from gantrymq.errors import InvalidInput, NotFound, ReplyError
from gantrymq.model import MessageQueue
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.names import is_retry_topic
from gantrymq.protocol.offsets import (
    GetAllConsumerOffsets,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.runtime import Runtime
from gantrymq.wire.versions import V5_0_0

TIMEOUT: Final = 5.0
"""Seconds that one question about offsets may take."""

Start: TypeAlias = Literal["earliest", "latest"] | datetime
"""Where a group begins that has no offset yet: with all there is, with what comes, or at a time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets that a queue has: from `least` up to, and not with, `end`."""

    least: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.least)


def check_start(start: object) -> Start:
    """`start`, if it is one."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidInput(
                f"start={start!r} has no time zone: write datetime(..., tzinfo=UTC), or"
                f" .astimezone() for the time zone of this machine"
            )
        return start
    if start == "earliest" or start == "latest":
        return start
    raise InvalidInput(
        f"start={start!r} is not a place to begin: it takes 'earliest', 'latest' or a datetime;"
        f" it counts only while the group has no offset of its own"
    )


async def committed(
    runtime: Runtime,
    address: str,
    queue: MessageQueue,
    group: str,
    *,
    version: int | None = None,
    timeout: float = TIMEOUT,
) -> int | None:
    """How far `group` has come in `queue`, or None; `version` is the broker's, if it is known."""
    question = QueryConsumerOffset(
        group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        zero_if_unknown=False,
        broker=queue.broker,
    )
    try:
        offset = (await runtime.call(address, question, timeout=timeout)).offset
    except NotFound:
        return None
    if offset == 0 and version is not None and version < V5_0_0:
        return await _certain(runtime, address, queue, group, timeout)
    return None if offset < 0 else offset


async def _certain(
    runtime: Runtime, address: str, queue: MessageQueue, group: str, timeout: float
) -> int | None:
    """0 if that is what the group has; where the broker keeps its table to itself, 0 as well."""
    try:
        table = (await runtime.call(address, GetAllConsumerOffsets(), timeout=timeout)).offsets
    except ReplyError:
        return 0
    return table.get(f"{queue.topic}@{group}", {}).get(queue.queue_id)


async def commit(
    runtime: Runtime,
    address: str,
    queue: MessageQueue,
    group: str,
    offset: int,
    *,
    timeout: float = TIMEOUT,
) -> None:
    """Say that `group` has dealt with everything before `offset`."""
    order = UpdateConsumerOffset(
        group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        offset=offset,
        broker=queue.broker,
    )
    await runtime.call(address, order, timeout=timeout)


async def least(
    runtime: Runtime, address: str, queue: MessageQueue, *, timeout: float = TIMEOUT
) -> int:
    """The offset of the oldest message that `queue` still has."""
    question = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    return max(0, (await runtime.call(address, question, timeout=timeout)).offset)


async def end(
    runtime: Runtime, address: str, queue: MessageQueue, *, timeout: float = TIMEOUT
) -> int:
    """The offset that the next message of `queue` will have."""
    question = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    return (await runtime.call(address, question, timeout=timeout)).offset


async def bounds(
    runtime: Runtime, address: str, queue: MessageQueue, *, timeout: float = TIMEOUT
) -> Bounds:
    """Both ends of `queue`."""
    last = await end(runtime, address, queue, timeout=timeout)
    return Bounds(min(await least(runtime, address, queue, timeout=timeout), last), last)


async def at_time(
    runtime: Runtime,
    address: str,
    queue: MessageQueue,
    when: datetime,
    *,
    boundary: Boundary = Boundary.LOWER,
    timeout: float = TIMEOUT,
) -> int:
    """The offset of the first message that was stored at `when` or later."""
    question = SearchOffset(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp_ms=round(when.timestamp() * 1000),
        boundary=boundary,
        broker=queue.broker,
    )
    return (await runtime.call(address, question, timeout=timeout)).offset


async def beginning(
    runtime: Runtime, address: str, queue: MessageQueue, start: Start, *, timeout: float = TIMEOUT
) -> int:
    """Where a group begins in `queue` that was never there.

    Failed messages that wait to be consumed again are the group's own, so of its retry topic
    nothing is skipped.
    """
    if start == "earliest" or is_retry_topic(queue.topic):
        return await least(runtime, address, queue, timeout=timeout)
    if start == "latest":
        return await end(runtime, address, queue, timeout=timeout)
    return await at_time(runtime, address, queue, start, timeout=timeout)


async def where_to_begin(
    runtime: Runtime,
    address: str,
    queue: MessageQueue,
    group: str,
    start: Start,
    *,
    version: int | None = None,
    timeout: float = TIMEOUT,
) -> int:
    """Where `group` goes on in `queue`, or begins if it has no offset there."""
    known = version if start != "earliest" else None
    found = await committed(runtime, address, queue, group, version=known, timeout=timeout)
    if found is not None:
        return found
    return await beginning(runtime, address, queue, start, timeout=timeout)
