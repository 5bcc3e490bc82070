"""What became of a message, as a whole: where it is stored, every group's verdict, and the text."""

from __future__ import annotations

from dataclasses import dataclass

from gantrymq.flows.trace_trees import MessageTrace
from gantrymq.flows.verdicts import Copy, GroupVerdict, late
from gantrymq.model import ReceivedMessage
from gantrymq.rules.drawing import Node, count, draw, moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What became of one message.

    `str()` is the text that `gantry message explain` shows, its times in UTC.
    """

    message_id: str
    topic: str
    message: ReceivedMessage
    """The message itself, or where that is gone or not there yet, the copy that was found."""
    copies: list[Copy]
    """Where it is stored outside of the groups' own topics."""
    groups: list[GroupVerdict]
    trace: MessageTrace | None
    notes: list[str]
    """What holds for all groups, or for none."""
    now_ms: int
    """When all this was so."""

    def group(self, name: str) -> GroupVerdict | None:
        """What there is to say of one group."""
        return next((one for one in self.groups if one.group == name), None)

    def __str__(self) -> str:
        return _story(self)


def _story(told: Explanation) -> str:
    message = told.message
    about = [f"message {told.message_id} of {told.topic}"]
    about += [f"tag {message.tag}"] if message.tag else []
    about += [f"keys {' '.join(message.keys)}"] if message.keys else []
    top = Node(", ".join(about))
    for copy in told.copies:
        _tell_copy(top, copy, told.now_ms)
    for verdict in told.groups:
        _tell_group(top, verdict)
    for note in told.notes:
        top.add(note)
    return draw(top)


def _tell_copy(top: Node, copy: Copy, now_ms: int) -> None:
    stored = copy.message.stored
    node = top.add(f"{copy.role.value} {copy.place}, {moment(copy.stored_ms)}")
    node.add(
        f"sent by {stored.born_host} at {moment(stored.born_ms)}, "
        f"{count(len(stored.body), 'byte')}, offset id {stored.offset_id}"
    )
    if copy.due_ms is not None:
        node.add(f"to be delivered at {moment(copy.due_ms)} ({late(copy.due_ms - now_ms)})")
    if copy.note:
        node.add(copy.note)


def _tell_group(top: Node, verdict: GroupVerdict) -> None:
    node = top.add(f"{verdict.group}: {verdict.state.value}")
    for line in verdict.why:
        node.add(line)
    for line in verdict.unknown:
        node.add(f"not known: {line}")
