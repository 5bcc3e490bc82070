"""How much of a topic is kept, where its attributes say so.

`reserve.time` is in hours, as RocketMQ's fileReservedTime is; -1 is no limit of the topic's own.
RocketMQ takes the attribute for tiered storage alone. `reserve.size` is ours, in bytes. What is
beyond either is not served any more; its bytes go with the files of the log, which all topics
share.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gantrymq.broker.attributes import RESERVE_SIZE, RESERVE_TIME
from gantrymq.broker.topics import Topics
from gantrymq.protocol.topics import TopicSettings
from gantrymq.store.retention import Limits

_HOUR: Final = 3600.0


class TopicLimits:
    """Has the store's `limits` follow the attributes of the topics."""

    __slots__ = ("_limits", "_topics")

    def __init__(self, topics: Topics, limits: dict[str, Limits]) -> None:
        self._topics = topics
        self._limits = limits
        topics.watch(self._changed)

    def load(self) -> None:
        """Take in what topics say that were kept."""
        self._changed(self._topics.table)

    def _changed(self, names: Collection[str]) -> None:
        for name in names:
            settings = self._topics.table.get(name)
            limits = None if settings is None else _limits(settings)
            if limits is None:
                self._limits.pop(name, None)
            else:
                self._limits[name] = limits


def _limits(settings: TopicSettings) -> Limits | None:
    hours = _number(settings, RESERVE_TIME)
    size = _number(settings, RESERVE_SIZE)
    if hours is None and size is None:
        return None
    return Limits(seconds=None if hours is None else hours * _HOUR, size=size)


def _number(settings: TopicSettings, name: str) -> int | None:
    """What an attribute says; None where that is no limit, or nothing that makes sense."""
    try:
        number = int((settings.attributes or {}).get(name, "-1"))
    except ValueError:  # a file that somebody else wrote
        return None
    return number if number >= 0 else None
