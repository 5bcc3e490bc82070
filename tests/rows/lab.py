"""Sends over real sockets by a clock and a counter of the test's own.

The rules of which queue to take go by how long an answer took, over minutes, and by a counter that
may be about to wrap. So a send here takes what is written down for its broker, whatever it really
took, and the counter begins where the test wants it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeVar

import gantrymq as gantry
from gantrymq.client.producing import Channel
from gantrymq.errors import SendFailed
from gantrymq.flows import sending
from gantrymq.flows.sending import Choice, Places
from gantrymq.model import Message, SendReceipt
from gantrymq.protocol.base import Reply, Request
from gantrymq.rules.fault_avoidance import FaultItem, FaultVersion
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.retry import SendRetries
from gantrymq.rules.turns import RoundRobin
from gantrymq.runtime import Runtime
from tests.rows.site import Noting

R = TypeVar("R", bound=Reply)

LONG: Final = 1e6


class Clock:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class TimedRuntime:
    """Calls over real sockets that take as long as `latency` says of their address."""

    def __init__(self, inner: Runtime, clock: Clock, latency: Mapping[str, float]) -> None:
        self._inner = inner
        self._clock = clock
        self.latency = latency

    async def call(self, address: str, request: Request[R], *, timeout: float) -> R:
        try:
            return await self._inner.call(address, request, timeout=20.0)
        finally:
            self._clock.time += self.latency.get(address, 0.0)

    async def tell(self, address: str, request: Request[Any]) -> None:
        await self._inner.tell(address, request)

    async def sleep(self, seconds: float) -> None:
        self._clock.time += seconds

    def now(self) -> float:
        return self._clock.time


class CountedPlaces:
    """The places of a producer, with one counter for all topics."""

    def __init__(self, inner: Places, turns: RoundRobin) -> None:
        self._inner = inner
        self._turns = turns
        self.renew = inner.renew
        self.doubt = inner.doubt
        self.address_to_send = inner.address_to_send
        self.oldest_version = inner.oldest_version
        self.longest_delay = inner.longest_delay

    def ready_to_publish(self, topic: str) -> TopicQueues | None:
        found = self._inner.ready_to_publish(topic)
        return None if found is None else replace(found, turns=self._turns)

    async def queues_to_publish(self, topic: str, *, timeout: float) -> TopicQueues:
        found = await self._inner.queues_to_publish(topic, timeout=timeout)
        return replace(found, turns=self._turns)


class Lab:
    """The sends of one producer, under conditions that the test lays down."""

    def __init__(
        self,
        producer: gantry.AsyncProducer,
        *,
        version: FaultVersion = "4.x",
        switch: bool = True,
        start: int = 0,
        retries: int = 2,
        latency: Mapping[str, float] | None = None,
    ) -> None:
        """`latency` is in seconds, by broker; the counter begins at `start`."""
        self.clock = Clock()
        self.noted = Noting()
        self._producer = producer
        channel = producer.producing.channel
        chance = Random(1)
        routes = producer.producing.engine.routes
        at = {routes.master(broker): seconds for broker, seconds in (latency or {}).items()}
        self.latency = {address: seconds for address, seconds in at.items() if address is not None}
        self.choice = QueueChoice(
            self.clock, chance, version=version, send_latency_fault_enable=switch
        )
        sender = replace(
            channel.sender,
            places=CountedPlaces(channel.sender.places, RoundRobin(chance, start=start)),
            choice=self.choice,
            chance=chance,
            hooks=self.noted,
            retries=SendRetries(retries=retries),
        )
        self.channel = Channel(TimedRuntime(channel.runtime, self.clock, self.latency), sender)

    async def send(self, topic: str, choice: Choice | None = None) -> SendReceipt:
        """Send one message."""
        draft = await self._producer.producing.draft(self.channel, Message(topic, b"in the lab"))
        return await sending.send(
            self.channel.runtime, self.channel.sender, draft, timeout=LONG, choice=choice
        )

    async def tried(self, topic: str) -> list[str]:
        """The brokers that one message was tried at."""
        before = len(self.noted.attempts)
        with contextlib.suppress(SendFailed):
            await self.send(topic)
        return self.noted.brokers[before:]

    def held(self, broker: str) -> FaultItem:
        """What is held against a broker."""
        (found,) = [item for item in self.choice.faults.items() if item.broker == broker]
        return found

    def back_in(self, broker: str) -> float:
        """In how many seconds a broker is available again."""
        return self.held(broker).available_from - self.clock()
