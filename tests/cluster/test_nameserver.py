"""What a name server answers, over real sockets and in memory."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import orjson
import pytest

from gantrymq.errors import (
    BrokerFailure,
    NoPermission,
    NotFound,
    NotSupported,
    TopicNotFound,
)
from gantrymq.nameserver.table import HANDLERS
from gantrymq.protocol.configs import (
    DeleteKey,
    GetKey,
    GetKeys,
    GetNameServerConfig,
    PutKey,
    UpdateNameServerConfig,
)
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import (
    AddWritePermission,
    NotifyLeastBrokerChanged,
    QueryDataVersion,
    UnregisterBroker,
    WipeWritePermission,
)
from gantrymq.protocol.routing import (
    DeleteRoute,
    GetAllTopics,
    GetBrokerMembers,
    GetClusterInfo,
    GetRoute,
    GetSystemTopics,
    GetTopicsOfCluster,
    GetUnitSubscribedPlainTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    QueueData,
    RegisterTopic,
    TopicRoute,
)
from gantrymq.protocol.topics import TopicSettings
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from gantrymq.wire.versions import CURRENT, V4_9_3, V4_9_4
from tests.cluster.naming import client, name_server
from tests.unit.nameserver.asking import A, B, C

# --- what is answered -----------------------------------------------------------------------------


def test_every_request_of_a_name_server_is_answered():
    codes = {
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313),
        *(318, 319, 322, 327, 901, 904),
    }
    assert set(HANDLERS) == codes


def test_brokers_register_and_clients_find_them(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            assert (await ask.register()).master_address is None
            replica = await ask.register(broker_id=1, address=B)
            assert (replica.master_address, replica.ha_address) == (A, f"{A}-ha")
            await ask.register("broker-b", address=C, cluster="west", compressed=True)

            route = await ask.route()
            assert {each.name: each.addresses for each in route.brokers} == {
                "broker-a": {0: A, 1: B},
                "broker-b": {0: C},
            }
            assert [queues.broker for queues in route.queues] == ["broker-a", "broker-b"]
            info = await ask(GetClusterInfo())
            assert info.clusters == {"east": {"broker-a"}, "west": {"broker-b"}}
            members = (await ask(GetBrokerMembers(cluster="east", broker="broker-a"))).members
            assert (members.cluster, members.name) == ("east", "broker-a")
            assert members.addresses == {0: A, 1: B}
            nobody = (await ask(GetBrokerMembers(cluster="x", broker="y"))).members
            assert (nobody.cluster, nobody.name, nobody.addresses) == ("x", "y", {})
            with pytest.raises(TopicNotFound, match=r"No topic route info .* topic: unknown"):
                await ask.route("unknown")

            await ask(UnregisterBroker(broker="broker-a", address=A, cluster="east", broker_id=0))
            assert await ask.brokers() == {"broker-a": {1: B}, "broker-b": {0: C}}

    anywhere.run(main())


def test_topics_are_listed_put_in_and_taken_out(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            flags = {f"t{n}": TopicSettings(topic=f"t{n}", flags=n) for n in range(4)}
            await ask.register(topics=flags)
            await ask.register("broker-b", address=B, cluster="west", topics=["t0", "far"])

            async def names(request: Any) -> list[str]:
                return sorted((await ask(request)).topics)

            assert await names(GetAllTopics()) == ["far", "t0", "t1", "t2", "t3"]
            assert await names(GetTopicsOfCluster(cluster="west")) == ["far", "t0"]
            assert await names(GetTopicsOfCluster(cluster="nowhere")) == []
            assert await names(GetUnitTopics()) == ["t1", "t3"]
            assert await names(GetUnitSubscribedTopics()) == ["t2", "t3"]
            assert await names(GetUnitSubscribedPlainTopics()) == ["t2"]
            system = await ask(GetSystemTopics())
            assert system.topics == ["east", "broker-a", "west", "broker-b"]
            assert system.broker_address == A

            queues = [QueueData(broker="broker-b", read_queues=2, write_queues=1, perm=6)]
            await ask(RegisterTopic(topic="new", route=TopicRoute(queues=queues)))
            assert (await ask.route("new")).queues == queues
            await ask(DeleteRoute(topic="t0", cluster="west"))
            assert [each.name for each in (await ask.route("t0")).brokers] == ["broker-a"]
            await ask(DeleteRoute(topic="t0"))
            with pytest.raises(TopicNotFound):
                await ask.route("t0")

    anywhere.run(main())


def test_a_broker_is_closed_and_opened_for_writing(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            topics = {name: TopicSettings(topic=name, perm=7) for name in ("a", "b")}
            await ask.register(topics=topics)
            assert (await ask(WipeWritePermission(broker="broker-a"))).count == 2
            assert (await ask.route("a")).queues[0].perm == 5
            await ask.register(topics=topics)
            assert (await ask.route("a")).queues[0].perm == 5
            assert (await ask(AddWritePermission(broker="broker-a"))).count == 2
            assert (await ask.route("a")).queues[0].perm == 6
            assert (await ask(WipeWritePermission(broker="stranger"))).count == 0

    anywhere.run(main())


def test_data_versions_are_compared(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            version = DataVersion(counter=1, timestamp_ms=1_700_000_000_000)

            async def query(version: DataVersion, address: str = A) -> tuple[bool, Any]:
                reply = await ask(
                    QueryDataVersion(
                        broker="broker-a",
                        address=address,
                        cluster="east",
                        broker_id=0,
                        version=version,
                    )
                )
                return reply.changed, reply.held

            assert await query(version) == (True, None)
            await ask.register()
            assert await query(version) == (False, version)
            assert await query(DataVersion(counter=2)) == (True, version)
            assert await query(version, B) == (True, None)

    anywhere.run(main())


def test_keys_are_kept_over_a_restart(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            with pytest.raises(NotFound, match="No config item, Namespace: N Key: k"):
                await ask(GetKey(namespace="N", key="k"))
            with pytest.raises(NotFound, match="No config item, Namespace: N"):
                await ask(GetKeys(namespace="N"))
            await ask(DeleteKey(namespace="N", key="k"))
            await ask(PutKey(namespace="N", key="k", value="v"))
            await ask(PutKey(namespace="N", key="l", value="w"))
            assert (await ask(GetKey(namespace="N", key="k"))).value == "v"
            assert orjson.loads((data / "kvConfig.json").read_bytes()) == {
                "configTable": {"N": {"k": "v", "l": "w"}}
            }
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            assert (await ask(GetKeys(namespace="N"))).table == {"k": "v", "l": "w"}
            await ask(DeleteKey(namespace="N", key="k"))
            await ask(DeleteKey(namespace="N", key="l"))
            assert (await ask(GetKeys(namespace="N"))).table == {}

    anywhere.run(main())


def test_brokers_and_clients_hear_of_order_topics(anywhere, data):
    async def main() -> None:
        order = PutKey(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:8")
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            assert (await ask.register()).order_topics is None
            await ask(order)
            assert (await ask.register()).order_topics == {"orders": "broker-a:8"}
            assert (await ask.route()).order is None
            await ask(UpdateNameServerConfig(properties={"orderMessageEnable": "true"}))
            assert (await ask.route()).order == "broker-a:8"
            assert (await ask.route("bills")).order is None
            await ask(DeleteKey(namespace="ORDER_TOPIC_CONFIG", key="orders"))
            assert (await ask.route()).order is None
            assert (await ask.register()).order_topics == {}
            off = {"returnOrderTopicConfigToBroker": "false"}
            await ask(UpdateNameServerConfig(properties=off))
            assert (await ask.register()).order_topics is None

    anywhere.run(main())


def test_settings_are_read_and_changed_and_hold_after_a_restart(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            await ask.register()
            before = (await ask(GetNameServerConfig())).properties
            assert before["scanNotActiveBrokerInterval"] == "5000"
            assert before["enableAllTopicList"] == "true"
            off = {"enableAllTopicList": "false", "enableTopicList": "false", "unheardOf": "1"}
            await ask(UpdateNameServerConfig(properties=off))
            after = (await ask(GetNameServerConfig())).properties
            assert after == before | {"enableAllTopicList": "false", "enableTopicList": "false"}
            for request in (GetAllTopics(), GetTopicsOfCluster(cluster="east"), GetUnitTopics()):
                with pytest.raises(BrokerFailure, match="disable"):
                    await ask(request)
            assert (await ask(GetSystemTopics())).topics == ["east", "broker-a"]
            for name in ("kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"):
                with pytest.raises(NoPermission, match="Can not update config in black list"):
                    await ask(UpdateNameServerConfig(properties={name: "x", "listenPort": "1"}))
            with pytest.raises(BrokerFailure, match=r"nothing changed, .*scan_interval"):
                await ask(
                    UpdateNameServerConfig(
                        properties={"scanNotActiveBrokerInterval": "x", "enableTopicList": "true"}
                    )
                )
            assert (await ask(GetNameServerConfig())).properties == after
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            with pytest.raises(BrokerFailure, match="disable"):
                await ask(GetAllTopics())

    anywhere.run(main())


@pytest.mark.parametrize(
    ("version", "strict", "quoted"),
    [
        (V4_9_3, None, False),
        (V4_9_3, False, False),
        (V4_9_3, True, True),
        (V4_9_4, None, True),
        (CURRENT, None, True),
    ],
)
def test_old_clients_get_the_old_dialect(memory, data, version, strict, quoted):
    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            await ask.register()
            for _ in range(2):
                command = GetRoute(topic="orders", strict_json=strict).command()
                command.version = version
                answer = await ask.peer.invoke(command, timeout=5)
                assert (b'{"0":"' in answer.body) is quoted
                assert (b'{0:"' in answer.body) is not quoted

    memory.run(main())


def test_clients_see_their_own_zone(memory, data):
    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            await ask.register("north", zone="north")
            await ask.register("south", address=B, zone="south")

            async def seen(**how: Any) -> list[str]:
                return [str(each.name) for each in (await ask.route(**how)).brokers]

            assert await seen(zone="NORTH", zone_mode=True) == ["north"]
            assert await seen(zone="west", zone_mode=True) == []
            for how in (
                {},
                {"zone": "north"},
                {"zone_mode": True},
                {"zone": " ", "zone_mode": True},
            ):
                assert await seen(**how) == ["north", "south"]

    memory.run(main())


def test_a_replica_acts_for_its_master(memory, data):
    async def main() -> None:
        acting = {"routes__acting_masters": True}
        async with name_server(memory, data, **acting) as server, client(memory, server) as ask:
            await ask.register(acting_master=True)
            await ask.register(broker_id=1, address=B, acting_master=True)
            leave = UnregisterBroker(broker="broker-a", address=A, cluster="east", broker_id=0)
            await ask(leave)
            route = await ask.route()
            assert route.brokers[0].addresses == {0: B}
            assert route.queues[0].perm == 4
            assert await ask.brokers() == {"broker-a": {1: B}}
            await ask.register(acting_master=True, counter=2)
            route = await ask.route()
            assert route.brokers[0].addresses == {0: A, 1: B}
            assert route.queues[0].perm == 6

    memory.run(main())


# --- strangers ------------------------------------------------------------------------------------


def test_nonsense_is_answered_and_changes_nothing(memory, data, caplog):
    caplog.set_level(logging.CRITICAL, "gantrymq.net")
    source = Random(20_260_318)
    bodies = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"x=1\n",
        b"\x78\x9c\x00",
        b"\xff\xfe",
        b'{"queueDatas":[{}]}',
    ]
    names = [
        *("brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId", "topic", "key"),
        *("namespace", "value", "cluster", "compressed", "bodyCrc32", "acceptStandardJsonOnly"),
        *("__ZONE_MODE", "__ZONE_NAME", "enableActingMaster", "heartbeatTimeoutMillis"),
    ]
    values = ["", "1", "-1", "true", "x" * 300, "9" * 40, "\u0000", "broker-a", "east", A]

    def nonsense() -> Command:
        fields = {name: source.choice(values) for name in source.sample(names, 6)}
        code = source.choice([*HANDLERS, 3, 10, 999_999])
        return Command(code, fields=fields, body=source.choice(bodies))

    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            await ask.register("witness", address=C)
            for _ in range(2000):
                answer = await ask.peer.invoke(nonsense(), timeout=5)
                assert answer.code in (0, 1, 3, 16, 17, 22), answer
            assert (await ask.route()).brokers[0].name == "witness"

    memory.run(main())


def test_what_belongs_to_a_broker_is_not_supported_here(memory, data):
    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            send = Command(RequestCode.SEND_MESSAGE_V2)
            answer = await ask.peer.invoke(send, timeout=5)
            assert answer.code == 3
            assert answer.remark == " request type 310 not supported: SEND_MESSAGE_V2"
            with pytest.raises(NotSupported):
                await ask(NotifyLeastBrokerChanged())

    memory.run(main())
