"""Messages for consumers: what is found, what is answered, who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from gantrymq.broker.clients import Client as Member
from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.groups import ConsumerData, Subscription
from gantrymq.protocol.pulling import LitePullMessage, PullFlag, PullMessage, PullReply, PullStatus
from gantrymq.protocol.topics import TopicSettings
from gantrymq.rules.filtering import parse_tags, tag_code
from gantrymq.wire.command import Command
from tests.support import run_on
from tests.unit.broker.people import Client, beat, wants
from tests.unit.broker.rig import Rig, bodies, on_loop, refusal, with_rig

ASKING = int(PullFlag.SUBSCRIPTION)
WAITING = int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)


def fill(rig: Rig, count: int = 5, *, tags: tuple[str, ...] = ("A",), **fields) -> list[bytes]:
    sent = [f"body {n}".encode() for n in range(count)]
    for n, body in enumerate(sent):
        rig.send(body=body, properties=f"TAGS\x01{tags[n % len(tags)]}\x02", **fields)
    return sent


# --- what is found --------------------------------------------------------------------------------


@on_loop
def test_messages_come_as_they_lie_in_the_log(rig):
    sent = fill(rig)
    reply = rig.pull()
    assert bodies(reply) == sent
    assert (reply.status, reply.remark, reply.suggested_broker) == (PullStatus.FOUND, "FOUND", 0)
    assert (reply.next_offset, reply.min_offset, reply.max_offset) == (5, 0, 5)
    assert (reply.topic_flags, reply.group_flags) == (0, 0)
    (piece,) = reply.more  # side by side in the log, so one piece, and that is the file itself
    assert isinstance(piece, memoryview)
    assert piece.readonly


@on_loop
def test_a_pull_gets_no_more_than_it_asks_for(rig):
    sent = fill(rig)
    reply = rig.pull(offset=1, max_messages=2)
    assert (bodies(reply), reply.next_offset) == (sent[1:3], 3)
    size = rig.stored()[0].size
    reply = rig.pull(max_bytes=2 * size + 1)
    assert bodies(reply) == sent[:2]
    assert bodies(rig.pull(max_messages=0)) == sent[:1]


@on_loop
def test_big_pulls_are_answered(rig):
    sent = fill(rig, 1500)
    reply = rig.pull(max_messages=4096)
    assert (len(bodies(reply)), reply.next_offset) == (len(sent), 1500)


@on_loop
def test_tags_are_matched_by_their_code(rig):
    sent = fill(rig, 6, tags=("A", "B", "C"))
    reply = rig.pull(subscription="A || C")
    assert bodies(reply) == [sent[n] for n in (0, 2, 3, 5)]
    assert reply.next_offset == 6
    assert len(reply.more) == 3  # what was left out is not in between
    for everything in ("*", "", None):
        assert len(bodies(rig.pull(subscription=everything))) == 6
    assert tag_code("Aa") == tag_code("BB")
    rig.send(properties="TAGS\x01Aa\x02")
    assert len(bodies(rig.pull(subscription="BB"))) == 1  # the consumer looks at the text


@on_loop
def test_where_nothing_matches_the_scan_goes_on_there(rig):
    fill(rig, 3)
    reply = rig.pull(subscription="B")
    assert (reply.status, reply.remark) == (PullStatus.NOTHING_MATCHED, "NO_MATCHED_MESSAGE")
    assert (reply.next_offset, list(reply.more)) == (3, [])


@pytest.mark.parametrize(
    ("topic", "offset", "status", "remark", "next_offset"),
    [
        ("orders", 3, PullStatus.NOTHING_NEW, "OFFSET_OVERFLOW_ONE", 3),
        ("orders", 4, PullStatus.OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        ("orders", -1, PullStatus.OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        ("empty", 0, PullStatus.NOTHING_NEW, "NO_MESSAGE_IN_QUEUE", 0),
        ("empty", 7, PullStatus.OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
@on_loop
def test_offsets_out_of_bounds_are_corrected(rig, topic, offset, status, remark, next_offset):
    rig.broker.topics.make("empty", queues=1)
    fill(rig, 3)
    reply = rig.pull(topic, offset)
    assert (reply.status, reply.remark, reply.next_offset) == (status, remark, next_offset)
    assert reply.command().code == int(status)


@on_loop
def test_the_place_of_a_group_can_be_moved_by_order(rig):
    fill(rig, 3)
    rig.broker.offsets.reset("billing", "orders", 0, 1)
    reply = rig.pull(offset=3, flags=WAITING)
    assert (reply.status, reply.remark) == (PullStatus.OFFSET_MOVED, "OFFSET_RESET")
    assert (reply.next_offset, reply.min_offset, reply.max_offset) == (1, 0, 3)
    assert rig.pull(offset=1).status is PullStatus.FOUND


@on_loop
def test_a_pull_can_commit(rig):
    fill(rig, 3)
    rig.pull(offset=2, commit_offset=2)
    assert rig.broker.offsets.query("billing", "orders", 0) is None
    rig.pull(offset=2, commit_offset=2, flags=ASKING | PullFlag.COMMIT_OFFSET)
    assert rig.broker.offsets.query("billing", "orders", 0) == 2
    assert rig.broker.offsets.query_pulled("billing", "orders", 0) == 2


@with_rig(pulls__from_replica=True)
def test_who_lags_far_behind_is_sent_to_a_replica(rig):
    fill(rig, 1)
    assert rig.pull().suggested_broker == 0
    rig.broker.groups.put([GroupSettings(group="billing", broker_id=3, broker_id_when_slow=5)])
    assert rig.pull().suggested_broker == 3


@on_loop
async def test_messages_that_are_not_in_memory_are_fetched_by_a_thread(rig):
    sent = fill(rig, 40, queue_id=1)
    for _ in range(40):  # so that they are not the newest any more
        rig.send("other", body=bytes(500_000))
    rig.disk.cold = True
    outcome = rig.pull(queue_id=1)
    assert isinstance(outcome, Awaitable)
    assert bodies(await outcome) == sent[:32]


# --- waiting --------------------------------------------------------------------------------------


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@on_loop
async def test_a_pull_that_finds_nothing_waits_for_what_comes(rig):
    fill(rig, 1)
    pulling = asyncio.ensure_future(rig.pull(offset=1, flags=WAITING))
    await turn()
    assert not pulling.done()
    for n in range(3):
        rig.send(body=b"%d" % n)
    assert bodies(await pulling) == [b"0", b"1", b"2"]


@on_loop
async def test_a_message_that_comes_before_the_first_step_is_not_missed(rig):
    fill(rig, 1)
    outcome = rig.pull(offset=1, flags=WAITING)
    rig.send(body=b"at once")
    assert bodies(await outcome) == [b"at once"]


@on_loop
async def test_an_empty_queue_is_waited_at_as_well(rig):
    rig.broker.topics.make("orders", queues=1)
    outcome = rig.pull(flags=WAITING)
    rig.send(body=b"first")
    assert bodies(await outcome) == [b"first"]


@on_loop
async def test_what_is_not_wanted_does_not_end_the_wait(rig):
    fill(rig, 1)
    pulling = asyncio.ensure_future(rig.pull(offset=1, flags=WAITING, subscription="B"))
    rig.send(properties="TAGS\x01A\x02")
    await turn()
    assert not pulling.done()
    rig.send(body=b"wanted", properties="TAGS\x01B\x02")
    reply = await pulling
    assert (bodies(reply), reply.next_offset) == ([b"wanted"], 3)


def test_the_wait_ends_at_its_time_with_what_is_there_then():
    async def main():
        rig = Rig().load()
        rig.send(properties="TAGS\x01A\x02")
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = await rig.pull(offset=1, flags=WAITING, wait_ms=15_000)
        assert loop.time() - began == pytest.approx(15.0)
        assert (reply.status, reply.next_offset) == (PullStatus.NOTHING_NEW, 1)

        pulling = asyncio.ensure_future(
            rig.pull(offset=1, flags=WAITING, wait_ms=5000, subscription="B")
        )
        await asyncio.sleep(1)
        rig.send(properties="TAGS\x01A\x02")
        reply = await pulling
        assert (reply.status, reply.next_offset) == (PullStatus.NOTHING_MATCHED, 2)
        await rig.broker.close()

    run_on("virtual", main())


@on_loop
async def test_when_as_many_wait_as_may_the_others_are_answered_at_once(rig):
    rig.broker.apply(Rig(pulls__waiting=1).config)
    fill(rig, 1)
    waiting = rig.pull(offset=1, flags=WAITING)
    reply = rig.pull(offset=1, flags=WAITING)
    assert reply.status is PullStatus.NOTHING_NEW
    rig.send()
    assert len(bodies(await waiting)) == 1


@on_loop
async def test_a_topic_that_goes_ends_the_wait_with_the_reason(rig):
    fill(rig, 1)
    pulling = asyncio.ensure_future(rig.pull(offset=1, flags=WAITING))
    await turn()
    rig.broker.drop_topic("orders")
    (error,) = await asyncio.gather(pulling, return_exceptions=True)
    assert error.code == 17


@on_loop
async def test_a_reset_during_the_wait_is_taken(rig):
    fill(rig, 2)
    pulling = asyncio.ensure_future(rig.pull(offset=2, flags=WAITING))
    await turn()
    rig.broker.offsets.reset("billing", "orders", 0, 0)
    rig.send()
    reply = await pulling
    assert (reply.remark, reply.next_offset) == ("OFFSET_RESET", 0)


# --- who is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "bills"}, 17, "topic[bills] not exist, apply first please!"),
        ({"topic": "closed"}, 16, "the topic[closed] pulling message is forbidden"),
        ({"group": "off"}, 16, "subscription group no permission, off"),
        ({"group": "not a name"}, 26, "subscription group [not a name] does not exist"),
        (
            {"queue_id": 4},
            29,
            "queueId[4] is illegal, topic:[orders] topicConfig.readQueueNums:[4]",
        ),
        ({"queue_id": -1}, 29, "queueId[-1] is illegal"),
        ({"subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"expression_type": "SQL92", "subscription": "a >"}, 23, "is wrong at character 4"),
        ({"flags": 0}, 24, "the consumer's group info not exist"),
    ],
)
@on_loop
def test_what_is_refused(rig, fields, code, remark):
    fill(rig, 1)
    rig.broker.topics.put([TopicSettings(topic="closed", perm=2)])
    rig.broker.groups.put([GroupSettings(group="off", enabled=False)])
    outcome = refusal(lambda: rig.pull(**fields))
    assert (outcome[0], remark in outcome[1]) == (code, True), outcome


@on_loop
def test_a_broker_that_is_not_to_be_read_from(rig):
    fill(rig, 1)
    rig.broker.apply(Rig(permission=2).config)
    assert refusal(rig.pull) == (16, "the broker[broker-a] pulling message is forbidden")


@with_rig(pulls__lite=False)
def test_consumers_at_their_own_pace_can_be_kept_out(rig):
    fill(rig, 1)
    request = LitePullMessage(group="billing", topic="orders", queue_id=0, offset=0, flags=ASKING)
    answer = rig.answer(request)
    assert isinstance(answer, Command)
    assert (answer.code, "for lite pull consumer is forbidden" in str(answer.remark)) == (16, True)
    assert len(bodies(rig.pull())) == 1


@pytest.mark.parametrize(
    ("forbid", "fields", "by"),
    [
        (lambda rig: rig.broker.apply(Rig(permission=2).config), {}, "1"),
        (
            lambda rig: rig.broker.groups.put([GroupSettings(group="billing", enabled=False)]),
            {},
            "2",
        ),
        (lambda rig: rig.broker.topics.put([TopicSettings(topic="orders", perm=2)]), {}, "3"),
        (
            lambda rig: (
                beat(rig, Client(), consumes={"billing": wants("orders")}),
                rig.broker.groups.forbid("billing", "orders", readable=False),
            ),
            {"flags": 0},
            "5",
        ),
    ],
)
@on_loop
def test_who_is_forbidden_is_told_by_what(rig, forbid, fields, by):
    fill(rig, 1)
    forbid(rig)
    asked = {"group": "billing", "topic": "orders", "queue_id": 0, "flags": ASKING} | fields
    answer = rig.answer(PullMessage(offset=0, **asked))
    assert isinstance(answer, Command)
    assert (answer.code, answer.fields) == (16, {"forbiddenType": by})


# --- subscriptions of the heartbeat ---------------------------------------------------------------


@on_loop
def test_a_group_gets_what_it_subscribed_to(rig):
    sent = fill(rig, 4, tags=("A", "B"))
    wanted = Subscription(
        topic="orders", expression="B", tags={"B"}, codes={tag_code("B")}, version=7
    )
    beat(rig, Client(), consumes={"billing": [wanted]})
    assert bodies(rig.pull(flags=0, subscription_version=7)) == [sent[1], sent[3]]
    assert refusal(lambda: rig.pull(flags=0, subscription_version=8)) == (
        25,
        "the consumer's subscription not latest",
    )
    rig.broker.topics.make("bills", queues=1)
    assert refusal(lambda: rig.pull("bills", flags=0)) == (
        24,
        "the consumer's subscription not exist",
    )


@on_loop
def test_a_group_can_be_forbidden_a_topic(rig):
    fill(rig, 1)
    beat(rig, Client(), consumes={"billing": wants("orders")})
    assert len(bodies(rig.pull(flags=0))) == 1
    rig.broker.groups.forbid("billing", "orders", readable=False)
    assert refusal(lambda: rig.pull(flags=0)) == (
        16,
        "the consumer group[billing] is forbidden for topic[orders]",
    )


@on_loop
def test_a_group_can_be_forbidden_to_broadcast(rig):
    fill(rig, 1)
    rig.broker.groups.put([GroupSettings(group="billing", broadcast_enabled=False)])
    data = ConsumerData(
        group="billing", message_model=MessageModel.BROADCASTING, subscriptions=wants("orders")
    )
    client: Any = Client()
    member = Member(peer=client, client_id="c", language=0, version=0, heard=0.0, heard_ms=0)
    rig.broker.consumers.register(data, member)
    assert refusal(lambda: rig.pull(flags=0)) == (
        16,
        "the consumer group[billing] can not consume by broadcast way",
    )


# --- on the wire ----------------------------------------------------------------------------------


@on_loop
def test_both_codes_are_answered(rig):
    fill(rig, 2)
    for kind in (PullMessage, LitePullMessage):
        request = kind(group="billing", topic="orders", queue_id=0, offset=0, flags=ASKING)
        answer = rig.answer(request)
        assert isinstance(answer, Command)
        assert (answer.code, answer.remark, answer.body) == (0, "FOUND", b"")
        assert answer.fields["nextBeginOffset"] == "2"
        whole = Command(0, fields=answer.fields, body=b"".join(answer.more))
        assert PullReply.from_command(whole).next_offset == 2


def test_the_filter_is_the_one_that_clients_make():
    assert parse_tags("A||B").codes == {tag_code("A"), tag_code("B")}
