"""Where a query is in each queue, as JSON of the form that options, checkpoints and progress share.

`{"orders": {"broker-a": {"0": 42, "1": 17}}}`: topic, broker, queue, and the offset of the message
that comes next. In options -2 stands for the earliest offset and -1 for the latest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from gantrymq.errors import ConfigError
from gantrymq.model import MessageQueue

EARLIEST: Final = -2
LATEST: Final = -1

Positions: TypeAlias = dict[MessageQueue, int]
"""Queues, by their topics' names as users know them, with offsets."""


def to_json(positions: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """The nested form, sorted: Spark takes it for another one when the text differs."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, broker, queue_id), offset in sorted(positions.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return found


def from_json(tree: Any, what: str) -> Positions:
    """The positions that the nested form holds; `what` is what it is called in an error."""
    found: Positions = {}
    for topic, brokers in _items(tree, what, "topics"):
        for broker, queues in _items(brokers, f"{what}[{topic}]", "brokers"):
            for queue_id, offset in _items(queues, f"{what}[{topic}][{broker}]", "queues"):
                if not queue_id.isdecimal() or type(offset) is not int:
                    raise ConfigError(
                        f"{what}[{topic}][{broker}]: {queue_id!r}: {offset!r} is no number of a"
                        f" queue with an offset"
                    )
                found[MessageQueue(topic, broker, int(queue_id))] = offset
    return found


def parse_positions(text: str, what: str) -> Positions:
    """The positions in an option's text."""
    try:
        return from_json(json.loads(text), f"option {what}")
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"option {what}: {text!r:.80} is neither a word that it knows nor JSON of the form"
            f' {{"topic": {{"broker": {{"0": 42}}}}}}: {error}'
        ) from error


def parse_time(text: str, what: str) -> datetime:
    """The time in an option's text."""
    text = text.strip()
    try:
        if text.lstrip("-").isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"option {what}: {text!r} is neither milliseconds since 1970 nor a time such as"
            f" 2026-11-19T20:00:00+00:00: {error}"
        ) from error
    if found.tzinfo is None:
        raise ConfigError(f"option {what}: {text!r} has no time zone: add Z or +01:00")
    return found


def _items(tree: Any, what: str, kind: str) -> list[tuple[str, Any]]:
    if not isinstance(tree, dict):
        raise ConfigError(f"{what}: {json.dumps(tree):.80} is no object of {kind}")
    return list(tree.items())
