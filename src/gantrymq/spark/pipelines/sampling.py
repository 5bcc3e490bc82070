"""The source of `lag`: looks at queues and groups, one micro-batch each, at steady times.

A look has a row for each queue of each topic, and one for each queue of each group. What could not
be asked is a row as well, which says why: a gap in a plot is then no riddle. Which look it is, is
the offset of the stream; a look that is repeated after a crash is a look at that later time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gantrymq.client.admin import Admin
from gantrymq.errors import ConfigError, GantryError
from gantrymq.settings import seconds
from gantrymq.spark.options import client_arguments, parse
from gantrymq.spark.reading import freeze
from gantrymq.spark.schema import arrow_schema, plain_schema

NAME: Final = "gantry_samples"
SCHEMA: Final = plain_schema(
    "sample bigint, at timestamp, topic string, broker string, queue_id int, min_offset bigint,"
    " max_offset bigint, group string, group_offset bigint, lag bigint, seconds double,"
    " in_flight bigint, why string"
)
_OWN: Final = ("topics", "groups", "samples", "every")


class SamplesDataSource(DataSource):
    """`format("gantry_samples")`, for streaming queries that read.

    Options are those of clients, and `topics`, `groups`, `samples`, `every`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        told = {name.lower(): str(text) for name, text in options.items()}
        own = {str(name): told.pop(name) for name in _OWN if name in told}
        parse(told)
        self._client = client_arguments(told)
        self._topics, self._groups = (_list(own.get(name, "")) for name in ("topics", "groups"))
        count = own.get("samples") or "30"
        if not count.isdecimal() or int(count) < 1:
            raise ConfigError(f"option samples: {count!r} is no number of looks")
        self._count = int(count)
        try:
            self._every = seconds(own.get("every") or "2s")
        except ValueError as error:
            raise ConfigError(f"option every: {error}") from error

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """A row for each queue, and for each queue of a group."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Who looks."""
        look = Look(self._client, self._topics, self._groups)
        return Samples(look, count=self._count, every=self._every)


class Look:
    """One look at a cluster."""

    def __init__(
        self, client: dict[str, str], topics: tuple[str, ...], groups: tuple[str, ...]
    ) -> None:
        self._client = client
        self._topics = topics
        self._groups = groups

    def rows(self) -> Iterator[dict[str, Any]]:
        """What there is to see now."""
        told: Any = self._client
        with Admin(**told) as admin:
            yield from self._of_topics(admin)
            yield from self._of_groups(admin)

    def _of_topics(self, admin: Admin) -> Iterator[dict[str, Any]]:
        try:
            topics = self._topics or admin.list_topics()
        except GantryError as error:
            yield {"why": f"which topics there are: {error}"}
            return
        for topic in topics:
            try:
                status = admin.topic_status(topic)
            except GantryError as error:
                yield {"topic": topic, "why": str(error)}
                continue
            yield from (_missing(broker, error, topic=topic)
                        for broker, error in status.failures.items())  # fmt: skip
            for state in status.queues:
                yield {
                    "topic": topic, "broker": state.queue.broker, "queue_id": state.queue.queue_id,
                    "min_offset": state.min_offset, "max_offset": state.max_offset,
                }  # fmt: skip

    def _of_groups(self, admin: Admin) -> Iterator[dict[str, Any]]:
        try:
            groups = self._groups or _groups_of(admin)
        except GantryError as error:
            yield {"why": f"which groups there are: {error}"}
            return
        for group in groups:
            try:
                found = admin.group_lag(group)
            except GantryError as error:
                yield {"group": group, "why": str(error)}
                continue
            yield from (_missing(broker, error, group=group)
                        for broker, error in found.failures.items())  # fmt: skip
            if found.why:  # that there is nothing to see
                yield {"group": group, "why": found.why}
            for lag in found.queues:
                topic, broker, queue_id = lag.queue
                yield {
                    "topic": topic, "broker": broker, "queue_id": queue_id, "group": group,
                    "min_offset": lag.min_offset, "max_offset": lag.max_offset,
                    "group_offset": lag.offset, "lag": lag.messages, "seconds": lag.seconds,
                    "in_flight": lag.in_flight,
                }  # fmt: skip


def _groups_of(admin: Admin) -> list[str]:
    return sorted({group for groups in admin.list_groups().answers.values() for group in groups})


def _missing(broker: str, error: GantryError, **what: str) -> dict[str, Any]:
    return what | {"broker": broker, "why": str(error)}


class Number(InputPartition):
    """Which look."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Samples(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A look now and then; a run that is to end takes so many."""

    def __init__(self, look: Look, *, count: int, every: float) -> None:
        self._look = look
        self._count = count
        self._every = every
        self._taken = 0
        self._due: float | None = None
        self._ends = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """None yet."""
        return {"sample": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One look is all that there ever is."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on end after so many looks."""
        self._ends = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The number of the next look, when its time has come."""
        if self._ends and self._taken >= self._count:
            return start
        now = time.monotonic()
        due = self._due if self._due is not None else now
        time.sleep(max(0.0, due - now))
        self._due = max(due + self._every, time.monotonic())
        self._taken += 1
        return {"sample": int(start["sample"]) + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        """One task, which looks."""
        return [Number(int(end["sample"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What it sees."""
        freeze()
        if isinstance(partition, Number):
            seen = {"sample": partition.number, "at": datetime.now(UTC)}
            rows = [seen | row for row in self._look.rows()]
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept anywhere but in the checkpoint."""

    def stop(self) -> None:
        """Nothing is held open."""


def _list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
