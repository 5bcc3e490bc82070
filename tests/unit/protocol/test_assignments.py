from __future__ import annotations

from gantrymq.protocol.assignments import (
    GetAllRequestModes,
    QueryAssignment,
    RequestMode,
    SetRequestMode,
)
from gantrymq.protocol.enums import MessageRequestMode
from gantrymq.wire.command import Command


def test_a_strategy_that_the_broker_does_not_know() -> None:
    request = QueryAssignment(topic="T", group="CG", client_id="c1", strategy="MINE")
    assert request.reply_from(Command(0, body=b"{}")).assignments is None


def test_modes() -> None:
    setting = RequestMode(topic="T", group="CG", mode=MessageRequestMode.POP, shared_queues=2)
    text = b'{"consumerGroup":"CG","mode":"POP","popShareQueueNum":2,"topic":"T"}'
    command = SetRequestMode(setting=setting).command()
    assert (command.code, command.body) == (401, text)
    body = b'{"messageRequestModeMap":{"T":{"CG":' + text + b"}}}"
    reply = GetAllRequestModes().reply_from(Command(0, body=body))
    assert reply.modes == {"T": {"CG": setting}}
    assert reply.command().body == body
