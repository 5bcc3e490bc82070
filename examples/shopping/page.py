"""Shows how things stand: one live page on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

import gantrymq as gantry
from gantrymq.spark.reports import fullest
from shopping.pipelines import Pipelines
from shopping.samples import History, Sample
from shopping.servers import GROUPS

_EVERY: Final = 1.0
_PLAIN_EVERY: Final = 5
"""Samples for each plain line."""
_MIB: Final = 1 << 20


@contextlib.asynccontextmanager
async def showing(history: History, admin: gantry.AsyncAdmin) -> AsyncIterator[None]:
    """Samples are taken and shown for the length of the block."""
    console = Console(stderr=True)
    live = console.is_terminal and not console.is_dumb_terminal
    with contextlib.ExitStack() as stack:
        screen = None
        if live:
            screen = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        showing = asyncio.create_task(_show(history, admin, console, screen))
        try:
            yield
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing


async def _show(
    history: History, admin: gantry.AsyncAdmin, console: Console, screen: Live | None
) -> None:
    number = 0
    while True:
        sample = await history.take(admin)
        if screen is not None:
            screen.update(page(history, sample), refresh=True)
        elif number % _PLAIN_EVERY == 0:
            console.print(line(history, sample), soft_wrap=True, highlight=False, markup=False)
        number += 1
        await asyncio.sleep(_EVERY)


def line(history: History, now: Sample) -> str:
    """How things stand, in one line."""
    sent, consumed = now.sent, now.consumed
    rate = history.rates(now)["orders"][0]
    queues = " ".join(
        f"{name} away" if owned is None else f"{name} {len(owned)}"
        for name, owned in now.owned.items()
    )
    parts = [
        f"{now.at:.0f} s: {rate:,.0f} orders/s",
        f"{consumed['orders']:,} of {sent['orders']:,} packed",
        f"lag {sum(now.waiting.values()):,}",
        f"queues: {queues}",
        f"retries {now.retried:,}, dead {now.dead:,}",
    ]
    if history.pipelines is not None:
        archive = history.pipelines.queries["archive"]
        took = f", last batch {archive.batches[-1][2]:.1f} s" if archive.batches else ""
        parts.append(f"Spark {history.pipelines.state}, {archive.rows:,} rows{took}")
        parts.append(f"{now.files:,} files")
    memory = (now.memory + now.spark_memory) // _MIB
    return "; ".join([*parts, f"{memory:,} MiB"])


def page(history: History, now: Sample) -> RenderableType:
    """The same, at length."""
    minutes, seconds = divmod(int(now.at), 60)
    title = Text.assemble(
        ("Gantry's shop", "bold"), f"  {history.shop.url}  {minutes:02}:{seconds:02}  ",
        ("Ctrl-C stops it", "dim"),
    )  # fmt: skip
    parts: list[RenderableType] = [
        title,
        Text(),
        _streams(history, now),
        Text(),
        _members(history, now),
    ]
    if history.pipelines is not None:
        parts += [Text(), _pipelines(history.pipelines, now)]
    memory = f"memory  platform and shop {now.memory // _MIB:,} MiB"
    if now.spark_memory:
        memory += f", Spark {now.spark_memory // _MIB:,} MiB"
    return Group(*parts, Text(), Text(memory), Text(f"data    {history.data}", "dim"))


def _streams(history: History, now: Sample) -> Table:
    table = _table("topic", "sent", "/s", "done", "/s", "lag", "retries", "dead")
    rates = history.rates(now)
    for topic in GROUPS:
        sending, consuming = rates[topic]
        retried, dead = (now.retried, now.dead) if topic == "mails" else (0, 0)
        table.add_row(
            topic, f"{now.sent[topic]:,}", f"{sending:,.0f}", f"{now.consumed[topic]:,}",
            f"{consuming:,.0f}", f"{now.waiting[topic]:,}", f"{retried:,}", f"{dead:,}",
        )  # fmt: skip
    return table


def _members(history: History, now: Sample) -> Table:
    table = _table("member", "packed", "queues of orders")
    table.columns[2].justify = "left"
    for name, owned in now.owned.items():
        packed = f"{history.shop.books.by_member[name]:,}"
        queues = Text("away", "yellow") if owned is None else Text(" ".join(owned))
        table.add_row(name, packed, queues)
    return table


def _pipelines(pipelines: Pipelines, now: Sample) -> Table:
    table = _table("pipeline", "rows", "batches", "last batch", "rows in it", "what it found")
    table.columns[5].justify = "left"
    found = {
        "archive": f"{now.files:,} files, {now.file_bytes / _MIB:.1f} MiB",
        "revenue": _revenue(pipelines),
        "health": _health(pipelines),
    }
    for name, query in pipelines.queries.items():
        last = f"{query.batches[-1][2]:.1f} s" if query.batches else "–"
        rows = query.batches[-1][1] if query.batches else 0
        table.add_row(
            name, f"{query.rows:,}", f"{len(query.batches):,}", last, f"{rows:,}",
            found[name] if pipelines.state == "running" else pipelines.state,
        )  # fmt: skip
    return table


def _revenue(pipelines: Pipelines) -> str:
    if not pipelines.minutes:
        return ""
    minute, orders, cents = pipelines.minutes[-1]
    return f"{minute}: {cents / 100:,.2f} in {orders:,} orders"


def _health(pipelines: Pipelines) -> str:
    if not pipelines.ages or "orders" not in pipelines.ages[-1][1]:
        return ""
    middle, high = pipelines.ages[-1][1]["orders"]
    age = f"read {middle / 1000:.1f} s after storing, p99 {high / 1000:.1f} s"
    return f"{age}; skew {skew(pipelines):.2f}"


def skew(pipelines: Pipelines) -> float:
    """How many times the average of its queues the fullest queue of orders has."""
    counts = [n for queue, n in pipelines.by_queue.items() if queue.startswith("orders[")]
    return fullest(counts)


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number == 0 else "right", no_wrap=True)
    return table
