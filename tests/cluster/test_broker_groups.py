"""Groups at a whole broker: members come and go, offsets and delays outlive it, messages return."""

import asyncio
import logging
import random

import pytest

from gantrymq.broker.table import HANDLERS
from gantrymq.errors import ReplyError
from gantrymq.model import MessageQueue
from gantrymq.net.endings import Ending
from gantrymq.protocol.group_settings import GetGroup, GroupSettings, PutGroup
from gantrymq.protocol.groups import GetConsumerConnections, UnregisterClient
from gantrymq.protocol.locks import LockQueues, UnlockQueues
from gantrymq.protocol.offsets import QueryConsumerOffset, UpdateConsumerOffset
from gantrymq.protocol.pulling import PullStatus
from gantrymq.protocol.resets import (
    ClientOffsets,
    GetClientOffsets,
    GetOffsetsFromClient,
    ResetOffsets,
)
from gantrymq.protocol.running import GetRunningInfo, RunningInfo
from gantrymq.protocol.sending import SendBack
from gantrymq.protocol.statistics import GetConsumeStats
from gantrymq.protocol.topics import DeleteTopic
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from tests.cluster.brokers import START_MS, broker, client, make
from tests.support import until


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


async def offset_of(ask, queue_id=0, group="billing"):
    request = QueryConsumerOffset(group=group, topic="orders", queue_id=queue_id)
    return (await ask(request)).offset


# --- who is there ---------------------------------------------------------------------------------


def test_members_hear_of_each_other(anywhere, store):
    async def main() -> None:
        async with broker(anywhere, store) as server, client(anywhere, server, "c1") as one:
            await one.beat({"billing": "orders"})
            await until(lambda: one.told == ["billing"])
            async with client(anywhere, server, "c2") as two:
                await two.beat({"billing": "orders"})
                await until(lambda: one.told == ["billing"] * 2 and two.told == ["billing"])
                assert await one.members("billing") == ["c1", "c2"]
                seen = await one(GetConsumerConnections(group="billing"))
                assert {connection.client_id for connection in seen.connections} == {"c1", "c2"}
                assert {connection.address for connection in seen.connections} == {
                    one.peer.local,
                    two.peer.local,
                }
            await until(lambda: one.told == ["billing"] * 3)
            assert await one.members("billing") == ["c1"]
            await one(UnregisterClient(client_id="c1", consumer_group="billing"))
            with pytest.raises(ReplyError, match="no consumer for this group, billing"):
                await one.members("billing")

    anywhere.run(main())


def test_a_client_without_a_heartbeat_is_out_after_two_minutes(memory, store):
    async def main() -> None:
        async with (
            broker(memory, store, listen__idle_timeout=100_000) as server,
            client(memory, server, "c1") as one,
            client(memory, server, "c2") as two,
        ):
            await one.beat({"billing": "orders"})
            await two.beat({"billing": "orders"})
            for _ in range(6):
                await asyncio.sleep(20)
                await one.beat({"billing": "orders"})
                if two.peer.is_open:
                    await two.send()  # alive, but no heartbeat
            await until(lambda: not two.peer.is_open)
            assert await two.peer.wait_closed() is Ending.REMOTE
            assert await one.members("billing") == ["c1"]
            assert one.told[-1] == "billing"
            assert len(one.told) == 3

    memory.run(main())


def test_queues_are_locked_for_one_member_until_a_minute_after_it_is_gone(memory, store):
    queues = {MessageQueue("orders", "broker-a", number) for number in range(4)}

    async def main() -> None:
        async with broker(memory, store) as server, client(memory, server, "c2") as two:
            lock = LockQueues(group="billing", client_id="c2", queues=queues)
            async with client(memory, server, "c1") as one:
                first = LockQueues(group="billing", client_id="c1", queues=queues)
                assert (await one(first)).locked == queues
                some = set(list(queues)[:1])
                await one(UnlockQueues(group="billing", client_id="c1", queues=some))
                assert (await two(lock)).locked == some
            await asyncio.sleep(59)
            assert (await two(lock)).locked == some
            await asyncio.sleep(2)
            assert (await two(lock)).locked == queues

    memory.run(main())


# --- offsets --------------------------------------------------------------------------------------


def test_offsets_and_groups_outlive_the_broker(anywhere, store):
    async def main() -> None:
        async with broker(anywhere, store) as server, client(anywhere, server) as ask:
            await ask.send()
            settings = GroupSettings(group="billing", max_retries=3)
            await ask(PutGroup(settings=settings))
            commit = UpdateConsumerOffset(group="billing", topic="orders", queue_id=0, offset=1)
            await ask(commit)
            assert await offset_of(ask) == 1
        async with broker(anywhere, store) as server, client(anywhere, server) as ask:
            assert await offset_of(ask) == 1
            assert (await ask(GetGroup(group="billing"))).settings == settings
            await ask(DeleteTopic(topic="orders"))
            with pytest.raises(ReplyError):
                await offset_of(ask)

    anywhere.run(main())


def test_offsets_are_on_disk_some_seconds_after_they_came(memory, store):
    async def main() -> None:
        disk = FaultyDisk()
        first = make(memory, store, disk=disk)
        await first.start()
        async with client(memory, first) as ask:
            await ask.send()
            await ask.beat({"billing": "orders"})
            await ask(UpdateConsumerOffset(group="billing", topic="orders", queue_id=0, offset=1))
            await asyncio.sleep(5.1)
            await first.broker.keeper.kept("consumerOffset.json")
            again = make(memory, store, disk=disk.after_kill())
            await again.start()
            assert again.broker.offsets.query("billing", "orders", 0) == 1
            await again.close(grace=0)
        await first.close(grace=0)

    memory.run(main())


def test_a_group_is_moved_while_it_consumes(memory, store):
    async def main() -> None:
        async with broker(memory, store) as server, client(memory, server) as ask:
            await ask.beat({"billing": "orders"})
            for _ in range(5):
                await ask.send()
                await asyncio.sleep(1)
            await ask(UpdateConsumerOffset(group="billing", topic="orders", queue_id=0, offset=5))
            moved = await ask(
                ResetOffsets(topic="orders", group="billing", timestamp_ms=START_MS + 2_500)
            )
            target = moved.offsets[MessageQueue("orders", "broker-a", 0)]
            assert 2 <= target <= 3
            late = UpdateConsumerOffset(group="billing", topic="orders", queue_id=0, offset=5)
            await ask(late)
            told = await ask.pull(offset=5)
            assert (told.status, told.next_offset) == (PullStatus.OFFSET_MOVED, target)
            assert len(await ask.taken(offset=target)) == 5 - target
            stats = await ask(GetConsumeStats(group="billing"))
            first = stats.queues[MessageQueue("orders", "broker-a", 0)]
            assert (first.broker_offset, first.consumer_offset) == (5, target)

    memory.run(main())


# --- messages that come later ---------------------------------------------------------------------


def test_a_failing_message_comes_back_sixteen_times_and_then_rests(memory, store):
    pauses = range(3, 19)
    levels = " ".join(f"{number}s" for number in range(1, 19))

    async def main() -> None:
        async with (
            broker(memory, store, delays__levels=levels) as server,
            client(memory, server) as ask,
        ):
            sent = await ask.send(body=b"poison", TAGS="red", UNIQ_KEY="U1")
            (message,) = await ask.taken()
            loop = asyncio.get_running_loop()
            for number, pause in enumerate(pauses):
                await ask(SendBack(log_offset=message.log_offset, group="billing", delay_level=0))
                failed = loop.time()
                (message,) = await ask.taken("%RETRY%billing", number, wait=pause + 1)
                assert -0.001 < loop.time() - failed - pause <= 0.1
                assert message.reconsume_times == number + 1
                assert message.body == b"poison"
            await ask(SendBack(log_offset=message.log_offset, group="billing", delay_level=0))
            (dead,) = await ask.taken("%DLQ%billing")
            found = dead.properties
            assert (found["RETRY_TOPIC"], found["UNIQ_KEY"]) == ("orders", "U1")
            assert found["ORIGIN_MESSAGE_ID"] == sent.message_id
            assert (await ask.pull("%RETRY%billing", len(pauses))).status is PullStatus.NOTHING_NEW

    memory.run(main())


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_delayed_messages_outlive_the_broker_and_come_once(memory, store, how):
    """Killed, it has not kept how far it had come: see what `delays` makes of that."""

    async def main() -> None:
        disk = FaultyDisk()
        slow = {"delays__keep_interval": 100}
        first = make(memory, store, disk=disk, **slow)
        await first.start()
        async with client(memory, first) as ask:
            for number in range(10):
                await ask.send(body=b"same", DELAY="1", UNIQ_KEY=f"U{number % 4}")
                await asyncio.sleep(0.2)
            for number in range(10, 20):
                await ask.send(body=b"%d" % number, DELAY="2", UNIQ_KEY=f"U{number}")
            delivered = len(await ask.taken())
            assert 0 < delivered < 10
        if how == "killed":
            left = disk.after_kill()
            await first.close(grace=0)
        else:
            await first.close()
            left = disk
        async with broker(memory, store, disk=left) as server, client(memory, server) as ask:
            assert server.broker.delays.behind(1) == (delivered, 10)
            await asyncio.sleep(6)
            arrived = await ask.taken()
            assert [message.body for message in arrived] == [b"same"] * 10 + [
                b"%d" % number for number in range(10, 20)
            ]
            assert [one.message_id for one in arrived[:10]] == [f"U{n % 4}" for n in range(10)]

    memory.run(main())


# --- questions that clients answer ----------------------------------------------------------------


def running(request, asked, _peer):
    return RunningInfo(properties={"who": asked.client_id, "stacks": str(request.stacks)})


def standing(request, _asked, _peer):
    return ClientOffsets(of_client={MessageQueue(request.topic, "broker-a", 0): 7})


def test_clients_are_asked_through_the_broker(anywhere, store):
    answers = (GetRunningInfo.answered_by(running), GetOffsetsFromClient.answered_by(standing))

    async def main() -> None:
        async with (
            broker(anywhere, store) as server,
            client(anywhere, server, "c1", *answers) as one,
            client(anywhere, server, "admin") as admin,
        ):
            await one.beat({"billing": "orders"})
            info = await admin(GetRunningInfo(group="billing", client_id="c1", stacks=True))
            assert info.properties == {"who": "c1", "stacks": "True"}
            stands = await admin(GetClientOffsets(topic="orders", group="billing"))
            assert stands.by_client == {"c1": {MessageQueue("orders", "broker-a", 0): 7}}
            with pytest.raises(ReplyError, match="not online"):
                await admin(GetRunningInfo(group="billing", client_id="c2"))

    anywhere.run(main())


# --- strangers ------------------------------------------------------------------------------------

ODD = ["", "0", "-1", "1e9", "9223372036854775807", "-9223372036854775808", "2147483648", "true",
       "%RETRY%", "x" * 300, "billing", "orders", "\x00", "{}", "[1]", "é"]  # fmt: skip
BODIES = [b"", b"{}", b"[]", b"null", b"{", b"\xff\x00",
          b'{"clientID":"c","consumerDataSet":[{}]}',
          b'{"groupName":"g","retryQueueNums":2147483647}', b"a=b\nc=x", b"=\n"]  # fmt: skip
NAMES = ["topic", "queueId", "consumerGroup", "group", "groupName", "offset", "commitOffset",
         "timestamp", "clientID", "clientId", "msgId", "delayLevel", "maxNum", "key", "statsName",
         "statsKey", "beginTimestamp", "endTimestamp", "srcGroup", "destGroup", "isForce",
         "compareGroup", "filterGroups", "maxReconsumeTimes", "topicList", "readable",
         "producerGroup", "queueOffset", "maxMsgNums", "sysFlag", "bornTimestamp",
         "suspendTimeoutMillis", "boundaryType", "groupSeq", "maxGroupNum"]  # fmt: skip


def test_nonsense_is_refused_and_nothing_breaks(memory, store, caplog):
    caplog.set_level(logging.ERROR)
    rng = random.Random(4)

    def nonsense(code: int) -> Command:
        fields = {name: rng.choice(ODD) for name in rng.sample(NAMES, rng.randrange(len(NAMES)))}
        return Command(code, fields=fields, body=rng.choice(BODIES))

    async def main() -> None:
        quick = {"pulls__longest_wait": 0.01}
        async with broker(memory, store, **quick) as server, client(memory, server) as ask:
            await ask.send()
            await ask.beat({"billing": "orders"})
            for code in HANDLERS:
                if code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_TOPIC_IN_BROKER):
                    continue
                for _ in range(60):
                    answer = await ask.peer.invoke(nonsense(code), timeout=60)
                    assert answer.code in range(1000), answer
            (message,) = await ask.taken()
            assert message.body == b"hello"

    memory.run(main())
    assert [record.getMessage() for record in caplog.records] == []
