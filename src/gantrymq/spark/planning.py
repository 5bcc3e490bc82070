"""How what is to be read becomes Spark's partitions: grouped and cut, so that they are alike.

A partition costs a few milliseconds whatever is in it, so small queues are put together; more
partitions than cores gain nothing, so large queues are cut only as far as cores have use for it.
Queues are taken in the order of their brokers: each partition then reads from one broker or few,
and different partitions from different ones at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gantrymq.flows.reading import Stretch
from gantrymq.model import MessageQueue

WORTH_A_PARTITION: Final = 8_000
"""Messages that are read as quickly by one task as by two, since the second has to be started."""


class Share(NamedTuple):
    """What one task reads at one broker."""

    addresses: Mapping[int, str]
    stretches: tuple[Stretch, ...]


def cores() -> int:
    """How many tasks are likely to run at a time."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def plan(
    stretches: Iterable[Stretch],
    *,
    at_least: int | None = None,
    at_most_each: int | None = None,
    parallel: int | None = None,
) -> list[list[Stretch]]:
    """The stretches, none of them empty, in groups of about the same number of messages."""
    wanted = sorted(
        (one for one in stretches if one.end > one.start),
        key=lambda one: (one.queue.broker, one.queue.topic, one.queue.queue_id),
    )
    total = sum(one.end - one.start for one in wanted)
    if not total:
        return []
    count = min(parallel or cores(), -(-total // WORTH_A_PARTITION))
    count = max(count, min(at_least or 1, total))
    if at_most_each is not None:
        count = max(count, -(-total // at_most_each))
    return _cut(wanted, total, count)


def _cut(wanted: Sequence[Stretch], total: int, count: int) -> list[list[Stretch]]:
    """Cut them at every `total / count`-th message."""
    groups: list[list[Stretch]] = [[]]
    passed, number = 0, 1
    border = total // count
    for queue, start, end in wanted:
        at = start
        while at < end:
            upto = min(end, at + border - passed)
            groups[-1].append(Stretch(queue, at, upto))
            passed += upto - at
            at = upto
            if passed == border and number < count:
                number += 1
                border = total * number // count
                groups.append([])
    return [group for group in groups if group]


def whole(stretches: Iterable[Stretch], tasks: int) -> list[list[Stretch]]:
    """The stretches, none of them cut, in so many groups at most of much the same size."""
    groups: list[list[Stretch]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for one in sorted(stretches, key=lambda one: (one.start - one.end, one.queue)):
        least = sizes.index(min(sizes))
        groups[least].append(one)
        sizes[least] += one.end - one.start
    return [group for group in groups if group]


def shares(
    group: Sequence[Stretch],
    wire: Mapping[MessageQueue, MessageQueue],
    addresses: Mapping[str, Mapping[int, str]],
) -> tuple[Share, ...]:
    """A group by its brokers, queues as they are called there."""
    by_broker: dict[str, list[Stretch]] = {}
    for queue, start, end in group:
        by_broker.setdefault(queue.broker, []).append(Stretch(wire[queue], start, end))
    return tuple(
        Share(dict(addresses.get(broker, {})), tuple(its)) for broker, its in by_broker.items()
    )
