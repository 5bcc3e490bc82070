"""A sender over a script: brokers `a`, `b`, … with four queues each at `a:1`, `b:1`, …"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gantrymq.errors import NoRoute
from gantrymq.flows.drafting import Draft, Drafting, DraftRules
from gantrymq.flows.sending import Sender, send
from gantrymq.model import Message, MessageQueue, SendReceipt, SendStatus
from gantrymq.protocol.sending import SendBatch, SendMessage, SendReply
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.retry import SendRetries
from gantrymq.rules.turns import RoundRobin
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire.message_id import UniqueIds
from gantrymq.wire.versions import V5_5_0

NOW_MS = 1_700_000_000_000


class Places:
    """A topic that every broker has."""

    def __init__(self, brokers: str, *, version: int = V5_5_0) -> None:
        self.brokers = brokers
        self.version = version
        self.known = True
        self.there = True
        self.longest: float | None = None
        self.nowhere: set[str] = set()
        self.renewed: list[str] = []
        self.doubted: list[str] = []
        self.turns = RoundRobin(random.Random(1), start=0)

    def ready_to_publish(self, topic: str) -> TopicQueues | None:
        if not self.known:
            return None
        queues = [MessageQueue(topic, b, n) for b in self.brokers for n in range(4)]
        return TopicQueues.of(queues, self.turns)

    async def queues_to_publish(self, topic: str, *, timeout: float) -> TopicQueues:
        if not self.there:
            raise NoRoute(f"no route info of this topic: {topic}")
        self.known = True
        found = self.ready_to_publish(topic)
        assert found is not None
        return found

    async def renew(self, topic: str) -> None:
        self.renewed.append(topic)

    def doubt(self, topic: str) -> None:
        self.doubted.append(topic)

    def address_to_send(self, broker: str) -> str | None:
        return None if broker in self.nowhere else f"{broker}:1"

    async def oldest_version(self, topic: str) -> int:
        return self.version

    async def longest_delay(self, topic: str) -> float | None:
        return self.longest


class Rig:
    """A script with a sender."""

    def __init__(self, brokers: str = "ab", *, version: int = V5_5_0, **how: Any) -> None:
        self.world = ScriptedRuntime()
        self.world.time = 1000.0
        self.places = Places(brokers, version=version)
        rules = {name: how.pop(name) for name in tuple(how) if name in DraftRules.__slots__}
        choice = {
            name: how.pop(name)
            for name in ("send_latency_fault_enable", "fault_version")
            if name in how
        }
        ids = UniqueIds(b"\x7f\0\0\1", 7, 9, lambda: NOW_MS, lambda at: NOW_MS - 1000)
        self.sender = Sender(
            places=self.places,
            choice=QueueChoice(
                self.world.now,
                random.Random(5),
                version=choice.get("fault_version", "5.x"),
                send_latency_fault_enable=choice.get("send_latency_fault_enable", False),
            ),
            retries=SendRetries(**how),
            drafting=Drafting(DraftRules(group="shop", **rules), ids, lambda: NOW_MS),
            chance=random.Random(6),
            namespace=rules.get("namespace", ""),
        )
        self.stores()

    def stores(self, status: SendStatus = SendStatus.OK, *, takes: float = 0.0) -> None:
        """Let every broker store what it gets."""
        for broker in self.places.brokers:
            self.at(broker, stored(status), takes=takes)

    def at(self, broker: str, *outcomes: Any, takes: float = 0.0) -> None:
        """What comes of sends to `broker`."""
        for kind in (SendMessage, SendBatch):
            self.world.answer(f"{broker}:1", kind, list(outcomes), takes=takes)

    def send(self, message: Message | None = None, **how: Any) -> SendReceipt:
        """The receipt of a message."""
        draft = self.sender.drafting.one(message or Message("orders", b"hello"))
        return self.send_draft(draft, **how)

    def send_draft(self, draft: Draft, **how: Any) -> SendReceipt:
        """The same for one that is ready."""
        return run_blocking(send(self.world, self.sender, draft, **how))

    @property
    def brokers(self) -> str:
        """The brokers that were sent to."""
        return " ".join(address.partition(":")[0] for address, _ in self.world.calls)

    @property
    def requests(self) -> list[SendMessage]:
        """What they were sent."""
        return [request for _, request in self.world.calls if isinstance(request, SendMessage)]


def stored(status: SendStatus = SendStatus.OK) -> Callable[[SendMessage], SendReply]:
    """What a broker says that has stored it."""
    return lambda request: SendReply(
        status=status, message_id="7F00" + "0" * 28, queue_id=request.queue_id, offset=3
    )
