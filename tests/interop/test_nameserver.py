"""Our name server with RocketMQ's own brokers and tools: neither can tell it from the original.

A broker of each release registers with `gantry namesrv`, and RocketMQ's `mqadmin` of the same
release does through it what an operator does: lists, routes, keys, order topics, permissions,
settings, topics made and dropped, a message sent and read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import apache
import jars
import pytest
from admin import Admin
from conftest import or_skip
from plain import Caller

import gantrymq
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.routing import ClusterInfo, GetClusterInfo, GetRoute, TopicRoute
from gantrymq.wire import fastjson
from gantrymq.wire.command import Command

SOURCE: Final = Path(gantrymq.__file__).parent.parent


class NameServer:
    """`gantry namesrv` as a process of its own; a context manager."""

    def __init__(self, home: Path, *settings: str) -> None:
        self.home = home
        self.log = home / "gantry.log"
        command = [sys.executable, "-c", "from gantrymq.cli import main; main()", "namesrv"]
        ready = home / "ready.json"
        options = ["--port", "0", "--bind", apache.HOST, "--data", str(home / "data")]
        for setting in settings:
            options += ["--set", setting]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *options, "--ready-file", str(ready)],
                env=os.environ | {"PYTHONPATH": str(SOURCE)},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        assert b"ready" in self._process.stdout.readline(), self.log.read_text()
        self.address = str(json.loads(ready.read_text())["namesrv"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.communicate(timeout=20)
        assert self._process.returncode == 0, self.log.read_text()

    def ask(self, request: Any) -> Any:
        with BlockingPeer.connect(self.address) as peer:
            return peer.call(request, timeout=10)

    def clusters(self) -> ClusterInfo:
        found: ClusterInfo = self.ask(GetClusterInfo())
        return found

    def route(self, topic: str) -> TopicRoute:
        found: TopicRoute = self.ask(GetRoute(topic=topic)).route
        return found


class LoneBroker(apache.Cluster):
    """RocketMQ's broker alone, with a name server that is there already."""

    def __init__(self, version: str, name_server: str, **settings: object) -> None:
        self.name_server = name_server
        super().__init__(version, settings=settings)

    def _start(self, settings: dict[str, object]) -> None:
        conf = self.home / "conf"
        conf.mkdir()
        (self.home / "tmp").mkdir()
        (conf / "logback_broker.xml").write_text(apache._LOGGING)
        self.broker_port = apache.free_port(around=(-2, 0, 1))
        self.broker = f"{apache.HOST}:{self.broker_port}"
        apache._write(conf / "broker.conf", self._broker_settings() | settings)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        self._launch(main, "broker.conf", apache.BROKER_HEAP)
        asked = Command(105, fields={"topic": "TBW102"})
        self._wait_for(lambda: self._name_server_says(asked).code == 0, "a route to the broker")
        self._wait_for(self._broker_listens, f"a listener on {self.broker}")
        self._wait_for(self._counts, f"numbers of {self.broker}")


@pytest.fixture(scope="module", params=jars.VERSIONS)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def name_server(release: str) -> Iterator[NameServer]:
    home = Path(tempfile.mkdtemp(prefix="gantry-namesrv-"))
    with NameServer(home, "orderMessageEnable=true") as server:
        yield server
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def broker(release: str, name_server: NameServer) -> Iterator[LoneBroker]:
    with or_skip(lambda: LoneBroker(release, name_server.address)) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: LoneBroker) -> Iterator[Admin]:
    with Admin(broker.version, broker.name_server) as admin:
        yield admin


def until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g}s"
        time.sleep(0.1)


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_a_broker_registers_with_all_that_it_has(
    broker: LoneBroker, name_server: NameServer
) -> None:
    info = name_server.clusters()
    assert info.clusters == {broker.CLUSTER: {broker.BROKER}}
    assert info.brokers[broker.BROKER].addresses == {0: broker.broker}
    (queues,) = name_server.route("TBW102").queues
    assert (queues.broker, queues.read_queues, queues.write_queues) == (broker.BROKER, 8, 8)


def test_the_tools_see_clusters_topics_and_routes(
    admin: Admin, broker: LoneBroker, name_server: NameServer
) -> None:
    table = columns(admin("clusterList"))
    assert [broker.CLUSTER, broker.BROKER, "0", broker.broker] in [row[:4] for row in table]
    made = admin("updateTopic", "-c", broker.CLUSTER, "-t", "orders", "-r", "4", "-w", "2")
    assert "success" in made
    assert "orders" in admin("topicList").split()
    assert [broker.CLUSTER, "orders"] in [row[:2] for row in columns(admin("topicList", "-c"))]
    assert admin("topicClusterList", "-t", "orders").split() == [broker.CLUSTER]
    route = fastjson.loads(admin("topicRoute", "-t", "orders").encode())
    assert route["queueDatas"][0]["readQueueNums"] == 4
    assert route["queueDatas"][0]["writeQueueNums"] == 2
    assert list(route["brokerDatas"][0]["brokerAddrs"].values()) == [broker.broker]
    queues = admin("allocateMQ", "-t", "orders", "-i", "10.0.0.1,10.0.0.2")
    assert queues.count('"queueId"') == 4
    assert "offset" in admin("topicStatus", "-t", "orders").lower()


def test_a_message_goes_through(admin: Admin, broker: LoneBroker, name_server: NameServer) -> None:
    admin("updateTopic", "-c", broker.CLUSTER, "-t", "mail", "-r", "1", "-w", "1")
    sent = admin("sendMessage", "-t", "mail", "-p", "hello", "-b", broker.BROKER, "-i", "0")
    assert "SEND_OK" in sent
    read = admin("consumeMessage", "-t", "mail", "-b", broker.BROKER, "-i", "0", "-o", "0")
    assert "hello" in read


def test_keys_and_order_topics(admin: Admin, broker: LoneBroker, name_server: NameServer) -> None:
    kept = name_server.home / "data" / "kvConfig.json"
    assert "success" in admin("updateKvConfig", "-s", "N", "-k", "k", "-v", "a b")
    assert json.loads(kept.read_bytes())["configTable"]["N"] == {"k": "a b"}
    assert "success" in admin("deleteKvConfig", "-s", "N", "-k", "k")
    assert json.loads(kept.read_bytes())["configTable"]["N"] == {}

    order = f"{broker.BROKER}:4"
    admin("updateTopic", "-c", broker.CLUSTER, "-t", "ordered", "-o", "true")
    spread = json.loads(kept.read_bytes())["configTable"]["ORDER_TOPIC_CONFIG"]
    assert spread["ordered"].startswith(f"{broker.BROKER}:")
    put = admin("updateOrderConf", "-t", "ordered", "-m", "put", "-v", order)
    assert "success" in put
    assert order in admin("updateOrderConf", "-t", "ordered", "-m", "get")
    assert name_server.route("ordered").order == order
    route = fastjson.loads(admin("topicRoute", "-t", "ordered").encode())
    assert route["orderTopicConf"] == order
    admin("updateOrderConf", "-t", "ordered", "-m", "delete")
    assert name_server.route("ordered").order is None


def test_a_broker_is_closed_and_opened_for_writing(
    admin: Admin, broker: LoneBroker, name_server: NameServer
) -> None:
    assert name_server.route("SELF_TEST_TOPIC").queues[0].perm == 6
    closed = admin("wipeWritePerm", "-b", broker.BROKER)
    assert re.search(r"wipe write perm of broker\[broker-a\].* OK, [1-9]\d*", closed)
    assert name_server.route("SELF_TEST_TOPIC").queues[0].perm == 4
    opened = admin("addWritePerm", "-b", broker.BROKER)
    assert re.search(r"add write perm of broker\[broker-a\].* OK, [1-9]\d*", opened)
    assert name_server.route("SELF_TEST_TOPIC").queues[0].perm == 6


def test_settings(admin: Admin, broker: LoneBroker, name_server: NameServer) -> None:
    shown = admin("getNamesrvConfig")
    assert re.search(r"scanNotActiveBrokerInterval\s+=\s+5000", shown)
    changed = admin("updateNamesrvConfig", "-k", "scanNotActiveBrokerInterval", "-v", "700")
    assert "success" in changed
    shown = admin("getNamesrvConfig")
    assert re.search(r"scanNotActiveBrokerInterval\s+=\s+700\b", shown)
    kept = name_server.home / "data" / "namesrv.properties"
    assert kept.read_text() == "scanNotActiveBrokerInterval=700\n"


def test_a_topic_is_dropped(admin: Admin, broker: LoneBroker, name_server: NameServer) -> None:
    admin("updateTopic", "-c", broker.CLUSTER, "-t", "passing")
    assert name_server.route("passing").queues
    assert "success" in admin("deleteTopic", "-c", broker.CLUSTER, "-t", "passing")
    with Caller(name_server.address) as caller:
        assert caller.call(Command(105, fields={"topic": "passing"})).code == 17


@pytest.mark.parametrize("settings", [{"compressedRegister": "true"}], ids=["compressed"])
def test_a_compressed_registration_and_a_killed_broker(
    release: str, tmp_path: Path, settings: Mapping[str, object]
) -> None:
    """5.x says that its deflated body is none; and a broker that is killed is gone at once."""
    with NameServer(tmp_path) as server:
        with or_skip(lambda: LoneBroker(release, server.address, **settings)) as broker:
            route = server.route("TBW102")
            assert route.brokers[0].addresses == {0: broker.broker}
            assert route.queues[0].perm == 7
        until(lambda: not server.clusters().brokers, "the broker is gone", 10)
        assert "its connection ended" in server.log.read_text()


def test_brokers_of_both_releases_and_several_name_servers(tmp_path: Path) -> None:
    """Every broker registers with every name server, and a name server may come back empty."""
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    names = {version: f"broker-{version}" for version in jars.VERSIONS}
    with NameServer(tmp_path / "1") as one, NameServer(tmp_path / "2") as two:
        both = f"{one.address};{two.address}"

        def start(version: str) -> LoneBroker:
            return or_skip(
                lambda: LoneBroker(
                    version, one.address, namesrvAddr=both, brokerName=names[version]
                )
            )

        with start(jars.CURRENT), start(jars.OLD):
            wanted = set(names.values())
            until(lambda: set(one.clusters().brokers) == wanted, "both are here")
            until(lambda: set(two.clusters().brokers) == wanted, "both are there")
            for server in (one, two):
                assert {data.name for data in server.route("TBW102").brokers} == wanted


def test_a_replica_of_rocketmqs_acts_for_its_master(tmp_path: Path) -> None:
    """The master is killed: routes show the replica in its place, to be read and not written to."""
    both = {"enableSlaveActingMaster": "true", "brokerName": "pair"}
    settings = ("supportActingMaster=true", "notifyMinBrokerIdChanged=true")
    with (
        NameServer(tmp_path, *settings) as server,
        or_skip(lambda: LoneBroker(jars.CURRENT, server.address, **both)) as master,
    ):
        replica = {**both, "brokerId": 1, "brokerRole": "SLAVE"}
        with LoneBroker(jars.CURRENT, server.address, **replica) as slave:
            members = {0: master.broker, 1: slave.broker}
            until(lambda: server.clusters().brokers["pair"].addresses == members, "both are here")
            assert server.route("TBW102").queues[0].perm == 7
            master.close()
            until(
                lambda: server.route("TBW102").brokers[0].addresses == {0: slave.broker},
                "the replica is shown as master",
            )
            assert server.route("TBW102").queues[0].perm == 5
            assert server.clusters().brokers["pair"].addresses == {1: slave.broker}
            log = slave.home / "logs" / "rocketmqlogs" / "broker.log"
            until(lambda: "Min broker changed" in log.read_text(), "the replica heard of it")
    assert "was not told" not in server.log.read_text()
