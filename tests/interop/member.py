"""Members of consumer groups in a process of their own, which a test can kill.

```console
$ python member.py '{"name_servers": …, "groups": [{"group": …, "topic": …, "strategy": …}]}'
```

It writes one line for each message that a handler got, before the handler returns, and one line
whenever its queues are others. It ends when its stdin does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import gantrymq as gantry
from gantrymq.model import MessageQueue
from gantrymq.rules.allocation import (
    EVENLY,
    IN_TURN,
    Strategy,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_nearby_machine_room,
)


def room(number: int) -> str:
    """Even queues and members are in the north, odd ones in the south."""
    return ("north", "south")[number % 2]


def strategy(name: str, queues: Sequence[MessageQueue], rooms: Sequence[str]) -> Strategy:
    """The one that `Sharing.java` has under that name."""
    match name:
        case "averagely":
            return EVENLY
        case "by circle":
            return IN_TURN
        case "config":
            return by_config(queues)
        case "machine room":
            return by_machine_room(rooms)
        case "machine room nearby":
            return by_nearby_machine_room(
                EVENLY,
                queue_room=lambda queue: room(queue.queue_id),
                client_room=lambda client: room(int(client[-1])),
            )
        case "consistent hash":
            return by_consistent_hash()
    raise ValueError(name)


def say(kind: str, group: str, value: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps([kind, group, value]) + "\n")
    sys.stdout.flush()


class Member:
    """A consumer of one group."""

    def __init__(self, name_servers: str, item: Mapping[str, Any]) -> None:
        self.group = item["group"]
        self.topic = item["topic"]
        queues = [MessageQueue(self.topic, item["broker"], n) for n in item["queues"]]
        self.consumer = gantry.AsyncConsumer(
            name_servers=name_servers,
            group=self.group,
            topics=self.topic,
            start="earliest",
            handler=self.handle,
            client_ip="127.0.0.1",
            instance_name=item["name"],
            strategy=strategy(item["strategy"], queues, item["rooms"]),
        )
        self.known: list[int] | None = None

    async def handle(self, message: gantry.ReceivedMessage) -> None:
        say("message", self.group, message.body.decode())

    def look(self) -> None:
        """Say which queues it has, if they are others than before."""
        now = sorted(q.queue_id for q in self.consumer.queues if q.topic == self.topic)
        if now != self.known:
            self.known = now
            say("queues", self.group, now)


async def main(asked: Mapping[str, Any]) -> None:
    """Be a member until stdin ends."""
    members = [Member(asked["name_servers"], item) for item in asked["groups"]]
    loop = asyncio.get_running_loop()
    over = asyncio.ensure_future(loop.run_in_executor(None, sys.stdin.read))
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(one.consumer) for one in members))
        while not over.done():
            for one in members:
                one.look()
            await asyncio.wait((over,), timeout=0.05)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
