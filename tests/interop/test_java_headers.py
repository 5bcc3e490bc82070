"""The header fields of our catalogue against the fields of RocketMQ's header classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import catalogue
import jars
import pytest
from catalogue import Stand
from peer import JavaPeer

from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.declaring import Part
from gantrymq.wire.command import MAX_CODE_IN_BINARY, Command, HeaderType
from gantrymq.wire.connection import Connection

PER_CLASS = 40

header_types = pytest.mark.parametrize(
    "header_type", list(HeaderType), ids=lambda t: t.name.lower()
)

FREE_FIELDS = {
    "MSG_REGION",
    "TRACE_ON",
    "_UNIQUE_KEY_QUERY",
    "IS_SUPPORT_HEART_BEAT_V2",
    "IS_SUB_CHANGE",
    "__ZONE_NAME",
    "__ZONE_MODE",
}
"""Written by Java with `addExtField`, so no header class has them."""

ELSEWHERE = {
    # The short form carries the broker's name as `n`; `bname` is there by inheritance alone.
    "SendMessageRequestHeaderV2": {"bname"},
    # 4.9 says removeOffset for what 5.x calls cleanOffset.
    "DeleteSubscriptionGroupRequestHeader": {"removeOffset"},
}
"""Fields of Java's classes that ours leave out, and why."""

LETTERS_ONLY = "SendMessageRequestHeaderV2"
"""Its own decoder, for both header types, reads the single letters and not what is inherited."""


@pytest.fixture(scope="session")
def java_headers(peers: Callable[[str], JavaPeer]) -> Callable[[str], dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}

    def headers_of(version: str) -> dict[str, Any]:
        if version not in known:
            (known[version],) = peers(version).ask("headers.list", [None])
        return known[version]

    return headers_of


def differences(stand: Stand, java: dict[str, Any], *, whole: bool) -> list[str]:
    """What is not the same; `whole`: neither side may have more fields than the other."""
    ours = stand.header()
    expected = java.keys() - ELSEWHERE.get(stand.java, set())
    found = [f"{stand.label()}: {name} is missing" for name in expected if name not in ours]
    for name, part in ours.items():
        if name in java:
            found += unequal(f"{stand.label()}: {name}", part, java[name])
        elif whole and name not in FREE_FIELDS:
            found.append(f"{stand.label()}: {name} is not in Java's class")
    return found


def unequal(where: str, part: Part, field: dict[str, Any]) -> list[str]:
    found = []
    if field["type"] not in catalogue.java_types(part):
        found.append(f"{where} is {field['type']} in Java, {part.hint} here")
    always_sent = field["required"] or field["type"] in ("int", "long", "boolean", "double")
    if part.required and not always_sent:
        found.append(f"{where} is required here, and may be null in Java")
    return found


def test_every_field_of_the_current_release(
    java_headers: Callable[[str], dict[str, Any]],
) -> None:
    java = java_headers(jars.CURRENT)
    found = []
    for stand in catalogue.stands():
        if stand.java in java:
            found += differences(stand, java[stand.java]["fields"], whole=True)
    assert found == []


def test_every_field_of_the_old_release(java_headers: Callable[[str], dict[str, Any]]) -> None:
    java = java_headers(jars.OLD)
    found = []
    for stand in catalogue.stands():
        if stand.java in java:
            found += differences(stand, java[stand.java]["fields"], whole=False)
    assert found == []


def test_each_request_stands_for_the_header_that_java_has_under_its_code(
    java_headers: Callable[[str], dict[str, Any]],
) -> None:
    stood_for = {(stand.java, stand.code) for stand in catalogue.stands()}
    requests = catalogue.requests()
    missing = [
        f"{requests[facts['code']].__name__} ({facts['code']}) does not name {name}"
        for name, facts in java_headers(jars.CURRENT).items()
        if facts["code"] in requests
        and "Response" not in name
        and any(not field["inherited"] for field in facts["fields"].values())
        and (name, facts["code"]) not in stood_for
    ]
    assert missing == []


def travelling(java: dict[str, Any]) -> list[Stand]:
    """What can be exchanged with Java by its header alone, without a body."""
    return [
        stand
        for stand in catalogue.stands()
        if stand.java in java
        and issubclass(stand.ours, Request | Reply)
        and not any(part.required for part in stand.body())
    ]


@header_types
def test_values_both_ways(
    peer: JavaPeer,
    java_headers: Callable[[str], dict[str, Any]],
    header_type: HeaderType,
    rng: Random,
) -> None:
    """Java's header to our class, that to a command again, and the command back to Java."""
    stands = travelling(java_headers(peer.version))
    assert len(stands) > 30
    for stand in stands:
        made = peer.ask("headers.make", [asked(stand, header_type, rng) for _ in range(PER_CLASS)])
        commands = [reread(stand, each["frame"]) for each in made]
        for command, each in zip(commands, made, strict=True):
            assert lost(stand, each["values"], command.fields) == {}, stand.label()
        frames = [b"".join(Connection(header_type=header_type).encode(c)) for c in commands]
        read = peer.ask("headers.read", [{"class": stand.java, "frame": f} for f in frames])
        for command, values in zip(commands, read, strict=True):
            known = {n: v for n, v in command.fields.items() if n in values}  # 4.9 knows fewer
            assert lost(stand, known, values) == {}, stand.label()


def lost(
    stand: Stand, sent: Mapping[str, str | None], got: Mapping[str, str | None]
) -> dict[str, tuple[str, str | None]]:
    """The fields that were sent and did not arrive as they were.

    What the sender leaves out may appear at the other end, with the default declared there.
    """
    return {
        name: (text, got.get(name))
        for name, text in sent.items()
        if text is not None and got.get(name) != text and travels(stand, name)
    }


def travels(stand: Stand, name: str) -> bool:
    if stand.java == LETTERS_ONLY:
        return len(name) == 1
    return name not in ELSEWHERE.get(stand.java, set())


def asked(stand: Stand, header_type: HeaderType, rng: Random) -> dict[str, Any]:
    """A header for Java to make up; POP and its kin cannot travel with a binary header."""
    code = stand.code or 0
    binary = header_type is HeaderType.BINARY and code <= MAX_CODE_IN_BINARY
    limited = {name: catalogue.choices(part) for name, part in stand.header().items()}
    return {
        "class": stand.java,
        "code": code,
        "seed": rng.getrandbits(32),
        "type": "ROCKETMQ" if binary else "JSON",
        "choices": {name: values for name, values in limited.items() if values is not None},
    }


def reread(stand: Stand, frame: bytes) -> Command:
    (command,) = Connection().feed(frame)
    written: Command = stand.ours.from_command(command).command()
    return written
