"""A broker's counts and tables, as metrics."""

from __future__ import annotations

from typing import Any

import pytest

from gantrymq.broker.measuring import measure
from gantrymq.protocol.enums import ConsumeType
from gantrymq.protocol.topics import TopicSettings
from gantrymq.wire import properties
from gantrymq.wire.codes import Language
from tests.unit.broker.people import Client, beat, wants
from tests.unit.broker.rig import Rig, on_loop, with_rig

LOCAL = ("local", "disk")


def measured(rig: Rig) -> dict[str, dict[tuple[object, ...], float]]:
    """Numbers by labels, by the name of the metric without what all have."""
    found: dict[str, dict[tuple[object, ...], float]] = {}
    for sample in measure(rig.broker):
        assert len(sample.values) == len(sample.metric.labels), sample
        name = sample.metric.name.removeprefix("rocketmq_").removeprefix("gantry_")
        values = found.setdefault(name, {})
        assert sample.values not in values, sample
        values[sample.values] = sample.number
    return found


def alone(found: dict[tuple[object, ...], float]) -> float:
    (number,) = found.values()
    return number


@on_loop
def test_a_broker_that_has_done_nothing(rig: Rig) -> None:
    found = measured(rig)
    assert alone(found["broker_permission"]) == 6
    assert alone(found["topic_number"]) == len(rig.broker.topics.table) > 0
    assert alone(found["consumer_group_number"]) == len(rig.broker.groups.table)
    assert found["processor_watermark"] == {("send",): 0, ("pull",): 0}
    assert found["processor_limit"] == {("send",): 10_000, ("pull",): 100_000}
    assert found["storage_message_reserve_time_milliseconds"] == {LOCAL: 0}
    assert alone(found["storage_writable"]) == 1
    assert alone(found["failed_puts_total"]) == 0
    for nothing in ("messages_in_total", "producer_connections", "consumer_lag_messages"):
        assert nothing not in found


@on_loop
def test_what_comes_in_and_goes_out(rig: Rig) -> None:
    for queue_id in (0, 0, 1):
        rig.send(queue_id=queue_id)
    size = sum(one.size for queue_id in (0, 1) for one in rig.stored(queue_id=queue_id))
    rig.send("bills", properties=properties.join({"DELAY": "3"}))
    rig.pull()
    found = measured(rig)
    assert found["messages_in_total"] == {
        ("orders", "normal", False): 3,
        ("SCHEDULE_TOPIC_XXXX", "delay", True): 1,
    }
    assert found["throughput_in_total"]["orders", "normal", False] == size
    assert found["messages_out_total"] == {("orders", "billing", False, False): 2}
    assert found["throughput_out_total"]["orders", "billing", False, False] < size
    rig.broker.counts.sent_back("billing", "orders", gave_up=False)
    assert "send_to_dlq_messages_total" not in measured(rig)
    rig.broker.counts.sent_back("billing", "orders", gave_up=True)
    assert measured(rig)["send_to_dlq_messages_total"] == {("billing", "orders", False): 1}


@on_loop
def test_the_type_is_that_of_the_topic(rig: Rig) -> None:
    typed = TopicSettings(topic="steps", attributes={"+message.type": "FIFO"})
    rig.broker.topics.put([typed])
    rig.send("steps", properties="__SHARDINGKEY\x01a\x02")
    assert measured(rig)["messages_in_total"] == {("steps", "fifo", False): 1}


@on_loop
def test_clients_by_language_and_version(rig: Rig) -> None:
    old = Client(client_id="old", version=493)
    odd = Client(client_id="odd", language=77)
    beat(rig, old, produces=("shop", "till"), consumes={"billing": wants("orders")})
    beat(rig, odd, consumes={"CID_RMQ_SYS_x": wants()}, consume_type=ConsumeType.PULL)
    beat(rig, Client(client_id="new", language=Language.PYTHON), produces=("shop",))
    found = measured(rig)
    assert found["producer_connections"] == {
        ("java", "v5_4_0", "remoting"): 2,
        ("python", "v5_5_0", "remoting"): 1,
    }
    assert found["consumer_connections"] == {
        ("billing", "java", "v5_4_0", "push", "remoting", False): 1,
        ("CID_RMQ_SYS_x", "unknown", "v5_5_0", "pull", "remoting", True): 1,
    }


@on_loop
def test_how_far_a_group_is_behind(rig: Rig) -> None:
    for number in range(10):
        rig.send(queue_id=number % 2)
        rig.now_ms += 1000
    beat(rig, Client(), consumes={"billing": wants("orders", "none", "%RETRY%billing")})
    about = ("billing", "orders", False, False)
    found = measured(rig)
    assert found["consumer_lag_messages"][about] == 0  # it begins at the end, as in RocketMQ
    retries = ("billing", "%RETRY%billing", True, False)
    assert set(found["consumer_lag_messages"]) == {about, retries}

    offsets = rig.broker.offsets
    offsets.commit("billing", "orders", 0, 1)
    offsets.commit("billing", "orders", 1, 3)
    offsets.pulled("billing", "orders", 0, 4)
    found = measured(rig)
    assert found["consumer_lag_messages"][about] == 4 + 2
    assert found["consumer_inflight_messages"][about] == 3
    assert found["consumer_ready_messages"][about] == 1 + 2
    assert found["consumer_lag_latency_milliseconds"][about] == 8000
    assert found["consumer_queueing_latency_milliseconds"][about] == 3000

    for queue_id in range(2):
        offsets.commit("billing", "orders", queue_id, 5)
        offsets.pulled("billing", "orders", queue_id, 5)
    found = measured(rig)
    for name, numbers in found.items():
        if name.startswith(("consumer_lag", "consumer_queueing")):
            assert set(numbers.values()) == {0}, name


@on_loop
def test_offsets_before_the_beginning_and_after_the_end(rig: Rig) -> None:
    rig.send()
    beat(rig, Client(), consumes={"billing": wants("orders")})
    rig.broker.offsets.commit("billing", "orders", 0, 100)
    rig.broker.offsets.pulled("billing", "orders", 0, -5)
    found = measured(rig)
    about = ("billing", "orders", False, False)
    assert found["consumer_lag_messages"][about] == 0
    assert found["consumer_inflight_messages"][about] == 0
    assert found["consumer_ready_messages"][about] == 6


@with_rig(store__flush__mode="sync")
def test_the_store(rig: Rig) -> None:
    sent = rig.send()
    found = measured(rig)
    assert alone(found["log_end_offset"]) == rig.store.log_end > 0
    assert found["storage_flush_behind_bytes"] == {LOCAL: rig.store.log_end}
    assert found["storage_dispatch_behind_bytes"] == {LOCAL: rig.store.log_end}
    assert found["processor_watermark"]["send",] == 0
    rig.store.flush()
    rig.now_ms += 500
    found = measured(rig)
    assert found["storage_flush_behind_bytes"] == {LOCAL: 0}
    assert found["storage_dispatch_behind_bytes"] == {LOCAL: 0}
    assert found["storage_message_reserve_time_milliseconds"] == {LOCAL: 500}
    usage = rig.store.fullness.usage
    assert found["storage_size_bytes"][LOCAL] + found["storage_free_bytes"][LOCAL] == usage.total
    sent.close()


@on_loop
def test_others_may_change_everything_between_two_samples(rig: Rig) -> None:
    def client(number: int) -> dict[str, Any]:
        return {
            "consumes": {f"g{number}": wants(f"t{number}", "orders")},
            "produces": (f"p{number}",),
        }

    for number in range(5):
        rig.send(f"t{number}")
        beat(rig, Client(client_id=f"c{number}"), **client(number))
    for number, _ in enumerate(measure(rig.broker), 100):
        rig.send(f"t{number}")
        rig.broker.groups.settings(f"g{number}")
        if number < 160:
            beat(rig, Client(client_id=f"c{number}"), **client(number))


@pytest.mark.parametrize("mode", ["PROM", "OTLP_GRPC", "DISABLE"])
def test_rocketmqs_settings(mode: str) -> None:
    from gantrymq.broker.config import BrokerConfig
    from gantrymq.broker.configs import as_properties
    from gantrymq.settings import load

    given = {"metricsExporterType": mode, "metricsPromExporterPort": "5558"}
    config = load(BrokerConfig, properties=given).value
    assert config.metrics.enabled == (mode != "DISABLE")
    assert config.metrics.port == 5558
    shown = as_properties(config)
    assert shown["metricsExporterType"] == ("DISABLE" if mode == "DISABLE" else "PROM")
    assert shown["metricsPromExporterHost"] == "127.0.0.1"
    assert load(BrokerConfig, properties=as_properties(BrokerConfig())).value == BrokerConfig()
    assert as_properties(BrokerConfig())["metricsPromExporterPort"] == ""
