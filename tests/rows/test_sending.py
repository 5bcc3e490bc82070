"""Rows C1 to C9: from a message and its route to the attempts to store it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import gantrymq as gantry
from gantrymq.errors import InvalidInput, NoNameServers, NoRoute, SendFailed, SendTimeout
from gantrymq.model import Message, MessageQueue, SendStatus
from gantrymq.wire import properties as names
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from gantrymq.wire.compression import decompress
from gantrymq.wire.flags import Compression, Transaction, compression_of
from tests.rows.platforms import BROKERS, NORTH, SOUTH
from tests.rows.site import Noting, Seen, Site, run, soon, until
from tests.rows.tap import SENDS, Lost, Swallowed, Tap, refusal

NOT_STORED_SAFELY = {
    10: SendStatus.FLUSH_DISK_TIMEOUT,
    11: SendStatus.SLAVE_NOT_AVAILABLE,
    12: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


def refuse(tap: Tap, code: int) -> None:
    tap.asked = lambda command: refusal(code) if command.code in SENDS else None


def swallow(command: Command) -> None:
    if command.code in SENDS:
        raise Swallowed


def asked_for(tap: Tap, topic: str) -> int:
    """How often a name server was asked for the route of a topic."""
    asked = tap.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    return sum(one.fields["topic"] == topic for one in asked)


def fields_of(send: Command) -> dict[str, str]:
    """The properties that a request to store a message carries."""
    return names.split(send.fields["i" if "i" in send.fields else "properties"])


# --- messages -------------------------------------------------------------------------------------


def test_c1_message_with_everything_that_goes_with_it(site: Site) -> None:
    north = site.tap(NORTH)
    producer = site.producer()
    message = Message(
        site.topic,
        b"one beer",
        tag="drinks",
        keys=("order-1", "table-4"),
        flag=-7,
        properties={"colour": "pale", "größe": "0,5 ☃"},
        wait_stored=False,
    )
    receipt = producer.send(message, queue=MessageQueue(site.topic, NORTH, 1))
    stored = site.stored(receipt)
    assert (stored.topic, stored.body, stored.flag) == (site.topic, b"one beer", -7)
    assert (stored.tag, stored.keys) == ("drinks", ("order-1", "table-4"))
    assert stored.find(names.KEYS) == "order-1 table-4"
    assert stored.properties == {"colour": "pale", "größe": "0,5 ☃"}
    assert stored.message_id == receipt.message_id
    (send,) = north.sends()
    assert fields_of(send)[names.WAIT] == "false"
    later = producer.send(site.topic, b"x", delay_level=3, queue=MessageQueue(site.topic, NORTH, 1))
    assert later.status is SendStatus.OK
    assert fields_of(north.sends()[-1])[names.DELAY] == "3"
    for reserved in (names.KEYS, names.DELAY, names.RETRY_TOPIC, names.UNIQUE_KEY):
        with pytest.raises(InvalidInput, match=reserved):
            producer.send(site.topic, b"x", properties={reserved: "mine"})


def test_c2_validation_before_any_request(site: Site) -> None:
    taps, at_names = site.taps(), site.tap_names()
    producer = site.producer()
    before = len(at_names.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC))
    for topic, body, why in (
        ("no spaces", b"x", "illegal characters"),
        ("t" * 128, b"x", "127"),
        ("", b"x", "blank"),
        ("  ", b"x", "blank"),
        (site.topic, b"", "zero"),
        (site.topic, bytes(4 * 1024 * 1024 + 1), "over max value"),
        ("SCHEDULE_TOPIC_XXXX", b"x", "SCHEDULE_TOPIC_XXXX"),
    ):
        with pytest.raises(InvalidInput, match=why):
            producer.send(topic, body)
    assert not [send for tap in taps for send in tap.sends()]
    assert len(at_names.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == before
    largest = producer.send(site.topic, bytes(4 * 1024 * 1024))
    assert len(site.stored(largest).body) == 4 * 1024 * 1024


# --- routes ---------------------------------------------------------------------------------------


def test_c3_route_lookup_is_cached_shared_and_falls_back(site: Site) -> None:
    at_names = site.tap_names()
    producer = site.producer()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: producer.send(site.topic, b"hello"), range(24)))
    assert asked_for(at_names, site.topic) == 1
    fresh = f"{site.topic}-made-by-sending"
    looked = asked_for(at_names, "TBW102")
    receipts = [producer.send(fresh, b"hello") for _ in range(12)]
    assert asked_for(at_names, fresh) >= 1
    assert asked_for(at_names, "TBW102") > looked
    assert {receipt.queue.queue_id for receipt in receipts} == {0, 1, 2, 3}, "4 queues, not 8"
    until(lambda: fresh in site.admin.list_topics(), "the topic was made")
    lonely = site.producer(default_topic="not-there", call_timeout=4.0)
    with pytest.raises(SendFailed, match="no route info of this topic: nobody-has-it") as failed:
        lonely.send("nobody-has-it", b"hello")
    assert failed.value.code == NoRoute.code


def test_c3_route_lookup_has_a_time_limit_and_needs_a_name_server(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(command: Command) -> None:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            raise Swallowed

    at_names = site.tap_names()
    producer = site.producer(call_timeout=0.5)
    at_names.asked = deaf
    began = time.monotonic()
    with pytest.raises(SendFailed, match=r"route|name server"):
        producer.send(site.topic, b"hello", timeout=15.0)
    assert time.monotonic() - began < 14, "it waits for the route for so long, not for all its time"

    for variable in ("GANTRY_URL", "NAMESRV_ADDR"):
        monkeypatch.delenv(variable, raising=False)

    async def main() -> None:
        nowhere = gantry.AsyncProducer()
        with pytest.raises(NoNameServers, match="no name server is set") as raised:
            await nowhere.start()
        assert raised.value.code == 10004

    run(main())


def test_c3_route_changes_reach_producers_and_consumers(site: Site) -> None:
    async def main() -> None:
        seen = Seen()
        producer = site.async_producer(route_interval=0.3)
        consumer = site.consumer(seen, route_interval=0.3, group=f"{site.group}-c")
        async with producer, consumer:
            await soon(lambda: len(of_topic(consumer.queues, site.topic)) == 8, "queues")
            await asyncio.to_thread(site.admin.alter_topic, site.topic, queues=6, brokers=[NORTH])
            new = MessageQueue(site.topic, NORTH, 5)
            routes = producer.producing.engine.routes

            def known() -> bool:
                found = routes.known(site.topic)
                assert found is not None
                assert found.to_publish is not None
                return new in found.to_publish.queues and new in found.to_subscribe

            await soon(known, "the change is known")
            await soon(lambda: new in consumer.queues, "the consumer has the new queue")
            taken = [(await producer.send(site.topic, b"hello")).queue for _ in range(10)]
            assert new in taken
            await soon(lambda: len(seen.messages) == 10, "everything came")

    run(main())


def of_topic(queues: frozenset[MessageQueue], topic: str) -> set[MessageQueue]:
    return {queue for queue in queues if queue.topic == topic}


def test_c4_publish_info_has_writable_masters_in_order(site: Site) -> None:
    producer = site.producer()
    site.admin.alter_topic(site.topic, permission="r", brokers=[NORTH])
    taken = {producer.send(site.topic, b"hello").queue for _ in range(8)}
    assert taken == set(site.queues(brokers=[SOUTH]))
    headless = site.another_topic(brokers=[SOUTH])
    at_names = site.tap_names()

    def without_master(request: Command, answer: Command) -> None:
        if request.fields.get("topic") == headless and answer.body:
            address = f'0:"{site.platform.brokers[SOUTH]}"'.encode()
            strict = f'"0":"{site.platform.brokers[SOUTH]}"'.encode()
            body = bytes(answer.body)
            answer.body = body.replace(strict, b'"1' + strict[2:]).replace(
                address, b"1" + address[1:]
            )

    at_names.answered = without_master
    behind = site.producer(instance_name=f"headless-{site.number}", default_topic="not-there")
    with pytest.raises(SendFailed, match=f"{SOUTH} has no master"):
        behind.send(headless, b"hello")
    at_names.answered = lambda _request, _answer: None
    ordered = site.another_topic()
    site.admin.put_key("ORDER_TOPIC_CONFIG", ordered, f"{SOUTH}:2;{NORTH}:1")
    receipts = [producer.send(ordered, b"hello").queue for _ in range(6)]
    ring = [*site.queues(ordered, [SOUTH], 2), *site.queues(ordered, [NORTH], 1)]
    at = ring.index(receipts[0])
    assert receipts == [ring[(at + step) % 3] for step in range(6)]


# --- attempts -------------------------------------------------------------------------------------


def test_c5_retry_loop_of_every_mode(site: Site) -> None:
    taps, noted = site.taps(), Noting()
    producer = site.producer(hooks=[noted])
    producer.send(site.topic, b"hello")
    for tap in taps:
        refuse(tap, 14)
    noted.attempts.clear()
    with pytest.raises(SendFailed):
        producer.send(site.topic, b"sync")
    assert [one.mode for one in noted.attempts] == ["sync"] * 3
    assert noted.brokers in ([NORTH, SOUTH, NORTH], [SOUTH, NORTH, SOUTH])
    noted.attempts.clear()
    with pytest.raises(SendFailed):
        producer.send_nowait(site.topic, b"async").result(60)
    assert [one.mode for one in noted.attempts] == ["async"] * 3
    assert noted.brokers in ([NORTH, SOUTH, NORTH], [SOUTH, NORTH, SOUTH])
    noted.attempts.clear()
    producer.send_oneway(site.topic, b"one-way")
    assert [one.mode for one in noted.attempts] == ["oneway"]
    given = MessageQueue(site.topic, NORTH, 0)
    with pytest.raises(SendFailed) as failed:
        producer.send(site.topic, b"mine", queue=given)
    assert failed.value.brokers == (NORTH,), "a queue that was chosen is kept"


def test_c5_retry_loop_has_one_time_budget(site: Site) -> None:
    taps, noted = site.taps(), Noting()
    producer = site.producer(hooks=[noted])
    producer.send(site.topic, b"hello")
    for tap in taps:
        tap.asked = swallow
    noted.attempts.clear()
    began = time.monotonic()
    with pytest.raises(SendTimeout, match=r"call timeout.* of 0\.800s") as late:
        producer.send(site.topic, b"nobody answers", timeout=0.8)
    assert 0.8 <= time.monotonic() - began < 20
    assert isinstance(late.value, TimeoutError)
    assert len(noted.attempts) == 1, "the first attempt had all of the time"
    capped = site.producer(hooks=[noted], attempt_timeout=0.2, group=f"{site.group}-capped")
    noted.attempts.clear()
    with pytest.raises(SendFailed):
        capped.send(site.topic, b"nobody answers", timeout=4.0)
    assert len(noted.attempts) >= 2, "an attempt that may not take all of it leaves some"


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
def test_c6_what_is_retried_at_another_broker(site: Site, code: int) -> None:
    refuse(site.tap(NORTH), code)
    noted = Noting()
    producer = site.producer(hooks=[noted])
    receipts = [producer.send(site.topic, b"hello") for _ in range(5)]
    assert {receipt.queue.broker for receipt in receipts} == {SOUTH}
    assert NORTH in noted.brokers


def test_c6_what_is_retried_after_a_lost_connection(site: Site) -> None:
    def lose(command: Command) -> None:
        if command.code in SENDS:
            raise Lost

    noted = Noting()
    site.tap(NORTH).asked = lose
    producer = site.producer(hooks=[noted])
    receipts = [producer.send(site.topic, b"hello") for _ in range(5)]
    assert {receipt.queue.broker for receipt in receipts} == {SOUTH}
    assert NORTH in noted.brokers


@pytest.mark.parametrize("code", [3, 13, 22, 29])
def test_c6_what_is_not_retried(site: Site, code: int) -> None:
    for tap in site.taps():
        refuse(tap, code)
    noted = Noting()
    producer = site.producer(hooks=[noted])
    with pytest.raises(SendFailed) as failed:
        producer.send(site.topic, b"hello")
    assert (failed.value.code, len(noted.attempts)) == (code, 1)


def test_c6_interruption_is_raised_at_once(site: Site) -> None:
    for tap in site.taps():
        tap.asked = swallow
    noted = Noting()

    async def main() -> None:
        async with site.async_producer(hooks=[noted]) as producer:
            task = asyncio.create_task(producer.send(site.topic, b"hello"))
            await soon(lambda: noted.attempts, "an attempt")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(noted.attempts) == 1

    run(main())


@pytest.mark.parametrize("code", list(NOT_STORED_SAFELY))
def test_c7_store_not_ok_is_a_status_and_may_be_retried(site: Site, code: int) -> None:
    def unsafe(request: Command, answer: Command) -> None:
        if request.code in SENDS:
            answer.code = code

    site.tap(NORTH).answered = unsafe
    noted = Noting()
    producer = site.producer(hooks=[noted])
    there = MessageQueue(site.topic, NORTH, 0)
    receipt = producer.send(site.topic, b"hello", queue=there)
    assert receipt.status is NOT_STORED_SAFELY[code]
    assert not receipt.stored_safely
    assert site.stored(receipt).body == b"hello", "it is stored all the same"
    noted.attempts.clear()
    careful = site.producer(
        hooks=[noted], group=f"{site.group}-c", retry_another_broker_when_not_store_ok=True
    )
    receipts = [careful.send(site.topic, b"hello") for _ in range(5)]
    assert {(one.queue.broker, one.status) for one in receipts} == {(SOUTH, SendStatus.OK)}
    assert NORTH in noted.brokers


def test_c8_final_error_tells_everything(site: Site) -> None:
    taps = site.taps()
    producer = site.producer()
    producer.send(site.topic, b"hello")
    for tap in taps:
        refuse(tap, 14)
    with pytest.raises(SendFailed) as failed:
        producer.send(site.topic, b"hello")
    error = failed.value
    assert (error.topic, error.code, error.maybe_stored) == (site.topic, 14, False)
    assert len(error.brokers) == 3
    assert set(error.brokers) == {*BROKERS}
    for part in ("Send [3] times", f"Topic: {site.topic}", ", ".join(error.brokers), "cost ["):
        assert part in str(error)
    for tap in taps:
        tap.asked = swallow
    with pytest.raises(SendFailed) as silent:
        producer.send(site.topic, b"hello", timeout=0.5)
    assert (silent.value.code, silent.value.maybe_stored) == (10002, True)
    assert 0.4 <= silent.value.elapsed < 20
    for tap in taps:
        tap.refuse()
    with pytest.raises(SendFailed) as gone:
        producer.send(site.topic, b"hello")
    assert gone.value.code == 10001
    with pytest.raises(SendFailed) as unknown:
        producer.send(site.topic, b"hello", queue=MessageQueue(site.topic, "west@c", 0))
    assert unknown.value.code == 10003


def test_c9_kernel_looks_an_unknown_address_up_again_once(site: Site) -> None:
    at_names = site.tap_names()
    producer = site.producer()
    producer.send(site.topic, b"hello")
    before = asked_for(at_names, site.topic)
    with pytest.raises(SendFailed, match=r"The broker\[west@c\] not exist"):
        producer.send(site.topic, b"hello", queue=MessageQueue(site.topic, "west@c", 0))
    until(lambda: asked_for(at_names, site.topic) > before, "another look at the route")


def test_c9_kernel_uses_the_fast_port_when_told(site: Site) -> None:
    producer = site.producer(vip_channel=True)
    assert producer.send(site.topic, b"hello").status is SendStatus.OK
    host, _, port = site.platform.brokers[NORTH].rpartition(":")
    with Tap(f"{host}:{int(port) - 2}") as fast, Tap(site.platform.brokers[NORTH], port=0) as slow:
        # The fast port is two below whatever address leads to the broker.
        beside = int(fast.address.rpartition(":")[2]) + 2
        through = {site.platform.brokers[NORTH]: f"{host}:{beside}"}
        quick = site.producer(vip_channel=True, address_map=through, group=f"{site.group}-vip")
        quick.send(site.topic, b"hello", queue=MessageQueue(site.topic, NORTH, 0))
        assert len(fast.sends()) == 1
        assert not slow.sends()


def test_c9_kernel_ids_namespaces_and_half_messages(site: Site) -> None:
    north = site.tap(NORTH)
    queue = MessageQueue(site.topic, NORTH, 0)
    producer = site.producer(checker=lambda _: True)
    receipt = producer.send(site.topic, b"hello", queue=queue)
    assert fields_of(north.sends()[-1])[names.UNIQUE_KEY] == receipt.message_id
    with producer.transaction(site.topic, b"half", queue=queue) as half:
        send = north.sends()[-1]
        assert int(send.fields["f"]) & Transaction.ROLLBACK == Transaction.PREPARED
        assert half.receipt.message_id
    tenant = site.producer(namespace="MQ_INST_1", group=f"{site.group}-tenant")
    site.admin.create_topic(f"MQ_INST_1%{site.topic}", queues=1)
    receipt = tenant.send(site.topic, b"hello", queue=queue)
    send = north.sends()[-1]
    assert send.fields["b"] == f"MQ_INST_1%{site.topic}"
    assert send.fields["a"] == f"MQ_INST_1%{site.group}-tenant"
    assert fields_of(send)[names.INSTANCE_ID] == "MQ_INST_1"
    assert receipt.queue.topic == site.topic


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_c9_kernel_compresses_large_bodies_and_leaves_the_users_alone(
    site: Site, kind: str
) -> None:
    north = site.tap(NORTH)
    producer = site.producer(compression=kind)
    queue = MessageQueue(site.topic, NORTH, 0)
    body = b"abc" * 2000
    message = Message(site.topic, body)
    receipt = producer.send(message, queue=queue)
    assert message.body is body
    send = north.sends()[-1]
    flags = int(send.fields["f"])
    assert flags & 1
    assert compression_of(flags) is Compression[kind.upper()]
    assert len(send.body) < len(body)
    assert decompress(bytes(send.body), compression_of(flags)) == body
    assert site.stored(receipt).body == body
    producer.send(site.topic, b"x" * 4095, queue=queue)
    assert (int(north.sends()[-1].fields["f"]), len(north.sends()[-1].body)) == (0, 4095)
