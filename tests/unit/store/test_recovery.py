from __future__ import annotations

import orjson
import pytest

from gantrymq.errors import StoreError
from gantrymq.store.parts import RocketParts
from gantrymq.store.recovery import Walk, next_whole
from gantrymq.wire.record import StoredMessage
from tests.unit.store.plain import BLANK, ROOT, Bench, message

NOTE = ROOT / "clean-stop.json"
LOG = ROOT / "commitlog"


def filled(count: int = 12, **groups: object) -> tuple[Bench, list[StoredMessage]]:
    """Messages of two topics over several files, all on the disk."""
    bench = Bench(**groups)
    made = []
    for number in range(count):
        bench.now_ms += 1000
        made.append(message("AB"[number % 2], 0, b"%04d" % number * 200, TAGS="t"))
        bench.store.append(made[-1])
    bench.store.flush()
    return bench, made


def bodies(made: list[StoredMessage], topic: str) -> list[bytes]:
    return [one.body for one in made if one.topic == topic]


def agrees(bench: Bench, made: list[StoredMessage]) -> bool:
    return all(bench.bodies(topic) == bodies(made, topic) for topic in "AB")


def damage(bench: Bench, offset: int, bits: int = 1) -> None:
    base = offset - offset % 4096
    bench.disk.flip(LOG / f"{base:020d}", offset - base, bits)


def test_an_empty_directory_is_a_new_store() -> None:
    bench = Bench()
    recovered = bench.store.recovered
    assert (recovered.start, recovered.end, recovered.messages) == (0, 0, 0)
    assert bench.said == []
    assert bench.store.log_end == 0


def test_after_a_clean_stop_nothing_is_read() -> None:
    bench, made = filled()
    bench.reopen()
    recovered = bench.store.recovered
    assert (recovered.messages, recovered.start) == (0, made[-1].log_offset + made[-1].size)
    assert bench.said == []
    assert agrees(bench, made)
    assert bench.put("A") == 6


def test_the_note_is_gone_while_the_store_is_open() -> None:
    bench, _ = filled()
    bench.store.close()
    note = orjson.loads(bench.disk.read(NOTE))
    assert note["queues"] == {"A": {"0": 6}, "B": {"0": 6}}
    bench.open()
    assert not bench.disk.exists(NOTE)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"logEnd": "x"}', b"\xff"])
def test_a_note_that_cannot_be_read_is_no_note(text: bytes) -> None:
    bench, made = filled()
    bench.store.close()
    bench.disk.write(NOTE, text)
    bench.open()
    assert agrees(bench, made)
    assert bench.store.recovered.messages == 0


def test_a_store_that_another_broker_went_on_with_is_read_from_its_queues_end() -> None:
    """RocketMQ's broker knows no note: it appends, and leaves the note behind."""
    bench, made = filled(4)
    bench.store.close()
    old = bench.disk.read(NOTE)
    bench.open()
    made.append(message("A", 0, b"later"))
    bench.store.append(made[-1])
    bench.store.close()
    bench.disk.write(NOTE, old)
    bench.open()
    assert agrees(bench, made)
    assert bench.store.recovered.start == bench.store.log_end
    assert bench.said == []


@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/A", "consumequeue/A/0"])
@pytest.mark.parametrize("crash", [False, True])
def test_lost_queues_are_made_anew_from_the_log(lost: str, crash: bool) -> None:
    bench, made = filled()
    bench.store.checkpoint()
    if crash:
        bench.disk = bench.disk.after_kill()
    else:
        bench.store.close()
    bench.disk.remove_tree(ROOT / lost)
    bench.said.clear()
    bench.open()
    assert agrees(bench, made)
    assert bench.store.recovered.rebuilt
    assert bench.put("A") == len(bodies(made, "A"))


def test_lost_queues_are_missed_without_the_list_of_them_too() -> None:
    bench, made = filled()
    bench.store.checkpoint()
    disk = bench.disk.after_kill()
    disk.remove_tree(ROOT / "consumequeue")
    disk.remove(ROOT / "queues.json")
    bench.reopen(disk)
    assert agrees(bench, made)


def test_a_deleted_topic_is_not_missed() -> None:
    bench, made = filled()
    bench.store.checkpoint()
    bench.store.delete_topic("B")
    bench.store.append(message("A", 0, b"x"))
    bench.store.flush()
    bench.store.checkpoint()
    bench.reopen(bench.disk.after_kill())
    assert bench.bodies("B") == []
    assert bench.bodies("A") == [*bodies(made, "A"), b"x"]


def test_a_crash_is_recovered_from_the_checkpoint() -> None:
    bench, made = filled()
    bench.store.checkpoint()
    point = bench.store.log_end
    made.append(message("A", 0, b"after the checkpoint"))
    bench.store.append(made[-1])
    bench.reopen(bench.disk.after_kill())
    recovered = bench.store.recovered
    assert (recovered.start, recovered.messages) == (point, 1)
    assert agrees(bench, made)


def test_without_a_checkpoint_all_is_read() -> None:
    bench, made = filled()
    bench.store.checkpoint()
    disk = bench.disk.after_kill()
    disk.remove(ROOT / "checkpoint")
    bench.reopen(disk)
    assert bench.store.recovered.messages == len(made)
    assert agrees(bench, made)


def test_a_checkpoint_of_rocketmq_4_says_where_by_its_times() -> None:
    bench, made = filled()
    point = bench.store._files.checkpoint
    files = bench.store.log.segments.files
    assert len(files) == 3
    first = next(one for one in made if one.log_offset == files[1].base)
    point.log_ms = point.queues_ms = first.store_ms + 3000
    point.confirmed_offset = 0
    point.save()
    disk = bench.disk.after_kill()
    disk.flip(ROOT / "checkpoint", 32, 0x80)  # no offset at all: below the start of the log
    bench.reopen(disk)
    assert bench.store.recovered.start == files[1].base
    assert agrees(bench, made)


def test_an_offset_that_is_within_a_record_is_not_believed() -> None:
    bench, made = filled()
    point = bench.store._files.checkpoint
    point.confirmed_offset, point.log_ms = made[5].log_offset + 10, 1
    point.save()
    bench.reopen(bench.disk.after_kill())
    assert agrees(bench, made)
    assert bench.store.recovered.messages == len(made)


def test_a_torn_tail_is_cut_at_the_last_whole_record_and_reported() -> None:
    bench, made = filled()
    damage(bench, made[-1].log_offset + 100)
    bench.reopen(bench.disk.after_kill())
    assert agrees(bench, made[:-1])
    assert bench.store.log_end == made[-1].log_offset
    assert f"the log ends at {made[-1].log_offset}" in bench.said[0]
    assert "CRC" in bench.said[0]


@pytest.mark.parametrize("known", [False, True])
def test_a_topic_that_cannot_be_is_damage_and_does_not_keep_the_store_shut(known: bool) -> None:
    bench, made = filled()
    if known:
        bench.store.checkpoint()
        bench.disk.remove_tree(ROOT / "consumequeue")
    topic_at = made[3].log_offset + 88 + len(made[3].body) + 1
    damage(bench, topic_at, ord("B") ^ ord("/"))
    bench.reopen(bench.disk.after_kill())
    assert agrees(bench, made[:3] + made[4:] if known else made[:3])
    assert any("cannot be a directory's name" in line for line in bench.said)


def test_files_after_the_damage_go() -> None:
    bench, made = filled()
    damage(bench, made[2].log_offset + 100)
    bench.reopen(bench.disk.after_kill())
    assert agrees(bench, made[:2])
    assert [entry.name for entry in bench.disk.entries(LOG)] == ["0" * 20]


def test_older_damage_is_skipped_in_a_full_read_and_its_place_stays_empty() -> None:
    bench, made = filled()
    bench.store.close()
    damage(bench, made[4].log_offset + 100)
    bench.disk.remove_tree(ROOT / "consumequeue")
    bench.open()
    assert agrees(bench, [one for one in made if one is not made[4]])
    queue = bench.store.queue("A", 0)
    assert queue is not None
    assert [(at, size, code) == BLANK for at, size, code in queue.entries(0, 6)] == [
        False, False, True, False, False, False,
    ]  # fmt: skip
    assert bench.put("A") == 6
    (lost,) = bench.store.recovered.damage
    assert (lost.start, lost.end) == (made[4].log_offset, made[5].log_offset)
    assert any(
        f"{made[4].size} bytes of the log at {made[4].log_offset}" in line for line in bench.said
    )


def test_damage_to_a_size_is_skipped_as_far_as_the_next_record() -> None:
    bench, made = filled()
    bench.store.close()
    damage(bench, made[1].log_offset + 2, 0x7F)
    bench.disk.remove_tree(ROOT / "consumequeue")
    bench.open()
    assert agrees(bench, [made[0], *made[2:]])


def test_damage_to_a_blank_leads_to_the_next_file() -> None:
    bench, made = filled()
    blank = made[3].log_offset + made[3].size
    assert made[4].log_offset == 4096
    bench.store.close()
    damage(bench, blank + 5)
    bench.disk.remove_tree(ROOT / "consumequeue")
    bench.open()
    assert agrees(bench, made)
    assert [(lost.start, lost.end) for lost in bench.store.recovered.damage] == [(blank, 4096)]


def test_damage_right_before_the_end_keeps_what_follows_in_place() -> None:
    bench, made = filled()
    bench.store.close()
    end = made[-1].log_offset + made[-1].size
    damage(bench, made[-1].log_offset + 100)
    bench.disk.remove_tree(ROOT / "consumequeue")
    bench.open()
    assert bench.store.log_end == end
    assert agrees(bench, made[:-1])


def test_a_log_that_is_gone_goes_on_where_it_was() -> None:
    """RocketMQ would begin its queues at 0, below what consumers have consumed."""
    bench, _ = filled()
    bench.store.close()
    bench.disk.remove_tree(LOG)
    bench.open()
    assert bench.said == ["the commit log is gone; it goes on at offset 12288"]
    assert bench.bodies("A") == []
    assert bench.put("A") == 6
    assert bench.store.log_start == 12288
    bench.reopen(bench.disk.after_kill())
    assert bench.bodies("A") == [b"hello"]


def test_a_missing_file_in_the_middle_is_an_error_and_the_lock_is_given_back() -> None:
    bench, _ = filled()
    bench.store.close()
    kept = bench.disk.read(LOG / f"{4096:020d}")
    bench.disk.remove(LOG / f"{4096:020d}")
    for _ in range(2):
        with pytest.raises(StoreError, match="1 files of 4096 bytes are missing"):
            bench.open()
    bench.disk.write(LOG / f"{4096:020d}", kept)
    bench.open()


def test_progress_is_reported_once_a_second_and_not_before() -> None:
    bench = Bench()
    for number in range(3000):
        bench.store.append(message(body=b"%d" % number))
    bench.disk = bench.disk.after_kill()
    bench.said.clear()
    ticks = iter(range(10**9))
    bench.read_monotonic = lambda: next(ticks) * 0.03
    bench.open()
    (progress,) = [line for line in bench.said if line.startswith("reading the log: ")]
    assert progress.endswith("% of 0 MiB, 2176 messages")


def test_a_walk_stops_where_nothing_is_and_names_what_is_torn() -> None:
    bench, made = filled(3)
    walk = Walk(bench.store.log, 0, 0)
    assert list(walk) == made
    assert (walk.at, walk.torn, walk.damage) == (bench.store.log_end, None, [])
    damage(bench, made[1].log_offset + 100)
    walk = Walk(bench.store.log, 0, 0)
    assert list(walk) == made[:1]
    assert (walk.at, walk.damage) == (made[1].log_offset, [])
    assert "CRC" in (walk.torn or "")
    walk = Walk(bench.store.log, 0, None)
    assert list(walk) == [made[0], made[2]]


def test_the_next_whole_record_is_found_wherever_it_stands() -> None:
    bench, made = filled()
    log = bench.store.log
    assert next_whole(log, 0) == 0
    assert next_whole(log, 1) == made[1].log_offset
    assert next_whole(log, made[3].log_offset + 1) == 4096
    assert next_whole(log, made[-1].log_offset + 1) is None


def test_a_record_within_a_body_is_not_taken_for_one() -> None:
    bench, made = filled(1)
    inner = made[0].encode()
    outer = message("A", 0, b"x" * 10 + inner)
    bench.store.append(outer)
    damage(bench, outer.log_offset + 200)
    assert next_whole(bench.store.log, outer.log_offset + 1) is None


def test_an_index_ahead_of_the_log_takes_new_messages_again() -> None:
    bench = Bench(parts=RocketParts(lambda: 10**12))
    for number in range(4):
        bench.store.append(message(KEYS=f"k{number}"))
    bench.store.flush()
    bench.store.checkpoint()
    bench.store.append(message(KEYS="lost"))
    index = bench.store._files.index
    assert index is not None
    index.sync()
    disk = bench.disk.after_kill()
    disk.wipe(LOG / ("0" * 20), bench.store._files.checkpoint.confirmed_offset)
    bench.reopen(disk)
    bench.store.append(message(KEYS="fresh"))
    assert len(bench.store.query("T", "fresh").pieces) == 1
