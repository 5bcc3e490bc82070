"""Measuring two brokers in turns: one works, the other stands still."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import _broker_servers as servers
from _broker_servers import Side
from _driving import Failed, Measured, note

_PAUSE: Final = 2.0
"""Seconds that a broker gets that was too busy."""


@contextlib.contextmanager
def started(names: Sequence[str], flush: str, **theirs: object) -> Iterator[list[Side]]:
    """Both, running but stopped; `theirs` are settings of RocketMQ's broker."""
    with contextlib.ExitStack() as stack:
        found = []
        for name in names:
            note(f"starting {name}, {flush} flush")
            side = servers.start(name, flush, **theirs)
            stack.callback(side.close)
            side.stop()
            found.append(side)
        yield found


def in_turns(
    what: str,
    sides: Sequence[Side],
    rounds: int,
    *,
    prepare: Callable[[Side], object],
    once: Callable[[Side], Measured],
    told: Callable[[Measured], str],
) -> dict[str, list[Measured]]:
    """What each side came to in each of so many rounds; `told` is what is said of one."""
    for side in sides:
        note(f"{what}: warming up {side.name}")
        with side.running():
            try:
                prepare(side)
            except Failed as failure:
                note(f"{what}: {side.name} is not warm, because {failure}")
                time.sleep(_PAUSE)
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            with side.running():
                one = _again(what, side, once)
            if one is None:
                continue
            found[side.name].append(one)
            note(f"{what}: round {number + 1}, {side.name:8} {told(one)}")
    if not all(found.values()):
        raise Failed(f"{what}: no round came to its end at one of them")
    return found


def _again(what: str, side: Side, once: Callable[[Side], Measured]) -> Measured | None:
    """A round; one more chance where a broker was too busy to take a message."""
    try:
        return once(side)
    except Failed as failure:
        note(f"{what}: {side.name} once more, because {failure}")
    time.sleep(_PAUSE)
    try:
        return once(side)
    except Failed as failure:
        note(f"{what}: a round less of {side.name}, because {failure}")
        return None
