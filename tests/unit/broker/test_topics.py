"""The table of topics, how topics come to be, and what administrators ask."""

import pytest

from gantrymq.broker.topics import Topics
from gantrymq.errors import ReplyError
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.names import AUTO_CREATE_TOPIC
from gantrymq.protocol.topics import (
    CleanUnusedTopics,
    DeleteTopic,
    GetBrokerSystemTopics,
    GetTopic,
    GetTopics,
    PutTopic,
    PutTopics,
    TopicReply,
    TopicSettings,
    TopicTableReply,
)
from gantrymq.wire.command import Command
from tests.support import run_on
from tests.unit.broker.rig import START_MS, Rig, with_rig


async def answer(rig: Rig, request):
    outcome = rig.answer(request)
    if isinstance(outcome, Command):
        return request.reply_from(outcome)
    return await outcome


def put(topic: str, **fields) -> PutTopic:
    return PutTopic(topic=topic, **({"read_queues": 3, "write_queues": 2, "perm": 6} | fields))


# --- from the start -------------------------------------------------------------------------------


@with_rig()
async def test_rocketmqs_own_topics_are_there_from_the_start(rig):
    table = rig.broker.topics.table
    shapes = {name: (one.read_queues, one.write_queues, one.perm) for name, one in table.items()}
    assert shapes == {
        "TBW102": (8, 8, 7),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
        "SELF_TEST_TOPIC": (1, 1, 6),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    found = await answer(rig, GetBrokerSystemTopics())
    assert set(found.topics) == set(table) | {
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC",
    }  # fmt: skip


@with_rig(topics__auto_create=False, topics__cluster_topic=False, topics__trace=True)
async def test_which_of_them_can_be_set(rig):
    table = rig.broker.topics.table
    assert AUTO_CREATE_TOPIC not in table
    assert table["DefaultCluster"].perm == 1
    assert table["RMQ_SYS_TRACE_TOPIC"].read_queues == 1


def test_topics_are_kept_over_a_restart():
    async def main():
        rig = Rig().load()
        await answer(rig, put("orders", attributes={"+message.type": "FIFO"}, ordered=True))
        version = rig.broker.topics.version
        await rig.broker.close()

        again = Rig(files=rig.files, topics__auto_create=False).load()
        assert again.broker.topics.table == rig.broker.topics.table
        assert again.broker.topics.version == version
        assert again.broker.topics.table["orders"].attributes == {"message.type": "FIFO"}
        await again.broker.close()

    run_on("asyncio", main())


def test_the_file_is_as_rocketmq_writes_it():
    async def main():
        rig = Rig().load()
        await answer(rig, put("orders"))
        await rig.broker.close()
        tree = rig.files.trees["topics.json"]
        assert set(tree) == {"dataVersion", "topicConfigTable"}
        assert tree["dataVersion"] == {"counter": 2, "stateVersion": 0, "timestamp": START_MS}
        assert tree["topicConfigTable"]["orders"] == {
            "attributes": {}, "order": False, "perm": 6, "readQueueNums": 3,
            "topicFilterType": "SINGLE_TAG", "topicName": "orders", "topicSysFlag": 0,
            "writeQueueNums": 2,
        }  # fmt: skip

    run_on("asyncio", main())


# --- made when sent to ----------------------------------------------------------------------------


@with_rig()
async def test_a_topic_is_made_after_the_template(rig):
    topics = rig.broker.topics
    made = topics.make_for_send("orders", template="TBW102", queues=4, flags=1)
    assert (made.read_queues, made.write_queues, made.perm, made.flags) == (4, 4, 6, 1)
    assert topics.make_for_send("orders", template="TBW102", queues=9) is made
    assert topics.make_for_send("bills", template="TBW102", queues=9).write_queues == 8
    assert topics.make_for_send("none", template="TBW102", queues=-3).write_queues == 0


@with_rig()
async def test_a_template_hands_down_its_filter_type_and_needs_the_inherit_bit(rig):
    topics = rig.broker.topics
    topics.put(
        [TopicSettings(topic="like", perm=7, filter_type=TopicFilterType.MULTI_TAG, write_queues=2)]
    )
    made = topics.make_for_send("orders", template="like", queues=4)
    assert (made.filter_type, made.write_queues) == (TopicFilterType.MULTI_TAG, 2)
    assert topics.make_for_send("bills", template="orders", queues=4) is None
    assert topics.make_for_send("bills", template="nowhere", queues=4) is None


@with_rig()
async def test_auto_creation_can_be_switched_off_while_the_template_is_there(rig):
    rig.broker.apply(Rig(topics__auto_create=False).config)
    assert rig.broker.topics.make_for_send("orders", template="TBW102", queues=4) is None
    assert rig.broker.topics.make_for_send("orders", template="broker-a", queues=4) is not None


@with_rig()
async def test_who_watches_is_told_of_every_change(rig):
    told = []
    topics: Topics = rig.broker.topics
    topics.watch(lambda names: told.append(sorted(names)))
    counter = topics.version.counter
    topics.make("%RETRY%billing", queues=1)
    topics.make("%RETRY%billing", queues=1)
    topics.put([TopicSettings(topic="a"), TopicSettings(topic="b")])
    topics.drop("a")
    topics.drop("a")
    assert told == [["%RETRY%billing"], ["a", "b"], ["a"]]
    assert topics.version == DataVersion(counter=counter + 3, timestamp_ms=START_MS)


@with_rig()
async def test_ordered_topics_are_those_that_name_servers_say(rig):
    topics = rig.broker.topics
    topics.put([TopicSettings(topic="a", ordered=True), TopicSettings(topic="b")])
    held = topics.table["a"]
    topics.order({"b": "broker-a:4", "elsewhere": "broker-b:4"})
    assert [name for name, one in topics.table.items() if one.ordered] == ["b"]
    assert held.ordered  # what somebody holds does not change
    counter = topics.version.counter
    topics.order({"b": "broker-a:8"})
    assert topics.version.counter == counter


# --- administrators -------------------------------------------------------------------------------


@with_rig()
async def test_a_topic_is_made_and_changed(rig):
    await answer(rig, put("orders", filter_type=TopicFilterType.MULTI_TAG, flags=2, ordered=True))
    assert rig.files.trees["topics.json"]["topicConfigTable"]["orders"]["perm"] == 6
    await answer(rig, put("orders", perm=4, attributes={"+message.type": "FIFO"}))
    found = (await answer(rig, GetTopic(topic="orders"))).settings
    assert (found.read_queues, found.write_queues, found.perm, found.ordered) == (3, 2, 4, False)
    assert (found.attributes, found.flags) == ({"message.type": "FIFO"}, 0)


@pytest.mark.parametrize(
    ("request_", "code", "remark"),
    [
        (put(""), 29, "is blank"),
        (put("a b"), 29, "contains illegal characters"),
        (put("x" * 128), 29, "longer than topic max length 127"),
        (put("TBW102"), 29, "The topic[TBW102] is conflict with system topic"),
        (put("rmq_sys_own"), 29, "conflict with system topic"),
        (put("orders", perm=8), 29, "perm 8"),
        (put("orders", read_queues=-1), 29, "cannot have -1 queues"),
        (put("orders", attributes={"+colour": "red"}), 1, "unsupported key: colour"),
        (DeleteTopic(topic="TBW102"), 29, "conflict with system topic"),
        (DeleteTopic(topic=" "), 29, "is blank"),
        (GetTopic(topic="orders"), 17, "No topic in this broker. topic: orders"),
    ],
)
def test_what_is_refused(request_, code, remark):
    async def main():
        rig = Rig().load()
        before = dict(rig.broker.topics.table)
        with pytest.raises(ReplyError) as refused:
            await answer(rig, request_)
        assert refused.value.code == code
        assert remark in str(refused.value.remark)
        assert rig.broker.topics.table == before
        await rig.broker.close()

    run_on("asyncio", main())


@with_rig(topics__mixed=False)
async def test_topics_for_everything_can_be_forbidden(rig):
    with pytest.raises(ReplyError, match="MIXED message type"):
        await answer(rig, put("orders", attributes={"+message.type": "MIXED"}))


@with_rig()
async def test_of_several_topics_all_are_made_or_none(rig):
    topics = rig.broker.topics
    await answer(rig, PutTopics(topics=[TopicSettings(topic="a"), TopicSettings(topic="b")]))
    assert {"a", "b"} <= topics.table.keys()
    with pytest.raises(ReplyError, match="unsupported key"):
        await answer(
            rig,
            PutTopics(
                topics=[
                    TopicSettings(topic="c"),
                    TopicSettings(topic="d", attributes={"+colour": "red"}),
                ]
            ),
        )
    assert not {"c", "d"} & topics.table.keys()
    same, other = TopicSettings(topic="a"), TopicSettings(topic="e")
    await answer(rig, PutTopics(topics=[other, same]))  # RocketMQ stops at the one that is there
    assert "e" not in topics.table


@with_rig()
async def test_what_a_topic_already_is_changes_nothing(rig):
    await answer(rig, put("orders"))
    version = rig.broker.topics.version
    await answer(rig, put("orders"))
    assert rig.broker.topics.version == version


@with_rig()
async def test_a_topic_goes_with_its_messages(rig):
    for topic in ("orders", "bills"):
        rig.send(topic)
    await answer(rig, DeleteTopic(topic="orders"))
    assert "orders" not in rig.broker.topics.table
    assert {topic for topic, _, _ in rig.store.queues()} == {"bills"}
    rig.broker.topics.drop("bills")
    await answer(rig, CleanUnusedTopics())
    assert rig.store.queues() == []
    await answer(rig, DeleteTopic(topic="orders"))  # as in RocketMQ, that is no mistake


@with_rig()
async def test_all_topics_can_be_had_at_once_or_in_pages(rig):
    topics = rig.broker.topics
    for n in range(30):
        topics.make(f"t{n:02}", queues=1)
    whole: TopicTableReply = await answer(rig, GetTopics())
    assert (whole.table.topics, whole.table.version) == (topics.table, topics.version)
    assert whole.total == len(topics.table)

    seen: dict[str, TopicSettings] = {}
    asked = 0
    while len(seen) < whole.total - 1:  # as RocketMQ's client does
        page = await answer(rig, GetTopics(start=len(seen), version=topics.version, most=7))
        assert 0 < len(page.table.topics) <= 8
        seen |= page.table.topics
        asked += 1
    assert seen == topics.table
    assert asked == 6
    page = await answer(rig, GetTopics(start=20, version=DataVersion(), most=7))
    assert set(page.table.topics) == set(sorted(topics.table)[:7])


@with_rig()
async def test_a_reply_with_one_topic_can_be_written(rig):
    command = rig.answer(GetTopic(topic="TBW102"))
    assert isinstance(command, Command)
    assert TopicReply.from_command(command).settings.topic == "TBW102"
