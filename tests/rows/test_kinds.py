"""Rows C10 to C16: what goes with a send, how it looks on the wire, and messages of all kinds."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import gantrymq as gantry
from gantrymq.client.hooks import SendHook
from gantrymq.errors import BufferFull, ClusterTooOld, InvalidInput, RequestTimeout, SendFailed
from gantrymq.flows import sending
from gantrymq.flows.drafting import MessageKind
from gantrymq.flows.sending import Attempt, Choice
from gantrymq.model import Message, MessageQueue, ReceivedMessage
from gantrymq.rules.selectors import select_by_hash
from gantrymq.wire import batch
from gantrymq.wire import properties as names
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from gantrymq.wire.message_id import parse_unique_id
from tests.rows.platforms import NORTH
from tests.rows.site import Noting, Seen, Site, numbered, run, soon
from tests.rows.tap import SENDS, refusal


class Forbidding(SendHook):
    """Lets nothing with the body `secret` through, and writes its name on the rest."""

    def check(self, attempt: Attempt) -> None:
        if attempt.draft.messages[0].body == b"secret":
            raise PermissionError("not this one")

    def before(self, attempt: Attempt) -> None:
        attempt.draft.properties["seen-by"] = "hook"


def test_c10_hooks_forbid_and_look_on(site: Site) -> None:
    noted = Noting()
    producer = site.producer(hooks=[Forbidding(), noted], checker=lambda _: True)
    north = MessageQueue(site.topic, NORTH, 0)
    receipt = producer.send(site.topic, b"hello", queue=north)
    assert site.stored(receipt).properties == {"seen-by": "hook"}
    (attempt,) = noted.attempts
    assert attempt.receipt is receipt
    assert (attempt.error, attempt.address) == (None, site.platform.brokers[NORTH])
    with pytest.raises(PermissionError, match="not this one"):
        producer.send(site.topic, b"secret", queue=north)
    assert len(noted.attempts) == 1, "what is forbidden is not sent"
    producer.send(site.topic, b"later", delay_level=1)
    with producer.transaction(site.topic, b"half"):
        pass
    producer.send_batch([Message(site.topic, b"one"), Message(site.topic, b"two")])
    kinds = [attempt.draft.kind for attempt in noted.attempts]
    assert kinds == [
        MessageKind.ORDERED,
        MessageKind.DELAYED,
        MessageKind.HALF,
        MessageKind.BATCH,
    ]


def test_c10_hooks_are_told_of_failures(site: Site) -> None:
    for tap in site.taps():
        tap.asked = lambda command: refusal(13) if command.code in SENDS else None
    noted = Noting()
    producer = site.producer(hooks=[noted])
    with pytest.raises(SendFailed):
        producer.send(site.topic, b"hello")
    assert [type(error).__name__ for error in noted.errors] == ["MessageIllegal"]


def test_c11_header_in_letters_and_in_full(site: Site) -> None:
    north = site.tap(NORTH)
    queue = MessageQueue(site.topic, NORTH, 2)
    before = time.time() * 1000
    site.producer().send(site.topic, b"hello", queue=queue, flag=9)
    site.producer(long_header=True, group=f"{site.group}-l").send(site.topic, b"hello", queue=queue)
    short, full = north.sends()
    assert (short.code, full.code) == (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE)
    assert {key: short.fields[key] for key in "abcdefhjkm"} == {
        "a": site.group, "b": site.topic, "c": "TBW102", "d": "4", "e": "2", "f": "0", "h": "9",
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    assert before - 1000 <= int(short.fields["g"]) <= time.time() * 1000 + 1000
    assert full.fields["producerGroup"] == f"{site.group}-l"
    assert (full.fields["topic"], full.fields["queueId"]) == (site.topic, "2")
    unit = site.producer(unit_mode=True, group=f"{site.group}-u")
    unit.send(site.topic, b"hello", queue=queue)
    assert north.sends()[-1].fields["k"] == "true"
    unit.send_batch([Message(site.topic, b"one"), Message(site.topic, b"two")], queue=queue)
    assert north.sends()[-1].fields["m"] == "true"


def test_c11_header_has_the_retries_of_a_retry_topic(site: Site) -> None:
    north = site.tap(NORTH)

    async def main() -> None:
        retry = f"%RETRY%{site.group}"
        await asyncio.to_thread(site.admin.create_topic, retry, queues=1)
        async with site.async_producer() as producer:
            extra = {names.RECONSUME_TIME: "3", names.MAX_RECONSUME_TIMES: "5"}
            channel = producer.producing.channel
            draft = channel.sender.drafting.one(Message(retry, b"again"), extra)
            there = Choice(queue=MessageQueue(retry, NORTH, 0))
            receipt = await sending.send(channel.runtime, channel.sender, draft, choice=there)
        (send,) = north.sends()
        assert (send.fields["j"], send.fields["l"]) == ("3", "5")
        assert names.RECONSUME_TIME not in send.fields["i"]
        assert (await asyncio.to_thread(site.stored, receipt)).retries == 3

    run(main())


def test_c12_commands_of_every_kind_and_mode(site: Site) -> None:
    north = site.tap(NORTH)
    queue = MessageQueue(site.topic, NORTH, 0)
    producer = site.producer()
    producer.send(site.topic, b"plain", queue=queue)
    producer.send_soon(site.topic, b"async", queue=queue).result(60)
    producer.send_batch([Message(site.topic, b"one"), Message(site.topic, b"two")], queue=queue)
    producer.send_oneway(site.topic, b"one-way", queue=queue)
    with gantry.Reader(name_servers=site.platform.name_server) as reader:
        deadline = time.monotonic() + 60
        while reader.bounds(queue).end < 5:
            assert time.monotonic() < deadline
        found = [message.body for message in reader.messages(queue)]
    assert found == [b"plain", b"async", b"one", b"two", b"one-way"]
    codes = [(send.code, send.is_oneway) for send in north.sends()]
    v2, in_one = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
    assert codes == [(v2, False), (v2, False), (in_one, False), (v2, True)]


def test_c12_commands_wait_for_room(site: Site) -> None:
    north = site.tap(NORTH)
    queue = MessageQueue(site.topic, NORTH, 0)
    producer = site.producer(buffer_messages=4)
    opened = threading.Event()

    def hold(request: Command, _answer: Command) -> None:
        if request.code in SENDS:
            opened.wait(60)

    north.answered = hold
    futures = [producer.send_nowait(site.topic, b"hello", queue=queue) for _ in range(4)]
    with pytest.raises(BufferFull):
        producer.send_nowait(site.topic, b"no room", queue=queue)
    with pytest.raises(BufferFull):
        producer.send_soon(site.topic, b"no room in time", queue=queue, timeout=0.2)
    opened.set()
    assert {future.result(60).queue for future in futures} == {queue}
    assert producer.flush(60) == []
    assert producer.send_nowait(site.topic, b"room again", queue=queue).result(60)


def test_c13_unique_id_says_who_and_when(site: Site) -> None:
    producer = site.producer()
    texts = [producer.send(site.topic, b"hello").message_id for _ in range(5)]
    ids = [parse_unique_id(text) for text in texts]
    assert {len(text) for text in texts} == {32}
    assert {one.ip for one in ids} == {bytes((127, 0, 0, 1))}
    assert {one.process for one in ids} == {os.getpid() & 0xFFFF}
    assert len({one.loader_hash for one in ids}) == 1
    assert [(one.counter - ids[0].counter) & 0xFFFF for one in ids] == [0, 1, 2, 3, 4]
    now = datetime.now().astimezone()
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert abs((now - first).total_seconds() * 1000 - ids[-1].month_ms) < 120_000
    given = producer.send(site.topic, b"hello")
    (found,) = site.admin.messages_by_unique_id(site.topic, given.message_id)
    assert found.message_id == given.message_id


def test_c14_request_reply(site: Site) -> None:
    async def main() -> None:
        producer = site.async_producer()

        async def answer(message: ReceivedMessage) -> None:
            if message.body != b"silence":
                await producer.reply(message, b"pong to " + message.body)

        async with producer, site.consumer(answer, group=f"{site.group}-c"):
            answers = await asyncio.gather(
                *(producer.request(site.topic, b"ping %d" % n, timeout=60) for n in range(4))
            )
            assert [one.body for one in answers] == [b"pong to ping %d" % n for n in range(4)]
            assert len({one.find(names.CORRELATION_ID) for one in answers}) == 4
            with pytest.raises(RequestTimeout) as late:
                await producer.request(site.topic, b"silence", timeout=1.0)
            assert late.value.code == 10006

    run(main())


def test_c15_batches_are_checked_split_and_stored_one_by_one(site: Site) -> None:
    north = site.tap(NORTH)
    queue = MessageQueue(site.topic, NORTH, 0)
    producer = site.producer(max_message_size=64 * 1024)
    messages = [Message(site.topic, b"%03d" % n + bytes(997), tag=f"t{n % 3}") for n in range(100)]
    receipts = producer.send_batch(messages, queue=queue)
    assert [receipt.offset for receipt in receipts] == list(range(100))
    assert len({receipt.message_id for receipt in receipts}) == 100
    sends = north.sends()
    assert len(sends) == 2, "as few frames as they fit into"
    sizes = [len(list(batch.iterate(send.body))) for send in sends]
    assert sum(sizes) == 100
    stored = site.stored(receipts[77])
    assert (stored.body[:3], stored.tag, stored.offset) == (b"077", "t2", 77)
    other = Message(site.another_topic(), b"elsewhere")
    for wrong in (
        [messages[0], other],
        [messages[0], Message(site.topic, b"x", wait_stored=False)],
        [Message(site.topic, b"x", delay_level=1)],
        [Message(f"%RETRY%{site.group}", b"x")],
        [],
    ):
        with pytest.raises(InvalidInput):
            producer.send_batch(wrong)
    assert len(north.sends()) == 2


def test_c15_batches_are_gathered_automatically_and_keep_order(site: Site) -> None:
    taps = site.taps()
    producer = site.producer(auto_batch=True, batch_linger=0.05)
    futures = [
        producer.send_nowait(site.topic, b"%d" % n, order_key=f"key-{n % 2}") for n in range(200)
    ]
    receipts = [future.result(60) for future in futures]
    assert sum(len(tap.sends()) for tap in taps) < 100
    for key in range(2):
        mine = receipts[key::2]
        assert len({receipt.queue for receipt in mine}) == 1
        assert [one.offset for one in mine] == sorted(one.offset for one in mine)


# --- ordered, delayed, transactional --------------------------------------------------------------


def test_c16_ordered_messages_stay_in_order(site: Site) -> None:
    async def main() -> None:
        seen = Seen()
        async with site.async_producer() as producer:
            for n in range(40):
                key = f"order-{n % 5}"
                await producer.send(
                    site.topic, b"%d" % n, selector=select_by_hash, argument=key, keys=key
                )
        async with site.consumer(seen, ordered=True):
            await soon(lambda: seen.has(numbered(40)), "everything")
        for key in range(5):
            mine = [int(m.body) for m in seen.messages if m.keys == (f"order-{key}",)]
            assert mine == list(range(key, 40, 5))

    run(main())


def test_c16_delayed_messages_come_when_they_are_due(site: Site) -> None:
    async def main() -> None:
        seen = Seen()
        late: dict[bytes, float] = {}

        async def handle(message: ReceivedMessage) -> None:
            late[message.body] = time.time()
            await seen(message)

        async with site.async_producer() as producer, site.consumer(handle):
            began = time.time()
            await producer.send(site.topic, b"level", delay_level=2)
            await producer.send(site.topic, b"second", delay=timedelta(seconds=1))
            expected = {b"level": 5.0, b"second": 1.0}
            at = datetime.now(UTC) + timedelta(seconds=3)
            if site.platform.old:
                for how in ({"deliver_at": at}, {"delay": timedelta(seconds=2)}):
                    with pytest.raises(ClusterTooOld, match=r"timers come with 5\.0"):
                        await producer.send(site.topic, b"never", **how)  # type: ignore[arg-type]
            else:
                await producer.send(site.topic, b"at", deliver_at=at)
                recalled = await producer.send(site.topic, b"never", delay=timedelta(seconds=6))
                expected[b"at"] = at.timestamp() - began
                assert recalled.recall_handle is not None
                await producer.recall(recalled.recall_handle)
                await producer.send(site.topic, b"last", delay=timedelta(seconds=8))
                expected[b"last"] = 8.0
            await soon(lambda: seen.has(expected), f"{sorted(expected)}")
        for body, seconds in expected.items():
            assert late[body] - began >= seconds - 1.0, f"{body!r} came early"

    run(main())


def test_c16_transactions_with_check_back(site: Site) -> None:
    async def main() -> None:
        seen, asked = Seen(), []
        good = {b"committed", b"found to be good"}

        def check(message: ReceivedMessage) -> bool:
            asked.append(message.body)
            return message.body == b"found to be good"

        producer = site.async_producer(checker=check)
        async with producer, site.consumer(seen, group=f"{site.group}-c"):
            async with producer.transaction(site.topic, b"committed") as half:
                await asyncio.sleep(0.1)
                assert not seen.messages
            assert half.told
            with pytest.raises(KeyError):
                async with producer.transaction(site.topic, b"rolled back"):
                    raise KeyError("out of beer")
            for body in (b"found to be good", b"found to be bad"):
                async with producer.transaction(site.topic, body) as half:
                    await half.leave_open()
            await soon(
                lambda: {*asked} == {b"found to be good", b"found to be bad"}, "the check-back"
            )
            # A broker that asks again before it has the answer may deliver it once more.
            await soon(lambda: {*seen.bodies} >= good, "both good ones")
        assert {*seen.bodies} == good

    run(main())
