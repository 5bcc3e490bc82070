"""Half messages: their ends, the questions about them, and what a restart makes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gantrymq.broker.transaction_notes import FILE
from gantrymq.errors import BrokerFailure, IllegalOperation
from gantrymq.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_OP_TOPIC,
    HALF_TOPIC,
    TRANSACTION_GROUP,
)
from gantrymq.protocol.transactions import (
    CheckTransactionState,
    Decision,
    EndTransaction,
    ResumeHalfMessage,
)
from gantrymq.wire import properties, record
from gantrymq.wire.command import Command
from gantrymq.wire.message_id import parse_offset_id
from gantrymq.wire.record import StoredMessage
from tests.support import run_on
from tests.unit.broker.people import Client, beat
from tests.unit.broker.rig import MemoryFiles, Rig, refusal
from tests.unit.broker.timed import TimedRig, chores, timed


def prepare(rig: Rig, body: bytes = b"half", *, unique: str = "U1", **more: str) -> Any:
    """Send a half message."""
    found = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": unique} | more
    return rig.send(body=body, queue_id=2, properties=properties.join(found))


def ending(sent: Any, decision: Decision, **more: Any) -> EndTransaction:
    """What a producer says about a message, as it was answered when it sent that."""
    fields: dict[str, Any] = {
        "group": "shop",
        "half_offset": sent.offset,
        "log_offset": parse_offset_id(sent.message_id).log_offset,
        "decision": decision,
        "message_id": "U1",
    } | more
    return EndTransaction(**fields)


def end(rig: Rig, sent: Any, decision: Decision = Decision.COMMIT, **more: Any) -> Command:
    """What a broker answers to that."""
    answer = rig.answer(ending(sent, decision, **more))
    assert isinstance(answer, Command)
    return answer


def bodies(rig: Rig, topic: str = "orders", queue_id: int = 2) -> list[bytes]:
    return [message.body for message in rig.stored(topic, queue_id)]


def notes(rig: Rig) -> list[bytes]:
    return bodies(rig, HALF_OP_TOPIC, 0)


def questions(client: Client) -> list[CheckTransactionState]:
    """What a client was asked since the last look."""
    asked = [one for one in client.heard if isinstance(one, CheckTransactionState)]
    client.heard.clear()
    return asked


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "gantrymq.broker")


# --- ends -----------------------------------------------------------------------------------------


@timed()
async def test_a_half_message_is_in_the_half_topic_alone(rig):
    sent = prepare(rig, TAGS="red")
    assert bodies(rig) == []
    (half,) = rig.stored(HALF_TOPIC)
    assert (half.queue_id, half.sys_flag, half.prepared_offset) == (0, 0, 0)
    found = half.properties
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["TRAN_MSG"]) == ("orders", "2", "true")
    assert (found["__transactionId__"], found["PGROUP"], found["TAGS"]) == ("U1", "shop", "red")
    assert (sent.queue_id, sent.offset, sent.transaction_id) == (2, 0, "U1")
    assert sent.message_id == half.offset_id
    assert len(rig.broker.transactions) == 1


@timed()
async def test_a_commit_stores_the_message_in_its_topic(rig):
    rig.send()
    sent = prepare(rig, TAGS="red")
    assert end(rig, sent).code == 0
    (message,) = rig.stored(queue_id=2)
    assert (message.body, message.sys_flag) == (b"half", int(Decision.COMMIT))
    assert message.prepared_offset == parse_offset_id(sent.message_id).log_offset
    found = message.properties
    assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & found.keys()
    assert (found["TAGS"], found["PGROUP"], found["UNIQ_KEY"]) == ("red", "shop", "U1")
    ((_, _, code),) = rig.store.queue("orders", 2).entries(0, 1)
    assert code == 112785  # of "red", as Java hashes it
    assert len(rig.broker.transactions) == 0


@timed()
async def test_a_rollback_leaves_nothing_but_a_note(rig):
    sent = prepare(rig)
    assert end(rig, sent, Decision.ROLLBACK).code == 0
    assert notes(rig) == [b"0,"]
    assert rig.stored(HALF_OP_TOPIC)[0].properties == {"TAGS": "d"}
    assert bodies(rig) == []


@timed()
async def test_commits_of_one_turn_share_a_note(rig):
    sent = [prepare(rig, unique=f"U{number}") for number in range(2000)]
    for one in sent:
        end(rig, one)
    assert notes(rig) == []
    await asyncio.sleep(0)
    noted = notes(rig)
    assert [int(word) for note in noted for word in note.split(b",") if word] == [*range(2000)]
    assert len(noted) == 3
    assert all(len(note) <= 4096 for note in noted)


@timed()
async def test_an_undecided_producer_is_told_nothing_and_changes_nothing(rig):
    sent = prepare(rig)
    assert end(rig, sent, Decision.UNDECIDED).code == 0
    assert len(rig.broker.transactions) == 1


@timed()
async def test_only_the_first_decision_counts(rig):
    sent = prepare(rig)
    assert end(rig, sent).code == 0
    assert end(rig, sent).code == 0
    answer = end(rig, sent, Decision.ROLLBACK)
    assert (answer.code, answer.remark) == (604, "half message 0 has ended already: COMMIT")
    assert bodies(rig) == [b"half"]


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"group": "other"}, "The producer group wrong"),
        ({"half_offset": 7}, "The transaction state table offset wrong"),
        ({"log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"log_offset": 0}, "Find prepared transaction message failed: it is"),
    ],
)
def test_a_decision_about_another_message_is_refused(wrong, remark):
    @timed()
    async def test(rig):
        rig.send()
        sent = prepare(rig)
        answer = end(rig, sent, **wrong)
        assert answer.code == 1
        assert answer.remark.startswith(remark)
        assert len(rig.broker.transactions) == 1

    test()


@timed()
async def test_a_decision_after_the_time_that_the_message_has_is_refused(rig):
    sent = prepare(rig, CHECK_IMMUNITY_TIME_IN_SECONDS="8")
    await asyncio.sleep(9)
    answer = end(rig, sent)
    assert answer.code == 604
    assert "8.0s are the most" in answer.remark
    assert end(rig, sent, from_check=True).code == 0
    assert bodies(rig) == [b"half"]


@timed()
async def test_a_message_that_names_a_delay_waits_for_it_after_the_commit(rig):
    sent = prepare(rig, DELAY="1")
    await asyncio.sleep(2)
    end(rig, sent)
    await asyncio.sleep(0.9)
    assert bodies(rig) == []
    await asyncio.sleep(0.2)
    assert bodies(rig) == [b"half"]


@timed()
async def test_a_commit_that_cannot_be_stored_leaves_the_message_open(rig):
    sent = prepare(rig)
    rig.disk.capacity, roomy = rig.disk.used, rig.disk.capacity
    rig.store.clean()
    assert end(rig, sent).code == 14
    assert end(rig, sent, Decision.ROLLBACK).code == 14
    assert len(rig.broker.transactions) == 1
    rig.disk.capacity = roomy
    rig.store.clean()
    assert end(rig, sent).code == 0
    assert bodies(rig) == [b"half"]


@timed(transactions__refuse=True)
async def test_a_broker_may_take_none(rig):
    assert refusal(lambda: prepare(rig)) == (16, "this broker takes no transaction messages")


@timed(store__flush__mode="sync")
async def test_an_end_is_answered_when_the_disk_has_it(rig):
    sent = prepare(rig)
    rig.store.flush()
    sent = await sent
    for decision, wanted in ((Decision.COMMIT, [b"half"]), (Decision.ROLLBACK, [b"half"])):
        pending = asyncio.ensure_future(rig.answer(ending(sent, decision)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not pending.done()
        rig.store.flush()
        await pending
        assert bodies(rig) == wanted
        sending = prepare(rig)
        rig.store.flush()
        sent = await sending


# --- questions ------------------------------------------------------------------------------------


@asynccontextmanager
async def asking(rig: Rig, *ids: str) -> AsyncIterator[list[Client]]:
    """A broker that goes about its chores, and producers with such ids."""
    people = [Client(client_id=one) for one in ids]
    for one in people:
        beat(rig, one, produces=("shop",))
    work = chores(rig)
    yield people
    work.cancel()


@timed()
async def test_a_producer_is_asked_after_its_time_and_then_every_half_minute(rig):
    async with asking(rig, "c1") as (client,):
        sent = prepare(rig)
        times = []
        while len(times) < 3:
            await asyncio.sleep(0.1)
            times += [rig.seconds for _ in questions(client)]
        assert times == [pytest.approx(due, abs=1.2) for due in (6, 36.5, 67)]
        end(rig, sent, from_check=True)
        await asyncio.sleep(60)
        assert questions(client) == []
        assert bodies(rig) == [b"half"]


@timed()
async def test_a_message_may_have_a_time_of_its_own(rig):
    async with asking(rig, "c1") as (client,):
        prepare(rig, CHECK_IMMUNITY_TIME_IN_SECONDS="20")
        prepare(rig, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        prepare(rig, CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
        asked = []
        for _ in range(220):
            await asyncio.sleep(0.1)
            asked += [(one.half_offset, rig.seconds) for one in questions(client)]
        assert [offset for offset, _ in asked] == [1, 2, 0]
        assert [when for _, when in asked] == [pytest.approx(due, abs=1.2) for due in (1, 6, 20)]


@timed()
async def test_a_question_has_the_message_as_it_will_be(rig):
    async with asking(rig, "c1") as (client,):
        sent = prepare(rig)
        await asyncio.sleep(7.2)
        (asked,) = questions(client)
    assert (asked.topic, asked.half_offset, asked.broker) == (HALF_TOPIC, 0, "broker-a")
    assert (asked.message_id, asked.transaction_id) == ("U1", "U1")
    assert asked.offset_id == sent.message_id
    assert asked.log_offset == parse_offset_id(sent.message_id).log_offset
    message = record.decode(asked.body, 0)
    assert (message.topic, message.queue_id, message.body) == ("orders", 2, b"half")
    assert message.find("PGROUP") == "shop"


@timed()
async def test_members_of_the_group_are_asked_in_turn_while_they_are_there(rig):
    async with asking(rig, "c1", "c2") as people:
        prepare(rig)
        await asyncio.sleep(70)
        assert sorted(len(questions(one)) for one in people) == [1, 2]
        people[0].is_open = False
        await asyncio.sleep(60)
        assert [len(questions(one)) for one in people] == [0, 2]
        rig.broker.left(people[1])
        await asyncio.sleep(60)
        assert [questions(one) for one in people] == [[], []]


@timed(transactions__most_checks=3)
async def test_a_message_that_nobody_decides_on_is_put_aside(rig):
    async with asking(rig, "c1") as (client,):
        sent = prepare(rig)
        await asyncio.sleep(200)
        assert len(questions(client)) == 3
        (aside,) = rig.stored(CHECK_MAX_TIME_TOPIC)
        assert (aside.body, aside.find("TRANSACTION_CHECK_TIMES")) == (b"half", "3")
        assert (aside.find("REAL_TOPIC"), aside.find("REAL_QID")) == ("orders", "2")
        assert len(rig.broker.transactions) == 0
        assert end(rig, sent).code == 604
        client = Client()  # the other fell silent
        beat(rig, client, produces=("shop",))
        rig.answer(ResumeHalfMessage(message_id=aside.offset_id))
        assert len(rig.broker.transactions) == 1
        await asyncio.sleep(8)
        (asked,) = questions(client)
        again = ending(sent, Decision.COMMIT, log_offset=asked.log_offset, half_offset=1)
        rig.answer(again)
        assert bodies(rig) == [b"half"]


@timed()
async def test_only_what_was_given_up_can_be_resumed(rig):
    sent = prepare(rig)
    for message_id in (sent.message_id, "nonsense", None):
        assert rig.answer(ResumeHalfMessage(message_id=message_id)).code == 1
    assert len(rig.broker.transactions) == 1


@timed(store__retention__time=1000)
async def test_without_producers_a_message_waits_until_it_is_about_to_leave_the_log(rig):
    async with asking(rig):
        prepare(rig)
        await asyncio.sleep(880)
        assert len(rig.broker.transactions) == 1
        await asyncio.sleep(60)
        assert len(rig.broker.transactions) == 0
        assert bodies(rig, CHECK_MAX_TIME_TOPIC, 0) == [b"half"]


@timed()
async def test_many_questions_leave_room_for_others(rig):
    async with asking(rig, "c1") as (client,):
        for number in range(1000):
            prepare(rig, unique=f"U{number}")
        await asyncio.sleep(5.9)
        most = 0
        while len(client.heard) < 1000:
            before = len(client.heard)
            await asyncio.sleep(0.1)
            most = max(most, len(client.heard) - before)
        assert most <= 200


@timed()
async def test_what_has_ended_takes_no_turn_from_what_is_open(rig):
    async with asking(rig, "c1") as (client,):
        for number in range(2000):
            end(rig, prepare(rig, unique=f"E{number}"), message_id=f"E{number}")
        prepare(rig)
        await asyncio.sleep(7)
        assert len(questions(client)) == 1


@timed()
async def test_open_transactions_are_listed_with_their_age(rig):
    async with asking(rig, "c1"):
        prepare(rig, unique="U1")
        await asyncio.sleep(20)
        prepare(rig, unique="U2")
        first, second = rig.broker.transactions.oldest(10)
        assert (first.message_id, first.topic, first.group, first.checks) == (
            "U1", "orders", "shop", 1,
        )  # fmt: skip
        assert (round(first.age), round(second.age), second.checks) == (20, 0, 0)
        assert len(rig.broker.transactions.oldest(1)) == 1


@timed()
async def test_a_clock_set_ahead_or_back_asks_nobody_early(rig):
    async with asking(rig, "c1") as (client,):
        prepare(rig)
        rig.now_ms += 3_600_000
        await asyncio.sleep(5)
        assert questions(client) == []
        rig.now_ms -= 7_200_000
        await asyncio.sleep(2.2)
        assert len(questions(client)) == 1


# --- over a restart -------------------------------------------------------------------------------


def restarted(scene: Callable[[TimedRig], Any], then: Callable[[TimedRig], Any]) -> None:
    """Runs a scene, kills the broker, and goes on with another one at the same files."""

    async def main() -> None:
        rig = TimedRig().load()
        rig.broker.start()
        await scene(rig)
        files = MemoryFiles()
        files.trees = dict(rig.files.trees)
        again = TimedRig(disk=rig.disk.after_kill(), files=files).load()
        again.broker.start()
        await then(again)
        for one in (rig, again):
            await one.broker.close()

    run_on("virtual", main())


@pytest.mark.parametrize("kept", [False, True])
def test_what_was_open_is_open_again_and_what_ended_is_not(kept):
    sent = []

    async def scene(rig):
        work = chores(rig)
        beat(rig, Client(), produces=("shop",))
        sent.extend(prepare(rig, b"%d" % number, unique=f"U{number}") for number in range(6))
        for number, decision in ((1, Decision.COMMIT), (2, Decision.ROLLBACK)):
            end(rig, sent[number], decision)
        await asyncio.sleep(10 if kept else 0)
        end(rig, sent[4])
        end(rig, sent[5], Decision.ROLLBACK)
        work.cancel()

    async def then(rig):
        found = rig.broker.transactions.oldest(10)
        assert [one.half_offset for one in found] == [0, 3]
        assert [one.checks for one in found] == ([1, 1] if kept else [0, 0])
        assert bodies(rig) == [b"1", b"4"]
        for number in range(6):
            end(rig, sent[number])
        await asyncio.sleep(0)
        assert bodies(rig) == [b"1", b"4", b"0", b"3"]

    restarted(scene, then)


def test_a_commit_without_its_note_is_noted_at_the_start():
    async def scene(rig):
        sent = prepare(rig)
        end(rig, sent)
        assert notes(rig) == []

    async def then(rig):
        assert notes(rig) == [b"0,"]
        assert bodies(rig) == [b"half"]
        assert len(rig.broker.transactions) == 0

    restarted(scene, then)


def test_one_that_was_put_aside_without_a_note_is_not_put_aside_again():
    async def scene(rig):
        prepare(rig)
        (half,) = rig.stored(HALF_TOPIC)
        aside = half
        aside.topic, aside.prepared_offset = CHECK_MAX_TIME_TOPIC, half.log_offset
        rig.store.append(aside)

    async def then(rig):
        assert notes(rig) == [b"0,"]

    restarted(scene, then)


def test_what_only_looks_like_an_end_is_none():
    async def scene(rig):
        prepare(rig)
        rig.store.append(StoredMessage("orders", b"x", prepared_offset=0))

    async def then(rig):
        assert len(rig.broker.transactions) == 1

    restarted(scene, then)


def test_after_a_power_cut_nothing_is_kept_that_the_disk_has_not():
    async def main() -> None:
        rig = TimedRig().load()
        rig.broker.start()
        first, second = prepare(rig, b"1"), prepare(rig, b"2")
        end(rig, first)
        await asyncio.sleep(0)
        rig.broker.transactions.keep()
        rig.store.flush()
        rig.broker.transactions.keep()
        await rig.broker.keeper.kept(FILE)
        tree = rig.files.trees[FILE]
        assert (tree["halfOffset"], tree["opOffset"]) == (1, 1)
        end(rig, second)
        await asyncio.sleep(0)
        rig.broker.transactions.keep()
        await rig.broker.keeper.kept(FILE)
        assert rig.files.trees[FILE] == tree
        rig.store.flush()
        rig.broker.transactions.keep()
        await rig.broker.keeper.kept(FILE)
        tree = rig.files.trees[FILE]
        assert (tree["halfOffset"], tree["opOffset"]) == (2, 2)
        offsets = rig.broker.offsets
        assert offsets.of(TRANSACTION_GROUP, HALF_TOPIC) == {0: 2}
        assert offsets.of(TRANSACTION_GROUP, HALF_OP_TOPIC) == {0: 2}
        await rig.broker.close()

    run_on("virtual", main())


def test_a_broker_goes_on_with_what_rocketmqs_has_left():
    async def main() -> None:
        rig = TimedRig().load()
        for number in range(5):
            found = {"TRAN_MSG": "true", "PGROUP": "shop", "REAL_TOPIC": "orders", "REAL_QID": "2"}
            rig.store.append(StoredMessage(HALF_TOPIC, b"%d" % number, properties.encode(found)))
        for body in (b"0,1,", b"3,"):
            rig.store.append(StoredMessage(HALF_OP_TOPIC, body, b"TAGS\x01d\x02"))
        rig.broker.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 2)
        rig.broker.offsets.commit(TRANSACTION_GROUP, HALF_OP_TOPIC, 0, 1)
        rig.broker.transactions.load()
        assert [one.half_offset for one in rig.broker.transactions.oldest(9)] == [2, 4]
        await rig.broker.close()

    run_on("virtual", main())


def test_refusals_are_the_errors_that_they_travel_as():
    assert (BrokerFailure.CODE, IllegalOperation.CODE) == (1, 604)
