"""Java's consumers and ours in one group: they share its queues, and hand them over.

A group for each of Java's strategies, all of them at one broker at the same time. Each goes through
the same: one member of each kind, then two of each, then a member of each kind leaves, and then one
of each kind is killed, while messages are sent all the time. Between any two changes every queue
has the owner that the strategy gives it. At the end nothing is missing, and what came twice was in
a queue that changed hands.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from conftest import or_skip
from gantry import Gantry
from member import strategy
from peer import JavaPeer

import gantrymq as gantry
from gantrymq.model import MessageQueue

BROKER: Final = "north@a"
ROOMS: Final = ("north",)
QUEUES: Final = 8
STRATEGIES: Final = (
    "averagely", "by circle", "config", "machine room", "machine room nearby", "consistent hash",
)  # fmt: skip
CONFIGS: Final[Mapping[str, Sequence[int]]] = {
    "java-0": (0, 1), "python-1": (2, 3), "java-2": (4, 5), "python-3": (6, 7),
    "java-10": (0, 1), "python-11": (2, 3), "python-15": (4, 5), "python-13": (6, 7),
}  # fmt: skip
"""What each member has where that is told outright: the second four come for the first four."""

PATIENCE: Final = 90.0
"""A Java client may need half a minute to believe that something has changed."""
_RUNS: Final = count()


class Mortal(JavaPeer):
    """A JVM that ends when it is told, without a goodbye to anyone."""

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Group:
    """One group, and what its members got."""

    strategy: str
    name: str
    topic: str
    sent: list[str] = field(default_factory=list)
    queue_of: dict[str, int] = field(default_factory=dict)
    got: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Bodies in the order they came, by member."""
    owners: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Who had each queue, one after the other."""
    members: set[str] = field(default_factory=set)
    changes: int = 0
    """How many members came or went."""

    def shares(self, members: Iterable[str]) -> dict[str, list[int]]:
        """What each of these members has to have."""
        ids = sorted(f"127.0.0.1@{self.member(one)}" for one in members)
        queues = [MessageQueue(self.topic, BROKER, number) for number in range(QUEUES)]
        found: dict[str, list[int]] = {}
        for one in members:
            told = [queues[number] for number in CONFIGS.get(one, ())]
            rule = strategy(self.strategy, told, ROOMS)
            mine = rule.allocate(f"127.0.0.1@{self.member(one)}", queues, ids)
            found[one] = sorted(queue.queue_id for queue in mine)
        return found

    def member(self, one: str) -> str:
        """The instance name of a member; its last digit says which room it is in."""
        return f"{self.name}-{one}"

    def item(self, one: str) -> dict[str, Any]:
        """What a member is told."""
        return {
            "group": self.name,
            "topic": self.topic,
            "broker": BROKER,
            "name": self.member(one),
            "strategy": self.strategy,
            "queues": list(CONFIGS.get(one, ())),
            "rooms": list(ROOMS),
        }


class PythonMember:
    """The same member of all groups, in a process of its own."""

    def __init__(self, name: str, groups: Sequence[Group], name_server: str) -> None:
        self.name = name
        self._groups = {group.name: group for group in groups}
        self.queues: dict[str, list[int]] = {}
        asked = {"name_servers": name_server, "groups": [group.item(name) for group in groups]}
        here = Path(__file__).parent
        self._process = subprocess.Popen(
            [sys.executable, str(here / "member.py"), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(Path(gantry.__file__).parent.parent)},
        )
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, group, value = json.loads(line)
            if kind == "queues":
                self.queues[group] = value
            else:
                self._groups[group].got[self.name].append(value)

    def has(self, group: Group) -> list[int]:
        """The queues that are its own."""
        return self.queues.get(group.name, [])

    def take(self) -> None:
        """What it got is written down as it comes."""

    def leave(self) -> None:
        """Leave in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._end()

    def kill(self) -> None:
        """End at once."""
        self._process.kill()
        self._process.wait(60)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._thread.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


class JavaMember:
    """The same member of all groups, in a JVM."""

    def __init__(
        self, name: str, groups: Sequence[Group], name_server: str, peer: Mortal, logs: Path
    ) -> None:
        self.name = name
        self._groups = groups
        self._peer = peer
        self._logs = {group.name: logs / group.member(name) for group in groups}
        common = {"kind": "push", "expression": "*", "name_server": name_server}
        items = [
            group.item(name) | common | {"log": str(self._logs[group.name])} for group in groups
        ]
        peer.ask("consumer.start", items)

    def has(self, group: Group) -> list[int]:
        """The queues that are its own."""
        item = {"name": group.member(self.name), "topic": group.topic}
        (found,) = self._peer.ask("consumer.queues", [item])
        return sorted(found)

    def take(self) -> None:
        """Look up what it got: every life of it wrote to the same files."""
        for group in self._groups:
            group.got[self.name] = self._logs[group.name].read_text().split()

    def leave(self) -> None:
        """Leave in good order."""
        self._peer.ask("consumer.stop", [{"name": g.member(self.name)} for g in self._groups])
        self.take()

    def kill(self) -> None:
        """End the JVM at once."""
        self._peer.kill()
        self.take()


class Sending:
    """Sends to all groups' topics, over all queues in turn, until it is told to stop."""

    def __init__(self, groups: Sequence[Group], name_server: str) -> None:
        self._groups = groups
        self._name_server = name_server
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sending")
        self._thread.start()

    def _run(self) -> None:
        try:
            with gantry.Producer(name_servers=self._name_server, send_timeout=20.0) as producer:
                for number in count():
                    for group in self._groups:
                        queue = MessageQueue(group.topic, BROKER, number % QUEUES)
                        body = str(number)
                        group.queue_of[body] = queue.queue_id
                        producer.send(group.topic, body.encode(), queue=queue)
                        group.sent.append(body)
                    if self._over.wait(0.05):
                        return
        except BaseException as failure:
            self._failure = failure

    def stop(self) -> None:
        """Stop, and see that every message was stored."""
        self._over.set()
        self._thread.join(60)
        assert self._failure is None, self._failure


Members = dict[str, PythonMember | JavaMember]


def settle(groups: Sequence[Group], members: Members) -> None:
    """Wait until every queue of every group has the owner that its strategy gives it."""
    expected = {group.name: group.shares(members) for group in groups}
    for group in groups:
        flat = [number for share in expected[group.name].values() for number in share]
        whole = len(members) == 4 or group.strategy != "config"
        assert sorted(flat) == list(range(QUEUES)) if whole else len(flat) == len(set(flat))
    deadline = time.monotonic() + PATIENCE
    while wrong := {
        group.strategy: found
        for group in groups
        if (found := {one: each.has(group) for one, each in members.items()})
        != expected[group.name]
    }:
        wanted = {group.strategy: expected[group.name] for group in groups}
        text = "; ".join(f"{name}: {found}, not {wanted[name]}" for name, found in wrong.items())
        assert time.monotonic() < deadline, f"after {PATIENCE:.0f}s: {text}"
        time.sleep(0.1)
    for group in groups:
        group.changes += len(group.members ^ members.keys())
        group.members = {*members}
        for one, share in expected[group.name].items():
            for number in share:
                if group.owners[number][-1:] != [one]:
                    group.owners[number].append(one)


@pytest.fixture(scope="module")
def gantry_up() -> Iterator[Gantry]:
    with Gantry(options=("--broker-name", BROKER)) as running:
        yield running


def test_java_and_python_share_queues_and_hand_them_over(
    version: str, gantry_up: Gantry, tmp_path: Path
) -> None:
    run = next(_RUNS)
    groups = [
        Group(strategy=name, name=f"mixed-{run}-{n}", topic=f"mixed-topic-{run}-{n}")
        for n, name in enumerate(STRATEGIES)
    ]
    at = gantry_up.name_server
    with gantry.Admin(name_servers=at, timeout=20) as admin:
        for group in groups:
            admin.create_topic(group.topic, queues=QUEUES)
    lasting, mortal = (or_skip(lambda: Mortal(version)) for _ in range(2))
    members: Members = {}
    sending = Sending(groups, at)
    try:
        members["java-0"] = JavaMember("java-0", groups, at, lasting, tmp_path)
        members["python-1"] = PythonMember("python-1", groups, at)
        settle(groups, members)
        members["java-2"] = JavaMember("java-2", groups, at, mortal, tmp_path)
        members["python-3"] = PythonMember("python-3", groups, at)
        settle(groups, members)
        members.pop("python-1").leave()
        settle(groups, members)
        members.pop("java-0").leave()
        settle(groups, members)
        members.pop("java-2").kill()
        settle(groups, members)
        members["java-10"] = JavaMember("java-10", groups, at, lasting, tmp_path)
        settle(groups, members)
        members.pop("python-3").kill()
        settle(groups, members)
        for name in ("python-11", "python-13", "python-15"):
            members[name] = PythonMember(name, groups, at)
        settle(groups, members)
        sending.stop()
        until_all_came(groups, members)
    finally:
        sending.stop()
        for one in members.values():
            one.leave()
        lasting.close()
        mortal.close()
    for group in groups:
        check_repeats(group)


def until_all_came(groups: Sequence[Group], members: Members) -> None:
    """Wait until every message has come to somebody."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for one in members.values():
            one.take()
        missing = {
            group.strategy: sorted(gone, key=int)
            for group in groups
            if (gone := {*group.sent} - {body for found in group.got.values() for body in found})
        }
        if not missing:
            return
        assert time.monotonic() < deadline, f"missing after {PATIENCE:.0f}s: {missing}"
        time.sleep(0.1)


def check_repeats(group: Group) -> None:
    """What came more than once was in a queue that changed hands, once more for each change.

    Where several join together, a queue passes through the hands of more than those who have it in
    the end.
    """
    who = defaultdict(list)
    for one, bodies in group.got.items():
        for body in bodies:
            who[body].append(one)
    for body, takers in who.items():
        owners = group.owners[group.queue_of[body]]
        most = 1 + group.changes if len({*owners}) > 1 else 1
        assert len(takers) <= most, f"{group.strategy}: {body} came to {takers}, of {owners}"
