"""Rows B1 to B6: what it takes to start a producer, and what goes on behind it."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from gantrymq.client.config import ClientConfig
from gantrymq.client.producer_config import ProducerConfig
from gantrymq.client.states import ServiceState
from gantrymq.errors import ClosedError, InvalidInput, RequestTimeout, StateError
from gantrymq.wire.codes import RequestCode
from tests.rows.platforms import NORTH
from tests.rows.site import Seen, Site, in_a_thread, run, soon, until


def test_b1_service_states_from_created_to_shutdown(site: Site) -> None:
    async def main() -> None:
        producer = site.async_producer()
        assert producer.state is ServiceState.CREATED
        with pytest.raises(StateError, match="has not been started"):
            await producer.send(site.topic, b"too early")
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        assert producer.state is ServiceState.START_FAILED
        await starting
        assert producer.state is ServiceState.RUNNING
        with pytest.raises(StateError, match=r"not OK, maybe it was started once, running"):
            await producer.start()
        await producer.send(site.topic, b"in time")
        await producer.close()
        assert producer.state is ServiceState.SHUTDOWN
        with pytest.raises(ClosedError):
            await producer.start()

    run(main())


def test_b2_group_checks(site: Site) -> None:
    for group, why in (
        ("no spaces", "illegal characters"),
        ("x" * 121, "120"),
        ("", "blank"),
        ("DEFAULT_PRODUCER", "DEFAULT_PRODUCER"),
    ):
        with pytest.raises(InvalidInput, match=why):
            site.async_producer(group=group)

    async def main() -> None:
        async with site.async_producer() as first, site.async_producer(group="another") as second:
            assert first.client_id == second.client_id
            with pytest.raises(StateError, match=f"of group {site.group} is already in client"):
                await site.async_producer().start()
            await first.send(site.topic, b"still here")

    run(main())


def test_b3_instance_name_makes_every_client_another(site: Site) -> None:
    def seen(client_id: str, group: str) -> bool:
        return client_id in {member.client_id for member in site.admin.producers(group=group)}

    producers = [site.producer(group=f"{site.group}-{n}", call_timeout=3.0 + n) for n in range(2)]
    ids = {producer.client_id for producer in producers}
    assert len(ids) == 2
    pattern = re.compile(rf"127\.0\.0\.1@{os.getpid()}#\d+")
    for producer in producers:
        assert pattern.fullmatch(producer.client_id)
        until(lambda: seen(producer.client_id, producer.group), "the broker knows the client")  # noqa: B023
    group = f"{site.group}-named"
    named = site.producer(group=group, instance_name="till-3", unit_name="shop")
    assert named.client_id == "127.0.0.1@till-3@shop"
    until(lambda: seen(named.client_id, group), "the broker knows the client")


def test_b4_shared_client_instance_for_producers_and_consumers(site: Site) -> None:
    taps = site.taps()

    async def main() -> None:
        producer, seen = site.async_producer(), Seen()
        await producer.start()
        engine = producer.producing.engine
        async with site.consumer(seen, group=f"{site.group}-c"):
            await producer.send(site.topic, b"hello")
            await soon(lambda: seen.bodies == [b"hello"])
            assert [tap.accepted for tap in taps] == [1, 1], "one connection for all of them"
            members = site.admin.group_members(f"{site.group}-c").members
            assert {member.client_id for member in members} == {producer.client_id}
            groups = [beat.body for beat in taps[0].requests(RequestCode.HEART_BEAT)]
            assert any(
                site.group.encode() in body and f"{site.group}-c".encode() in body
                for body in groups
            )
        assert not engine.closed
        await producer.close()
        assert engine.closed, "the last one out closes it"

    run(main())


def test_b4_shared_client_instance_of_threads(site: Site) -> None:
    first = site.producer()
    ids = {
        in_a_thread(lambda: site.producer(group=f"{site.group}-{n}").client_id)  # noqa: B023
        for n in range(3)
    }
    assert ids == {first.client_id}


def test_b5_default_topic_is_known_from_the_start(site: Site) -> None:
    names = site.tap_names()
    site.producer()
    asked = [one.fields["topic"] for one in names.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)]
    assert "TBW102" in asked, asked


def test_b6_background_work_heartbeats_routes_and_late_requests(site: Site) -> None:
    assert ClientConfig().heartbeat_interval == ClientConfig().route_interval == 30.0
    north, names = site.tap(NORTH), site.tap_names()
    producer = site.producer(heartbeat_interval=0.2, route_interval=0.2)
    beats = lambda: len(north.requests(RequestCode.HEART_BEAT))  # noqa: E731
    assert beats() >= 1, "brokers know a producer when it has started"
    producer.send(site.topic, b"hello")

    def looked() -> int:
        asked = names.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        return sum(one.fields["topic"] == site.topic for one in asked)

    before = beats(), looked()
    until(lambda: beats() >= before[0] + 3, "heartbeats")
    until(lambda: looked() >= before[1] + 3, "looks at the route")
    assert ProducerConfig().send_timeout == 3.0
    with pytest.raises(RequestTimeout, match="wait reply message timeout"):
        producer.request(site.topic, b"anybody?", timeout=1.0)
