"""Popping: what is given, hidden, acknowledged, given back, and still known after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gantrymq.broker import popping, popping_records
from gantrymq.errors import NotSupported, ReplyError
from gantrymq.flows.popping import Popped, with_handles
from gantrymq.protocol.names import POPS_TOPIC, pop_retry_topic
from gantrymq.protocol.popping import (
    AckBatch,
    AckedRange,
    AckMessage,
    AwaitMessages,
    ChangeInvisibleTime,
    GetPollingInfo,
    PeekMessages,
    PopMessages,
    PopReply,
    PopStatus,
)
from gantrymq.wire import properties, record
from tests.support import run_on
from tests.unit.broker.rig import with_rig
from tests.unit.broker.timed import TimedRig, chores, timed

RETRY = pop_retry_topic("billing", "orders")
RED = properties.join({"TAGS": "red"})


async def popped(rig: TimedRig, most: int = 8, **more: Any) -> PopReply:
    asked = {
        "group": "billing", "topic": "orders", "queue_id": -1, "max_messages": most,
        "invisible_ms": 10_000, "poll_ms": 0, "born_ms": rig.now_ms, "init_mode": 0,
    } | more  # fmt: skip
    return await popping.pop_messages(PopMessages(**asked), rig.broker, rig.caller)


async def pop(rig: TimedRig, most: int = 8, **more: Any) -> list[Popped]:
    """What a pop gives, with handles."""
    return with_handles(await popped(rig, most, **more), "broker-a", "orders")


def bodies(found: list[Popped]) -> list[bytes]:
    return sorted(one.message.body for one in found)


async def ack(rig: TimedRig, *messages: Popped) -> None:
    for one in messages:
        at = RETRY if one.handle.retry else "orders"
        request = AckMessage(
            group="billing", topic=at, queue_id=one.handle.queue_id, handle=str(one.handle),
            offset=one.handle.offset,
        )  # fmt: skip
        await popping.ack_message(request, rig.broker, rig.caller)


def hiding(one: Popped, seconds: float) -> ChangeInvisibleTime:
    return ChangeInvisibleTime(
        group="billing", topic="orders", queue_id=one.handle.queue_id, handle=str(one.handle),
        offset=one.handle.offset, invisible_ms=round(seconds * 1000),
    )  # fmt: skip


async def code_of(attempt: Awaitable[object]) -> int:
    with pytest.raises(ReplyError) as refused:
        await attempt
    return refused.value.code


def going(**settings: Any) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """A test with a broker that goes about its chores."""

    def decorate(test: Callable[..., Any]) -> Callable[[], None]:
        @timed(**settings)
        async def run(rig: TimedRig) -> None:
            work = chores(rig)
            try:
                await test(rig)
            finally:
                work.cancel()

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


# --- giving ---------------------------------------------------------------------------------------


@going()
async def test_every_message_is_given_once_from_whichever_queue(rig):
    for n in range(12):
        rig.send(body=b"%d" % n, queue_id=n % 4)
    first, second = await pop(rig, 5), await pop(rig, 32)
    assert len(first) == 5
    assert bodies(first + second) == sorted(b"%d" % n for n in range(12))
    empty = await popped(rig)
    assert (empty.status, empty.rest) == (PopStatus.POLLING_TIMEOUT, 0)
    assert bodies(await pop(rig, 32, group="packing")) == bodies(first + second)


@going()
async def test_the_answer_says_what_was_taken_and_what_is_left(rig):
    for n in range(5):
        rig.send(body=b"%d" % n)
    reply = await popped(rig, 2, queue_id=0)
    assert (reply.start_offsets, reply.offsets) == ("0 0 0", "0 0 0,1")
    assert (reply.rest, reply.invisible_ms, reply.pop_ms) == (3, 10_000, rig.now_ms)
    assert (await popped(rig, 2, queue_id=0)).offsets == "0 0 2,3"


@going()
async def test_a_new_group_begins_where_it_says(rig):
    rig.send(body=b"old")
    assert await pop(rig, init_mode=1) == []
    rig.send(body=b"new")
    assert bodies(await pop(rig, init_mode=0)) == [b"new"]  # by then it had begun
    assert bodies(await pop(rig, group="packing", init_mode=0)) == [b"new", b"old"]


@going()
async def test_what_is_not_wanted_is_passed_over(rig):
    for n in range(100):
        rig.send(body=b"%d" % n, properties=RED if n % 50 == 49 else "")
    assert bodies(await pop(rig, expression="red", expression_type="TAG")) == [b"49", b"99"]
    assert await pop(rig) == []


@going()
async def test_pops_at_the_same_time_share_the_messages(rig):
    for n in range(60):
        rig.send(body=b"%d" % n, queue_id=n % 4)
    found = await asyncio.gather(*(pop(rig, 3) for _ in range(25)))
    given = [one.message.body for some in found for one in some]
    assert sorted(given) == sorted(b"%d" % n for n in range(60))


@with_rig(pulls__sql=True)
async def test_what_is_not_in_memory_is_fetched_first_and_still_given_once(rig):
    for n in range(40):
        rig.send(body=b"%d" % n, properties=RED)
    for _ in range(40):  # so that they are not the newest any more
        rig.send("other", body=bytes(500_000))
    rig.disk.cold = True
    by_name = {"expression": "TAGS = 'red'", "expression_type": "SQL92"}
    found = await asyncio.gather(*(pop(rig, 10, **(by_name if n % 2 else {})) for n in range(5)))
    given = [one.message.body for some in found for one in some]
    assert sorted(given) == sorted(b"%d" % n for n in range(40))


# --- waiting --------------------------------------------------------------------------------------


@going()
async def test_a_pop_waits_for_a_message_in_any_queue(rig):
    rig.send(body=b"first")
    await ack(rig, *await pop(rig))
    waiting = asyncio.create_task(pop(rig, poll_ms=15_000))
    await asyncio.sleep(2)
    asked = GetPollingInfo(group="billing", topic="orders", queue_id=-1)
    assert popping.get_polling_info(asked, rig.broker, rig.caller).polling == 1
    rig.send(body=b"second", queue_id=3)
    began = rig.seconds
    assert bodies(await waiting) == [b"second"]
    assert rig.seconds - began < 0.1
    assert popping.get_polling_info(asked, rig.broker, rig.caller).polling == 0


@going()
async def test_a_pop_waits_for_what_comes_again_but_not_for_ever(rig):
    rig.send()
    await pop(rig, invisible_ms=5_000)
    (again,) = await pop(rig, poll_ms=15_000)
    assert rig.seconds == pytest.approx(5, abs=0.3)
    await ack(rig, again)
    assert await pop(rig, poll_ms=15_000) == []
    assert rig.seconds == pytest.approx(20, abs=0.5)


@going(pulls__waiting=1)
async def test_where_nobody_may_wait_any_more_a_pop_is_told(rig):
    rig.send()
    await pop(rig)
    first = asyncio.create_task(pop(rig, poll_ms=5_000))
    await asyncio.sleep(1)
    assert (await popped(rig, poll_ms=5_000)).status is PopStatus.POLLING_FULL
    await first


@going()
async def test_nothing_is_taken_for_a_client_that_is_gone(rig):
    rig.send(body=b"first")
    await ack(rig, *await pop(rig))
    waiting = asyncio.create_task(pop(rig, poll_ms=15_000))
    await asyncio.sleep(1)
    rig.caller.is_open = False
    rig.send(body=b"second")
    assert await waiting == []
    rig.caller.is_open = True
    assert bodies(await pop(rig)) == [b"second"]


@going()
async def test_whether_there_is_something_can_be_waited_for(rig):
    rig.send()
    request = AwaitMessages(
        group="billing", topic="orders", queue_id=-1, poll_ms=5_000, born_ms=rig.now_ms
    )
    wait = popping.await_messages
    assert (await wait(request, rig.broker, rig.caller)).has_messages
    await pop(rig)
    waiting = asyncio.create_task(wait(request, rig.broker, rig.caller))
    await asyncio.sleep(1)
    assert not waiting.done()
    rig.send()
    assert (await waiting).has_messages
    await pop(rig)
    assert not (await wait(request, rig.broker, rig.caller)).has_messages


@going()
async def test_a_look_takes_nothing(rig):
    for n in range(3):
        rig.send(body=b"%d" % n)
    look = PeekMessages(group="billing", topic="orders", queue_id=-1, max_messages=2)
    seen = popping.peek_messages(look, rig.broker, rig.caller)
    assert [message.body for message in record.iterate(seen.body)] == [b"0", b"1"]
    assert (seen.status, seen.rest) == (PopStatus.FOUND, 1)
    assert len(await pop(rig)) == 3
    empty = popping.peek_messages(look, rig.broker, rig.caller)
    assert empty.status is PopStatus.NOTHING_THERE


# --- what becomes of them -------------------------------------------------------------------------


@going()
async def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(rig):
    for n in range(4):
        rig.send(body=b"%d" % n, properties=RED)
    found = await pop(rig)
    await ack(rig, *found[:3])
    await asyncio.sleep(9.5)
    assert await pop(rig) == []
    await asyncio.sleep(1)
    (again,) = await pop(rig)
    message = again.message
    assert (message.topic, message.body, message.reconsume_times) == ("orders", b"3", 1)
    assert (again.handle.retry, message.find("TAGS")) == (1, "red")
    assert message.find("1ST_POP_TIME") == str(found[0].handle.pop_ms)
    await asyncio.sleep(11)
    (third,) = await pop(rig)
    assert third.message.reconsume_times == 2
    await ack(rig, third)
    await asyncio.sleep(60)
    assert await pop(rig) == []
    assert rig.broker.pops.count == 0


@going()
async def test_an_old_handle_stands_for_nothing(rig):
    rig.send()
    (one,) = await pop(rig, invisible_ms=1_000)
    await asyncio.sleep(2)
    await ack(rig, one)  # too late, and nobody minds
    assert (
        await code_of(popping.change_invisible_time(hiding(one, 5), rig.broker, rig.caller)) == 208
    )
    assert len(await pop(rig)) == 1


@going()
async def test_a_message_can_be_hidden_for_longer_or_shorter(rig):
    rig.send()
    (one,) = await pop(rig)
    await asyncio.sleep(8)
    changed = await popping.change_invisible_time(hiding(one, 10), rig.broker, rig.caller)
    assert (changed.pop_ms, changed.invisible_ms) == (rig.now_ms, 10_000)
    await ack(rig, one)  # by the handle that it had
    await asyncio.sleep(8)
    assert await pop(rig) == []
    one.handle = replace(one.handle, pop_ms=changed.pop_ms)
    await popping.change_invisible_time(hiding(one, 0), rig.broker, rig.caller)
    (again,) = await pop(rig, poll_ms=1_000)
    assert again.message.reconsume_times == 1


@going()
async def test_many_are_acknowledged_at_once(rig):
    for n in range(6):
        rig.send(body=b"%d" % n)
    found = await pop(rig)
    batch = AckedRange(
        group="billing", topic="orders", start_offset=0, queue_id=0, revive_queue_id=0,
        pop_ms=found[0].handle.pop_ms, invisible_ms=10_000, acked=0b1011 | 1 << 60,
    )  # fmt: skip
    await popping.ack_batch(AckBatch(broker="broker-a", acks=[batch]), rig.broker, rig.caller)
    await asyncio.sleep(11)
    assert bodies(await pop(rig)) == [b"2", b"4", b"5"]
    assert await code_of(popping.ack_batch(AckBatch(), rig.broker, rig.caller)) == 208


@going()
async def test_a_group_that_is_reset_gets_messages_again(rig):
    for n in range(4):
        rig.send(body=b"%d" % n)
    await ack(rig, *await pop(rig))
    await asyncio.sleep(1)
    assert rig.broker.offsets.query("billing", "orders", 0) == 4
    rig.broker.offsets.reset("billing", "orders", 0, 2)
    assert bodies(await pop(rig)) == [b"2", b"3"]
    await asyncio.sleep(1)
    assert rig.broker.offsets.query("billing", "orders", 0) == 4
    rig.broker.offsets.commit("billing", "orders", 0, 1)
    assert bodies(await pop(rig)) == [b"1", b"2", b"3"]


@going()
async def test_a_group_has_no_more_out_of_a_queue_than_it_may(rig):
    for n in range(10):
        rig.send(body=b"%d" % n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(popping_records, "MOST_OUT", 3)
        found = await pop(rig, 3)
        assert await pop(rig) == []
        await ack(rig, found[0])
        assert len(await pop(rig, 32)) == 7


@going()
async def test_what_is_hidden_over_and_over_is_lined_up_once(rig):
    rig.send()
    (one,) = await pop(rig)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(popping_records, "_STALE", 10)
        handle = one.handle
        for _ in range(50):
            one.handle = handle
            changed = await popping.change_invisible_time(hiding(one, 5), rig.broker, rig.caller)
            handle = replace(handle, pop_ms=changed.pop_ms)
        await asyncio.sleep(1)
        assert len(rig.broker.pops._due) == 1
    assert len(await pop(rig, poll_ms=10_000)) == 1


@going()
async def test_a_group_that_is_deleted_keeps_what_is_out_with_its_offsets(rig):
    rig.send()
    await pop(rig)
    rig.broker.drop_group("billing", offsets=False)
    assert rig.broker.pops.count == 1
    rig.broker.drop_group("billing", offsets=True)
    assert rig.broker.pops.count == 0
    assert len(await pop(rig)) == 1
    rig.broker.drop_topic("orders")
    assert rig.broker.pops.count == 0


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"topic": "bills"}, 17),
        ({"queue_id": 9}, 29),
        ({"max_messages": 33}, 29),
        ({"invisible_ms": 0}, 29),
        ({"invisible_ms": 4 * 24 * 3600 * 1000}, 29),
        ({"group": "a b"}, 26),
        ({"expression": "a >", "expression_type": "SQL92"}, 23),
        ({"ordered": True}, 3),
    ],
)
def test_pops_that_are_refused(asked, code):
    @going()
    async def check(rig):
        rig.send()
        assert await code_of(popped(rig, **asked)) == code

    check()


@going()
async def test_acknowledgements_that_are_refused(rig):
    rig.send()
    (one,) = await pop(rig)
    good = {"group": "billing", "topic": "orders", "queue_id": 0, "offset": 0}
    for changed, handle, code in [
        ({"topic": "bills"}, str(one.handle), 17),
        ({"queue_id": 9}, "0 1 1 0 0 broker-a 9 0", 13),
        ({"offset": 7}, "0 1 1 0 0 broker-a 0 7", 208),
        ({"offset": 0}, "nonsense", 29),
        ({"offset": 0}, "0 1 1 0 0 broker-a 0 7", 29),
    ]:
        request = AckMessage(**(good | changed), handle=handle)
        assert await code_of(popping.ack_message(request, rig.broker, rig.caller)) == code
    assert issubclass(NotSupported, ReplyError)


@going()
async def test_nobody_writes_notes_but_the_broker(rig):
    rig.send()
    await pop(rig)
    assert len(rig.stored(POPS_TOPIC)) == 5  # where the group began, and what was taken
    with pytest.raises(ReplyError) as refused:
        rig.send(POPS_TOPIC)
    assert refused.value.code == 16


# --- crashes --------------------------------------------------------------------------------------


def crashing(cut: str, seed: int) -> None:
    """Members pop, acknowledge, hide and forget messages, and the broker crashes now and then."""
    random = Random(seed)
    sent: set[bytes] = set()
    acked: set[bytes] = set()
    after_ack: list[bytes] = []

    async def some_time(rig: TimedRig) -> None:
        work = chores(rig)
        for _ in range(random.randrange(5, 20)):
            for _ in range(random.randrange(3)):
                body = b"%d" % len(sent)
                rig.send(body=body, queue_id=random.randrange(4))
                sent.add(body)
            for one in await pop(rig, random.randrange(1, 9), invisible_ms=4_000):
                if one.message.body in acked:
                    after_ack.append(one.message.body)
                if random.random() < 0.6:
                    await ack(rig, one)
                    acked.add(one.message.body)
                elif random.random() < 0.3 and not one.handle.retry:
                    hide = hiding(one, 2.0)
                    await popping.change_invisible_time(hide, rig.broker, rig.caller)
            await asyncio.sleep(random.random())
        if cut == "power":
            rig.store.flush()
        work.cancel()

    async def the_end(rig: TimedRig) -> None:
        work = chores(rig)
        while found := await pop(rig, 32, poll_ms=10_000):
            for one in found:
                await ack(rig, one)
                acked.add(one.message.body)
        work.cancel()

    async def main() -> None:
        rig = TimedRig().load()
        rig.send(body=b"0")
        sent.add(b"0")
        for _ in range(4):
            rig.broker.start()
            await some_time(rig)
            disk = rig.disk.after_kill() if cut == "kill" else rig.disk.after_power_cut(random)
            rig.broker.transactions.stop()
            rig.broker.delays.stop()
            await rig.broker.timers.close()
            rig = TimedRig(disk=disk, files=rig.files).load()
        rig.broker.start()
        await the_end(rig)
        await rig.broker.close()

    run_on("virtual", main())
    assert acked == sent
    assert after_ack == []


@pytest.mark.parametrize(("cut", "seed"), [*(("kill", n) for n in range(3)), ("power", 3)])
def test_a_crash_forgets_nothing_and_repeats_nothing_that_was_acknowledged(cut, seed):
    crashing(cut, seed)


@pytest.mark.parametrize("clean", [True, False])
def test_a_reset_before_the_end_holds_after_a_start(clean):
    async def main() -> None:
        rig = TimedRig().load()
        rig.broker.start()
        work = chores(rig)
        for n in range(4):
            rig.send(body=b"%d" % n)
        await ack(rig, *await pop(rig))
        await asyncio.sleep(25)
        rig.broker.offsets.reset("billing", "orders", 0, 1)
        await asyncio.sleep(6)
        work.cancel()
        if clean:
            await rig.broker.close()
            rig.store.close()
        again = TimedRig(disk=rig.disk.after_kill(), files=rig.files).load()
        assert bodies(await pop(again)) == [b"1", b"2", b"3"]
        await again.broker.close()
        if not clean:
            await rig.broker.close()

    run_on("virtual", main())


def test_a_group_that_began_at_the_end_does_so_after_a_crash():
    async def main() -> None:
        rig = TimedRig().load()
        rig.send(body=b"old")
        assert await pop(rig, init_mode=1) == []
        rig.send(body=b"new")
        again = TimedRig(disk=rig.disk.after_kill(), files=rig.files).load()
        assert bodies(await pop(again, init_mode=1)) == [b"new"]
        await again.broker.close()
        await rig.broker.close()

    run_on("virtual", main())
