from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from gantrymq.errors import (
    BrokerFailure,
    CallTimeout,
    ClusterTooOld,
    ConnectFailed,
    ConnectionLost,
    GoingAway,
    InvalidInput,
    MessageIllegal,
    NoBuyerId,
    NoPermission,
    NotInCurrentUnit,
    ReplyError,
    SendFailed,
    SendTimeout,
    ServiceUnavailable,
    SystemBusy,
    TopicNotFound,
)
from gantrymq.flows.sending import Choice, send_oneway, split_receipt
from gantrymq.model import Message, MessageQueue, SendStatus
from gantrymq.protocol.sending import SendMessage
from gantrymq.rules.selectors import select_by_hash
from gantrymq.runtime import run_blocking
from gantrymq.wire import batch, properties
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.compression import decompress
from gantrymq.wire.flags import Compression, compression_of
from gantrymq.wire.versions import V4_9_3
from tests.unit.flows.sending_rig import NOW_MS, Rig, stored

DOWN = ConnectFailed("connecting to a:1 failed: refused")


def found(request: SendMessage) -> dict[str, str]:
    return properties.split(request.properties or "")


# The receipt, and what is sent for it


def test_a_message_is_stored_and_its_receipt_says_where() -> None:
    rig = Rig()
    receipt = rig.send(Message("orders", b"hello", tag="t", keys=("k1", "k2"), flag=7))
    assert receipt.queue == MessageQueue("orders", "a", 0)
    assert receipt.stored_safely
    (request,) = rig.requests
    assert (request.group, request.topic, request.body) == ("shop", "orders", b"hello")
    assert (request.flag, request.born_ms, request.broker) == (7, NOW_MS, "a")
    assert (request.default_topic, request.default_topic_queues) == ("TBW102", 4)
    assert found(request) == {
        "UNIQ_KEY": receipt.message_id,
        "WAIT": "true",
        "TAGS": "t",
        "KEYS": "k1 k2",
    }


def test_what_was_handed_in_is_left_as_it_is() -> None:
    rig = Rig(namespace="space")
    message = Message("orders", b"x" * 5000, properties={"a": "b"})
    rig.send(message)
    assert message == Message("orders", b"x" * 5000, properties={"a": "b"})


@pytest.mark.parametrize("kind", Compression)
def test_bodies_of_the_threshold_and_more_are_compressed(kind: Compression) -> None:
    rig = Rig(compression=kind)
    for size in (4095, 4096):
        rig.send(Message("orders", b"x" * size))
    small, large = rig.requests
    assert (small.flags, len(small.body)) == (0, 4095)
    assert compression_of(large.flags) is kind
    assert decompress(large.body, kind) == b"x" * 4096


def test_a_namespace_is_put_in_front_and_taken_off_again() -> None:
    rig = Rig(namespace="space")
    receipt = rig.send()
    assert rig.requests[0].topic == "space%orders"
    assert found(rig.requests[0])["INSTANCE_ID"] == "space"
    assert receipt.queue.topic == "orders"


def test_the_long_header_is_written_if_asked_for() -> None:
    rig = Rig(long_header=True)
    rig.send()
    command = rig.requests[0].command()
    assert command.code == RequestCode.SEND_MESSAGE
    assert command.fields["producerGroup"] == "shop"


def test_retries_of_a_consumer_travel_in_the_header() -> None:
    rig = Rig()
    draft = rig.sender.drafting.one(
        Message("%RETRY%billing", b"x"), {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16"}
    )
    assert (draft.request.reconsume_times, draft.request.max_reconsume_times) == (3, 16)
    assert "RECONSUME_TIME" not in draft.properties


# Retries: C5, C6


def test_a_failed_broker_is_passed_over() -> None:
    rig = Rig()
    rig.at("a", DOWN)
    assert rig.send().queue.broker == "b"
    assert rig.brokers == "a b"
    assert rig.places.doubted == ["orders"]


@pytest.mark.parametrize(("mode", "attempts"), [("sync", 3), ("async", 3)])
def test_three_attempts(mode: str, attempts: int) -> None:
    rig = Rig()
    rig.at("a", DOWN)
    rig.at("b", DOWN)
    with pytest.raises(SendFailed) as failed:
        rig.send(mode=mode)
    assert len(rig.world.calls) == attempts
    assert failed.value.brokers == ("a", "b", "a")


RETRIED = (
    TopicNotFound, ServiceUnavailable, BrokerFailure, SystemBusy, NoPermission, NoBuyerId,
    NotInCurrentUnit, GoingAway,
)  # fmt: skip


@pytest.mark.parametrize("refusal", RETRIED)
def test_answers_that_another_broker_may_not_give(refusal: type[ReplyError]) -> None:
    rig = Rig()
    rig.at("a", refusal.because("no"))
    assert rig.send().queue.broker == "b"


def test_other_answers_end_it_at_once() -> None:
    rig = Rig()
    rig.at("a", MessageIllegal.because("too large"))
    with pytest.raises(SendFailed, match="maxMessageSize") as failed:
        rig.send()
    assert rig.brokers == "a"
    assert failed.value.code == 13
    assert isinstance(failed.value.__cause__, MessageIllegal)


def test_an_interruption_ends_it_at_once() -> None:
    rig = Rig()

    def interrupt(request: SendMessage) -> Exception:
        raise KeyboardInterrupt

    rig.at("a", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rig.send()
    assert rig.brokers == "a"


def test_a_chosen_queue_has_one_attempt() -> None:
    rig = Rig()
    rig.at("a", DOWN)
    with pytest.raises(SendFailed):
        rig.send(choice=Choice(queue=MessageQueue("orders", "a", 3)))
    assert rig.brokers == "a"
    assert rig.requests[0].queue_id == 3


def test_the_same_argument_goes_to_the_same_queue() -> None:
    rig = Rig()
    for _ in range(3):
        rig.send(choice=Choice(selector=select_by_hash, argument="cust-42"))
    assert len({(request.broker, request.queue_id) for request in rig.requests}) == 1


def test_the_only_broker_is_left_a_moment_before_it_is_tried_again() -> None:
    rig = Rig("a")
    rig.at("a", SystemBusy.because("busy"), stored())
    assert rig.send().queue.broker == "a"
    (pause,) = rig.world.slept
    assert 0.05 <= pause <= 0.1


# One time budget


def test_each_attempt_gets_what_is_left() -> None:
    rig = Rig()
    rig.at("a", ConnectionLost("gone"), takes=1.0)
    rig.at("b", ConnectionLost("gone"), takes=1.0)
    with pytest.raises(SendFailed):
        rig.send(timeout=3.0)
    assert rig.world.timeouts == [3.0, 2.0, 1.0]


def test_past_the_budget_it_is_a_time_out() -> None:
    rig = Rig()
    rig.at("a", stored(), takes=60.0)
    rig.at("b", stored(), takes=60.0)
    with pytest.raises(SendTimeout, match="call timeout") as late:
        rig.send(timeout=3.0)
    assert rig.brokers == "a"
    assert rig.world.timeouts == [3.0]
    assert isinstance(late.value, TimeoutError)
    assert late.value.elapsed == pytest.approx(3.0)
    assert late.value.code == 10002


def test_a_capped_attempt_leaves_time_for_another() -> None:
    rig = Rig(longest_attempt=1.0)
    rig.at("a", stored(), takes=60.0)
    assert rig.send(timeout=3.0).queue.broker == "b"
    assert rig.world.timeouts == [1.0, 1.0]


# What is said in the end: C8


def test_the_error_names_topic_brokers_time_code_and_remedy() -> None:
    rig = Rig()
    rig.at("a", DOWN, takes=0.1)
    rig.at("b", DOWN, takes=0.1)
    with pytest.raises(SendFailed) as failed:
        rig.send()
    error = failed.value
    assert "Send [3] times, still failed, cost [300]ms, Topic: orders" in str(error)
    assert "BrokersSent: [a, b, a]" in str(error)
    assert "brokerIP1" in error.hint
    assert error.hint in str(error)
    assert (error.topic, error.code, error.maybe_stored) == ("orders", 10001, False)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.brokers, again.code) == (str(error), error.brokers, error.code)


@pytest.mark.parametrize(
    ("error", "maybe"),
    [(CallTimeout("no reply"), True), (ConnectionLost("reset"), True), (DOWN, False)],
)
def test_whether_it_may_be_stored(error: Exception, maybe: bool) -> None:
    rig = Rig()
    rig.at("a", error, DOWN)
    rig.at("b", SystemBusy.because("busy"))
    with pytest.raises(SendFailed) as failed:
        rig.send()
    assert failed.value.maybe_stored is maybe


def test_no_route_says_so() -> None:
    rig = Rig()
    rig.places.known = rig.places.there = False
    with pytest.raises(SendFailed, match="no route info of this topic: orders") as failed:
        rig.send()
    assert failed.value.code == 10005
    assert failed.value.brokers == ()


def test_a_broker_without_an_address_is_looked_up_once_more() -> None:
    rig = Rig()
    rig.places.nowhere = {"a"}
    assert rig.send().queue.broker == "b"
    assert rig.places.renewed == ["orders"]
    rig.places.nowhere = {"a", "b"}
    with pytest.raises(SendFailed, match=r"The broker\[.\] not exist") as failed:
        rig.send()
    assert failed.value.code == 10003


# Stored, but not as safely: C7


@pytest.mark.parametrize("status", [s for s in SendStatus if s is not SendStatus.OK])
def test_an_unsafe_store_is_a_status(status: SendStatus) -> None:
    rig = Rig()
    rig.at("a", stored(status))
    receipt = rig.send()
    assert receipt.status is status
    assert not receipt.stored_safely


def test_an_unsafe_store_is_tried_again_if_asked_for() -> None:
    rig = Rig(another_broker_when_not_stored=True)
    rig.at("a", stored(SendStatus.FLUSH_DISK_TIMEOUT))
    assert rig.send().queue.broker == "b"
    rig.at("b", DOWN)
    assert rig.send().status is SendStatus.FLUSH_DISK_TIMEOUT  # better than an error


# Before anything is sent: C2


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("", b"x"), "blank"),
        (Message("a b", b"x"), "illegal"),
        (Message("o" * 128, b"x"), "127"),
        (Message("orders", b""), "zero"),
        (Message("orders", b"x" * (4 * 1024 * 1024 + 1)), "4194304"),
        (Message("orders", "x"), "encoded"),  # type: ignore[arg-type]
        (Message("orders", b"x", properties={"UNIQ_KEY": "1"}), "system"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(message: Message, text: str) -> None:
    rig = Rig()
    with pytest.raises(InvalidInput, match=text):
        rig.send(message)
    assert not rig.world.calls


# Delays


def test_delays_are_timers_where_there_are_timers() -> None:
    rig = Rig()
    one = rig.sender.drafting.one
    at = datetime(2030, 1, 1, tzinfo=UTC)
    after = one(Message("orders", b"x", delay=timedelta(seconds=7)), version=rig.places.version)
    assert after.properties["TIMER_DELAY_MS"] == "7000"
    due = one(Message("orders", b"x", deliver_at=at), version=rig.places.version)
    assert due.properties["TIMER_DELIVER_MS"] == str(round(at.timestamp() * 1000))


def test_delays_are_levels_where_there_are_levels_alone() -> None:
    one = Rig().sender.drafting.one
    draft = one(Message("orders", b"x", delay=timedelta(minutes=10)), version=V4_9_3)
    assert draft.properties["DELAY"] == "14"
    for message in (
        Message("orders", b"x", delay=timedelta(seconds=7)),
        Message("orders", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)),
    ):
        with pytest.raises(ClusterTooOld, match=r"4\.9\.3.*delay levels"):
            one(message, version=V4_9_3)


def test_a_time_without_a_zone_and_two_ways_of_delay_are_refused() -> None:
    one = Rig().sender.drafting.one
    with pytest.raises(InvalidInput, match="time zone"):
        one(Message("orders", b"x", deliver_at=datetime(2030, 1, 1)))
    with pytest.raises(InvalidInput, match="one way"):
        one(Message("orders", b"x", delay=timedelta(seconds=1), delay_level=3))


# One-way


def test_one_way_is_one_attempt_and_no_answer() -> None:
    rig = Rig()
    draft = rig.sender.drafting.one(Message("orders", b"x"))
    run_blocking(send_oneway(rig.world, rig.sender, draft))
    assert [address for address, _ in rig.world.told] == ["a:1"]
    assert not rig.world.calls
    rig.at("b", DOWN)
    with pytest.raises(SendFailed) as failed:
        draft = rig.sender.drafting.one(Message("orders", b"x"))
        run_blocking(send_oneway(rig.world, rig.sender, draft, choice=Choice(queue=Q_B)))
    assert failed.value.brokers == ("b",)


Q_B = MessageQueue("orders", "b", 0)


# Batches: C15


def test_a_batch_is_split_by_size_and_every_message_has_a_receipt() -> None:
    rig = Rig(max_body=1000)
    messages = [Message("orders", b"x" * 300, keys=(str(n),)) for n in range(5)]
    drafts = rig.sender.drafting.batches(messages)
    assert [len(draft.ids) for draft in drafts] == [2, 2, 1]
    assert all(len(draft.request.body) <= 1000 for draft in drafts)
    receipt = rig.send_draft(drafts[0])
    one, two = split_receipt(receipt, drafts[0])
    assert (one.message_id, two.message_id) == drafts[0].ids
    assert (one.offset, two.offset) == (3, 4)
    inside = batch.decode(drafts[0].request.body)
    assert [properties.find(m.property_bytes, "KEYS") for m in inside] == ["0", "1"]


def test_a_batch_is_never_compressed() -> None:
    rig = Rig()
    (draft,) = rig.sender.drafting.batches([Message("orders", b"x" * 9000)] * 2)
    assert draft.request.flags == 0


@pytest.mark.parametrize(
    "second",
    [
        Message("other", b"x"),
        Message("orders", b"x", wait_stored=False),
        Message("orders", b"x", delay_level=1),
        Message("orders", b"x", delay=timedelta(seconds=1)),
    ],
)
def test_what_cannot_travel_together(second: Message) -> None:
    with pytest.raises(InvalidInput, match="message 2 of 2"):
        Rig().sender.drafting.batches([Message("orders", b"x"), second])
