"""Answers to request messages, on their way to who asked."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gantrymq.errors import BrokerFailure, CallTimeout
from gantrymq.protocol.base import Done
from gantrymq.protocol.sending import PushReplyMessage, SendReplyMessage
from gantrymq.wire import properties
from tests.unit.broker.people import Client, beat
from tests.unit.broker.rig import START_MS, Rig, on_loop, with_rig

TOPIC = "DefaultCluster_REPLY_TOPIC"


def answer(rig: Rig, **more: Any) -> Any:
    found = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "C1", "MSG_TYPE": "reply"}
    fields: dict[str, Any] = {
        "group": "helpers",
        "topic": TOPIC,
        "queue_id": 0,
        "born_ms": START_MS - 5,
        "properties": properties.join(found),
        "body": b"42",
    } | more
    return rig.answer(SendReplyMessage(**fields))


def asker(rig: Rig, answers: Any = None) -> Client:
    one = Client(client_id="asker", answers=answers or (lambda request: Done()))
    beat(rig, one, produces=("askers",))
    return one


async def refusal(rig: Rig, **more: Any) -> tuple[int, str | None, dict[str, str]]:
    with pytest.raises(BrokerFailure) as caught:
        await answer(rig, **more)
    return caught.value.code, caught.value.remark, dict(caught.value.fields)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "gantrymq.broker")


@on_loop
async def test_an_answer_goes_to_who_asked_and_into_the_store(rig):
    client = asker(rig)
    reply = await answer(rig, flag=3, flags=1, reconsume_times=0)
    (push,) = client.asked
    assert isinstance(push, PushReplyMessage)
    assert (push.topic, push.group, push.body, push.flag, push.flags) == (
        TOPIC, "helpers", b"42", 3, 1,
    )  # fmt: skip
    found = properties.split(push.properties)
    assert (found["CORRELATION_ID"], found["PUSH_REPLY_TIME"]) == ("C1", str(START_MS))
    assert (push.born_host, push.store_host) == ("/192.0.2.9:50123", "/10.0.0.1:10911")
    (stored,) = rig.stored(TOPIC)
    assert (stored.body, stored.flag, stored.sys_flag) == (b"42", 3, 1)
    assert (reply.message_id, reply.queue_id, reply.offset) == (stored.offset_id, 0, 0)


@with_rig(sends__store_replies=False)
async def test_it_need_not_be_stored(rig):
    asker(rig)
    reply = await answer(rig, queue_id=-1)
    assert (reply.message_id, reply.queue_id, reply.offset) == ("0", 0, 0)
    assert rig.stored(TOPIC) == []


@on_loop
async def test_who_cannot_be_reached_is_told_of(rig):
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    gone = "push reply message fail, channel of <asker> not found."
    assert await refusal(rig) == (1, gone, fields)
    client = asker(rig)
    client.is_open = False
    assert await refusal(rig) == (1, gone, fields)
    rig.broker.left(client)
    assert await refusal(rig) == (1, gone, fields)
    remark = "reply message properties[REPLY_TO_CLIENT] is null"
    assert await refusal(rig, properties=None) == (1, remark, fields)
    assert len(rig.stored(TOPIC)) == 4


@pytest.mark.parametrize("error", [BrokerFailure(1, "not mine"), CallTimeout("no reply")])
def test_a_client_that_does_not_take_it_is_told_of(error):
    @on_loop
    async def test(rig):
        def answers(request):
            raise error

        asker(rig, answers)
        assert (await refusal(rig))[1] == "push reply message to askerfail."

    test()


@on_loop
async def test_a_client_that_came_back_is_found_by_its_new_connection(rig):
    old, new = asker(rig), asker(rig)
    rig.broker.left(old)
    await answer(rig)
    assert (len(old.asked), len(new.asked)) == (0, 1)


@on_loop
async def test_the_checks_are_those_of_every_message(rig):
    asker(rig)
    with pytest.raises(Exception, match="queueId") as caught:
        await answer(rig, queue_id=7)
    assert caught.value.code == 29


@on_loop
async def test_an_answer_that_cannot_be_stored_is_an_answer_all_the_same(rig):
    client = asker(rig)
    rig.disk.capacity = rig.disk.used
    rig.store.clean()
    reply = await answer(rig)
    assert (reply.message_id, len(client.asked)) == ("0", 1)
