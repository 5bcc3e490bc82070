"""The command line on RocketMQ's own cluster: what changes nothing says the same as on ours.

The golden files are those that our own platform's answers are held to. What differs from one make
of broker to the other (numbers, versions) is left out there; names, kinds and bodies are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jars
import pytest
from apache import Cluster

import gantrymq as gantry
from tests.unit.cli.kit import (
    GOLDEN,
    GROUP,
    READS,
    TOPIC,
    Cli,
    World,
    settled,
    shape,
    until,
    world,
)


@pytest.fixture(scope="module", params=jars.VERSIONS)
def theirs(request: pytest.FixtureRequest, clusters: Callable[[str], Cluster]) -> Cluster:
    """RocketMQ's own name server and broker, of each release in turn."""
    return clusters(request.param)


@pytest.fixture(scope="module")
def there(theirs: Cluster) -> Iterator[World]:
    """Messages, a group with a member, a dead letter."""
    with world(f"rmq://{theirs.name_server}", theirs.BROKER) as one:
        yield one


@pytest.fixture
def cli(theirs: Cluster, tmp_path: Path) -> Cli:
    """`gantry` on that cluster."""
    return Cli(tmp_path, theirs.name_server)


def golden(name: str) -> Any:
    return json.loads((GOLDEN / "json" / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", READS)
def test_what_changes_nothing_has_the_same_shape(name: str, cli: Cli, there: World) -> None:
    found = cli.json(*READS[name])
    assert shape(settled(found)) == shape(golden(name))
    assert cli(*READS[name]).out.strip()


def test_messages_are_found_decoded_and_chosen(cli: Cli, there: World) -> None:
    found = cli.json("message", "cat", TOPIC)
    assert [one["form"] for one in found] == ["json", "json", "text", "msgpack", "json", "hex"]
    assert cli.json("message", "get", there.ids[1])["tag"] == "bad"
    assert cli.json("message", "get", found[1]["offset_id"])["id"] == there.ids[1]
    where = cli.json("message", "cat", TOPIC, "--where", "body.status = 'failed'", "--tag", "good")
    assert [one["keys"] for one in where] == [["order-4"], ["order-5"]]
    assert len(cli.json("message", "cat", TOPIC, "--from", "1h ago", "--to", "in 1h")) == 6
    assert cli.json("message", "cat", TOPIC, "--from", "in 1h") == []
    told = cli("message", "search", TOPIC, "--text", "failed", "--most", "3", "-o", "json")
    assert "--resume" in told.err


def test_a_message_and_a_group_are_explained(cli: Cli, there: World) -> None:
    dead = cli.json("message", "explain", there.ids[1], "--topic", TOPIC, "--group", GROUP)
    assert dead["groups"][0]["state"] == "dead-lettered"
    checks = {one["check"] for one in cli.json("group", "explain", GROUP)["findings"]}
    assert "dead letters" in checks
    assert not checks & {"divergence", "unowned", "members", "paused"}
    seen = cli.json("group", "inspect", GROUP, there.client_id)
    assert {one["topic"] for one in seen["queues"]} >= {TOPIC}


def test_the_doctor_tells_what_is_switched_off_there(cli: Cli, there: World) -> None:
    with gantry.Admin(there.url, timeout=20) as admin:  # others may have switched it on
        admin.alter_broker_config(there.broker, {"enablePropertyFilter": "false"})
    told = cli("doctor", "--all", "-o", "json", code=None)
    found = told.data
    features = {one["text"].partition("=")[0] for one in found if one["check"] == "features"}
    assert {"enablePropertyFilter", "traceTopicEnable", "autoCreateTopicEnable"} <= features
    clock = next(one for one in found if one["check"] == "clock")
    assert clock["level"] == "ok"
    assert not [one for one in found if one["level"] == "unknown"]


def test_broker_settings_and_old_names_work_there(cli: Cli, there: World, theirs: Cluster) -> None:
    assert cli.json("broker", "config", "get", there.broker, "fileReservedTime")
    assert cli.json("broker", "status", there.broker)["version"] == theirs.version
    assert cli.json("namesrv", "config", "get", "listenPort")
    told = cli("mqadmin", "consumerProgress", "-g", GROUP)
    assert f"new form: gantry group lag {GROUP}" in told.err
    assert TOPIC in told.out
    assert cli.json("cluster", "export")["topics"][TOPIC]["read_queues"] == 2


def test_a_replay_reaches_one_group_alone_there_too(cli: Cli, there: World) -> None:
    into = ("replay", TOPIC, "--where", "body.status = 'failed'", "--into", "group=cli-again")
    assert "3 messages copied" in cli(*into, "--yes").err
    seen: list[tuple[str, str]] = []
    with gantry.Consumer(
        there.url,
        group="cli-again",
        start="latest",
        topics=TOPIC,
        handler=lambda message: seen.append((message.topic, message.message_id)),
    ):
        until(lambda: len(seen) >= 3)
    assert sorted(seen) == sorted((TOPIC, there.ids[number]) for number in (1, 3, 4))


def test_a_store_of_theirs_is_verified_and_measured(
    cli: Cli, there: World, theirs: Cluster
) -> None:
    (store,) = {path.parent for path in theirs.home.rglob("commitlog") if path.is_dir()}
    found = cli.json("storage", "verify", store, code=None)
    assert found["damaged"] == 0, found["problems"]
    assert found["messages"] >= 6
    topics = {one["topic"] for one in cli.json("storage", "du", store)["topics"]}
    assert TOPIC in topics


def test_open_transactions_are_told_from_their_topics(
    cli: Cli, there: World, theirs: Cluster
) -> None:
    cli("topic", "create", "cli-tx", "--queues", "1")
    with gantry.Producer(there.url, group="cli-tx", checker=lambda _: None) as producer:
        with producer.transaction("cli-tx", b"{}", keys="tx-done"):
            pass
        with producer.transaction("cli-tx", b"{}", keys="tx-open") as tx:
            tx.leave_open()
        listing = ("transaction", "list", "--group", "cli-tx")
        if theirs.version.startswith("4."):
            assert "before 5.0" in cli(*listing, code=1).err
            return
        until(lambda: [one["keys"] for one in cli.json(*listing)] == [["tx-open"]])
        producer_of = cli.json("client", "list", "--producer", "--group", "cli-tx")
        assert [one["client_id"] for one in producer_of] == [producer.client_id]


def test_messages_that_wait_for_their_time_are_listed(cli: Cli, there: World) -> None:
    cli("topic", "create", "cli-waits", "--queues", "1")
    cli("message", "send", "cli-waits", "--body", "x", "--delay", "2h", "--key", "late")
    listing = ("timer", "list", "--topic", "cli-waits")
    until(lambda: [one["keys"] for one in cli.json(*listing)] == [["late"]])
    (one,) = cli.json(*listing)
    assert 7000 < one["left"] <= 7200
    assert cli.json(*listing, "--next", "1h") == []
