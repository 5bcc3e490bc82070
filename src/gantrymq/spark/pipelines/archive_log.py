"""The log of an archive: which files belong to it, and which offsets of which queues they hold.

Each change of the archive is one entry, a file `_log/00000042.json`. It names the files to put in
their places and those to remove, and repeats what is needed to go on: the last batch of each query,
and the offsets that are archived. An entry is written whole and synced before any file is moved,
and carried out again by whoever comes next if its writer died meanwhile: moving a file that was
moved, and removing one that is gone, change nothing. So a batch is in the archive once or not at
all, whenever its writer dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gantrymq.errors import StateError, StoreError
from gantrymq.model import MessageQueue
from gantrymq.spark.offsets import from_json, to_json

LOG: Final = "_log"
STAGING: Final = "_staging"


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a queue; the end is exclusive."""

    queue: MessageQueue
    start: int
    end: int

    def __str__(self) -> str:
        topic, broker, queue_id = self.queue
        return f"{topic}[{broker}:{queue_id}] {self.start:,} to {self.end:,}"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that waits to be put in its place; both paths are below the archive."""

    staged: str
    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change, and the state after it."""

    number: int = 0
    kind: str = "none"
    query: str = ""
    batch: int = -1
    rows: int = 0
    add: tuple[NewFile, ...] = ()
    remove: tuple[str, ...] = ()
    starts: Mapping[str, Any] = field(default_factory=dict)
    """Where this batch's offsets begin in each queue, in the nested form of offsets."""
    ends: Mapping[str, Any] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each query."""
    first: Mapping[str, Any] = field(default_factory=dict)
    """The first archived offset of each queue."""
    next: Mapping[str, Any] = field(default_factory=dict)
    """The offset behind the last archived one of each queue."""


class ArchiveLog:
    """The log of the archive in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = root / LOG

    def head(self) -> Entry:
        """The last entry."""
        number = max(self._numbers(), default=0)
        return self.entry(number) if number else Entry()

    def entries(self) -> Iterator[Entry]:
        """Every entry, the oldest first."""
        return (self.entry(number) for number in sorted(self._numbers()))

    def entry(self, number: int) -> Entry:
        """That entry."""
        path = self._path(number)
        try:
            tree = json.loads(path.read_bytes())
            return Entry(**tree | {"add": tuple(NewFile(**one) for one in tree["add"])})
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{path} is no entry of an archive's log: {error!r}") from error

    @contextmanager
    def changing(self) -> Iterator[Entry]:
        """The last entry, carried out; nobody else changes the archive within the block."""
        self._log.mkdir(parents=True, exist_ok=True)
        with (self._log / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            head = self.head()
            if head.number and not self._done(head).exists():
                self._carry_out(head)
            yield head

    def append(self, head: Entry, entry: Entry) -> Entry:
        """Write the entry that follows `head`, and carry it out; within `changing`."""
        entry = replace(entry, number=head.number + 1)
        path = self._path(entry.number)
        beside = path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump(asdict(entry), file)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
        _sync(self._log)
        self._carry_out(entry)
        return entry

    def batch(
        self, query: str, batch: int, files: Iterable[NewFile], ranges: Iterable[Range]
    ) -> Entry | None:
        """Take in the files of a batch; None where that was done before."""
        found = tuple(files)
        with self.changing() as head:
            entry = None
            if head.batches.get(query, -1) < batch:
                entry = self.append(head, _batch_entry(head, query, batch, found, ranges))
            shutil.rmtree(self.root / STAGING / query, ignore_errors=True)
        return entry

    def _carry_out(self, entry: Entry) -> None:
        touched = set()
        for file in entry.add:
            target = self.root / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.root / file.staged).rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise StoreError(
                        f"{target}, with {file.rows:,} rows, is gone: entry {entry.number} of"
                        f" {self._log} has it"
                    ) from None
            touched.add(target.parent)
        for path in entry.remove:
            (self.root / path).unlink(missing_ok=True)
        for directory in touched:
            _sync(directory)
        self._done(entry).touch()  # from now on its files are their owner's, who may remove them

    def _numbers(self) -> list[int]:
        return [int(path.stem) for path in self._log.glob("*.json") if path.stem.isdecimal()]

    def _done(self, entry: Entry) -> Path:
        return self._path(entry.number).with_suffix(".done")

    def _path(self, number: int) -> Path:
        return self._log / f"{number:08d}.json"


def _batch_entry(
    head: Entry, query: str, batch: int, files: tuple[NewFile, ...], ranges: Iterable[Range]
) -> Entry:
    whole = merged(ranges)
    first, then = from_json(head.first, "first"), from_json(head.next, "next")
    doubled = [
        one
        for one in whole
        if first.get(one.queue, 0) < one.end and one.start < then.get(one.queue, 0)
    ]
    if doubled:
        raise StateError(
            f"batch {batch} of query {query} would archive twice {'; '.join(map(str, doubled))}:"
            f" a query that began anew has to go on with"
            f" startingOffsets={json.dumps(head.next)}, or to write into another directory"
        )
    starts = {one.queue: one.start for one in whole}
    ends = {one.queue: one.end for one in whole}
    return Entry(
        kind="batch",
        query=query,
        batch=batch,
        rows=sum(file.rows for file in files),
        add=files,
        starts=to_json(starts),
        ends=to_json(ends),
        batches={**head.batches, query: batch},
        first=to_json({q: min(o, first.get(q, o)) for q, o in (first | starts).items()}),
        next=to_json(then | {q: max(o, then.get(q, o)) for q, o in ends.items()}),
    )


def merged(ranges: Iterable[Range]) -> list[Range]:
    """One range for each queue, from the first offset to the last."""
    found: dict[MessageQueue, Range] = {}
    for one in ranges:
        held = found.get(one.queue, one)
        found[one.queue] = Range(one.queue, min(held.start, one.start), max(held.end, one.end))
    return list(found.values())


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
