"""Consume queues against a list, the key index against a dictionary, through crashes."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gantrymq.store.queues import QueueOpener
from gantrymq.store.shapes import Entry
from gantrymq.testing.faulty_disk import FaultyDisk

QUEUE = Path("/store/consumequeue/T/0")
BLANK_SIZE = 2**31 - 1
sizes = st.integers(1, 5000)
codes = st.integers(-(2**63), 2**63 - 1)
seeds = st.integers(0, 2**32).map(Random)


class QueueLikeAList(RuleBasedStateMachine):
    """The log is a list of entries by queue offset, and the queue has to say the same."""

    @initialize(per_file=st.integers(1, 20), first=st.integers(0, 200))
    def begin(self, per_file: int, first: int) -> None:
        self.per_file = per_file
        self.disk = FaultyDisk()
        self.entries: dict[int, Entry] = {}
        self.first = first
        """The queue offset of the first message of a new queue."""
        self.start = self.end = 0
        self.log_end = 1000
        self.log_start = 0
        self.synced_log = 0
        """Everything that ends here or before in the log is in the queue on the disk."""
        self.open()

    def open(self) -> None:
        self.queue = QueueOpener(
            self.disk, int, file_size=20 * self.per_file, open_at_once=2, hold_back=200
        )(QUEUE)

    @rule(count=st.integers(1, 60), size=sizes, code=codes, between=st.integers(0, 1000))
    def append(self, count: int, size: int, code: int, between: int) -> None:
        if self.end == 0:
            self.start = self.end = self.first
        for _ in range(count):
            self.entries[self.end] = self.log_end, size, code
            self.queue.append(self.log_end, size, code, self.end)
            self.end += 1
            self.log_end += size + between

    @rule(gap=st.integers(1, 30), size=sizes, code=codes)
    @precondition(lambda self: self.entries)
    def append_after_a_hole(self, gap: int, size: int, code: int) -> None:
        for at in range(self.end, self.end + gap):
            self.entries[at] = 0, BLANK_SIZE, 0
        self.end += gap
        self.append(1, size, code, 0)

    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """As after a crash, when the log is dispatched from too early a point."""
        found = [at for at in self.entries if self.entries[at][1] != BLANK_SIZE]
        if found:
            first = data.draw(st.sampled_from(found[-30:]))
            for at in found[found.index(first) :]:
                self.queue.append(*self.entries[at], at)

    @rule()
    def sync(self) -> None:
        self.queue.sync()
        self.synced_log = self.log_end

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.open()
        self.queue.correct_min(self.log_start)
        self.forget_blanks_at_the_end()

    def forget_blanks_at_the_end(self) -> None:
        """Without a sync, nobody knows of blanks that are followed by nothing, or of nothing."""
        while self.queue.max_offset < self.end and self.is_blank(self.end - 1):
            self.end -= 1
            self.entries.pop(self.end, None)
        self.start = min(self.start, self.end)

    def is_blank(self, at: int) -> bool:
        return at not in self.entries or self.entries[at][1] == BLANK_SIZE

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.log_end = data.draw(st.integers(self.log_start, self.log_end))
        self.synced_log = min(self.synced_log, self.log_end)
        dropped = [at for at, entry in self.entries.items() if is_after(entry, self.log_end)]
        if dropped:
            self.end = min(dropped)
            self.entries = {at: e for at, e in self.entries.items() if at < self.end}
        self.queue.truncate(self.log_end)

    @rule(data=st.data())
    def correct_min(self, data: st.DataObject) -> None:
        starts = [at for at, size, _ in self.entries.values() if at >= self.log_start]
        self.log_start = data.draw(st.sampled_from([self.log_start, *starts, self.log_end]))
        self.entries = {at: e for at, e in self.entries.items() if e[0] >= self.log_start
                        or (e[1] == BLANK_SIZE and at > self.start)}  # fmt: skip
        while self.entries and self.entries[min(self.entries)][1] == BLANK_SIZE:
            del self.entries[min(self.entries)]
        self.start = min(self.entries, default=self.end)
        self.queue.correct_min(self.log_start)

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.entries = {}
        self.start = self.end = 0
        self.synced_log = self.log_end

    @rule(chance=seeds, killed=st.booleans())
    def crash(self, chance: Random, killed: bool) -> None:
        """What was synced is there; the rest comes again from the log."""
        self.disk = self.disk.after_kill() if killed else self.disk.after_power_cut(chance)
        self.open()
        self.queue.recover()
        sure = [at + size for at, size, _ in self.entries.values() if size != BLANK_SIZE]
        assert self.queue.max_log_offset >= max(
            (end for end in sure if end <= self.synced_log), default=-1
        )
        self.queue.truncate(self.synced_log)
        for at, entry in self.entries.items():
            if is_after(entry, self.synced_log):
                self.queue.append(*entry, at)
        self.queue.correct_min(self.log_start)
        self.queue.sync()
        self.synced_log = self.log_end
        self.forget_blanks_at_the_end()

    @invariant()
    def has_the_same_bounds(self) -> None:
        assert (self.queue.min_offset, self.queue.max_offset) == (self.start, self.end)

    @invariant()
    def has_the_same_entries(self) -> None:
        at = self.start
        while at < self.end:
            part = list(self.queue.entries(at, self.end - at))
            assert part == [self.entries[at + number] for number in range(len(part))]
            assert part
            at += len(part)


def is_after(entry: Entry, log_end: int) -> bool:
    log_offset, size, _ = entry
    return size != BLANK_SIZE and log_offset + size > log_end


TestQueueLikeAList = QueueLikeAList.TestCase
TestQueueLikeAList.settings = settings(max_examples=60, stateful_step_count=25)
