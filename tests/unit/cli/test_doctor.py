"""What `gantry doctor` and `gantry explain` find, each made to be so first."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import gantrymq as gantry
from gantrymq.rules.allocation import Strategy, allocate_evenly, allocate_in_turn
from tests.interop.gantry import Gantry
from tests.unit.cli.kit import Cli, until

_NUMBERS = itertools.count()


def findings(cli: Cli, *words: str) -> dict[str, dict[str, Any]]:
    """Findings by what was looked for."""
    found = cli.json(*words, code=None)
    return {one["check"]: one for one in (found if isinstance(found, list) else found["findings"])}


def url(cli: Cli) -> str:
    return f"rmq://{cli.environ['NAMESRV_ADDR']}"


def member(cli: Cli, group: str, topics: Any, **how: Any) -> gantry.Consumer:
    how["instance_name"] = f"one-{next(_NUMBERS)}"
    return gantry.Consumer(
        url(cli), group=group, start="earliest", topics=topics, handler=lambda _: None, **how
    )


def test_members_that_want_different_things_are_found(cli: Cli) -> None:
    cli("topic", "create", "f-apart", "--queues", "2")
    one = gantry.Subscription("f-apart", "a")
    other = gantry.Subscription("f-apart", "b")
    with member(cli, "f-split", [one]) as first, member(cli, "f-split", [other]) as second:
        until(lambda: len(cli.json("group", "members", "f-split")["member_list"]) == 2)
        found = findings(cli, "doctor", "--group", "f-split", "--check", "divergence")["divergence"]
        assert found["level"] == "error"
        assert first.client_id in found["text"]
        assert second.client_id in found["text"]
        assert "same subscriptions" in found["remedy"]
        shown = cli.json("group", "members", "f-split")
        assert shown["divergent"] is True
        assert {row["wants"] for row in shown["divergences"]} == {"tags a", "tags b"}
        assert cli("doctor", "--group", "f-split", "--check", "divergence", code=1).out


def test_queues_without_an_owner_are_found(cli: Cli) -> None:
    cli("topic", "create", "f-owned", "--queues", "4")
    with (
        member(cli, "f-owners", "f-owned", strategy=Strategy("AVG", allocate_evenly)) as one,
        member(cli, "f-owners", "f-owned", strategy=Strategy("C", allocate_in_turn)) as two,
    ):
        mine = lambda member: {q.queue_id for q in member.queues if q.topic == "f-owned"}  # noqa: E731
        until(lambda: len(mine(one)) == 2 and len(mine(two)) == 2, 60)
        found = findings(cli, "group", "explain", "f-owners")["unowned"]
        alone = set(range(4)) - mine(one) - mine(two)
        assert len(alone) == 1
        assert found["level"] == "error"
        assert found["text"].startswith("1 of 4 queues of f-owned have no owner")
        assert f"broker-a:{alone.pop()}" in found["text"]


def test_more_members_than_queues_and_nobody_at_all_are_found(cli: Cli) -> None:
    cli("topic", "create", "f-few", "--queues", "1")
    cli("message", "send", "f-few", "--body", "x")
    cli("group", "create", "f-nobody")
    cli("group", "reset", "f-nobody", "--topic", "f-few", "--to", "earliest", "-y")
    found = findings(cli, "group", "explain", "f-nobody")
    assert found["members"]["level"] == "error"
    assert "1 messages are known to wait" in found["members"]["text"]
    assert found["lag"]["level"] == "info"
    with member(cli, "f-many", "f-few"), member(cli, "f-many", "f-few"):
        until(lambda: "idle" in findings(cli, "group", "explain", "f-many"), 60)
        idle = findings(cli, "group", "explain", "f-many")["idle"]
        assert "1 of 2 members have no queue of f-few" in idle["text"]


def test_a_member_that_stands_still_is_found_with_its_stack(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr("gantrymq.cli.group_findings._STILL", 0.1)
    cli("topic", "create", "f-still", "--queues", "1")
    cli("message", "send", "f-still", "--body", "x", "--count", "3")
    go = threading.Event()
    with gantry.Consumer(
        url(cli), group="f-stuck", start="earliest", topics="f-still",
        handler=lambda _: go.wait(60) and None, concurrency=1,
    ) as one:  # fmt: skip
        until(lambda: "stuck" in findings(cli, "group", "explain", "f-stuck"), 60)
        found = findings(cli, "group", "explain", "f-stuck")["stuck"]
        assert one.client_id in found["text"]
        assert "--stack" in found["remedy"]
        go.set()


def test_a_topic_that_hides_messages_or_may_not_be_read_is_found(cli: Cli) -> None:
    cli("topic", "create", "f-shut", "--queues", "1")
    cli("topic", "alter", "f-shut", "--perm", "r")
    found = findings(cli, "explain", "topic", "f-shut")["permission"]
    assert "cannot be sent to at broker-a" in found["text"]
    assert "--perm rw" in found["remedy"]


def test_a_broker_that_advertises_where_nobody_gets_is_found(tmp_path: Path) -> None:
    with Gantry("listen.advertise=192.0.2.1") as lost:
        cli = Cli(tmp_path, lost.name_server)
        told = cli("doctor", "--timeout", "500ms", "-o", "json", code=1)
        found = {one["check"]: one for one in told.data}
        assert "192.0.2.1" in found["address"]["text"]
        assert "brokerIP1" in found["address"]["remedy"]
        assert found["broker"]["level"] == "error"


def test_what_is_switched_off_and_a_name_server_that_is_gone_are_found(tmp_path: Path) -> None:
    with Gantry("enablePropertyFilter=false") as here:
        cli = Cli(tmp_path, here.name_server)
        told = cli("doctor", "--check", "features", "-o", "json")
        texts = [one["text"] for one in told.data]
        assert any(text.startswith("enablePropertyFilter=false: consumers") for text in texts)
        both = f"{here.name_server};127.0.0.1:1"
        found = {one["check"]: one for one in cli.json("doctor", "-n", both, code=1)}
        assert found["namesrv"]["subject"] == "127.0.0.1:1"
        assert found["namesrv"]["remedy"]
