"""Topics that keep the newest message of each key: what goes, what stays, and what a crash does."""

from __future__ import annotations

from random import Random

import pytest

from gantrymq.protocol.offsets import GetMinOffset
from gantrymq.protocol.pulling import PullStatus
from gantrymq.protocol.topics import TopicSettings
from gantrymq.store.steps import finish
from gantrymq.wire import record
from gantrymq.wire.command import Command
from gantrymq.wire.properties import TOMBSTONE
from tests.unit.broker.rig import START_MS, Rig, bodies, on_loop, with_rig

TOPIC = "profiles"


def make(rig: Rig) -> None:
    attributes = {"+cleanup.policy": "COMPACTION"}
    settings = TopicSettings(topic=TOPIC, read_queues=1, write_queues=1, attributes=attributes)
    rig.broker.topics.put([settings])


def put(rig: Rig, key: str, body: bytes, more: str = "") -> int:
    offset: int = rig.send(TOPIC, body, properties=f"KEYS\x01{key}\x02{more}").offset
    return offset


def delete(rig: Rig, key: str) -> int:
    return put(rig, key, b"-", f"{TOMBSTONE}\x01true\x02")


def pulled(rig: Rig, offset: int = 0, **how) -> tuple[list[tuple[int, bytes]], int]:
    """Offsets and bodies of everything from an offset on, and where the queue ends."""
    found = []
    while True:
        reply = rig.pull(TOPIC, offset, flags=4, **how)
        if reply.status is PullStatus.NOTHING_NEW:
            return found, offset
        assert reply.status in (PullStatus.FOUND, PullStatus.NOTHING_MATCHED)
        messages = record.iterate(b"".join(reply.more))
        found += [(one.queue_offset, one.body) for one in messages]
        assert reply.next_offset > offset
        offset = reply.next_offset


async def compact(rig: Rig) -> int:
    rig.store.flush()
    return await rig.broker.compacting.round()


def least(rig: Rig) -> int:
    answer = rig.answer(GetMinOffset(topic=TOPIC, queue_id=0))
    assert isinstance(answer, Command)
    return int(answer.fields["offset"])


@on_loop
async def test_the_newest_message_of_each_key_stays_where_it_was(rig):
    make(rig)
    for n in range(100):
        put(rig, f"k{n % 3}", b"%d" % n)
    put(rig, "once", b"100")
    assert await compact(rig) == 97
    left = [(97, b"97"), (98, b"98"), (99, b"99"), (100, b"100")]
    assert pulled(rig) == (left, 101)
    assert pulled(rig, 98) == (left[1:], 101)
    assert least(rig) == 97
    put(rig, "k0", b"101")
    put(rig, "k9", b"102")
    assert pulled(rig) == ([*left, (101, b"101"), (102, b"102")], 103)
    assert await compact(rig) == 1
    left = [(97, b"97"), (98, b"98"), (100, b"100"), (101, b"101"), (102, b"102")]
    assert pulled(rig) == (left, 103)
    assert await compact(rig) == 0
    assert bodies(rig.pull(TOPIC, 0, max_messages=2)) == [b"97", b"98"]


@on_loop
async def test_tags_and_expressions_choose_among_what_is_left(rig):
    make(rig)
    for n in range(10):
        put(rig, f"k{n}", b"%d" % n, f"TAGS\x01t{n % 2}\x02n\x01{n}\x02")
    await compact(rig)
    assert [body for _, body in pulled(rig, subscription="t1")[0]] == [b"1", b"3", b"5", b"7", b"9"]
    sql = {"subscription": "n > 7", "expression_type": "SQL92"}
    assert pulled(rig, **sql) == ([(8, b"8"), (9, b"9")], 10)
    nothing = {"subscription": "n > 70", "expression_type": "SQL92"}
    assert pulled(rig, **nothing) == ([], 10)


@with_rig(compaction__tombstones_kept="1h")
async def test_a_tombstone_takes_its_key_away_and_goes_later(rig):
    make(rig)
    put(rig, "anna", b"1")
    put(rig, "bert", b"2")
    delete(rig, "anna")
    assert await compact(rig) == 1
    assert pulled(rig)[0] == [(1, b"2"), (2, b"-")]
    rig.now_ms = START_MS + 2 * 3_600_000
    put(rig, "carl", b"3")
    assert await compact(rig) == 1
    assert pulled(rig) == ([(1, b"2"), (3, b"3")], 4)
    delete(rig, "bert")
    delete(rig, "carl")
    rig.now_ms += 2 * 3_600_000
    assert await compact(rig) == 4
    assert pulled(rig) == ([], 6)
    assert least(rig) == 6
    assert put(rig, "dora", b"4") == 6
    assert pulled(rig) == ([(6, b"4")], 7)


@on_loop
async def test_only_topics_that_say_so_are_compacted_and_only_what_is_safe(rig):
    make(rig)
    rig.send("orders", properties="KEYS\x01a\x02")
    rig.send("orders", properties="KEYS\x01a\x02")
    put(rig, "a", b"1")
    put(rig, "a", b"2")
    assert await rig.broker.compacting.round() == 0, "nothing of it is on the disk"
    rig.store.flush()
    put(rig, "a", b"3")
    assert await rig.broker.compacting.round() == 1
    assert pulled(rig) == ([(1, b"2"), (2, b"3")], 3)
    assert len(rig.stored("orders")) == 2


@on_loop
async def test_rounds_come_by_themselves(rig):
    make(rig)
    put(rig, "a", b"1")
    put(rig, "a", b"2")
    rig.store.flush()
    rig.broker.compacting.tick()
    assert len(pulled(rig)[0]) == 2
    rig.seconds += 901
    rig.broker.compacting.tick()
    task = rig.broker.compacting._task
    assert await task == 1
    assert pulled(rig) == ([(1, b"2")], 2)


@on_loop
async def test_a_deleted_topic_begins_anew(rig):
    make(rig)
    put(rig, "a", b"1")
    put(rig, "b", b"2")
    await compact(rig)
    rig.broker.drop_topic(TOPIC)
    assert rig.store.compaction.queues == {}
    make(rig)
    assert put(rig, "a", b"new") == 0
    assert pulled(rig) == ([(0, b"new")], 1)


@with_rig(store__log__segment_size=4096, store__retention__size=8192)
async def test_the_log_keeps_what_is_not_compacted_and_nothing_else(rig):
    make(rig)
    for n in range(200):
        put(rig, f"k{n % 5}", b"%d" % n + bytes(100))
    rig.store.flush()
    start = rig.store.log_start
    put(rig, "k0", b"last")
    rig.store.flush()
    rig.store.clean()
    assert rig.store.log_start == start, "it is needed"
    await compact(rig)
    for _ in range(20):
        rig.store.clean()
    assert rig.store.log_start > start
    found, end = pulled(rig)
    assert [offset for offset, _ in found] == [196, 197, 198, 199, 200]
    assert end == 201


@pytest.mark.parametrize("how", ["closed", "killed", "power cut"])
@on_loop
async def test_what_is_compacted_outlasts_the_broker(rig, how):
    make(rig)
    for n in range(50):
        put(rig, f"k{n % 4}", b"%d" % n)
    await compact(rig)
    put(rig, "k0", b"50")
    rig.store.flush()
    expected = pulled(rig)
    if how == "closed":
        rig.store.close()
        disk = rig.disk
    else:
        disk = rig.disk.after_kill() if how == "killed" else rig.disk.after_power_cut(Random(3))
    again = Rig(disk=disk, files=rig.files).load()
    assert pulled(again) == expected
    put(again, "k1", b"51")
    assert await compact(again) == 2
    assert [body for _, body in pulled(again)[0]] == [b"46", b"47", b"50", b"51"]
    await again.broker.close()


@pytest.mark.parametrize("step", range(14))
@on_loop
async def test_a_power_cut_while_a_file_is_made_leaves_the_old_or_the_new(rig, step):
    make(rig)
    for n in range(30):
        put(rig, f"k{n % 4}", b"%d" % n)
    await compact(rig)
    for n in range(30, 60):
        put(rig, f"k{n % 4}", b"%d" % n)
    rig.store.flush()
    compaction = rig.store.compaction
    (slot,) = compaction.due(rig.store.flushed_to)
    plan = finish(compaction.plan(slot, rig.store.flushed_to, 0))
    assert plan is not None
    compaction.write(plan)  # and dies before it is installed
    again = Rig(disk=rig.disk.after_power_cut(Random(step)), files=rig.files).load()
    found, end = pulled(again)
    assert end == 60
    newest = {int(body) % 4: int(body) for _, body in found}
    assert newest == {0: 56, 1: 57, 2: 58, 3: 59}
    await again.broker.close()


@on_loop
async def test_a_file_about_messages_that_are_gone_is_left_alone(rig):
    make(rig)
    for n in range(10):
        put(rig, f"k{n % 2}", b"%d" % n)
    await compact(rig)
    (path,) = (one.segment.path for one in rig.store.compaction.queues.values())
    rig.store.close()
    later = path.with_name(f"{50:020}")
    rig.disk.write(later, rig.disk.read(path))
    rig.disk.write(path.with_name(path.name + ".tmp"), b"half written")
    again = Rig(disk=rig.disk, files=rig.files).load()
    assert pulled(again) == ([(8, b"8"), (9, b"9")], 10)
    assert rig.disk.exists(later)
    assert not rig.disk.exists(path.with_name(path.name + ".tmp"))
    await again.broker.close()


@on_loop
async def test_a_plan_for_a_topic_that_was_made_anew_meanwhile_comes_to_nothing(rig):
    make(rig)
    for n in range(10):
        put(rig, "k", b"%d" % n)
    rig.store.flush()
    compaction = rig.store.compaction
    (slot,) = compaction.due(rig.store.flushed_to)
    plan = finish(compaction.plan(slot, rig.store.flushed_to, 0))
    assert plan is not None
    rig.broker.drop_topic(TOPIC)
    make(rig)
    for n in range(20):
        put(rig, f"new {n}", b"%d" % n)
    assert not compaction.install(plan, compaction.write(plan))
    assert len(pulled(rig)[0]) == 20
    assert compaction.queues == {}
