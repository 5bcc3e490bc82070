"""One Spark session for the whole run, and platforms to read from: ours, and RocketMQ's."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

_INTEROP = str(Path(__file__).parent.parent / "interop")
if _INTEROP not in sys.path:
    sys.path.insert(0, _INTEROP)

from apache import Cluster  # noqa: E402
from gantry import Gantry  # noqa: E402

import gantrymq as gantry  # noqa: E402
import gantrymq.spark  # noqa: E402
from tests.interop.conftest import or_skip  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_HERE: Final = Path(__file__).parent
_numbers: Final = itertools.count(1)
NEWEST: Final = "5.5.0"
SETTINGS: Final = {
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "enablePropertyFilter": "true",
    "brokerFastFailureEnable": "false",
    # files go when they are told to, and then at once
    "fileReservedTime": 0,
    "deleteWhen": "99",
    "cleanResourceInterval": 300,
}
OURS: Final = (
    "flow.enabled=false",
    f"mappedFileSizeCommitLog={16 << 20}",
    "store.retention.time=10ms",
    "store.retention.interval=1h",
)
CONF: Final = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs Spark, and may wait for it on a busy machine."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    conf = CONF | {"spark.sql.warehouse.dir": str(warehouse)}
    session = gantrymq.spark.session("tests", master="local[2,3]", conf=conf)
    yield session
    session.stop()


class Server(Protocol):
    """A name server and a broker."""

    version: str
    name_server: str
    keep: bool


class Place:
    """A platform with a topic of its own for one test."""

    def __init__(self, start: Callable[[], SparkSession], server: Any, tmp_path: Path) -> None:
        self._start = start
        self.server = server
        self.name_server: str = server.name_server
        self.topic = f"spark-{next(_numbers)}"
        self.tmp_path = tmp_path

    @property
    def spark(self) -> SparkSession:
        """The session; it starts for the first test that asks for it."""
        return self._start()

    @property
    def options(self) -> dict[str, Any]:
        """What leads to the topic."""
        return {"nameServer": self.name_server, "topic": self.topic}

    def admin(self) -> gantry.Admin:
        """Who makes topics."""
        return gantry.Admin(name_servers=self.name_server, timeout=20)

    def make(self, topic: str | None = None, queues: int = 4) -> str:
        """A topic."""
        name = topic or self.topic
        with self.admin() as admin:
            admin.create_topic(name, queues=queues)
        return name

    def send(self, bodies: list[bytes], topic: str | None = None, **how: Any) -> None:
        """Messages, in batches, by our own producer; readers can see them when this returns."""
        wanted = self._end(topic or self.topic) + len(bodies)
        messages = [gantry.Message(topic or self.topic, body, **how) for body in bodies]
        settings: dict[str, Any] = {"name_servers": self.name_server, "send_timeout": 20}
        with gantry.Producer(group="spark-tests", **settings) as producer:
            for at in range(0, len(messages), 500):
                producer.send_batch(messages[at : at + 500])
        deadline = time.monotonic() + 60
        while self._end(topic or self.topic) < wanted:  # queues follow the log a moment later
            assert time.monotonic() < deadline, "the messages do not come up in their queues"
            time.sleep(0.02)

    def _end(self, topic: str) -> int:
        with gantry.Reader(name_servers=self.name_server) as reader:
            return sum(reader.bounds(queue).end for queue in reader.queues(topic))

    def reader(self, **options: Any) -> DataFrameReader:
        """A batch reader."""
        return self._told(self.spark.read, options)

    def read(self, **options: Any) -> DataFrame:
        """A batch."""
        return self.reader(**options).load()

    def stream(self, **options: Any) -> Any:
        """A reader of streams."""
        return self._told(self.spark.readStream, options)

    def bodies(self, **options: Any) -> list[bytes]:
        """The bodies that a batch finds, sorted."""
        rows = self.read(columns="body", **options).collect()
        return sorted(bytes(row.body) for row in rows)

    def _told(self, reader: Any, options: dict[str, Any]) -> Any:
        if not {"topics", "topicPattern"} & options.keys():
            options = {"topic": self.topic} | options
        return reader.format("rocketmq").options(nameServer=self.name_server, **options)


@pytest.fixture(scope="session")
def _started(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Server]]:
    running: dict[str, Any] = {}

    def start(name: str) -> Server:
        if name not in running:
            running[name] = (
                Gantry(*OURS)
                if name == "ours"
                else or_skip(lambda: Cluster(name, settings=SETTINGS))
            )
        server: Server = running[name]
        return server

    yield start
    for server in running.values():
        server.keep = request.session.testsfailed > 0
        server.close()


@pytest.fixture(params=["ours", pytest.param(NEWEST, marks=pytest.mark.interop)])
def place(
    request: pytest.FixtureRequest, _started: Callable[[str], Server], tmp_path: Path
) -> Place:
    """Our platform and RocketMQ's newest, in turn."""
    return Place(lambda: request.getfixturevalue("spark"), _started(request.param), tmp_path)


@pytest.fixture
def ours(
    request: pytest.FixtureRequest, _started: Callable[[str], Server], tmp_path: Path
) -> Place:
    """Our platform alone, where it makes no difference."""
    return Place(lambda: request.getfixturevalue("spark"), _started("ours"), tmp_path)
