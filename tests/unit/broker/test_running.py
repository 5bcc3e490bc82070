"""Questions that are passed on to a client."""

import pytest

from gantrymq.broker import running
from gantrymq.errors import BrokerFailure, CallTimeout, ConnectionLost, ReplyError
from gantrymq.protocol.running import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    GetRunningInfo,
    RunningInfo,
)
from gantrymq.wire.record import decode
from tests.unit.broker.people import Client, beat
from tests.unit.broker.rig import on_loop


def fails(error):
    def answer(_request):
        raise error

    return answer


async def info(rig, client_id="client-1"):
    request = GetRunningInfo(group="billing", client_id=client_id, stacks=True)
    return await running.get_running_info(request, rig.broker, rig.caller)


@on_loop
async def test_a_client_is_asked_what_it_does_and_its_answer_comes_back(rig):
    said = RunningInfo(properties={"PROP_CONSUMEORDERLY": "false"}, stacks="main")
    one = Client(answers=lambda _: said)
    beat(rig, one, consumes={"billing": []})
    assert await info(rig) is said
    assert one.asked == [GetRunningInfo(group="billing", client_id="client-1", stacks=True)]


@on_loop
async def test_a_client_that_is_not_there_or_too_old_is_not_asked(rig):
    with pytest.raises(BrokerFailure, match="The Consumer <billing> <client-1> not online"):
        await info(rig)
    beat(rig, Client(version=61), consumes={"billing": []})
    with pytest.raises(BrokerFailure, match="too low to finish, please upgrade it"):
        await info(rig)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CallTimeout("in 10 s"), 207, "consumer <billing> <client-1> Timeout: in 10 s"),
        (ConnectionLost("cut"), 1, "invoke consumer <billing> <client-1> Exception: cut"),
        (ReplyError.for_code(1, "unknown group"), 1, "unknown group"),
    ],
)
def test_what_goes_wrong_there_is_told_here(error, code, text):
    @on_loop
    async def check(rig):
        beat(rig, Client(answers=fails(error)), consumes={"billing": []})
        with pytest.raises(ReplyError) as refused:
            await info(rig)
        assert (refused.value.code, refused.value.remark) == (code, text)

    check()


@on_loop
async def test_a_client_is_given_a_message_to_consume_now(rig):
    rig.send(body=b"once more")
    (stored,) = rig.stored()
    said = ConsumeDirectlyReply(spent_ms=5)
    one = Client(answers=lambda _: said)
    beat(rig, one, consumes={"billing": []})
    rig.broker.topics.table["orders"].flags = 3
    request = ConsumeDirectly(
        group="billing", client_id="client-1", topic="orders", message_id=stored.offset_id
    )
    assert await running.consume_directly(request, rig.broker, rig.caller) is said
    (order,) = one.asked
    assert decode(order.body) == stored
    assert (order.broker_name, order.topic_flags, order.group_flags) == ("broker-a", 3, 0)
    assert order.message_id == stored.offset_id


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        (None, "0 characters"),
        ("zz", "2 characters"),
        ("0A000001000029FF000000000000FFFF", "can not find message by the offset, 65535"),
    ],
)
def test_a_message_that_is_not_there_is_given_to_nobody(message_id, text):
    @on_loop
    async def check(rig):
        beat(rig, Client(), consumes={"billing": []})
        request = ConsumeDirectly(group="billing", client_id="client-1", message_id=message_id)
        with pytest.raises(BrokerFailure, match=text):
            await running.consume_directly(request, rig.broker, rig.caller)

    check()
