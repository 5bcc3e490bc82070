"""Whether every queue that is ours is read, and an alarm that says which is not, and why.

A queue stands still for one of these reasons, and each is told in its own words:

| what | why |
|---|---|
| no pull of it has come to an end | the last error, or that the broker says nothing |
| it is ours and cannot be taken | another member has locked it, or its broker does not answer |
| it is not known which queues are ours | there is no route, or no broker says who is in the group |
| nothing more is read | as much is out as may be, because a message is not dealt with |

Queues that stand still for the same reason are told of in one line, once when it begins, then every
five minutes, and once when it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gantrymq.client.holding import Holding
from gantrymq.model import MessageQueue

log = logging.getLogger("gantrymq.client")

_REMIND: Final = 300.0
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Queues, or all those of a topic, that stand still for one reason."""

    what: tuple[str, ...]
    """The queues, or the topic."""
    reason: object
    """Equal for all that stands still for the same reason."""
    why: str
    seconds: float
    """For how long, at least."""

    def __str__(self) -> str:
        shown = ", ".join(self.what[:_SHOWN])
        more = f" and {len(self.what) - _SHOWN} more" if len(self.what) > _SHOWN else ""
        return f"{shown}{more}: {self.why} ({self.seconds:.0f}s)"


def problems(
    holding: Holding, now: float, after: float, *, full_ones: bool = True
) -> list[Problem]:
    """What has stood still for longer than `after` seconds, by reason.

    Without `full_ones`, it is no problem that as much is out as may be.
    """
    found: dict[object, tuple[list[str], str, float]] = {}

    def note(what: MessageQueue | str, reason: object, why: str, since: float) -> None:
        if now - since > after:
            names, _, seconds = found.get(reason, ([], "", 0.0))
            found[reason] = [*names, str(what)], why, max(seconds, now - since)

    for key, queue in holding.queues.items():
        if queue.paused:
            continue
        if queue.blocked is not None:
            if full_ones:
                note(key, key, f"nothing more is read: {queue.blocked}", queue.blocked_since)
        elif queue.error is not None:
            reason = (key.broker, type(queue.error))
            note(key, reason, f"it is not read: {queue.error}", queue.last_pull)
        else:
            note(key, key.broker, "it is not read: its broker says nothing", queue.last_pull)
    for key, (since, why) in holding.missing.items():
        note(key, (key.broker, why), f"it is ours and cannot be taken: {why}", since)
    for topic, (since, why) in holding.unknown.items():
        note(f"all of {topic}", why, f"which queues are ours is not known: {why}", since)
    return [
        Problem(what=tuple(sorted(names)), reason=reason, why=why, seconds=seconds)
        for reason, (names, why, seconds) in found.items()
    ]


class Alarm:
    """Says what stands still, but not again and again."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._told: dict[object, tuple[float, Problem]] = {}

    def look(self, found: Iterable[Problem], now: float) -> None:
        """Tell what is new, and what is over."""
        current = {problem.reason: problem for problem in found}
        for reason, problem in current.items():
            told = self._told.get(reason)
            if told is None or told[1].what != problem.what or now - told[0] >= _REMIND:
                log.warning("group %s: queues stand still: %s", self._group, problem)
                self._told[reason] = now, problem
        for reason in [reason for reason in self._told if reason not in current]:
            _, problem = self._told.pop(reason)
            log.info("group %s: that is over: %s", self._group, problem)
