"""A Kafka broker, its client and Spark's connector, as the peers of benchmarks; jars come by `mvn`.

One JVM is broker and controller (KRaft), on ports of the system and files of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "interop"))

import apache
import jars

SERVER: Final = "4.3.1"
CONNECTOR: Final = "4.2.0"
CLIENTS: Final = "3.9.2"
TOKENS: Final = "4.1.0-preview1"
"""A part of the connector that only delegation tokens need; of 4.2.0 it is not everywhere."""

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
_READY: Final = 60.0
_HEAP: Final = ("-Xms512m", "-Xmx768m")
JVM: Final = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""What Kafka's own script asks for."""
_CLIENT: Final = Path(__file__).resolve().parent / "java" / "kafka" / "KafkaBench.java"
_ALONE: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
_SERVER_JARS: Final = (
    ("org.apache.kafka", "kafka_2.13", SERVER, ""),
    ("org.apache.kafka", "kafka-tools", SERVER, ""),
)
_CONNECTOR_JARS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR, _ALONE),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKENS, _ALONE),
    ("org.apache.kafka", "kafka-clients", CLIENTS, ""),
    ("org.apache.commons", "commons-pool2", "2.12.1", ""),
)


def connector_jars() -> list[Path]:
    """What Spark needs to read Kafka; what Spark has itself is left out."""
    found = _jars(f"spark-kafka-{CONNECTOR}", _CONNECTOR_JARS)
    own = ("lz4", "slf4j", "snappy", "zstd")
    return [jar for jar in found if not jar.name.startswith(own)]


def server_jars() -> list[Path]:
    """What a broker needs."""
    return _jars(f"kafka-{SERVER}", _SERVER_JARS)


def client(*options: str) -> list[str]:
    """The command that runs Kafka's client, `java/kafka/KafkaBench.java`."""
    path = os.pathsep.join(map(str, server_jars()))
    digest = hashlib.sha256(_CLIENT.read_bytes()).hexdigest()[:16]
    classes = jars.cache_dir() / "classes" / f"kafka-{SERVER}-{digest}"
    jars._make(classes, lambda fresh: jars._compile(path, [_CLIENT], fresh))
    return [jars.tool("java"), *options, "-cp", f"{classes}{os.pathsep}{path}", _CLIENT.stem]


def _jars(name: str, wanted: tuple[tuple[str, str, str, str], ...]) -> list[Path]:
    target = jars.cache_dir() / "jars" / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as outer:
            fresh = Path(outer) / "fresh"
            fresh.mkdir()
            _fetch(wanted, Path(outer), fresh)
            if not target.exists():
                fresh.rename(target)
    return sorted(target.glob("*.jar"))


def _fetch(wanted: tuple[tuple[str, str, str, str], ...], home: Path, into: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{exclusions}</dependency>"
        for group, artifact, version, exclusions in wanted
    )
    pom = home / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = [jars.tool("mvn"), "-q", "-B", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={into}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=420)
    if done.returncode:
        raise jars.JavaUnavailable(f"mvn could not fetch Kafka: {done.stdout[-2000:]}")


class Kafka:
    """A broker; a context manager."""

    def __init__(
        self, heap: tuple[str, ...] = _HEAP, settings: Mapping[str, object] | None = None
    ) -> None:
        """Its files are made first; `began` is when the server itself is started."""
        self.home = Path(tempfile.mkdtemp(prefix="gantry-kafka-"))
        self._path = os.pathsep.join(map(str, server_jars()))
        port, control = apache.free_port(), apache.free_port()
        self.address = f"{apache.HOST}:{port}"
        conf = self.home / "server.properties"
        conf.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={self.home / 'data'}\n"
            f"controller.quorum.voters=1@{apache.HOST}:{control}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://{apache.HOST}:{control}\n"
            "controller.listener.names=CONTROLLER\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            "share.coordinator.state.topic.replication.factor=1\n"
            # Benchmarks stop who is not measured: that is not to be taken for its death.
            "broker.session.timeout.ms=3600000\n"
            + "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        )
        self._run(
            "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-c", str(conf)
        )
        self.began = time.monotonic()
        with (self.home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [jars.tool("java"), *heap, "-cp", self._path, "kafka.Kafka", str(conf)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
            )
        self._wait(port)

    @property
    def pids(self) -> list[int]:
        """Its processes."""
        return [self.process.pid]

    def make(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        arguments = ("--bootstrap-server", self.address, "--create", "--topic", topic)
        self._run(
            "org.apache.kafka.tools.TopicCommand", *arguments, "--partitions", str(partitions)
        )

    def trickle(self, topic: str, size: int, rate: int, stop: threading.Event) -> None:
        """Send so many messages a second until `stop`."""
        options = {
            "--topic": topic,
            "--num-records": str(10_000_000),
            "--record-size": str(size),
            "--throughput": str(rate),
            "--producer-props": f"bootstrap.servers={self.address}",
        }
        main = "org.apache.kafka.tools.ProducerPerformance"
        command = [jars.tool("java"), "-Xmx256m", "-cp", self._path, main]
        command += [part for option in options.items() for part in option]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.home
        ) as process:
            stop.wait()
            process.kill()

    def _run(self, main: str, *arguments: str) -> None:
        command = [jars.tool("java"), "-Xmx256m", "-cp", self._path, main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.home)
        if done.returncode:
            raise RuntimeError(f"{main} ended with {done.returncode}: {done.stdout}{done.stderr}")

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + _READY
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"Kafka did not start:\n{(self.home / 'log').read_text()[-3000:]}"
                )
            try:
                socket.create_connection((apache.HOST, port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it and remove its files."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
