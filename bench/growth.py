"""What a message costs a broker as queues, connections and groups grow in number.

For each size there is a `gantry up` of its own; they are measured in turns, and who is not measured
is stopped. A cost is what the server's process used of the processor while it did the work, chores
of its own included, so it holds on a busy machine; the number of a size is the median of its
rounds. The work is the same for all sizes of a row:

| row | grows | the work |
|---|---|---|
| queues, send | queues | 1 KiB to one queue after the other, 32 under way on one connection |
| queues, wait | queues | to one queue after the other, where somebody waits for the next message |
| queues, old | queues | 32 old messages of one queue after the other |
| connections, send | connections | 1 KiB; each sends one and waits, 32 of them at a time |
| connections, idle | connections | one connection sends, 32 under way; the others are quiet |
| groups, read | groups | each group reads 32 messages of one queue after the other |
| groups, wait | groups | each group waits for the next message of one queue; all of them get it |
| groups, send | groups | 1 KiB to a topic that so many groups have subscribed to |

A queue's old messages lie apart in the log when others' lie between them, so `queues, old` is told
and not held against `MOST`; all else is. Sending to many queues goes on for longer, because of what
a checkpoint costs that brings them all to the disk: there is one every ten seconds.

    ./dev bench growth [--rows queues,connections,groups] [--rounds N] [--messages N]

What was measured is kept as JSON, a file for each run, in results/growth.
"""

# needs: server

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import _broker_servers as servers
from _broker_servers import GANTRY, Side
from _driving import keep
from gantry import Gantry

from gantrymq.net.addresses import split_address
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.base import Request
from gantrymq.protocol.groups import ConsumerData, Heartbeat, Subscription
from gantrymq.protocol.offsets import GetMaxOffset
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.topics import PutTopic
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.connection import Connection

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "growth"
SIZES: Final = {
    "queues": (1, 100, 10_000),
    "connections": (1, 100, 2_000),
    "groups": (1, 100, 1_000),
}
MOST: Final = 1.3
"""So many times what the smallest size costs is what any may cost."""
_TOLD_ONLY: Final = ("queues, old",)
WINDOW: Final = 32
BODY: Final = bytes(range(256)) * 4
PATIENCE: Final = 60.0
_QUEUES_OF_TOPIC: Final = 8
_PERMISSION: Final = 6
SUBSCRIBED: Final = int(PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
_WAITS: Final = int(PullFlag.SUSPEND)
_PROPERTIES: Final = "UNIQ_KEY\x010A01020312347B2A9C0E0001E2400007\x02WAIT\x01true\x02TAGS\x01a\x02"


class Wire:
    """A connection that counts answers; it reads only whether they are good."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection(split_address(address), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection()
        self._ahead = 0  # answers that came with others

    def write(self, *frames: bytes) -> None:
        """Send these."""
        self._socket.sendall(b"".join(frames))

    def read(self, count: int) -> None:
        """Wait for so many answers."""
        count -= self._ahead
        while count > 0:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker ended the connection")
            for answer in self._connection.feed(data):
                if not answer.is_response:
                    continue  # news of the group
                if answer.code != 0:
                    raise ValueError(f"the broker said {answer.code}: {answer.remark}")
                count -= 1
        self._ahead = -count

    def close(self) -> None:
        """End it."""
        self._socket.close()


def frame(request: Request[Any]) -> bytes:
    """What goes over the wire for it, as Java's clients write it."""
    command: Command = request.command()
    command.opaque = 7
    return b"".join(bytes(part) for part in Connection(header_type=HeaderType.JSON).encode(command))


def send_frame(topic: str, queue_id: int) -> bytes:
    return frame(
        SendMessage(
            group="growth", topic=topic, queue_id=queue_id, body=BODY, properties=_PROPERTIES,
            born_ms=time.time_ns() // 1_000_000,
        )
    )  # fmt: skip


def pull_frame(group: str, topic: str, queue_id: int, offset: int, flags: int, most: int) -> bytes:
    return frame(
        PullMessage(
            group=group, topic=topic, queue_id=queue_id, offset=offset, flags=flags,
            max_messages=most, commit_offset=offset, wait_ms=30_000, subscription="*",
            subscription_version=1, expression_type="TAG",
        )
    )  # fmt: skip


def in_windows(wire: Wire, frames: Sequence[bytes], count: int) -> None:
    """Send `count` of the frames, from the first again after the last, so many under way."""
    for at in range(0, count, WINDOW):
        some = [frames[(at + number) % len(frames)] for number in range(min(WINDOW, count - at))]
        wire.write(*some)
        wire.read(len(some))


# --- what grows -----------------------------------------------------------------------------------

Work = Callable[[], int]
"""Does the work once; how many messages that was."""


class Subject:
    """A broker with so many of something, and the work that is to be done with it."""

    def __init__(self, size: int, messages: int) -> None:
        self.size = size
        self.messages = messages
        self.side: Side = servers.start(GANTRY, "async")
        assert isinstance(self.side.servers, Gantry)
        self.ours = self.side.servers
        self.broker = self.ours.broker
        self.wire = Wire(self.broker)
        self.wires = [self.wire]

    def make_topic(self, topic: str, queues: int) -> None:
        """Make it, or change it."""
        with BlockingPeer.connect(self.broker) as peer:
            peer.call(
                PutTopic(
                    topic=topic, default_topic="TBW102", read_queues=queues, write_queues=queues,
                    perm=_PERMISSION,
                ),
                timeout=PATIENCE,
            )  # fmt: skip

    def prepare(self) -> None:
        """Make the many."""
        raise NotImplementedError

    def works(self) -> dict[str, Work]:
        """What is measured."""
        raise NotImplementedError

    def close(self) -> None:
        """End it all."""
        for wire in self.wires:
            wire.close()
        self.ours.kill()  # stopping in good order is not what is measured here
        self.side.close()


class Queues(Subject):
    """Many queues, in topics of eight."""

    LONGER: Final = 8

    def prepare(self) -> None:
        self._places = places = list[tuple[str, int]]()
        self._ends: dict[tuple[str, int], int] = {}
        self._next = 0
        self._reader = Wire(self.broker)
        self.wires.append(self._reader)
        for first in range(0, self.size, _QUEUES_OF_TOPIC):
            topic, count = f"t{first}", min(_QUEUES_OF_TOPIC, self.size - first)
            self.make_topic(topic, count)
            places += [(topic, queue_id) for queue_id in range(count)]
        self._sends = [send_frame(*place) for place in places]
        self._pulls = [pull_frame("g", *place, 0, SUBSCRIBED, WINDOW) for place in places]
        in_windows(self.wire, self._sends, max(self.messages, WINDOW * self.size))

    def works(self) -> dict[str, Work]:
        return {"send": self._send, "wait": self._wait, "old": self._old}

    def _send(self) -> int:
        count = self.LONGER * self.messages
        in_windows(self.wire, self._sends, count)
        return count

    def _wait(self) -> int:
        with BlockingPeer.connect(self.broker) as peer:
            for place in self._places:
                if place not in self._ends:
                    self._ends[place] = self._end_of(peer, *place)
        for number in range(self.messages // 4):
            at = (self._next + number) % self.size
            topic, queue_id = place = self._places[at]
            self._reader.write(
                pull_frame("g", topic, queue_id, self._ends[place], SUBSCRIBED | _WAITS, 1)
            )
            self.wire.write(self._sends[at])
            self.wire.read(1)
            self._reader.read(1)
            self._ends[place] += 1
        self._next += self.messages // 4
        return self.messages // 4

    def _end_of(self, peer: BlockingPeer, topic: str, queue_id: int) -> int:
        return peer.call(GetMaxOffset(topic=topic, queue_id=queue_id), timeout=PATIENCE).offset

    def _old(self) -> int:
        pulls = 8 * self.messages // WINDOW
        for number in range(pulls):
            self.wire.write(self._pulls[number % len(self._pulls)])
            self.wire.read(1)
        return pulls * WINDOW


class Connections(Subject):
    """Many connections to one topic."""

    def prepare(self) -> None:
        self.make_topic("t", _QUEUES_OF_TOPIC)
        self._sends = [send_frame("t", queue_id) for queue_id in range(_QUEUES_OF_TOPIC)]
        self.wires += [Wire(self.broker) for _ in range(self.size - 1)]

    def works(self) -> dict[str, Work]:
        return {"send": self._send, "idle": self._alone}

    def _send(self) -> int:
        sent = 0
        while sent < self.messages // 2:
            for first in range(0, len(self.wires), WINDOW):
                some = self.wires[first : first + WINDOW]
                for number, wire in enumerate(some):
                    wire.write(self._sends[number % len(self._sends)])
                for wire in some:
                    wire.read(1)
                sent += len(some)
        return sent

    def _alone(self) -> int:
        in_windows(self.wire, self._sends, self.messages)
        return self.messages


class Groups(Subject):
    """Many groups of one topic, over a few connections: these have a row of their own."""

    KEPT: Final = 3200
    """Messages that all groups read."""
    MOST_CONNECTIONS: Final = 32

    def prepare(self) -> None:
        self.make_topic("t", 1)
        self.make_topic("news", 1)
        self._send_one, self._news = send_frame("t", 0), send_frame("news", 0)
        in_windows(self.wire, [self._send_one], self.KEPT)
        self._groups = [f"group-{number}" for number in range(self.size)]
        self._offset = 0
        self.wires += [Wire(self.broker) for _ in range(min(self.size, self.MOST_CONNECTIONS))]
        self._members = list(zip(self._groups, cycle(self.wires[1:]), strict=False))
        for group, wire in self._members:
            wire.write(frame(_heartbeat(group)))
            wire.read(1)

    def works(self) -> dict[str, Work]:
        return {"read": self._read, "wait": self._wait, "send": self._send}

    def _read(self) -> int:
        pulls = 8 * self.messages // WINDOW
        places = [
            (wire, pull_frame(group, "t", 0, offset, SUBSCRIBED, WINDOW))
            for number, (group, wire) in enumerate(self._members)
            for offset in [number * WINDOW % self.KEPT]
        ]
        for number in range(pulls):
            wire, pull = places[number % len(places)]
            wire.write(pull)
            wire.read(1)
        return pulls * WINDOW

    def _wait(self) -> int:
        rounds = max(1, self.messages // 4 // self.size)
        for _ in range(rounds):
            for group, wire in self._members:
                wire.write(pull_frame(group, "news", 0, self._offset, SUBSCRIBED | _WAITS, 1))
            self.wire.write(self._news)
            self.wire.read(1)
            for _, wire in self._members:
                wire.read(1)
            self._offset += 1
        return rounds * self.size

    def _send(self) -> int:
        in_windows(self.wire, [self._send_one], self.messages)
        return self.messages


def _heartbeat(group: str) -> Heartbeat:
    subscriptions = [Subscription(topic=topic, version=1) for topic in ("t", "news")]
    consumer = ConsumerData(group=group, subscriptions=subscriptions)
    return Heartbeat(client_id=f"127.0.0.1@{group}", consumers=[consumer])


KINDS: Final[dict[str, type[Subject]]] = {
    "queues": Queues,
    "connections": Connections,
    "groups": Groups,
}


# --- the run --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a size came to."""

    what: str
    size: int
    rounds: list[float]
    """Microseconds of the processor for each message."""
    memory: int

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def measure(
    kind: str, rounds: int, messages: int, *, made: type[Subject], sizes: Sequence[int]
) -> list[Cost]:
    """All rows of what grows."""
    with contextlib.ExitStack() as stack:
        subjects = [stack.enter_context(_ready(made, size, messages)) for size in sizes]
        found = []
        for name in subjects[0].works():
            taken: dict[int, list[float]] = {subject.size: [] for subject in subjects}
            for number in range(rounds + 1):
                for subject in subjects:
                    one = _once(subject, name)
                    if number:  # the first warms up
                        taken[subject.size].append(one)
            found += [
                Cost(what=f"{kind}, {name}", size=subject.size, rounds=taken[subject.size],
                     memory=_own_memory(subject.side.pids[0]))
                for subject in subjects
            ]  # fmt: skip
            print(*told(found[-len(subjects) :]), sep="\n", flush=True)
        return found


@contextlib.contextmanager
def _ready(made: type[Subject], size: int, messages: int) -> Iterator[Subject]:
    subject = made(size, messages)
    try:
        subject.prepare()
        subject.side.stop()
        yield subject
    finally:
        subject.side.go_on()
        subject.close()


def _once(subject: Subject, name: str) -> float:
    """Microseconds for each message, with the chores that had become due."""
    used = subject.side.cpu_seconds()
    with subject.side.running():
        count = subject.works()[name]()
        used = subject.side.cpu_seconds() - used
    return used / count * 1e6


def _own_memory(pid: int) -> int:
    for text in Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith("RssAnon:"):
            return int(text.split()[1]) * 1024
    return 0


def told(costs: Sequence[Cost]) -> Iterator[str]:
    """Lines of the table."""
    first = costs[0].median
    for cost in costs:
        yield (
            f"{cost.what:<20}{cost.size:>8,}{cost.median:>10.1f} µs{cost.median / first:>8.2f}"
            f"{cost.memory / 2**20:>10.0f} MiB"
        )


def too_much(costs: Sequence[Cost]) -> Iterator[str]:
    """Which sizes cost too many times what the smallest does."""
    smallest: dict[str, float] = {}
    for cost in costs:
        first = smallest.setdefault(cost.what, cost.median)
        if cost.median > MOST * first and cost.what not in _TOLD_ONLY:
            yield f"{cost.what} {cost.size:,}: {cost.median / first:.2f} times the smallest"


def allow_many_connections() -> None:
    """Have as many files open as the system allows, the servers, too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(SIZES), help=f"of {','.join(SIZES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=40_000, help="messages of a round")
    chosen = parser.parse_args()
    allow_many_connections()
    print(f"{'row':<20}{'size':>8}{'a message':>13}{'ratio':>8}{'its memory':>14}")
    costs: list[Cost] = []
    for kind in chosen.rows.split(","):
        costs += measure(kind, chosen.rounds, chosen.messages, made=KINDS[kind], sizes=SIZES[kind])
    keep(
        RESULTS,
        [
            {"what": one.what, "size": one.size, "us": one.rounds, "memory": one.memory}
            for one in costs
        ],
        messages=chosen.messages,
    )
    wrong = list(too_much(costs))
    print(*(f"more than {MOST} times: {one}" for one in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
