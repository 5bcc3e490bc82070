"""A whole conversation over loopback sockets: route, sends by turns, shared queues, long polls.

At one end a keeper holds messages in memory and answers three requests. At the other a producer
asks for the route and sends to the queues in turn, and two members of a group share the queues by
RocketMQ's rule and pull them. Every byte goes through RocketMQ's own protocol, so the same requests
work against any RocketMQ server.

    ./dev run [--seconds N] [--size BYTES] [--in-flight N]

Ends with what was sent and received, and with exit code 0 only if the two agree.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final

from gantrymq.errors import GantryError, InvalidParameter, TopicNotFound
from gantrymq.model import MessageQueue
from gantrymq.net import aio
from gantrymq.net.peer import Peer
from gantrymq.protocol.base import table
from gantrymq.protocol.pulling import PullMessage, PullReply, PullStatus
from gantrymq.protocol.routing import BrokerData, GetRoute, QueueData, RouteReply, TopicRoute
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.rules.allocation import allocate_evenly
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.turns import RoundRobin
from gantrymq.wire import record
from gantrymq.wire.record import StoredMessage

TOPIC: Final = "orders"
BROKER: Final = "keeper"
QUEUES: Final = 8
MEMBERS: Final = ("member-0", "member-1")


@dataclass(slots=True)
class Queue:
    """The records of one queue, and a bell for those who wait for more."""

    records: list[bytes] = field(default_factory=list)
    arrival: asyncio.Event = field(default_factory=asyncio.Event)


class Keeper:
    """Holds messages in memory: what a broker is to its clients, without the disk."""

    def __init__(self) -> None:
        self.address = ""
        self.queues = [Queue() for _ in range(QUEUES)]

    async def arriving(self, request: PullMessage) -> PullReply:
        """Wait for an arrival for as long as the request allows."""
        queue = self.queue(request.queue_id)
        queue.arrival.clear()
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                await queue.arrival.wait()
        except TimeoutError:
            pass
        return self.found(request)

    def found(self, request: PullMessage) -> PullReply:
        """The records from the asked offset on, back to back."""
        records = self.queue(request.queue_id).records
        batch = records[request.offset : request.offset + request.max_messages]
        return PullReply(
            status=PullStatus.FOUND if batch else PullStatus.NOTHING_NEW,
            suggested_broker=0,
            next_offset=request.offset + len(batch),
            min_offset=0,
            max_offset=len(records),
            body=b"".join(batch),
        )

    def queue(self, queue_id: int) -> Queue:
        """One queue, or the refusal that a broker gives."""
        if not 0 <= queue_id < QUEUES:
            raise InvalidParameter.because(f"queueId[{queue_id}] is illegal, there are {QUEUES}")
        return self.queues[queue_id]


def get_route(request: GetRoute, keeper: Keeper, _peer: Peer) -> RouteReply:
    """Every queue of the one topic is at the keeper."""
    if request.topic != TOPIC:
        raise TopicNotFound.because(f"there is only {TOPIC} here, no {request.topic}")
    queues = [QueueData(broker=BROKER, read_queues=QUEUES, write_queues=QUEUES, perm=6)]
    brokers = [BrokerData(cluster="example", name=BROKER, addresses={0: keeper.address})]
    return RouteReply(route=TopicRoute(queues=queues, brokers=brokers))


def send_message(request: SendMessage, keeper: Keeper, _peer: Peer) -> SendReply:
    """Keep the message, and wake whoever waits for it."""
    queue = keeper.queue(request.queue_id)
    message = StoredMessage(
        topic=request.topic,
        body=bytes(request.body),
        property_bytes=(request.properties or "").encode(),
        queue_id=request.queue_id,
        queue_offset=len(queue.records),
        sys_flag=request.flags,
        born_ms=request.born_ms,
        store_ms=milliseconds(),
    )
    queue.records.append(message.encode())
    queue.arrival.set()
    return SendReply(
        message_id=message.offset_id, queue_id=message.queue_id, offset=message.queue_offset
    )


def pull_message(
    request: PullMessage, keeper: Keeper, _peer: Peer
) -> PullReply | Awaitable[PullReply]:
    """What there is; a reply at once if there is something, later if there is not."""
    found = keeper.found(request)
    return found if found.status is PullStatus.FOUND else keeper.arriving(request)


HANDLERS: Final = table(
    GetRoute.answered_by(get_route),
    SendMessage.answered_by(send_message),
    PullMessage.answered_by(pull_message),
)


@dataclass(slots=True)
class Tally:
    """What went through, and how long it took."""

    sent: int = 0
    received: int = 0
    by_member: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEMBERS, 0))
    out_of_order: int = 0
    latency: float = 0.0
    arrival: asyncio.Event = field(default_factory=asyncio.Event)


async def find_queues(peer: Peer) -> list[MessageQueue]:
    """The queues of the topic, from the route."""
    reply = await peer.call(GetRoute(topic=TOPIC), timeout=3.0)
    return [
        MessageQueue(TOPIC, data.broker, queue_id)
        for data in reply.route.queues
        for queue_id in range(data.write_queues)
    ]


async def produce(peer: Peer, tally: Tally, body: bytes, until: float, in_flight: int) -> None:
    """Send to the queues in turn, several messages at a time, until the time is over."""
    choice = QueueChoice(time.monotonic, random)
    queues = TopicQueues.of(await find_queues(peer), RoundRobin(random))

    async def send_on() -> None:
        while time.monotonic() < until:
            queue = choice.choose(queues)
            request = SendMessage(
                group="shop",
                topic=TOPIC,
                queue_id=queue.queue_id,
                born_ms=milliseconds(),
                properties="TAGS\x01paid\x02",
                body=body,
            )
            await peer.call(request, timeout=3.0)
            tally.sent += 1

    async with asyncio.TaskGroup() as senders:
        for _ in range(in_flight):
            senders.create_task(send_on())


async def consume(peer: Peer, member: str, tally: Tally) -> None:
    """Pull the queues that fall to this member, each in a task of its own."""
    share = allocate_evenly(member, await find_queues(peer), MEMBERS)
    async with asyncio.TaskGroup() as pulls:
        for queue in share:
            pulls.create_task(pull_queue(peer, queue, member, tally))


async def pull_queue(peer: Peer, queue: MessageQueue, member: str, tally: Tally) -> None:
    """Follow one queue from its beginning."""
    offset = 0
    while True:
        request = PullMessage(
            group="billing",
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=256,
            wait_ms=1000,
        )
        reply = await peer.call(request, timeout=5.0)
        for message in record.iterate(reply.body):
            tally.out_of_order += message.queue_offset != offset
            tally.latency += milliseconds() - message.born_ms
            offset = message.queue_offset + 1
            tally.received += 1
            tally.by_member[member] += 1
        tally.arrival.set()


async def show(tally: Tally, until: float) -> None:
    """A line that lives on a terminal; a plain one every few seconds elsewhere."""
    live = sys.stderr.isatty()
    while (left := until - time.monotonic()) > 0:
        text = f"sent {tally.sent:>10,}  received {tally.received:>10,}  {left:4.0f} s left"
        print(f"\r{text}" if live else text, end="" if live else "\n", file=sys.stderr, flush=True)
        await asyncio.sleep(min(left, 0.2 if live else 5))
    if live:
        print(file=sys.stderr)


async def converse(seconds: float, size: int, in_flight: int) -> Tally:
    """Run keeper, producer and consumers, and let the last messages arrive."""
    tally, keeper = Tally(), Keeper()
    until = time.monotonic() + seconds
    async with await aio.serve("127.0.0.1:0", HANDLERS, owner=keeper) as server:
        keeper.address = server.address
        producer, *consumers = [await aio.connect(server.address) for _ in range(3)]
        pulling = [
            asyncio.create_task(consume(peer, member, tally))
            for peer, member in zip(consumers, MEMBERS, strict=True)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(show(tally, until))
                group.create_task(produce(producer, tally, b"x" * size, until, in_flight))
            await wait_for_the_rest(tally)
        finally:
            for task in pulling:
                task.cancel()
            await asyncio.gather(*pulling, return_exceptions=True)
            for peer in (producer, *consumers):
                peer.close()
    return tally


async def wait_for_the_rest(tally: Tally) -> None:
    """Up to ten seconds for what is under way."""
    async with asyncio.timeout(10):
        while tally.received < tally.sent:
            tally.arrival.clear()
            await tally.arrival.wait()


def milliseconds() -> int:
    """The wall clock as RocketMQ writes it."""
    return time.time_ns() // 1_000_000


def main() -> int:
    """Read the options, run, report."""
    parser = argparse.ArgumentParser(description="Send and receive over RocketMQ's protocol.")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to send (10)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of each body (1024)")
    parser.add_argument("--in-flight", type=int, default=64, help="sends at a time (64)")
    options = parser.parse_args()
    if options.seconds <= 0 or options.size < 1 or options.in_flight < 1:
        parser.error("--seconds, --size and --in-flight have to be positive")
    try:
        tally = aio.run(converse(options.seconds, options.size, options.in_flight))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except GantryError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except TimeoutError:
        print("failed: some of what was sent did not arrive within ten seconds", file=sys.stderr)
        return 1
    print(
        f"sent {tally.sent:,} of {options.size} bytes in {options.seconds:g} s "
        f"({tally.sent / options.seconds:,.0f}/s), received {tally.received:,}\n"
        f"shared {' and '.join(f'{n:,}' for n in tally.by_member.values())}, "
        f"out of order {tally.out_of_order}, "
        f"born to received {tally.latency / max(1, tally.received):.1f} ms on average"
    )
    return 0 if tally.sent == tally.received > 0 and not tally.out_of_order else 1


if __name__ == "__main__":
    sys.exit(main())
