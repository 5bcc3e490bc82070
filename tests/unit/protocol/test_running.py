from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.enums import ConsumeResult
from gantrymq.protocol.running import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeStatus,
    GetRunningInfo,
    PoppedQueue,
    PulledQueue,
    RunningInfo,
)
from gantrymq.wire.command import Command


def test_running_info() -> None:
    request = GetRunningInfo(group="CG", client_id="c1", stacks=True)
    assert request.command().fields == {
        "consumerGroup": "CG", "clientId": "c1", "jstackEnable": "true",
    }  # fmt: skip
    queue = MessageQueue("T", "b", 1)
    info = RunningInfo(
        properties={"PROP_CONSUMEORDERLY": "false"},
        queues={queue: PulledQueue(dropped=True, cached=3)},
        popped_queues={queue: PoppedQueue(dropped=True)},
        topics={"T": ConsumeStatus(consumed_tps=1.5)},
    )
    body = bytes(info.command().body)
    assert body.count(b'"droped":true') == 2
    assert b'"mqPopTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{' in body
    assert b'"statusTable":{"T":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,' in body
    assert request.reply_from(info.command()) == info


def test_consuming_directly() -> None:
    request = ConsumeDirectly(group="CG", client_id="c1", message_id="0A", broker_name="b")
    assert request.command().fields == {
        "consumerGroup": "CG", "clientId": "c1", "msgId": "0A", "brokerName": "b",
    }  # fmt: skip
    body = (
        b'{"autoCommit":true,"consumeResult":"CR_THROW_EXCEPTION","order":false,"remark":"x",'
        b'"spentTimeMills":5}'
    )
    reply = request.reply_from(Command(0, body=body))
    assert reply == ConsumeDirectlyReply(result=ConsumeResult.THREW, explanation="x", spent_ms=5)
    assert reply.command().body == body
