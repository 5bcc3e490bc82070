"""Which brokers there are, which of them a command is for, and how they are."""

from __future__ import annotations

import pytest

from gantrymq.errors import ConnectFailed, InvalidInput
from gantrymq.flows import clusters
from gantrymq.protocol.brokers import GetRuntimeInfo
from gantrymq.protocol.configs import KeyTable
from gantrymq.protocol.registration import TopicsWiped, WipeWritePermission
from gantrymq.protocol.routing import BrokerData, ClusterInfo, GetClusterInfo
from gantrymq.runtime import run_blocking
from tests.unit.flows.world import NS, REPLICA, A, B, cluster, world


def test_every_broker_with_its_place() -> None:
    _, reach = world()
    found = run_blocking(clusters.list_brokers(reach))
    assert [(one.cluster, one.name, one.id, one.address) for one in found] == [
        ("C", "broker-a", 0, A),
        ("C", "broker-b", 0, B),
        ("C", "broker-b", 1, REPLICA),
    ]
    assert [one.is_master for one in found] == [True, True, False]


def test_a_command_is_for_all_masters_or_those_named() -> None:
    _, reach = world()
    assert run_blocking(clusters.masters(reach)) == {"broker-a": A, "broker-b": B}
    assert run_blocking(clusters.masters(reach, brokers=["broker-b"])) == {"broker-b": B}
    assert run_blocking(clusters.masters(reach, cluster="C")) == {"broker-a": A, "broker-b": B}


def test_what_is_not_there_is_answered_with_what_is() -> None:
    _, reach = world()
    with pytest.raises(InvalidInput, match="'D'; there is: C"):
        run_blocking(clusters.masters(reach, cluster="D"))
    with pytest.raises(InvalidInput, match="'broker-x'; there is: broker-a, broker-b"):
        run_blocking(clusters.masters(reach, brokers=["broker-x"]))
    with pytest.raises(InvalidInput, match="'nobody', or is at that address; there is: broker-a"):
        run_blocking(clusters.place_of(reach, "nobody"))


def test_several_clusters_are_a_question() -> None:
    runtime, reach = world()
    info = cluster()
    info.clusters["D"] = set()
    runtime.answer(NS, GetClusterInfo, info)
    with pytest.raises(InvalidInput, match="2 clusters here: say which of C, D"):
        run_blocking(clusters.masters(reach))


def test_no_broker_and_no_master_say_so() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetClusterInfo, ClusterInfo())
    with pytest.raises(InvalidInput, match="no broker has registered"):
        run_blocking(clusters.masters(reach))
    orphan = BrokerData(cluster="C", name="broker-a", addresses={1: REPLICA})
    runtime.answer(
        NS, GetClusterInfo, ClusterInfo(brokers={"broker-a": orphan}, clusters={"C": {"broker-a"}})
    )
    with pytest.raises(InvalidInput, match=r"no master now, only replicas \(b1:10911\)"):
        run_blocking(clusters.masters(reach))


def test_how_brokers_are_is_read_from_their_own_words() -> None:
    runtime, reach = world()
    said = {
        "brokerVersionDesc": "V4_9_7",
        "brokerActive": "true",
        "putTps": "12.5 3.0 1.0",
        "getTransferredTps": "",
        "msgPutTotalTodayNow": "120",
        "msgPutTotalTodayMorning": "20",
        "commitLogDiskRatio": "0.42",
        "earliestMessageTimeStamp": "-1",
    }
    runtime.answer(A, GetRuntimeInfo, KeyTable(table=said))
    runtime.answer(REPLICA, GetRuntimeInfo, ConnectFailed("gone"))
    first, _, replica = run_blocking(clusters.describe_cluster(reach))
    assert (first.version, first.put_tps, first.disk_ratio) == ("4.9.7", 12.5, 0.42)
    assert first.puts_today == 100
    assert first.get_tps is first.gets_today is first.oldest_ms is None
    assert isinstance(replica.error, ConnectFailed)
    assert replica.put_tps is None


def test_a_broker_is_named_or_addressed() -> None:
    runtime, reach = world()
    runtime.answer(NS, WipeWritePermission, TopicsWiped(count=4))
    assert run_blocking(clusters.describe_broker(reach, REPLICA)).version == "5.5.0"
    assert run_blocking(clusters.wipe_write_permission(reach, B)) == {NS: 4}
    assert runtime.asked(WipeWritePermission)[0][1].broker == "broker-b"
