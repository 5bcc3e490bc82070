"""Which transactions have ended: the notes in the log, and how much of them is history.

A note is a message in `RMQ_SYS_TRANS_OP_HALF_TOPIC` with the tag `d`; its body lists offsets of the
half queue: `12,15,`. Many transactions share one. How far everything has ended, and been noted, is
kept in a file, and never ahead of what is on the disk; the same two offsets are committed for the
group `CID_RMQ_SYS_TRANS`, where RocketMQ's broker looks for them.

RocketMQ: TransactionalMessageBridge, TransactionalOpBatchService.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.broker.keeping import Keeper
from gantrymq.protocol.base import Int, Long, declared, named
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.offsets import Offsets
    from gantrymq.broker.storing import Storing
    from gantrymq.store.store import Store

FILE: Final = "transactions.json"
_MOST_NOTE: Final = 4096
"""Characters of a note. RocketMQ: transactionOpMsgMaxSize."""
_DONE: Final = properties.encode({properties.TAGS: "d"})


@declared
class KeptTransactions:
    """What is in the file."""

    half_offset: Long = 0
    """Every half message before it has ended."""
    op_offset: Long = 0
    """Every note before it is about those."""
    noted_to: Long = 0
    """Every end before this log offset was noted."""
    checks: dict[Long, Int] = named("checks", default_factory=dict)
    """How often a half message was asked about, by its offset in the queue."""


class _Mark(NamedTuple):
    """How far things are once the log is on the disk up to `noted_to`."""

    noted_to: int
    half_offset: int
    op_offset: int


class Notes:
    """Writes notes, and keeps how far they go."""

    def __init__(
        self,
        *,
        store: Store,
        storing: Storing,
        offsets: Offsets,
        keeper: Keeper,
        clock_ms: Callable[[], int],
    ) -> None:
        self.waiting: list[int] = []
        """The half messages that have ended and are not noted yet."""
        self._store = store
        self._storing = storing
        self._offsets = offsets
        self._keeper = keeper
        self._clock_ms = clock_ms
        self._written: deque[tuple[int, int]] = deque()
        self._marks: deque[_Mark] = deque()
        self._marked = self._safe = _Mark(0, 0, 0)

    # --- writing --------------------------------------------------------------------------------

    def write(self, ip: bytes, port: int) -> int:
        """Note everything that waits; the end of the log, or why it takes nothing."""
        waiting = self.waiting
        while waiting:
            count, body = _note_of(waiting)
            note = StoredMessage(
                HALF_OP_TOPIC,
                body,
                _DONE,
                born_ms=self._clock_ms(),
                born_ip=ip,
                born_port=port,
                store_ip=ip,
                store_port=port,
            )
            appended = self._storing.put(note)
            self._written.append((appended.queue_offset, max(waiting[:count])))
            del waiting[:count]
        return self._store.log_end

    # --- what is kept ---------------------------------------------------------------------------

    def load(self) -> tuple[KeptTransactions, set[int]]:
        """What was kept, and the half messages that were noted since."""
        kept = self._kept()
        queue, ended = self._store.queue(HALF_OP_TOPIC, 0), set[int]()
        if queue is not None:
            for offset, note in self._store.messages(HALF_OP_TOPIC, 0, kept.op_offset):
                listed = [int(word) for word in note.body.split(b",") if word.isdigit()]
                if listed:
                    self._written.append((offset, max(listed)))
                    ended.update(listed)
        self._safe = self._marked = _Mark(kept.noted_to, kept.half_offset, kept.op_offset)
        return kept, ended

    def mark(self, first_open: int | None) -> None:
        """Take note of how far things are, for when the disk has the log up to here."""
        queue = self._store.queue(HALF_TOPIC, 0)
        if self.waiting or queue is None:
            return
        half_offset = queue.max_offset if first_open is None else first_open
        written = self._written
        while written and written[0][1] < half_offset:
            written.popleft()
        ops = self._store.queue(HALF_OP_TOPIC, 0)
        op_offset = written[0][0] if written else 0 if ops is None else ops.max_offset
        mark = _Mark(self._store.log_end, half_offset, op_offset)
        if mark[1:] != self._marked[1:] or (first_open is not None and mark != self._marked):
            self._marked = mark
            self._marks.append(mark)

    def keep(self, checks: Mapping[int, int], *, asked: bool) -> None:
        """Have written how far things are on the disk, if that changed or somebody was `asked`."""
        marks, safe, flushed_to = self._marks, self._safe, self._store.flushed_to
        while marks and marks[0].noted_to <= flushed_to:
            safe = marks.popleft()
        if safe == self._safe and not asked:
            return
        self._safe = safe
        self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, safe.half_offset)
        self._offsets.commit(TRANSACTION_GROUP, HALF_OP_TOPIC, 0, safe.op_offset)
        kept = KeptTransactions(
            half_offset=safe.half_offset,
            op_offset=safe.op_offset,
            noted_to=safe.noted_to,
            checks=dict(checks),
        )
        self._keeper.keep(FILE, lambda: shape(KeptTransactions).write(kept))

    def _kept(self) -> KeptTransactions:
        """What the file says, or RocketMQ's own offsets where its broker has run since."""
        tree = self._keeper.load(FILE)
        kept: KeptTransactions = (
            KeptTransactions() if tree is None else shape(KeptTransactions).read(tree)
        )
        theirs = self._offsets.of(TRANSACTION_GROUP, HALF_TOPIC).get(0, 0)
        if theirs > kept.half_offset:
            kept.half_offset = theirs
            kept.op_offset = self._offsets.of(TRANSACTION_GROUP, HALF_OP_TOPIC).get(0, 0)
        return kept


def _note_of(offsets: list[int]) -> tuple[int, bytes]:
    """The body of a note about the first of these, and about how many it is."""
    words: list[str] = []
    size = 0
    for offset in offsets:
        word = f"{offset},"
        size += len(word)
        if words and size > _MOST_NOTE:
            break
        words.append(word)
    return len(words), "".join(words).encode()
