"""Two namespaces on one platform: the same names, and nobody sees the other's messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import gantrymq as gantry
from gantrymq.model import ReceivedMessage
from gantrymq.rules.redelivery import RetryLater
from tests.cluster.threads import Platform, platform

SPACES = ("red", "blue")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Platform]:
    settings = {"transactions__immunity": "0.2s", "transactions__interval": "0.3s"}
    with platform(tmp_path, **settings) as running:
        for space in SPACES:
            running.topic(f"{space}%orders", 2)
        yield running


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class Tenant:
    """A producer and a consumer of one namespace, of the same names in each."""

    def __init__(self, here: Platform, space: str) -> None:
        self.space = space
        self.where: dict[str, Any] = {"name_servers": here.name_server, "namespace": space}
        self.got: list[tuple[str, bytes, int]] = []
        self.asked: list[tuple[str, bytes]] = []
        self.producer = gantry.Producer(group="shop", checker=self.check, **self.where)
        self.consumer = gantry.Consumer(
            group="billing", topics="orders", start="earliest", handler=self.handle, **self.where
        )

    def check(self, message: ReceivedMessage) -> bool:
        self.asked.append((message.topic, message.body))
        return message.body.startswith(b"good")

    def handle(self, message: ReceivedMessage) -> None:
        self.got.append((message.topic, message.body, message.retries))
        if message.body == b"question":
            self.producer.reply(message, f"{self.space} answers".encode())
        if message.body == b"again" and message.retries == 0:
            raise RetryLater(1)

    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.got]


@pytest.fixture
def tenants(here: Platform) -> Iterator[list[Tenant]]:
    found = [Tenant(here, space) for space in SPACES]
    for one in found:
        one.producer.start()
        one.consumer.start()
    yield found
    for one in found:
        one.consumer.close()
        one.producer.close()


def test_everything_stays_in_its_namespace(here: Platform, tenants: list[Tenant]) -> None:
    for one in tenants:
        name = one.space.encode()
        assert one.producer.send("orders", name + b" sent").queue.topic == "orders"
        one.producer.send("orders", name + b" later", delay=timedelta(seconds=0.5))
        one.producer.send("orders", b"again")
        with one.producer.transaction("orders", name + b" committed"):
            pass
        for body in (b"good " + name, b"bad " + name):
            half = one.producer.transaction("orders", body)
            half.__enter__()
            half.leave_open()
        answer = one.producer.request("orders", b"question", timeout=20)
        assert answer.body == name + b" answers"
    for one in tenants:
        name = one.space.encode()
        wanted = {
            name + b" sent", name + b" later", b"again", name + b" committed", b"good " + name,
            b"question",
        }  # fmt: skip
        until(lambda one=one, wanted=wanted: {*one.bodies()} >= wanted)
        until(lambda one=one: ("orders", b"again", 1) in one.got)
        assert {*one.bodies()} == wanted
        assert {topic for topic, _, _ in one.got} == {"orders"}
        assert {*one.asked} == {("orders", b"good " + name), ("orders", b"bad " + name)}


def test_tools_see_a_namespace_as_if_it_were_all(here: Platform, tenants: list[Tenant]) -> None:
    red, _ = tenants
    with (
        gantry.Reader(**red.where) as reader,
        gantry.Admin(timeout=20, **red.where) as admin,
    ):
        receipt = red.producer.send("orders", b"red", keys="k", light_queues=["all"])
        assert [one.body for one in reader.messages("orders")] == [b"red"]
        assert [one.body for one in reader.messages("%LMQ%all")] == [b"red"]
        (found,) = admin.messages_by_key("orders", "k")
        assert found.message_id == receipt.message_id
        half = red.producer.transaction("orders", b"open")
        half.__enter__()
        (one,) = admin.open_transactions(group="shop")
        assert (one.topic, one.group) == ("orders", "shop")
        half.rollback()
        admin.create_topic("profiles", queues=1, attributes={"cleanup.policy": "COMPACTION"})
    with gantry.TableView("profiles", **red.where) as view:
        view.put("anna", b"1")
        assert dict(view) == {"anna": b"1"}
