"""A shop on one machine: a platform of its own, a stream of orders, and a group that shares them.

A name server and two brokers run in this process. Customers order, and what one customer does stays
in order. Payments are transactions, of which some are rolled back. Reminders are delivered later.
Receipts are mailed by handlers that fail now and then: such a mail is tried again, and some can
never be sent and end in the group's dead-letter topic. Three members share the orders; every few
seconds one leaves and comes back, and the others take over.

    ./dev run [--seconds N] [--rate N] [--data DIR]

Ends with what was sent and what became of it, and with exit code 0 only if the two agree.
"""

# needs: server

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import gantrymq as gantry
from gantrymq.broker.app import BrokerServer
from gantrymq.broker.config import BrokerConfig
from gantrymq.nameserver.app import NameServer
from gantrymq.nameserver.config import NameServerConfig
from gantrymq.net import aio
from gantrymq.settings import load

BROKERS: Final = ("broker-a", "broker-b")
MEMBERS: Final = ("ann", "ben", "cleo")
CUSTOMERS: Final = 200
REMINDER: Final = timedelta(seconds=3)
AWAY: Final = 3.0
"""Seconds that a member stays away."""
PATIENCE: Final = 60.0
"""Seconds that the last messages may take."""


@dataclass(slots=True)
class Books:
    """What was sent, and what became of it."""

    orders: int = 0
    handled: set[bytes] = field(default_factory=set)
    repeats: int = 0
    disordered: int = 0
    last_of: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    by_member: Counter[str] = field(default_factory=Counter)
    mails: int = 0
    mailed: set[bytes] = field(default_factory=set)
    mail_failures: int = 0
    dead: set[bytes] = field(default_factory=set)
    paid: set[bytes] = field(default_factory=set)
    rolled_back: set[bytes] = field(default_factory=set)
    booked: set[bytes] = field(default_factory=set)
    reminders: int = 0
    reminded: set[bytes] = field(default_factory=set)
    late: list[float] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether everything that was sent has come to its end."""
        return (
            len(self.handled) == self.orders
            and len(self.mailed) + len(self.dead) == self.mails
            and self.booked == self.paid
            and len(self.reminded) == self.reminders
        )

    @property
    def right(self) -> bool:
        """Whether it came to the end that it should have come to."""
        return self.settled and not self.disordered and not self.booked & self.rolled_back


class Shop:
    """Everything that happens, until the time is over."""

    def __init__(self, address: str, rate: float) -> None:
        self.url = f"rmq://{address}"
        self.rate = rate
        self.books = Books()
        self.members: dict[str, gantry.AsyncConsumer] = {}
        self.chance = random.Random(7)

    # --- customers ------------------------------------------------------------------------------

    async def sell(self, producer: gantry.AsyncProducer, until: float) -> None:
        """Orders at an even rate, each with what follows from it."""
        serials: Counter[str] = Counter()
        started = time.monotonic()
        async with asyncio.TaskGroup() as under_way:
            while (now := time.monotonic()) < until:
                due = int((now - started) * self.rate) + 1
                while self.books.orders < due:
                    customer = f"customer-{self.chance.randrange(CUSTOMERS)}"
                    await self.order(producer, customer, serials[customer])
                    serials[customer] += 1
                    if self.books.orders % 10 == 0:
                        under_way.create_task(self.after_order(producer, self.books.orders))
                await asyncio.sleep(0.01)

    async def order(self, producer: gantry.AsyncProducer, customer: str, serial: int) -> None:
        """One order; those of one customer go into one queue."""
        body = f"{customer} {serial}".encode()
        await producer.send(
            "orders", body, keys=body.decode().replace(" ", "-"), order_key=customer
        )
        self.books.orders += 1

    async def after_order(self, producer: gantry.AsyncProducer, number: int) -> None:
        """A receipt to be mailed, a payment that may fail, and a reminder for later."""
        body = str(number).encode()
        await producer.send("mails", body, tag="receipt")
        self.books.mails += 1
        await producer.send("reminders", body, delay=REMINDER)
        self.books.reminders += 1
        async with producer.transaction("payments", body) as payment:
            if number % 50 == 0:
                await payment.rollback("the card was refused")
        (self.books.rolled_back if number % 50 == 0 else self.books.paid).add(body)

    # --- those who work on them -----------------------------------------------------------------

    async def join(self, name: str) -> None:
        """Have a member take its share of the orders."""

        async def pack(message: gantry.ReceivedMessage) -> None:
            customer, serial = message.body.decode().split()
            if message.body in self.books.handled:
                self.books.repeats += 1
                return
            self.books.disordered += int(serial) != self.books.last_of[customer] + 1
            self.books.last_of[customer] = int(serial)
            self.books.handled.add(message.body)
            self.books.by_member[name] += 1

        member = gantry.AsyncConsumer(
            self.url,
            group="packers",
            start="earliest",
            topics="orders",
            handler=pack,
            ordered=True,
            instance_name=name,
        )
        await member.start()
        self.members[name] = member

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
            self.books.mail_failures += 1
            raise gantry.GiveUp("there is no such address")
        if number % 100 == 10 and message.retries == 0:
            self.books.mail_failures += 1
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
    async def open(self) -> AsyncIterator[None]:
        """Everybody at work for the length of the block."""
        quick = gantry.RetryPolicy(delays=[timedelta(seconds=1)])
        work = {"mails": self.mail, "payments": self.book, "reminders": self.remind}
        async with contextlib.AsyncExitStack() as stack:
            for topic, handler in work.items():
                consumer = gantry.AsyncConsumer(
                    self.url,
                    group=f"{topic}-desk",
                    start="earliest",
                    topics=topic,
                    handler=handler,
                    retry=quick,
                )
                await stack.enter_async_context(consumer)
            graves = gantry.AsyncConsumer(
                self.url,
                group="undertaker",
                start="earliest",
                topics="%DLQ%mails-desk",
                handler=self.bury,
                route_interval=2.0,  # the topic is made with the first mail that is given up
            )
            await stack.enter_async_context(graves)
            for name in MEMBERS:
                await self.join(name)
            try:
                yield
            finally:
                for member in self.members.values():
                    await member.close()

    # --- what is seen of it ---------------------------------------------------------------------

    def line(self) -> str:
        """How things stand, in one line."""
        books = self.books
        owned = "  ".join(f"{name} {len(self.members[name].queues)}" if name in self.members
                          else f"{name} away" for name in MEMBERS)  # fmt: skip
        return (
            f"orders {books.orders:>8,} sent {len(books.handled):>8,} packed"
            f"   queues: {owned}   mails {len(books.mailed):,} + {len(books.dead):,} dead"
            f"   payments {len(books.booked):,}   reminders {len(books.reminded):,}"
        )

    async def show(self) -> None:
        """A line that lives on a terminal; a plain one every few seconds elsewhere."""
        live = sys.stderr.isatty()
        while True:
            text = self.line()
            print(f"\r{text}\033[K" if live else text, end="" if live else "\n", file=sys.stderr)
            sys.stderr.flush()
            await asyncio.sleep(0.3 if live else 5)

    async def settle(self) -> None:
        """Wait for what is still under way, but not for ever."""
        for _ in range(round(10 * PATIENCE)):
            if self.books.settled:
                return
            await asyncio.sleep(0.1)

    async def run(self, seconds: float) -> bool:
        """Whether everything that was sent in so many seconds came to its end."""
        until = time.monotonic() + seconds if seconds else float("inf")
        async with (
            self.open(),
            gantry.AsyncProducer(self.url, group="shop", checker=lambda _message: None) as producer,
        ):
            background = [
                asyncio.create_task(self.show()),
                asyncio.create_task(self.come_and_go(max(2.0, min(30.0, seconds / 5 or 30.0)))),
            ]
            try:
                await self.sell(producer, until)
                await self.settle()
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                if sys.stderr.isatty():
                    print(file=sys.stderr)
        return self.books.right


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
            }
            config = load(BrokerConfig, flags=flags).value
            await stack.enter_async_context(BrokerServer(config))
        async with gantry.AsyncAdmin(f"rmq://{names.address}") as admin:
            for topic in ("orders", "mails", "payments", "reminders"):
                await admin.create_topic(topic, queues=4)
        yield names.address


async def trade(seconds: float, rate: float, data: Path) -> tuple[bool, Books]:
    """A platform, and a shop on it."""
    async with platform(data) as address:
        shop = Shop(address, rate)
        return await shop.run(seconds), shop.books


def summary(books: Books) -> str:
    """What was sent, and what became of it."""
    late = sorted(books.late)
    return (
        f"orders     {books.orders:,} sent, {len(books.handled):,} packed"
        f" ({', '.join(f'{name} {books.by_member[name]:,}' for name in MEMBERS)}),"
        f" {books.disordered} out of order, {books.repeats} delivered again at a hand-over\n"
        f"mails      {books.mails:,} sent, {len(books.mailed):,} mailed, {len(books.dead):,} in the"
        f" dead-letter topic, {books.mail_failures:,} failures\n"
        f"payments   {len(books.paid) + len(books.rolled_back):,} begun,"
        f" {len(books.rolled_back):,} rolled back, {len(books.booked):,} booked\n"
        f"reminders  {books.reminders:,} sent, {len(books.reminded):,} came,"
        f" {1000 * late[len(late) // 2] if late else 0:,.0f} ms late in the middle"
    )


def main() -> int:
    """Read the options, run, report."""
    parser = argparse.ArgumentParser(description="A shop on a platform of its own.")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long; 0: until Ctrl-C (20)"
    )
    parser.add_argument("--rate", type=float, default=500.0, help="orders a second (500)")
    parser.add_argument(
        "--data", type=Path, help="keep what is stored, and the log, in this directory"
    )
    options = parser.parse_args()
    if options.seconds < 0 or options.rate <= 0:
        parser.error("--seconds must not be negative, and --rate has to be positive")
    with contextlib.ExitStack() as stack:
        data = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data.mkdir(parents=True, exist_ok=True)
        # every failed mail is told of in the log, with its traceback
        logging.basicConfig(filename=data / "shop.log", level=logging.INFO)
        try:
            right, books = aio.run(trade(options.seconds, options.rate, data))
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            return 130
    print(summary(books))
    print("everything that was sent came to its end" if right else "NOT everything came to its end")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
