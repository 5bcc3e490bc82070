"""One declaration, five sources, and clear words for each mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from gantrymq.errors import ConfigError
from gantrymq.settings import (
    Bytes,
    Seconds,
    at_least,
    choice,
    format_properties,
    group,
    load,
    millis,
    parse_properties,
    rows,
    setting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    mode: Literal["sync", "async"] = setting(
        "async",
        "when an append counts as stored",
        rocketmq=choice("flushDiskType", SYNC_FLUSH="sync", ASYNC_FLUSH="async"),
    )
    interval: Seconds = setting(
        0.5, "between flushes", rocketmq=millis("flushIntervalCommitLog"), check=at_least(0.01)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    name: str = setting("broker-a", "its name", rocketmq="brokerName")
    segment: Bytes = setting(64 << 20, "size of a log file", rocketmq="mappedFileSizeCommitLog")
    queues: int = setting(8, "queues of a new topic", rocketmq="defaultTopicQueueNums")
    trace: bool = setting(False, "keep the trace topic", rocketmq="traceTopicEnable")
    name_servers: tuple[str, ...] = setting((), "where to register", rocketmq="namesrvAddr")
    zone: str | None = setting(None, "where it stands")
    flush: Flush = group(Flush, "how it flushes")


def test_defaults_and_their_origin() -> None:
    loaded = load(Broker)
    assert loaded.value == Broker()
    assert set(loaded.origins.values()) == {"default"}


def test_each_source_beats_the_one_before() -> None:
    file = {"name": "file", "queues": 1, "segment": 1, "flush": {"mode": "sync"}}
    properties = {"brokerName": "properties", "defaultTopicQueueNums": "2"}
    environ = {"GANTRY_BROKER_NAME": "environment", "HOME": "/", "GANTRY_OTHER": "x"}
    loaded = load(
        Broker,
        file=file,
        properties=properties,
        environ=environ,
        prefix="GANTRY_BROKER",
        flags={"name": "flag"},
    )
    value = loaded.value
    assert (value.name, value.queues, value.segment, value.flush.mode) == ("flag", 2, 1, "sync")
    assert loaded.origins["queues"] == "property defaultTopicQueueNums"
    assert loaded.origins["flush.mode"] == "file key flush.mode"


def test_rocketmqs_words_and_units() -> None:
    properties = {
        "flushDiskType": "SYNC_FLUSH", "flushIntervalCommitLog": "250",
        "mappedFileSizeCommitLog": "1048576", "traceTopicEnable": "true",
        "namesrvAddr": "a:1;b:2", "aclEnable": "true",
    }  # fmt: skip
    loaded = load(Broker, properties=properties)
    value = loaded.value
    assert value.flush == Flush(mode="sync", interval=0.25)
    assert (value.segment, value.trace, value.name_servers) == (1048576, True, ("a:1", "b:2"))
    assert loaded.unknown == ("aclEnable",)


@pytest.mark.parametrize(
    ("flags", "path", "expected"),
    [
        ({"segment": "64 MiB"}, "segment", 64 << 20),
        ({"segment": "1_000"}, "segment", 1000),
        ({"segment": "2kb"}, "segment", 2000),
        ({"flush.interval": "500ms"}, "interval", 0.5),
        ({"flush.interval": "2 min"}, "interval", 120.0),
        ({"flush.interval": 3}, "interval", 3.0),
        ({"queues": " 12 "}, "queues", 12),
        ({"trace": "on"}, "trace", True),
        ({"zone": "z1"}, "zone", "z1"),
        ({"zone": ""}, "zone", None),
        ({"name_servers": ["a:1", "b:2"]}, "name_servers", ("a:1", "b:2")),
    ],
)
def test_text_becomes_what_is_declared(flags: dict[str, Any], path: str, expected: object) -> None:
    value = load(Broker, flags=flags).value
    assert getattr(value.flush if path == "interval" else value, path) == expected


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ({"file": {"nmae": "x"}}, "no setting nmae; did you mean name"),
        ({"file": {"flush": {"mod": "sync"}}}, "no setting flush.mod; did you mean flush.mode"),
        (
            {"environ": {"GANTRY_QEUES": "1"}},
            "no environment variable GANTRY_QEUES; did you mean GANTRY_QUEUES",
        ),
        ({"flags": {"zzzzzzzz": 1}}, "there is no setting zzzzzzzz$"),
        ({"flags": {"queues": "many"}}, r"queues \(flag queues\): 'many' is no whole number"),
        ({"flags": {"queues": True}}, "True is no int"),
        ({"flags": {"segment": "64 parsecs"}}, "no amount of bytes"),
        ({"flags": {"trace": "maybe"}}, "neither true nor false"),
        ({"flags": {"flush.mode": "never"}}, "'never' is none of sync, async"),
        ({"flags": {"flush.interval": "1us"}}, "the least is 0.01"),
        (
            {"properties": {"flushDiskType": "NO"}},
            "flushDiskType = 'NO': it takes one of SYNC_FLUSH",
        ),
    ],
)
def test_mistakes_are_named(sources: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(Broker, **sources)


def test_rows_are_the_reference() -> None:
    by_path = {row.path: row for row in rows(Broker)}
    assert list(by_path) == [
        "name", "segment", "queues", "trace", "name_servers", "zone", "flush.mode",
        "flush.interval",
    ]  # fmt: skip
    row = by_path["flush.interval"]
    assert row.flag == "--flush-interval"
    assert row.variable("GANTRY_BROKER") == "GANTRY_BROKER_FLUSH_INTERVAL"
    assert row.doc == "between flushes"


def test_a_field_without_a_declaration_is_a_mistake_of_ours() -> None:
    @dataclass(frozen=True)
    class Bare:
        x: int = 1

    with pytest.raises(TypeError, match=r"Bare\.x"):
        list(rows(Bare))


def test_properties_are_read_and_written() -> None:
    text = "# comment\n\n! other\n a = 1 \nurl=http://x?y=z\nempty=\n"
    assert parse_properties(text) == {"a": "1", "url": "http://x?y=z", "empty": ""}
    assert format_properties({"b": "2", "a": "1"}) == "a=1\nb=2\n"
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties("a=1\nnonsense\n")
