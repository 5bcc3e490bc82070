"""The quick way for plain messages does what the ordinary way does, to the byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantrymq.broker.plain_sends import PlainProperties
from gantrymq.errors import ReplyError
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.names import TIMER_TOPIC
from gantrymq.protocol.topics import TopicSettings
from gantrymq.rules.filtering import tag_code
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage
from tests.unit.broker.rig import START_MS, Rig, on_loop, refusal, with_rig

U = "UNIQ_KEY\x010A01020312347B2A9C0E0001E2400007\x02"
PLAIN = (
    U,
    f"{U}WAIT\x01true\x02",
    f"WAIT\x01true\x02{U}",
    f"{U}TAGS\x01paid\x02own\x01ünï\x02",
    f"TAGS\x01\x02{U}",
    f"a\x01b\x02{U}TAGS\x01x\x02TAGS\x01y\x02",
)
ODD = (
    None,
    "",
    "TAGS\x01a\x02",
    U[:-1],  # its end is missing
    "UNIQ_KEY\x01\x02",
    "UNIQ_KEY\x01a b\x02",
    f"my{U}",
    f"{U}{U}",
    f"{U}KEYS\x01k1 k2\x02",
    f"{U}DELAY\x013\x02",
    f"{U}TRAN_MSG\x01true\x02",
    f"{U}MSG_REGION\x01mine\x02",
    f"{U}CLUSTER\x01mine\x02",
    f"{U}TAGS\x01a",
    f"{U}_SYS_MSG_PRIORITY_\x013\x02",
    f"{U}INNER_MULTI_DISPATCH\x01%LMQ%a\x02",
    f"UNIQ_KEY\x01\udc80\x02{U}",
    f"{U}own\x01{'x' * 32_000}\x02",
)

SOON = START_MS + 5000
TIMED = (
    f"{U}TIMER_DELIVER_MS\x01{SOON}\x02",
    f"TIMER_DELAY_SEC\x013\x02{U}TAGS\x01paid\x02",
    f"{U}TIMER_DELAY_MS\x011001\x02WAIT\x01true\x02",
    f"{U}TIMER_DELIVER_MS\x01{START_MS}\x02",
    f"{U}TIMER_DELIVER_MS\x01{10**14}\x02",
    f"{U}TIMER_DELIVER_MS\x01{10**20}\x02",
    f"{U}TIMER_DELIVER_MS\x01-{SOON}\x02",
    f"{U}TIMER_DELIVER_MS\x01٣\x02",
    f"{U}TIMER_DELIVER_MS\x01\x02",
    f"{U}TIMER_DELIVER_MS\x01{SOON}",
    f"{U}TIMER_DELIVER_MS\x01{SOON}\x02TIMER_DELAY_SEC\x013\x02",
    f"{U}TIMER_DELIVER_MS\x01{SOON}\x02KEYS\x01k\x02",
    f"{U}TIMER_DELIVER_MS\x01{SOON}\x02DELAY\x013\x02",
    f"{U}TIMER_DELIVER_MS\x01{SOON}\x02TIMER_OUT_MS\x015\x02",
    f"{U}TIMER_DEL_UNIQKEY\x01x\x02TIMER_DELIVER_MS\x01{SOON}\x02",
    f"{U}TIMER_DELAY_LEVEL\x013\x02",
    f"{U}myTIMER_DELAY_MS\x0130\x02",
    f"TIMER_DELIVER_MS\x01{SOON}\x02",
    f"{U}TIMER_DELIVER_MS\x01{SOON}\x02own\x01{'x' * 31_600}\x02",
)


class _NothingIsPlain(PlainProperties):
    def read(self, raw: bytes, suffix: bytes = b"") -> None:
        return None


def _pair(**settings):
    """A broker, and one that knows the ordinary way only."""
    ours, plodding = Rig(**settings).load(), Rig(**settings).load()
    plodding.broker.marks.plain = _NothingIsPlain("")
    return ours, plodding


def _outcome(rig, **request):
    try:
        return rig.send(**request)
    except ReplyError as error:
        return error.code, error.remark


def _files(rig):
    """Everything that the store leaves behind."""
    rig.store.close()
    return rig.disk.tree()


@pytest.mark.parametrize("text", [*PLAIN, *ODD])
def test_what_is_plain_is_known(text):
    raw = (text or "").encode("utf-8", "replace")
    about = PlainProperties("S\x01s\x02").read(raw, b"S\x01s\x02")
    assert (about is not None) == (text in PLAIN)
    if about is not None:
        tag = properties.find(raw, "TAGS") or ""
        assert about == (raw + b"S\x01s\x02", tag_code(tag), properties.find(raw, "UNIQ_KEY"))


def test_what_was_learnt_holds_for_others_with_the_same_properties_only():
    known = PlainProperties("")
    for tag in ("a", "b", "a", "c"):
        for unique in ("A1", "B2"):
            raw = f"UNIQ_KEY\x01{unique}\x02TAGS\x01{tag}\x02".encode()
            assert known.read(raw) == (raw, tag_code(tag), unique)
    assert known.read(b"UNIQ_KEY\x01A\x02TAGS\x01a\x02KEYS\x01k\x02") is None


@on_loop
def test_replies_and_files_are_those_of_the_ordinary_way(rig):
    pair = _pair()
    for one in (*PLAIN, *ODD, *PLAIN):
        for more in (
            {}, {"queue_id": 3}, {"flags": 1}, {"flags": 8}, {"flags": 0x80}, {"flag": -5},
            {"reconsume_times": 2}, {"body": memoryview(b"view")}, {"body": b"x" * 70_000},
            {"topic": "%RETRY%shop"}, {"queue_id": 9},
        ):  # fmt: skip
            request = {"properties": one} | more
            first, second = (_outcome(which, **request) for which in pair)
            assert first == second, request
    assert _files(pair[0]) == _files(pair[1])


@on_loop
def test_timed_messages_are_those_of_the_ordinary_way(rig):
    pair = _pair()
    for one in (*TIMED, *TIMED):
        for more in (
            {}, {"queue_id": 3}, {"flags": 1}, {"flags": 8}, {"reconsume_times": 2},
            {"body": memoryview(b"view")}, {"body": b"x" * 70_000}, {"queue_id": 9},
        ):  # fmt: skip
            request = {"properties": one} | more
            first, second = (_outcome(which, **request) for which in pair)
            assert first == second, request
    assert len(pair[0].stored(TIMER_TOPIC)) > 100
    assert _files(pair[0]) == _files(pair[1])


@with_rig()
def test_a_broker_that_takes_no_timed_messages_takes_none_the_quick_way(rig):
    rig.send(properties=TIMED[0])
    rig.broker.timers.settings = replace(rig.broker.timers.settings, enabled=False)
    assert refusal(lambda: rig.send(properties=TIMED[0]))[0] == 1


@on_loop
def test_batches_are_those_of_the_ordinary_way(rig):
    pair = _pair()
    for texts in (PLAIN, PLAIN[:1], (*PLAIN, ODD[8]), ODD[2:5], PLAIN):
        messages = [
            BatchMessage(b"m" * (number + 1), text.encode(), number)
            for number, text in enumerate(texts)
        ]
        body = batch.encode(messages)
        for more in ({}, {"queue_id": 2}, {"flags": 1}, {"topic": "other"}):
            request = {"body": body, "batch": True, "properties": U} | more
            first, second = (_outcome(which, **request) for which in pair)
            assert first == second, request
    assert _files(pair[0]) == _files(pair[1])


@on_loop
def test_a_topic_with_attributes_or_for_several_tags_goes_the_ordinary_way(rig):
    pair = _pair()
    for which in pair:
        for settings in (
            TopicSettings(topic="several", filter_type=TopicFilterType.MULTI_TAG),
            TopicSettings(topic="kept", attributes={"+cleanup.policy": "COMPACTION"}),
        ):
            which.broker.topics.put([settings])
    for topic in ("several", "kept", "x" * 127, "x" * 128):
        first, second = (_outcome(which, topic=topic, properties=U) for which in pair)
        assert first == second
    assert _files(pair[0]) == _files(pair[1])


@on_loop
def test_who_waits_is_woken_and_finds_it_by_tag_and_key(rig):
    rig.send(properties=f"{U}TAGS\x01a\x02")  # makes the queue, the ordinary way
    bell = rig.broker.waiting.park("orders", 0, 10)
    rig.send(properties="UNIQ_KEY\x01ABC\x02TAGS\x01paid\x02")
    assert bell.done()
    assert rig.pull(subscription="paid").more
    assert len(rig.store.query("orders", "ABC").pieces) == 1


@with_rig(store__log__segment_size=4096)
def test_a_file_that_is_full_is_followed_by_another(rig):
    replies = [rig.send(body=b"x" * 900, properties=U) for _ in range(12)]
    assert [reply.offset for reply in replies] == list(range(12))
    assert [message.body for message in rig.stored()] == [b"x" * 900] * 12


@on_loop
def test_a_store_that_takes_nothing_says_why(rig):
    rig.send(properties=U)
    rig.store.close()
    code, remark = refusal(lambda: rig.send(properties=U))
    assert code == 14
    assert "is closed" in remark


@on_loop
def test_queues_are_told_after_the_answer_and_before_anybody_asks(rig):
    later = []
    rig.send(properties=U)
    rig.store.later = later.append
    bell = rig.broker.waiting.park("orders", 0, 10)
    assert [rig.send(properties=U).offset for _ in range(3)] == [1, 2, 3]
    assert len(later) == 1
    assert not bell.done()
    later.pop()()
    assert bell.done()
    rig.send(properties=U)
    assert rig.store.queue("orders", 0).max_offset == 5
    rig.send(properties=U)
    assert len(rig.stored()) == 6
    rig.send(properties="UNIQ_KEY\x01LAST\x02")
    assert len(rig.store.query("orders", "LAST").pieces) == 1
    rig.send(properties=U)
    assert rig.send(properties=f"{U}KEYS\x01k\x02").offset == 8
    assert [message.queue_offset for message in rig.stored()] == list(range(9))
    assert rig.store.dispatched_to == rig.store.log_end
    while later:
        later.pop()()
