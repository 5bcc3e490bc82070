"""Trees and times as lines of text, for everything that is shown to people as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


@dataclass(slots=True)
class Node:
    """A line of a tree, and the lines below it; a text of several lines stays together."""

    text: str
    below: list[Node] = field(default_factory=list)

    def add(self, text: str, *below: str) -> Node:
        """One more line below this one, with lines of its own."""
        node = Node(text, [Node(line) for line in below])
        self.below.append(node)
        return node


def draw(node: Node) -> str:
    """The tree with `node` at its top; what would move a terminal's cursor is blotted out.

    Much of it was written by others: tags, keys, reasons.
    """
    return "\n".join([*map(_harmless, node.text.splitlines() or [""]), *_branches(node.below)])


def _harmless(line: str) -> str:
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in line)


def _branches(nodes: Sequence[Node]) -> Iterator[str]:
    for number, node in enumerate(nodes, 1):
        first, more = ("└─ ", "   ") if number == len(nodes) else ("├─ ", "│  ")
        lines = draw(node).splitlines()
        yield first + lines[0]
        yield from (more + line for line in lines[1:])


def moment(ms: int) -> str:
    """A time as people read it, to the millisecond, in UTC."""
    try:
        at = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"  # whoever wrote that into a message, it is shown
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}Z"


def span(ms: int) -> str:
    """A stretch of time in the unit that suits it: `7 ms`, `1.25 s`, `3 min 20 s`, `2 d 4 h`."""
    if abs(ms) < 1_000:
        return f"{ms} ms"
    if abs(ms) < 60_000:
        return f"{ms / 1000:.3g} s"
    seconds, parts = abs(ms) // 1000, []
    for size, unit in _UNITS:
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    if seconds:
        parts.append(f"{seconds} s")
    return ("-" if ms < 0 else "") + " ".join(parts[:2])


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
