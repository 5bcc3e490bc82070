"""Commands between our `Connection` and the encoder and decoder of RocketMQ's network pipeline."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import generated
import pytest
from peer import JavaPeer

from gantrymq.wire.codes import Language
from gantrymq.wire.command import MAX_CODE_IN_BINARY, Command, HeaderType
from gantrymq.wire.connection import Connection

COUNT = 10_000
JAVA_TYPE = {HeaderType.JSON: "JSON", HeaderType.BINARY: "ROCKETMQ"}

header_types = pytest.mark.parametrize(
    "header_type", list(HeaderType), ids=lambda t: t.name.lower()
)


@pytest.fixture(scope="session")
def languages(peers: Callable[[str], JavaPeer]) -> Callable[[str], dict[str, int]]:
    """The languages that a release knows, by name."""
    known: dict[str, dict[str, int]] = {}

    def languages_of(version: str) -> dict[str, int]:
        if version not in known:
            known[version] = peers(version).ask("codes", [None])[0]["LanguageCode"]
        return known[version]

    return languages_of


def frame(command: Command, header_type: HeaderType) -> bytes:
    return b"".join(Connection(header_type=header_type).encode(command))


def fits_binary(command: Command) -> bool:
    return -0x8000 <= command.code <= MAX_CODE_IN_BINARY


def as_java_reads(
    command: Command, header_type: HeaderType, languages: dict[str, int]
) -> dict[str, Any]:
    """What has to come out of Java's decoder for a command that we wrote."""
    binary = header_type is HeaderType.BINARY and fits_binary(command)
    numbers = {number: name for name, number in languages.items()}
    fields: dict[Any, Any] = dict(command.fields)
    remark = command.remark
    if binary:
        # In the binary header a text of no bytes stands for null: an empty remark, name or value
        # cannot be told from an absent one.
        remark = remark or None
        fields = {name or None: value or None for name, value in command.fields.items()}
        language = numbers.get(command.language)
    else:
        # By name, what has none goes as OTHER; a name that this release lacks is null to it.
        spelled = Language(command.language)
        language = spelled.name if spelled.known else "OTHER"
        language = language if language in languages else None
    return {
        "code": command.code,
        "language": language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": remark,
        "fields": fields or None,  # we leave an empty extFields out
        "body": bytes(command.body) or None,  # Java has null for a body of no bytes
        "type": "ROCKETMQ" if binary else "JSON",
    }


@header_types
def test_java_reads_what_we_write(
    peer: JavaPeer,
    languages: Callable[[str], dict[str, int]],
    header_type: HeaderType,
    rng: Random,
) -> None:
    commands = [generated.command(rng) for _ in range(COUNT)]
    read = peer.ask("commands.decode", [[frame(c, header_type)] for c in commands])
    known = languages(peer.version)
    for command, values in zip(commands, read, strict=True):
        assert values == [as_java_reads(command, header_type, known)], command


@header_types
def test_java_reads_a_stream_cut_anywhere(
    peer: JavaPeer,
    languages: Callable[[str], dict[str, int]],
    header_type: HeaderType,
    rng: Random,
) -> None:
    commands = [generated.command(rng) for _ in range(500)]
    stream = b"".join(frame(c, header_type) for c in commands)
    cuts = sorted(rng.sample(range(1, len(stream)), 2000))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    known = languages(peer.version)
    (read,) = peer.ask("commands.decode", [chunks])
    assert read == [as_java_reads(c, header_type, known) for c in commands]


def java_command(rng: Random, languages: dict[str, int]) -> dict[str, Any]:
    """A description that Java turns into a command of its own."""
    made = generated.command(rng)
    fields: dict[str, str] | None = made.fields
    if not made.fields and rng.random() < 0.5:
        fields = None
    return {
        "code": made.code,
        "language": rng.choice(sorted(languages)),
        "version": made.version,
        "opaque": made.opaque,
        "flag": made.flag,
        "remark": made.remark,
        "fields": fields,
        "body": bytes(made.body) if made.body or rng.random() < 0.5 else None,
    }


def as_we_read(item: dict[str, Any]) -> Command:
    """What has to come out of our decoder for a command that Java wrote."""
    binary = item["type"] == "ROCKETMQ"
    code, remark, fields = item["code"], item["remark"], item["fields"] or {}
    if binary:
        code = (code + 0x8000) % 0x1_0000 - 0x8000  # Java cuts a code that needs more than 16 bits
        remark = remark or None  # a text of no bytes is null, as above; null is absent to us
        fields = {name: value for name, value in fields.items() if name and value}
    return Command(
        code,
        opaque=item["opaque"],
        flag=item["flag"],
        remark=remark,
        fields=fields,
        body=item["body"] or b"",
        language=Language[item["language"]].value,
        version=item["version"],
    )


@header_types
def test_we_read_what_java_writes(
    peer: JavaPeer,
    languages: Callable[[str], dict[str, int]],
    header_type: HeaderType,
    rng: Random,
) -> None:
    known = languages(peer.version)
    items = [java_command(rng, known) | {"type": JAVA_TYPE[header_type]} for _ in range(COUNT)]
    frames = peer.ask("commands.encode", items)
    connection = Connection()
    for item, written in zip(items, frames, strict=True):
        assert list(connection.feed(written)) == [as_we_read(item)], item
    assert not connection.mid_frame


def test_a_null_language_from_java_counts_as_java(peer: JavaPeer) -> None:
    item = {"code": 1, "language": None, "type": "JSON", "version": 401}
    (written,) = peer.ask("commands.encode", [item])
    (command,) = Connection().feed(written)
    assert command.language == Language.JAVA


@header_types
def test_a_frame_of_the_largest_size_passes_both_ways(
    peer: JavaPeer, header_type: HeaderType, rng: Random
) -> None:
    """The limit of 16 MiB is for all of a frame in Java, the length in front of it included."""
    command = Command(10, fields={"topic": "t"}, language=Language.JAVA, version=401)
    command.body = rng.randbytes(16 * 1024 * 1024 - len(frame(command, header_type)))
    (read,) = peer.ask("commands.decode", [[frame(command, header_type)]])
    assert read[0]["body"] == command.body
    item = read[0] | {"type": JAVA_TYPE[header_type]}
    (written,) = peer.ask("commands.encode", [item])
    (back,) = Connection().feed(written)
    assert back == command

    command.body += b"-"
    lax = Connection(limit=32 * 1024 * 1024, header_type=header_type)
    larger = b"".join(bytes(part) for part in lax.encode(command))
    ((taken, why),) = peer.attempt("commands.decode", [[larger]])
    assert not taken, why
