import pytest

from gantrymq.errors import ConnectFailed, RemoteProtocolError
from gantrymq.flows import popping
from gantrymq.flows.popping import Asked, Wish
from gantrymq.protocol.base import Done
from gantrymq.protocol.pop_handles import PopHandle
from gantrymq.protocol.popping import (
    AckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeReply,
    PopMessages,
    PopReply,
    PopStatus,
)
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

A, B = "a:10911", "b:10911"
BOTH = (("broker-a", A), ("broker-b", B))
NOTHING = PopReply(status=PopStatus.POLLING_TIMEOUT)
WISH = Wish(
    group="billing",
    topic="orders",
    expression="*",
    expression_type="TAG",
    most=100,
    invisible=60.0,
    from_end=False,
)


def stored(offset: int, queue: int = 3, topic: str = "orders", **found: str) -> StoredMessage:
    raw = properties.encode(found)
    return StoredMessage(topic, b"x", raw, queue_id=queue, queue_offset=offset)


def popped(*messages: StoredMessage, starts: str = "0 3 100", offsets: str = "0 3 100,101"):
    return PopReply(
        pop_ms=5_000,
        invisible_ms=60_000,
        revive_queue_id=4,
        start_offsets=starts,
        offsets=offsets,
        body=b"".join(message.encode() for message in messages),
    )


def handles(found):
    return [str(one.handle) for one in found]


def test_handles_are_made_from_the_infos():
    found = popping.with_handles(popped(stored(100), stored(101)), "broker-a", "orders")
    assert handles(found) == [
        "100 5000 60000 4 0 broker-a 3 100",
        "100 5000 60000 4 0 broker-a 3 101",
    ]


def test_a_handle_that_the_broker_made_is_kept():
    own = "7 5000 60000 4 1 broker-a 0 8"
    found = popping.with_handles(popped(stored(8, 0, POP_CK=own)), "broker-a", "orders")
    assert handles(found) == [own]


@pytest.mark.parametrize(
    ("retry", "kind"), [("%RETRY%billing_orders", 1), ("%RETRY%billing+orders", 2)]
)
def test_messages_of_retry_topics(retry, kind):
    reply = popped(
        stored(100),
        stored(5, 0, retry),
        starts=f"0 3 100;{kind} 0 5",
        offsets=f"0 3 100;{kind} 0 5",
    )
    found = popping.with_handles(reply, "broker-a", "orders")
    assert handles(found)[1] == f"5 5000 60000 4 {kind} broker-a 0 5"
    assert popping.topic_of(found[0].handle, "billing", "orders") == "orders"
    assert popping.topic_of(found[1].handle, "billing", "orders") == retry


def test_more_messages_than_offsets_are_a_fault():
    with pytest.raises(RemoteProtocolError, match="popped 1 messages of queue 3 and sent 2"):
        popping.with_handles(popped(stored(100), stored(101), offsets="0 3 100"), "b", "orders")


def receive(runtime, brokers=BOTH, wait=0.0):
    asked = [Asked(WISH, broker, address) for broker, address in brokers]
    return run_blocking(popping.receive(runtime, asked, now_ms=1_000, wait=wait))


def test_whoever_has_something_is_taken_from_without_waiting():
    runtime = ScriptedRuntime()
    runtime.answer(A, PopMessages, NOTHING)
    runtime.answer(B, PopMessages, popped(stored(100)))
    (found,) = receive(runtime, wait=15.0)
    assert found.broker == "broker-b"
    assert [asked.poll_ms for _, asked in runtime.calls] == [0, 0]
    assert {asked.max_messages for _, asked in runtime.calls} == {32}


def test_several_are_waited_at_in_turns():
    def waits(request):
        runtime.time += request.poll_ms / 1000
        return popped(stored(100)) if runtime.time > 4 else NOTHING

    runtime = ScriptedRuntime()
    runtime.answer(A, PopMessages, waits)
    runtime.answer(B, PopMessages, waits)
    assert len(receive(runtime, wait=15.0)) == 1
    assert [(at, asked.poll_ms, asked.born_ms) for at, asked in runtime.calls[2:]] == [
        (A, 2000, 1000),
        (B, 2000, 3000),
        (A, 2000, 5000),
    ]


def test_one_alone_is_waited_at_for_as_long_as_it_may_be():
    def waits(request):
        runtime.time += request.poll_ms / 1000
        return NOTHING

    runtime = ScriptedRuntime()
    runtime.answer(A, PopMessages, waits)
    assert receive(runtime, BOTH[:1], wait=15.0) == []
    assert [asked.poll_ms for _, asked in runtime.calls] == [0, 15_000]


def test_one_that_comes_again_from_a_queue_of_the_same_number_is_no_other():
    own = "1 5000 60000 4 1 broker-a 0 1"
    again, first = stored(1, 0, POP_CK=own), stored(6, 0)
    reply = popped(again, first, starts="1 0 1;0 0 6", offsets="1 0 1;0 0 6")
    found = popping.with_handles(reply, "broker-a", "orders")
    assert handles(found) == [own, "6 5000 60000 4 0 broker-a 0 6"]


def test_clocks_that_differ_cost_no_messages_and_no_busy_loop():
    runtime = ScriptedRuntime()
    runtime.answer(A, PopMessages, lambda _: popped(stored(100)) if runtime.time > 1 else NOTHING)
    assert len(receive(runtime, BOTH[:1], wait=15.0)) == 1
    at_once, *waiting = (asked for _, asked in runtime.calls)
    assert at_once.born_ms > 3_000_000
    assert len(waiting) == 7


def test_a_broker_that_is_away_does_not_keep_from_the_other():
    runtime = ScriptedRuntime()
    runtime.answer(B, PopMessages, [NOTHING, popped(stored(100))])
    assert len(receive(runtime, wait=1.0)) == 1
    with pytest.raises(ConnectFailed):
        receive(ScriptedRuntime())


def test_acknowledging_and_hiding():
    handle = PopHandle.read("100 5000 60000 4 1 broker-a 3 101")
    runtime = ScriptedRuntime()
    runtime.answer(A, AckMessage, Done())
    times = ChangeInvisibleTimeReply(pop_ms=9_000, invisible_ms=30_000, revive_queue_id=2)
    runtime.answer(A, ChangeInvisibleTime, times)
    flow = popping.change_invisibility(runtime, A, "billing", "orders", handle, 30.0)
    newer = run_blocking(flow)
    assert str(newer) == "100 9000 30000 2 1 broker-a 3 101"
    run_blocking(popping.acknowledge(runtime, A, "billing", "orders", newer))
    hidden, acked = (asked for _, asked in runtime.calls)
    assert (hidden.topic, hidden.offset, hidden.invisible_ms) == (
        "%RETRY%billing_orders",
        101,
        30_000,
    )
    assert acked.handle == str(newer)
