"""Our broker with RocketMQ's name server: to it, and to clients and tools, a broker like its own.

The broker is `gantry broker`, as it runs where somebody has a name server already.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import apache
import jars
import pytest
from admin import Admin
from conftest import or_skip
from gantry import COMMAND, SOURCE
from peer import JavaPeer
from traffic import Traffic, bodies, messages, new_name

from gantrymq.protocol.routing import GetRoute
from gantrymq.wire import fastjson
from gantrymq.wire.command import Command

UNKNOWN_TOPIC = 17


class NameServer(apache.Cluster):
    """RocketMQ's name server alone."""

    def _start(self, settings: dict[str, object]) -> None:
        conf = self.home / "conf"
        conf.mkdir()
        (self.home / "tmp").mkdir()
        (conf / "logback_namesrv.xml").write_text(apache._LOGGING)
        self.name_server = f"{apache.HOST}:{apache.free_port()}"
        self.begin()

    def begin(self) -> None:
        """Run it; after `kill`, on the same port."""
        port = self.name_server.rpartition(":")[2]
        apache._write(self.home / "conf" / "namesrv.conf", {"listenPort": port})
        main, jvm = "org.apache.rocketmq.namesrv.NamesrvStartup", apache.NAME_SERVER_HEAP
        self._launch(main, "namesrv.conf", (*jvm, *apache.QUICK))
        self._wait_for(lambda: bool(self.knows("any")), "an answering name server")

    def kill(self) -> None:
        """End it at once, and keep its directory."""
        self._servers.pop().stop()

    def knows(self, topic: str) -> Command:
        """What it answers to whoever asks for a route."""
        return self._name_server_says(GetRoute(topic=topic).command())


class Broker:
    """`gantry broker` at a name server; a context manager."""

    def __init__(self, home: Path, name_server: str, *settings: str) -> None:
        self.name_server = name_server
        self._log = home / "gantry.log"
        ready = home / "ready.json"
        options = ["--namesrv", name_server, "--port", "0", "--bind", apache.HOST]
        options += ["--data", str(home / "data"), "--ready-file", str(ready)]
        for setting in settings:
            options += ["--set", setting]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "broker", *options],
                env=os.environ | {"PYTHONPATH": str(SOURCE)},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        assert b"ready" in self.process.stdout.readline(), self._log.read_text()
        self.broker: str = json.loads(ready.read_text())["brokers"][0]["address"]

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)
        assert self.process.returncode in (0, -9), self._log.read_text()


@pytest.fixture(scope="module", params=jars.VERSIONS)
def names(request: pytest.FixtureRequest) -> Iterator[NameServer]:
    with or_skip(lambda: NameServer(request.param)) as running:
        yield running


def until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g}s"
        time.sleep(0.1)


def addresses(names: NameServer, topic: str) -> list[Any]:
    route = fastjson.loads(bytes(names.knows(topic).body))
    return [list(one["brokerAddrs"].values()) for one in route["brokerDatas"]]


def test_clients_find_it_and_send_and_consume(
    names: NameServer, peers: Callable[[str], JavaPeer], rng: Random, tmp_path: Path
) -> None:
    with Broker(tmp_path, names.name_server) as broker:
        assert addresses(names, "TBW102") == [[broker.broker]]
        traffic = Traffic(peers(names.version), broker)
        topic, sent = new_name("at_apache"), messages(rng, 40, tags=("A", "B"))
        results = traffic.send("sync", topic, sent[:20])
        assert {one["status"] for one in results} == {"SEND_OK"}
        assert addresses(names, topic) == [[broker.broker]]
        traffic.start("push", topic, topic)
        found = traffic.take(topic, 20)
        traffic.send("async", topic, sent[20:])
        found += traffic.take(topic, 20)
        traffic.stop(topic)
        assert sorted(bodies(found)) == sorted(one["body"] for one in sent)
    assert names.knows("TBW102").code == UNKNOWN_TOPIC  # it said goodbye


def test_tools_see_it_and_change_it(names: NameServer, tmp_path: Path) -> None:
    with (
        Broker(tmp_path, names.name_server) as broker,
        Admin(names.version, names.name_server) as admin,
    ):
        listed = [line.split()[:4] for line in admin("clusterList").splitlines()]
        assert ["DefaultCluster", "broker-a", "0", broker.broker] in listed
        assert "success" in admin(
            "updateTopic", "-c", "DefaultCluster", "-t", "tools", "-o", "true"
        )
        assert "tools" in admin("topicList").split()
        assert broker.broker in admin("topicRoute", "-t", "tools")
        closed = admin("wipeWritePerm", "-b", "broker-a")
        assert re.search(r"wipe write perm of broker\[broker-a\].* OK, [1-9]\d*", closed)
        assert route_permission(names, "tools") == 4
        admin("addWritePerm", "-b", "broker-a")
        assert route_permission(names, "tools") == 6
        assert "success" in admin("deleteTopic", "-c", "DefaultCluster", "-t", "tools")
        assert names.knows("tools").code == UNKNOWN_TOPIC


def route_permission(names: NameServer, topic: str) -> int:
    (queues,) = fastjson.loads(bytes(names.knows(topic).body))["queueDatas"]
    return int(queues["perm"])


def test_it_comes_back_to_a_name_server_that_was_away(names: NameServer, tmp_path: Path) -> None:
    with Broker(tmp_path, names.name_server, "registering.interval=1s") as broker:
        names.kill()
        names.begin()
        until(lambda: names.knows("TBW102").code == 0, "a route")
        assert addresses(names, "TBW102") == [[broker.broker]]


@pytest.mark.parametrize("compressed", ["true", "false"])
def test_one_that_is_killed_is_gone_at_once(
    names: NameServer, tmp_path: Path, compressed: str
) -> None:
    with Broker(tmp_path, names.name_server, f"compressedRegister={compressed}") as broker:
        assert addresses(names, "TBW102") == [[broker.broker]]
        broker.process.kill()
        until(lambda: names.knows("TBW102").code == UNKNOWN_TOPIC, "the broker is gone", 20)
