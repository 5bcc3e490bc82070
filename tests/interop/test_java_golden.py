"""The golden vectors of `tests/golden`, made again by RocketMQ 5.5.0 while we look.

Those files are what nobody can change by accident on our side; this says that they are also what
the jars still write.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jars
import pytest
from peer import JavaPeer

from gantrymq.wire import properties
from gantrymq.wire.codes import Language
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.flags import Compression

GOLDEN = Path(__file__).parent.parent / "golden"


def golden(name: str) -> ModuleType:
    """A module of golden vectors."""
    spec = importlib.util.spec_from_file_location(f"golden_{name}", GOLDEN / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FRAMES = golden("test_frames").VECTORS
MESSAGES = golden("test_messages")
REQUESTS = golden("test_requests")


@pytest.fixture
def java(peers: Callable[[str], JavaPeer]) -> JavaPeer:
    return peers(jars.CURRENT)


def described(command: Command, header_type: HeaderType) -> dict[str, Any]:
    return {
        "code": int(command.code),
        "language": Language(command.language).name,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "fields": command.fields or None,
        "body": bytes(command.body) or None,
        "type": "JSON" if header_type is HeaderType.JSON else "ROCKETMQ",
    }


@pytest.mark.parametrize("name", FRAMES)
def test_frames(java: JavaPeer, name: str) -> None:
    header_type, command, text = FRAMES[name]
    frame = bytes.fromhex(text)
    description = described(command, header_type)
    assert java.ask("commands.decode", [[frame]]) == [[description]]
    (written,) = java.ask("commands.encode", [description])
    if header_type is HeaderType.JSON:
        assert written == frame
    else:
        # A typed header writes its fields in an order of its own, the map of this description in
        # another.
        assert_same_but_for_order(written, frame)


def assert_same_but_for_order(written: bytes, golden: bytes) -> None:
    """The same bytes, entries of a Java hash map among them in whatever order it has."""
    assert len(written) == len(golden)
    assert sorted(written) == sorted(golden)


@pytest.mark.parametrize("name", MESSAGES.RECORDS)
def test_records(java: JavaPeer, name: str) -> None:
    message, text = MESSAGES.RECORDS[name]
    asked = {
        "version": message.version,
        "topic": message.topic,
        "flag": message.flag,
        "body": message.body,
        "properties": message.properties,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "log_offset": message.log_offset,
        "sys_flag": message.sys_flag,
        "born_time": message.born_ms,
        "born_host": [message.born_ip, message.born_port],
        "store_time": message.store_ms,
        "store_host": [message.store_ip, message.store_port],
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_offset,
    }
    (written,) = java.ask("messages.encode", [asked])
    assert_same_but_for_order(written, bytes.fromhex(text))
    (read,) = java.ask("messages.decode", [bytes.fromhex(text)])
    assert [{name: each[name] for name in asked.keys() - {"version"}} for each in read] == [
        {name: value for name, value in asked.items() if name != "version"}
    ]


def test_batch_and_properties(java: JavaPeer) -> None:
    asked = [
        {"flag": each.flag, "body": each.body, "properties": each.properties}
        for each in MESSAGES.BATCH_MESSAGES
    ]
    (written,) = java.ask("batch.encode", [asked])
    assert_same_but_for_order(written, bytes.fromhex(MESSAGES.BATCH))
    (read,) = java.ask("batch.decode", [bytes.fromhex(MESSAGES.BATCH)])
    assert read == [each | {"topic": None} for each in asked]
    text = bytes.fromhex(MESSAGES.PROPERTIES).decode()
    assert java.ask("properties.write", [properties.split(text)]) == [text]


@pytest.mark.parametrize("kind", list(Compression), ids=lambda kind: kind.name.lower())
def test_compressed_bodies(java: JavaPeer, kind: Compression) -> None:
    asked = {"flags": kind.bits, "level": 5, "body": b"A" * 64}
    (written,) = java.ask("compress", [asked])
    assert written.hex() == MESSAGES.COMPRESSED[kind]


def test_registration(java: JavaPeer) -> None:
    asked = {"body": REQUESTS.REGISTRATION_TEXT, "compress": True}
    (written,) = java.ask("registration.write", [asked])
    assert written == REQUESTS.REGISTRATION_DEFLATED
    (text,) = java.ask(
        "bodies.echo", [{"class": "RegisterBrokerBody", "body": REQUESTS.REGISTRATION_TEXT}]
    )
    assert text == REQUESTS.REGISTRATION_TEXT


@pytest.mark.parametrize("name", REQUESTS.SIGNATURES)
def test_signatures(java: JavaPeer, name: str) -> None:
    command, credentials, expected = REQUESTS.SIGNATURES[name]
    asked = {
        "fields": dict(command.fields),
        "body": bytes(command.body) or None,
        "access_key": credentials.access_key,
        "secret_key": credentials.secret_key,
        "token": credentials.security_token,
    }
    (fields,) = java.ask("acl.sign", [asked])
    assert fields["Signature"] == expected
