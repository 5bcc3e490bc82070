"""What the log needs of consume queues and of the key index, however these keep their entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

from gantrymq.store.steps import Steps

Entry: TypeAlias = tuple[int, int, int]
"""Of a consume queue: log offset, size, tags code."""

Boundary: TypeAlias = Literal["lower", "upper"]
"""Which of several messages of one time, and which neighbour of a time that has none."""


class Queue(Protocol):
    """One consume queue: for each queue offset, where the message is.

    Appending, reading and truncating happen on one thread; `sync` may run on another.
    """

    @property
    def min_offset(self) -> int:
        """The first queue offset that can be read."""
        ...

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message gets."""
        ...

    @property
    def max_log_offset(self) -> int:
        """Where the record of its last entry ends in the log; -1 where there is no entry."""
        ...

    @property
    def damaged(self) -> bool:
        """Whether `recover` came upon bytes that are neither an entry nor nothing.

        Either the last ones were being written, or old ones are harmed, and those after them gone.
        """
        ...

    @property
    def size(self) -> int:
        """How many bytes its files take, for reports."""
        ...

    def append(self, log_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Add the entry of `queue_offset`.

        One that is there already (`queue_offset < max_offset`) is passed over. Where
        `queue_offset > max_offset` the gap is filled with RocketMQ's blank entries (0, 2**31 - 1,
        0), and in an empty queue `min_offset` is then `queue_offset`. A gap that cannot be is
        refused with `CorruptRecord`.
        """
        ...

    def entries(self, first: int, count: int) -> Iterable[Entry]:
        """Up to `count` entries from queue offset `first` on, which is within the bounds.

        May end early, at the end of a file.
        """
        ...

    def truncate(self, log_end: int) -> None:
        """Drop the entries of records that end after `log_end`.

        After a crash the entries before that point are sound, and those after it may be anything.
        """
        ...

    def correct_min(self, log_start: int) -> None:
        """Drop, from the front, what points before `log_start`: whole files, else by number.

        Where every entry does, `min_offset` becomes `max_offset`, which stays.
        """
        ...

    def offset_at(self, store_ms: int, boundary: Boundary) -> int:
        """The queue offset of that time, within the bounds (`semantics.md` 1.3)."""
        ...

    def recover(self) -> None:
        """Find the last whole entry after a crash; what follows it is dropped."""
        ...

    @property
    def unsynced(self) -> bool:
        """Whether `sync` has something to do."""
        ...

    def write_out(self) -> None:
        """Write what is held back, because a `sync` of many queues follows; on any thread."""
        ...

    def sync(self) -> None:
        """Return once all entries will survive the machine; nothing where none is new."""
        ...

    def clear(self) -> None:
        """Drop all entries; the next one may have any queue offset, as in a new queue."""
        ...

    def close(self) -> None:
        """Close its files; what was appended stays."""
        ...

    def destroy(self) -> None:
        """Remove its files."""
        ...


class IndexHits(Protocol):
    """What a question to the index found."""

    @property
    def log_offsets(self) -> Sequence[int]:
        """Where messages with that key's hash are, newest first."""
        ...

    @property
    def last_update_ms(self) -> int:
        """The store time of the newest indexed message."""
        ...

    @property
    def last_update_log_offset(self) -> int:
        """Where that message is."""
        ...


class Index(Protocol):
    """Which messages have a key."""

    max_log_offset: int
    """The log offset of the newest message that is in it; -1 where there is none.

    Set back after a crash where the log lost messages that the index has.
    """

    @property
    def max_store_ms(self) -> int:
        """The store time of that message; 0 where there is none."""
        ...

    @property
    def size(self) -> int:
        """How many bytes its files take, for reports."""
        ...

    def put(
        self,
        keys: Sequence[str],
        unique_key: str | None,
        topic: str,
        log_offset: int,
        store_ms: int,
    ) -> None:
        """Add a message; one that is there already (`log_offset < max_log_offset`) is left."""
        ...

    def put_unique(self, key: str, topic: str, log_offset: int, store_ms: int) -> None:
        """What `put` does for a message that has only its unique key."""
        ...

    def search(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int
    ) -> Steps[IndexHits]:
        """The newest messages with the key's hash, within these store times."""
        ...

    def recover(self, trusted_ms: int) -> int | None:
        """Drop, after a crash, the files that were written to after `trusted_ms`.

        Gives the log offset from which messages have to be put again, or None if nothing went.
        """
        ...

    def correct_min(self, log_start: int) -> None:
        """Remove the files that only know of messages before `log_start`, except the newest."""
        ...

    def sync(self) -> None:
        """Return once all entries will survive the machine; nothing where none is new."""
        ...

    def close(self) -> None:
        """Close its files; what was put stays."""
        ...
