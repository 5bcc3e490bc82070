"""The files of a store read as they lie, without a broker: what is in the log, and is it whole.

Nothing is locked and nothing is written, so a broker may run meanwhile: then the newest entries of
queues may still be in its memory, and the walk ends where the log ends now. The files of Apache's
brokers are the same, except for queues kept in RocksDB, which are passed over.
"""

from __future__ import annotations

import mmap
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from gantrymq.errors import ConfigError, GantryError
from gantrymq.store.queue_entries import BLANK_SIZE, ENTRY, ENTRY_SIZE
from gantrymq.wire.record import MAGIC_BLANK, StoredMessage, decode

LOG: Final = "commitlog"
QUEUES: Final = "consumequeue"
_HEAD: Final = 8
_OPEN: Final = 64
_SHOWN: Final = 100
_TRANSACTION_BITS: Final = 0xC
_WAITING: Final = frozenset({0x4, 0xC})
"""Half messages and roll-backs are in no queue of their topic."""


class Problem(NamedTuple):
    """Something that is not as it should be."""

    file: str
    offset: int
    text: str


@dataclass(slots=True)
class Verdict:
    """What a look at a store found."""

    files: int = 0
    messages: int = 0
    start: int = 0
    end: int = 0
    newest_ms: int = 0
    oldest_ms: int = 0
    unqueued: int = 0
    """Messages that no queue file has: lost to readers, or still in a running broker's memory."""
    damaged: int = 0
    problems: list[Problem] = field(default_factory=list)
    """The first hundred."""

    def note(self, file: Path, offset: int, text: str) -> None:
        """One more problem."""
        self.damaged += 1
        if len(self.problems) < _SHOWN:
            self.problems.append(Problem(file.name, offset, text))


def log_files(store: Path) -> list[Path]:
    """The files of the log, in order."""
    found = [path for path in (store / LOG).glob("*") if path.name.isdigit()]
    if not found:
        raise ConfigError(f"{store} is no store: it has no {LOG} with files in it")
    return sorted(found, key=lambda path: int(path.name))


def _is_blank(path: Path) -> bool:
    with path.open("rb") as file:
        return not any(file.read(_HEAD))


def is_running(store: Path) -> bool:
    """Whether the store was not closed in order: a broker runs, or crashed."""
    return (store / "abort").exists()


class Mapped:
    """Files open for reading, as memory; the least used are closed."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, mmap.mmap | None] = OrderedDict()

    def get(self, path: Path) -> mmap.mmap | None:
        """One file; None if it is not there or empty."""
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        while len(self._open) >= _OPEN:
            _, old = self._open.popitem(last=False)
            if old is not None:
                old.close()
        found: mmap.mmap | None = None
        try:
            with path.open("rb") as file:
                found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (FileNotFoundError, ValueError):  # an empty file cannot be mapped
            found = None
        self._open[path] = found
        return found

    def close(self) -> None:
        """Close all."""
        for one in self._open.values():
            if one is not None:
                one.close()
        self._open.clear()


def records(
    store: Path, start: int = 0, tell: Callable[[int], None] | None = None
) -> Iterator[tuple[Path, int, StoredMessage | str]]:
    """Every record of the log from `start` on, or what is wrong where one should be.

    After what is damaged it goes on with the next file.
    """
    files = log_files(store)
    while len(files) > 1 and _is_blank(files[-1]):  # Apache's broker makes the next one in advance
        files.pop()
    for number, path in enumerate(files):
        base, is_last = int(path.name), number == len(files) - 1
        if not is_last and int(files[number + 1].name) <= start:
            continue
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            at = max(0, start - base)
            while at + _HEAD <= len(view):
                size = int.from_bytes(view[at : at + 4], "big", signed=True)
                magic = int.from_bytes(view[at + 4 : at + 8], "big", signed=True)
                if magic == MAGIC_BLANK:
                    break
                if size == 0 and magic == 0:
                    if not is_last:
                        yield path, base + at, "the log is empty here, and goes on in another file"
                    break
                try:
                    message = decode(view, at)
                except GantryError as error:
                    yield path, base + at, f"no whole record: {error}"
                    break
                yield path, base + at, message
                at += message.size
                if tell is not None:
                    tell(message.size)


def verify(store: Path, tell: Callable[[int], None]) -> Verdict:
    """Read the whole log: are records whole, where they say that they are, and in their queues."""
    verdict, files = Verdict(files=len(log_files(store))), Mapped()
    verdict.start = int(log_files(store)[0].name)
    queues = Queues(store, files)
    try:
        for path, offset, found in records(store, tell=tell):
            if isinstance(found, str):
                verdict.note(path, offset, found)
                continue
            verdict.messages += 1
            verdict.end = offset + found.size
            verdict.oldest_ms = verdict.oldest_ms or found.store_ms
            verdict.newest_ms = max(verdict.newest_ms, found.store_ms)
            if found.log_offset != offset:
                verdict.note(path, offset, f"the record says that it is at {found.log_offset}")
            try:
                found.check_crc()
            except GantryError as error:
                verdict.note(path, offset, str(error))
            if (why := queues.why_not(found)) is not None:
                verdict.unqueued += why == Queues.ABSENT
                if why != Queues.ABSENT:
                    verdict.note(path, offset, why)
    finally:
        files.close()
    return verdict


class Queues:
    """The queue files of a store."""

    ABSENT = "no queue has it"

    def __init__(self, store: Path, files: Mapped) -> None:
        self._root = store / QUEUES
        self._files = files
        self._starts: dict[tuple[str, int], list[int]] = {}

    def why_not(self, message: StoredMessage) -> str | None:
        """Why a reader of its queue does not find a message; None if one does."""
        if message.sys_flag & _TRANSACTION_BITS in _WAITING or not self._root.is_dir():
            return None
        place = self._root / message.topic / str(message.queue_id)
        entry = self.entry(place, message.queue_offset)
        if entry is None:
            return self.ABSENT
        log_offset, size = entry
        if (log_offset, size) == (0, 0) or size == BLANK_SIZE:
            return self.ABSENT
        if (log_offset, size) != (message.log_offset, message.size):
            return (
                f"{message.topic}/{message.queue_id} has at {message.queue_offset} the log offset "
                f"{log_offset} ({size} bytes), not this message"
            )
        return None

    def entry(self, place: Path, offset: int) -> tuple[int, int] | None:
        """Log offset and size of an entry of a queue; None where no file has it."""
        at = offset * ENTRY_SIZE
        for base in reversed(self.bases(place)):
            if base <= at:
                view = self._files.get(place / f"{base:020}")
                if view is None or at - base + ENTRY_SIZE > len(view):
                    return None
                log_offset, size, _ = ENTRY.unpack_from(view, at - base)
                return log_offset, size
        return None

    def bases(self, place: Path) -> list[int]:
        """Where the files of a queue begin."""
        key = (place.parent.name, int(place.name) if place.name.isdigit() else -1)
        if key not in self._starts:
            names = [path.name for path in place.glob("*")] if place.is_dir() else []
            self._starts[key] = sorted(int(name) for name in names if name.isdigit())
        return self._starts[key]


def usage(store: Path) -> dict[str, tuple[int, int]]:
    """Bytes and messages of each topic in the log, by reading all of it."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for _, _, found in records(store):
        if isinstance(found, StoredMessage):
            sizes[found.topic] += found.size
            counts[found.topic] += 1
    return {topic: (size, counts[topic]) for topic, size in sizes.most_common()}


def disk_of(path: Path) -> int:
    """The bytes that a directory takes on the disk: holes take none."""
    return sum(
        one.stat().st_blocks * 512 if hasattr(one.stat(), "st_blocks") else one.stat().st_size
        for one in path.rglob("*")
        if one.is_file()
    )
