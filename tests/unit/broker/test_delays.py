"""Messages that are delivered later, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from gantrymq.broker import delays
from gantrymq.broker.delays import FILE
from gantrymq.protocol.names import SCHEDULE_TOPIC
from gantrymq.protocol.offsets import GetAllDelayOffsets
from gantrymq.rules.delay import DELAY_LEVELS
from gantrymq.wire import properties
from gantrymq.wire.flags import Transaction
from gantrymq.wire.record import StoredMessage
from tests.support import until
from tests.unit.broker.rig import START_MS
from tests.unit.broker.timed import timed


def waiting(level: object, sys_flag: int = 0, **more: str) -> StoredMessage:
    found = {"DELAY": str(level)} | more
    raw = properties.encode(found)
    return StoredMessage("orders", b"x", raw, queue_id=3, sys_flag=sys_flag)


# --- taking in ------------------------------------------------------------------------------------


@timed()
async def test_a_message_with_a_level_goes_to_the_levels_queue(rig):
    message = waiting(5, KEYS="k", TIMER_DELAY_SEC="1", TIMER_DELAY_MS="2", TIMER_DELIVER_MS="3")
    rig.broker.delays.redirect(message)
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, 4)
    assert message.properties == {
        "DELAY": "5",
        "KEYS": "k",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@timed()
async def test_a_level_past_the_last_is_the_last(rig):
    message = waiting(19)
    rig.broker.delays.redirect(message)
    assert (message.queue_id, message.properties["DELAY"]) == (17, "18")


@timed()
async def test_what_names_no_level_stays_where_it_is(rig):
    prepared = int(Transaction.PREPARED)
    for message in (waiting(0), waiting(-1), waiting("soon"), waiting(3, prepared)):
        before = message.property_bytes
        rig.broker.delays.redirect(message)
        assert (message.topic, message.queue_id) == ("orders", 3)
        assert message.property_bytes == before


# --- delivering -----------------------------------------------------------------------------------


@timed()
async def test_every_level_delivers_in_its_time_and_in_order(rig):
    levels = range(1, DELAY_LEVELS.highest + 1)
    for number in range(3):
        for level in levels:
            rig.delay(level, b"%d" % number, topic=f"level-{level}")
        await asyncio.sleep(0.25)
    await asyncio.sleep(7_300)
    for level in levels:
        arrived = rig.stored(f"level-{level}")
        assert [message.body for message in arrived] == [b"0", b"1", b"2"]
        for number, message in enumerate(arrived):
            due = START_MS + 250 * number + 1000 * DELAY_LEVELS.delay(level)
            assert 0 <= message.store_ms - due <= 20


@timed()
async def test_what_is_delivered_is_what_was_sent(rig):
    text = properties.join({"DELAY": "1", "TAGS": "red", "KEYS": "k", "UNIQ_KEY": "U1"})
    rig.send(queue_id=2, flag=9, properties=text, reconsume_times=4)
    (stored,) = rig.stored(SCHEDULE_TOPIC)
    await asyncio.sleep(2)
    (message,) = rig.stored(queue_id=2)
    for name in ("body", "flag", "sys_flag", "born_ms", "born_host", "reconsume_times",
                 "property_bytes"):  # fmt: skip
        assert getattr(message, name) == getattr(stored, name), name
    found = message.properties
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["DELAY"]) == ("orders", "2", "1")
    assert (found["TAGS"], found["KEYS"], found["UNIQ_KEY"]) == ("red", "k", "U1")
    ((_, _, code),) = rig.store.queue("orders", 2).entries(0, 1)
    assert code == 112785  # of "red", as Java hashes it


@timed()
async def test_many_that_are_due_at_once_leave_room_for_others(rig):
    for number in range(200):
        rig.delay(1, b"%d" % number)
    await until(rig.stored)
    seen = [0, len(rig.stored())]
    while seen[-1] < 200:
        await asyncio.sleep(0)
        seen.append(len(rig.stored()))
    assert [message.body for message in rig.stored()] == [b"%d" % n for n in range(200)]
    assert max(after - before for before, after in pairwise(seen)) <= 16


@timed()
async def test_nothing_is_looked_at_while_nothing_waits(rig):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(1)
    assert rig.broker.delays.next_look is None
    rig.delay(1)
    assert rig.broker.delays.next_look == pytest.approx(loop.time() + 1.0)
    await asyncio.sleep(2)
    assert rig.broker.delays.next_look is None


@timed()
async def test_a_delivered_message_is_counted(rig):
    rig.delay(1)
    await asyncio.sleep(2)
    assert rig.broker.counts.find("QUEUE_PUT_NUMS", "orders@0")[0].messages == 1
    assert rig.broker.counts.find("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@0")[0].messages == 1


@timed()
async def test_a_half_message_is_not_delivered_but_those_after_it_are(rig):
    message = waiting(1)
    message.topic = "RMQ_SYS_TRANS_HALF_TOPIC"
    rig.broker.delays.redirect(message)
    rig.store.append(message)
    rig.delay(1)
    await asyncio.sleep(2)
    assert rig.store.queue("RMQ_SYS_TRANS_HALF_TOPIC", 3) is None
    assert len(rig.stored()) == 1


@timed()
async def test_a_store_that_is_full_is_tried_again(rig):
    rig.delay(1, b"first")
    rig.delay(1, b"second")
    rig.disk.capacity, roomy = rig.disk.used, rig.disk.capacity
    rig.store.clean()
    await asyncio.sleep(5)
    assert rig.stored() == []
    assert rig.broker.delays.behind(1) == (0, 2)
    rig.disk.capacity = roomy
    rig.store.clean()
    await asyncio.sleep(1.1)
    assert [message.body for message in rig.stored()] == [b"first", b"second"]


@timed(delays__levels="3s 1s")
async def test_a_broker_may_have_other_levels(rig):
    assert rig.broker.delays.levels.seconds == (3, 1)


# --- clocks ---------------------------------------------------------------------------------------


@timed()
async def test_a_clock_set_ahead_delivers_sooner(rig):
    rig.delay(5)
    rig.now_ms += 3_600_000
    await asyncio.sleep(1.1)
    assert len(rig.stored()) == 1


@timed()
async def test_a_clock_set_back_makes_messages_late_by_their_own_delay_at_most(rig):
    rig.delay(3, b"before")
    await asyncio.sleep(4)
    rig.now_ms -= 3_600_000
    await asyncio.sleep(2)
    rig.delay(3, b"after")
    began = asyncio.get_running_loop().time()
    await until(rig.stored)
    assert asyncio.get_running_loop().time() - began <= 10.2
    await asyncio.sleep(10.1)
    assert [message.body for message in rig.stored()] == [b"before", b"after"]
    assert asyncio.get_running_loop().time() < 30


# --- over a restart -------------------------------------------------------------------------------


@timed()
async def test_how_far_the_levels_have_come_is_kept(rig):
    rig.delay(1)
    rig.delay(2)
    await asyncio.sleep(2)
    rig.store.flush()
    rig.broker.delays.keep()
    await rig.broker.keeper.kept(FILE)
    assert rig.files.trees[FILE]["offsetTable"] == {1: 1}
    rig.broker.delays.keep()
    await rig.broker.keeper.kept(FILE)
    assert rig.files.saves.count(FILE) == 1
    answer = delays.get_all_delay_offsets(GetAllDelayOffsets(), rig.broker, rig.caller)
    assert answer.offsets == {1: 1}


@timed()
async def test_what_is_kept_is_never_ahead_of_the_disk(rig):
    rig.delay(1)
    await asyncio.sleep(0.5)
    rig.delay(1)
    await asyncio.sleep(0.9)
    rig.store.flush()
    await asyncio.sleep(0.5)
    assert len(rig.stored()) == 2
    rig.broker.delays.keep()
    assert rig.broker.delays.snapshot().offsets[1] == 1
    rig.store.flush()
    rig.broker.delays.keep()
    assert rig.broker.delays.snapshot().offsets[1] == 2


@timed()
async def test_offsets_out_of_bounds_are_brought_back(rig):
    rig.delay(1)
    rig.broker.delays.offsets[1] = 7
    rig.delay(1)
    await asyncio.sleep(2)
    assert rig.stored() == []
    assert rig.broker.delays.offsets[1] == 2


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "gantrymq.broker")
