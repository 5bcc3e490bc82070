import pytest

from gantrymq.errors import CallTimeout, ConnectFailed, InvalidInput, TopicNotFound
from gantrymq.flows import pulling
from gantrymq.flows.pulling import OffsetsGone, Range, exact_tags, subscription_data
from gantrymq.model import MessageQueue
from gantrymq.protocol.pulling import PullMessage, PullReply, PullStatus
from gantrymq.runtime import iterate_blocking, run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.flags import WRAPPED_BITS
from gantrymq.wire.record import StoredMessage

A, B = "a:10911", "b:10911"
QUEUE = MessageQueue("orders", "broker-a", 0)


def stored(offset: int, tag: str = "", **how: object) -> StoredMessage:
    raw = properties.encode({"TAGS": tag}) if tag else b""
    fields = {"topic": "orders", "body": b"%d" % offset, "property_bytes": raw}
    return StoredMessage(queue_offset=offset, **(fields | how))  # type: ignore[arg-type]


def reply(*messages: StoredMessage, next_offset: int | None = None, **how: object) -> PullReply:
    fields = {
        "suggested_broker": 0,
        "next_offset": messages[-1].queue_offset + 1 if next_offset is None else next_offset,
        "min_offset": 0,
        "max_offset": 100,
        "body": b"".join(message.encode() for message in messages),
    }
    return PullReply(**(fields | how))  # type: ignore[arg-type]


def nothing(status: PullStatus, next_offset: int) -> PullReply:
    return reply(next_offset=next_offset, status=status)


def log_of(count: int, at_once: int = 2):
    """A broker that has that many messages."""

    def answer(request: PullMessage) -> PullReply:
        first = request.offset
        if first == count:
            return nothing(PullStatus.NOTHING_NEW, first)
        last = min(first + min(at_once, request.max_messages), count)
        return reply(*map(stored, range(first, last)))

    return answer


# --- one pull -------------------------------------------------------------------------------------


def test_tags_are_matched_by_their_text():
    runtime = ScriptedRuntime()
    runtime.answer(A, PullMessage, reply(stored(3, "Aa"), stored(4, "BB"), stored(5)))
    wanted = subscription_data("orders", "Aa", "TAG", version=1)
    request = PullMessage(group="g", topic="orders", queue_id=0, offset=3)
    pulled = run_blocking(pulling.pull(runtime, A, request, tags=exact_tags(wanted)))
    assert [m.queue_offset for m in pulled.messages] == [3]
    assert pulled.next_offset == 6


def test_a_static_topic_has_offsets_of_its_own():
    found = pulling.messages_of(reply(stored(3), stored(4), offset_delta=100), 103)
    assert [m.queue_offset for m in found] == [103, 104]


def test_of_a_stored_batch_only_what_was_asked_for():
    body = batch.encode([BatchMessage(b"x"), BatchMessage(b"y"), BatchMessage(b"z")])
    one = stored(5, body=body, sys_flag=WRAPPED_BITS)
    found = pulling.messages_of(reply(one, stored(8), next_offset=9), 6)
    assert [(m.queue_offset, m.body) for m in found] == [(6, b"y"), (7, b"z"), (8, b"8")]


# --- subscriptions --------------------------------------------------------------------------------


def test_subscriptions():
    tags = subscription_data("orders", " paid || refunded", "TAG", version=7)
    assert tags.tags == {"paid", "refunded"} == exact_tags(tags)
    assert tags.version == 7
    assert len(tags.codes) == 2
    assert exact_tags(subscription_data("orders", "*", "TAG", version=7)) == set()
    sql = subscription_data("orders", "a > 1", "SQL92", version=7)
    assert (sql.expression, sql.expression_type, sql.codes) == ("a > 1", "SQL92", set())
    assert exact_tags(sql) == set()


@pytest.mark.parametrize(
    ("expression", "kind", "text"),
    [("a", "XPATH", "not by 'XPATH'"), (" ", "SQL92", "is empty"), ("||", "TAG", "names no tag")],
)
def test_what_is_no_subscription_is_told(expression, kind, text):
    with pytest.raises(InvalidInput, match=text):
        subscription_data("orders", expression, kind, version=1)


# --- ranges ---------------------------------------------------------------------------------------


def read(runtime, start, end, *, addresses=(A,), **how):
    asked = Range(queue=QUEUE, start=start, end=end, addresses=addresses)
    found = iterate_blocking(pulling.read_range(runtime, asked, **how))
    return [[m.queue_offset for m in messages] for messages in found]


def test_a_range_is_read_to_its_end():
    runtime = ScriptedRuntime()
    runtime.answer(A, PullMessage, log_of(9))
    assert read(runtime, 3, 8) == [[3, 4], [5, 6], [7]]
    assert [asked.max_messages for _, asked in runtime.calls] == [5, 3, 1]
    assert read(runtime, 5, 5) == []


def test_a_range_ends_where_the_queue_does():
    runtime = ScriptedRuntime()
    runtime.answer(A, PullMessage, log_of(4))
    assert read(runtime, 3, 8) == [[3]]
    runtime.answer(A, PullMessage, nothing(PullStatus.OFFSET_MOVED, 4))
    assert read(runtime, 9, 20) == []


def test_what_does_not_match_is_passed_over():
    runtime = ScriptedRuntime()
    answers = [nothing(PullStatus.NOTHING_MATCHED, 5), reply(stored(6), next_offset=8)]
    runtime.answer(A, PullMessage, answers)
    assert read(runtime, 0, 8) == [[6]]


def test_messages_that_are_gone_are_told():
    runtime = ScriptedRuntime()
    runtime.answer(A, PullMessage, nothing(PullStatus.OFFSET_MOVED, 100))
    with pytest.raises(OffsetsGone, match=r"orders\[broker-a:0\] @ 3 to 100") as caught:
        read(runtime, 3, 8)
    assert caught.value.first == 100


def test_a_replica_stands_in():
    runtime = ScriptedRuntime()
    runtime.answer(B, PullMessage, log_of(4))
    assert read(runtime, 0, 3, addresses=(A, B)) == [[0, 1], [2]]


def test_a_broker_is_waited_for_but_not_for_ever():
    runtime = ScriptedRuntime()
    runtime.answer(A, PullMessage, [ConnectFailed("gone"), CallTimeout("late"), log_of(2)])
    assert read(runtime, 0, 2) == [[0, 1]]
    assert 0 < runtime.time < 1
    runtime.answer(A, PullMessage, ConnectFailed("gone"))
    with pytest.raises(ConnectFailed):
        read(runtime, 0, 2, patience=10.0)
    assert 10 < runtime.time < 14


def test_what_another_try_does_not_help_is_raised_at_once():
    runtime = ScriptedRuntime()
    runtime.answer(A, PullMessage, InvalidInput("no"))
    with pytest.raises(InvalidInput):
        read(runtime, 0, 2)
    assert runtime.time == 0
    runtime.answer(A, PullMessage, [TopicNotFound.because("not yet"), log_of(2)])
    assert read(runtime, 0, 2) == [[0, 1]]
