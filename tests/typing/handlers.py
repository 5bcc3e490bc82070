"""What the type checker has to say about requests, replies and the handlers that answer them.

Nothing here runs. `mypy --strict` passes, and because unused ignores are errors, each line that
carries one is a line that it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

from gantrymq.protocol.base import Done, Entry, table
from gantrymq.protocol.offsets import GetMaxOffset, GetMinOffset, OffsetReply
from gantrymq.protocol.pulling import LitePullMessage, PullMessage, PullReply
from gantrymq.protocol.routing import GetRoute
from gantrymq.wire.command import Command


class Broker:
    """The owner of a table."""


class Peer:
    """Who asks."""


async def pull(request: PullMessage, broker: Broker, peer: Peer) -> PullReply:
    """Waits for messages, so it is a coroutine."""
    return PullReply(suggested_broker=0, next_offset=request.offset, min_offset=0, max_offset=0)


def max_offset(request: GetMaxOffset, broker: Broker, peer: Peer) -> OffsetReply:
    """Knows the answer at once."""
    return OffsetReply(offset=len(request.topic))


def nothing(request: GetMinOffset, broker: Broker, peer: Peer) -> Done:
    """Answers with another reply than its request has."""
    return Done()


def for_others(request: GetMaxOffset, broker: Peer, peer: Peer) -> OffsetReply:
    """Belongs to the table of another owner."""
    return OffsetReply(offset=0)


HANDLERS = table(
    PullMessage.answered_by(pull),
    LitePullMessage.answered_by(pull),  # a handler of the base takes what is derived from it
    GetMaxOffset.answered_by(max_offset),
)
assert_type(HANDLERS, Mapping[int, Entry[Broker, Peer]])

GetRoute.answered_by(pull)  # type: ignore[arg-type]
GetMinOffset.answered_by(nothing)  # type: ignore[arg-type]
GetMinOffset.answered_by(max_offset)  # type: ignore[arg-type]
table(PullMessage.answered_by(pull), GetMaxOffset.answered_by(for_others))  # type: ignore[misc]

GetMaxOffset(topic="T")  # type: ignore[call-arg]
GetMaxOffset(topic="T", queue_id="0")  # type: ignore[arg-type]
GetMaxOffset(topic="T", queue_id=0, queueId=0)  # type: ignore[call-arg]
OffsetReply(8812)  # type: ignore[call-arg, arg-type]

question = GetMaxOffset(topic="T", queue_id=0)
assert_type(question.command(), Command)
assert_type(question.reply_from(Command(0)), OffsetReply)
assert_type(GetMaxOffset.from_command(Command(30)), GetMaxOffset)
assert_type(question.broker, str | None)
