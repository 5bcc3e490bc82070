"""From where to where a query reads: options become offsets of each queue.

What is asked for and is not there any more is a loss of data, found here already where a starting
offset lies before the first message of its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gantrymq.client.reader import Losses
from gantrymq.errors import ConfigError
from gantrymq.flows.offsets import Bounds
from gantrymq.flows.reading import Stretch
from gantrymq.model import MessageQueue
from gantrymq.spark import planning
from gantrymq.spark.cluster import Cluster, Layout, Wanted
from gantrymq.spark.offsets import (
    EARLIEST,
    LATEST,
    Positions,
    parse_positions,
    parse_time,
)
from gantrymq.spark.options import Options, SourceOptions
from gantrymq.spark.planning import Share

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def wanted(source: SourceOptions) -> Wanted:
    """Which queues the options name."""
    topics = (source.topic,) if source.topic else source.topics
    return Wanted(tuple(dict.fromkeys(topics)), source.topic_pattern, _queues(source.queues))


def _queues(texts: Iterable[str]) -> frozenset[tuple[str, int]]:
    found = set()
    for text in texts:
        broker, colon, number = text.strip().rpartition(":")
        if not colon or not number.isdecimal():
            raise ConfigError(f"option queues: {text!r} is not broker:queue, such as broker-a:0")
        found.add((broker, int(number)))
    return frozenset(found)


class Place:
    """What the options say of one end, for every queue."""

    def __init__(
        self, end: str, offsets: str, time: str | None, times: str | None, otherwise: int
    ) -> None:
        self.otherwise = otherwise
        self.own: Positions = {}
        self.at = None
        self.times: Mapping[MessageQueue, Any] = {}
        text = offsets.strip()
        if text.lower() in _WORDS:
            self.otherwise = _WORDS[text.lower()]
        elif text:
            self.own = parse_positions(text, f"{end}Offsets")
        if time is not None:
            self.at = parse_time(time, f"{end}Timestamp")
        if times is not None:
            what = f"{end}OffsetsByTimestamp"
            self.times = {
                queue: parse_time(str(ms), what)
                for queue, ms in parse_positions(times, what).items()
            }

    def check(self, layout: Layout) -> None:
        """Refuse queues that are not there."""
        absent = sorted({*self.own, *self.times} - set(layout.queues))
        if absent:
            shown = ", ".join(map(str, absent[:5]))
            raise ConfigError(
                f"offsets were given for {shown}, which is no queue that is read; there are"
                f" {', '.join(map(str, layout.queues[:8]))}"
            )


def starting(source: SourceOptions, otherwise: int) -> Place:
    """Where to begin."""
    return Place(
        "starting",
        source.starting_offsets,
        source.starting_timestamp,
        source.starting_offsets_by_timestamp,
        otherwise,
    )


def ending(source: SourceOptions) -> Place:
    """Where to end."""
    if source.ending_offsets.strip().lower() == "earliest":
        raise ConfigError("option endingOffsets: nothing can be read that ends with the earliest")
    return Place(
        "ending",
        source.ending_offsets,
        source.ending_timestamp,
        source.ending_offsets_by_timestamp,
        LATEST,
    )


async def settle(
    cluster: Cluster, place: Place, bounds: Mapping[MessageQueue, Bounds]
) -> Positions:
    """The offset in each queue that `place` stands for."""
    at_time = dict(place.times)
    if place.at is not None:
        at_time |= dict.fromkeys(bounds, place.at)
    found: Positions = {}
    if at_time:
        answers = await cluster.at_times({q: t for q, t in at_time.items() if q in bounds})
        if answers.failures:
            raise next(iter(answers.failures.values()))
        found = answers.found
    for queue, its in bounds.items():
        if queue not in found:
            offset = place.own.get(queue, place.otherwise)
            found[queue] = {EARLIEST: its.least, LATEST: its.end}.get(offset, offset)
    return found


def batch_ranges(options: Options) -> list[tuple[Share, ...]]:
    """What each task of a batch reads."""
    cluster = Cluster(options.client)
    try:
        return cluster.run(_batch_ranges(cluster, options.source))
    finally:
        cluster.close()


async def _batch_ranges(cluster: Cluster, source: SourceOptions) -> list[tuple[Share, ...]]:
    asked = wanted(source)
    first, last = starting(source, EARLIEST), ending(source)
    layout = await cluster.layout(asked)
    first.check(layout)
    last.check(layout)

    async def look() -> None:
        await cluster.layout(asked)

    bounds: dict[MessageQueue, Bounds] = await cluster.insist(
        lambda: cluster.bounds(layout.queues), look, source.broker_timeout
    )
    starts = await settle(cluster, first, bounds)
    ends = await settle(cluster, last, bounds)
    losses = Losses("fail" if source.fail_on_data_loss else "skip")
    stretches = checked(starts, ends, bounds, losses)
    return cut(cluster, stretches, source)


def checked(
    starts: Positions, ends: Positions, bounds: Mapping[MessageQueue, Bounds], losses: Losses
) -> list[Stretch]:
    """The stretches between starts and ends, as far as they are there; what is not is a loss."""
    found, lost = [], []
    for queue, end in sorted(ends.items()):
        start = starts[queue]
        least, last = bounds[queue].least, bounds[queue].end
        if start >= end:
            continue
        if start < least:
            why = f"removed at the broker, where the queue begins at {least:,}"
            lost.append((queue, start, min(least, end), why))
            start = min(least, end)
        if end > last:
            why = f"the queue ends at {last:,}"
            lost.append((queue, max(start, last), end, why))
            end = max(start, last)
        found.append(Stretch(queue, start, end))
    losses.note(lost)
    return found


def cut(
    cluster: Cluster, stretches: Iterable[Stretch], source: SourceOptions
) -> list[tuple[Share, ...]]:
    """The stretches as the shares of tasks."""
    groups = planning.plan(
        stretches,
        at_least=source.min_partitions,
        at_most_each=source.max_records_per_partition,
    )
    queues = {one.queue for group in groups for one in group}
    wire = {queue: cluster.wire(queue) for queue in queues}
    addresses = {queue.broker: cluster.addresses(queue.broker) for queue in queues}
    return [planning.shares(group, wire, addresses) for group in groups]
