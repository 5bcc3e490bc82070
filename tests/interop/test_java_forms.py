"""Values that travel in a form of their own: handles, signatures, topic lines, registrations."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random
from typing import Any

import generated
import jars
import pytest
from peer import JavaPeer

from gantrymq.protocol import pop_handles, signing
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.pop_handles import PopHandle, RecallHandle
from gantrymq.protocol.registration import (
    Registration,
    checksum,
    read_registration,
    write_registration,
)
from gantrymq.protocol.signing import Credentials
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import TopicSettings, TopicTable
from gantrymq.wire import versions
from gantrymq.wire.command import Command

COUNT = 500
VERSION_OF = {jars.CURRENT: versions.V5_5_0, jars.OLD: versions.ordinal(4, 9, 7)}


@pytest.fixture
def current(peers: Callable[[str], JavaPeer]) -> JavaPeer:
    return peers(jars.CURRENT)


def call(peer: JavaPeer, target: str, arguments: list[list[Any]]) -> list[Any]:
    """Results of the static method `Class.method`, once for each list of arguments."""
    java, _, method = target.rpartition(".")
    return peer.ask("call", [{"class": java, "method": method, "args": each} for each in arguments])


def handle(rng: Random) -> PopHandle:
    return PopHandle(
        start_offset=rng.randrange(2**63),
        pop_ms=rng.randrange(2**63),
        invisible_ms=rng.randrange(2**40),
        revive_queue_id=rng.randint(0, 8),
        retry=rng.randint(0, 2),
        broker=generated.name(rng),
        queue_id=rng.randint(-1, 1000),
        offset=rng.randrange(2**63),
    )


# Which of the three kinds of topic is meant, Java tells by the topic's name.
RETRY_TOPICS = {0: "T", 1: "%RETRY%G_T", 2: "%RETRY%G+T"}


def test_pop_handles(current: JavaPeer, rng: Random) -> None:
    made = [handle(rng) for _ in range(COUNT)]
    arguments = [
        [
            h.start_offset,
            h.pop_ms,
            h.invisible_ms,
            h.revive_queue_id,
            RETRY_TOPICS[h.retry],
            h.broker,
            h.queue_id,
            h.offset,
        ]
        for h in made
    ]
    written = call(current, "ExtraInfoUtil.buildExtraInfo", arguments)
    assert written == [str(h) for h in made]
    assert [PopHandle.read(text) for text in written] == made


def sources(rng: Random) -> list[pop_handles.Source]:
    return list({(rng.randint(0, 2), rng.randint(0, 30)) for _ in range(rng.randint(1, 6))})


def joined(peer: JavaPeer, method: str, entries: list[list[Any]]) -> str:
    """What Java's method makes, one entry added to the text after the other."""
    text = ""
    for entry in entries:
        (text,) = call(
            peer, f"ExtraInfoUtil.{method}", [[text, RETRY_TOPICS[entry[0]], *entry[1:]]]
        )
    return text


def test_pop_infos(current: JavaPeer, rng: Random) -> None:
    for _ in range(20):
        starts = {source: rng.randrange(2**40) for source in sources(rng)}
        entries = [[*source, offset] for source, offset in starts.items()]
        text = joined(current, "buildStartOffsetInfo", entries)
        assert pop_handles.write_start_offsets(starts) == text
        assert pop_handles.read_start_offsets(text) == starts

        taken = {s: [rng.randrange(2**40) for _ in range(rng.randint(1, 5))] for s in sources(rng)}
        text = joined(
            current, "buildMsgOffsetInfo", [[*s, offsets] for s, offsets in taken.items()]
        )
        assert pop_handles.write_offsets(taken) == text
        assert pop_handles.read_offsets(text) == taken


def test_order_counts(current: JavaPeer, rng: Random) -> None:
    for _ in range(20):
        queues = {source: rng.randint(0, 99) for source in sources(rng)}
        text = joined(current, "buildQueueIdOrderCountInfo", [[*s, n] for s, n in queues.items()])
        assert pop_handles.read_order_counts(text).by_queue == queues
        offsets = {(*source, rng.randrange(2**40)): rng.randint(0, 99) for source in sources(rng)}
        entries = [[*at, n] for at, n in offsets.items()]
        text = joined(current, "buildQueueOffsetOrderCountInfo", entries)
        assert pop_handles.read_order_counts(text).by_offset == offsets
        counts = pop_handles.OrderCounts(by_queue=queues, by_offset=offsets)
        (parsed,) = call(current, "ExtraInfoUtil.parseOrderCountInfo", [[str(counts)]])
        assert len(parsed) == len(queues) + len(offsets)


def test_recall_handles(current: JavaPeer, rng: Random) -> None:
    made = [
        RecallHandle(
            topic=generated.name(rng),
            broker=generated.name(rng),
            deliver_ms=rng.randrange(2**50),
            message_id=rng.randbytes(16).hex().upper(),
        )
        for _ in range(COUNT)
    ]
    arguments = [[h.topic, h.broker, str(h.deliver_ms), h.message_id] for h in made]
    written = call(current, "RecallMessageHandle.HandleV1.buildHandle", arguments)
    assert [RecallHandle.read(text) for text in written] == made
    read = call(current, "RecallMessageHandle.decodeHandle", [[str(h)] for h in made])
    assert [
        [each["Topic"], each["BrokerName"], each["TimestampStr"], each["MessageId"]]
        for each in read
    ] == arguments


def test_signatures(peer: JavaPeer, rng: Random) -> None:
    commands, credentials = [], []
    for _ in range(COUNT):
        # Names as headers have them: Java sorts by UTF-16, we by code point.
        made = {generated.name(rng): generated.text(rng) for _ in range(rng.randint(0, 9))}
        commands.append(Command(10, fields=made, body=generated.body(rng)))
        token = generated.text(rng, least=1) if rng.random() < 0.3 else None
        credentials.append(
            Credentials(
                access_key=generated.name(rng),
                secret_key=generated.text(rng, least=1),
                security_token=token,
            )
        )
    asked = [
        {
            "fields": dict(command.fields),
            "body": bytes(command.body) or None,
            "access_key": who.access_key,
            "secret_key": who.secret_key,
            "token": who.security_token,
        }
        for command, who in zip(commands, credentials, strict=True)
    ]
    for command, who in zip(commands, credentials, strict=True):
        signing.sign(command, who)
    assert peer.ask("acl.sign", asked) == [command.fields for command in commands]


def settings(rng: Random) -> TopicSettings:
    letters = string.ascii_letters + '.{}":,ü'
    attributes = {
        "".join(rng.choices(letters, k=5)): "".join(rng.choices(letters + "😀", k=9))
        for _ in range(rng.randint(0, 3))
    }
    return TopicSettings(
        topic=generated.name(rng),
        read_queues=rng.randint(0, 99),
        write_queues=rng.randint(0, 99),
        perm=rng.randint(0, 7),
        filter_type=rng.choice(list(TopicFilterType)),
        attributes=attributes,
    )


def test_lines_of_topic_settings(peer: JavaPeer, rng: Random) -> None:
    made = [settings(rng) for _ in range(COUNT)]
    if peer.version == jars.OLD:
        for each in made:
            each.attributes = {}  # came with 5.0
    lines = [each.line() for each in made]
    if peer.version == jars.OLD:
        lines = [line.rpartition(" ")[0] for line in lines]
    assert [TopicSettings.from_line(line) for line in peer.ask("topics.text", lines)] == made


def registration(rng: Random, release: str) -> Registration:
    table = TopicTable(version=DataVersion(counter=rng.randrange(2**40), timestamp_ms=1))
    for _ in range(rng.randint(2, 40)):
        each = settings(rng)
        if release == jars.OLD:
            each.attributes = {}
        table.topics[str(each.topic)] = each
    if release == jars.CURRENT:
        for topic in rng.sample(sorted(table.topics), 2):
            table.mappings[topic] = QueueMapping(
                topic=topic, total_queues=8, broker="broker-a", scope="s", current_ids={0: 1, 3: 2}
            )
    return Registration(filter_servers=[], table=table)


def test_registrations_in_both_forms(peer: JavaPeer, rng: Random) -> None:
    version = VERSION_OF[peer.version]
    made = [registration(rng, peer.version) for _ in range(40)]
    plain = [write_registration(each, version=version) for each in made]
    deflated = [write_registration(each, compressed=True, version=version) for each in made]

    if peer.version != jars.OLD:
        # 4.9 reads topic lines of five items only, so it cannot read ours, nor those of Java's 5.x.
        read = peer.ask("registration.read", [{"body": b, "version": version} for b in deflated])
        # What the binary form has no place for, Java makes up: the version of the mappings.
        kept = [read_registration(text, compressed=False, version=version) for text in read]
        assert [without_mapping_version(each) for each in kept] == made

    asked = [{"body": text, "compress": True} for text in plain]
    for ours, body in zip(made, peer.ask("registration.write", asked), strict=True):
        found = read_registration(body, compressed=True, version=version)
        assert without_mapping_version(found) == ours
    (crc,) = peer.ask("crc", [plain[0]])
    assert crc == checksum(plain[0])


def without_mapping_version(found: Registration) -> Registration:
    found.table.mapping_version = TopicTable().mapping_version
    return found
