"""The row in which messages wait to be handled: first come, first served, but for priorities.

A message of a higher priority goes before those of lower ones that nobody has begun, and after
those of its own. Messages without one count as the lowest. What comes from one queue has one
priority as a rule, since priorities are queues; so it is looked for in the first message alone, and
what has none costs nothing here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

Piece = TypeVar("Piece", bound=tuple[Any, Any])
"""What messages came from, and the messages; None instead of those for an ordered queue's turn."""


def line_up(row: deque[Piece], work: Sequence[Piece]) -> None:
    """Put `work` into the row, which others may take from at the same time."""
    rank = _rank(work[0]) if work else 0
    if not rank:
        row.extend(work)
        return
    waiting = list(row)
    before = next((at for at, piece in enumerate(waiting) if _rank(piece) < rank), len(waiting))
    if before == len(waiting):
        row.extend(work)
        return
    for step, piece in enumerate(work):
        row.insert(before + step, piece)


def _rank(piece: tuple[Any, Any]) -> int:
    messages = piece[1]
    return messages[0].priority or 0 if messages else 0
