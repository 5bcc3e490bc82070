"""Runs the project of a directory, in a Spark of this process, and tells how far it is.

Spark runs the flows until all that there was at the start is through. Where it ends, well or not,
the next run goes on: checkpoints are in the directory.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import runpy
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from gantrymq.errors import ConfigError, GantryError
from gantrymq.spark import launching
from gantrymq.spark.offsets import from_json
from gantrymq.spark.pipelines.checkpoints import unfinished
from gantrymq.spark.pipelines.given import SECRETS
from gantrymq.spark.pipelines.making import SPEC, read_spec
from gantrymq.spark.pipelines.shelf import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLOW: Final = re.compile(r"^Identifier: (\S+)", re.MULTILINE)
_OURS: Final = re.compile(r"^gantrymq\.[\w.]+: (.+)$", re.MULTILINE)
REPORT: Final = "report.py"
"""A file of a project that has `report(spark, home)`, which makes a page after each run."""
_TESTING: Final = "SPARK_TESTING"
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}


class PipelineFailed(GantryError):
    """A run ended badly; the text says which flow, which batch, and which offsets."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch that is finished."""

    flow: str
    number: int
    rows: int
    seconds: float
    behind: int
    """Messages that its queues have and that were not read yet."""

    def __str__(self) -> str:
        rate = f" ({self.rows / self.seconds:,.0f}/s)" if self.seconds else ""
        return (
            f"{self.flow}, batch {self.number}: {self.rows:,} rows in {self.seconds:.1f}s{rate},"
            f" {self.behind:,} behind"
        )


class Watcher(Protocol):
    """Who is told how far it is."""

    def batch(self, batch: Batch) -> None:
        """A batch is finished."""
        ...

    def event(self, text: str) -> None:
        """Something else is: "Flow archive_messages is RUNNING."."""
        ...


@dataclass(slots=True)
class Totals:
    """What a run did."""

    batches: int = 0
    rows: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    page: Path | None = None
    """What the project's report has written, if it has one."""

    def add(self, batch: Batch) -> None:
        """One batch more."""
        self.batches += 1
        self.rows += batch.rows
        self.behind[batch.flow] = batch.behind


def run(
    home: Path,
    watcher: Watcher,
    *,
    master: str | None = None,
    secrets: Mapping[str, str] | None = None,
    full_refresh: bool = False,
) -> Totals:
    """Run the project in `home` until all that is there now is through."""
    with session(home, master=master, secrets=secrets) as spark:
        return run_in(spark, home, watcher, full_refresh=full_refresh)


def run_in(
    spark: SparkSession, home: Path, watcher: Watcher, *, full_refresh: bool = False
) -> Totals:
    """The same in a session that is there, of Spark Connect; another project may follow in it."""
    home = home.resolve()
    spec = read_spec(home)
    totals = Totals()
    _tell(spark, spec)
    with _listening(spark, watcher, totals):
        try:
            _run(spark, home / SPEC, watcher, full_refresh=full_refresh)
            totals.page = _report(spark, home, watcher)
        except KeyboardInterrupt:
            spark.interruptAll()
            raise
        except (PySparkException, ConfigError) as error:
            raise _failure(str(spec["name"]), spec, error) from error
    return totals


def settings(home: Path, spec: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """What the session is made with: where tables go, and what the project was told."""
    told = {str(key): str(text) for key, text in (spec.get("configuration") or {}).items()}
    warehouse = {"spark.sql.warehouse.dir": (home / "warehouse").as_uri()}
    return _QUIET | warehouse | told | {SECRETS: json.dumps(dict(secrets))}


@contextlib.contextmanager
def session(
    home: Path, *, master: str | None = None, secrets: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark of this process, for the project in `home`."""
    home = home.resolve()
    spec = read_spec(home)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    remote = master or os.environ.get("MASTER") or "local[*]"
    if not remote.startswith("local"):
        raise ConfigError(
            f"master {remote}: a run starts its own Spark, local[2] or local[*];"
            f" on a cluster it is spark-pipelines run --remote, in {home}"
        )
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to set spark")  # they were, at the start
        name = f"gantry pipeline {spec['name']}"
        conf = settings(home, spec, secrets or {})
        with _any_port(conf):
            spark = launching.session(name, remote=remote, conf=conf)
    try:
        yield spark
    finally:
        with warnings.catch_warnings(), contextlib.suppress(PySparkException):
            warnings.simplefilter("ignore")
            spark.stop()


# --- inside ---------------------------------------------------------------------------------------


def _tell(spark: SparkSession, spec: Mapping[str, Any]) -> None:
    """Have the session know what this project was told, and nothing of another one."""
    told = {str(key): str(text) for key, text in (spec.get("configuration") or {}).items()}
    for key in spark.conf.getAll:
        if key.startswith(PREFIX) and key not in told and key != SECRETS:
            spark.conf.unset(key)
            if spark.conf.get(key, ""):  # the session was made with it
                spark.conf.set(key, "")
    for key, text in told.items():
        if key.startswith(PREFIX):
            spark.conf.set(key, text)


@contextlib.contextmanager
def _any_port(conf: Mapping[str, str]) -> Iterator[None]:
    """Have Spark Connect take a port from the system, so that runs do not get in each other's way.

    PySpark's client knows the port of a server in its own process only where `SPARK_TESTING` is
    set. Spark's JVM, which would behave otherwise under it, is started before and does not see it.
    """
    from pyspark import SparkConf, SparkContext

    launching.prepare(os.environ)
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())))
    before = os.environ.get(_TESTING)
    os.environ[_TESTING] = "1"
    try:
        yield
    finally:
        os.environ.pop(_TESTING)
        if before is not None:
            os.environ[_TESTING] = before


@contextlib.contextmanager
def _listening(spark: SparkSession, watcher: Watcher, totals: Totals) -> Iterator[None]:
    def tell(batch: Batch) -> None:
        totals.add(batch)
        watcher.batch(batch)

    listener = _Listener(tell)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the session may be what failed
            spark.streams.removeListener(listener)


def _run(spark: SparkSession, path: Path, watcher: Watcher, *, full_refresh: bool) -> None:
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    spec = load_pipeline_spec(path)
    graph = create_dataflow_graph(spark, spec.catalog, spec.database, spec.configuration)
    registry = SparkConnectGraphElementRegistry(spark, graph)
    with contextlib.redirect_stdout(io.StringIO()):  # which files it loads
        register_definitions(path, registry, spec, spark, graph)
    for event in _events(spark, graph, spec.storage, full_refresh=full_refresh):
        watcher.event(event)


def _report(spark: SparkSession, home: Path, watcher: Watcher) -> Path | None:
    """Have the project's `report.py` make its report of what flows have written."""
    script = home / REPORT
    if not script.is_file():
        return None
    watcher.event("the report is being made")
    try:
        page: Path | None = runpy.run_path(str(script))["report"](spark, home)
    except (GantryError, PySparkException) as error:
        raise PipelineFailed(
            f"all is through, but its {REPORT} failed: {told(str(error))}"
        ) from error
    return page


def _events(spark: SparkSession, graph: str, storage: str, *, full_refresh: bool) -> Iterator[str]:
    """Start the run, and hear of it until it has ended.

    PySpark's own `start_run` takes the counters that Python workers send back at the end of a run
    for an unknown response, and fails where all went well; here they are left out.
    """
    from pyspark.sql.connect import proto

    command = proto.Command()
    start = proto.PipelineCommand.StartRun(
        dataflow_graph_id=graph, full_refresh_all=full_refresh, dry=False, storage=storage
    )
    command.pipeline_command.start_run.CopyFrom(start)
    client: Any = spark.client
    request = client._execute_plan_request_with_metadata()
    client._set_command_in_plan(request.plan, command)
    for response in client._execute_and_fetch_as_iterator(request, {}):
        if isinstance(response, dict) and "pipeline_event_result" in response:
            yield str(response["pipeline_event_result"].event.message)


def _failure(name: str, spec: Mapping[str, Any], error: Exception) -> PipelineFailed:
    storage = Path(unquote(urlsplit(str(spec["storage"])).path))
    where = "; ".join(map(str, unfinished(storage)))
    if not where and (flow := _FLOW.search(str(error))):
        where = f"flow {flow[1]}, before its first batch"
    at = f" at {where}" if where else ""
    return PipelineFailed(f"pipeline {name} failed{at}: {told(str(error))}")


def told(text: str) -> str:
    """What went wrong, out of what Spark says: our own error's words, or all but the stacks."""
    if own := _OURS.findall(text):
        return str(own[0])
    said = text.partition("\nJVM stacktrace:")[0].partition("\n=== Streaming Query ===")[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return "\n".join(line for line in lines if not line.startswith("at ")) or "it says nothing"


class _Listener(StreamingQueryListener):
    def __init__(self, tell: Callable[[Batch], None]) -> None:
        super().__init__()
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The run's events say so."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        behind = sum(_behind(one.endOffset, one.latestOffset) for one in progress.sources)
        name = (progress.name or str(progress.id)).rpartition(".")[2]
        seconds = progress.batchDuration / 1000
        self._tell(Batch(name, progress.batchId, progress.numInputRows, seconds, behind))


def _behind(end: str | None, latest: str | None) -> int:
    try:
        done = from_json(json.loads(end or "{}"), "offset")
        ends = from_json(json.loads(latest or "{}"), "offset")
    except (ValueError, ConfigError):
        return 0  # another source's
    return sum(max(0, offset - done.get(queue, 0)) for queue, offset in ends.items())
