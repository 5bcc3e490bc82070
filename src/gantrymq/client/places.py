"""Where a producer finds topics and brokers: at its engine, on the engine's loop or off it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gantrymq.client.engine import Engine
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.routes import Known
from gantrymq.errors import CallTimeout, GantryError
from gantrymq.net.addresses import vip_address
from gantrymq.rules.queue_choice import TopicQueues


class EnginePlaces:
    """On the engine's loop."""

    def __init__(self, engine: Engine, default_topic: str, default_topic_queues: int) -> None:
        self._engine: Final = engine
        self._routes: Final = engine.routes
        self._known: Final[Callable[[str], Known | None]] = engine.routes.known
        self._vip: Final = engine.config.vip_channel
        self._default: Final = (default_topic, default_topic_queues)

    def ready_to_publish(self, topic: str) -> TopicQueues | None:
        """The queues that may be sent to, if they are known."""
        known = self._known(topic)
        return None if known is None else known.to_publish

    async def queues_to_publish(self, topic: str, *, timeout: float) -> TopicQueues:
        """The same, looked up if need be."""
        return await self._routes.queues_to_publish(topic, timeout=timeout, default=self._default)

    async def renew(self, topic: str) -> None:
        """Look again at where the topic is."""
        await self._routes.renew(topic)

    def doubt(self, topic: str) -> None:
        """What is known of the topic may be wrong: look again soon."""
        self._engine.doubt(topic)

    def address_to_send(self, broker: str) -> str | None:
        """Where the master of `broker` takes messages."""
        address = self._routes.master(broker)
        return vip_address(address) if self._vip and address is not None else address

    async def oldest_version(self, topic: str) -> int:
        """The version of the oldest broker that has the topic."""
        queues = self.ready_to_publish(topic) or await self.queues_to_publish(topic, timeout=3.0)
        versions, failure = [], None
        for broker in queues.write_queues:
            address = self._routes.master(broker)
            if address is None:
                continue
            try:
                versions.append(await self._engine.version_at(address))
            except GantryError as error:  # the others may do
                failure = error
        if not versions:
            raise CallTimeout(f"no broker of {topic} says which version it has") from failure
        return min(versions)

    async def longest_delay(self, topic: str) -> float | None:
        """How many seconds ahead all brokers of the topic take messages; None if nobody says."""
        queues = self.ready_to_publish(topic) or await self.queues_to_publish(topic, timeout=3.0)
        limits = [
            await self._engine.longest_delay_at(address)
            for broker in queues.write_queues
            if (address := self._routes.master(broker)) is not None
        ]
        return min((limit for limit in limits if limit is not None), default=None)


class ThreadPlaces:
    """The same for other threads: what is known is read here, the rest is asked for there."""

    def __init__(self, places: EnginePlaces, thread: LoopThread) -> None:
        self._there: Final = places
        self._thread: Final = thread
        self.ready_to_publish: Final = places.ready_to_publish
        self.address_to_send: Final = places.address_to_send

    async def queues_to_publish(self, topic: str, *, timeout: float) -> TopicQueues:
        """The queues that may be sent to."""
        return self._thread.call(self._there.queues_to_publish(topic, timeout=timeout))

    async def renew(self, topic: str) -> None:
        """Look again at where the topic is."""
        self._thread.call(self._there.renew(topic))

    def doubt(self, topic: str) -> None:
        """What is known of the topic may be wrong: look again soon."""
        self._thread.loop.call_soon_threadsafe(self._there.doubt, topic)

    async def longest_delay(self, topic: str) -> float | None:
        """How many seconds ahead all brokers of the topic take messages; None if nobody says."""
        return self._thread.call(self._there.longest_delay(topic))

    async def oldest_version(self, topic: str) -> int:
        """The version of the oldest broker that has the topic."""
        return self._thread.call(self._there.oldest_version(topic))
