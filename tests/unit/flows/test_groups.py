import pytest

from gantrymq.errors import BrokerFailure, CallTimeout, ConnectFailed, NoPermission
from gantrymq.flows import groups
from gantrymq.flows.groups import REASON, TRACEBACK, Failed, Verdict
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.groups import ConsumerListReply, GetConsumerList, UnregisterClient
from gantrymq.protocol.locks import LockQueues, LockQueuesReply, UnlockQueues
from gantrymq.protocol.sending import SendBack, SendMessage, SendReply
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire import properties
from gantrymq.wire.flags import Compression, Transaction
from gantrymq.wire.record import StoredMessage

A, B = "a:10911", "b:10911"
STORED = SendReply(message_id="X", queue_id=0, offset=1)


def message(*, retries: int = 0, **found: str) -> StoredMessage:
    return StoredMessage(
        "orders" if not retries else "%RETRY%billing",
        b"squeezed",
        properties.encode(found),
        queue_id=2,
        queue_offset=7,
        log_offset=4711,
        flag=5,
        sys_flag=Compression.ZSTD.bits | Transaction.COMMIT,
        reconsume_times=retries,
    )


def give_back(runtime, one=None, address=A, others=(), **verdict):
    failed = Failed(
        message=one or message(),
        broker="broker-a",
        group="billing",
        verdict=Verdict(**verdict),
        born_ms=1_000,
        others=others,
    )
    run_blocking(groups.give_back(runtime, address, failed))


def sent(runtime):
    ((address, request),) = [
        call for call in runtime.asked(SendMessage) if call[1] is runtime.calls[-1][1]
    ]
    return address, request, properties.split(request.properties)


# --- members and locks ----------------------------------------------------------------------------


def test_the_first_broker_that_knows_the_members_is_believed():
    runtime = ScriptedRuntime()
    runtime.answer(A, GetConsumerList, BrokerFailure.because("no consumer for this group"))
    runtime.answer(B, GetConsumerList, ConsumerListReply(client_ids=["c2", "c1"]))
    assert run_blocking(groups.members(runtime, ["gone:1", A, B], "billing")) == ["c1", "c2"]


def test_nobody_knows_the_members():
    runtime = ScriptedRuntime()
    runtime.answer(A, GetConsumerList, ConsumerListReply())
    assert run_blocking(groups.members(runtime, [A, "gone:1"], "billing")) is None


def test_locks_and_leaving():
    queue = MessageQueue("orders", "broker-a", 0)
    runtime = ScriptedRuntime()
    runtime.answer(A, LockQueues, LockQueuesReply(locked={queue}))
    runtime.answer(A, UnlockQueues, Done())
    runtime.answer(A, UnregisterClient, Done())
    assert run_blocking(groups.lock(runtime, A, "billing", "c1", [queue])) == {queue}
    run_blocking(groups.unlock(runtime, A, "billing", "c1", [queue]))
    run_blocking(groups.leave(runtime, A, "billing", "c1"))
    assert runtime.calls[-1][1].consumer_group == "billing"
    assert runtime.calls[-1][1].producer_group is None


# --- giving back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 5, -1])
def test_the_broker_that_has_it_takes_it_back(level):
    runtime = ScriptedRuntime()
    runtime.answer(A, SendBack, Done())
    give_back(runtime, level=level, most=16)
    ((_, asked),) = runtime.calls
    assert (asked.log_offset, asked.group, asked.delay_level) == (4711, "billing", level)
    assert (asked.topic, asked.max_reconsume_times) == ("orders", 16)


def test_what_is_given_up_takes_its_reason_along():
    runtime = ScriptedRuntime()
    runtime.answer(A, SendMessage, STORED)
    give_back(
        runtime,
        message(retries=3, RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="ID", TAGS="paid", DELAY="6"),
        level=-1,
        reason="ValueError: x\x01y",
        traceback="line 1\nline 2",
    )
    address, request, found = sent(runtime)
    assert (address, request.topic, request.queue_id) == (A, "%RETRY%billing", 0)
    assert request.reconsume_times > request.max_reconsume_times == 0
    assert request.body == b"squeezed"
    assert (request.flags, request.flag) == (Compression.ZSTD.bits, 5)
    assert found == {
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "ID",
        "TAGS": "paid",
        "DLQ_ORIGIN_TOPIC": "orders",
        "DLQ_ORIGIN_MESSAGE_ID": message().offset_id,
        REASON: "ValueError: x y",
        TRACEBACK: "line 1\nline 2",
    }


@pytest.mark.parametrize(("retries", "given_up"), [(2, False), (3, True), (4, True)])
def test_the_last_failure_that_it_may_have_gives_it_up(retries, given_up):
    runtime = ScriptedRuntime()
    runtime.answer(A, SendBack, Done())
    runtime.answer(A, SendMessage, STORED)
    one = message(retries=retries, RETRY_TOPIC="orders")
    give_back(runtime, one, most=3, reason="ValueError: x")
    ((_, asked),) = runtime.calls
    assert isinstance(asked, SendMessage if given_up else SendBack)


def test_a_reason_is_cut_to_what_a_message_can_hold():
    runtime = ScriptedRuntime()
    runtime.answer(A, SendMessage, STORED)
    give_back(runtime, level=-1, reason="é" * 3_000, traceback="t" * 100_000 + "end")
    _, request, found = sent(runtime)
    assert found[REASON] == "é" * 512
    assert found[TRACEBACK] == "t" * 8_189 + "end"
    give_back(
        runtime, message(mine="x" * 31_000), level=-1, reason="why", traceback="t" * 1000 + "end"
    )
    _, request, found = sent(runtime)
    assert found[REASON] == "why"
    assert found[TRACEBACK].endswith("end")
    assert len(request.properties.encode()) < properties.MAX_SIZE - 1_000


def test_without_its_broker_it_goes_to_another_with_a_delay():
    runtime = ScriptedRuntime()
    runtime.answer(A, SendBack, CallTimeout("late"))
    runtime.answer(A, SendMessage, ConnectFailed("gone"))
    runtime.answer(B, SendMessage, STORED)
    give_back(runtime, message(mine="1"), others=[("broker-a", A), ("broker-b", B)], most=16)
    address, request, found = sent(runtime)
    assert address == B
    assert (request.reconsume_times, request.max_reconsume_times) == (1, 16)
    assert found["DELAY"] == "3"
    assert found["RETRY_TOPIC"] == "orders"
    assert found["mine"] == "1"
    assert len(runtime.calls) == 3


def test_a_broker_that_is_not_known_is_left_out():
    runtime = ScriptedRuntime()
    runtime.answer(B, SendMessage, STORED)
    give_back(runtime, message(retries=2, RETRY_TOPIC="orders"), None, [("broker-b", B)], level=7)
    _, request, found = sent(runtime)
    assert (request.reconsume_times, found["DELAY"]) == (3, "7")


def test_given_up_without_its_reason_rather_than_not_at_all():
    runtime = ScriptedRuntime()
    runtime.answer(A, SendMessage, NoPermission.because("no"))
    runtime.answer(A, SendBack, Done())
    give_back(runtime, level=-1, reason="ValueError: x")
    assert [type(asked) for _, asked in runtime.calls] == [SendMessage, SendBack]
    assert runtime.calls[-1][1].delay_level == -1


def test_nobody_takes_it():
    runtime = ScriptedRuntime()
    runtime.answer(A, SendBack, CallTimeout("late"))
    runtime.answer(A, SendMessage, ConnectFailed("gone"))
    with pytest.raises(CallTimeout, match="late"):
        give_back(runtime)
    with pytest.raises(BrokerFailure, match="no broker is known"):
        give_back(ScriptedRuntime(), address=None)


def test_a_message_that_does_not_say_where_it_came_from_stays():
    with pytest.raises(BrokerFailure):
        runtime = ScriptedRuntime()
        runtime.answer(A, SendBack, BrokerFailure.because("look message by offset failed"))
        give_back(runtime, message(retries=1))
