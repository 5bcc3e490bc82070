from __future__ import annotations

import zlib
from struct import pack

import pytest

from gantrymq.errors import RemoteProtocolError
from gantrymq.protocol import registration
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import (
    AddWritePermission,
    BrokerHeartbeat,
    DataVersionReply,
    NotifyLeastBrokerChanged,
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
    Registration,
    UnregisterBroker,
    WipeWritePermission,
    read_registration,
    write_registration,
)
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import TopicSettings, TopicTable
from gantrymq.wire.command import Command
from gantrymq.wire.versions import V3_0_11, V4_9_4, V5_0_0

TABLE = TopicTable(
    version=DataVersion(counter=3),
    topics={"T": TopicSettings(topic="T", perm=6), "U": TopicSettings(topic="U")},
    mappings={"U": QueueMapping(topic="U", broker="b", current_ids={0: 1})},
)
WHOLE = Registration(filter_servers=["f:1"], table=TABLE)


def broker(**changes: object) -> RegisterBroker:
    request = RegisterBroker(
        broker="b", address="a:1", cluster="c", ha_address="a:2", broker_id=0, zone="z"
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def test_header() -> None:
    assert broker().command().fields == {
        "brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "a:2",
        "brokerId": "0", "compressed": "false", "bodyCrc32": "0", "__ZONE_NAME": "z",
    }  # fmt: skip


@pytest.mark.parametrize("compressed", [False, True])
def test_there_and_back(compressed: bool) -> None:
    sent = broker()
    sent.carry(WHOLE, compressed=compressed)
    received = RegisterBroker.from_command(sent.command())
    assert received.registration() == WHOLE
    assert received.crc == zlib.crc32(bytes(received.body)) & 0x7FFFFFFF


def test_no_body_is_an_empty_table() -> None:
    assert broker().registration() == Registration()


def test_brokers_before_5_have_no_mappings_when_compressed() -> None:
    body = write_registration(WHOLE, compressed=True, version=V4_9_4)
    assert len(body) < len(write_registration(WHOLE, compressed=True, version=V5_0_0))
    found = read_registration(body, compressed=True, version=V4_9_4)
    assert (found.table.topics, found.table.mappings) == (TABLE.topics, {})
    assert read_registration(body, compressed=True, version=V5_0_0) == found


def test_brokers_before_3_0_11_send_the_bare_table() -> None:
    body = write_registration(WHOLE, version=V3_0_11 - 1)
    assert body.startswith(b'{"dataVersion"')
    found = read_registration(body, compressed=False, version=V3_0_11 - 1)
    assert found == Registration(table=TABLE)


def test_a_wrong_checksum_is_refused() -> None:
    request = broker()
    request.carry(WHOLE)
    request.crc += 1
    with pytest.raises(RemoteProtocolError, match="crc32 not match"):
        request.registration()
    request.crc = 0  # says that there is none
    assert request.registration() == WHOLE


BINARY = zlib.decompress(write_registration(WHOLE, compressed=True))
WITHOUT_MAPPINGS = len(zlib.decompress(write_registration(WHOLE, compressed=True, version=V4_9_4)))
SIZES = [size for size in range(0, len(BINARY), 7) if size != WITHOUT_MAPPINGS]


@pytest.mark.parametrize("size", SIZES)
def test_binary_forms_that_are_cut_off(size: int) -> None:
    body = zlib.compress(BINARY[:size])
    with pytest.raises(RemoteProtocolError):
        read_registration(body, compressed=True, version=V5_0_0)


@pytest.mark.parametrize(
    "body",
    [
        b"junk",
        zlib.compress(BINARY)[:-4],
        zlib.compress(pack(">i", -1)),
        zlib.compress(pack(">i", 2) + b"{}" + pack(">i", 1 << 30)),
        zlib.compress(pack(">i", 2) + b"{}" + pack(">ii", 1, 3) + b"T 1"),
        zlib.compress(pack(">i", 2) + b"[]"),
    ],
)
def test_binary_forms_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_registration(body, compressed=True, version=V5_0_0)


def test_what_is_too_large_when_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MOST_INFLATED", 1000)
    with pytest.raises(RemoteProtocolError, match="is over 1000 bytes"):
        read_registration(zlib.compress(bytes(5000)), compressed=True, version=V5_0_0)


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"topicConfigSerializeWrapper":5}'])
def test_json_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_registration(body, compressed=False, version=V5_0_0)


def test_the_answer_may_bring_order_topics() -> None:
    fields = {"masterAddr": "a:1"}
    body = b'{"table":{"T":"b:4"}}'
    reply = broker().reply_from(Command(0, fields=fields, body=body))
    assert reply == RegisterBrokerReply(master_address="a:1", order_topics={"T": "b:4"})
    assert reply.command().body == body
    assert RegisterBrokerReply().command().body == b""


def test_data_versions() -> None:
    request = QueryDataVersion(
        broker="b", address="a:1", cluster="c", broker_id=0, version=DataVersion(counter=2)
    )
    assert request.command().body == b'{"counter":2,"stateVersion":0,"timestamp":0}'
    reply = request.reply_from(Command(0, fields={"changed": "true"}))
    assert reply == DataVersionReply(changed=True)


def test_staying_and_going() -> None:
    beat = BrokerHeartbeat(cluster="c", address="a:1", broker="b", broker_id=0, timeout_ms=10_000)
    assert beat.command().fields["heartbeatTimeoutMills"] == "10000"
    gone = UnregisterBroker(broker="b", address="a:1", cluster="c", broker_id=0)
    assert gone.command().code == 104
    told = NotifyLeastBrokerChanged(least_id=1, broker="b", least_address="a:1")
    assert told.command().fields == {
        "minBrokerId": "1", "brokerName": "b", "minBrokerAddr": "a:1",
    }  # fmt: skip


def test_write_permission() -> None:
    wiped = WipeWritePermission(broker="b").reply_from(Command(0, fields={"wipeTopicCount": "3"}))
    added = AddWritePermission(broker="b").reply_from(Command(0, fields={"addTopicCount": "4"}))
    assert (wiped.count, added.count) == (3, 4)
