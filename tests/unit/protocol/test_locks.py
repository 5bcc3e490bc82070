from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.locks import LockQueues, UnlockQueues
from gantrymq.wire.command import Command

QUEUES = {MessageQueue("T", "b", 1), MessageQueue("T", "a", 2)}


def test_queues_are_written_in_their_order() -> None:
    command = LockQueues(group="CG", client_id="c1", queues=QUEUES, broker="a").command()
    assert command.fields == {"bname": "a"}
    assert b'"mqSet":[{"brokerName":"a","queueId":2,"topic":"T"},{"brokerName":"b"' in bytes(
        command.body
    )


def test_only_some_were_locked() -> None:
    request = LockQueues(group="CG", client_id="c1", queues=QUEUES)
    body = b'{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}'
    assert request.reply_from(Command(0, body=body)).locked == {MessageQueue("T", "b", 1)}


def test_unlocking_by_an_old_client() -> None:
    body = b'{"clientId":"c1","consumerGroup":"CG","mqSet":[{"brokerName":"b","topic":"T"}]}'
    request = UnlockQueues.from_command(Command(42, body=body))
    assert request.queues == {MessageQueue("T", "b", 0)}
    assert not request.only_this_broker
