"""RocketMQ's own `mqadmin` with `gantry up`: the ordinary commands do what they say.

`COMMANDS` is the list; each runs without an error, and what it prints has the words beside it. What
some of them change is looked at in tests of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from admin import Admin, AdminFailed
from conftest import or_skip
from gantry import Gantry
from peer import JavaPeer

from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.groups import ConsumerData, Heartbeat, ProducerData, Subscription
from gantrymq.protocol.offsets import QueryConsumerOffset, UpdateConsumerOffset
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.wire import properties

MESSAGES: Final = 20
GROUP: Final = "GID_orders"

# {b} is the broker's address, {n} the name server's, {id} and {unique} the first message's ids,
# {out} a directory, {topic} an option that 4.9.7 does not have.
COMMANDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # the cluster and its broker
    ("clusterList", ("broker-a", "V5_5_0", "DefaultCluster")),
    ("clusterList -m", ("broker-a",)),
    ("brokerStatus -b {b}", ("bootTimestamp", "msgPutTotalTodayNow", "commitLogDirCapacity")),
    ("brokerStatus -c DefaultCluster", ("putTps", "scheduleMessageOffset_18")),
    ("getBrokerConfig -b {b}", ("brokerName", "flushDiskType", "brokerRole")),
    ("getBrokerConfig -c DefaultCluster", ("brokerPermission",)),
    ("updateBrokerConfig -b {b} -k maxMessageSize -v 4194304", ("update broker config success",)),
    ("getNamesrvConfig -n {n}", ("kvConfigPath",)),
    ("sendMsgStatus -b broker-a -c 3 -s 100", ("SEND_OK",)),
    ("cleanExpiredCQ -b {b}", ("success",)),
    ("cleanUnusedTopic -b {b}", ("success",)),
    ("deleteExpiredCommitLog -b {b}", ("success",)),
    ("exportConfigs -c DefaultCluster -f {out}", ("success",)),
    ("exportMetadata -c DefaultCluster -f {out}", ("success",)),
    ("exportMetrics -c DefaultCluster -f {out}", ("success",)),
    # topics
    ("topicList", ("orders", "%RETRY%GID_orders", "TBW102")),
    ("topicList -c", ("orders", GROUP)),
    ("topicStatus -t orders", ("broker-a", "Min Offset")),
    ("topicRoute -t orders", ('"brokerName":"broker-a"', '"readQueueNums":4')),
    ("topicClusterList -t orders", ("DefaultCluster",)),
    ("updateTopic -b {b} -t made -r 4 -w 4", ("create topic to",)),
    ("updateTopicPerm -b {b} -t made -p 4", ("update topic perm",)),
    ("updateOrderConf -t made -v broker-a:4 -m put", ("update orderConf success",)),
    ("updateOrderConf -t made -m get", ("broker-a:4",)),
    ("updateOrderConf -t made -m delete", ("delete orderConf success",)),
    ("allocateMQ -t orders -i ipA,ipB", ("ipA", "ipB")),
    ("deleteTopic -c DefaultCluster -t made", ("delete topic [made] from cluster",)),
    # groups
    ("updateSubGroup -b {b} -g GID_made -r 5", ("create subscription group to",)),
    ("getConsumerConfig -g GID_made", ("retryMaxTimes", "5")),
    ("consumerProgress", (GROUP,)),
    ("consumerProgress -g GID_orders", ("orders", "broker-a", "Diff Total: 17")),
    ("consumerConnection -g GID_orders", ("admin-test", "CONSUME_PASSIVELY", "CLUSTERING")),
    ("producerConnection -g PID_orders -t orders", ("admin-test",)),
    ("producer -b {b}", ("PID_orders",)),
    ("brokerConsumeStats -b {b}", ("GID_orders", "Diff Total: ")),
    ("statsAll -t orders", ("orders", GROUP)),
    ("cloneGroupOffset -s GID_orders -d GID_made -t orders", ("clone group offset success",)),
    ("deleteSubGroup -b {b} -g GID_made -r true", ("delete subscription group [GID_made]",)),
    # messages
    ("sendMessage -t other -p hello -k k1 -c tagA", ("SEND_OK",)),
    ("queryMsgById -i {id} {topic}", ("key0",)),
    ("queryMsgByUniqueKey -t orders -i {unique}", ("key0", "Queue Offset:")),
    ("queryMsgByKey -t orders -k key3", ("#Message ID",)),
    ("queryMsgByOffset -t orders -b broker-a -i 0 -o 0", ("key0",)),
    ("printMsg -t orders", ("body 0", "body 19")),
    ("printMsgByQueue -t orders -a broker-a -i 0 -p true -d true", ("body 0",)),
    ("consumeMessage -t orders -b broker-a -i 0 -o 0 -c 2", ("body 0", "body 4")),
    ("queryCq -t orders -q 0 -i 0 -c 3 -b {b}", ("max: 5, min: 0", "physicSize")),
    ("checkMsgSendRT -t other -a 3 -s 100", ("true",)),
    # the name server
    ("updateKvConfig -s N -k k -v v", ("create or update kv config to namespace success",)),
    ("deleteKvConfig -s N -k k", ("delete kv config from namespace success",)),
    ("wipeWritePerm -b broker-a", ("wipe write perm of broker[broker-a]",)),
    ("addWritePerm -b broker-a", ("add write perm of broker[broker-a]",)),
)

TRACKING: Final = ("queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset")
"""Commands that say of every group how it is with the message, even if with an exception."""


class Scene:
    """A broker with messages, and a client of both kinds."""

    def __init__(self, gantry: Gantry) -> None:
        self.gantry = gantry
        self.peer = BlockingPeer.connect(gantry.broker)
        self.beat()
        self.sent = [self.send(number) for number in range(MESSAGES)]
        self.begin_again()

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
    found.peer.close()


@pytest.fixture(scope="module", params=("5.5.0", "4.9.7"))
def admin(request: pytest.FixtureRequest, gantry: Gantry) -> Iterator[Admin]:
    with or_skip(lambda: Admin(request.param, gantry.name_server)) as running:
        yield running


def test_every_command_does_what_it_says(admin: Admin, scene: Scene, tmp_path: Path) -> None:
    """In their order, because some of them need what others made."""
    first = scene.sent[0]
    names = {
        "b": scene.gantry.broker,
        "n": scene.gantry.name_server,
        "id": first.message_id,
        "unique": first.transaction_id,
        "out": tmp_path,
        "topic": "-t orders" if admin.version.startswith("5") else "",
    }
    problems = []
    for command, words in COMMANDS:
        scene.begin_again()
        line = command.format(**names).split()
        try:
            said = whatever_it_says(admin, *line) if line[0] in TRACKING else admin(*line)
        except AdminFailed as failed:
            problems.append(f"{command}: {failed}")
        else:
            missing = [word for word in words if word not in said]
            if missing:
                problems.append(f"{command}: {missing} not in:\n{said}")
    assert not problems, "\n\n".join(problems)


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
