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
from typing import Any, Final

_HERE: Final = Path(__file__).resolve().parent
for _place in (_HERE, _HERE.parent, _HERE.parent / "tests" / "interop"):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

import fuzz  # noqa: E402
from _hostile_frames import Frames, Shot  # noqa: E402

from gantrymq.errors import RemoteProtocolError  # noqa: E402
from gantrymq.net.addresses import split_address  # noqa: E402
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


class Attack:
    """Sends so many frames over so many connections at a time."""

    def __init__(self, targets: list[str], frames: Frames, random: Random, *, count: int) -> None:
        self.outcome = Outcome()
        self._targets = targets
        self._frames = frames
        self._random = random
        self._count = count

    @property
    def done(self) -> bool:
        """Whether all frames are out."""
        return self.outcome.frames >= self._count

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

    async def write(self, shot: Shot) -> None:
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

    @contextmanager
    def working(self) -> Iterator[None]:
        """They work for the length of the block; `Noticed` where something was not as always."""
        import jars
        from peer import JavaPeer

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

    def _work(self, producer: Any, consumer: Any) -> None:
        try:
            while not self._stop.is_set():
                self._send(producer, self.sent)
                self._take(consumer, 30)
        except Exception as error:  # told by whoever waits for this thread
            self._problems.append(f"{type(error).__name__}: {error}")

    def _send(self, producer: Any, first: int) -> None:
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

    def _take(self, consumer: Any, seconds: float) -> None:
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


def metrics(url: str) -> Counter[str]:
    """The counters whose name says that something was refused or ended, each summed up."""
    with urllib.request.urlopen(url, timeout=30) as page:
        text = page.read().decode()
    found: Counter[str] = Counter()
    for name, labels, value in re.findall(r"^(\w+)(\{.*\})? (\S+)$", text, re.MULTILINE):
        if name == "gantry_connections_ended_total":
            name += str(re.findall(r'reason="\w+"', labels))
        found[name] += float(value)  # type: ignore[assignment]
    return found


class Memory:
    """How much the process had after the first quarter, and at the end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.start = own_memory(pid)
        self.quarter = 0
        self.most = 0

    async def watch(self, attack: Attack, count: int) -> None:
        """Look at it until the attack is over."""
        while not attack.done:
            now = own_memory(self.pid)
            self.most = max(self.most, now)
            if not self.quarter and attack.outcome.frames >= count // 4:
                self.quarter = now
            if sys.stderr.isatty():
                print(f"\r{attack.outcome.frames:,} {_mib(now)}", end="", file=sys.stderr)
            await asyncio.sleep(0.25)


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


# --- the run --------------------------------------------------------------------------------------


async def fire(attack: Attack, memory: Memory, options: argparse.Namespace) -> None:
    """The attack, looked at from outside."""
    watch = asyncio.create_task(memory.watch(attack, options.frames))
    try:
        await attack.run(options.connections)
    finally:
        watch.cancel()


def report(attack: Attack, memory: Memory, before: Counter[str], after: Counter[str]) -> None:
    outcome = attack.outcome
    print(
        f"{outcome.frames:,} frames over {outcome.connections:,} connections,"
        f" {outcome.ended_by_peer:,} of them ended by the servers; the slowest sound request"
        f" waited {outcome.slowest * 1000:.0f} ms"
    )
    print("kinds: " + ", ".join(f"{name} {count:,}" for name, count in outcome.kinds.items()))
    codes = ", ".join(f"{code}: {count:,}" for code, count in outcome.answers.most_common(12))
    print(f"answers by code: {codes}")
    for name in sorted(after):
        if (
            "ended" in name
            or "refused" in name
            or name
            in ("gantry_connections", "rocketmq_topic_number", "rocketmq_consumer_group_number")
        ):
            print(f"  {name} {before[name]:,.0f} -> {after[name]:,.0f}")
    print(
        f"memory of its own: {_mib(memory.start)} at first, {_mib(memory.quarter)} after a quarter,"
        f" {_mib(memory.most)} at most, {_mib(own_memory(memory.pid))} at the end"
        f" (with mapped files {_mib(_status(memory.pid, 'VmRSS'))})"
    )


def main() -> None:
    from gantry import Gantry

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    parser.add_argument("--without-java", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    random = Random(options.seed)
    frames = Frames(random)
    with Gantry() as gantry:
        gantry.keep = True
        pid, page = int(gantry.facts["pid"]), str(gantry.facts["metrics"])
        host, port = split_address(gantry.broker)
        targets = [gantry.broker] * 6 + [gantry.name_server] * 3 + [f"{host}:{port - 2}"]
        attack = Attack(targets, frames, random, count=options.frames)
        memory, before, workers = Memory(pid), metrics(page), Workers(gantry.name_server)
        began = time.monotonic()
        with nullcontext() if options.without_java else workers.working():
            asyncio.run(fire(attack, memory, options))
        after = metrics(page)
        report(attack, memory, before, after)
        print(
            f"{time.monotonic() - began:.0f} s; Java sent and took {workers.sent:,} messages, 20 of"
            f" them in {workers.slowest * 1000:.0f} ms at most"
        )
        check(gantry, attack, memory, before, after)
        gantry.keep = False


def check(
    gantry: Any, attack: Attack, memory: Memory, before: Counter[str], after: Counter[str]
) -> None:
    if int(gantry.facts["pid"]) != memory.pid or not Path(f"/proc/{memory.pid}").exists():
        raise Noticed("the process is another one")
    if said := _LOG_LINE.search(text := gantry.log.read_text(errors="replace")):
        raise Noticed(f"the log in {gantry.log} has: {text[said.start() :][:2000]}")
    grown = own_memory(memory.pid) - memory.quarter
    if grown > GROWTH:
        raise Noticed(f"memory grew by {_mib(grown)} after the first quarter")
    gantry.stop()
    gantry.start()


if __name__ == "__main__":
    try:
        main()
    except Noticed as noticed:
        sys.exit(f"noticed: {noticed}")
