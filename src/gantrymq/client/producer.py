"""Producers."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, Unpack

from gantrymq.client.config import ClientArguments, load_config
from gantrymq.client.engine import Engine, shared
from gantrymq.client.identity import now_ms
from gantrymq.client.members import Member
from gantrymq.errors import StateError
from gantrymq.flows import sending
from gantrymq.flows.sending import Sender
from gantrymq.model import Message, SendReceipt
from gantrymq.net.network import Network
from gantrymq.protocol.groups import ProducerData
from gantrymq.protocol.validation import check_producer_group
from gantrymq.rules.queue_choice import QueueChoice
from gantrymq.rules.retry import SendRetries


class _Membership(Member):
    kind = "producer"

    def __init__(self, group: str) -> None:
        self.group = group

    def producer_data(self) -> ProducerData:
        return ProducerData(group=self.group)


class AsyncProducer:
    """Sends messages."""

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str = "gantry_producers",
        network: Network | None = None,
        **client: Unpack[ClientArguments],
    ) -> None:
        check_producer_group(group)
        self.group = group
        self._config = load_config(url, arguments=client)
        self._network = network
        self._member = _Membership(group)
        self._engine: Engine | None = None
        self._sender: Sender

    async def start(self) -> None:
        """Connect."""
        engine = shared(self._config, network=self._network)
        await engine.join(self._member)
        self._engine = engine
        self._sender = Sender(
            group=self.group,
            places=engine.routes,
            choice=QueueChoice(time.monotonic, engine.chance),
            retries=SendRetries(),
            unique_ids=engine.unique_ids,
            now_ms=now_ms,
        )

    async def close(self) -> None:
        """Leave."""
        if self._engine is not None:
            await self._engine.leave(self._member)
            self._engine = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(self, topic: str, body: bytes) -> SendReceipt:
        """Store a message."""
        if self._engine is None:
            raise StateError("the producer is not running")
        return await sending.send(self._engine.runtime, self._sender, Message(topic, body))
