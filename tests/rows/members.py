"""A member of a consumer group that does nothing by itself: it says what the test has it say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gantrymq.net import aio
from gantrymq.net.aio import Peer
from gantrymq.net.options import PeerOptions
from gantrymq.protocol.base import Done, Reply, Request, table
from gantrymq.protocol.enums import ConsumeFromWhere
from gantrymq.protocol.groups import (
    ConsumerData,
    GetConsumerList,
    Heartbeat,
    NotifyConsumersChanged,
    ProducerData,
    Subscription,
    UnregisterClient,
)


class Member:
    """A connection to a broker."""

    peer: Peer

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.notices: list[str] = []
        """The groups that it was told have changed."""

    async def ask(self, request: Request[Any]) -> Reply:
        return await self.peer.call(request, timeout=20.0)

    async def beat(
        self, group: str, topics: Mapping[str, int] | tuple[str, ...], *, tags: str = "*"
    ) -> None:
        """Say that it is in `group` and wants these topics; numbers are versions."""
        versions = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        wanted = [
            Subscription(topic=topic, version=version, expression=tags)
            for topic, version in versions.items()
        ]
        consumer = ConsumerData(
            group=group, consume_from=ConsumeFromWhere.FIRST_OFFSET, subscriptions=wanted
        )
        beat = Heartbeat(
            client_id=self.client_id,
            producers=[ProducerData(group=f"{group}-producers")],
            consumers=[consumer],
        )
        await self.ask(beat)

    async def leave(self, group: str) -> None:
        """Say that it is in `group` no more."""
        await self.ask(UnregisterClient(client_id=self.client_id, consumer_group=group))

    async def others(self, group: str) -> set[str]:
        """Who is in `group`."""
        reply = await self.peer.call(GetConsumerList(group=group), timeout=20.0)
        return set(reply.client_ids)


def _noted(request: NotifyConsumersChanged, member: Member, _peer: Peer) -> Done:
    member.notices.append(request.group)
    return Done()


@asynccontextmanager
async def member(address: str, client_id: str) -> AsyncIterator[Member]:
    """A member that is connected and has not said anything yet."""
    one = Member(client_id)
    answers = table(NotifyConsumersChanged.answered_by(_noted))
    quiet = PeerOptions(idle_timeout=100_000)
    one.peer = await aio.connect(address, answers, one, options=quiet)
    try:
        yield one
    finally:
        one.peer.close()
        await one.peer.wait_closed()


async def told(one: Member, count: int) -> None:
    """Wait for so many notices, and make sure that there are no more."""
    end = time.monotonic() + 60
    while len(one.notices) < count:
        assert time.monotonic() < end, f"{one.client_id} was told {len(one.notices)} of {count}"
        await asyncio.sleep(0.01)
    assert len(one.notices) == count, f"{one.client_id} was told too often"
