"""A real Apache name server and broker, started from their jars for the length of a test run.

Both are ordinary JVMs with small heaps and small files in a directory of their own, on free ports
of 127.0.0.1. They end when `close` is called, and also when this process dies in whatever way:
each of them watches the pipe that it was given as stdin (`Tethered.java`).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import jars
import plain
from peer import SOURCES

from gantrymq.errors import GantryError
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command

HOST: Final = "127.0.0.1"
READY_SECONDS: Final = 90.0
STOP_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
ATTEMPTS: Final = 3
"""A port that was free can be taken before the JVM comes to bind it; then others are chosen."""

NAME_SERVER_HEAP: Final = ("-Xms64m", "-Xmx128m")
BROKER_HEAP: Final = ("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=512m")

# What RocketMQ's own start scripts open for JDK 9 and later.
OPENED: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-XX:-UsePerfData",
)
# Client compilers are enough for tests, and start sooner.
QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# 4.x does not start without these two files; nothing in them is RocketMQ's own.
_LOGGING: Final = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level [%thread] %logger{20} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

_MIB: Final = 1024 * 1024


class StartFailed(Exception):
    """A server ended or was not ready in time; the text has the end of its log."""


class Server:
    """One JVM that runs a main class, its output kept in a file."""

    def __init__(
        self,
        version: str,
        main: str,
        home: Path,
        *,
        arguments: list[str],
        jvm: tuple[str, ...],
        which: str = "server",
    ) -> None:
        """`which` set of jars it is in."""
        self.name = main.rpartition(".")[2]
        self.log = home / f"{self.name}.log"
        options = (*jvm, *OPENED, f"-Duser.home={home}", f"-Djava.io.tmpdir={home / 'tmp'}")
        command = jars.java(version, which, "Tethered", *options, sources=SOURCES)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, main, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=home,
                env={"ROCKETMQ_HOME": str(home), "HOME": str(home), "LC_ALL": "C.UTF-8"},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise when the process has ended."""
        if (code := self._process.poll()) is not None:
            raise StartFailed(f"{self.name} ended with exit code {code}:\n{self.tail()}")

    def tail(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]

    def finish(self) -> None:
        """Ask the process to end, and wait until it has written what it has to write."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise StartFailed(f"{self.name} did not end when asked:\n{self.tail()}") from None
        self.stop()

    def stop(self) -> None:
        """End the process at once, as a crash would."""
        self._process.kill()
        self._process.wait()
        pipe: IO[bytes] | None = self._process.stdin
        if pipe is not None:
            pipe.close()


class Cluster:
    """A name server and one master broker of one release; a context manager."""

    CLUSTER = "DefaultCluster"
    BROKER = "broker-a"

    def __init__(
        self,
        version: str,
        *,
        settings: Mapping[str, object] | None = None,
        store: Path | None = None,
        name_server: str | None = None,
        of_names: Mapping[str, object] | None = None,
        jvm: tuple[str, ...] = (*BROKER_HEAP, *QUICK),
        files: Mapping[str, str] | None = None,
    ) -> None:
        """`store`, where the broker's store is or is to be, stays when all is over.

        With `name_server`, which has to run, the broker registers there and none is started.
        `settings` are the broker's, `of_names` the name server's; `jvm` are the options of the
        broker's JVM, `files` what else has to be in its directory `conf`.
        """
        self.version = version
        self._files = dict(files or {})
        self._store = store
        self._given = name_server
        self._of_names = dict(of_names or {})
        self._jvm = jvm
        for attempt in range(ATTEMPTS):
            self.home = Path(tempfile.mkdtemp(prefix=f"gantry-rocketmq-{version}-"))
            self._servers: list[Server] = []
            self.keep = False
            try:
                self._start(dict(settings or {}))
                return
            except BaseException as error:
                again = isinstance(error, StartFailed) and attempt + 1 < ATTEMPTS
                self.keep = not again
                self.close()
                if not again:
                    raise

    def _start(self, settings: dict[str, object]) -> None:
        conf = self.home / "conf"
        conf.mkdir()
        (self.home / "tmp").mkdir()
        for name in ("logback_broker.xml", "logback_namesrv.xml"):
            (conf / name).write_text(_LOGGING)
        for name, text in self._files.items():
            (conf / name).write_text(text)
        self.name_server = self._given or f"{HOST}:{free_port()}"
        self.broker_port = free_port(around=(-2, 0, 1))  # its fast port, itself, replication
        self.broker = f"{HOST}:{self.broker_port}"
        names = {"listenPort": self.name_server.rpartition(":")[2]}
        _write(conf / "namesrv.conf", names | self._of_names)
        _write(conf / "broker.conf", self._broker_settings() | settings)
        topic = settings.get("brokerName", self.BROKER)  # every broker has one of its own name
        self._asked = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": str(topic)})
        if self._given is None:
            main, jvm = "org.apache.rocketmq.namesrv.NamesrvStartup", (*NAME_SERVER_HEAP, *QUICK)
            self._launch(main, "namesrv.conf", jvm)
        # A broker that finds no name server at its start tries again only after ten seconds.
        self._wait_for(self._answers, "an answering name server")
        self._start_broker()

    def _start_broker(self) -> None:
        self._launch("org.apache.rocketmq.broker.BrokerStartup", "broker.conf", self._jvm)
        self._wait_for(self._registered, "a route to the broker")
        self._wait_for(self._broker_listens, f"a listener on {self.broker}")
        self._wait_for(self._counts, f"numbers of {self.broker}")

    def _launch(self, main: str, conf: str, jvm: tuple[str, ...]) -> None:
        arguments = ["-c", str(self.home / "conf" / conf)]
        self._servers.append(Server(self.version, main, self.home, arguments=arguments, jvm=jvm))

    @property
    def pids(self) -> list[int]:
        """Of the name server and the broker."""
        return [server.pid for server in self._servers]

    def _broker_settings(self) -> dict[str, object]:
        store = self._store or self.home / "store"
        return {
            "brokerClusterName": self.CLUSTER,
            "brokerName": self.BROKER,
            "brokerId": 0,
            "brokerIP1": HOST,
            "listenPort": self.broker_port,
            "haListenPort": self.broker_port + 1,
            "namesrvAddr": self.name_server,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "mappedFileSizeCommitLog": 16 * _MIB,
            "mappedFileSizeConsumeQueue": 20 * 10_000,
            "maxHashSlotNum": 10_000,
            "maxIndexNum": 40_000,
            "diskMaxUsedSpaceRatio": 98,
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            # with the defaults a broker that has ended a transaction takes a whole core after it
            "transactionOpBatchInterval": 86_400_000,
            "transactionOpMsgMaxSize": 1,
            # the whole wheel is written each time; once a second that takes a seventh of a core
            "timerFlushIntervalMs": 30_000,
        }

    def _answers(self) -> bool:
        return bool(self._name_server_says())

    def _registered(self) -> bool:
        return self._name_server_says().code == 0

    def _name_server_says(self, asked: Command | None = None) -> Command:
        """Its answer, to the question for this broker's route if no other is asked."""
        with plain.Caller(self.name_server) as caller:
            return caller.call(asked or self._asked)

    def _broker_listens(self) -> bool:
        socket.create_connection((HOST, self.broker_port), 1).close()
        return True

    def _counts(self) -> bool:
        """Whether it knows its own numbers: in its first second it stumbles when it is asked."""
        with plain.Caller(self.broker) as caller:
            answer = caller.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        return "NoSuchElement" not in (answer.remark or "")

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for server in self._servers:
                server.check()
            try:
                if condition():
                    return
            except (OSError, GantryError):
                pass  # not listening yet, or closed again while starting
            time.sleep(POLL_SECONDS)
        said = "\n".join(f"{s.name}:\n{s.tail()}" for s in self._servers)
        raise StartFailed(f"{what} was not there after {READY_SECONDS:.0f}s\n{said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def finish(self) -> None:
        """End the broker in good order, so that its store is whole."""
        self._servers[-1].finish()

    def crash(self) -> None:
        """End the broker at once."""
        self._servers[-1].stop()

    def restart(self) -> None:
        """Start the broker that was ended, on the same port and files."""
        self._servers.pop()
        self._start_broker()

    def close(self) -> None:
        """End both servers and remove their files, unless `keep` says that somebody wants them."""
        for server in reversed(self._servers):
            server.stop()
        self._servers.clear()
        if not self.keep:
            shutil.rmtree(self.home, ignore_errors=True)


class NameServer:
    """A name server alone."""

    def __init__(self, version: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix=f"gantry-rocketmq-{version}-names-"))
        (self.home / "conf").mkdir()
        (self.home / "tmp").mkdir()
        (self.home / "conf" / "logback_namesrv.xml").write_text(_LOGGING)
        port = free_port()
        self.address = f"{HOST}:{port}"
        conf = self.home / "conf" / "namesrv.conf"
        _write(conf, {"listenPort": port})
        main, jvm = "org.apache.rocketmq.namesrv.NamesrvStartup", (*NAME_SERVER_HEAP, *QUICK)
        self._server = Server(version, main, self.home, arguments=["-c", str(conf)], jvm=jvm)
        deadline = time.monotonic() + READY_SECONDS
        while not self._listens():
            self._server.check()
            if time.monotonic() > deadline:
                raise StartFailed(f"no name server after {READY_SECONDS:.0f}s")
            time.sleep(POLL_SECONDS)

    def _listens(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End it and remove its files."""
        self._server.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def free_port(*, around: tuple[int, ...] = (0,)) -> int:
    """A port that is free now, together with those at the given distances from it."""
    for _ in range(200):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if all(_is_free(port + distance) for distance in around):
            return port
    raise OSError(f"no free ports {around} around each other on {HOST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _write(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
