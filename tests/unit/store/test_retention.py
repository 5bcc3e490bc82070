from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.errors import StoreFull
from gantrymq.store.config import RetentionConfig, SpaceConfig
from gantrymq.store.disk import Usage
from gantrymq.store.retention import Limits
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire.record import iterate
from tests.unit.store.plain import ROOT, Bench

HOUR = 3_600_000
KEEP = RetentionConfig(time=72 * 3600.0)


class SomeUsed(FaultyDisk):
    """A disk that says how full it is."""

    part = 0.1
    total = 100 * 2**30

    def usage(self, path: Path) -> Usage:
        return Usage(self.total, int(self.total * (1 - self.part)))


def files(bench: Bench) -> list[int]:
    return [int(entry.name) // 4096 for entry in bench.disk.entries(ROOT / "commitlog")]


def aged(
    *, retention: RetentionConfig = KEEP, space: SpaceConfig | None = None, count: int = 5
) -> tuple[Bench, SomeUsed]:
    """Files of four messages each, an hour apart, all on the disk."""
    disk = SomeUsed()
    bench = Bench(disk, retention=retention, space=space or SpaceConfig(ample=0))
    for number in range(4 * count):
        bench.put(body=b"%02d" % number * 450)
        if number % 4 == 3:
            bench.age(HOUR)
    bench.store.flush()
    assert files(bench) == list(range(count))
    return bench, disk


def test_nothing_goes_before_its_time() -> None:
    bench, _ = aged()
    bench.age(60 * HOUR)
    bench.store.clean()
    assert files(bench) == [0, 1, 2, 3, 4]


def test_files_go_when_their_newest_message_is_past_its_time() -> None:
    bench, _ = aged()
    newest_of_second = bench.store.log.store_time(2 * 4096) - HOUR
    bench.age(newest_of_second + HOUR + 72 * HOUR - bench.now_ms)
    bench.store.clean()
    assert files(bench) == [2, 3, 4]
    queue = bench.store.queue("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (8, 20)
    assert bench.store.log_start == 2 * 4096


def test_the_file_that_is_written_to_never_goes() -> None:
    bench, _ = aged()
    bench.age(10_000 * HOUR)
    bench.store.clean()
    assert files(bench) == [4]
    assert bench.put() == 20


def test_what_is_not_on_the_disk_yet_stays() -> None:
    bench, disk = aged()
    disk.sync_fails = True
    bench.put(body=b"x" * 2000)
    bench.put(body=b"x" * 2000)
    bench.store.flush()
    bench.age(10_000 * HOUR)
    bench.store.clean()
    assert files(bench) == [4, 5, 6]


def test_no_more_files_go_in_one_round_than_set() -> None:
    bench, _ = aged(retention=RetentionConfig(time=1.0, batch=2))
    bench.age(10 * HOUR)
    bench.store.clean()
    assert files(bench) == [2, 3, 4]
    bench.store.clean()
    assert files(bench) == [4]


def test_time_zero_keeps_for_ever() -> None:
    bench, _ = aged(retention=RetentionConfig(time=0.0))
    bench.age(10**6 * HOUR)
    bench.store.clean()
    assert len(files(bench)) == 5


@pytest.mark.parametrize(("hour", "left"), [(3, 5), (4, 1), (5, 5), (22, 1)])
def test_only_in_the_set_hours(hour: int, left: int) -> None:
    bench, _ = aged(retention=RetentionConfig(time=1.0, hours=(4, 22)))
    bench.age(10 * HOUR)
    bench.hour = hour
    bench.store.clean()
    assert len(files(bench)) == left


def test_the_set_size_is_kept_at_any_hour() -> None:
    bench, _ = aged(retention=RetentionConfig(time=0.0, size=2 * 4096, hours=(4,)))
    bench.store.clean()
    assert files(bench) == [3, 4]


@pytest.mark.parametrize(
    ("part", "left"),
    [(0.75, 5), (0.76, 1), (0.86, 1)],
)
def test_a_filling_disk_takes_what_is_past_its_time_at_any_hour(part: float, left: int) -> None:
    bench, disk = aged(retention=RetentionConfig(time=1.0, hours=(4,)))
    bench.age(10 * HOUR)
    disk.part = part
    bench.store.clean()
    assert len(files(bench)) == left


@pytest.mark.parametrize(
    ("part", "early", "left"), [(0.85, True, 5), (0.86, True, 1), (0.86, False, 5)]
)
def test_a_fuller_disk_takes_the_oldest_before_their_time(
    part: float, early: bool, left: int
) -> None:
    bench, disk = aged(space=SpaceConfig(ample=0, clean_early=early))
    disk.part = part
    bench.store.clean()
    assert len(files(bench)) == left


def test_a_full_disk_refuses_and_says_the_numbers_and_goes_on_when_there_is_room() -> None:
    bench, disk = aged(space=SpaceConfig(ample=0, clean_early=False))
    disk.part = 0.931
    bench.store.clean()
    with pytest.raises(StoreFull) as refused:
        bench.put()
    assert str(refused.value) == (
        "the disk under /store is 93.1% full (6.9 GiB of 100.0 GiB free); from 90% on nothing is"
        " stored. Free 3.1 GiB: the commit log takes 0.0 GiB in 5 files; most messages have the"
        " topics T 20. Shorten retention.time, set retention.size, or remove what else is there"
    )
    assert bench.store.refusal == str(refused.value)
    bench.store.clean()
    assert bench.said == [str(refused.value)]
    assert bench.store.read("T", 0, 0).count == 20
    disk.part = 0.5
    bench.store.clean()
    assert bench.put() == 20
    assert bench.said[1:] == ["the disk has room again; messages are stored again"]


def test_with_ample_room_no_part_of_a_disk_is_too_much() -> None:
    bench, disk = aged(space=SpaceConfig())
    disk.part = 0.95  # 5 GiB are left
    bench.store.clean()
    assert bench.put() == 20
    assert len(files(bench)) == 6 - 1
    disk.part = 0.97
    bench.store.clean()
    with pytest.raises(StoreFull, match=r"Free 1\.0 GiB"):
        bench.put()


def test_a_store_that_is_opened_on_a_full_disk_refuses_at_once() -> None:
    bench, disk = aged(space=SpaceConfig(ample=0, clean_early=False))
    disk.part = 0.95
    bench.reopen()
    with pytest.raises(StoreFull, match=r"95\.0% full"):
        bench.put()


def test_a_disk_that_fills_up_between_looks_is_an_error_with_the_place() -> None:
    disk = FaultyDisk(capacity=400_000)
    bench = Bench(disk, space=SpaceConfig(ample=0, clean_early=False, refuse=1.0))
    with pytest.raises(StoreFull, match=r"no room for the commit log in /store/commitlog"):
        while True:
            bench.put(body=b"x" * 3900)
    kept = bench.bodies()
    disk.capacity += 4096
    bench.put(body=b"more")
    assert bench.bodies() == [*kept, b"more"]


def test_who_reads_is_not_disturbed_and_others_go_on() -> None:
    bench, _ = aged()
    held = bench.store.read("T", 0, 0, max_messages=4).pieces
    bench.age(10_000 * HOUR)
    bench.store.clean()
    assert files(bench) == [4]
    assert [one.body[:2] for piece in held for one in iterate(bytes(piece))] == [
        b"00", b"01", b"02", b"03",
    ]  # fmt: skip
    assert bench.store.read("T", 0, 0).next_offset == 16


def test_what_went_stays_away_after_a_crash() -> None:
    bench, _ = aged()
    bench.store.checkpoint()
    bench.age(10_000 * HOUR)
    bench.store.clean()
    disk = bench.disk.after_kill()
    bench.reopen(disk)
    assert bench.store.log_start == 4 * 4096
    queue = bench.store.queue("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (16, 20)


def two_topics() -> Bench:
    bench = Bench(SomeUsed())
    for number in range(40):
        bench.age(1000)
        bench.put("AB"[number % 2], body=b"%02d" % number * 50)
    return bench


def bounds(bench: Bench, topic: str) -> tuple[int, int]:
    queue = bench.store.queue(topic, 0)
    assert queue is not None
    return queue.min_offset, queue.max_offset


def test_a_topic_with_a_time_of_its_own_begins_later_and_others_do_not() -> None:
    bench = two_topics()
    bench.store.limits["A"] = Limits(seconds=10.5)
    bench.store.clean()
    assert bounds(bench, "A") == (15, 20)
    assert bounds(bench, "B") == (0, 20)
    bench.age(10**6)
    bench.store.clean()
    assert bounds(bench, "A") == (20, 20)
    assert bench.put("A") == 20


def test_a_topic_with_a_size_of_its_own_keeps_about_that_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gantrymq.store.retention._STRETCH", 2)
    bench = two_topics()
    size = bench.store.read("A", 0, 0, max_messages=1).size
    bench.store.limits["A"] = Limits(size=5 * size)
    bench.store.clean()
    assert bounds(bench, "A") == (14, 20)  # six: counted by twos, and not less than set
    assert bounds(bench, "B") == (0, 20)
    for _ in range(4):
        bench.put("A", body=b"x" * 100)
    bench.store.clean()
    assert bounds(bench, "A") == (18, 24)
    bench.store.clean()
    assert bounds(bench, "A") == (18, 24)


def test_a_topic_below_its_size_keeps_all_and_one_that_began_anew_too() -> None:
    bench = two_topics()
    bench.store.limits["A"] = Limits(size=10**6)
    bench.store.clean()
    assert bounds(bench, "A") == (0, 20)
    bench.store.delete_topic("A")
    bench.put("A")
    bench.store.clean()
    assert bounds(bench, "A") == (0, 1)


def test_a_clock_that_jumps_ahead_removes_nothing_for_a_day() -> None:
    bench, _ = aged()
    bench.now_ms += 10_000 * HOUR
    bench.store.clean()
    assert "the clock went ahead by 36000000 s at once" in bench.said[0]
    bench.age(23 * HOUR)
    bench.store.clean()
    assert files(bench) == [0, 1, 2, 3, 4]
    bench.age(HOUR)
    bench.store.clean()
    assert files(bench) == [4]


def test_tick_looks_at_the_time_between_rounds() -> None:
    bench, _ = aged(retention=RetentionConfig(time=72 * 3600.0, interval=10.0))
    bench.age(bench.store.log.store_time(4096) + 72 * HOUR - 5000 - bench.now_ms)
    bench.store.clean()
    bench.age(9900)
    bench.store.tick()
    assert files(bench) == [0, 1, 2, 3, 4]
    bench.age(100)
    bench.store.tick()
    assert files(bench) == [1, 2, 3, 4]
