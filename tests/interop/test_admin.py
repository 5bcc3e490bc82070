"""`Admin` does the same on our servers as on RocketMQ's, and says so where it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from apache import Cluster
from gantry import Gantry

import gantrymq as gantry
from gantrymq.errors import (
    AlreadyExists,
    GroupNotFound,
    InvalidInput,
    NotFound,
    PartlyDone,
    TopicNotFound,
)
from gantrymq.flows.resets import OffsetMove
from gantrymq.model import MessageQueue
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.base import Done, table
from gantrymq.protocol.groups import ConsumerData, Heartbeat, ProducerData, Subscription
from gantrymq.protocol.offsets import UpdateConsumerOffset
from gantrymq.protocol.resets import ResetClientOffsets
from gantrymq.protocol.running import GetRunningInfo, RunningInfo
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.wire import properties
from gantrymq.wire.message_id import offset_id

Where = Gantry | Cluster

QUEUES: Final = 4
_numbers: Final = itertools.count(1)


@pytest.fixture(scope="module")
def admin(anywhere: Where) -> Iterator[gantry.Admin]:
    with gantry.Admin(name_servers=anywhere.name_server, timeout=10) as admin:
        yield admin


@pytest.fixture
def topic(admin: gantry.Admin) -> str:
    """A topic of the test's own."""
    name = f"admin-{next(_numbers)}"
    admin.create_topic(name, queues=QUEUES)
    return name


class Member:
    """A consumer that does nothing by itself, and answers what its broker passes on."""

    def __init__(self, where: Where, group: str, topic: str, *, expression: str = "*") -> None:
        self.group, self.topic, self.expression = group, topic, expression
        self.client_id = f"member-{next(_numbers)}"
        answers = table(
            ResetClientOffsets.answered_by(Member.reset),
            GetRunningInfo.answered_by(Member.say),
        )
        self.peer = BlockingPeer.connect(where.broker, answers, self)
        self._turn = threading.Lock()  # a connection is one thread's at a time
        self.moved: dict[MessageQueue, int] = {}
        subscription = Subscription(topic=topic, expression=expression, version=1)
        consumer = ConsumerData(group=group, subscriptions=[subscription])
        self.peer.call(
            Heartbeat(
                client_id=self.client_id,
                producers=[ProducerData(group=f"PID_{group}")],
                consumers=[consumer],
            ),
            timeout=10,
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    @staticmethod
    def reset(request: ResetClientOffsets, self: Member, peer: object) -> Done:
        self.moved = request.table.offsets
        return Done()

    @staticmethod
    def say(request: GetRunningInfo, self: Member, peer: object) -> RunningInfo:
        subscription = Subscription(topic=self.topic, expression=self.expression)
        return RunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            subscriptions=[subscription],
            stacks="a stack" if request.stacks else None,
        )

    def _listen(self) -> None:
        while not self._over.wait(0.02):
            with self._turn:
                self.peer.catch_up()
                moved, self.moved = self.moved, {}
            for queue, offset in moved.items():
                self.commit(queue.queue_id, offset)

    def commit(self, queue_id: int, offset: int) -> None:
        order = UpdateConsumerOffset(
            group=self.group, topic=self.topic, queue_id=queue_id, offset=offset
        )
        with self._turn:
            self.peer.call(order, timeout=10)

    def __enter__(self) -> Member:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(10)
        self.peer.close()


def send(where: Where, topic: str, count: int, *, key: str = "key") -> list[SendReply]:
    """Messages, one after the other to each queue."""
    replies = []
    with BlockingPeer.connect(where.broker) as peer:
        for number in range(count):
            found = {"KEYS": f"{key}{number} common", "UNIQ_KEY": f"{next(_numbers):032X}"}
            request = SendMessage(
                group="PID",
                topic=topic,
                queue_id=number % QUEUES,
                born_ms=int(time.time() * 1000),
                properties=properties.join(found),
                body=b"body %d" % number,
            )
            replies.append(peer.call(request, timeout=10))
    return replies


def until(condition: object, seconds: float = 20.0) -> None:
    """Wait for something that brokers do by and by: indexes, statistics, connections."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


# --- clusters and settings ------------------------------------------------------------------------


def test_the_cluster_and_how_its_broker_is(anywhere: Where, admin: gantry.Admin) -> None:
    (state,) = admin.describe_cluster()
    assert (state.place.cluster, state.place.name, state.place.id) == (
        "DefaultCluster",
        "broker-a",
        0,
    )
    assert state.error is None
    assert state.version == ("5.5.0" if anywhere.version == "ours" else anywhere.version)
    assert state.is_active in (True, None)
    assert 0 <= (state.disk_ratio or 0) <= 1
    assert state.booted_ms is not None
    assert abs(time.time() * 1000 - state.booted_ms) < 3_600_000
    assert admin.describe_broker(anywhere.broker).place == state.place
    with pytest.raises(InvalidInput, match="no broker is called 'broker-z'"):
        admin.describe_broker("broker-z")


def test_a_setting_of_a_broker_is_changed_and_read_back(admin: gantry.Admin) -> None:
    (change,) = admin.alter_broker_config("broker-a", {"maxMessageSize": "4194300"})
    assert (change.before, change.after) == ("4194304", "4194300")
    assert admin.broker_config("broker-a")["maxMessageSize"] == "4194300"
    admin.alter_broker_config("broker-a", {"maxMessageSize": "4194304"})
    assert not admin.alter_broker_config("broker-a", {"maxMessageSize": "4194304"})
    with pytest.raises(InvalidInput, match="did you mean maxMessageSize"):
        admin.alter_broker_config("broker-a", {"maxMesageSize": "1"})


def test_settings_and_keys_of_name_servers(anywhere: Where, admin: gantry.Admin) -> None:
    configs = admin.name_server_configs()
    assert list(configs.answers) == [anywhere.name_server]
    assert "kvConfigPath" in configs.answers[anywhere.name_server]
    (change,) = admin.alter_name_server_config({"orderMessageEnable": "true"})
    assert (change.before, change.after) == ("false", "true")
    admin.alter_name_server_config({"orderMessageEnable": "false"})
    admin.put_key("space", "k", "v")
    assert admin.get_key("space", "k") == "v"
    assert admin.list_keys("space") == {"k": "v"}
    admin.delete_key("space", "k")
    assert admin.get_key("space", "k") is None
    assert admin.list_keys("nowhere") == {}


def test_a_broker_is_drained_and_filled_again(admin: gantry.Admin, topic: str) -> None:
    assert sum(admin.wipe_write_permission("broker-a").values()) > 0
    assert all(not data.perm & 2 for data in admin.topic_route(topic).queues)
    admin.add_write_permission("broker-a")
    assert all(data.perm == 6 for data in admin.topic_route(topic).queues)


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_from_its_making_to_its_end(anywhere: Where, admin: gantry.Admin) -> None:
    made = admin.create_topic("life", queues=QUEUES)
    assert {name: one.write_queues for name, one in made.items()} == {"broker-a": QUEUES}
    assert [data.write_queues for data in admin.topic_route("life").queues] == [QUEUES]
    assert "life" in admin.list_topics()
    with pytest.raises(AlreadyExists, match=r"broker-a \(4 queues, rw\)"):
        admin.create_topic("life")
    changes = admin.alter_topic("life", queues=6, permission="r")
    assert [str(change) for change in changes] == [
        "broker-a: read_queues 4 → 6",
        "broker-a: write_queues 4 → 6",
        "broker-a: permission rw → r",
    ]
    settings = admin.topic_settings("life").whole("look")["broker-a"]
    assert (settings.read_queues, settings.write_queues, settings.perm) == (6, 6, 4)
    preview = admin.preview_topic_deletion("life")
    assert (preview.messages, preview.groups, preview.is_in_use) == (0, [], False)
    assert admin.delete_topic("life") == ["broker-a"]
    assert "life" not in admin.list_topics(hidden=True)
    with pytest.raises(TopicNotFound, match="no broker of broker-a has topic life"):
        admin.topic_route("life")


def test_users_topics_are_told_from_others(admin: gantry.Admin, topic: str) -> None:
    visible, every = admin.list_topics(), admin.list_topics(hidden=True)
    assert topic in visible
    assert not {"TBW102", "DefaultCluster", "broker-a"} & set(visible)
    assert {"TBW102", "DefaultCluster", "broker-a"} <= set(every)


def test_message_types_where_there_are_any(anywhere: Where, admin: gantry.Admin) -> None:
    name = f"fifo-{next(_numbers)}"
    if anywhere.version.startswith("4"):
        with pytest.raises(InvalidInput, match=r"broker-a is RocketMQ 4\.9\.7.*need 5\.0"):
            admin.create_topic(name, message_type="FIFO")
        return
    admin.create_topic(name, message_type="FIFO")
    assert admin.describe_topic(name).message_type == "FIFO"
    admin.alter_topic(name, message_type="NORMAL")
    assert admin.describe_topic(name).message_type == "NORMAL"


def test_how_full_a_topic_is(anywhere: Where, admin: gantry.Admin, topic: str) -> None:
    assert admin.topic_status(topic).last_ms is None
    send(anywhere, topic, 10)
    until(lambda: admin.topic_status(topic).messages == 10)
    status = admin.topic_status(topic)
    assert [state.max_offset for state in status.queues] == [3, 3, 2, 2]
    assert status.last_ms is not None
    assert abs(time.time() * 1000 - status.last_ms) < 60_000
    found = admin.describe_topic(topic)
    assert (found.kind, found.groups, list(found.settings)) == ("normal", [], ["broker-a"])


# --- groups ---------------------------------------------------------------------------------------


def test_a_group_from_its_making_to_its_end(admin: gantry.Admin) -> None:
    admin.create_group("GID_life", max_retries=3, broadcast_enabled=False)
    (settings,) = admin.group_settings("GID_life").values()
    assert (settings.max_retries, settings.broadcast_enabled) == (3, False)
    assert "GID_life" in admin.list_groups().answers["broker-a"]
    with pytest.raises(AlreadyExists, match="GID_life exists at broker-a"):
        admin.create_group("GID_life")
    (change,) = admin.alter_group("GID_life", max_retries=5)
    assert (change.name, change.before, change.after) == ("max_retries", "3", "5")
    (settings,) = admin.group_settings("GID_life").values()
    assert (settings.max_retries, settings.broadcast_enabled) == (5, False)
    assert not admin.preview_group_deletion("GID_life").is_in_use
    assert admin.delete_group("GID_life") == ["broker-a"]
    with pytest.raises(GroupNotFound, match="no broker of broker-a knows group GID_life"):
        admin.group_settings("GID_life")


def test_the_lag_is_a_number_only_where_it_is_known(
    anywhere: Where, admin: gantry.Admin, topic: str
) -> None:
    group = f"GID_lag_{topic}"
    with Member(anywhere, group, topic) as member:
        assert admin.group_lag(group).why == "its members have not committed an offset yet"
        send(anywhere, topic, 8)
        until(lambda: admin.topic_status(topic).messages == 8)
        member.commit(0, 2)
        member.commit(1, 1)
        member.commit(2, 0)
        until(lambda: len(admin.group_lag(group, topic=topic).queues) == QUEUES)
        lag = admin.group_lag(group, topic=topic)
        assert [one.messages for one in lag.queues] == [0, 1, 2, None]
        assert [one.offset for one in lag.queues] == [2, 1, 0, None]
        assert lag.queues[0].seconds == 0
        assert 0 <= (lag.queues[1].seconds or 0) < 60
        assert lag.queues[1].seconds is not None
        assert lag.queues[3].seconds is None
        assert (lag.messages, lag.known_messages) == (None, 3)
        member.commit(3, 2)
        lag = admin.group_lag(group)
        assert lag.messages == 3
        assert lag.seconds is not None
        backlog = {one.group: one for one in admin.backlogs().answers["broker-a"]}
        assert backlog[group].by_topic[topic] == 3
    with pytest.raises(GroupNotFound):
        admin.group_lag("GID_nobody")


def test_members_and_what_they_are_doing(anywhere: Where, admin: gantry.Admin, topic: str) -> None:
    group = f"GID_members_{topic}"
    with Member(anywhere, group, topic) as one:
        found = admin.group_members(group)
        (member,) = found.members
        assert (member.client_id, member.brokers) == (one.client_id, ["broker-a"])
        assert found.subscriptions[topic].expression == "*"
        assert admin.running_info(group, one.client_id, stacks=True).stacks == "a stack"
        assert admin.diverging(group) == ([], {})
        with Member(anywhere, group, topic, expression="red") as other:
            (divergence,), silent = admin.diverging(group)
            assert divergence.wanted == {one.client_id: "tags *", other.client_id: "tags red"}
            assert not silent
        assert one.client_id in [found.client_id for found in admin.producers(group=f"PID_{group}")]
        with pytest.raises(NotFound, match=f"there is: {one.client_id}"):
            until(lambda: admin.running_info(group, "nobody"))
    until(lambda: not admin.group_members(group).members)


# --- offsets --------------------------------------------------------------------------------------


def offsets(admin: gantry.Admin, group: str, topic: str) -> list[int | None]:
    return [one.offset for one in admin.group_lag(group, topic=topic).queues]


def test_a_group_is_moved_by_time_by_offset_and_to_both_ends(
    anywhere: Where, admin: gantry.Admin, topic: str
) -> None:
    group = f"GID_reset_{topic}"
    admin.create_group(group)
    send(anywhere, topic, 8)
    until(lambda: admin.topic_status(topic).messages == 8)
    time.sleep(0.5)  # a time between the two halves; brokers of 4.x take the nearer of them
    between = datetime.now(UTC)
    time.sleep(0.02)
    send(anywhere, topic, 8)
    until(lambda: admin.topic_status(topic).messages == 16)

    plan = admin.plan_reset(group, topic, "latest")
    assert [(move.before, move.wanted, move.skipped) for move in plan.moves] == [(None, 4, 4)] * 4
    assert (plan.skipped, plan.repeated) == (16, 0)
    admin.apply_reset(plan)
    assert offsets(admin, group, topic) == [4, 4, 4, 4]

    moves = admin.reset_offsets(group, topic, between)
    assert [move.repeated for move in moves] == [2, 2, 2, 2]
    assert offsets(admin, group, topic) == [2, 2, 2, 2]
    admin.reset_offsets(group, topic, 0, queues=[1])
    assert offsets(admin, group, topic) == [2, 0, 2, 2]
    admin.reset_offsets(group, topic, 3, queues=[MessageQueue(topic, "broker-a", 2)])
    assert offsets(admin, group, topic) == [2, 0, 3, 2]
    admin.reset_offsets(group, topic, "earliest")
    assert offsets(admin, group, topic) == [0, 0, 0, 0]
    far = datetime.now(UTC) + timedelta(days=1)
    admin.reset_offsets(group, topic, far)
    assert offsets(admin, group, topic) == [4, 4, 4, 4]
    with pytest.raises(InvalidInput, match="from 0 to 4: a group cannot stand at 5"):
        admin.plan_reset(group, topic, 5)
    with pytest.raises(GroupNotFound):
        admin.plan_reset("GID_nobody", topic, "latest")


def test_a_group_with_members_is_moved_in_the_way_its_broker_can(
    anywhere: Where, admin: gantry.Admin, topic: str
) -> None:
    group = f"GID_online_{topic}"
    send(anywhere, topic, 8)
    until(lambda: admin.topic_status(topic).messages == 8)
    with Member(anywhere, group, topic) as member:
        for queue_id in range(QUEUES):
            member.commit(queue_id, 1)
        plan = admin.plan_reset(group, topic, "latest")
        assert plan.members == [member.client_id]
        admin.apply_reset(plan)
        assert offsets(admin, group, topic) == [2, 2, 2, 2]
        if anywhere.version.startswith("4"):
            with pytest.raises(InvalidInput, match="Stop the members first"):
                admin.reset_offsets(group, topic, 1, queues=[0])
        else:
            admin.reset_offsets(group, topic, 0, queues=[0])
            assert offsets(admin, group, topic) == [0, 2, 2, 2]
        admin.reset_offsets(group, topic, "earliest")
        assert offsets(admin, group, topic) == [0, 0, 0, 0]


def test_a_reset_that_does_not_hold_is_an_error(
    anywhere: Where, admin: gantry.Admin, topic: str
) -> None:
    group = f"GID_wrong_{topic}"
    admin.create_group(group)
    send(anywhere, topic, 4)
    until(lambda: admin.topic_status(topic).messages == 4)
    plan = admin.plan_reset(group, topic, "latest", queues=[0])
    (move,) = plan.moves
    # A plan that nobody can carry out, as if the queue had been cut meanwhile.
    plan.moves[0] = OffsetMove(
        queue=move.queue, before=None, wanted=move.max_offset + 7, min_offset=0, max_offset=1
    )
    if anywhere.version.startswith("4"):
        admin.apply_reset(plan)  # these brokers take every number
        return
    with pytest.raises((PartlyDone, gantry.errors.BrokerFailure)):
        admin.apply_reset(plan)


def test_offsets_are_copied_to_another_group(
    anywhere: Where, admin: gantry.Admin, topic: str
) -> None:
    source, target = f"GID_from_{topic}", f"GID_to_{topic}"
    admin.create_group(source)
    admin.create_group(target)
    send(anywhere, topic, 8)
    until(lambda: admin.topic_status(topic).messages == 8)
    admin.reset_offsets(source, topic, 1)
    plan = admin.plan_clone(source, target, topic=topic)
    assert [(copy.source, copy.before) for copy in plan] == [(1, None)] * QUEUES
    assert len(admin.clone_offsets(source, target, topic=topic)) == QUEUES
    assert offsets(admin, target, topic) == [1, 1, 1, 1]
    with Member(anywhere, target, topic), pytest.raises(InvalidInput, match="Stop them first"):
        admin.clone_offsets(source, target, topic=topic)


# --- messages -------------------------------------------------------------------------------------


def test_messages_are_found_by_everything_they_can_be_found_by(
    anywhere: Where, admin: gantry.Admin, topic: str
) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    sent = send(anywhere, topic, 8)
    until(lambda: len(admin.messages_by_key(topic, "common")) == 8)
    by_place = admin.message_at(MessageQueue(topic, "broker-a", 1), 1)
    assert by_place.body == b"body 5"
    assert by_place.offset_id == sent[5].message_id
    unique = by_place.message_id
    assert admin.find_message(sent[5].message_id).body == b"body 5"
    assert admin.find_message(unique, topic=topic).body == b"body 5"
    assert admin.find_message(unique).queue == MessageQueue(topic, "broker-a", 1)
    assert [one.body for one in admin.messages_by_key(topic, "key5")] == [b"body 5"]
    assert [one.body for one in admin.messages_by_unique_id(topic, unique)] == [b"body 5"]
    assert len(admin.messages_by_key(topic, "common", most=3)) == 3
    assert admin.messages_by_key(topic, "common", end=begin) == []
    assert sum(span.messages for span in admin.spans(topic, begin=begin)) == 8
    assert sum(span.messages for span in admin.spans(topic, end=begin)) == 0
    with pytest.raises(NotFound, match="it goes from 0 to 2"):
        admin.message_at(MessageQueue(topic, "broker-a", 1), 2)
    with pytest.raises(NotFound, match=r"in topic .* As an offset id it means"):
        admin.find_message(offset_id(bytes((127, 0, 0, 1)), 1, 10**9), topic=topic)


# --- both faces -----------------------------------------------------------------------------------


def test_the_same_awaited(anywhere: Where, topic: str) -> None:
    async def main() -> None:
        async with gantry.AsyncAdmin(name_servers=anywhere.name_server) as admin:
            assert topic in await admin.list_topics()
            assert (await admin.topic_status(topic)).messages == 0
            with contextlib.suppress(AlreadyExists):
                await admin.create_topic(topic)

    asyncio.run(main())


def test_topics_of_a_namespace(anywhere: Where) -> None:
    place = {"name_servers": anywhere.name_server, "namespace": "shop"}
    with gantry.Admin(**place) as admin:  # type: ignore[arg-type]
        admin.create_topic("carts", queues=1)
        assert admin.list_topics() == ["carts"]
        assert admin.topic_status("carts").topic == "shop%carts"
        admin.delete_topic("carts")
