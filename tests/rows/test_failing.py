"""Rows E1 and E2: who notices that a server is gone, and how sends go on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gantrymq.broker.config import RegisteringConfig
from gantrymq.client.config import ClientConfig
from gantrymq.nameserver.config import BrokersConfig
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.registration import RegisterBroker, Registration, UnregisterBroker
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import RESPONSE, Command
from tests.rows.platforms import BROKERS, NORTH, SOUTH, Silence
from tests.rows.site import Noting, Seen, Site, numbered, run, soon, until

GIVEN_UP = 150.0
"""Seconds of silence after which everybody has given up on somebody: 120, and a scan every 10."""


def registered(site: Site) -> set[str]:
    """The brokers that the name server knows."""
    return {broker.name for broker in site.admin.list_brokers()}


@contextmanager
def killed(site: Site, broker: str) -> Iterator[None]:
    """A broker that is dead for the length of the block, and back after it."""
    site.platform.kill(broker)
    try:
        yield
    finally:
        site.platform.restart(broker)
        until(lambda: broker in registered(site), f"{broker} is back")


def test_e1_liveness_of_brokers_at_the_name_server(site: Site) -> None:
    assert RegisteringConfig().interval == 30.0
    assert BrokersConfig().timeout == 120.0
    assert registered(site) >= {*BROKERS}
    stranger = RegisterBroker(
        broker="stranger", address="127.0.0.1:1", cluster="C", ha_address="127.0.0.1:2", broker_id=0
    )
    stranger.carry(Registration())
    with BlockingPeer.connect(site.platform.name_server) as peer:
        peer.call(stranger, timeout=20)
        until(lambda: "stranger" in registered(site), "a stranger")
    until(lambda: "stranger" not in registered(site), "gone with its connection")
    # A broker that the name server has forgotten registers again by itself.
    gone = UnregisterBroker(
        broker=SOUTH,
        address=site.platform.brokers[SOUTH],
        cluster="DefaultCluster",
        broker_id=0,
    )
    with BlockingPeer.connect(site.platform.name_server) as peer:
        peer.call(gone, timeout=20)
    until(lambda: SOUTH in registered(site), "registered again")


def test_e1_liveness_of_a_killed_broker(site: Site) -> None:
    with killed(site, SOUTH):
        until(lambda: SOUTH not in registered(site), "the dead broker is dropped at once")
        assert NORTH in registered(site)


def test_e1_liveness_of_the_silent(site: Site) -> None:
    with site.platform.silence() as silent:
        until(lambda: silent.there() == (False, False), "both are given up", GIVEN_UP)
    assert Silence.BROKER not in registered(site)


def test_e2_producers_view_is_old_for_a_while_and_sends_go_on(site: Site) -> None:
    assert ClientConfig().route_interval == 30.0
    at_names, first = site.tap_names(), {}

    def as_ever(request: Command) -> Command | None:
        said = first.get(request.fields.get("topic"))
        return None if said is None else Command(0, flag=RESPONSE, body=said)

    def keep(request: Command, answer: Command) -> None:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and answer.code == 0:
            first.setdefault(request.fields["topic"], bytes(answer.body))

    at_names.answered = keep
    noted, avoiding = Noting(), Noting()
    plain = site.producer(hooks=[noted], route_interval=1.0)
    careful = site.producer(
        hooks=[avoiding],
        group=f"{site.group}-careful",
        route_interval=1.0,
        send_latency_fault_enable=True,
    )
    for producer in (plain, careful):
        producer.send(site.topic, b"all is well")
    at_names.asked = as_ever
    with killed(site, SOUTH):
        noted.attempts.clear()
        avoiding.attempts.clear()
        receipts = [plain.send(site.topic, b"%d" % n) for n in range(16)]
        assert {receipt.queue.broker for receipt in receipts} == {NORTH}
        assert noted.brokers.count(SOUTH) >= 3, "without the switch it is tried again and again"
        receipts = [careful.send(site.topic, b"%d" % n) for n in range(16)]
        assert {receipt.queue.broker for receipt in receipts} == {NORTH}
        assert avoiding.brokers.count(SOUTH) <= 3, "with it, it is left alone"
        at_names.asked = lambda _: None  # and now the truth
        routes = plain._producing.engine.routes

        def forgotten() -> bool:
            found = routes.known(site.topic)
            assert found is not None
            assert found.to_publish is not None
            return {queue.broker for queue in found.to_publish.queues} == {NORTH}

        until(forgotten, "the route is without the dead broker")
        noted.attempts.clear()
        for n in range(16):
            plain.send(site.topic, b"%d" % n)
        assert noted.brokers == [NORTH] * 16

    def there_again() -> bool:
        return plain.send(site.topic, b"welcome back").queue.broker == SOUTH

    until(there_again, "the broker that is back gets messages")


def test_e2_consumers_go_on_when_a_broker_dies_and_when_it_is_back(site: Site) -> None:
    async def main() -> None:
        seen, stop = Seen(), threading.Event()
        sent: list[bytes] = []

        def send() -> None:
            producer = site.producer(group=f"{site.group}-p", route_interval=1.0)
            for body in numbered(100_000):
                if stop.is_set():
                    return
                producer.send(site.topic, body)
                sent.append(body)
                stop.wait(0.01)

        def of(broker: str) -> int:
            return sum(message.broker == broker for message in seen.messages)

        async with site.consumer(seen, route_interval=1.0):
            sending = asyncio.create_task(asyncio.to_thread(send))
            await soon(lambda: of(NORTH) and of(SOUTH), "messages of both")
            await asyncio.to_thread(site.platform.kill, SOUTH)
            north = of(NORTH)
            await soon(lambda: of(NORTH) > north + 20, "messages of the other")
            south = of(SOUTH)
            await asyncio.to_thread(site.platform.restart, SOUTH)
            await soon(lambda: of(SOUTH) > south + 20, "messages of the one that is back")
            stop.set()
            await sending
            await soon(lambda: {*seen.bodies} >= {*sent}, "all that was stored")

    run(main())
