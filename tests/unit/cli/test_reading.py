"""Commands that change nothing: each as JSON against its golden file, and in every other form."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from tests.unit.cli.kit import GROUP, READS, TOPIC, Cli, World, same_as_golden, settled


@pytest.mark.parametrize("name", READS)
def test_json_is_what_the_golden_file_says(name: str, cli: Cli, there: World) -> None:
    found = settled(cli.json(*READS[name]))
    same_as_golden(f"json/{name}.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", READS)
def test_every_form_says_the_same(name: str, cli: Cli, there: World) -> None:
    table = cli(*READS[name]).out
    assert table.strip()
    assert "\x1b" not in table
    assert len(cli(*READS[name], "-o", "wide").out) >= len(table)
    assert yaml.safe_load(cli(*READS[name], "-o", "yaml").out)
    assert list(csv.reader(io.StringIO(cli(*READS[name], "-o", "csv").out)))
    lines = cli(*READS[name], "-o", "jsonl").out.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_one_message_is_found_in_five_ways(cli: Cli, there: World) -> None:
    by_id = cli.json("message", "get", there.ids[1])
    assert by_id["body"] == {"id": 2, "status": "failed", "items": [{"price": 9}]}
    assert by_id["form"] == "json"
    ways = [
        (by_id["offset_id"],),
        (there.ids[1], "--topic", TOPIC),
        ("--topic", TOPIC, "--offset", f"{there.broker}:1:0"),
        ("--topic", TOPIC, "--key", "order-2"),
    ]
    for way in ways:
        assert cli.json("message", "get", *way)["id"] == there.ids[1]
    first = cli.json("message", "get", "--topic", TOPIC, "--at", by_id["stored_at"])
    assert first["stored_at"] >= by_id["stored_at"]
    shown = cli("message", "show", there.ids[1]).out
    assert '"status": "failed"' in shown
    assert "north" in shown


def test_bodies_are_decoded_each_in_its_way(cli: Cli, there: World) -> None:
    found = cli.json("message", "cat", TOPIC)
    assert [one["form"] for one in found] == ["json", "json", "text", "msgpack", "json", "hex"]
    assert found[3]["body"] == {"id": 4, "status": "failed"}
    assert found[2]["body"] == "plain grün"
    assert {one["form"] for one in cli.json("message", "cat", TOPIC, "--decode", "hex")} == {"hex"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--where", "body.status = 'failed'"), [2, 4, 5]),
        (("--where", "body.items[0].price > 2"), [1, 2]),
        (("--where", "body.items[0].price > 2 AND region = 'north'"), [2]),
        (("--where", "queue = 0 AND offset BETWEEN 1 AND 2"), [3, 5]),
        (("--where", "text CONTAINS 'plain' OR key = 'order-6'"), [3, 6]),
        (("--where", "body.status IS NULL"), [3, 6]),
        (("--tag", "bad"), [2]),
        (("--sql", "region = 'south'"), [1, 3, 5]),
        (("--text", "grün"), [3]),
        (("--queue", "1"), [2, 4, 6]),
        (("--from", "1"), [3, 4, 5, 6]),
        (("--from", "1", "--to", "2"), [3, 4]),
        (("--from", "1h ago", "--to", "now"), [1, 2, 3, 4, 5, 6]),
        (("--from", "in 1h"), []),
        (("--limit", "2"), [1, 2]),
        (("--broker", "nobody"), []),
    ],
)
def test_messages_are_chosen(
    options: tuple[str, ...], wanted: list[int], cli: Cli, there: World
) -> None:
    found = cli.json("message", "cat", TOPIC, *options)
    assert [one["keys"] for one in found] == [[f"order-{number}"] for number in wanted]


def test_the_order_is_that_of_queues_if_asked_for(cli: Cli, there: World) -> None:
    found = cli.json("message", "cat", TOPIC, "--order", "queue")
    assert [one["queue"] for one in found] == [0, 0, 0, 1, 1, 1]


def test_an_expression_that_is_wrong_is_a_wrong_use(cli: Cli, there: World) -> None:
    told = cli("message", "cat", TOPIC, "--where", "body.x = ", code=2)
    assert "--where" in told.err
    assert "expected" in told.err


def test_a_search_stops_at_its_budget_and_goes_on_from_there(cli: Cli, there: World) -> None:
    told = cli("message", "search", TOPIC, "--text", "failed", "--most", "3", "-o", "json")
    assert [one["keys"] for one in told.data] == [["order-5"]]
    assert "looked at 3 of 6 messages, found 1" in told.err
    token = told.err.split("--resume ")[1].strip()
    rest = cli("message", "search", TOPIC, "--text", "failed", "--resume", token, "-o", "json")
    assert [one["keys"] for one in rest.data] == [["order-4"], ["order-2"]]
    assert "looked at 3 of 3 messages" in rest.err
    assert cli("message", "search", TOPIC, "--text", "nowhere", code=3).out == ""
    assert cli("message", "search", TOPIC, "--resume", "?", code=2).err


def test_a_tail_follows_what_comes(cli: Cli, there: World) -> None:
    found = cli("message", "tail", TOPIC, "-f", "-c", "2", "--limit", "2", "-o", "jsonl").out
    assert [json.loads(line)["keys"] for line in found.splitlines()] == [["order-5"], ["order-6"]]


def test_a_watch_shows_it_again_and_again(
    cli: Cli, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("gantrymq.cli.verbs.time.sleep", sleep)
    told = cli("group", "lag", GROUP, "--watch", "5s", "-o", "jsonl", code=130)
    assert [json.loads(line)["group"] for line in told.out.splitlines()] == [GROUP] * 3
    assert slept == [5.0] * 3


def test_a_group_is_explained_and_inspected(cli: Cli, there: World) -> None:
    found = cli.json("group", "explain", GROUP)["findings"]
    assert {"dead letters"} <= {one["check"] for one in found}
    assert "gantry dlq" in next(one["remedy"] for one in found if one["check"] == "dead letters")
    assert found == cli.json("explain", "group", GROUP)["findings"]
    seen = cli("group", "inspect", GROUP, there.client_id, "--stack").out
    assert TOPIC in seen
    assert "handler" in seen or "File " in seen or "thread" in seen.lower()
    assert cli("group", "explain", "no-such-group", code=3).err


def test_a_message_is_explained_and_its_absence_too(cli: Cli, there: World) -> None:
    found = cli.json("message", "explain", there.ids[0])
    assert [(one["group"], one["state"]) for one in found["groups"]] == [
        (GROUP, "acknowledged or skipped")
    ]
    dead = cli.json("explain", "message", there.ids[1], "--topic", TOPIC)
    assert dead["groups"][0]["state"] == "dead-lettered"
    assert GROUP in cli("message", "explain", there.ids[0]).out
    assert "nothing was told" in cli("message", "trace", there.ids[0], code=3).err


def test_a_topic_is_explained_and_its_absence_too(cli: Cli, there: World) -> None:
    (well,) = cli.json("explain", "topic", TOPIC)["findings"]
    assert (well["level"], well["text"]) == ("ok", "2 queues at broker-a, all of which answer")
    (absent,) = cli.json("explain", "topic", "no-such-topic")["findings"]
    assert absent["remedy"] == "gantry topic create no-such-topic"


def test_the_doctor_looks_at_everything_and_says_what_helps(cli: Cli, there: World) -> None:
    told = cli("doctor", "--all", "-o", "json", code=None)
    found = told.data
    assert told.code == (1 if any(one["level"] == "error" for one in found) else 0)
    assert {"namesrv", "versions", "clock", "disk", "features"} <= {one["check"] for one in found}
    clock = next(one for one in found if one["check"] == "clock")
    assert clock["text"] == "its clock and the one here agree"
    assert all(one["remedy"] for one in found if one["level"] in ("error", "warning"))
    assert "looked at: " in cli("doctor", "--check", "clock").out


def test_a_dead_letter_says_where_it_came_from_and_why(cli: Cli, there: World) -> None:
    (letter,) = cli.json("dlq", "show", GROUP)
    assert (letter["origin"], letter["keys"]) == (TOPIC, ["order-2"])
    assert "no such customer" in letter["reason"]
    assert "GiveUp" in letter["traceback"] or "handle" in letter["traceback"]
    (counted,) = cli.json("dlq", "show", GROUP, "--summary")
    assert (counted["messages"], counted["origin"]) == (1, TOPIC)


def test_what_is_not_there_is_3_and_what_cannot_be_is_2(cli: Cli, there: World) -> None:
    assert "gantry topic create nope" in cli("topic", "describe", "nope", code=3).err
    assert cli("group", "lag", "nope", code=3).err.startswith("gantry: ")
    assert cli("message", "get", "A" * 32, "--topic", TOPIC, code=3).err
    assert cli("message", "get", code=2).err
    assert cli("message", "get", "--key", "k", code=2).err
    assert cli("message", "get", "--topic", TOPIC, "--offset", "x", code=2).err
    assert cli("message", "cat", TOPIC, "--from", "soon", code=2).err
    assert cli("broker", "status", "nobody", code=2).err
    assert cli("topic", "list", "-o", "xml", code=2).err


def test_no_answer_is_told_with_the_address(alone: Cli, free_port: int) -> None:
    told = alone("topic", "list", "-n", f"127.0.0.1:{free_port}", "--timeout", "1s", code=1)
    assert str(free_port) in told.err
    assert "Traceback" not in told.err


def test_broker_status_is_grouped_and_raw(cli: Cli, there: World) -> None:
    found = cli.json("broker", "status", "broker-a")
    assert {"life", "traffic", "store"} <= found.keys()
    raw = cli.json("broker", "status", "broker-a", "--raw")
    assert {one["name"] for one in raw["said"]} >= {"brokerVersionDesc", "bootTimestamp"}


def test_names_are_completed_from_the_cluster(cli: Cli, there: World) -> None:
    from click.shell_completion import BashComplete

    from gantrymq.cli.main import gantry

    def complete(*words: str, incomplete: str) -> list[str]:
        found = BashComplete(gantry, {}, "gantry", "_X").get_completions([*words], incomplete)
        return [one.value for one in found]

    where = ("-n", cli.environ["NAMESRV_ADDR"])
    assert complete(*where, "topic", "describe", incomplete="cli-o") == [TOPIC]
    assert complete(*where, "group", "lag", incomplete="cli-b") == [GROUP]
    assert complete(*where, "broker", "status", incomplete="") == ["broker-a"]
    assert complete("-n", "127.0.0.1:1", "topic", "describe", incomplete="") == []
    assert complete("topic", incomplete="de") == ["describe", "delete"]
