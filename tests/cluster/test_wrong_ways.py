"""What goes wrong for users of the client, and what they are told: the cause, and what helps.

`WAYS` is the table. Each way is really gone, against servers of ours in one process, and the text
that comes of it, an error's or the log's, has to hold the words beside it. The same words stand in
`docs/how-to/troubleshoot.md`, where people look for them.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gantrymq.client.admin import AsyncAdmin
from gantrymq.client.producer import AsyncProducer
from gantrymq.errors import BufferFull, GantryError, SendFailed
from gantrymq.model import ReceivedMessage, Subscription
from gantrymq.protocol.topics import PutTopic
from tests.cluster.consumers import Seen, Site, soon
from tests.support import World, world

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "troubleshoot.md"


@dataclass(slots=True)
class Scene:
    """Where a way is gone."""

    where: World
    directory: Path
    log: pytest.LogCaptureFixture

    def site(self, *brokers: str, **settings: Any) -> Site:
        return Site(self.where, self.directory, brokers or ("a",), **settings)

    def producer(self, site: Site, **how: Any) -> AsyncProducer:
        asked = {"name_servers": site.names.address, "network": self.where.network, "group": "shop"}
        return AsyncProducer(**(asked | how))

    def admin(self, site: Site) -> AsyncAdmin:
        return AsyncAdmin(name_servers=site.names.address, network=self.where.network)

    @property
    def logged(self) -> str:
        return "\n".join(record.getMessage() for record in self.log.records)


Going = Callable[[Scene], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to go wrong."""

    pain: int
    title: str
    says: tuple[str, ...]
    go: Going
    where: str


WAYS: list[Way] = []


def way(pain: int, title: str, *says: str, where: str = "memory") -> Callable[[Going], Going]:
    """Put a way into the table: which pain it belongs to, what it is, and what has to be said."""

    def note(go: Going) -> Going:
        WAYS.append(Way(pain, title, says, go, where))
        return go

    return note


async def said(work: Awaitable[object], kind: type[Exception] = GantryError) -> str:
    """What the error says that `work` ends with."""
    with pytest.raises(kind) as raised:
        await work
    return str(raised.value)


async def started(thing: Any) -> None:
    """Start something that has to fail at it."""
    async with thing:
        pass


def script(text: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60
    )
    assert not done.returncode, done.stderr
    return done.stdout


# --- 1: what is not installed ---------------------------------------------------------------------


@way(1, "record batches without pyarrow", "need pyarrow", "pip install 'gantrymq[spark]'")
async def _(scene: Scene) -> str:
    return script(
        "import sys; sys.modules['pyarrow'] = None\n"
        "from gantrymq.client.reader import Reader\n"
        "try:\n"
        "    next(iter(Reader('rmq://127.0.0.1:1').batches('orders')))\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )


# --- 2, 4: processes, threads and loops -----------------------------------------------------------


@way(2, "a client used after a fork", "which was forked from it", "make a new one after the fork")
async def _(scene: Scene) -> str:
    return script(
        "import os\n"
        "from gantrymq import Producer\n"
        "producer = Producer('rmq://127.0.0.1:1')\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "else:\n"
        "    try:\n"
        "        producer.start()\n"
        "    except Exception as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
    )


@way(2, "a handler that fails", "the handler failed at orders", "ValueError: no good")
async def _(scene: Scene) -> str:
    async def handle(message: ReceivedMessage) -> None:
        raise ValueError("no good")

    async with scene.site() as site:
        await site.topic()
        await site.send(1)
        async with site.consumer(handle):
            await soon(lambda: "failed at" in scene.logged)
    return scene.logged


@way(
    4, "a coroutine from a plain handler", "gave back something to await", "make it an `async def`"
)
async def _(scene: Scene) -> str:
    async def work() -> None:
        pass

    def handle(message: ReceivedMessage) -> Any:
        return work()

    async with scene.site() as site:
        await site.topic()
        await site.send(1)
        async with site.consumer(handle):
            await soon(lambda: "to await" in scene.logged)
    return scene.logged


# --- 6: names that do not exist -------------------------------------------------------------------


@way(
    6, "an option of a send that does not exist", "there is no option 'tags'", "there are argument"
)
async def _(scene: Scene) -> str:
    async with scene.site() as site, scene.producer(site) as producer:
        wrong: Any = {"tags": "a"}
        return await said(producer.send("orders", b"x", **wrong), TypeError)


@way(6, "a setting that does not exist", "send_timout", "send_timeout")
async def _(scene: Scene) -> str:
    with pytest.raises((TypeError, ValueError)) as raised:
        wrong: Any = {"send_timout": 5}
        AsyncProducer("rmq://127.0.0.1:1", **wrong)
    return str(raised.value)


# --- 7: memory ------------------------------------------------------------------------------------


@way(7, "sends that are faster than the broker", "no room for another message", "buffer_messages")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site, buffer_messages=2) as producer:
            for _ in range(2):
                producer.send_nowait("orders", b"x")
            with pytest.raises(BufferFull) as raised:
                producer.send_nowait("orders", b"x")
    return str(raised.value)


# --- 8: no route ----------------------------------------------------------------------------------


@way(8, "no name server is named", "no name server is set", "NAMESRV_ADDR")
async def _(scene: Scene) -> str:
    return await said(started(AsyncProducer(network=scene.where.network)))


@way(
    8,
    "nothing answers where the name server should be",
    "connecting to names:1 failed",
    "is one running there",
    "NAMESRV_ADDR",
)
async def _(scene: Scene) -> str:
    return await said(started(AsyncProducer(name_servers="names:1", network=scene.where.network)))


@way(8, "a broker's address where a name server's should be", "is it a name server")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        broker = site.brokers["a"].address
        return await said(started(scene.producer(site, name_servers=broker)))


@way(8, "no broker is registered", "no broker is registered with name server", "namesrvAddr")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.stop("a")
        async with scene.producer(site) as producer:
            return await said(producer.send("orders", b"x"))


@way(
    8,
    "a topic that nobody has",
    "knows the brokers broker-a, and none of them has the topic",
    "autoCreateTopicEnable",
    "mqadmin updateTopic",
)
async def _(scene: Scene) -> str:
    async with scene.site(topics__auto_create=False) as site, scene.producer(site) as producer:
        return await said(producer.send("oders", b"x"))


@way(8, "a topic that cannot be written to", "no queue that can be written to", "updateTopicPerm")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.admin(site) as admin:
            await admin.alter_topic("orders", permission="r")
        await site.brokers["a"].broker.registrar.spread()
        async with scene.producer(site) as producer:
            return await said(producer.send("orders", b"x"))


@way(
    8,
    "a broker that is closed for writing",
    "no queue that can be written to",
    "brokerPermission=6",
)
async def _(scene: Scene) -> str:
    async with scene.site(permission=4) as site:
        await site.topic()
        async with scene.producer(site) as producer:
            return await said(producer.send("orders", b"x"))


# --- 9: addresses that nobody reaches -------------------------------------------------------------


@way(9, "a broker that advertises an address of its own network", "brokerIP1", "address_map")
async def _(scene: Scene) -> str:
    away = {"listen__advertise": "10.1.2.3"}
    async with scene.site(**away) as site, scene.producer(site) as producer:
        return await said(producer.send("orders", b"x"))


# --- 10, 11: brokers that do not take messages ----------------------------------------------------


@way(10, "a full disk", "% full", "from 0% on nothing is stored", "retention.time")
async def _(scene: Scene) -> str:
    full = {"store__space__refuse": 0.001, "store__space__ample": 0}
    async with scene.site(**full) as site, scene.producer(site) as producer:
        return await said(producer.send("orders", b"x"))


class Overloaded:
    """What a broker looks at that cannot keep up."""

    refusal = "requests wait for 900ms, 200 are the most"

    def look(self, now: float) -> None:
        pass


@way(11, "a broker that cannot keep up", "did not store it", "waitTimeMillsInSendQueue")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        site.brokers["a"].broker.flow = Overloaded()
        async with scene.producer(site) as producer:
            return await said(producer.send("orders", b"x"))


@way(
    11,
    "a broker that says nothing",
    "the broker took the request and did not answer in time",
    "the message may have been stored",
    "timeout=",
    where="tcp on asyncio",
)
async def _(scene: Scene) -> str:
    async with scene.site() as site, silence() as nobody:
        await site.topic()
        mapped = {site.brokers["a"].address: nobody}
        async with scene.producer(site, address_map=mapped, call_timeout=0.2) as producer:
            with pytest.raises(SendFailed) as raised:
                await producer.send("orders", b"x", timeout=0.3)
    assert raised.value.maybe_stored
    assert raised.value.brokers == ("broker-a",)
    return str(raised.value)


@asynccontextmanager
async def silence() -> AsyncIterator[str]:
    """Something that takes connections and never answers."""
    open_ones: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for writer in open_ones:
            writer.close()
        await server.wait_closed()


# --- 12, 17, 19: consumers ------------------------------------------------------------------------


@way(
    12,
    "members of a group that want different things",
    "members of group billing want different things, so some messages reach nobody",
    "give them the same subscriptions, or groups of their own",
)
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        first = site.consumer(Seen(), "c1", topics={"orders": "a"})
        second = site.consumer(Seen(), "c2", topics={"orders": "b"})
        async with first, second:
            await soon(lambda: "different things" in scene.logged)
    return scene.logged


@way(17, "a handler that takes too long", "was not done after", "handler_timeout")
async def _(scene: Scene) -> str:
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(1000)

    async with scene.site() as site:
        await site.topic()
        await site.send(1)
        async with site.consumer(handle, handler_timeout=1.0):
            await soon(lambda: "not done" in scene.logged)
    return scene.logged


@way(19, "a broker that is gone for long", "queues stand still", "it is not read", "broker-a")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with site.consumer(Seen(), alarm_after=5.0):
            await asyncio.sleep(5)
            await site.stop("a")
            await soon(lambda: "stand still" in scene.logged, 300)
    return scene.logged


# --- 13, 14, 16, 20: administration ---------------------------------------------------------------


@way(13, "a reset to where there is nothing", "orders[broker-a:0] goes from 0 to 1", "cannot stand")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        await site.send(4)
        async with scene.admin(site) as admin:
            await admin.create_group("billing")
            return await said(admin.plan_reset("billing", "orders", 9))


@way(13, "a reset of a group that nobody knows", "billing", "gantry group")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.admin(site) as admin:
            return await said(admin.reset_offsets("billing", "orders", "earliest"))


@way(14, "a group that nobody has heard of", "no broker", "gantry group create billing")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.admin(site) as admin:
            return await said(admin.group_lag("billing"))


@way(14, "how far a group is that has committed nothing", "have not committed an offset yet")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.admin(site) as admin, site.consumer(Seen(), commit_interval=1000.0):
            lag = await admin.group_lag("billing")
            assert lag.messages is None  # unknown is neither 0 nor -1
            return str(lag.why)


@way(16, "a message that is not there", "no message has the id", "may be in another topic")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.admin(site) as admin:
            return await said(admin.find_message("7F00000100002A9F000000000012D687"))


# --- 18: silence ----------------------------------------------------------------------------------


@way(18, "a broker that is down", "BrokersSent: [broker-a, broker-a, broker-a]", "is it up")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            await producer.send("orders", b"x")
            await site.stop("a")
            return await said(producer.send("orders", b"x"), SendFailed)


@way(18, "a request that nobody answers", "wait reply message timeout", "nobody consumes it")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            return await said(producer.request("orders", b"x", timeout=1.0))


@way(18, "an end with messages under way", "broker-a", "is it up")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            await producer.send("orders", b"x")
            await site.stop("a")
            producer.send_nowait("orders", b"x")
            (failure,) = await producer.flush(10)
            return str(failure)


# --- 21: delays -----------------------------------------------------------------------------------


@way(21, "a time without a zone", "has no time zone", ".astimezone()")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            naive = datetime(2030, 1, 1)
            return await said(producer.send("orders", b"x", deliver_at=naive))


@way(21, "a delay that is too long", "due within 40 days", "timerMaxDelaySec")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            return await said(producer.send("orders", b"x", delay=timedelta(days=400)))


@way(21, "two delays at once", "delayed in one way")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            at = datetime(2030, 1, 1, tzinfo=UTC)
            later = timedelta(minutes=1)
            return await said(producer.send("orders", b"x", delay=later, deliver_at=at))


@way(
    21,
    "a message that was not delayed is taken back",
    "cannot be taken back: it was not delayed",
    "gives no handle",
)
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        await site.topic()
        async with scene.producer(site) as producer:
            return await said(producer.recall(await producer.send("orders", b"x")))


# --- 22, 23: types, and what is switched off ------------------------------------------------------


@way(22, "a message of another type than its topic's", "is for messages of type FIFO", "DELAY")
async def _(scene: Scene) -> str:
    async with scene.site() as site:
        typed = PutTopic(
            topic="steps", read_queues=4, write_queues=4, perm=6,
            attributes={"+message.type": "FIFO"},
        )  # fmt: skip
        await site.ask(typed)
        async with scene.producer(site) as producer:
            return await said(producer.send("steps", b"x", delay=timedelta(minutes=1)))


@way(23, "filters by SQL are off", "cannot be filtered by SQL92", "enablePropertyFilter")
async def _(scene: Scene) -> str:
    async with scene.site(pulls__sql=False) as site:
        await site.topic()
        wants = Subscription("orders", "amount > 3", "sql")
        return await said(started(site.consumer(Seen(), topics=wants)))


@way(23, "timers are off", "timerWheelEnable")
async def _(scene: Scene) -> str:
    async with scene.site(timers__enabled=False) as site:
        await site.topic()
        async with scene.producer(site) as producer:
            return await said(producer.send("orders", b"x", delay=timedelta(minutes=1)))


@way(23, "taking back is off", "recall is not allowed", "recallMessageEnable")
async def _(scene: Scene) -> str:
    async with scene.site(timers__recall=False) as site:
        await site.topic()
        async with scene.producer(site) as producer:
            receipt = await producer.send("orders", b"x", delay=timedelta(minutes=1))
            return await said(producer.recall(receipt.recall_handle or ""))


@way(23, "traces that no broker takes", "traces of shop cannot be sent", "traceTopicEnable")
async def _(scene: Scene) -> str:
    async with scene.site(topics__auto_create=False) as site:
        await site.topic()
        async with scene.producer(site, trace=True) as producer:
            await producer.send("orders", b"x")
    return scene.logged


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", WAYS, ids=lambda one: f"{one.pain}: {one.title}")
def test_the_text_names_the_cause_and_what_helps(one, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "gantrymq")
    there = world(one.where)
    text = there.run(one.go(Scene(there, tmp_path, caplog)))
    print(text)
    for words in one.says:
        assert words in text


def test_the_page_for_it_has_every_way_and_its_words():
    page = PAGE.read_text("utf-8").replace("\\|", "|")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    for one in WAYS:
        found = [line for line in lines if line.startswith(f"| {one.title} |")]
        assert len(found) == 1, f"{PAGE.name} has no line for: {one.title}"
        assert one.says[0] in found[0], f"{PAGE.name}, {one.title}: {one.says[0]}"
