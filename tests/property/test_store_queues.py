"""Consume queues against a list, the key index against a dictionary, through crashes."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gantrymq.store.key_index import MAX_HITS, KeyIndex
from gantrymq.store.queues import QueueOpener
from gantrymq.store.shapes import Boundary, Entry
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire.javahash import java_hash

INDEX = Path("/store/index")
QUEUE = Path("/store/consumequeue/T/0")
BLANK_SIZE = 2**31 - 1
KEYS = ("a", "b", "c", "order-1", "Aa", "BB", "é")
"""Two of them, Aa and BB, have the same hash."""
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


class IndexLikeADictionary(RuleBasedStateMachine):
    """Messages in the order of the log, with their keys: asked for a key, the index knows them."""

    @initialize(slots=st.integers(1, 20), entries=st.integers(2, 40))
    def begin(self, slots: int, entries: int) -> None:
        self.slots, self.entries = slots, entries
        self.disk = FaultyDisk()
        self.messages: list[tuple[int, int, list[str], str | None]] = []
        self.log_end = self.log_start = self.synced_log = 0
        self.now_ms = 1_700_000_000_000
        self.synced_ms = 0
        self.open()

    def open(self) -> None:
        self.index = KeyIndex(
            self.disk, INDEX, clock_ms=lambda: self.now_ms, slots=self.slots, entries=self.entries
        )

    @rule(
        several=st.lists(st.lists(st.sampled_from(KEYS), max_size=3), max_size=30),
        unique=st.sampled_from((*KEYS, None)),
        after_ms=st.integers(-5_000, 10_000),
    )
    def put(self, several: list[list[str]], unique: str | None, after_ms: int) -> None:
        for keys in several:
            self.now_ms += after_ms
            message = self.log_end, self.now_ms, keys, unique
            self.log_end += 100
            if keys or unique is not None:
                self.messages.append(message)
                self.again(message)

    def again(self, message: tuple[int, int, list[str], str | None]) -> None:
        log_offset, store_ms, keys, unique = message
        self.index.put(keys, unique, "T", log_offset, store_ms)

    @rule(back=st.integers(0, 10))
    def put_again(self, back: int) -> None:
        for message in self.messages[-back:]:
            self.again(message)

    @rule()
    def sync(self) -> None:
        self.index.sync()
        self.synced_log, self.synced_ms = self.log_end, self.index.max_store_ms

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.open()

    @rule(data=st.data())
    def correct_min(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.index.correct_min(self.log_start)

    @rule(chance=seeds, killed=st.booleans())
    def crash(self, chance: Random, killed: bool) -> None:
        self.disk = self.disk.after_kill() if killed else self.disk.after_power_cut(chance)
        self.open()
        start = self.index.recover(self.synced_ms)
        first = self.synced_log if start is None else min(start, self.synced_log)
        for message in self.messages:
            if message[0] >= first:
                self.again(message)
        self.sync()

    @invariant()
    def finds_what_has_the_key(self) -> None:
        for key in KEYS:
            hits = self.index.query("T", key, MAX_HITS, 0, 2**62).log_offsets
            known = [
                log_offset
                for log_offset, _, keys, unique in reversed(self.messages)
                if java_hash(key) in {java_hash(other) for other in (*keys, unique or "")}
            ]
            assert hits == known[: len(hits)]
            if len(hits) < MAX_HITS:
                assert all(log_offset < self.log_start for log_offset in known[len(hits) :])


@given(
    times=st.lists(st.integers(0, 50), min_size=1, max_size=80),
    holes=st.sets(st.integers(0, 79)),
    unreadable=st.sets(st.integers(0, 79)),
    first=st.integers(0, 90),
    per_file=st.integers(1, 20),
    asked=st.integers(-1, 51),
)
def test_offsets_by_time_are_those_of_going_through_all(
    times: list[int],
    holes: set[int],
    unreadable: set[int],
    first: int,
    per_file: int,
    asked: int,
) -> None:
    times.sort()
    known = {at: time for at, time in enumerate(times) if at not in holes | unreadable}
    queue = QueueOpener(
        FaultyDisk(), lambda log_offset: known.get(log_offset // 10, -1), file_size=20 * per_file
    )(QUEUE)
    for at in range(len(times)):
        if at not in holes:
            queue.append(at * 10, 10, 0, at)
    queue.sync()
    queue.correct_min(first * 10)
    low, end = queue.min_offset, queue.max_offset
    known = {at: time for at, time in known.items() if low <= at < end}
    later = [at for at, time in known.items() if time >= asked]
    earlier = [at for at, time in known.items() if time <= asked]
    assert queue.offset_at(asked, "lower") == min(later, default=end)
    assert queue.offset_at(asked, "upper") == max(earlier, default=low)


@given(
    times=st.lists(st.integers(0, 50), min_size=1, max_size=80), asked=st.integers(-1, 51),
    boundary=st.sampled_from(("lower", "upper")),
)  # fmt: skip
def test_offsets_by_a_clock_that_jumps_are_at_least_within_the_queue(
    times: list[int], asked: int, boundary: Boundary
) -> None:
    queue = QueueOpener(FaultyDisk(), lambda at: times[at // 10], file_size=200)(QUEUE)
    for at in range(len(times)):
        queue.append(at * 10, 10, 0, at)
    assert 0 <= queue.offset_at(asked, boundary) <= len(times)


few = settings(max_examples=60, stateful_step_count=25)
TestQueueLikeAList = QueueLikeAList.TestCase
TestQueueLikeAList.settings = few
TestIndexLikeADictionary = IndexLikeADictionary.TestCase
TestIndexLikeADictionary.settings = few
