"""How a broker is kept known to its name servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from gantrymq.broker.config import IdentityConfig, RegisteringConfig
from gantrymq.broker.keeping import Keeper
from gantrymq.broker.registration import PATIENCE, Registrar
from gantrymq.broker.topics import Topics
from gantrymq.errors import BrokerFailure, ConnectFailed
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import (
    DataVersionReply,
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
)
from gantrymq.protocol.topics import TopicSettings
from tests.support import run_on
from tests.unit.broker.rig import MemoryFiles, Rig

A, B = "10.0.0.1:9876", "10.0.0.2:9876"


class NameServers:
    """Name servers that remember what they are told; the ones in `down` are not there."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, object]] = []
        self.down: set[str] = set()
        self.held: dict[str, DataVersion] = {}
        self.order: dict[str, str] | None = None
        self.delay = 0.0

    async def call(self, address: str, request: Any, *, timeout: float) -> Any:
        if self.delay:
            await asyncio.sleep(self.delay)
        if address in self.down:
            raise ConnectFailed(f"{address} is down")
        match request:
            case RegisterBroker():
                table = request.registration().table
                if address not in self.held and len(table.topics) == 1:
                    raise BrokerFailure.because("register broker failed")
                self.held[address] = table.version
                self.told.append((address, "register", set(table.topics)))
                return RegisterBrokerReply(order_topics=self.order)
            case QueryDataVersion():
                self.told.append((address, "query", None))
                return DataVersionReply(changed=self.held.get(address) != request.version)
            case UnregisterBroker():
                self.told.append((address, "unregister", request.address))
                return None
        raise AssertionError(request)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def take(self) -> list[tuple[str, str, object]]:
        """What was told since the last look."""
        told, self.told = self.told, []
        return told


class Scene:
    """A registrar, its topics, and the name servers."""

    def __init__(self, *, permission: int = 6, **settings: Any) -> None:
        self.servers = NameServers()
        self.keeper = Keeper(MemoryFiles())
        self.topics = Topics(
            Rig().config.topics,
            identity=IdentityConfig(),
            keeper=self.keeper,
            clock_ms=lambda: 1000,
        )
        self.topics.table = {
            name: TopicSettings(topic=name, perm=6) for name in ("orders", "bills")
        }
        self.registrar = Registrar(
            RegisteringConfig(**settings),
            identity=IdentityConfig(),
            permission=permission,
            topics=self.topics,
            runtime=self.servers,
        )

    async def start(self, *addresses: str) -> None:
        async def address_for(name_server: str) -> str:
            return f"192.0.2.{9 if name_server == A else 8}:10911"

        await self.registrar.start(addresses, address_for, "192.0.2.9:10912")

    async def close(self) -> None:
        await self.registrar.close()
        await self.keeper.close()


def scene(**settings: Any) -> Callable[[Callable[[Scene], Any]], Callable[[], None]]:
    def decorate(test: Callable[[Scene], Any]) -> Callable[[], None]:
        def run() -> None:
            async def main() -> None:
                one = Scene(**settings)
                await test(one)
                await one.close()

            run_on("virtual", main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


EVERYTHING = {"orders", "bills"}


@scene()
async def test_every_name_server_is_told_everything_at_the_start(one):
    await one.start(A, B)
    await asyncio.sleep(0.1)
    assert sorted(one.servers.take()) == [(A, "register", EVERYTHING), (B, "register", EVERYTHING)]
    assert one.registrar.known_to == [A, B]
    await one.registrar.close()
    assert sorted(one.servers.take()) == [
        (A, "unregister", "192.0.2.9:10911"),
        (B, "unregister", "192.0.2.8:10911"),
    ]


@scene()
async def test_starting_waits_for_one_name_server_only(one):
    one.servers.down = {A}
    await one.start(A, B)
    assert one.registrar.known_to == [B]
    one.servers.down = set()
    await asyncio.sleep(1.1)  # a name server that is not there is tried again every second
    assert one.registrar.known_to == [A, B]


@scene()
async def test_without_name_servers_there_is_nothing_to_wait_for(one):
    await one.start()
    assert one.registrar.known_to == []
    assert not one.registrar.behind
    await one.registrar.spread()


@scene()
async def test_starting_waits_until_there_is_one(one):
    one.servers.down = {A}
    starting = asyncio.ensure_future(one.start(A))
    await asyncio.sleep(10)
    assert not starting.done()
    one.servers.down = set()
    await starting
    assert one.registrar.known_to == [A]


@scene()
async def test_the_sign_of_life_is_a_question(one):
    await one.start(A)
    one.servers.take()
    await asyncio.sleep(95)
    assert one.servers.take() == [(A, "query", None)] * 3


@scene()
async def test_who_has_another_version_is_told_everything_again(one):
    await one.start(A)
    one.servers.take()
    del one.servers.held[A]  # it was started anew
    await asyncio.sleep(31)
    assert one.servers.take() == [(A, "query", None), (A, "register", EVERYTHING)]


@scene()
async def test_changed_topics_are_told_at_once_and_alone(one):
    await one.start(A)
    one.servers.take()
    one.topics.make("new", queues=1)
    one.topics.make("newer", queues=1)
    assert one.registrar.behind
    await one.registrar.spread()
    assert one.servers.take() == [(A, "register", {"new", "newer"})]
    assert not one.registrar.behind
    one.topics.drop("new")
    await one.registrar.spread()
    assert one.servers.take() == [(A, "register", set())]
    assert one.servers.held[A] == one.topics.version


@scene()
async def test_what_changes_during_a_registration_follows_it(one):
    await one.start(A)
    one.servers.take()
    one.servers.delay = 0.2
    one.topics.make("new", queues=1)
    await asyncio.sleep(0.1)
    one.topics.make("newer", queues=1)
    await one.registrar.spread()
    assert one.servers.take() == [(A, "register", {"new"}), (A, "register", {"newer"})]


@scene()
async def test_one_changed_topic_is_too_little_for_a_name_server_that_forgot_us(one):
    await one.start(A)
    del one.servers.held[A]
    one.topics.make("new", queues=1)
    await asyncio.sleep(1.5)
    assert one.servers.take()[-1] == (A, "register", EVERYTHING | {"new"})


@scene()
async def test_nobody_waits_long_for_a_name_server_that_went(one):
    await one.start(A)
    one.servers.delay = 60.0
    one.topics.make("new", queues=1)
    began = one.servers.now()
    await one.registrar.spread()
    assert one.servers.now() - began == pytest.approx(PATIENCE)
    one.servers.delay = 0.0


@scene(permission=4)
async def test_topics_allow_no_more_than_the_broker(one):
    one.topics.table["inherit"] = TopicSettings(topic="inherit", perm=7)
    table = one.registrar.table(None)
    assert {name: topic.perm for name, topic in table.topics.items()} == {
        "orders": 4, "bills": 4, "inherit": 4,
    }  # fmt: skip
    assert one.topics.table["orders"].perm == 6


@scene()
async def test_another_permission_is_told(one):
    await one.start(A)
    one.servers.take()
    one.registrar.permit(6)
    await asyncio.sleep(0.1)
    assert one.servers.take() == []
    one.registrar.permit(4)
    await asyncio.sleep(0.1)
    assert one.servers.take() == [(A, "register", EVERYTHING)]


@scene()
async def test_the_answer_says_which_topics_are_ordered(one):
    one.servers.order = {"bills": "broker-a:4"}
    await one.start(A)
    assert one.topics.table["bills"].ordered
    await asyncio.sleep(0.1)
    assert one.servers.take() == [(A, "register", EVERYTHING), (A, "register", {"bills"})]


def test_a_failure_is_told_once_until_it_is_over(caplog):
    async def main() -> None:
        one = Scene()
        await one.start(A)
        one.servers.down = {A}
        one.topics.make("new", queues=1)
        await asyncio.sleep(20)
        one.servers.down = set()
        await asyncio.sleep(2)
        one.servers.down = {A}
        await asyncio.sleep(35)
        await one.close()

    with caplog.at_level(logging.INFO, "gantrymq.broker"):
        run_on("virtual", main())
    said = [(record.levelname, record.getMessage().split(" at ")[0]) for record in caplog.records]
    assert said == [
        ("INFO", "registered"),
        ("WARNING", "registering"),
        ("INFO", "registered"),
        ("WARNING", "registering"),
    ]
