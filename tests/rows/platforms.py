"""The servers that every row is shown on: a name server and two brokers, ours and RocketMQ's.

The brokers are named `room@name`, as the strategies that go by machine rooms want it. Each is a
process of its own, so that one can be killed while the other goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

import apache
import jars
from apache import Cluster, NameServer
from gantry import COMMAND, SOURCE

from gantrymq.errors import ReplyError
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.groups import ConsumerData, GetConsumerList, Heartbeat, Subscription
from gantrymq.protocol.registration import RegisterBroker, Registration
from gantrymq.protocol.routing import GetClusterInfo

GANTRY: Final = "gantry"
NAMES: Final = (GANTRY, *jars.VERSIONS)

NORTH: Final = "north@a"
SOUTH: Final = "south@b"
BROKERS: Final = (NORTH, SOUTH)

_ENOUGH: Final = 30.0


class Silence:
    """A broker that registered once with a name server, and a client that greeted a broker once.

    Their connections stay open.
    """

    BROKER: Final = "silent@broker"
    GROUP: Final = "silent-group"

    def __init__(self, name_server: str, broker: str, *, timeout_ms: int | None) -> None:
        """`timeout_ms` is what the broker says of itself; old name servers do not look at it."""
        self.since = time.monotonic()
        self.name_server, self.broker = name_server, broker
        registration = RegisterBroker(
            broker=self.BROKER,
            address="127.0.0.1:1",
            cluster="DefaultCluster",
            ha_address="127.0.0.1:2",
            broker_id=0,
            timeout_ms=timeout_ms,
        )
        registration.carry(Registration())
        subscription = Subscription(topic="silence", version=1)
        consumer = ConsumerData(group=self.GROUP, subscriptions=[subscription])
        beat = Heartbeat(client_id="silent-client", consumers=[consumer])
        self._peers = [BlockingPeer.connect(name_server), BlockingPeer.connect(broker)]
        self._peers[0].call(registration, timeout=20)
        self._peers[1].call(beat, timeout=20)

    def there(self) -> tuple[bool, bool]:
        """Whether the name server still names the broker, and the broker still has the client."""
        with BlockingPeer.connect(self.name_server) as peer:
            brokers = peer.call(GetClusterInfo(), timeout=20).brokers
        with BlockingPeer.connect(self.broker) as peer:
            try:
                members = peer.call(GetConsumerList(group=self.GROUP), timeout=20).client_ids
            except ReplyError:
                members = []
        return self.BROKER in brokers, "silent-client" in members

    def close(self) -> None:
        """End both."""
        for peer in self._peers:
            peer.close()


class Platform(Protocol):
    """A name server and two brokers."""

    name: str
    name_server: str
    brokers: Mapping[str, str]
    """Addresses by name."""
    keep: bool

    @property
    def old(self) -> bool:
        """Whether it knows nothing of what came with 5.0."""
        ...

    def kill(self, broker: str) -> None:
        """End a broker at once, as a crash would."""
        ...

    def restart(self, broker: str) -> None:
        """Start one that was killed, on the same port and files; return when it is registered."""
        ...

    def silence(self) -> AbstractContextManager[Silence]:
        """A broker and a client that said something once, or that say it now."""
        ...

    def close(self) -> None:
        """End everything."""
        ...


def start(name: str) -> Platform:
    """The platform of that name."""
    return Ours() if name == GANTRY else Apache(name)


class Process:
    """One of our servers."""

    def __init__(self, log: Path, ready: Path, *arguments: str) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*COMMAND, *arguments, "--bind", "127.0.0.1", "--ready-file", str(ready)],
                env=os.environ | {"PYTHONPATH": str(SOURCE)},
                stdout=subprocess.PIPE,
                stderr=output,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert b"ready" in line, log.read_text(errors="replace")[-3000:]
        self.facts: dict[str, Any] = json.loads(ready.read_text())

    def stop(self) -> None:
        """End it in good order."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate(timeout=_ENOUGH)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate(timeout=_ENOUGH)


class Ours:
    """`gantry namesrv` and `gantry broker`, twice."""

    old = False

    def __init__(self, *settings: str, of_names: tuple[str, ...] = ("routes.order=true",)) -> None:
        """`settings` are for the brokers, `of_names` for the name server."""
        self.name = GANTRY
        self.keep = False
        self.home = Path(tempfile.mkdtemp(prefix="gantry-rows-"))
        self._settings = (
            "transactions.interval=1s",
            "transactions.immunity=1s",
            "registering.interval=2s",
            "topics.trace=true",
            "flow.enabled=false",  # other tests may keep this machine busy
            *settings,
        )
        self._names = self._run("names", "namesrv", of_names, "--port", "0")
        self.name_server: str = self._names.facts["namesrv"]
        self._ports = {name: apache.free_port(around=(-2, 0)) for name in BROKERS}
        self.brokers: Mapping[str, str] = {
            name: f"127.0.0.1:{port}" for name, port in self._ports.items()
        }
        self._processes = {name: self._broker(name) for name in BROKERS}

    def _broker(self, name: str) -> Process:
        where = ("--namesrv", self.name_server, "--port", str(self._ports[name]))
        return self._run(name, "broker", self._settings, "--name", name, *where)

    def _run(self, name: str, what: str, settings: tuple[str, ...], *arguments: str) -> Process:
        options = [option for setting in settings for option in ("--set", setting)]
        log, ready = self.home / f"{name}.log", self.home / f"{name}.json"
        data = ("--data", str(self.home / name))
        return Process(log, ready, what, *arguments, *data, *options)

    def kill(self, broker: str) -> None:
        self._processes[broker].kill()

    def restart(self, broker: str) -> None:
        self._processes[broker] = self._broker(broker)

    @contextmanager
    def silence(self) -> Iterator[Silence]:
        quick = Ours("groups.silence=1s", of_names=("brokers.scan_interval=1s",))
        with closing(quick):
            silent = Silence(quick.name_server, quick.brokers[NORTH], timeout_ms=1000)
            with closing(silent):
                yield silent

    def close(self) -> None:
        for process in self._processes.values():
            process.stop()
        self._names.stop()
        if not self.keep:
            shutil.rmtree(self.home, ignore_errors=True)


class Apache:
    """RocketMQ's own, of one release."""

    def __init__(self, version: str) -> None:
        self.name = version
        self.keep = False
        settings = {
            "transactionCheckInterval": 1000,
            "transactionTimeOut": 1000,
            "registerNameServerPeriod": 10_000,  # it takes no less
            "enablePropertyFilter": "true",
            "brokerFastFailureEnable": "false",
            "recallMessageEnable": "true",
            "traceTopicEnable": "true",
        }
        self._clusters: dict[str, Cluster] = {}
        self._names: NameServer | None = None
        self._silent: Silence | None = None
        self.name_server = ""
        try:
            for name in BROKERS:
                self._clusters[name] = cluster = Cluster(
                    version,
                    settings=settings | {"brokerName": name},
                    name_server=self.name_server or None,
                    of_names={"orderMessageEnable": "true"},
                )
                self.name_server = cluster.name_server
        except BaseException:
            self.close()
            raise
        self.brokers: Mapping[str, str] = {
            name: cluster.broker for name, cluster in self._clusters.items()
        }
        # It takes RocketMQ more than two minutes to give somebody up, so that begins now; with a
        # name server of its own, since nobody else wants to hear of such a broker.
        self._names = NameServer(version)
        self._silent = Silence(self._names.address, self.brokers[NORTH], timeout_ms=None)

    @property
    def old(self) -> bool:
        return self.name.startswith("4.")

    def kill(self, broker: str) -> None:
        self._clusters[broker].crash()

    def restart(self, broker: str) -> None:
        self._clusters[broker].restart()

    def silence(self) -> AbstractContextManager[Silence]:
        assert self._silent is not None
        return nullcontext(self._silent)

    def close(self) -> None:
        if self._silent is not None:
            self._silent.close()
        if self._names is not None:
            self._names.close()
        for cluster in reversed(self._clusters.values()):
            cluster.keep = self.keep
            cluster.close()
