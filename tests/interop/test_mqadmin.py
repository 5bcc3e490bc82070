"""RocketMQ's own `mqadmin` with `gantry up`: every command that its jar has, one after the other.

`tools/mqadmin.py` has what each is to do, and makes the page of the reference: a command works and
prints the words beside it, or it is refused with a reason. What some of them change is looked at in
tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from admin import FAILED, Admin, AdminFailed
from conftest import or_skip
from gantry import Gantry
from jars import CURRENT
from peer import JavaPeer

import gantrymq as client
from gantrymq.errors import NotFound
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.groups import ConsumerData, Heartbeat, ProducerData, Subscription
from gantrymq.protocol.offsets import QueryConsumerOffset, UpdateConsumerOffset
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.wire import properties
from tools.mqadmin import COMMANDS, OLD, Command, Line

MESSAGES: Final = 20
GROUP: Final = "GID_orders"

SHOWS_EXCEPTIONS: Final = {
    *("queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset"),  # of groups they cannot ask
    "clusterRT",  # it does not end by itself, and is interrupted
}
"""Commands that do what they are for, and print exceptions as well."""
OF_REFUSALS: Final = {
    "SubCommandException",
    "MQBrokerException",
    "MQClientException",
    "RuntimeException",
    "CompletionException",
}
"""What mqadmin makes of every refusal. Anything else would be an answer that it cannot read."""
EXCEPTION: Final = re.compile(r"(\w+(?:Exception|Error))\b")


class Scene:
    """A broker with messages, and a client of both kinds."""

    def __init__(self, gantry: Gantry) -> None:
        self.gantry = gantry
        self.peer = BlockingPeer.connect(gantry.broker)
        self.beat()
        self.sent = [self.send(number) for number in range(MESSAGES)]
        url = f"rmq://{gantry.name_server}"
        self.consumer = client.Consumer(
            url,
            group="GID_seen",
            start="earliest",
            topics="traced",
            handler=lambda message: None,
            trace=True,
        )
        with client.Producer(url, group="PID_traced", trace=True) as producer:
            self.traced = producer.send("traced", b"one beer").message_id
        self.consumer.start()
        self.wait_for_traces(url)
        self.begin_again()

    def close(self) -> None:
        self.consumer.close()
        self.peer.close()

    def wait_for_traces(self, url: str) -> None:
        """Producers and consumers write them a moment after the fact."""
        deadline = time.monotonic() + 30
        with client.Admin(url) as admin:
            while True:
                with contextlib.suppress(NotFound):
                    told = admin.trace(self.traced)
                    if told.sends and told.consumed("GID_seen"):
                        return
                assert time.monotonic() < deadline, "nobody traced anything"
                time.sleep(0.1)

    def names(self, admin: Admin, out: Path) -> dict[str, object]:
        """What stands for the braces in the words of commands."""
        topics = [{"topicName": "listed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]
        (out / "topics.json").write_text(json.dumps(topics))
        groups = [{"groupName": "GID_listed", "retryMaxTimes": 3}]
        (out / "groups.json").write_text(json.dumps(groups))
        return {
            "b": self.gantry.broker,
            "n": self.gantry.name_server,
            "id": self.sent[0].message_id,
            "unique": self.sent[0].transaction_id,
            "traced": self.traced,
            "out": out,
            "log": min((self.gantry.store / "commitlog").iterdir()),
            "topic": "-t orders" if admin.version.startswith("5") else "",
        }

    def begin_again(self) -> None:
        """Have the group at the beginning but for one queue, whatever commands did to it."""
        for queue_id in range(4):
            for _ in range(2):  # the first of them takes the reset, if there is one
                self.pull(queue_id, 0)
            self.commit(queue_id, 3 if queue_id == 0 else 0)

    def beat(self) -> None:
        subscriptions = [Subscription(topic="orders", version=1)]
        self.peer.call(
            Heartbeat(
                client_id="admin-test",
                producers=[ProducerData(group="PID_orders")],
                consumers=[ConsumerData(group=GROUP, subscriptions=subscriptions)],
            ),
            timeout=10,
        )

    def commit(self, queue_id: int, offset: int) -> None:
        request = UpdateConsumerOffset(
            group=GROUP, topic="orders", queue_id=queue_id, offset=offset
        )
        self.peer.call(request, timeout=10)

    def offset(self, queue_id: int, group: str = GROUP) -> int:
        request = QueryConsumerOffset(group=group, topic="orders", queue_id=queue_id)
        return self.peer.call(request, timeout=10).offset

    def pull(self, queue_id: int, offset: int) -> None:
        request = PullMessage(
            group=GROUP,
            topic="orders",
            queue_id=queue_id,
            offset=offset,
            flags=PullFlag.SUBSCRIPTION,
            subscription="*",
        )
        self.peer.call(request, timeout=10)

    def send(self, number: int, *, topic: str = "orders") -> SendReply:
        found = {"KEYS": f"key{number}", "TAGS": "A" if number % 2 else "B"}
        request = SendMessage(
            group="PID_orders",
            topic=topic,
            queue_id=number % 4,
            born_ms=int(time.time() * 1000),
            properties=properties.join(found),
            body=b"body %d" % number,
        )
        return self.peer.call(request, timeout=10)


@pytest.fixture(scope="module")
def gantry(request: pytest.FixtureRequest) -> Iterator[Gantry]:
    with Gantry() as running:
        yield running
        running.keep = request.session.testsfailed > 0
        if running.keep:
            print(f"its log and files are kept in {running.home}")


@pytest.fixture(scope="module")
def scene(gantry: Gantry) -> Iterator[Scene]:
    found = Scene(gantry)
    yield found
    found.close()


@pytest.fixture(scope="module", params=("5.5.0", "4.9.7"))
def admin(request: pytest.FixtureRequest, gantry: Gantry) -> Iterator[Admin]:
    with or_skip(lambda: Admin(request.param, gantry.name_server)) as running:
        yield running


def test_every_command_of_the_jar_does_what_the_reference_says(
    admin: Admin, scene: Scene, tmp_path: Path
) -> None:
    """In the order of the table, because some of them need what others made."""
    there = admin.commands()
    known = {one.name: one for one in (*COMMANDS, *(OLD if admin.version.startswith("4") else ()))}
    if admin.version == CURRENT:
        assert set(there) == set(known)
    assert set(there) <= set(known)
    names = scene.names(admin, tmp_path)
    problems = []
    for command in known.values():
        for line in command.lines if command.name in there else ():
            scene.begin_again()
            words = f"{command.name} {line.words}".format(**names).split()
            if problem := what_is_wrong(command, line, admin.said(*words)):
                problems.append(f"{' '.join(words)}: {problem}")
    assert not problems, "\n\n".join(problems)
    log = scene.gantry.said()
    assert "Traceback" not in log, log


def what_is_wrong(command: Command, line: Line, said: str) -> str | None:
    """Where what a command prints is not what the table says of it."""
    missing = [word for word in line.prints if word not in said]
    if missing:
        return f"{missing} not in:\n{said}"
    if command.refused is None:
        if FAILED.search(said) and command.name not in SHOWS_EXCEPTIONS:
            return f"it failed:\n{said}"
        return None
    odd = set(EXCEPTION.findall(said)) - OF_REFUSALS
    if odd and not line.prints:
        return f"{odd} in:\n{said}"
    shown = command.code is not None and "error" not in line.prints
    if shown and f"({command.refused})" not in said:
        return f"no reason in:\n{said}"
    return None


# --- what commands change -------------------------------------------------------------------------


def test_a_group_is_moved(admin: Admin, scene: Scene) -> None:
    scene.begin_again()
    said = admin(*f"resetOffsetByTime -g {GROUP} -t orders -s 0".split())
    assert "broker-a" in said
    assert [scene.offset(queue_id) for queue_id in range(4)] == [0, 0, 0, 0]
    admin(*f"skipAccumulatedMessage -g {GROUP} -t orders".split())
    assert [scene.offset(queue_id) for queue_id in range(4)] == [5, 5, 5, 5]


def test_settings_of_a_broker_change_at_once(admin: Admin, scene: Scene) -> None:
    at = ("-b", scene.gantry.broker)
    admin("updateBrokerConfig", *at, "-k", "autoCreateSubscriptionGroup", "-v", "false")
    text = admin("getBrokerConfig", *at)
    assert re.search(r"autoCreateSubscriptionGroup\s*=\s*false", text)
    admin("updateBrokerConfig", *at, "-k", "autoCreateSubscriptionGroup", "-v", "true")
    text = admin("getBrokerConfig", *at)
    assert re.search(r"autoCreateSubscriptionGroup\s*=\s*true", text)


def test_the_counts_go_up(admin: Admin, scene: Scene) -> None:
    def total() -> int:
        text = admin("brokerStatus", "-b", scene.gantry.broker)
        found = re.search(r"msgPutTotalTodayNow\s*: (\d+)", text)
        assert found is not None
        return int(found[1])

    before = total()
    for number in range(7):
        scene.send(number, topic="counted")
    assert total() == before + 7


def whatever_it_says(admin: Admin, *words: str) -> str:
    """What a command prints in which "exception" is a word like any other."""
    try:
        return admin(*words)
    except AdminFailed as said:
        return str(said)


# --- what clients are asked -----------------------------------------------------------------------


def test_a_consumer_says_what_it_does_and_consumes_what_it_is_given(
    admin: Admin, scene: Scene, peers: Callable[[str], JavaPeer]
) -> None:
    java, name = peers(admin.version), f"asked_{admin.version.replace('.', '_')}"
    place = {"name_server": scene.gantry.name_server}
    consumer = {"kind": "push", "name": name, "group": f"g_{name}", "topic": "orders"}
    java.ask("consumer.start", [consumer | {"expression": "*"} | place])
    try:
        (taken,) = java.ask("consumer.take", [{"name": name, "count": 20, "wait_ms": 45_000}])
        assert len(taken) == 20
        connections = admin("consumerConnection", "-g", f"g_{name}")
        (client_id,) = re.findall(r"^(\S+@\S+)\s", connections, re.MULTILINE)
        said = whatever_it_says(admin, "consumerStatus", "-g", f"g_{name}", "-i", client_id)
        assert "CONSUME_PASSIVELY" in said
        assert "#Consumer MQ Detail#" in said
        given = scene.sent[4]
        topic = ("-t", "orders") if admin.version.startswith("5") else ()
        whom = ("-g", f"g_{name}", "-d", client_id)
        said = whatever_it_says(admin, "queryMsgById", *topic, "-i", given.message_id, *whom)
        assert "CR_SUCCESS" in said
        (again,) = java.ask("consumer.take", [{"name": name, "count": 1, "wait_ms": 10_000}])
        assert [bytes(one["body"]) for one in again] == [b"body 4"]
    finally:
        java.ask("consumer.stop", [{"name": name}])
