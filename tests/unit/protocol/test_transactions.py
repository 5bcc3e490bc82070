from __future__ import annotations

from gantrymq.protocol.transactions import (
    CheckTransactionState,
    Decision,
    EndTransaction,
    ResumeHalfMessage,
)
from gantrymq.wire.command import Command

FIELDS = {
    "producerGroup": "PG", "tranStateTableOffset": "3", "commitLogOffset": "4096",
    "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "0A",
}  # fmt: skip


def test_end() -> None:
    request = EndTransaction(
        group="PG", half_offset=3, log_offset=4096, decision=Decision.COMMIT, message_id="0A",
        remark="it went wrong",
    )  # fmt: skip
    command = request.command()
    assert (command.code, command.fields, command.remark) == (37, FIELDS, "it went wrong")
    assert EndTransaction.from_command(command) == request


def test_a_decision_that_nobody_knows_is_carried_through() -> None:
    request = EndTransaction.from_command(Command(37, fields=FIELDS | {"commitOrRollback": "5"}))
    assert (request.decision, request.decision.known) == (5, False)


def test_check() -> None:
    fields = {
        "tranStateTableOffset": "3", "commitLogOffset": "4096", "msgId": "0A",
        "transactionId": "0A", "offsetMsgId": "0B", "bname": "broker-a",
    }  # fmt: skip
    request = CheckTransactionState.from_command(Command(39, fields=fields, body=b"record"))
    assert (request.half_offset, request.offset_id, request.broker) == (3, "0B", "broker-a")
    assert (request.command().fields, request.command().body) == (fields, b"record")


def test_resume() -> None:
    command = ResumeHalfMessage(topic="T", message_id="0B").command()
    assert (command.code, command.fields) == (323, {"topic": "T", "msgId": "0B"})
