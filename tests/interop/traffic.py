"""RocketMQ's own producers and consumers at work, told from here what to send and take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any, Final, Protocol

import generated
from peer import JavaPeer

from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.routing import GetRoute
from gantrymq.wire import record
from gantrymq.wire.record import StoredMessage

_NAMES: Final = count()
_WAIT_MS: Final = 45_000
"""A consumer of 5.5.0 may fail to send the heartbeat with which a rebalance ends, and try again
after half a minute: its first regular heartbeat holds the lock at that very moment."""


class Place(Protocol):
    """Where they work: a name server and a broker."""

    name_server: str
    broker: str


def new_name(what: str) -> str:
    return f"{what}_{next(_NAMES)}"


def messages(rng: Random, number: int, *, tags: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [
        {
            "body": (generated.body(rng) or b"-") + n.to_bytes(4, "big"),
            "tag": tags[n % len(tags)] if tags else None,
            "keys": f"key{n}",
        }
        for n in range(number)
    ]


class Traffic:
    """Java's clients of one release, at one name server."""

    def __init__(self, peer: JavaPeer, gantry: Place) -> None:
        self._peer = peer
        self.gantry = gantry

    def send(
        self, how: str, topic: str, what: list[dict[str, Any]], *, vip: bool = False
    ) -> list[dict[str, Any]]:
        item = {"how": how, "topic": topic, "messages": what, "vip": vip} | self._at()
        (results,) = self._peer.ask("traffic.send", [item])
        found: list[dict[str, Any]] = results
        return found

    def start(self, kind: str, name: str, topic: str, *, expression: str = "*") -> None:
        item = {"kind": kind, "name": name, "group": f"g_{name}", "topic": topic}
        self._peer.ask("consumer.start", [item | {"expression": expression} | self._at()])

    def take(self, name: str, wanted: int, *, wait_ms: int = _WAIT_MS) -> list[dict[str, Any]]:
        item = {"name": name, "count": wanted, "wait_ms": wait_ms}
        (taken,) = self._peer.ask("consumer.take", [item])
        found: list[dict[str, Any]] = taken
        return found

    def stop(self, name: str) -> None:
        self._peer.ask("consumer.stop", [{"name": name}])

    def stored(self, topic: str) -> list[StoredMessage]:
        """Everything in the topic, queue by queue, as our own client reads it."""
        with BlockingPeer.connect(self.gantry.name_server) as peer:
            route = peer.call(GetRoute(topic=topic), timeout=10).route
        found: list[StoredMessage] = []
        with BlockingPeer.connect(self.gantry.broker) as peer:
            for queue_id in range(route.queues[0].read_queues):
                found += _read(peer, topic, queue_id)
        return found

    def _at(self) -> dict[str, str]:
        return {"name_server": self.gantry.name_server}


def _read(peer: BlockingPeer, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    offset = 0
    while True:
        request = PullMessage(
            group="ours",
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            flags=PullFlag.SUBSCRIPTION,
            subscription="*",
        )
        reply = peer.call(request, timeout=10)
        found = list(record.iterate(reply.body))
        if not found:
            return
        assert [one.queue_offset for one in found] == list(range(offset, reply.next_offset))
        yield from found
        offset = reply.next_offset


def bodies(found: list[dict[str, Any]]) -> list[bytes]:
    return [one["body"] for one in found]
