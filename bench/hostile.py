"""A live `gantry up` under 200,000 hostile frames, while RocketMQ's own clients work with it.

Damaged frames, lengths that lie, wrong headers, missing fields, absurd numbers, unknown topics,
forged queues and places, bodies too large, bad properties, numbers used twice, half frames, sudden
ends, bombs: over many connections at a time, at the broker, its VIP port and the name server. After
every few frames a connection asks something sound: that is answered, or the connection was ended.
Meanwhile a Java producer sends and a Java consumer consumes, and neither may notice: every send is
a success, every message comes once. In the end the process is the same one, its memory is where
it was after the first quarter, its counters have moved, its log has no exception, it stops in good
order, and what was sent is still there after a restart.

    ./dev bench hostile [--frames N] [--connections N] [--seed N] [--without-java]
"""

# needs: server, test

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
for _place in (_HERE, _HERE.parent, _HERE.parent / "tests" / "interop"):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

import _hostile_frames as kinds  # noqa: E402
import fuzz  # noqa: E402
import jars  # noqa: E402
from gantry import Gantry  # noqa: E402
from peer import JavaPeer  # noqa: E402

from gantrymq.errors import RemoteProtocolError  # noqa: E402
from gantrymq.net.addresses import split_address  # noqa: E402
from gantrymq.net.blocking import BlockingPeer  # noqa: E402
from gantrymq.protocol.statistics import GetTopicStats  # noqa: E402
from gantrymq.wire.command import Command, HeaderType  # noqa: E402
from gantrymq.wire.connection import Connection  # noqa: E402

PATIENCE: Final = 30.0
"""Seconds that a sound request may wait for its answer."""
GROWTH: Final = 24 * 2**20
"""Bytes of memory of its own by which the servers may grow after the first quarter."""
_PROBE: Final = 0x7000_0000
"""Where the numbers of sound requests begin."""
_LOG_LINE: Final = re.compile(
    r"^Traceback|handler of \w+ from .* failed| chore failed", re.MULTILINE
)


class Noticed(Exception):
    """Somebody noticed something."""


# --- the attack -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    frames: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    connections: int = 0
    ended_by_peer: int = 0
    slowest: float = 0.0
    """Seconds that a sound request waited for its answer."""

    def __str__(self) -> str:
        kinds_of_frames = ", ".join(f"{name} {count:,}" for name, count in self.kinds.items())
        codes = ", ".join(f"{code}: {count:,}" for code, count in self.answers.most_common(12))
        return (
            f"{self.frames:,} frames over {self.connections:,} connections,"
            f" {self.ended_by_peer:,} of them ended by the servers\nkinds: {kinds_of_frames}\n"
            f"answers by code: {codes}\nthe slowest sound request waited"
            f" {self.slowest * 1000:.0f} ms"
        )


class Attack:
    """Sends so many frames over so many connections at a time."""

    def __init__(
        self, targets: list[str], frames: kinds.Frames, random: Random, *, count: int
    ) -> None:
        self.outcome = Outcome()
        self._targets = targets
        self._frames = frames
        self._random = random
        self.count = count

    @property
    def done(self) -> bool:
        """Whether all frames are out."""
        return self.outcome.frames >= self.count

    async def run(self, connections: int) -> None:
        """Return when all frames are out."""
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(self._keep_going())

    async def _keep_going(self) -> None:
        while not self.done:
            host, port = split_address(self._random.choice(self._targets))
            reader, writer = await asyncio.open_connection(host, port)
            self.outcome.connections += 1
            wire = _Wire(reader, writer, self.outcome)
            try:
                await self._session(wire)
            except (ConnectionError, TimeoutError):
                pass
            finally:
                await wire.close()

    async def _session(self, wire: _Wire) -> None:
        for _ in range(self._random.randint(1, 6)):
            for _ in range(self._random.randint(1, 12)):
                kind, shot = self._frames.next()
                self.outcome.kinds[kind] += 1
                self.outcome.frames += shot.frames
                await wire.write(shot)
                if not shot.whole:
                    await self._end(wire)
                    return
            if self._random.random() < 0.1:  # a sudden end with answers under way
                wire.abort()
                return
            if not await wire.is_heard():
                return

    async def _end(self, wire: _Wire) -> None:
        """What somebody does who broke off in the middle of a frame."""
        how = self._random.random()
        if how < 0.4:
            wire.abort()
        elif how < 0.8:
            await wire.finish()


class _Wire:
    """One connection: counts what is answered, and asks sound questions in between."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outcome: Outcome
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._outcome = outcome
        self._connection = Connection()
        self._number = _PROBE
        self._heard = asyncio.Event()
        self._ended = False
        self._reading = asyncio.create_task(self._read())

    async def write(self, shot: kinds.Shot) -> None:
        """Send it, however slowly the peer reads."""
        self._writer.write(shot.data)
        async with asyncio.timeout(PATIENCE):
            await self._writer.drain()

    async def is_heard(self) -> bool:
        """Whether a sound question is answered; if not, the peer has ended the connection."""
        self._number += 1
        self._heard.clear()
        if self._ended:
            return False
        asked = time.monotonic()
        probe = Command(-1, opaque=self._number, flag=0)
        self._writer.write(fuzz.frame(probe, HeaderType.JSON))
        await self._wait("a sound request was not answered")
        self._outcome.slowest = max(self._outcome.slowest, time.monotonic() - asked)
        return not self._ended

    async def finish(self) -> None:
        """Say that nothing more comes, and wait until the peer ends the connection, too."""
        with suppress(OSError):
            self._writer.write_eof()
        while not self._ended:
            self._heard.clear()
            await self._wait("half a connection was not ended")

    def abort(self) -> None:
        """End it at once, whatever is under way."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End it."""
        self._writer.close()
        self._reading.cancel()
        with suppress(OSError, asyncio.CancelledError):
            await self._reading
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _wait(self, problem: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._heard.wait()
        except TimeoutError:
            raise Noticed(f"{problem} in {PATIENCE:.0f} s") from None

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 18):
                for command in self._connection.feed(data):
                    self._outcome.answers[command.code] += 1
                    if command.opaque == self._number:
                        self._heard.set()
        except RemoteProtocolError as error:
            raise Noticed(f"an answer is no frame: {error}") from error
        except ConnectionError:
            pass
        self._outcome.ended_by_peer += 1
        self._ended = True
        self._heard.set()


# --- those who work meanwhile ---------------------------------------------------------------------


class Workers:
    """A Java producer and a Java consumer, each in a JVM of its own."""

    TOPIC = "work"

    def __init__(self, name_server: str) -> None:
        self.sent = 0
        self.slowest = 0.0
        """Seconds that 20 sends took one after the other."""
        self._at = {"name_server": name_server}
        self._left: Counter[bytes] = Counter()
        self._stop = threading.Event()
        self._problems: list[str] = []

    def __str__(self) -> str:
        return (
            f"Java sent and took {self.sent:,} messages, 20 in a row in"
            f" {self.slowest * 1000:.0f} ms at most"
        )

    @contextmanager
    def working(self) -> Iterator[None]:
        """They work for the length of the block; `Noticed` where something was not as always."""
        with JavaPeer(jars.CURRENT) as producer, JavaPeer(jars.CURRENT) as consumer:
            self._send(producer, 0)  # so that the topic is there
            consumer.ask(
                "consumer.start",
                [
                    {"kind": "push", "name": "w", "group": "GID_work"}
                    | self._about
                    | {"expression": "*"}
                ],
            )
            self._take(consumer, 60)
            thread = threading.Thread(target=self._work, args=(producer, consumer))
            thread.start()
            try:
                yield
            finally:
                self._stop.set()
                thread.join()
                consumer.ask("consumer.stop", [{"name": "w"}])
        if self._problems:
            raise Noticed("; ".join(self._problems))

    @property
    def _about(self) -> dict[str, str]:
        return {"topic": self.TOPIC} | self._at

    def _work(self, producer: JavaPeer, consumer: JavaPeer) -> None:
        try:
            while not self._stop.is_set():
                self._send(producer, self.sent)
                self._take(consumer, 30)
        except Exception as error:  # told by whoever waits for this thread
            self._problems.append(f"{type(error).__name__}: {error}")

    def _send(self, producer: JavaPeer, first: int) -> None:
        bodies = [b"%d" % number for number in range(first, first + 20)]
        messages = [{"body": body, "tag": "A", "keys": "k"} for body in bodies]
        began = time.monotonic()
        (results,) = producer.ask(
            "traffic.send", [{"how": "sync", "messages": messages} | self._about]
        )
        self.slowest = max(self.slowest, time.monotonic() - began)
        statuses = {one["status"] for one in results}
        if statuses != {"SEND_OK"}:
            raise Noticed(f"the producer got {statuses}")
        self.sent += len(bodies)
        self._left.update(bodies)

    def _take(self, consumer: JavaPeer, seconds: float) -> None:
        asked = {"name": "w", "count": self._left.total(), "wait_ms": int(seconds * 1000)}
        (taken,) = consumer.ask("consumer.take", [asked])
        self._left.subtract(bytes(one["body"]) for one in taken)
        if wrong := {body: count for body, count in self._left.items() if count}:
            raise Noticed(f"the consumer lacks, or has twice (below 0): {wrong}")
        self._left.clear()


# --- looking at the servers -----------------------------------------------------------------------


def own_memory(pid: int) -> int:
    """Bytes of memory that a process has for itself: files that it maps are not among them."""
    return _status(pid, "RssAnon")


def _status(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def counters(url: str) -> Counter[str]:
    """What was refused, ended and made, each kind summed up."""
    with urllib.request.urlopen(url, timeout=30) as page:
        text = page.read().decode()
    found: Counter[str] = Counter()
    for name, labels, value in re.findall(r"^(\w+)(\{.*\})? (\S+)$", text, re.MULTILINE):
        if name in _COUNTED:
            reason = "".join(re.findall(r'reason="(\w+)"', labels))
            found[f"{name} {reason}".strip()] += int(float(value))
    return found


_COUNTED: Final = (
    "gantry_connections",
    "gantry_connections_ended_total",
    "gantry_connections_refused_total",
    "gantry_requests_refused_total",
    "rocketmq_topic_number",
    "rocketmq_consumer_group_number",
)


class Memory:
    """How much the process had after the first quarter, and at the end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.start = own_memory(pid)
        self.quarter = self.most = self.start
        self._past_quarter = False

    async def watch(self, attack: Attack) -> None:
        """Look at it until somebody cancels this."""
        while True:
            now = own_memory(self.pid)
            self.most = max(self.most, now)
            if not self._past_quarter:
                self.quarter, self._past_quarter = now, attack.outcome.frames >= attack.count // 4
            if sys.stderr.isatty():
                print(f"\r{attack.outcome.frames:,} {_mib(now)}", end="", file=sys.stderr)
            await asyncio.sleep(0.25)

    def __str__(self) -> str:
        return (
            f"memory of its own: {_mib(self.start)} at first, {_mib(self.quarter)} after a"
            f" quarter, {_mib(self.most)} at most, {_mib(own_memory(self.pid))} at the end; with"
            f" mapped files {_mib(_status(self.pid, 'VmRSS'))}"
        )


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


# --- the run --------------------------------------------------------------------------------------


async def fire(attack: Attack, memory: Memory, connections: int) -> None:
    """The attack, looked at from outside."""
    watch = asyncio.create_task(memory.watch(attack))
    try:
        await attack.run(connections)
    finally:
        watch.cancel()


def run(gantry: Gantry, options: argparse.Namespace) -> None:
    """All of it; `Noticed` where anybody noticed."""
    random = Random(options.seed)
    page, memory = str(gantry.facts["metrics"]), Memory(int(gantry.facts["pid"]))
    host, port = split_address(gantry.broker)
    targets = [gantry.broker] * 6 + [gantry.name_server] * 3 + [f"{host}:{port - 2}"]
    attack = Attack(targets, kinds.Frames(random), random, count=options.frames)
    workers, before, began = Workers(gantry.name_server), counters(page), time.monotonic()
    with nullcontext() if options.without_java else workers.working():
        asyncio.run(fire(attack, memory, options.connections))
    print(f"{attack.outcome}; {time.monotonic() - began:.0f} s")
    after = counters(page)
    print("\n".join(f"  {name}: {before[name]:,} -> {after[name]:,}" for name in sorted(after)))
    print(memory)
    print(f"{workers}\n")
    check_servers(gantry, memory, grown={name: after[name] - before[name] for name in after})
    if not options.without_java:
        check_store(gantry, workers)


def check_servers(gantry: Gantry, memory: Memory, grown: dict[str, int]) -> None:
    """The process is the same one, has not grown, and has counted what happened."""
    if said := _LOG_LINE.search(text := gantry.log.read_text(errors="replace")):
        raise Noticed(f"the log has: {text[said.start() :][:2000]}")
    more = own_memory(memory.pid) - memory.quarter
    if more > GROWTH:
        raise Noticed(f"memory grew by {_mib(more)} after the first quarter")
    for name in ("gantry_connections_ended_total bad_frame", "gantry_requests_refused_total"):
        if grown[name] <= 0:
            raise Noticed(f"{name} did not move")
    if grown["gantry_connections"] > 0:
        raise Noticed(f"{grown['gantry_connections']} connections are open that were ended")


def check_store(gantry: Gantry, workers: Workers) -> None:
    """What was sent is still there after a restart."""
    gantry.stop()
    gantry.start()
    with BlockingPeer.connect(gantry.broker) as peer:
        queues = peer.call(GetTopicStats(topic=workers.TOPIC), timeout=10).queues
    there = sum(bounds.max_offset for bounds in queues.values())
    if there != workers.sent:
        raise Noticed(f"{workers.sent} messages were sent, {there} are there")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    parser.add_argument("--without-java", action="store_true", help="nobody works meanwhile")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with Gantry() as gantry:
        try:
            run(gantry, options)
        except BaseException as error:
            gantry.keep = True
            print(f"its log and files are kept in {gantry.home}")
            if isinstance(error, Noticed):
                sys.exit(f"noticed: {error}")
            raise
    print("nobody noticed anything")


if __name__ == "__main__":
    main()
