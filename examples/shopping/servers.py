"""A name server and two brokers in this process, and what they say of lags and stored messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import gantrymq as gantry
from gantrymq.broker.app import BrokerServer
from gantrymq.broker.config import BrokerConfig
from gantrymq.errors import GroupNotFound, TopicNotFound
from gantrymq.flows.progress import QueueLag
from gantrymq.nameserver.app import NameServer
from gantrymq.nameserver.config import NameServerConfig
from gantrymq.settings import load
from shopping.books import DEAD, RETRIED, TOPICS, Stored

BROKERS: Final = ("broker-a", "broker-b")
QUEUES: Final = 4
GROUPS: Final = {
    "orders": "packers",
    "mails": "mails-desk",
    "payments": "payments-desk",
    "reminders": "reminders-desk",
}


@contextlib.asynccontextmanager
async def platform(data: Path) -> AsyncIterator[str]:
    """A name server and brokers for the length of the block; its address."""
    own = {"listen.bind": "127.0.0.1", "listen.port": 0, "metrics.enabled": False}
    naming = load(NameServerConfig, flags=own | {"files.data": str(data / "namesrv")}).value
    async with contextlib.AsyncExitStack() as stack:
        names = await stack.enter_async_context(NameServer(naming))
        for name in BROKERS:
            flags = own | {
                "data": str(data / name),
                "identity.name": name,
                "registering.name_servers": names.address,
                # all share one thread with the shop: a send that waits is no sign of a slow disk
                "flow.enabled": False,
            }
            config = load(BrokerConfig, flags=flags).value
            await stack.enter_async_context(BrokerServer(config))
        async with gantry.AsyncAdmin(f"rmq://{names.address}") as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, queues=QUEUES)
        yield names.address


async def take_stock(admin: gantry.AsyncAdmin) -> Stored:
    """What brokers say now."""
    lags = await asyncio.gather(*(_queues(admin, GROUPS[topic]) for topic in TOPICS))
    messages: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for topic, queues in zip(TOPICS, lags, strict=True):
        waiting[topic] = 0
        for queue in queues:
            name, high = queue.queue.topic, queue.max_offset or 0
            messages[name] = messages.get(name, 0) + high
            waiting[topic] += high - (queue.offset or 0)  # no offset: nothing was consumed
    messages[DEAD] = await _held(admin, DEAD)
    messages.setdefault(RETRIED, 0)
    return Stored(messages=messages, waiting=waiting)


async def _queues(admin: gantry.AsyncAdmin, group: str) -> list[QueueLag]:
    try:
        return (await admin.group_lag(group)).queues
    except GroupNotFound:  # nobody has joined so far
        return []


async def _held(admin: gantry.AsyncAdmin, topic: str) -> int:
    try:
        status = await admin.topic_status(topic)
    except TopicNotFound:  # nothing was given up so far
        return 0
    return sum(queue.max_offset for queue in status.queues)
