"""Moving groups to other offsets, and asking clients where they stand."""

import pytest

from gantrymq.broker import resets
from gantrymq.errors import CallTimeout, ReplyError
from gantrymq.model import MessageQueue
from gantrymq.protocol.pulling import PullStatus
from gantrymq.protocol.resets import (
    ClientOffsets,
    CloneGroupOffsets,
    GetClientOffsets,
    GetOffsetsFromClient,
    ResetClientOffsets,
    ResetOffsets,
)
from gantrymq.wire.codes import Language
from tests.unit.broker.people import Client, beat, wants
from tests.unit.broker.rig import START_MS, on_loop, refusal, with_rig


def prepared(rig, messages=5, queues=(0, 1)):
    """Such messages in each of the queues, a second apart, and a group that read them all."""
    for _ in range(messages):
        for queue_id in queues:
            rig.send(queue_id=queue_id)
        rig.now_ms += 1000
    rig.broker.groups.settings("billing")
    for queue_id in range(4):
        end = messages if queue_id in queues else 0
        rig.broker.offsets.commit("billing", "orders", queue_id, end)


def reset(rig, peer=None, **asked):
    request = {"topic": "orders", "group": "billing", "timestamp_ms": -1} | asked
    answer = resets.reset_offsets(ResetOffsets(**request), rig.broker, peer or Client())
    return {queue.queue_id: offset for queue, offset in answer.offsets.items()}


@on_loop
def test_a_group_is_moved_to_a_time_and_hears_of_it_with_its_next_pull(rig):
    prepared(rig)
    assert reset(rig, timestamp_ms=START_MS + 2000) == {0: 2, 1: 2, 2: 0, 3: 0}
    assert rig.broker.offsets.of("billing", "orders") == {0: 2, 1: 2, 2: 0, 3: 0}
    told = rig.pull(offset=5)
    assert (told.status, told.next_offset, told.remark) == (
        PullStatus.OFFSET_MOVED,
        2,
        "OFFSET_RESET",
    )
    assert rig.pull(offset=2).status is PullStatus.FOUND


@on_loop
def test_a_time_below_nought_is_the_end(rig):
    prepared(rig)
    rig.broker.offsets.commit("billing", "orders", 0, 1)
    assert reset(rig, timestamp_ms=-1) == {0: 5, 1: 5, 2: 0, 3: 0}


@on_loop
def test_one_queue_is_moved_to_an_offset_that_it_has(rig):
    prepared(rig)
    assert reset(rig, queue_id=1, offset=3) == {1: 3}
    assert reset(rig, queue_id=1, offset=6) == {1: 6}
    assert reset(rig, queue_id=1, offset=-1, timestamp_ms=START_MS + 1000) == {1: 1}
    assert reset(rig, queue_id=1, timestamp_ms=START_MS) == {1: 0}
    assert refusal(lambda: reset(rig, queue_id=1, offset=7)) == (
        1,
        "Target offset 7 not in consume queue range [0-5]",
    )
    code, _ = refusal(lambda: reset(rig, queue_id=17, offset=0))
    assert code == 1
    assert rig.broker.offsets.query("billing", "orders", 0) == 5


@on_loop
def test_unknown_topics_and_groups_are_not_reset(rig):
    prepared(rig)
    assert refusal(lambda: reset(rig, topic="bills")) == (17, "Topic bills does not exist")
    assert refusal(lambda: reset(rig, group="nobody")) == (26, "Group nobody does not exist")


# --- the members do it ----------------------------------------------------------------------------

pushing = with_rig(groups__server_side_reset=False)


@pushing
def test_members_are_told_where_to_go_on(rig):
    prepared(rig)
    one, two = Client(client_id="c1"), Client(client_id="c2")
    for client in (one, two):
        beat(rig, client, consumes={"billing": wants("orders")})
    two.is_open = False
    one.heard.clear(), two.heard.clear()
    rig.broker.offsets.commit("billing", "orders", 0, 1)
    assert reset(rig, timestamp_ms=START_MS + 2000) == {0: 1, 1: 2, 2: 0, 3: 0}
    (order,) = one.heard
    assert isinstance(order, ResetClientOffsets)
    assert order.table.offsets[MessageQueue("orders", "broker-a", 1)] == 2
    assert not order.table.as_list
    assert two.heard == []
    forced = reset(rig, timestamp_ms=START_MS + 2000, force=True)
    assert forced == {0: 2, 1: 2, 2: 0, 3: 0}
    assert rig.broker.offsets.query("billing", "orders", 0) == 1


@pushing
def test_an_administrator_who_speaks_cpp_has_a_list_sent(rig):
    prepared(rig)
    one = Client()
    beat(rig, one, consumes={"billing": wants("orders")})
    reset(rig, peer=Client(language=Language.CPP))
    assert one.heard[-1].table.as_list


@pushing
def test_members_that_are_away_too_old_or_new_to_the_topic_cannot_be_moved(rig):
    prepared(rig)
    assert refusal(lambda: reset(rig)) == (
        206,
        "Consumer not online, so can not reset offset, Group: billing Topic: orders Timestamp: -1",
    )
    old = Client(version=27)
    beat(rig, old, consumes={"billing": wants("orders")})
    assert refusal(lambda: reset(rig)) == (
        1,
        "the client does not support this feature. version=27",
    )
    rig.broker.groups.settings("audit")
    beat(rig, Client(client_id="c2"), consumes={"audit": wants("orders")})
    assert refusal(lambda: reset(rig, group="audit")) == (
        1,
        "THe consumer group <audit> not exist",
    )


# --- where clients stand --------------------------------------------------------------------------


@on_loop
async def test_every_member_is_asked_or_the_one_that_is_named(rig):
    queue = MessageQueue("orders", "broker-a", 0)
    one = Client(client_id="c1", answers=lambda _: ClientOffsets(of_client={queue: 5}))
    two = Client(client_id="c2", answers=lambda _: ClientOffsets())
    for client in (one, two):
        beat(rig, client, consumes={"billing": wants("orders")})

    async def ask(client_id=None):
        request = GetClientOffsets(topic="orders", group="billing", client_id=client_id)
        return (await resets.get_client_offsets(request, rig.broker, rig.caller)).by_client

    assert await ask() == {"c1": {queue: 5}, "c2": {}}
    assert one.asked == [GetOffsetsFromClient(topic="orders", group="billing")]
    assert await ask("c2") == {"c2": {}}
    assert len(one.asked) == 1


@on_loop
async def test_who_does_not_answer_is_left_out(rig):
    def fails(error):
        def answer(_request):
            raise error

        return answer

    for name, error in (("c1", CallTimeout("late")), ("c2", ReplyError(1, "no"))):
        client = Client(client_id=name, answers=fails(error))
        beat(rig, client, consumes={"billing": wants("orders")})
    request = GetClientOffsets(topic="orders", group="billing")
    assert (await resets.get_client_offsets(request, rig.broker, rig.caller)).by_client == {}


@on_loop
async def test_nobody_can_be_asked_who_is_not_there_or_too_old(rig):
    request = GetClientOffsets(topic="orders", group="billing")
    with pytest.raises(ReplyError, match=r"No Any Consumer online in the .* group: \[billing\]"):
        await resets.get_client_offsets(request, rig.broker, rig.caller)
    beat(rig, Client(version=27), consumes={"billing": wants("orders")})
    with pytest.raises(ReplyError, match="version=27"):
        await resets.get_client_offsets(request, rig.broker, rig.caller)


# --- clones ---------------------------------------------------------------------------------------


def clone(rig, **how):
    request = CloneGroupOffsets(source_group="billing", target_group="audit", **how)
    resets.clone_group_offsets(request, rig.broker, rig.caller)
    return sorted(rig.broker.offsets.topics_of("audit"))


@on_loop
def test_a_group_gets_the_offsets_of_another(rig):
    for topic in ("orders", "bills"):
        rig.send(topic)
        rig.broker.offsets.commit("billing", topic, 0, 1)
    rig.broker.offsets.commit("billing", "gone", 0, 1)
    assert clone(rig, topic="orders") == ["orders"]
    assert clone(rig) == ["bills", "orders"]
    assert rig.broker.offsets.query("audit", "bills", 0) == 1


@on_loop
def test_topics_that_the_group_no_longer_wants_are_cloned_only_when_asked(rig):
    for topic in ("orders", "bills"):
        rig.send(topic)
        rig.broker.offsets.commit("billing", topic, 0, 1)
    beat(rig, Client(), consumes={"billing": wants("orders")})
    assert clone(rig) == ["orders"]
    assert clone(rig, offline=True) == ["bills", "orders"]
