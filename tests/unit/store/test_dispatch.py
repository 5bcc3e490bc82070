from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gantrymq.errors import CorruptRecord
from gantrymq.rules.delay import DelayLevels
from gantrymq.rules.filtering import tag_code
from gantrymq.store.dispatch import SCHEDULE_TOPIC, Dispatcher, Gap
from gantrymq.store.queue_table import QueueTable, Slot
from gantrymq.store.shapes import IndexHits
from gantrymq.store.steps import Steps
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire import properties
from gantrymq.wire.flags import Transaction
from gantrymq.wire.record import StoredMessage
from tests.unit.store.plain import BLANK, PlainQueue, message

Put = tuple[tuple[str, ...], str | None, str, int, int]


class KeptIndex:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.max_log_offset = -1
        self.max_store_ms = 0
        self.size = 0
        self.found: list[Put] = []

    def put(
        self, keys: Sequence[str], unique_key: str | None, topic: str, log_offset: int,
        store_ms: int,
    ) -> None:  # fmt: skip
        self.found.append((tuple(keys), unique_key, topic, log_offset, store_ms))

    def put_unique(self, key: str, topic: str, log_offset: int, store_ms: int) -> None:
        self.put((), key, topic, log_offset, store_ms)

    def search(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int
    ) -> Steps[IndexHits]:
        raise NotImplementedError

    def recover(self, trusted_ms: int) -> int | None: ...
    def correct_min(self, log_start: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Bed:
    def __init__(self) -> None:
        disk = FaultyDisk()
        self.queues = QueueTable(
            disk, Path("/q"), lambda path: PlainQueue(disk, path, lambda at: at)
        )
        self.index = KeptIndex()
        self.dispatcher = Dispatcher(self.queues, self.index, DelayLevels((1, 5, 10)))
        self.seen: list[tuple[object, ...]] = []
        self.dispatcher.arrived = lambda *facts: self.seen.append(facts)
        self.end = 0

    def made(self, offset: int, raw: bytes = b"", sys_flag: int = 0) -> StoredMessage:
        found = StoredMessage(
            "T", b"", raw, queue_offset=offset, log_offset=self.end, size=100, sys_flag=sys_flag,
            store_ms=1000,
        )  # fmt: skip
        self.end += 100
        return found

    @property
    def slot(self) -> Slot:
        return self.queues.obtain("T", 0)

    def entries(self) -> list[tuple[int, int, int]]:
        return list(self.slot.queue.entries(self.slot.queue.min_offset, 1000))


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_a_new_message_gets_its_entries_and_is_announced(bed: Bed) -> None:
    raw = properties.encode({"TAGS": "a", "KEYS": "k1 k2  k3", "UNIQ_KEY": "U"})
    bed.dispatcher.dispatch(bed.slot, bed.made(0, raw))
    assert bed.entries() == [(0, 100, tag_code("a"))]
    assert bed.index.found == [(("k1", "k2", "k3"), "U", "T", 0, 1000)]
    assert bed.seen == [("T", 0, 0, tag_code("a"), 1000, raw)]


@pytest.mark.parametrize(
    ("state", "in_queue", "in_index"),
    [
        (Transaction.NONE, True, True),
        (Transaction.PREPARED, False, True),
        (Transaction.COMMIT, True, True),
        (Transaction.ROLLBACK, False, False),
    ],
)
def test_what_a_transaction_is_decides_where_it_shows(
    bed: Bed, state: Transaction, in_queue: bool, in_index: bool
) -> None:
    raw = properties.encode({"KEYS": "k"})
    bed.dispatcher.dispatch(bed.slot, bed.made(0, raw, state))
    assert (len(bed.entries()), len(bed.seen)) == (in_queue, in_queue)
    bed.dispatcher.again(bed.made(1, raw, state), "filled")
    assert len(bed.entries()) == 2 * in_queue
    assert len(bed.index.found) == 2 * in_index


def test_a_message_without_keys_is_not_indexed(bed: Bed) -> None:
    bed.dispatcher.dispatch(bed.slot, bed.made(0, properties.encode({"TAGS": "a"})))
    assert bed.index.found == []


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        (b"", None),
        (b"A\x01b\x02", None),
        (b"TAGS\x01x\x02", "x"),
        (b"TAGS\x01x", "x"),  # as RocketMQ 4.9.1 to 5.1 end them
        (b"A\x01b\x02TAGS\x01x\x02C\x01d\x02", "x"),
        (b"TAGS\x01x\x02TAGS\x01y\x02", "y"),
        (b"MYTAGS\x01x\x02", None),
        (b"MYTAGS\x01x\x02TAGS\x01y\x02", "y"),
        (b"TAGS\x01y\x02MYTAGS\x01x\x02", "y"),
        (b"A\x01TAGS\x01x\x02", None),
        (b"TAGS\x01\x02", None),
        (b"TAGS\x01y\x02TAGS\x01\x02", "y"),
        ("TAGS\x01ß\x02".encode(), "ß"),
    ],
)
def test_the_tags_code_is_that_of_the_tag_readers_find(
    bed: Bed, raw: bytes, tag: str | None
) -> None:
    assert properties.find(raw, "TAGS") == tag
    for _ in range(2):  # a code that was seen before comes another way
        assert bed.dispatcher.tags_code(bed.made(0, raw)) == tag_code(tag)


def test_a_cut_off_tag_is_not_taken_for_a_shorter_one(bed: Bed) -> None:
    bed.dispatcher.tags_code(bed.made(0, b"TAGS\x01Tag\x02"))
    assert bed.dispatcher.tags_code(bed.made(0, b"TAGS\x01TagA")) == tag_code("TagA")


def test_many_tags_do_not_grow_without_end(bed: Bed) -> None:
    for number in range(10_050):
        raw = b"TAGS\x01%d\x02" % number
        assert bed.dispatcher.tags_code(bed.made(0, raw)) == tag_code(str(number))
    assert len(bed.dispatcher._codes) < 10_050


@pytest.mark.parametrize(
    ("level", "code"),
    [("1", 2000), ("3", 11_000), ("9", 11_000), ("0", 0), ("-1", 0), ("x", 0), (None, 0)],
)
def test_a_delayed_message_says_when_it_is_due(bed: Bed, level: str | None, code: int) -> None:
    made = bed.made(0, properties.encode({"DELAY": level}))
    made.topic = SCHEDULE_TOPIC
    assert bed.dispatcher.tags_code(made) == code


def test_what_is_there_already_is_passed_over(bed: Bed) -> None:
    made = [bed.made(offset) for offset in range(3)]
    for one in made + made:
        bed.dispatcher.again(one, "refused")
    assert [at for at, _, _ in bed.entries()] == [0, 100, 200]
    assert bed.slot.next_offset == 3


def test_a_gap_is_refused_or_filled(bed: Bed) -> None:
    bed.dispatcher.again(bed.made(0), "refused")
    later = bed.made(3)
    for gaps in ("refused", "before the first"):
        with pytest.raises(Gap, match=r"T\[0\]"):
            bed.dispatcher.again(later, gaps)
    bed.dispatcher.again(later, "filled")
    assert bed.entries() == [(0, 100, 0), BLANK, BLANK, (100, 100, 0)]


def test_an_empty_queue_may_begin_anywhere_if_all_is_read(bed: Bed) -> None:
    first = bed.made(7)
    with pytest.raises(Gap):
        bed.dispatcher.again(first, "refused")
    bed.dispatcher.again(first, "before the first")
    assert (bed.slot.queue.min_offset, bed.slot.queue.max_offset) == (7, 8)


def test_a_topic_made_again_begins_its_queue_anew(bed: Bed) -> None:
    for offset in (0, 1, 2, 0, 1):
        bed.dispatcher.again(bed.made(offset), "refused")
    assert [at for at, _, _ in bed.entries()] == [300, 400]
    assert bed.slot.next_offset == 2


def test_a_number_that_was_taken_is_that_of_a_damaged_record(bed: Bed) -> None:
    for offset in (0, 1, 2):
        bed.dispatcher.again(bed.made(offset), "refused")
    with pytest.raises(CorruptRecord, match="comes after queue offset 2"):
        bed.dispatcher.again(bed.made(1), "filled")
    assert len(bed.entries()) == 3


def test_without_an_index_nothing_is_indexed(bed: Bed) -> None:
    dispatcher = Dispatcher(bed.queues, None)
    made = bed.made(0, message(KEYS="k").property_bytes)
    dispatcher.dispatch(bed.slot, made)
    dispatcher.again(bed.made(1, made.property_bytes), "refused")
    assert len(bed.entries()) == 2
