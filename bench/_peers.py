"""What Python users have elsewhere, on servers of its own: aiokafka, and RocketMQ's gRPC client.

Everything is fetched when it is first needed: the clients with pip into an environment of their
own beside the jars, Kafka and RocketMQ's proxy with mvn. `Missing` says what could not be had.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import _broker_servers as servers
import apache
import jars
from _driving import HERE, Driver, Failed, note

CLIENTS: Final = ("aiokafka==0.14.0", "rocketmq-python-client==5.1.2")
PARTITIONS: Final = 8
TOPIC: Final = "bench"
_PIP_SECONDS: Final = 300


class Missing(Exception):
    """A peer that does not run here; the text says why."""


def python() -> Path:
    """The Python that has the clients."""
    home = jars.cache_dir() / "peers" / "-".join(CLIENTS).replace("==", "-")  # env reads "="
    program = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        venv.create(home, clear=True, with_pip=True)
        wanted = [str(program), "-m", "pip", "install", "-q", *CLIENTS]
        done = subprocess.run(wanted, capture_output=True, text=True, timeout=_PIP_SECONDS)
        if done.returncode:
            raise Missing(f"pip could not install {' '.join(CLIENTS)}: {done.stderr[-500:]}")
        ready.touch()
    return program


@contextlib.contextmanager
def driver() -> Iterator[Driver]:
    """The process that drives them."""
    with tempfile.TemporaryDirectory(prefix="gantry-peers-") as home:
        command = [
            "env", f"HOME={home}", "PYTHONPATH=", str(python()), str(HERE / "_peer_clients.py"),
        ]  # fmt: skip
        with Driver("peers", command, log=Path(home) / "said") as found:
            yield found


@contextlib.contextmanager
def kafka() -> Iterator[str]:
    """The address of a Kafka broker."""
    import _kafka

    with _kafka.Kafka() as running:
        running.make(TOPIC, PARTITIONS)
        yield running.address


class Proxied(apache.Cluster):
    """A broker inside of RocketMQ's proxy, in its local mode."""

    def _start_broker(self) -> None:
        self.grpc_port, remoting = apache.free_port(), apache.free_port()
        conf = self.home / "conf"
        (conf / "rmq.proxy.logback.xml").write_text(apache._LOGGING)
        (conf / "rmq-proxy.json").write_text(
            json.dumps(
                {
                    "proxyMode": "LOCAL",
                    "rocketMQClusterName": self.CLUSTER,
                    "namesrvAddr": self.name_server,
                    "grpcServerPort": self.grpc_port,
                    "remotingListenPort": remoting,
                    "localServeAddr": apache.HOST,
                }
            )
        )
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        files = ["-bc", str(conf / "broker.conf"), "-pc", str(conf / "rmq-proxy.json")]
        arguments = ["-pm", "local", "-n", self.name_server, *files]
        self._servers.append(
            apache.Server(
                self.version, main, self.home, arguments=arguments, jvm=self._jvm, which="proxy"
            )
        )
        self._wait_for(self._registered, "a route to the broker")
        self._wait_for(self._broker_listens, f"a listener on {self.broker}")


@contextlib.contextmanager
def proxy() -> Iterator[str]:
    """The address of RocketMQ's proxy, which has a topic."""
    import gantrymq as gantry

    settings = {**servers._FILES, "flushDiskType": "ASYNC_FLUSH"}
    with Proxied(jars.CURRENT, settings=settings, jvm=servers.JVM) as running:
        with gantry.Admin(name_servers=running.name_server) as admin:
            admin.create_topic(TOPIC, queues=PARTITIONS)
        yield f"{apache.HOST}:{running.grpc_port}"


VERBS: Final = {
    kafka: ("kafka-await", "kafka-async", "kafka-read"),
    proxy: ("grpc-sync", "grpc-async"),
}


TROUBLE: Final = (
    Missing, Failed, jars.JavaUnavailable, apache.StartFailed, RuntimeError, OSError,
)  # fmt: skip


def measure(
    *, size: int, window: int, rounds: int, seconds: float, warm: float, count: int
) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Every verb with its rounds; of a peer that does not run here it is said why."""
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(driver())
        except (Missing, OSError, subprocess.SubprocessError) as why:
            note(f"the peers do not run here: {why}")
            return
        order = {"topic": TOPIC, "size": size, "window": window, "count": count}
        for serve, verbs in VERBS.items():
            try:
                with serve() as address:
                    for verb in verbs:
                        found.do(verb, at=address, seconds=warm, **order)
                        yield (
                            verb,
                            [
                                found.do(verb, at=address, seconds=seconds, **order)
                                for _ in range(rounds)
                            ],
                        )
            except TROUBLE as why:
                note(f"{serve.__name__} does not run here: {why}")
