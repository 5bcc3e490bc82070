"""The outbox: rows of a database and messages that come about together, whatever dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import gantrymq as gantry
from gantrymq.client.outbox import AsyncOutbox, Outbox, OutboxConflict, Relayed
from gantrymq.net import aio
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage
from tests.cluster.threads import Platform, platform

SHOP = MetaData()
ORDERS = Table("orders", SHOP, Column("id", Integer, primary_key=True), Column("what", String(50)))
SOURCE = Path(gantry.__file__).parent.parent
CRASHING = """
import os, sys
from sqlalchemy import create_engine, text
import gantrymq as gantry
from gantrymq.client.outbox import Outbox
url, database = sys.argv[1:]
engine = create_engine(database)
outbox = Outbox(engine)
producer = gantry.Producer(url, group="shop", checker=outbox.check)
producer.__enter__()
with producer.transaction("orders", b"beer") as half:
    with engine.begin() as connection:
        connection.execute(text("insert into orders (what) values ('beer')"))
        outbox.write(connection, half)
    os._exit(9)
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Platform]:
    settings = {"transactions__immunity": "0.2s", "transactions__interval": "0.3s"}
    with platform(tmp_path, **settings) as running:
        running.topic("orders", 2)
        yield running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    SHOP.create_all(made)
    yield made
    made.dispose()


def producer_of(here: Platform, outbox: Outbox, **how: Any) -> gantry.Producer:
    return gantry.Producer(here.url, **({"group": "shop", "checker": outbox.check} | how))


def stored(here: Platform) -> list[bytes]:
    with gantry.Reader(here.url) as reader:
        return sorted(message.body for message in reader.messages("orders"))


def rows(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(ORDERS.c.what)))


def notes(outbox: Outbox) -> list[tuple[str, bool]]:
    columns = outbox.table.c
    with outbox.engine.connect() as connection:
        found = connection.execute(select(columns.decision, columns.told))
        return sorted((decision, told) for decision, told in found)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def ordered(what: str) -> Any:
    return ORDERS.insert().values(what=what)


def test_row_and_message_come_about_together(here: Platform, engine: Engine) -> None:
    outbox = Outbox(engine)
    outbox.create_table()
    with producer_of(here, outbox) as producer:
        with outbox.transaction(producer, "orders", b"beer", tag="drinks") as connection:
            connection.execute(ordered("beer"))
            assert stored(here) == []
        wine = outbox.transaction(producer, "orders", b"wine")
        with pytest.raises(KeyError), wine as connection:
            connection.execute(ordered("wine"))
            raise KeyError("out of wine")
        half = producer.transaction("orders", b"tea")
        with half, Session(engine) as session, session.begin():
            session.execute(ordered("tea"))
            outbox.write(session, half)
        outbox.note(half)
        assert outbox.relay(producer) == Relayed()
    assert rows(engine) == ["beer", "tea"]
    assert stored(here) == [b"beer", b"tea"]
    assert notes(outbox) == [("COMMIT", True), ("COMMIT", True)]


@pytest.mark.parametrize("who", ["relay", "broker"])
def test_a_crash_between_the_two_loses_and_doubles_nothing(
    who: str, here: Platform, engine: Engine, tmp_path: Path
) -> None:
    outbox = Outbox(engine)
    outbox.create_table()
    done = subprocess.run(
        [sys.executable, "-c", CRASHING, here.url, f"sqlite:///{tmp_path / 'shop.db'}"],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        timeout=60,
    )
    assert done.returncode == 9
    assert rows(engine) == ["beer"]
    assert notes(outbox) == [("COMMIT", False)]
    checker = outbox.check if who == "broker" else (lambda _: None)
    with producer_of(here, outbox, checker=checker) as producer:
        if who == "relay":
            assert outbox.relay(producer) == Relayed(told=1)
        until(lambda: stored(here))
        if who == "broker":
            assert outbox.relay(producer) == Relayed(told=1)  # which does it once more
        assert outbox.relay(producer) == Relayed()
    assert stored(here) == [b"beer"]
    assert notes(outbox) == [("COMMIT", True)]


def test_a_message_without_a_row_is_rolled_back_for_good(here: Platform, engine: Engine) -> None:
    now = [time.time()]
    outbox = Outbox(engine, patience=30, clock=lambda: now[0])
    outbox.create_table()
    asked = threading.Event()

    def check(message: gantry.ReceivedMessage) -> bool | None:
        verdict = outbox.check(message)
        asked.set()
        return verdict

    with producer_of(here, outbox, checker=check) as producer:
        half = producer.transaction("orders", b"beer")
        half.__enter__()
        assert asked.wait(20)
        assert notes(outbox) == [], "it has its time"
        now[0] += 31
        until(lambda: notes(outbox) == [("ROLLBACK", True)])
        conflict = pytest.raises(OutboxConflict, match="has been rolled back already")
        with conflict, engine.begin() as connection:
            connection.execute(ordered("beer"))
            outbox.write(connection, half)
        now[0] += 2 * 86_400
        assert outbox.relay(producer) == Relayed()
        assert notes(outbox) == [], "old notes go"
    assert rows(engine) == []
    assert stored(here) == []


def test_what_a_broker_refuses_stays_in_the_table(here: Platform, engine: Engine) -> None:
    outbox = Outbox(engine)
    outbox.create_table()
    with producer_of(here, outbox) as producer:
        with engine.begin() as connection:
            values = {
                "message_id": "none", "decision": "COMMIT", "topic": "orders",
                "producer_group": "shop", "broker": "broker-a", "half_offset": 7,
                "log_offset": 99_999, "decided_ms": 1, "told": False,
            }  # fmt: skip
            connection.execute(outbox.table.insert().values(values))
            gone = values | {"message_id": "gone", "broker": "broker-z"}
            connection.execute(outbox.table.insert().values(gone))
        assert outbox.relay(producer) == Relayed(refused=1, waiting=1)
        assert outbox.relay(producer) == Relayed(waiting=1)
        stop = threading.Event()
        thread = threading.Thread(
            target=outbox.relay_until, args=(stop, producer), kwargs={"every": 0.01}
        )
        thread.start()
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
    with engine.connect() as connection:
        refusal = connection.scalar(
            select(outbox.table.c.refusal).where(outbox.table.c.message_id == "none")
        )
    assert "Find prepared transaction message failed" in refusal


def test_the_same_for_those_who_await(here: Platform, engine: Engine, tmp_path: Path) -> None:
    async def main() -> None:
        waiting = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
        outbox = AsyncOutbox(waiting)
        await outbox.create_table()
        producer = gantry.AsyncProducer(here.url, group="shop", checker=outbox.check)
        async with producer:
            async with outbox.transaction(producer, "orders", b"beer") as connection:
                await connection.execute(ordered("beer"))
            with pytest.raises(KeyError):
                async with outbox.transaction(producer, "orders", b"wine") as connection:
                    await connection.execute(ordered("wine"))
                    raise KeyError("out of wine")
            half = producer.transaction("orders", b"left open")
            await half.__aenter__()
            async with waiting.begin() as connection:
                await connection.execute(ordered("left open"))
                await outbox.write(connection, half)
            relaying = asyncio.create_task(outbox.relay_for_ever(producer, every=0.01))
            both = [b"beer", b"left open"]
            await asyncio.to_thread(until, lambda: stored(here) == both)
            relaying.cancel()
            await asyncio.gather(relaying, return_exceptions=True)
            nobody = producer.transaction("orders", b"nobody")
            await nobody.__aenter__()
            impatient = AsyncOutbox(waiting, patience=-60)
            message = asked_about(nobody.receipt.message_id)
            assert await impatient.check(message) is False
            with pytest.raises(OutboxConflict):
                async with waiting.begin() as connection:
                    await outbox.write(connection, nobody)
        await waiting.dispose()

    aio.run(main())
    assert rows(engine) == ["beer", "left open"]


def asked_about(message_id: str) -> gantry.ReceivedMessage:
    """A message as the broker shows it when it asks."""
    record = StoredMessage(
        topic="orders",
        body=b"nobody",
        property_bytes=properties.encode({properties.UNIQUE_KEY: message_id}),
        born_ms=round(time.time() * 1000),
    )
    return gantry.ReceivedMessage(record, "broker-a")
