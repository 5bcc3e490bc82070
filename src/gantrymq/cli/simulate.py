"""`gantry simulate`: load balancing tried on clusters of any size, as Spark jobs on this machine.

Nothing is connected to. The rules are those that clients use; the world they are tried in is drawn
from a seed. Results are Parquet, and a page with plots and the answers in words.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gantrymq.cli import exits, screen
from gantrymq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gantrymq.spark.reports import Report
    from gantrymq.spark.simulation.world import World

    _Counts = click.ParamType[int]
else:
    _Counts = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])

PAGE: Final = "report.html"


class Count(_Counts):
    """A number of things: 1000000, 1_000_000, 1e6, 1M."""

    name = "count"
    _FACTORS: Final = {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        text = str(value).strip().replace("_", "").lower()
        factor = self._FACTORS.get(text[-1:], 1)
        try:
            return round(float(text[:-1] if factor > 1 else text) * factor)
        except ValueError:
            self.fail(f"{value!r} is no number; it may look like 1000000, 1e6 or 1M", param, ctx)


COUNT: Final = Count()


@click.group("simulate", short_help="Try load balancing on clusters of any size.")
def command() -> None:
    """Try load balancing on clusters of any size, as Spark jobs on this machine."""


def _world(function: F) -> F:
    """The options that say what world it is, and where the results go."""
    for option in reversed((
        click.option("--brokers", type=COUNT, default=10_000, show_default=True, help="Brokers."),
        click.option("--queues", type=COUNT, default=1_000_000, show_default=True, help="Queues."),
        click.option("--seed", type=int, default=1, show_default=True, help="What is drawn from."),
        click.option(
            "--slow-share", type=click.FloatRange(0, 1), default=0.01, show_default=True,
            help="Which part of the brokers is slow for a while.",
        ),
        click.option(
            "--gone-share", type=click.FloatRange(0, 1), default=0.002, show_default=True,
            help="Which part is gone for a while.",
        ),
        click.option("--out", type=click.Path(path_type=Path, file_okay=False),
                     default=Path("simulation"), show_default=True,
                     help="Directory for the results."),
        click.option("--master", metavar="URL", help="Spark's master; all cores of this machine."),
    )):  # fmt: skip
        function = option(function)
    return function


@command.command("sends", short_help="Which way of choosing a queue loses the fewest sends?")
@click.option("--sends", "count", type=COUNT, default=10_000_000, show_default=True,
              help="Sends to simulate, all strategies together.")  # fmt: skip
@_world
def sends(count: int, out: Path, master: str | None, **world: Any) -> int:
    """Have producers send while brokers are slow and gone, under each way of choosing a queue."""
    with _job("sends", out, master) as (spark, report):
        _sends(spark, report, _plan(count, _make_world(world)), out)
    return exits.OK


@command.command("shares", short_help="What does a rebalance cost?")
@click.option("--consumers", type=COUNT, default=100_000, show_default=True, help="Consumers.")
@_world
def shares(consumers: int, out: Path, master: str | None, **world: Any) -> int:
    """Have members of consumer groups join, leave and die, under each way of sharing queues."""
    with _job("shares", out, master) as (spark, report):
        _shares(spark, report, consumers, _make_world(world), out)
    return exits.OK


@command.command("all", short_help="Both, on one page.")
@click.option("--sends", "count", type=COUNT, default=10_000_000, show_default=True,
              help="Sends to simulate, all strategies together.")  # fmt: skip
@click.option("--consumers", type=COUNT, default=100_000, show_default=True, help="Consumers.")
@_world
def both(count: int, consumers: int, out: Path, master: str | None, **world: Any) -> int:
    """Simulate sends and rebalances of one world, and write one page about both."""
    with _job("load balancing", out, master) as (spark, report):
        made = _make_world(world)
        _sends(spark, report, _plan(count, made), out)
        _shares(spark, report, consumers, made, out)
    return exits.OK


# --- inside ---------------------------------------------------------------------------------------


@contextmanager
def _job(what: str, out: Path, master: str | None) -> Iterator[tuple[SparkSession, Report]]:
    """Spark, and a page that is written at the end."""
    try:
        import gantrymq.spark
        from gantrymq.spark.reports import Report
    except ImportError as error:
        raise ConfigError(f"Spark is needed ({error}): pip install 'gantrymq[spark]'") from error
    logging.getLogger("py4j").setLevel(logging.ERROR)
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = gantrymq.spark.session(f"gantry simulate {what}", master=master, conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        report = Report(f"Simulated {what}", "Gantry's rules in a world that is drawn from a seed.")
        yield spark, report
        page = out / PAGE
        report.write(page)
        click.echo(f"results in {out}, and as a page in {page}")
    finally:
        spark.stop()


def _make_world(given: dict[str, Any]) -> World:
    from gantrymq.spark.simulation.world import World

    return World(**given)


def _plan(count: int, world: World) -> Any:
    from gantrymq.spark.simulation.lanes import STRATEGIES
    from gantrymq.spark.simulation.sends import Plan

    return Plan(world=world, sends=max(1, count // len(STRATEGIES)))


def _sends(spark: SparkSession, report: Report, plan: Any, out: Path) -> None:
    from gantrymq.spark.simulation import jobs
    from gantrymq.spark.simulation import report as pages

    with _progress("sends") as progress:
        found = pages.read_sends(jobs.run_sends(spark, plan, out, progress), plan)
    pages.write_sends(report, plan, found)
    click.echo(pages.verdict_on_sends(plan, found))


def _shares(spark: SparkSession, report: Report, consumers: int, world: World, out: Path) -> None:
    from gantrymq.spark.simulation import jobs
    from gantrymq.spark.simulation import report as pages
    from gantrymq.spark.simulation.shares import Sharing

    sharing = Sharing(world=world, consumers=consumers)
    with _progress("rebalances") as progress:
        found = pages.read_shares(jobs.run_shares(spark, sharing, out, progress))
    pages.write_shares(report, sharing, found)
    click.echo(pages.verdict_on_shares(sharing, found))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that is told how many pieces are done, and of how many."""
    done_before = 0
    with screen.bar(what, 1000) as bar:

        def tell(done: int, total: int) -> None:
            nonlocal done_before
            now = 1000 * done // max(1, total)
            if now > done_before:
                bar.add(now - done_before)
                done_before = now
            bar.say(f"{done} of {total} pieces")

        yield tell
        bar.add(1000 - done_before)
