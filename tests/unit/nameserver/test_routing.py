"""Routes, and what makes them other ones."""

import orjson
import pytest

from gantrymq.nameserver.routing import Answers, find_route, in_zone, written
from gantrymq.nameserver.state import Tables
from gantrymq.protocol.names import member_sync_topic
from gantrymq.protocol.routing import BrokerData, QueueData, TopicRoute
from gantrymq.protocol.static_topics import QueueMapping
from tests.unit.nameserver.asking import A, B, C, place, registration, take


@pytest.fixture
def tables() -> Tables:
    return Tables()


def test_a_route_has_the_queues_and_addresses_of_every_broker(tables):
    take(tables, registration())
    take(tables, registration(broker_id=1, address=B))
    take(tables, registration("broker-b", address=C, topics=["orders", "own"]))
    route = find_route(tables, "orders")
    assert [queues.broker for queues in route.queues] == ["broker-a", "broker-b"]
    assert [data.addresses for data in route.brokers] == [{0: A, 1: B}, {0: C}]
    assert (route.filter_servers, route.order, route.mappings) == ({}, None, None)
    assert [data.name for data in find_route(tables, "own").brokers] == ["broker-b"]
    assert find_route(tables, "unknown") is None


def test_a_route_has_mappings_and_filter_servers_if_there_are_any(tables):
    mapping = QueueMapping(topic="orders", broker="broker-a", total_queues=4, current_ids={0: 3})
    take(tables, registration(filter_servers=["f:1"], mappings={"orders": mapping}))
    take(tables, registration("broker-b", address=B))
    route = find_route(tables, "orders")
    assert route.filter_servers == {A: ["f:1"]}
    assert route.mappings == {"broker-a": mapping}
    assert find_route(tables, "bills").mappings is None


# --- acting masters -------------------------------------------------------------------------------


def replicas(tables: Tables, *, acting: bool | None, topics=("orders", "bills")) -> None:
    """A name whose master is gone."""
    for broker_id, address in enumerate((A, B, C)):
        take(
            tables,
            registration(broker_id=broker_id, address=address, acting_master=acting, topics=topics),
        )
    tables.stop_writes("broker-a")
    del tables.brokers["broker-a"].addresses[0]


def test_the_smallest_replica_is_shown_as_master_where_that_is_wanted(tables):
    replicas(tables, acting=True)
    (shown,) = find_route(tables, "orders", acting_masters=True).brokers
    assert shown.addresses == {0: B, 2: C}
    (shown,) = find_route(tables, "orders").brokers
    assert shown.addresses == {1: B, 2: C}
    assert tables.brokers["broker-a"].addresses == {1: B, 2: C}


def test_not_where_replicas_do_not_act_or_the_queues_may_be_written_to(tables):
    replicas(tables, acting=False)
    (shown,) = find_route(tables, "orders", acting_masters=True).brokers
    assert shown.addresses == {1: B, 2: C}
    tables.brokers["broker-a"].acting_master = True
    tables.set_permission("broker-a", put=6)
    (shown,) = find_route(tables, "orders", acting_masters=True).brokers
    assert shown.addresses == {1: B, 2: C}


def test_not_for_what_brokers_say_among_themselves(tables):
    topic = member_sync_topic("broker-a")
    replicas(tables, acting=True, topics=("orders", topic))
    (shown,) = find_route(tables, topic, acting_masters=True).brokers
    assert shown.addresses == {1: B, 2: C}


def test_nor_where_there_is_a_master(tables):
    take(tables, registration(acting_master=True))
    tables.stop_writes("broker-a")
    (shown,) = find_route(tables, "orders", acting_masters=True).brokers
    assert shown.addresses == {0: A}


# --- zones ----------------------------------------------------------------------------------------


def zones(tables: Tables) -> TopicRoute:
    take(tables, registration("north", address=A, zone="North", filter_servers=["f:1"]))
    take(tables, registration("south", address=B, zone="south", filter_servers=["f:2"]))
    take(tables, registration("none", address=C))
    for name, address in (("orphan", "10.0.0.4:1"),):
        take(tables, registration(name, broker_id=1, address=address, acting_master=True))
    return find_route(tables, "orders")


def test_a_zone_hides_masters_of_other_zones(tables):
    route = in_zone(zones(tables), "NORTH")
    assert [data.name for data in route.brokers] == ["north", "orphan"]
    assert [queues.broker for queues in route.queues] == ["north", "orphan"]
    assert route.filter_servers == {A: ["f:1"]}


def test_a_zone_may_hide_everything(tables):
    take(tables, registration(zone="north"))
    route = in_zone(find_route(tables, "orders"), "south")
    assert (route.brokers, route.queues) == ([], [])


# --- answers --------------------------------------------------------------------------------------

ROUTE = TopicRoute(
    queues=[QueueData(broker="broker-a", read_queues=8, write_queues=8, perm=6)],
    brokers=[BrokerData(cluster="DefaultCluster", name="broker-a", addresses={0: A, 1: B})],
)


@pytest.mark.parametrize(("strict", "keys"), [(True, (b'"0":', b'"1":')), (False, (b"0:", b"1:"))])
def test_both_dialects_to_the_byte(strict, keys):
    zero, one = keys
    expected = (
        b'{"brokerDatas":[{"brokerAddrs":{%b"10.0.0.1:10911",%b"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}' % (zero, one)
    )
    assert written(ROUTE, strict=strict).command().body == expected


def test_answers_hold_until_the_tables_change(tables):
    take(tables, registration())
    answers = Answers(tables)
    assert answers.find("orders", strict=True) is None
    kept = answers.keep("orders", find_route(tables, "orders"), strict=True)
    assert answers.find("orders", strict=True) is kept
    assert answers.find("orders", strict=False) is None
    take(tables, registration())
    assert answers.find("orders", strict=True) is kept
    take(tables, registration("broker-b", address=B))
    assert answers.find("orders", strict=True) is None
    assert len(answers) == 0


def test_a_written_answer_is_a_route_to_its_reader(tables):
    take(tables, registration())
    answer = written(find_route(tables, "orders"), strict=True).command()
    tree = orjson.loads(answer.body)
    assert tree["brokerDatas"][0]["brokerAddrs"] == {"0": A}
    assert (answer.code, answer.remark, answer.fields) == (0, None, {})
    assert place() in tables.live
