"""Messages with a time of their own, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gantrymq.errors import ReplyError
from gantrymq.protocol.names import TIMER_TOPIC
from gantrymq.protocol.recall_handles import RecallHandle
from gantrymq.protocol.sending import RecallMessage
from gantrymq.protocol.transactions import Decision
from gantrymq.store.disk import STRIDE, File
from gantrymq.store.store import Store
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire import properties, record
from gantrymq.wire.command import Command
from gantrymq.wire.record import StoredMessage
from tests.support import run_on, until
from tests.unit.broker.rig import START_MS, MemoryFiles, Rig, refusal
from tests.unit.broker.test_transactions import end, prepare
from tests.unit.broker.timed import TimedRig, chores, timed


def later(rig: Rig, ms: int, body: bytes = b"later", *, topic: str = "orders", **more: str) -> Any:
    """Send a message that is due in so many ms."""
    found = {"TIMER_DELAY_MS": str(ms)} | more
    return rig.send(topic, body, queue_id=2, properties=properties.join(found))


def recall(rig: Rig, handle: str, topic: str = "orders") -> Command:
    answer = rig.answer(RecallMessage(topic=topic, handle=handle, group="shop"))
    assert isinstance(answer, Command)
    return answer


def bodies(rig: Rig, topic: str = "orders") -> list[bytes]:
    return [message.body for message in rig.stored(topic, 2)]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "gantrymq.broker")


# --- taking in ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "due"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3000),
        ({"TIMER_DELAY_MS": "1234"}, 1234),
        ({"TIMER_DELIVER_MS": str(START_MS + 5678)}, 5678),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "7", "TIMER_DELAY_SEC": "9"}, 9000),
        ({"TIMER_DELAY_MS": "1001"}, 1002),  # see `out_time`
    ],
)
def test_a_message_says_when_in_one_of_three_ways(asked, due):
    @timed()
    async def test(rig):
        reply = rig.send(queue_id=2, properties=properties.join(asked | {"UNIQ_KEY": "U1"}))
        assert reply.queue_id == 2
        (waiting,) = rig.stored(TIMER_TOPIC)
        found = waiting.properties
        assert (found["REAL_TOPIC"], found["REAL_QID"]) == ("orders", "2")
        assert int(found["TIMER_OUT_MS"]) == START_MS + due - 1
        handle = RecallHandle.parse(reply.recall_handle)
        assert handle == ("orders", "broker-a", START_MS + due, "U1")
        await asyncio.sleep((due - 1) / 1000)
        assert bodies(rig) == []
        await asyncio.sleep(0.007)
        assert bodies(rig) == [b"hello"]

    test()


@timed()
async def test_what_is_due_already_is_stored_at_once(rig):
    reply = rig.send(queue_id=2, properties=f"TIMER_DELIVER_MS\x01{START_MS}\x02")
    assert reply.recall_handle is None
    later(rig, 0)
    later(rig, -5)
    assert len(rig.stored(queue_id=2)) == 3


@timed()
async def test_a_delay_level_goes_before_a_time(rig):
    later(rig, 5000, DELAY="1")
    await asyncio.sleep(1.1)
    assert bodies(rig) == [b"later"]
    assert rig.store.queue(TIMER_TOPIC, 0) is None


@timed(timers__longest="1 d")
async def test_how_far_ahead_a_time_may_be_can_be_set(rig):
    later(rig, 86_400_000)
    code, remark = refusal(lambda: later(rig, 86_400_001))
    assert code == 13
    assert "should not be bigger than the max delay 86400000ms" in remark


@timed(timers__enabled=False)
async def test_a_broker_may_take_none(rig):
    code, remark = refusal(lambda: later(rig, 1))
    assert (code, remark) == (
        1, "accurate timer message is not enabled, timerWheelEnable is false",
    )  # fmt: skip


# --- delivering -----------------------------------------------------------------------------------


@timed()
async def test_a_delivered_message_is_what_was_sent(rig):
    sent = later(rig, 1500, TAGS="red", KEYS="k", UNIQ_KEY="U1")
    await asyncio.sleep(2)
    (message,) = rig.stored(queue_id=2)
    (waiting,) = rig.stored(TIMER_TOPIC)
    assert message.prepared_offset == waiting.log_offset
    found = message.properties
    assert (found["TAGS"], found["KEYS"], found["UNIQ_KEY"]) == ("red", "k", "U1")
    assert not {"REAL_TOPIC", "REAL_QID"} & found.keys()
    assert found["TIMER_ENQUEUE_MS"] == str(waiting.store_ms)
    assert 1500 <= int(found["TIMER_DEQUEUE_MS"]) - START_MS <= 1506
    assert (found["WAIT"], found["TIMER_OUT_MS"]) == ("false", str(START_MS + 1499))
    assert sent.message_id == waiting.offset_id
    assert rig.broker.counts.find("QUEUE_PUT_NUMS", "orders@2")[0].messages == 1


@timed()
async def test_messages_come_in_the_order_of_their_times_and_never_early(rig):
    rng, due = Random(7), {}
    work = chores(rig)
    for number in range(400):
        ms = rng.choice((rng.randrange(1, 3000), rng.randrange(1, 100_000)))
        due[b"%d" % number] = rig.now_ms + ms
        later(rig, ms, b"%d" % number)
        await asyncio.sleep(rng.random() / 10)
    await asyncio.sleep(120)
    found = rig.stored(queue_id=2)
    assert {message.body for message in found} == due.keys()
    assert len(found) == 400
    late = [message.store_ms - due[message.body] for message in found]
    assert min(late) >= 0
    assert max(late) <= 10
    assert sorted(found, key=lambda message: due[message.body] // 10)[::20] == found[::20]
    work.cancel()


def delivered(count: int) -> list[StoredMessage]:
    """What comes of messages of several kinds that are due at once."""
    found: list[StoredMessage] = []

    @timed()
    async def run(rig: Rig) -> None:
        later(rig, 100)  # there is its queue then
        await asyncio.sleep(0.5)
        for number in range(count):
            kind: dict[str, str] = {
                0: {},
                1: {"WAIT": "true", "TAGS": "red"},
                2: {"KEYS": "a b"},
                3: {"XWAIT": "true", "KEYSX": "yes"},
                4: {"WAIT": "false", "TAGS": "grün"},
            }[number % 5]
            later(rig, 5000, b"%d" % number * (number + 1), UNIQ_KEY=f"U{number}", **kind)
        await asyncio.sleep(5.2)
        found.extend(rig.stored(queue_id=2))
        for number in range(count):
            for key in (f"U{number}", *(["a", "b"] if number % 5 == 2 and number < 50 else [])):
                hits = rig.store.query("orders", key, limit=64).pieces
                places = {record.decode(hit).log_offset for hit in hits}
                assert found[number + 1].log_offset in places

    run()
    return found


def test_what_is_put_into_its_queue_with_others_is_what_it_is_alone(monkeypatch):
    together = delivered(100)
    calls: list[int] = []

    def none(_store: Store, moves: list[Any]) -> list[int]:
        calls.append(len(moves))
        return []

    monkeypatch.setattr(Store, "append_moved", none)
    alone = delivered(100)
    assert calls
    assert len(together) == 101
    assert [one.properties for one in together] == [one.properties for one in alone]
    for one in (*together, *alone):
        one.property_bytes = b""
    assert together == alone


@timed()
async def test_many_that_are_due_at_once_leave_room_for_others(rig):
    when = rig.now_ms + 2000
    for _ in range(500):
        rig.send(queue_id=2, properties=f"TIMER_DELIVER_MS\x01{when}\x02")
    await until(lambda: bodies(rig))
    most, before = len(bodies(rig)), 0
    while len(bodies(rig)) < 500:
        before = len(bodies(rig))
        await asyncio.sleep(0)
        most = max(most, len(bodies(rig)) - before)
    assert most <= 64


@timed()
async def test_nothing_is_looked_at_while_nothing_waits(rig):
    later(rig, 2000)
    await asyncio.sleep(5)
    rig.store.flush()
    rig.broker.timers.keep()
    await asyncio.sleep(2)
    assert rig.broker.timers.next_look is None
    assert bodies(rig) == [b"later"]


@timed(store__retention__time=72)
async def test_what_is_due_much_later_is_stored_anew_on_the_way(rig):
    work = chores(rig)
    later(rig, 150_007, UNIQ_KEY="U1")
    await asyncio.sleep(150)
    waited = rig.stored(TIMER_TOPIC)
    assert len(waited) == 5  # every 36 seconds, and then after 18
    assert [one.find("TIMER_ROLL_TIMES") for one in waited] == [None, "1", "2", "3", "4"]
    assert {one.find("TIMER_OUT_MS") for one in waited} == {str(START_MS + 150_006)}
    assert all(after.prepared_offset == before.log_offset for before, after in pairwise(waited))
    assert bodies(rig) == []
    await asyncio.sleep(0.015)
    assert bodies(rig) == [b"later"]
    work.cancel()


@timed()
async def test_a_store_that_is_full_is_tried_again(rig):
    later(rig, 1000, b"first")
    later(rig, 1001, b"second")
    await asyncio.sleep(0.5)
    rig.disk.capacity, roomy = rig.disk.used, rig.disk.capacity
    rig.store.clean()
    await asyncio.sleep(5)
    assert bodies(rig) == []
    rig.disk.capacity = roomy
    rig.store.clean()
    await asyncio.sleep(1.1)
    assert bodies(rig) == [b"first", b"second"]


class NoRoomForTimers(FaultyDisk):
    """It has room for everything else."""

    full = True

    def create(self, path: Path, size: int, *, stride: int = STRIDE, thin: bool = False) -> File:
        if self.full and path.parent.name == "timerlog":
            raise OSError(28, "No space left on device", str(path))
        return super().create(path, size, stride=stride)


@pytest.mark.parametrize("restart", [False, True])
def test_messages_that_the_timer_log_has_no_room_for_wait_and_none_is_lost(restart):
    async def main() -> None:
        disk = NoRoomForTimers()
        rig = TimedRig(disk=disk).load()
        rig.broker.start()
        for number in range(3000):
            later(rig, 500, b"%d" % number)
        await asyncio.sleep(2)
        assert bodies(rig) == []
        later(rig, 3000, b"late")
        if restart:
            await rig.broker.close()
            rig = TimedRig(disk=disk.after_kill(), files=rig.files).load()
            rig.broker.start()
        disk.full = False
        await asyncio.sleep(1.5)
        assert len(bodies(rig)) == 3000
        await asyncio.sleep(3)
        assert sorted(bodies(rig)) == sorted([*(b"%d" % number for number in range(3000)), b"late"])
        await rig.broker.close()

    run_on("virtual", main())


@timed()
async def test_after_a_failed_sync_of_its_files_nothing_is_taken_any_more(rig):
    """The next sync could succeed without what this one dropped, so nobody asks for it."""
    work = chores(rig)
    later(rig, 60_000)
    await asyncio.sleep(2)
    later(rig, 60_000)
    rig.disk.before_sync = lambda path: setattr(rig.disk, "sync_fails", path.name == "timerwheel")
    await until(lambda: rig.store.refusal)
    rig.disk.before_sync = str
    rig.disk.sync_fails = False
    code, remark = refusal(lambda: rig.send())
    assert (code, "saving the timer files failed" in remark) == (14, True)
    history = len(rig.disk.history)
    await asyncio.sleep(5)
    assert "sync timerwheel" not in rig.disk.history[history:]
    work.cancel()


@timed()
async def test_a_commit_waits_for_its_time(rig):
    sent = prepare(rig, TIMER_DELAY_SEC="2")
    end(rig, sent, Decision.COMMIT)
    await asyncio.sleep(1.9)
    assert bodies(rig) == []
    await asyncio.sleep(0.2)
    assert bodies(rig) == [b"half"]


@timed()
async def test_one_that_is_lost_does_not_hold_up_the_others(rig):
    found = {"REAL_TOPIC": "orders", "REAL_QID": "2", "TIMER_OUT_MS": str(rig.now_ms + 100)}
    for odd in (found | {"TIMER_OUT_MS": "soon"}, found | {"REAL_TOPIC": "x\x00" * 3}):
        rig.store.append(StoredMessage(TIMER_TOPIC, b"odd", properties.encode(odd)))
    without = {key: value for key, value in found.items() if key != "REAL_TOPIC"}
    rig.store.append(StoredMessage(TIMER_TOPIC, b"odd", properties.encode(without)))
    later(rig, 200)
    await asyncio.sleep(1)
    assert bodies(rig) == [b"later"]


# --- taking back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.3, 1.0, 3, 60, 300])
def test_a_message_can_be_taken_back_until_it_is_due(seconds):
    @timed(store__retention__time=200)
    async def test(rig):
        work = chores(rig)
        first = later(rig, round(seconds * 1000), b"back", UNIQ_KEY="U1")
        later(rig, round(seconds * 1000), b"stays", UNIQ_KEY="U2")
        later(rig, round(seconds * 1000), b"stays", topic="others", UNIQ_KEY="U1")
        await asyncio.sleep(seconds / 2)
        answer = recall(rig, first.recall_handle)
        assert (answer.code, answer.fields["msgId"]) == (0, "U1")
        await asyncio.sleep(seconds)
        assert bodies(rig) == [b"stays"]
        assert bodies(rig, "others") == [b"stays"]
        assert recall(rig, first.recall_handle).code == 604
        work.cancel()

    test()


@timed()
async def test_a_handle_that_does_not_fit_is_refused(rig):
    good = RecallHandle.parse(later(rig, 5000, UNIQ_KEY="U1").recall_handle)
    handles = {
        "nonsense": "recall handle is invalid",
        str(good._replace(topic="bills")): "recall failed, topic not match",
        str(good._replace(broker="broker-b")): "recall failed, broker service not available",
        str(good._replace(due_ms=1)): "recall failed, timestamp invalid",
        str(good._replace(due_ms=1 << 60)): "recall failed, timestamp invalid",
    }
    for handle, remark in handles.items():
        answer = recall(rig, handle)
        assert (answer.code, answer.remark) == (604, remark)
    assert recall(rig, str(good), "nowhere").code == 17


@timed(timers__recall=False)
async def test_a_broker_may_let_nobody_take_anything_back(rig):
    reply = later(rig, 5000)
    assert recall(rig, reply.recall_handle).code == 16


def test_handles_are_those_of_rocketmq():
    handle = RecallHandle("T", "broker-a", 1_700_000_001_000, "7F000001ABCD")
    text = "djEgVCBicm9rZXItYSAxNzAwMDAwMDAxMDAwIDdGMDAwMDAxQUJDRA=="
    assert str(handle) == text
    assert RecallHandle.parse(text) == handle


# --- clocks ---------------------------------------------------------------------------------------


@timed()
async def test_a_clock_set_ahead_delivers_sooner(rig):
    work = chores(rig)
    for ms in (5000, 300_000, 600_000):
        later(rig, ms, b"%d" % ms)
    await asyncio.sleep(0.5)
    rig.now_ms += 300_000
    await asyncio.sleep(1.1)
    assert bodies(rig) == [b"5000", b"300000"]
    await asyncio.sleep(299)
    assert len(bodies(rig)) == 3
    work.cancel()


@timed()
async def test_after_a_clock_was_ahead_messages_keep_their_time_and_memory_is_flat(rig):
    work = chores(rig)
    day = 86_400_000
    later(rig, 1000)
    rig.now_ms += day
    await asyncio.sleep(15)
    assert bodies(rig) == [b"later"]
    rig.now_ms -= day
    await asyncio.sleep(3)
    for number in range(500):
        later(rig, 10_000 + 100 * number, b"%d" % number)
    await asyncio.sleep(1)
    assert rig.broker.timers.in_memory < 100
    await asyncio.sleep(70)
    assert bodies(rig)[1:] == [b"%d" % number for number in range(500)]
    work.cancel()


@timed()
async def test_a_clock_set_back_makes_what_waits_wait_longer(rig):
    work = chores(rig)
    later(rig, 5000, b"before")
    await asyncio.sleep(4)
    rig.now_ms -= 10_000
    later(rig, 5000, b"after")
    await asyncio.sleep(5.1)
    assert bodies(rig) == [b"after"]
    await asyncio.sleep(6)
    assert bodies(rig) == [b"after", b"before"]
    work.cancel()


# --- over a restart -------------------------------------------------------------------------------


async def scene_of(rng: Random, rig: TimedRig, due: dict[bytes, int], back: set[bytes]) -> None:
    """Send, take back and let time go by, with what a server does besides."""
    work = chores(rig)
    for _ in range(rng.randrange(5, 60)):
        ms = rng.choice((rng.randrange(1, 2500), rng.randrange(1, 20_000)))
        body = b"%d" % len(due)
        due[body] = rig.now_ms + ms
        sent = later(rig, ms, body, UNIQ_KEY=f"U{len(due)}")
        if rng.random() < 0.2:
            await asyncio.sleep(rng.random() * ms / 2000)
            if recall(rig, sent.recall_handle).code == 0:
                back.add(body)
        await asyncio.sleep(rng.random() / 4)
    work.cancel()
    await asyncio.sleep(0)


def restarts(
    seed: int,
    after: Callable[[FaultyDisk], FaultyDisk] = FaultyDisk.after_kill,
    *,
    set_back: bool = False,
    stop: bool = False,
) -> None:
    """Kill a broker again and again: all comes once, but for what was taken back."""

    async def main() -> None:
        rng, due, back = Random(seed), dict[bytes, int](), set[bytes]()
        disk, files = FaultyDisk(), MemoryFiles()
        for _ in range(4):
            rig = TimedRig(disk=disk, files=files)
            rig.set_by = -rng.randrange(20_000) if set_back else 0
            rig.load().broker.start()
            await scene_of(rng, rig, due, back)
            if stop:
                await rig.broker.close()
                rig.store.close()
            disk, trees = after(disk), dict(rig.files.trees)
            if not stop:
                await rig.broker.close()
            files = MemoryFiles()
            files.trees = trees
            await asyncio.sleep(rng.random() * 3)
        rig = TimedRig(disk=disk, files=files).load()
        rig.broker.start()
        work = chores(rig)
        await asyncio.sleep(50)
        found = rig.stored(queue_id=2)
        times = Counter(message.body for message in found)
        assert {body: times[body] for body in due} == {body: body not in back for body in due}
        assert min(message.store_ms - due[message.body] for message in found) >= 0
        work.cancel()
        await rig.broker.close()

    run_on("virtual", main())


@pytest.mark.parametrize("seed", range(2))
def test_after_a_kill_everything_is_delivered_once(seed):
    restarts(seed)


@pytest.mark.parametrize("seed", range(2))
def test_after_a_kill_everything_is_delivered_once_though_the_clock_jumps(seed):
    restarts(seed, set_back=True)


def test_after_a_stop_everything_is_delivered_once():
    restarts(9, stop=True)


@pytest.mark.parametrize("seed", range(2))
def test_after_a_power_cut_what_the_disk_had_is_delivered_once(seed):
    async def main() -> None:
        rng, sent = Random(seed), dict[bytes, int]()
        disk, files = FaultyDisk(), MemoryFiles()
        for _ in range(4):
            rig = TimedRig(disk=disk, files=files, store__flush__mode="sync").load()
            rig.broker.start()
            work = chores(rig)
            for _ in range(30):
                body = b"%d" % rng.randrange(1 << 40)
                ms = rng.randrange(1, 15_000)
                pending = later(rig, ms, body)
                rig.store.flush()
                reply = await pending
                assert reply.status == 0
                sent[body] = rig.now_ms + ms
                await asyncio.sleep(rng.random() / 5)
            disk = disk.after_power_cut(rng)
            work.cancel()
            await asyncio.sleep(0)
            trees = dict(rig.files.trees)
            await rig.broker.close()
            files = MemoryFiles()
            files.trees = trees
        rig = TimedRig(disk=disk, files=files).load()
        rig.broker.start()
        work = chores(rig)
        await asyncio.sleep(20)
        assert sorted(bodies(rig)) == sorted(sent)
        work.cancel()
        await rig.broker.close()

    run_on("virtual", main())


def test_what_was_due_while_nobody_was_there_comes_at_the_start():
    async def main() -> None:
        rig = TimedRig().load()
        rig.broker.start()
        for ms in (500, 5_000, 50_000, 3_000_000):
            later(rig, ms, b"%d" % ms)
        await asyncio.sleep(1)
        await rig.broker.close()
        await asyncio.sleep(1000)
        again = TimedRig(disk=rig.disk.after_kill(), files=rig.files).load()
        again.broker.start()
        await asyncio.sleep(0.1)
        assert bodies(again) == [b"500", b"5000", b"50000"]
        await asyncio.sleep(2000)
        assert len(bodies(again)) == 4
        await again.broker.close()

    run_on("virtual", main())


def test_what_was_delivered_before_anything_was_saved_does_not_come_again():
    async def main() -> None:
        rig = TimedRig().load()
        rig.broker.start()
        later(rig, 100, b"one")
        await asyncio.sleep(1)
        again = TimedRig(disk=rig.disk.after_kill(), files=rig.files).load()
        again.broker.start()
        await asyncio.sleep(5)
        assert bodies(again) == [b"one"]
        for one in (rig, again):
            await one.broker.close()

    run_on("virtual", main())


@timed()
async def test_a_start_looks_no_further_back_than_to_what_the_disk_has(rig):
    """What comes after that may be lost, and another broker's messages be in its place."""
    later(rig, 100_000)
    await asyncio.sleep(0)
    rig.store.flush()
    flushed_to = rig.store.flushed_to
    rig.send()
    rig.broker.timers.keep()
    check = rig.store.directory / "config" / "timercheck"
    await until(lambda: int.from_bytes(rig.disk.read(check)[80:88], "big"))
    assert int.from_bytes(rig.disk.read(check)[80:88], "big") == flushed_to < rig.store.log_end


@pytest.mark.parametrize("lost", [("timerwheel",), ("timerlog",), ("timerwheel", "timerlog")])
def test_without_its_files_a_broker_makes_them_anew(lost):
    async def main() -> None:
        rig = TimedRig().load()
        rig.broker.start()
        work = chores(rig)
        for ms in (500, 5_000, 50_000):
            later(rig, ms, b"%d" % ms)
        await asyncio.sleep(3)
        work.cancel()
        await rig.broker.close()
        disk = rig.disk.after_kill()
        for name in lost:
            path = rig.store.directory / name
            disk.remove(path) if name == "timerwheel" else disk.remove_tree(path)
        again = TimedRig(disk=disk, files=rig.files).load()
        again.broker.start()
        await asyncio.sleep(100)
        assert bodies(again) == [b"500", b"5000", b"50000"]
        await again.broker.close()

    run_on("virtual", main())


@timed()
async def test_files_of_the_timer_log_go_with_the_messages(rig):
    work = chores(rig)
    for _ in range(3000):
        later(rig, 100)
    await asyncio.sleep(1)
    directory = rig.store.directory / "timerlog"

    def files() -> list[int]:
        return [int(entry.name) >> 16 for entry in rig.disk.entries(directory)]

    assert files() == [0, 1, 2]
    rig.now_ms += 4 * 86_400_000
    rig.aged += 4 * 86_400
    later(rig, 100, b"x" * 100_000)
    rig.store.clean()
    await asyncio.sleep(15)
    later(rig, 100)
    await until(lambda: files() == [2])
    work.cancel()


def test_refusals_are_errors_of_their_own():
    assert issubclass(type(ReplyError.for_code(604)), ReplyError)
