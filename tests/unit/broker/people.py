"""Clients with names: what they say of themselves, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantrymq.broker import clients
from gantrymq.protocol.base import Request
from gantrymq.protocol.groups import ConsumerData, Heartbeat, ProducerData, Subscription
from gantrymq.wire.codes import Language
from gantrymq.wire.versions import CURRENT
from tests.unit.broker.rig import Caller, Rig


@dataclass(eq=False)
class Client(Caller):
    """A connection of a client; `answers` is what it says when it is called."""

    client_id: str = "client-1"
    language: int = Language.JAVA
    version: int = CURRENT
    closed: bool = False
    answers: Callable[[Request[Any]], Any] | None = None
    asked: list[Request[Any]] = field(default_factory=list)

    async def call(self, request: Request[Any], *, timeout: float) -> Any:
        self.asked.append(request)
        assert self.answers is not None, f"{self.client_id} was not to be called"
        return self.answers(request)

    def close(self) -> None:
        self.closed = True
        self.is_open = False

    def notices(self) -> list[str]:
        """The groups of which it was told that they changed, since the last look."""
        told = [str(notice.group) for notice in self.heard if hasattr(notice, "group")]
        self.heard.clear()
        return told


def wants(*topics: str, expression: str = "*", version: int = 1) -> list[Subscription]:
    """Subscriptions to such topics."""
    return [Subscription(topic=one, expression=expression, version=version) for one in topics]


def beat(
    rig: Rig,
    client: Client,
    *,
    consumes: dict[str, list[Subscription]] | None = None,
    produces: tuple[str, ...] = (),
    fingerprint: int = 0,
    without_subscriptions: bool = False,
    **about: Any,
) -> Any:
    """What a heartbeat of that client is answered with."""
    request = Heartbeat(
        client_id=client.client_id,
        producers=[ProducerData(group=group) for group in produces],
        consumers=[
            ConsumerData(group=group, subscriptions=wanted, **about)
            for group, wanted in (consumes or {}).items()
        ],
        fingerprint=fingerprint,
        without_subscriptions=without_subscriptions,
        language=client.language,
        version=client.version,
    )
    return clients.heartbeat(request, rig.broker, client)  # type: ignore[arg-type]
