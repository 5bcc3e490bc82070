"""Customers who order, and those who work on their orders.

What one customer does stays in order. Payments are transactions, of which some are rolled back.
Reminders are delivered later. Receipts are mailed by handlers that fail now and then: such a mail
is tried again, and some can never be sent and end in the group's dead-letter topic. Three members
share the orders; now and then one leaves and comes back, and the others take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Final

import orjson

import gantrymq as gantry
from gantrymq.errors import SendFailed
from shopping.books import DEAD, Books
from shopping.servers import GROUPS

MEMBERS: Final = ("ann", "ben", "cleo")
CUSTOMERS: Final = 200
REMINDER: Final = timedelta(seconds=3)
AWAY: Final = 3.0
"""Seconds that a member stays away."""


async def insist(send: Callable[[], Awaitable[object]]) -> None:
    """Send, and send again if that fails, as on a machine that is busy with other things."""
    for pause in (0.2, 1.0):
        try:
            await send()
        except SendFailed:
            await asyncio.sleep(pause)
        else:
            return
    await send()


class Shop:
    """Everything that happens, until `stopping` is set."""

    def __init__(self, address: str, rate: float) -> None:
        self.url = f"rmq://{address}"
        self.rate = rate
        self.books = Books()
        self.members: dict[str, gantry.AsyncConsumer] = {}
        self.stopping = asyncio.Event()
        self.chance = random.Random(7)

    # --- customers ------------------------------------------------------------------------------

    async def sell(self, seconds: float) -> None:
        """Orders at an even rate, each with what follows from it; for ever if `seconds` is 0."""
        serials: Counter[str] = Counter()
        started = time.monotonic()
        async with (
            gantry.AsyncProducer(self.url, group="shop", checker=lambda _message: None) as producer,
            asyncio.TaskGroup() as under_way,
        ):
            while not self.stopping.is_set():
                passed = time.monotonic() - started
                if seconds and passed >= seconds:
                    break
                while self.books.orders < int(passed * self.rate) + 1:
                    customer = f"customer-{self.chance.randrange(CUSTOMERS)}"
                    await self.order(producer, customer, serials[customer])
                    serials[customer] += 1
                    if self.books.orders % 10 == 0:
                        under_way.create_task(self.after_order(producer, self.books.orders))
                await asyncio.sleep(0.02)

    async def order(self, producer: gantry.AsyncProducer, customer: str, serial: int) -> None:
        """One order; those of one customer go into one queue."""
        cents = self.chance.randrange(500, 20_000)
        body = orjson.dumps({"customer": customer, "serial": serial, "cents": cents})
        # one that fails is sent again before the customer's next, so that their order is kept
        await insist(
            lambda: producer.send("orders", body, keys=f"{customer}-{serial}", order_key=customer)
        )
        self.books.orders += 1
        self.books.cents += cents

    async def after_order(self, producer: gantry.AsyncProducer, number: int) -> None:
        """A receipt to be mailed, a payment that may fail, and a reminder for later."""
        body = str(number).encode()
        await insist(lambda: producer.send("mails", body, tag="receipt"))
        self.books.mails += 1
        await insist(lambda: producer.send("reminders", body, delay=REMINDER))
        self.books.reminders += 1
        async with producer.transaction("payments", body) as payment:
            if number % 50 == 0:
                await payment.rollback("the card was refused")
        (self.books.rolled_back if number % 50 == 0 else self.books.paid).add(body)

    # --- those who work on them -----------------------------------------------------------------

    async def join(self, name: str) -> None:
        """Have a member take its share of the orders."""

        async def pack(message: gantry.ReceivedMessage) -> None:
            if message.body in self.books.handled:
                self.books.repeats += 1
                return
            order = orjson.loads(message.body)
            customer, serial = order["customer"], order["serial"]
            self.books.disordered += serial != self.books.last_of[customer] + 1
            self.books.last_of[customer] = serial
            self.books.handled.add(message.body)
            self.books.by_member[name] += 1

        member = gantry.AsyncConsumer(
            self.url,
            group=GROUPS["orders"],
            start="earliest",
            topics="orders",
            handler=pack,
            ordered=True,
            instance_name=name,
        )
        await member.start()
        self.members[name] = member

    def owned(self, name: str) -> list[str] | None:
        """The queues of orders that a member has, such as a0; None while it is away."""
        member = self.members.get(name)
        if member is None:
            return None
        return sorted(
            f"{queue.broker[-1]}{queue.queue_id}"
            for queue in member.queues
            if queue.topic == "orders"
        )

    async def come_and_go(self, every: float) -> None:
        """One member after the other leaves for a while."""
        while True:
            for name in MEMBERS:
                await asyncio.sleep(every)
                await self.members.pop(name).close()
                await asyncio.sleep(AWAY)
                await self.join(name)

    async def mail(self, message: gantry.ReceivedMessage) -> None:
        """Mail a receipt; of every ten one fails at first, and one for good."""
        number = int(message.body)
        if number % 100 == 0:
            raise gantry.GiveUp("there is no such address")
        if number % 100 == 10 and message.retries == 0:
            self.books.retries += 1
            raise ConnectionError("the mail server is busy")
        self.books.mailed.add(message.body)

    async def bury(self, message: gantry.ReceivedMessage) -> None:
        """Take note of a mail that was given up."""
        self.books.dead.add(message.body)

    async def book(self, message: gantry.ReceivedMessage) -> None:
        """Take note of a payment."""
        self.books.booked.add(message.body)

    async def remind(self, message: gantry.ReceivedMessage) -> None:
        """Take note of a reminder, and of how late it is."""
        self.books.reminded.add(message.body)
        self.books.late.append(time.time() - message.born_at.timestamp() - REMINDER.total_seconds())

    @contextlib.asynccontextmanager
    async def open(self, every: float) -> AsyncIterator[None]:
        """Everybody at work for the length of the block; a member leaves after so many seconds."""
        async with contextlib.AsyncExitStack() as stack:
            for consumer in self.desks():
                await stack.enter_async_context(consumer)
            for name in MEMBERS:
                await self.join(name)
            coming_and_going = asyncio.create_task(self.come_and_go(every))
            try:
                yield
            finally:
                coming_and_going.cancel()
                await asyncio.gather(coming_and_going, return_exceptions=True)
                await asyncio.gather(*(member.close() for member in self.members.values()))

    def desks(self) -> list[gantry.AsyncConsumer]:
        """Who works on all but the orders."""
        quick = gantry.RetryPolicy(delays=[timedelta(seconds=1)])
        work = {"mails": self.mail, "payments": self.book, "reminders": self.remind}
        found = [
            gantry.AsyncConsumer(
                self.url,
                group=GROUPS[topic],
                start="earliest",
                topics=topic,
                handler=handler,
                retry=quick,
            )
            for topic, handler in work.items()
        ]
        graves = gantry.AsyncConsumer(
            self.url,
            group="undertaker",
            start="earliest",
            topics=DEAD,
            handler=self.bury,
            route_interval=2.0,  # the topic is made with the first mail that is given up
        )
        return [*found, graves]

    async def settle(self, patience: float) -> None:
        """Wait for what is still under way, but not for ever."""
        for _ in range(round(10 * patience)):
            if self.books.settled:
                return
            await asyncio.sleep(0.1)
