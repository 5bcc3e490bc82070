"""Joins the small files of an archive's hours into few large ones.

Each run of the archive adds files to the hours it meets. An hour that is over is rewritten in the
order of its queues and offsets, and the log puts the new files in the place of the old ones. A
compaction that dies is carried out, or had no effect. Who reads an hour in the moment of the change
may see a message twice: read hours that are compacted, or look at `queue_offset`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from gantrymq.errors import StoreError
from gantrymq.spark.pipelines.archive_log import STAGING, ArchiveLog, NewFile
from gantrymq.spark.pipelines.archiving import FILE_BYTES, OpenFile

ORDER: Final = [("broker", "ascending"), ("queue_id", "ascending"), ("queue_offset", "ascending")]
GRACE: Final = timedelta(minutes=10)
"""How long after its end an hour may still get messages."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of an hour's files."""

    hour: str
    rows: int
    before: int
    after: int


def compact(
    root: Path, *, before: datetime | None = None, file_bytes: int = FILE_BYTES
) -> Iterator[Compacted]:
    """Compact every hour that ended before that time, and has two files or more to join."""
    end = (before or datetime.now(UTC) - GRACE).astimezone(UTC)
    for place in sorted(root.glob("topic=*/date=*/hour=*")):
        if _end_of(place) <= end:
            for group in list(_groups(place, file_bytes)):
                yield _join(root, place, group)


def _groups(place: Path, file_bytes: int) -> Iterator[list[Path]]:
    """Files to join: together no more than a full one, which stays as it is."""
    group: list[Path] = []
    size = 0
    for path in sorted(place.glob("*.parquet")):
        length = path.stat().st_size
        if length >= file_bytes // 2:
            continue
        if size + length > file_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(path)
        size += length
    if len(group) > 1:
        yield group


def _join(root: Path, place: Path, group: list[Path]) -> Compacted:
    log = ArchiveLog(root)
    staging = f"{STAGING}/compact-{uuid4().hex}"
    hour = str(place.relative_to(root))
    try:
        table = pa.concat_tables([pq.ParquetFile(path).read() for path in group])
        new = _write(root, staging, hour, table.sort_by(ORDER))
        old = tuple(str(path.relative_to(root)) for path in group)
        with log.changing() as head:
            lost = [path for path in old if not (root / path).exists()]
            if lost:
                raise StoreError(f"{lost[0]} was removed meanwhile: does another compaction run?")
            entry = replace(
                head, kind="compact", query="", batch=-1, rows=new.rows, add=(new,), remove=old,
                starts={}, ends={},
            )  # fmt: skip
            log.append(head, entry)
    finally:
        shutil.rmtree(root / staging, ignore_errors=True)
    return Compacted(hour, new.rows, len(group), 1)


def _write(root: Path, staging: str, hour: str, table: pa.Table) -> NewFile:
    name = uuid4().hex
    path = f"{hour}/compact-{name}.parquet"
    file = OpenFile(root, f"{staging}/{name}.parquet", path, table.schema)
    try:
        file.write(table)
        return file.close()
    except BaseException:
        file.discard()
        raise


def _end_of(place: Path) -> datetime:
    date, hour = (part.partition("=")[2] for part in place.parts[-2:])
    return datetime.fromisoformat(f"{date}T{hour}:00:00+00:00") + timedelta(hours=1)
