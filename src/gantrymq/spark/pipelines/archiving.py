"""The sink of an archive: messages as Parquet below `topic=/date=/hour=`, each of them once.

Tasks write their files beside the archive; the commit of a batch puts them in their places through
the archive's log. Files whose task or batch did not end are never seen. The archive is a plain
directory of Parquet: whatever reads Parquet reads it, and sees what is in it and nothing twice.

The directory is on a file system of this machine, or mounted on every machine that has tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from gantrymq.errors import ConfigError
from gantrymq.model import MessageQueue
from gantrymq.spark.pipelines.archive_log import STAGING, ArchiveLog, NewFile, Range
from gantrymq.spark.reading import freeze

NAME: Final = "gantry_archive"
NEEDED: Final = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp")
FILE_BYTES: Final = 256 << 20
_HOUR_US: Final = 3_600_000_000
_HELD: Final = 128 << 20
"""Bytes that a task holds back, so that what it writes at once is worth it."""


class ArchiveDataSource(DataSource):
    """`format("gantry_archive")`, for streaming queries that write: options `path`, `fileBytes`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if not options.get("path"):
            raise ConfigError("an archive needs the option path: the directory it is in")
        self._root = Path(options["path"])
        text = str(options.get("fileBytes", FILE_BYTES))
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"option fileBytes: {text!r} is no number of bytes")
        self._file_bytes = int(text)

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Who writes batches."""
        if overwrite:
            raise ConfigError("an archive grows: output mode append, not complete")
        missing = [name for name in NEEDED if name not in schema.names]
        if missing:
            raise ConfigError(f"an archive needs the columns {', '.join(missing)} as well")
        return ArchiveWriter(self._root, self._file_bytes)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task wrote."""

    query: str
    batch: int
    files: tuple[NewFile, ...]
    ranges: tuple[Range, ...]


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Writes batches; travels to the tasks."""

    def __init__(self, root: Path, file_bytes: int) -> None:
        self._root = root
        self._file_bytes = file_bytes

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Write the rows of one task to files that nobody sees yet."""
        freeze()
        context = TaskContext.get()
        assert context is not None
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        batch = int(str(context.getLocalProperty("streaming.sql.batchId")))
        name = f"{query[:8]}-{batch:08d}-{context.partitionId():05d}"
        files = TaskFiles(self._root, f"{STAGING}/{query}", name, self._file_bytes)
        try:
            for record in iterator:
                files.add(record)
            return Staged(query, batch, files.close(), files.ranges())
        except BaseException:
            files.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks have ended: the batch becomes part of the archive."""
        staged = [one for one in messages if isinstance(one, Staged)]
        if staged:
            files = [file for one in staged for file in one.files]
            ranges = [item for one in staged for item in one.ranges]
            ArchiveLog(self._root).batch(staged[0].query, batchId, files, ranges)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was staged is removed by the batch that follows, or was committed after all."""


class TaskFiles:
    """The files of one task: one for each topic and hour, and the next where one is full."""

    def __init__(self, root: Path, staging: str, name: str, file_bytes: int) -> None:
        self._root = root
        self._staging = staging
        self._name = name
        self._file_bytes = file_bytes
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._open: dict[str, OpenFile] = {}
        self._files: list[NewFile] = []
        self._spans: dict[MessageQueue, Range] = {}

    def add(self, record: pa.RecordBatch) -> None:
        """Take rows; they are written when there are enough of them."""
        for one in _spans(record):
            held = self._spans.get(one.queue, one)
            self._spans[one.queue] = Range(
                one.queue, min(held.start, one.start), max(held.end, one.end)
            )
        for place, part in by_place(record):
            self._held.setdefault(place, []).append(part)
            self._held_bytes += part.nbytes
        if self._held_bytes >= _HELD:
            self._write()

    def close(self) -> tuple[NewFile, ...]:
        """Write what is held, and end all files."""
        self._write()
        self._files += [file.close() for file in self._open.values()]
        self._open.clear()
        return tuple(self._files)

    def ranges(self) -> tuple[Range, ...]:
        """What offsets there were."""
        return tuple(self._spans.values())

    def discard(self) -> None:
        """Remove what was written."""
        for file in self._open.values():
            file.discard()
        for done in self._files:
            (self._root / done.staged).unlink(missing_ok=True)

    def _write(self) -> None:
        for place, parts in self._held.items():
            file = self._open.get(place)
            if file is None:
                file = self._open[place] = self._begin(place, parts[0].schema)
            if file.write(pa.Table.from_batches(parts)) >= self._file_bytes:
                self._files.append(self._open.pop(place).close())
        self._held.clear()
        self._held_bytes = 0

    def _begin(self, place: str, schema: pa.Schema) -> OpenFile:
        number = len(self._files) + len(self._open)
        path = f"{place}/{self._name}-{number:04d}.parquet"
        return OpenFile(self._root, f"{self._staging}/{uuid4().hex}.parquet", path, schema)


class OpenFile:
    """A Parquet file that grows."""

    def __init__(self, root: Path, staged: str, path: str, schema: pa.Schema) -> None:
        self._place = root / staged
        self._staged = staged
        self._path = path
        self._rows = 0
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._place.open("wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")

    def write(self, table: pa.Table) -> int:
        """Append rows; how long the file is."""
        self._writer.write_table(table)
        self._rows += table.num_rows
        return self._file.tell()

    def close(self) -> NewFile:
        """End it, on the disk."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return NewFile(self._staged, self._path, self._rows, size)

    def discard(self) -> None:
        """Remove it."""
        self._file.close()
        self._place.unlink(missing_ok=True)


def by_place(record: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic and hour, with their directory; hours are of UTC."""
    if not record.num_rows:
        return
    stored = record.column(record.schema.get_field_index("store_timestamp"))
    hours = stored.cast(pa.int64()).to_numpy() // _HOUR_US
    topics = record.column(record.schema.get_field_index("topic")).dictionary_encode()
    codes = topics.indices.to_numpy()
    rows = record.drop_columns(["topic"])
    pairs, which = np.unique(np.stack([codes, hours]), axis=1, return_inverse=True)
    for number, (code, hour) in enumerate(pairs.T):
        place = place_of(topics.dictionary[int(code)].as_py(), int(hour))
        part = rows if pairs.shape[1] == 1 else rows.filter(pa.array(which.ravel() == number))
        yield place, part


def place_of(topic: str, hour: int) -> str:
    """The directory of a topic's hour, counted from 1970."""
    at = datetime.fromtimestamp(hour * 3600, UTC)
    return f"topic={quote(topic, safe='')}/date={at:%Y-%m-%d}/hour={at:%H}"


def _spans(record: pa.RecordBatch) -> list[Range]:
    table = pa.Table.from_batches([record]).select(list(NEEDED[:4]))
    found = table.group_by(["topic", "broker", "queue_id"]).aggregate([
        ("queue_offset", "min"), ("queue_offset", "max"),
    ])  # fmt: skip
    columns = ("topic", "broker", "queue_id", "queue_offset_min", "queue_offset_max")
    rows = zip(*(found.column(name).to_pylist() for name in columns), strict=True)
    return [Range(MessageQueue(*row[:3]), row[3], row[4] + 1) for row in rows]
