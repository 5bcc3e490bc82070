"""Queues shared out by the broker, and how groups read topics."""

import pytest

from gantrymq.broker import assignments
from gantrymq.broker.assignments import FILE, Routes
from gantrymq.errors import CallTimeout, ReplyError
from gantrymq.model import MessageQueue
from gantrymq.protocol.assignments import (
    GetAllRequestModes,
    QueryAssignment,
    RequestMode,
    SetRequestMode,
)
from gantrymq.protocol.enums import MessageModel, MessageRequestMode
from gantrymq.protocol.routing import QueueData, RouteReply, TopicRoute
from tests.support import run_on
from tests.unit.broker.people import Client, beat
from tests.unit.broker.rig import MemoryFiles, Rig, on_loop


async def ask(rig, client_id="c1", **how):
    asked = {"topic": "orders", "group": "billing"} | how
    request = QueryAssignment(client_id=client_id, **asked)
    answer = await assignments.query_assignment(request, rig.broker, rig.caller)
    if answer.assignments is None:
        return None
    assert {one.mode for one in answer.assignments} <= {MessageRequestMode.PULL}
    return [one.queue.queue_id for one in answer.assignments]


def joined(rig, *names):
    for name in names:
        beat(rig, Client(client_id=name), consumes={"billing": []})


@on_loop
async def test_members_share_the_queues(rig):
    rig.send()
    joined(rig, "c2", "c1", "c3")
    assert [await ask(rig, name) for name in ("c1", "c2", "c3")] == [[0, 1], [2], [3]]
    by_turns = [await ask(rig, name, strategy="AVG_BY_CIRCLE") for name in ("c1", "c2", "c3")]
    assert by_turns == [[0, 3], [1], [2]]


@on_loop
async def test_who_gets_everything_and_who_gets_nothing(rig):
    rig.send()
    assert await ask(rig, message_model=MessageModel.BROADCASTING) == [0, 1, 2, 3]
    assert await ask(rig) is None
    joined(rig, "c1")
    assert await ask(rig, "stranger") == []
    assert await ask(rig, strategy="BY_MOOD") is None
    assert await ask(rig, topic="bills") is None
    assert await ask(rig, topic="%LMQ%one") == [0]


class NameServer:
    """A runtime that reaches one name server, or does not."""

    def __init__(self, route):
        self.route = route
        self.asked = []

    async def call(self, address, request, *, timeout):
        self.asked.append((address, request.topic))
        if address == "away:9876":
            raise CallTimeout("away")
        return RouteReply(route=self.route)


def test_queues_are_those_of_all_brokers_and_are_looked_up_again_after_a_while():
    async def main():
        rig = Rig().load()
        rig.send()
        now = [0.0]
        route = TopicRoute(
            queues=[
                QueueData(broker="broker-b", read_queues=2, perm=6),
                QueueData(broker="broker-a", read_queues=1, perm=4),
                QueueData(broker="broker-c", read_queues=1, perm=2),
            ]
        )
        runtime = NameServer(route)
        routes = Routes(
            broker="broker-a",
            topics=rig.broker.topics,
            runtime=runtime,
            name_servers=lambda: ["away:9876", "there:9876"],
            now=lambda: now[0],
        )
        expected = [
            MessageQueue("orders", "broker-a", 0),
            MessageQueue("orders", "broker-b", 0),
            MessageQueue("orders", "broker-b", 1),
        ]
        assert await routes.queues("orders") == expected
        assert [address for address, _ in runtime.asked] == ["away:9876", "there:9876"]
        assert await routes.queues("orders") == expected
        assert len(runtime.asked) == 2
        now[0] = 5.1
        route.queues.clear()
        assert await routes.queues("orders") == []
        alone = Routes(
            broker="broker-a",
            topics=rig.broker.topics,
            runtime=runtime,
            name_servers=lambda: ["away:9876"],
            now=lambda: now[0],
        )
        assert len(await alone.queues("orders")) == 4
        await rig.broker.close()

    run_on("asyncio", main())


# --- modes ----------------------------------------------------------------------------------------


async def put(rig, **how):
    asked = {"topic": "orders", "group": "billing"} | how
    request = SetRequestMode(setting=RequestMode(**asked))
    await assignments.set_request_mode(request, rig.broker, rig.caller)


@pytest.mark.parametrize(
    ("shared", "members", "queues"),
    [
        (0, 3, [[-1], [-1], [-1]]),
        (2, 3, [[-1], [-1], [-1]]),
        (1, 4, [[0, 1], [1, 2], [2, 3], [3, 0]]),
        (1, 5, [[0], [1], [2], [3], [0]]),
    ],
)
def test_members_that_pop_have_any_queue_or_their_own_and_some_others(shared, members, queues):
    @on_loop
    async def check(rig):
        rig.send()
        rig.broker.groups.settings("billing")
        names = [f"c{number}" for number in range(members)]
        joined(rig, *names)
        await put(rig, mode=MessageRequestMode.POP, shared_queues=shared)
        for name, wanted in zip(names, queues, strict=True):
            request = QueryAssignment(client_id=name, topic="orders", group="billing")
            answer = await assignments.query_assignment(request, rig.broker, rig.caller)
            assert [one.queue.queue_id for one in answer.assignments] == wanted
            assert {one.mode for one in answer.assignments} == {MessageRequestMode.POP}

    check()


def test_a_mode_lasts_over_a_restart():
    async def main():
        files = MemoryFiles()
        rig = Rig(files=files).load()
        rig.send()
        rig.broker.groups.settings("billing")
        await put(rig)
        assert files.trees[FILE] == {
            "messageRequestModeMap": {
                "orders": {
                    "billing": {
                        "consumerGroup": "billing",
                        "mode": "PULL",
                        "popShareQueueNum": 0,
                        "topic": "orders",
                    }
                }
            }
        }
        again = Rig(files=files).load()
        request = GetAllRequestModes()
        kept = assignments.get_all_request_modes(request, again.broker, again.caller).modes
        assert kept["orders"]["billing"].mode is MessageRequestMode.PULL
        await rig.broker.close()
        await again.broker.close()

    run_on("asyncio", main())


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"topic": "%RETRY%billing"}, 16),
        ({"topic": "bills"}, 17),
        ({"group": "a b"}, 26),
        ({"mode": MessageRequestMode("PEEK")}, 3),
    ],
)
def test_modes_that_cannot_be_set(asked, code):
    @on_loop
    async def check(rig):
        rig.send()
        rig.broker.groups.settings("billing")
        with pytest.raises(ReplyError) as refused:
            await put(rig, **asked)
        assert refused.value.code == code
        assert rig.broker.modes.table == {}

    check()
