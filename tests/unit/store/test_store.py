from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gantrymq.errors import CorruptRecord, NotWritable, StoreError
from gantrymq.store.config import FlushConfig, LogConfig, RetentionConfig, SpaceConfig, StoreConfig
from gantrymq.store.flush import Outcome
from gantrymq.store.lock import StoreInUse
from gantrymq.store.parts import RocketParts
from gantrymq.store.store import RecordTooLarge, Store
from gantrymq.wire.flags import Transaction
from gantrymq.wire.message_id import offset_id
from gantrymq.wire.record import decode
from tests.unit.store.plain import ROOT, Bench, message

WAIT = 20.0


def test_an_append_says_where_the_message_went() -> None:
    bench = Bench()
    bench.put()
    made = message("T", 0, b"second")
    appended = bench.store.append(made)
    assert appended == (
        97, 1, 98, 195, offset_id(made.store_ip, made.store_port, 97),
    )  # fmt: skip
    assert (made.log_offset, made.queue_offset, made.size, made.store_ms) == (97, 1, 98, 1_000_000)
    assert bench.store.message_at(appended.log_offset) == made
    assert type(appended).__name__ == "Appended"
    assert appended.end == bench.store.log_end


def test_each_queue_counts_by_itself() -> None:
    bench = Bench()
    places = [bench.put(topic, queue_id) for topic in "AB" for queue_id in (0, 1, 0)]
    assert places == [0, 0, 1, 0, 0, 1]
    assert {(topic, queue_id) for topic, queue_id, _ in bench.store.queues()} == {
        ("A", 0), ("A", 1), ("B", 0), ("B", 1),
    }  # fmt: skip


@pytest.mark.parametrize("state", [Transaction.PREPARED, Transaction.ROLLBACK])
def test_what_is_not_committed_takes_no_queue_offset(state: Transaction) -> None:
    bench = Bench()
    bench.put()
    half = message()
    half.sys_flag = state
    appended = bench.store.append(half)
    assert appended.queue_offset == 0
    assert bench.put() == 1
    assert bench.store.message_at(appended.log_offset).sys_flag == state


def test_a_batch_goes_in_side_by_side_and_in_one_file() -> None:
    bench = Bench()
    bench.put(body=b"x" * 3500)
    batch = [message("T", 0, b"%d" % number * 100) for number in range(4)]
    appended = bench.store.append_batch(batch)
    assert (appended.log_offset, appended.queue_offset) == (4096, 1)
    assert [one.queue_offset for one in batch] == [1, 2, 3, 4]
    assert appended.end == 4096 + appended.size == bench.store.log_end
    assert appended.offset_id.split(",") == [one.offset_id for one in batch]
    assert [bench.store.message_at(one.log_offset) for one in batch] == batch
    assert bench.put() == 5


def test_a_batch_for_several_queues_is_refused_whole() -> None:
    bench = Bench()
    with pytest.raises(StoreError, match=r"a batch for .*T\[0\].* has .*T\[1\]"):
        bench.store.append_batch([message("T", 0), message("T", 1)])
    assert bench.store.log_end == 0
    assert bench.put() == 0


def test_what_no_file_can_hold_is_refused_before_anything_is_written() -> None:
    bench = Bench()
    bench.put()
    end = bench.store.log_end
    for attempt in (
        lambda: bench.put(body=b"x" * 4096),
        lambda: bench.store.append_batch([message(body=b"x" * 2100), message(body=b"x" * 2100)]),
    ):
        with pytest.raises(RecordTooLarge, match="within files of 4096"):
            attempt()
    assert bench.store.log_end == end
    assert bench.put() == 1


def test_the_largest_body_is_a_setting() -> None:
    bench = Bench(log=LogConfig(segment_size=2**20, max_message_size=1000))
    bench.put(body=b"x" * 1000)
    with pytest.raises(RecordTooLarge, match=f"the most is {1000 + 64 * 1024}"):
        bench.put(body=b"x" * (1000 + 64 * 1024))


def test_a_topic_that_is_no_name_is_refused() -> None:
    with pytest.raises(StoreError, match="directory's name"):
        Bench().put("../../etc")


def test_who_waits_for_messages_is_told_of_each() -> None:
    bench = Bench()
    seen: list[tuple[object, ...]] = []
    bench.store.arrived = lambda *facts: seen.append(facts)
    made = message("T", 3, b"x", TAGS="a")
    bench.store.append(made)
    bench.store.append_batch([message("T", 3), message("T", 3)])
    assert [facts[:3] for facts in seen] == [("T", 3, 0), ("T", 3, 1), ("T", 3, 2)]
    assert seen[0][3:] == (
        bench.store._dispatcher.tags_code(made), made.store_ms, made.property_bytes,
    )  # fmt: skip
    assert bench.store.arrived is not None


def test_with_sync_flush_nobody_reads_what_a_power_cut_could_take_back() -> None:
    bench = Bench(mode="sync")
    told: list[Outcome] = []
    bench.store.arrived = lambda *facts: told.append(Outcome.TIMED_OUT)
    end = bench.store.append(message()).end
    batch = bench.store.append_batch([message(), message()])
    bench.store.durable(end, told.append)
    assert (batch.queue_offset, bench.store.waiting) == (1, 1)
    assert bench.store.read("T", 0, 0).max_offset == 0
    bench.store.flush()
    assert told == [Outcome.TIMED_OUT] * 3 + [Outcome.STORED]  # it can be read before they know
    assert bench.store.read("T", 0, 0).count == 3
    assert bench.store.flushed_to == batch.end


def test_a_wait_that_takes_too_long_is_told_and_the_message_comes_all_the_same() -> None:
    bench = Bench(mode="sync")
    told: list[Outcome] = []
    bench.store.durable(bench.store.append(message()).end, told.append)
    bench.monotonic = 5.0
    bench.store.tick()
    assert told == [Outcome.TIMED_OUT]
    bench.store.flush()
    assert bench.bodies() == [b"hello"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_after_a_failed_sync_nothing_is_taken_any_more_until_the_next_start(mode: str) -> None:
    bench = Bench(mode=mode)
    bench.put(body=b"safe")
    bench.store.flush()
    bench.store.checkpoint()
    told: list[Outcome] = []
    bench.store.durable(bench.store.append(message(body=b"lost")).end, told.append)
    bench.disk.sync_fails = True
    bench.store.flush()
    bench.disk.sync_fails = False
    assert told == [Outcome.FAILED]
    for attempt in (bench.put, lambda: bench.store.append_batch([message()])):
        with pytest.raises(
            NotWritable, match=r"syncing the commit log failed.*until the next start"
        ):
            attempt()
    bench.store.clean()
    assert "until the next start" in (bench.store.refusal or "")
    assert bench.store.read("T", 0, 0).count >= 1
    closed = bench.store.close()
    assert "syncing the commit log failed" in (closed.problem or "")
    assert "not closed properly" in str(closed)
    bench.open()
    assert bench.bodies()[0] == b"safe"
    bench.put()


def test_a_checkpoint_that_cannot_be_written_stops_the_store() -> None:
    bench = Bench()
    bench.put()
    bench.store.flush()
    bench.disk.sync_fails = True
    bench.store.checkpoint()
    with pytest.raises(NotWritable, match="writing a checkpoint failed"):
        bench.put()


def test_a_checkpoint_without_room_is_made_later() -> None:
    bench = Bench(parts=RocketParts(lambda: 10**12), space=SpaceConfig(refuse=1.0))
    bench.put(body=b"one")
    bench.store.flush()
    bench.disk.capacity = bench.disk.used
    before = bench.store._files.checkpoint.confirmed_offset
    bench.store.checkpoint()
    assert "no room for a checkpoint" in bench.said[0]
    assert bench.store._files.checkpoint.confirmed_offset == before
    bench.put(body=b"two")
    bench.disk.capacity += 2**20
    bench.store.flush()
    bench.store.checkpoint()
    assert bench.store._files.checkpoint.confirmed_offset == bench.store.log_end
    bench.reopen(bench.disk.after_kill())
    assert bench.bodies() == [b"one", b"two"]


def test_a_vanished_directory_stops_the_store() -> None:
    bench = Bench()
    bench.put()
    bench.disk.remove_tree(ROOT / "commitlog")
    bench.store.flush()
    with pytest.raises(NotWritable, match="removed while it was in use"):
        bench.put()


def test_a_queue_that_cannot_be_written_stops_the_store_and_the_next_start_completes_it() -> None:
    bench = Bench()
    bench.put(body=b"one")

    def fail(*_: int) -> None:
        raise OSError(5, "broken")

    bench.store._queues.obtain("T", 0).append = fail
    with pytest.raises(NotWritable, match=r"writing queue or index failed.*broken"):
        bench.put(body=b"two")
    with pytest.raises(NotWritable):
        bench.put(body=b"three")
    bench.reopen(bench.disk.after_kill())
    assert bench.bodies() == [b"one", b"two"]


def test_closing_says_what_it_flushed_and_can_be_done_twice() -> None:
    bench = Bench()
    bench.put()
    bench.store.flush()
    bench.put()
    closed = bench.store.close()
    assert (closed.flushed, closed.log_end, closed.problem) == (97, 194, None)
    assert str(closed) == "log ends at 194, 97 bytes of it flushed at the end"
    assert bench.store.close().flushed == 0
    with pytest.raises(NotWritable, match="is closed"):
        bench.put()
    assert not bench.disk.exists(ROOT / "abort")


def test_a_clock_that_jumps_moves_store_times_and_loses_nothing() -> None:
    bench = Bench()
    for now in (5_000_000, 9_000_000, 1_000, 5_000_001):
        bench.now_ms = now
        bench.put(body=b"%d" % now)
    assert [bench.store.store_time("T", 0, at) for at in range(4)] == [
        5_000_000, 9_000_000, 1_000, 5_000_001,
    ]  # fmt: skip
    bench.store.checkpoint()
    bench.now_ms = 2_000
    bench.put(body=b"last")
    bench.reopen(bench.disk.after_kill())
    assert bench.bodies() == [b"5000000", b"9000000", b"1000", b"5000001", b"last"]
    bench.reopen()
    assert len(bench.bodies()) == 5


def test_store_times_of_what_is_not_there() -> None:
    bench = Bench()
    bench.put()
    for topic, offset in (("T", 1), ("T", -1), ("U", 0)):
        assert bench.store.store_time(topic, 0, offset) == -1


def test_a_deleted_topic_is_gone_and_can_be_made_again() -> None:
    bench = Bench()
    bench.put()
    bench.put("U")
    bench.store.delete_topic("T")
    assert bench.store.queue("T", 0) is None
    assert bench.put(body=b"again") == 0
    assert bench.bodies() == [b"again"]
    bench.reopen(bench.disk.after_kill())
    assert bench.bodies() == [b"again"]
    assert bench.bodies("U") == [b"hello"]


def test_what_waits_for_the_disk_does_not_bring_a_deleted_topic_back() -> None:
    bench = Bench(mode="sync", parts=RocketParts(lambda: 10**12))
    bench.put()
    bench.put("U")
    bench.store.delete_topic("T")
    bench.store.flush()
    bench.store.checkpoint()
    assert bench.bodies("U") == [b"hello"]
    assert not bench.disk.exists(ROOT / "consumequeue" / "T")


def test_a_queue_that_never_got_its_message_is_not_missed_at_the_next_start() -> None:
    bench = Bench(parts=RocketParts(lambda: 10**12))
    bench.put()
    with pytest.raises(RecordTooLarge):
        bench.put("U", body=b"x" * 5000)
    bench.reopen()
    assert bench.said == []
    assert bench.store.recovered.messages == 0


def test_a_record_that_someone_put_into_a_body_is_not_shown_by_its_place() -> None:
    bench = Bench()
    bench.put()
    at = bench.store.log_end + 88
    forged = message("T", 0, b"forged")
    forged.log_offset, forged.queue_offset = at, 0
    bench.put(body=forged.encode())
    with pytest.raises(CorruptRecord, match=f"log offset {at}: .* is at 0"):
        bench.store.message_at(at)


def test_an_index_answers_by_key_in_the_order_of_the_log() -> None:
    bench = Bench(parts=RocketParts(lambda: 10**12))
    for number in range(6):
        bench.now_ms += 1000
        bench.put(body=b"%d" % number, KEYS="odd" if number % 2 else "even other")
    found = bench.store.query("T", "even")
    assert [decode(piece).body for piece in found.pieces] == [b"0", b"2", b"4"]
    assert found.last_update_ms == bench.now_ms
    assert (
        found.last_update_log_offset
        == bench.store.message_at(found.last_update_log_offset).log_offset
    )
    later = bench.store.query("T", "even", begin_ms=bench.now_ms - 2000)
    assert [decode(piece).body for piece in later.pieces] == [b"4"]
    assert [decode(piece).body for piece in bench.store.query("T", "odd", limit=1).pieces] == [b"5"]
    assert bench.store.query("T", "nobody").pieces == []
    assert Bench().store.query("T", "even").pieces == []


def test_a_second_store_on_the_directory_is_refused() -> None:
    bench = Bench()
    with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()}"):
        bench.open()


def real(directory: Path, mode: str = "async", **more: object) -> Store:
    config = StoreConfig(
        log=LogConfig(segment_size=2**20),
        flush=FlushConfig(mode="sync" if mode == "sync" else "async", interval=0.01),
        retention=RetentionConfig(time=0.0),
    )
    return Store.open(directory / "store", config, **more)  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_on_a_real_disk_with_its_threads(tmp_path: Path, mode: str) -> None:
    store = real(tmp_path, mode)
    due, told = threading.Event(), []
    store.start(due.set)
    for number in range(3000):
        end = store.append(message("T", number % 3, b"%04d" % number * 250, KEYS="k")).end
    store.durable(end, told.append)
    while not told:
        assert due.wait(WAIT)
        due.clear()
        store.settle()
    assert told == [Outcome.STORED]
    assert len(store.log.segments.files) == 4
    closed = store.close()
    assert closed.problem is None
    assert {path.stat().st_size for path in (tmp_path / "store" / "commitlog").iterdir()} == {2**20}
    again = real(tmp_path)
    assert again.recovered.messages == 0
    assert again.read("T", 1, 999).count == 1
    again.close()
    del store, again


KILLED = """
import sys
from pathlib import Path
from tests.unit.store.plain import message
from tests.unit.store.test_store import real

store = real(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    print(store.append(message("T", number % 4, b"%08d" % number * 100)).end, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    """The short form; `tests/cluster` kills a broker under load, many times."""
    top = Path(__file__).parents[3]
    known = 0
    for said_before_kill in (1, 700, 2000):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), "1000000"],
            stdout=subprocess.PIPE, text=True, cwd=top,
            env={**os.environ, "PYTHONPATH": f"{top / 'src'}{os.pathsep}{top}"},
        ) as process:  # fmt: skip
            assert process.stdout is not None
            ends = [int(process.stdout.readline()) for _ in range(said_before_kill)]
            process.send_signal(signal.SIGKILL)
            ends += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        known += len(ends)
        store = real(tmp_path)
        assert store.log_end >= ends[-1]
        counts = [queue.max_offset for _, _, queue in store.queues()]
        assert known <= sum(counts) <= known + 1
        for _, queue_id, queue in store.queues():
            places = [
                store.message_at(at).queue_offset
                for at, _, _ in _all(queue.max_offset, store, queue_id)
            ]
            assert places == list(range(queue.max_offset))
        known = sum(counts)
        store.close()


def _all(count: int, store: Store, queue_id: int) -> list[tuple[int, int, int]]:
    queue, found = store.queue("T", queue_id), []
    while queue is not None and len(found) < count:
        found += queue.entries(len(found), count)
    return found
