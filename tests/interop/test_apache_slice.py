"""Our endpoint and catalogue against a real name server and broker, beside Java's own clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

import generated
import jars
import pytest
from apache import Cluster
from peer import JavaPeer

from gantrymq.errors import ReplyError
from gantrymq.model import SendStatus
from gantrymq.net import aio
from gantrymq.net.options import PeerOptions
from gantrymq.protocol import pop_handles
from gantrymq.protocol.groups import ConsumerData, Heartbeat, ProducerData, Subscription
from gantrymq.protocol.offsets import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from gantrymq.protocol.pop_handles import PopHandle
from gantrymq.protocol.popping import AckMessage, PopMessages, PopReply
from gantrymq.protocol.pulling import PullFlag, PullMessage, ViewMessage
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.sending import SendBatch, SendMessage, SendReply
from gantrymq.wire import batch, properties, record
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.codes import ResponseCode
from gantrymq.wire.command import HeaderType
from gantrymq.wire.compression import compress_large
from gantrymq.wire.flags import Compression, compression_of
from gantrymq.wire.record import StoredMessage

T = TypeVar("T")

CALL: Final = 10.0
WAIT_MS: Final = 2_000
WHOLE: Final = 60.0

_TOPICS: Final = count()

header_types = pytest.mark.parametrize(
    "header_type", list(HeaderType), ids=lambda t: t.name.lower()
)


def run(main: Coroutine[object, None, T]) -> T:
    return aio.run(asyncio.wait_for(main, WHOLE))


def new_topic(what: str) -> str:
    return f"{what}_{next(_TOPICS)}_{time.time_ns()}"


class Client:
    """A connection to a broker, and the calls that the tests make on it."""

    def __init__(self, peer: aio.Peer, group: str = "gantry_group") -> None:
        self.peer = peer
        self.group = group

    async def send(self, topic: str, body: bytes, **fields: Any) -> SendReply:
        request = SendMessage(
            group=self.group,
            topic=topic,
            queue_id=fields.pop("queue_id", 0),
            born_ms=time.time_ns() // 1_000_000,
            body=body,
            **fields,
        )
        return await self.peer.call(request, timeout=CALL)

    async def heartbeat(self, topic: str) -> None:
        subscription = Subscription(topic=topic, version=time.time_ns() // 1_000_000)
        await self.peer.call(
            Heartbeat(
                client_id=f"127.0.0.1@{self.group}",
                producers=[ProducerData(group=self.group)],
                consumers=[ConsumerData(group=self.group, subscriptions=[subscription])],
            ),
            timeout=CALL,
        )

    async def pull_all(self, topic: str, wanted: int, *, queue_id: int = 0) -> list[StoredMessage]:
        """`wanted` messages from the beginning of a queue, by the subscription of the heartbeat."""
        found: list[StoredMessage] = []
        offset = 0
        while len(found) < wanted:
            request = PullMessage(
                group=self.group,
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                flags=PullFlag.SUSPEND,
                wait_ms=WAIT_MS,
            )
            reply = await self.peer.call(request, timeout=CALL + WAIT_MS / 1000)
            found += record.iterate(reply.body)
            offset = reply.next_offset
        return found


@asynccontextmanager
async def connection(
    address: str, header_type: HeaderType = HeaderType.JSON
) -> AsyncIterator[aio.Peer]:
    peer = await aio.connect(address, options=PeerOptions(header_type=header_type))
    try:
        yield peer
    finally:
        peer.close()
        await peer.wait_closed()


@header_types
def test_from_the_route_to_the_committed_offset(cluster: Cluster, header_type: HeaderType) -> None:
    run(from_the_route_to_the_committed_offset(cluster, header_type))


async def from_the_route_to_the_committed_offset(cluster: Cluster, header_type: HeaderType) -> None:
    async with connection(cluster.name_server, header_type) as name_server:
        address = await broker_of_the_template(name_server, cluster)
        async with connection(address, header_type) as peer:
            await send_pull_and_commit(Client(peer), name_server, cluster)


async def broker_of_the_template(name_server: aio.Peer, cluster: Cluster) -> str:
    template = (await name_server.call(GetRoute(topic="TBW102"), timeout=CALL)).route
    (broker,) = template.brokers
    assert (broker.name, broker.addresses) == (cluster.BROKER, {0: cluster.broker})
    return broker.addresses[0]


async def send_pull_and_commit(client: Client, name_server: aio.Peer, cluster: Cluster) -> None:
    topic = new_topic("slice")
    await client.heartbeat(topic)
    sent = [(f"body {n} ☃".encode(), {"TAGS": f"tag{n % 3}", "own": f"ünï {n}"}) for n in range(40)]
    replies = [
        await client.send(topic, body, flag=n, properties=properties.join(wanted))
        for n, (body, wanted) in enumerate(sent)
    ]
    assert [reply.offset for reply in replies] == list(range(40))
    assert {reply.status for reply in replies} == {SendStatus.OK}

    found = await client.pull_all(topic, 40)
    for n, ((body, wanted), reply, message) in enumerate(zip(sent, replies, found, strict=True)):
        assert (message.topic, message.body, message.flag) == (topic, body, n)
        assert wanted.items() <= message.properties.items()
        assert (message.queue_id, message.queue_offset) == (0, n)
        assert message.offset_id == reply.message_id
        assert message.store_host == cluster.broker
        message.check_crc()
    viewed = await client.peer.call(ViewMessage(log_offset=found[7].log_offset), timeout=CALL)
    assert list(record.iterate(viewed.body)) == [found[7]]

    at: dict[str, Any] = {"topic": topic, "queue_id": 0}
    least = await client.peer.call(GetMinOffset(**at), timeout=CALL)
    most = await client.peer.call(GetMaxOffset(**at), timeout=CALL)
    assert (least.offset, most.offset) == (0, 40)
    ours = at | {"group": client.group}
    await client.peer.call(UpdateConsumerOffset(**ours, offset=17), timeout=CALL)
    committed = await client.peer.call(QueryConsumerOffset(**ours), timeout=CALL)
    assert committed.offset == 17

    route = (await name_server.call(GetRoute(topic=topic), timeout=CALL)).route
    assert [(queue.broker, queue.write_queues) for queue in route.queues] == [(cluster.BROKER, 4)]


def test_refusals_come_as_errors_with_code_and_remark(cluster: Cluster) -> None:
    async def main() -> None:
        async with connection(cluster.name_server) as name_server:
            with pytest.raises(ReplyError, match="No topic route info") as refused:
                await name_server.call(GetRoute(topic=new_topic("absent")), timeout=CALL)
            assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST

    run(main())


@header_types
def test_a_batch_is_stored_message_by_message(
    cluster: Cluster, header_type: HeaderType, rng: Random
) -> None:
    run(a_batch_is_stored_message_by_message(cluster, header_type, rng))


async def a_batch_is_stored_message_by_message(
    cluster: Cluster, header_type: HeaderType, rng: Random
) -> None:
    topic = new_topic("batch")
    messages = [
        BatchMessage(
            generated.body(rng) or b"-",
            properties.encode({"UNIQ_KEY": rng.randbytes(16).hex().upper()}),
            generated.int32(rng),
        )
        for _ in range(30)
    ]
    request = SendBatch(
        group="gantry_group",
        topic=topic,
        queue_id=1,
        born_ms=time.time_ns() // 1_000_000,
        body=batch.encode(messages),
    )
    async with connection(cluster.broker, header_type) as peer:
        client = Client(peer)
        await client.heartbeat(topic)
        reply = await peer.call(request, timeout=CALL)
        found = await client.pull_all(topic, 30, queue_id=1)
    for ours, stored in zip(messages, found, strict=True):
        assert (stored.body, stored.flag) == (ours.body, ours.flag)
        assert ours.properties.items() <= stored.properties.items()
    assert reply.message_id.split(",") == [stored.offset_id for stored in found]


def test_compressed_bodies(cluster: Cluster, peer: JavaPeer, rng: Random) -> None:
    """Each kind is stored as it is sent, and read by us and by Java's own consumer."""
    topic = new_topic("compressed")
    bodies = [rng.randbytes(20) * rng.randint(300, 3000) for _ in Compression]

    async def main() -> list[StoredMessage]:
        async with connection(cluster.broker) as to_broker:
            client = Client(to_broker)
            await client.heartbeat(topic)
            for kind, content in zip(Compression, bodies, strict=True):
                body, flags = compress_large(content, kind)
                await client.send(topic, body, flags=flags)
            return await client.pull_all(topic, len(bodies))

    found = run(main())
    assert [message.content() for message in found] == bodies
    assert [compression_of(m.sys_flag) for m in found] == list(Compression)
    assert [message["body"] for message in java_pulls(peer, cluster, topic, 3)] == bodies


@header_types  # the codes of pop and its kin fit JSON alone: such a connection has to fall back
def test_pop_and_acknowledge(
    clusters: Callable[[str], Cluster], header_type: HeaderType, rng: Random
) -> None:
    run(pop_and_acknowledge(clusters(jars.CURRENT), header_type, rng))


async def pop_and_acknowledge(cluster: Cluster, header_type: HeaderType, rng: Random) -> None:
    topic, bodies = new_topic("pop"), [rng.randbytes(20) for _ in range(5)]
    async with connection(cluster.broker, header_type) as peer:
        client = Client(peer, group=f"pop_{topic}")
        await client.heartbeat(topic)
        for body in bodies:
            await client.send(topic, body)
        popped: list[StoredMessage] = []
        while len(popped) < len(bodies):
            reply = await peer.call(pop(client.group, topic), timeout=CALL + WAIT_MS / 1000)
            found = list(record.iterate(reply.body))
            for message, handle in zip(found, handles(reply, found, cluster.BROKER), strict=True):
                await peer.call(acknowledgement(client.group, message, handle), timeout=CALL)
            popped += found
        assert [message.body for message in popped] == bodies
        with pytest.raises(ReplyError) as refused:
            handle = replace(handle, offset=99)  # beyond the queue
            await peer.call(acknowledgement(client.group, message, handle), timeout=CALL)
        assert refused.value.code == ResponseCode.NO_MESSAGE


def pop(group: str, topic: str) -> PopMessages:
    return PopMessages(
        group=group,
        topic=topic,
        queue_id=0,
        max_messages=8,
        invisible_ms=60_000,
        poll_ms=WAIT_MS,
        born_ms=time.time_ns() // 1_000_000,
        init_mode=0,
    )


def handles(reply: PopReply, found: list[StoredMessage], broker: str) -> list[PopHandle]:
    """What each message is acknowledged with; all of them came from queue 0 of the topic itself."""
    (start,) = pop_handles.read_start_offsets(reply.start_offsets).values()
    (offsets,) = pop_handles.read_offsets(reply.offsets).values()
    return [
        PopHandle(
            start_offset=start,
            pop_ms=reply.pop_ms,
            invisible_ms=reply.invisible_ms,
            revive_queue_id=reply.revive_queue_id,
            retry=0,
            broker=broker,
            queue_id=message.queue_id,
            offset=offset,
        )
        for message, offset in zip(found, offsets, strict=True)
    ]


def acknowledgement(group: str, message: StoredMessage, handle: PopHandle) -> AckMessage:
    return AckMessage(
        group=group,
        topic=message.topic,
        queue_id=message.queue_id,
        handle=str(handle),
        offset=handle.offset,
    )


def java_pulls(peer: JavaPeer, cluster: Cluster, topic: str, wanted: int) -> list[dict[str, Any]]:
    asked = {
        "name_server": cluster.name_server,
        "topic": topic,
        "broker": cluster.BROKER,
        "queue_id": 0,
        "count": wanted,
    }
    (found,) = peer.ask("client.pull", [asked])
    messages: list[dict[str, Any]] = found
    return messages


def test_javas_consumer_reads_what_we_send(cluster: Cluster, peer: JavaPeer, rng: Random) -> None:
    topic = new_topic("to_java")
    sent = [
        (generated.body(rng) or b"-", generated.properties(rng) | {"UNIQ_KEY": f"{n:032X}"})
        for n in range(60)
    ]

    async def main() -> list[SendReply]:
        async with connection(cluster.broker) as to_broker:
            client = Client(to_broker)
            return [
                await client.send(topic, body, properties=properties.join(wanted))
                for body, wanted in sent
            ]

    replies = run(main())
    for (body, wanted), reply, message in zip(
        sent, replies, java_pulls(peer, cluster, topic, len(sent)), strict=True
    ):
        assert (message["topic"], message["body"]) == (topic, body)
        assert wanted.items() <= message["properties"].items()
        assert message["id"] == wanted["UNIQ_KEY"]
        assert message["queue_offset"] == reply.offset


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batch"])
def test_we_read_what_javas_producer_sends(
    cluster: Cluster, peer: JavaPeer, batched: bool, rng: Random
) -> None:
    topic = new_topic("from_java")
    messages = [
        {
            "body": generated.body(rng) or b"-",
            "flag": generated.int32(rng),
            "tag": generated.name(rng, most=9),
            "keys": "k1 k2",
            "properties": {"own": "value ☃"},
        }
        for _ in range(60)
    ]
    asked = {
        "name_server": cluster.name_server,
        "topic": topic,
        "messages": messages,
        "batch": batched,
    }
    (results,) = peer.ask("client.send", [asked])
    assert {result["status"] for result in results} == {"SEND_OK"}

    async def main() -> dict[str, StoredMessage]:
        found = {}
        async with connection(cluster.broker) as to_broker:
            client = Client(to_broker)
            await client.heartbeat(topic)
            for queue_id in {result["queue_id"] for result in results}:
                at = GetMaxOffset(topic=topic, queue_id=queue_id)
                most = (await to_broker.call(at, timeout=CALL)).offset
                for message in await client.pull_all(topic, most, queue_id=queue_id):
                    found[message.message_id] = message
        return found

    found = run(main())
    ids = [each for result in results for each in result["unique_id"].split(",")]
    assert len(found) == len(ids) == len(messages)
    for unique_id, message in zip(ids, messages, strict=True):
        stored = found[unique_id]
        assert (stored.content(), stored.flag) == (message["body"], message["flag"])
        assert stored.find("TAGS") == message["tag"]
        assert (stored.find("KEYS"), stored.find("own")) == ("k1 k2", "value ☃")
