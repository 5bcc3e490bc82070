from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gantrymq.store.commit_log import CommitLog
from gantrymq.store.flush import Flusher, Outcome
from gantrymq.store.segment import Segments
from gantrymq.testing.faulty_disk import FaultyDisk

HERE = Path("/log")
WAIT = 10.0


class Bed:
    """A log and its flusher, with what was told in order."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()
        self.log = CommitLog(Segments(self.disk, HERE, 4096))
        self.now = 0.0
        self.failures: list[str] = []
        self.told: list[tuple[str, Outcome]] = []
        self.flusher = Flusher(
            self.log, interval=60, timeout=5, failed=self.failures.append,
            monotonic=lambda: self.now,
        )  # fmt: skip

    def put(self, size: int = 100) -> int:
        if self.log.end + size + 8 > self.log.limit:
            self.log.roll()
        self.log.put(b"m" * size)
        return self.log.end

    def ask(self, name: str, end: int) -> None:
        self.flusher.durable(end, lambda outcome: self.told.append((name, outcome)))

    def syncs(self) -> list[str]:
        return [step for step in self.disk.history if step.startswith("sync")]


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_one_sync_serves_all_who_wait(bed: Bed) -> None:
    for name in "abc":
        bed.ask(name, bed.put())
    bed.flusher.flush()
    assert bed.told == []  # only the appending thread tells
    bed.flusher.settle()
    assert bed.told == [(name, Outcome.STORED) for name in "abc"]
    assert bed.flusher.syncs == 1
    assert (bed.flusher.flushed_to, bed.flusher.behind, bed.flusher.waiting) == (300, 0, 0)


def test_who_asks_for_what_is_there_already_is_told_at_once(bed: Bed) -> None:
    end = bed.put()
    bed.flusher.flush()
    bed.ask("late", end)
    assert bed.told == [("late", Outcome.STORED)]


def test_only_files_with_something_new_are_synced_and_new_names_too(bed: Bed) -> None:
    bed.put(4000)
    bed.put(4000)
    bed.flusher.flush()
    first, second = "0" * 20, f"{4096:020d}"
    assert bed.syncs() == [f"sync {first}", f"sync {second}", "sync names of /log"]
    bed.put(10)
    bed.flusher.flush()
    assert bed.syncs()[3:] == [f"sync {second}"]
    bed.flusher.flush()
    assert len(bed.syncs()) == 4


def test_waiting_ends_at_its_deadline_and_the_message_is_stored_all_the_same(bed: Bed) -> None:
    bed.ask("early", bed.put())
    bed.now = 3
    bed.ask("later", bed.put())
    bed.now = 5
    bed.flusher.expire()
    assert bed.told == [("early", Outcome.TIMED_OUT)]
    bed.flusher.flush()
    bed.flusher.settle()
    bed.now = 100
    bed.flusher.expire()
    assert bed.told[1:] == [("later", Outcome.STORED)]


def test_a_sync_that_failed_is_never_tried_again(bed: Bed) -> None:
    bed.ask("before", bed.put())
    bed.flusher.flush()
    bed.flusher.settle()
    bed.ask("lost", bed.put())
    bed.disk.sync_fails = True
    bed.flusher.flush()
    bed.disk.sync_fails = False
    syncs = len(bed.syncs())
    bed.ask("after", bed.put())
    bed.flusher.flush()
    bed.flusher.settle()
    assert bed.told == [
        ("before", Outcome.STORED),
        ("after", Outcome.FAILED),
        ("lost", Outcome.FAILED),
    ]
    assert len(bed.syncs()) == syncs
    assert bed.flusher.flushed_to == 100
    assert len(bed.failures) == 1
    assert "syncing the commit log failed" in bed.failures[0]


def test_a_vanished_directory_fails_the_sync(bed: Bed) -> None:
    bed.put()
    bed.disk.remove_tree(HERE)
    bed.flusher.flush()
    assert "removed while it was in use" in bed.failures[0]


@pytest.mark.usefixtures("no_leaks")
def test_the_thread_syncs_on_request_and_what_comes_meanwhile_with_the_next(bed: Bed) -> None:
    started, go_on, settled = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hold(_: Path) -> None:
        started.set()
        assert go_on.wait(WAIT)

    bed.disk.before_sync = hold
    bed.flusher.start(settled.release)
    bed.ask("first", bed.put())
    assert started.wait(WAIT)
    bed.ask("second", bed.put())
    bed.ask("third", bed.put())
    go_on.set()
    for _ in range(2):
        assert settled.acquire(timeout=WAIT)
        bed.flusher.settle()
    assert bed.told == [(name, Outcome.STORED) for name in ("first", "second", "third")]
    assert bed.flusher.syncs == 2
    bed.flusher.stop()


@pytest.mark.usefixtures("no_leaks")
def test_the_thread_syncs_by_itself_after_the_interval() -> None:
    bed, settled = Bed(), threading.Event()
    bed.flusher = Flusher(bed.log, interval=0.001, timeout=5)
    bed.put()
    bed.flusher.start(settled.set)
    assert settled.wait(WAIT)
    assert bed.flusher.behind == 0
    bed.flusher.stop()


@pytest.mark.usefixtures("no_leaks")
def test_stopping_flushes_what_is_left(bed: Bed) -> None:
    bed.flusher.start(lambda: None)
    bed.put()
    bed.flusher.stop()
    assert bed.flusher.behind == 0
