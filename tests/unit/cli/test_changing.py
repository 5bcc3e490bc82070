"""Commands that change something: they say what first, ask, do it, and show it done."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import gantrymq as gantry
from tests.unit.cli.kit import Cli, until


def send(cli: Cli, topic: str, *bodies: str, **options: str) -> None:
    lines = "".join(json.dumps({"body": body, **options}) + "\n" for body in bodies)
    cli("message", "send", topic, "--jsonl", "-", stdin=lines)


def bodies(cli: Cli, topic: str, *options: str) -> list[Any]:
    return [one["body"] for one in cli.json("message", "cat", topic, *options)]


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_from_its_making_to_its_end(cli: Cli) -> None:
    told = cli("topic", "create", "t-life", "--queues", "2", "--dry-run")
    assert "dry run" in told.err
    assert cli("topic", "describe", "t-life", code=3).out == ""
    (made,) = cli.json("topic", "create", "t-life", "--queues", "2", "--type", "fifo")
    assert (made["write_queues"], made["attributes"]) == (2, {"message.type": "FIFO"})
    assert "exists" in cli("topic", "create", "t-life", code=1).err
    planned = cli.json("topic", "alter", "t-life", "--queues", "4", "--dry-run")
    done = cli.json("topic", "alter", "t-life", "--queues", "4")
    assert planned == done
    assert {(one["what"], one["before"], one["after"]) for one in done} == {
        ("read_queues", "2", "4"),
        ("write_queues", "2", "4"),
    }
    assert cli.json("topic", "alter", "t-life", "--queues", "4") == []
    assert cli.json("topic", "describe", "t-life")["type"] == "FIFO"
    send(cli, "t-life", "a", "b", order_key="k")
    refused = cli("topic", "delete", "t-life", code=4)
    assert "messages lost  2" in refused.err
    assert "--yes" in refused.err
    preview = cli.json("topic", "delete", "t-life", "--dry-run")
    assert (preview["messages"], preview["groups"]) == (2, [])
    assert "is deleted at broker-a" in cli("topic", "delete", "t-life", "--yes", "--force").err
    assert cli("topic", "describe", "t-life", code=3).out == ""


def test_what_is_in_use_takes_more_than_a_yes(cli: Cli) -> None:
    cli("topic", "create", "t-used")
    url = f"rmq://{cli.environ['NAMESRV_ADDR']}"
    with gantry.Consumer(
        url, group="t-users", start="earliest", topics="t-used", handler=print
    ) as member:
        until(lambda: bool(member.queues))
        until(lambda: bool(cli.json("topic", "delete", "t-used", "--dry-run")["groups"]), 60)
        told = cli("topic", "delete", "t-used", "--yes", code=4)
        assert "IN USE: t-users has 1 members" in told.err
        assert "--force" in told.err
        assert cli("group", "delete", "t-users", "--yes", code=4).err
    cli("topic", "delete", "t-used", "--yes", "--force")


# --- groups ---------------------------------------------------------------------------------------


def test_a_group_from_its_making_to_its_end(cli: Cli) -> None:
    (made,) = cli.json("group", "create", "g-life", "--max-retries", "3", "--orderly")
    assert (made["max_retries"], made["orderly"]) == (3, True)
    assert "exists" in cli("group", "create", "g-life", code=1).err
    (change,) = cli.json("group", "alter", "g-life", "--max-retries", "5")
    assert (change["before"], change["after"]) == ("3", "5")
    (paused,) = cli.json("group", "pause", "g-life")
    assert (paused["what"], paused["after"]) == ("enabled", "False")
    (error,) = [
        one for one in cli.json("group", "explain", "g-life")["findings"] if one["level"] == "error"
    ]
    assert error["remedy"] == "gantry group resume g-life"
    cli("group", "resume", "g-life")
    assert cli.json("group", "describe", "g-life")["settings"][0]["enabled"] is True
    cli("topic", "create", "g-topic", "--queues", "2")
    assert "is to pull g-topic" in cli("group", "mode", "g-life", "g-topic", "pull").err
    assert cli("group", "mode", "g-nobody", "g-topic", "pull", code=3).err
    cli("group", "delete", "g-life", "--yes")
    assert cli("group", "describe", "g-life", code=3).out == ""


def test_a_group_is_moved_as_planned_and_read_back(cli: Cli) -> None:
    cli("topic", "create", "g-moved", "--queues", "1")
    cli("group", "create", "g-mover")
    send(cli, "g-moved", *"abcdef")
    move = ("group", "reset", "g-mover", "--topic", "g-moved", "--to")
    refused = cli(*move, "latest", code=4)
    assert "never to be seen" in refused.err
    plan = cli.json(*move, "4", "--dry-run")
    assert (plan["skipped"], plan["moves"][0]["after"]) == (4, 4)
    assert cli.json("group", "lag", "g-mover")["queues"] == []
    assert "as reading back shows" in cli(*move, "4", "--yes").err
    assert cli.json("group", "lag", "g-mover")["lag"] == 2
    cli(*move, "earliest", "-y")
    assert cli.json("group", "lag", "g-mover")["lag"] == 6
    cli("group", "skip", "g-mover", "--topic", "g-moved", "-y")
    assert cli.json("group", "lag", "g-mover")["lag"] == 0
    cli(*move, "1h ago", "-y")
    assert cli.json("group", "lag", "g-mover")["lag"] == 6
    cli("group", "create", "g-twin")
    cli("group", "clone", "g-mover", "g-twin", "-y")
    assert cli.json("group", "lag", "g-twin")["lag"] == 6
    assert cli(*move, "99", "-y", code=2).err
    assert cli(*move, "soon", "-y", code=2).err


# --- messages -------------------------------------------------------------------------------------


def test_messages_are_sent_with_all_that_belongs_to_them(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "m-sent", "--queues", "1")
    (tmp_path / "body.bin").write_bytes(b"\x00\xff")
    send_ = ("message", "send", "m-sent")
    receipt = cli(*send_, "--body", "one", "--tag", "t", "--key", "k1", "--key", "k2",
                  "--prop", "a=b", "-o", "json").data[0]  # fmt: skip
    cli(*send_, "--body", f"@{tmp_path / 'body.bin'}")
    cli(*send_, "--body", "-", stdin="from stdin")
    cli(*send_, "--body", "again", "--count", "3", "--rate", "1000/s")
    found = cli.json("message", "cat", "m-sent")
    assert [one["body"] for one in found] == ["one", "00ff", "from stdin", *["again"] * 3]
    first = found[0]
    assert (first["tag"], first["keys"], first["properties"]) == ("t", ["k1", "k2"], {"a": "b"})
    assert receipt["id"] == first["id"]
    assert cli(*send_, code=2).err
    assert cli(*send_, "--jsonl", "-", stdin='{"bodi": 1}', code=2).err


def test_an_export_is_whole_and_replaces_nothing_unasked(cli: Cli, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    cli("topic", "create", "m-out", "--queues", "2")
    lines = "".join(
        json.dumps({"body": {"n": n}, "keys": [f"k{n}"], "tag": "t"}) + "\n" for n in range(20)
    )
    cli("message", "send", "m-out", "--jsonl", "-", stdin=lines)
    parquet, jsonl = tmp_path / "out.parquet", tmp_path / "out.jsonl"
    assert cli.json("message", "export", "m-out", parquet)["rows"] == 20
    rows = pq.read_table(parquet).to_pylist()
    assert {json.loads(row["body"])["n"] for row in rows} == set(range(20))
    assert {row["keys"] for row in rows} == {f"k{n}" for n in range(20)}
    assert cli("message", "export", "m-out", parquet, code=4).err
    chosen = cli.json(
        *("message", "export", "m-out", parquet, "--overwrite", "--where", "body.n >= 15")
    )
    assert chosen["rows"] == 5
    again = pq.read_table(parquet)
    assert again.schema == pq.read_table(parquet).schema
    assert {json.loads(row["body"])["n"] for row in again.to_pylist()} == set(range(15, 20))
    assert dict(again.to_pylist()[0]["properties"])["TAGS"] == "t"
    assert cli.json("message", "export", "m-out", jsonl)["rows"] == 20
    same = [json.loads(line) for line in jsonl.read_text().splitlines()]
    assert {one["body"]["n"] for one in same} == set(range(20))
    out = cli("message", "export", "m-out", "-").out.splitlines()
    assert len(out) == 20
    assert cli("message", "export", "m-out", tmp_path / "x.txt", code=2).err
    assert cli("message", "export", "m-out", tmp_path / "no" / "x.jsonl", code=2).err
    assert {path.name for path in tmp_path.iterdir()} == {"out.parquet", "out.jsonl"}


def test_a_message_is_handed_to_a_member_once_more(cli: Cli) -> None:
    cli("topic", "create", "m-again", "--queues", "1")
    url, seen = f"rmq://{cli.environ['NAMESRV_ADDR']}", list[bytes]()
    with gantry.Consumer(
        url, group="m-takers", start="earliest", topics="m-again",
        handler=lambda message: seen.append(message.body),
    ) as member:  # fmt: skip
        (sent,) = cli.json("message", "send", "m-again", "--body", "x")
        until(lambda: seen == [b"x"])
        until(lambda: bool(member.queues))
        dry = cli("message", "redeliver", sent["id"], "--group", "m-takers", "--dry-run")
        assert member.client_id in dry.err
        said = cli.json("message", "redeliver", sent["id"], "--group", "m-takers")
        assert (said["client"], said["result"]) == (member.client_id, "CR_SUCCESS")
        until(lambda: seen == [b"x", b"x"])
    assert cli("message", "redeliver", sent["id"], "--group", "m-takers", code=3).err


# --- copies ---------------------------------------------------------------------------------------


def taken(cli: Cli, group: str, topic: str, count: int) -> list[tuple[str, bytes]]:
    """What a member of a group is given: the topics it sees, and the bodies."""
    found: list[tuple[str, bytes]] = []
    lock = threading.Lock()

    def handle(message: gantry.ReceivedMessage) -> None:
        with lock:
            found.append((message.topic, message.body))

    url = f"rmq://{cli.environ['NAMESRV_ADDR']}"
    with gantry.Consumer(url, group=group, start="latest", topics=topic, handler=handle):
        until(lambda: len(found) >= count)
    return sorted(found)


def test_a_replay_into_a_group_is_for_that_group_alone(cli: Cli) -> None:
    cli("topic", "create", "r-orders", "--queues", "2")
    send(cli, "r-orders", *(f"b{n}" for n in range(10)))
    replay = ("replay", "r-orders", "--into", "group=r-again", "--where", "offset >= 3")
    preview = cli.json(*replay, "--dry-run")
    assert (preview["to_look_at"], len(preview["first_messages"])) == (10, 4)
    assert cli("group", "describe", "r-again", code=3).out == ""
    told = cli(*replay, "--yes", "--rate", "500/s")
    assert "4 messages copied into group=r-again, 6 passed over" in told.err
    assert not list((cli.home / "state" / "gantry").iterdir())
    assert len(bodies(cli, "r-orders")) == 10
    found = taken(cli, "r-again", "r-orders", 4)
    assert {topic for topic, _ in found} == {"r-orders"}
    wanted = bodies(cli, "r-orders", "--where", "offset >= 3")
    assert [body.decode() for _, body in found] == sorted(wanted)


def test_a_replay_into_a_topic_keeps_what_belongs_to_a_message(cli: Cli) -> None:
    cli("topic", "create", "r-from", "--queues", "1")
    cli("topic", "create", "r-to", "--queues", "1")
    cli("message", "send", "r-from", "--body", "x" * 9000, "--tag", "t", "--key", "k",
        "--prop", "a=b")  # fmt: skip
    cli("replay", "r-from", "--into", "topic=r-to", "-y")
    (one,) = cli.json("message", "cat", "r-from")
    (two,) = cli.json("message", "cat", "r-to")
    origin = two["properties"].pop("REPLAYED_FROM")
    assert origin == "r-from[broker-a:0] @ 0"
    for name in ("id", "tag", "keys", "properties", "body", "born_at"):
        assert one[name] == two[name], name
    assert (
        "its consumers get all of it twice"
        in cli("replay", "r-from", "--into", "topic=r-from", "-y", code=4).err
    )
    assert cli("replay", "r-from", "--into", "r-to", "-y", code=2).err
    assert cli("replay", "r-from", "-y", code=2).err
    assert cli("replay", "r-from", "--into", "topic=no-such", "-y", code=3).err


def test_a_replay_that_is_stopped_goes_on_where_it_was(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gantrymq.cli.copy_runs import Copier

    cli("topic", "create", "r-long", "--queues", "2")
    cli("topic", "create", "r-copy", "--queues", "2")
    send(cli, "r-long", *(f"b{n}" for n in range(12)))
    copy, count = Copier.__call__, 0

    def stop_after_five(self: Copier, message: gantry.ReceivedMessage) -> None:
        nonlocal count
        count += 1
        if count == 6:
            raise KeyboardInterrupt
        copy(self, message)

    state = tmp_path / "run.json"
    monkeypatch.setattr(Copier, "__call__", stop_after_five)
    told = cli("replay", "r-long", "--into", "topic=r-copy", "-y", "--state", state, code=130)
    assert f"gantry replay --resume {state}" in told.err
    assert len(bodies(cli, "r-copy")) == 5
    again = cli("replay", "--resume", state, "-y")
    assert "12 messages copied" in again.err
    assert sorted(bodies(cli, "r-copy")) == sorted(bodies(cli, "r-long"))
    assert not state.exists()
    assert "was the run done already" in cli("replay", "--resume", state, "-y", code=1).err


def test_dead_letters_are_redriven_exported_and_purged(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "d-orders", "--queues", "1")
    cli("group", "create", "d-billing", "--max-retries", "0")
    send(cli, "d-orders", "bad", "worse")
    url = f"rmq://{cli.environ['NAMESRV_ADDR']}"

    def fail(message: gantry.ReceivedMessage) -> None:
        raise gantry.GiveUp("not today")

    with gantry.Consumer(url, group="d-billing", start="earliest", topics="d-orders", handler=fail):
        until(lambda: len(cli.json("dlq", "show", "d-billing", code=None) or ()) == 2
              if "%DLQ%d-billing" in cli("topic", "list", "-a").out else False)  # fmt: skip
    assert {one["origin"] for one in cli.json("dlq", "show", "d-billing")} == {"d-orders"}
    redrive = ("dlq", "redrive", "d-billing", "--text", "worse")
    assert cli(*redrive, code=4).err
    assert cli.json(*redrive, "--dry-run")["to_look_at"] == 2
    assert "1 messages copied into group=d-billing" in cli(*redrive, "-y").err
    assert taken(cli, "d-billing", "d-orders", 1) == [("d-orders", b"worse")]
    cli("dlq", "redrive", "d-billing", "--into", "origin", "-y", "--limit", "1")
    assert bodies(cli, "d-orders") == ["bad", "worse", "bad"]
    assert cli.json("dlq", "export", "d-billing", tmp_path / "dead.jsonl")["rows"] == 2
    assert cli("dlq", "purge", "d-billing", code=4).err
    cli("dlq", "purge", "d-billing", "--yes", "--force")
    assert "d-billing" not in {one["group"] for one in cli.json("dlq", "list")}


# --- the rest -------------------------------------------------------------------------------------


def test_open_transactions_are_listed_until_they_are_decided_on(cli: Cli) -> None:
    cli("topic", "create", "tx-orders", "--queues", "1")
    url = f"rmq://{cli.environ['NAMESRV_ADDR']}"
    with gantry.Producer(url, group="tx-shop", checker=lambda _: None) as producer:
        with producer.transaction("tx-orders", b"done"):
            pass
        with producer.transaction("tx-orders", b"open", keys="tx-1") as tx:
            tx.leave_open()
        listing = ("transaction", "list", "--topic", "tx-orders")
        until(lambda: len(cli.json(*listing)) == 1)
        (one,) = cli.json(*listing)
        assert (one["group"], one["keys"]) == ("tx-shop", ["tx-1"])
        assert cli.json(*listing, "--older-than", "1h") == []
        assert cli.json(*listing, "--group", "another") == []


def test_brokers_and_name_servers_are_set_and_drained(cli: Cli) -> None:
    key = "fileReservedTime"
    (before,) = cli.json("broker", "config", "get", "broker-a", key)
    (change,) = cli.json("broker", "config", "set", "broker-a", f"{key}=71", "--dry-run")
    assert (change["before"], change["after"]) == (before["value"], "71")
    assert cli.json("broker", "config", "get", "broker-a", key) == [before]
    cli("broker", "config", "set", "broker-a", f"{key}=71")
    assert cli.json("broker", "config", "get", "broker-a", key)[0]["value"] == "71"
    wrong = cli("broker", "config", "set", "broker-a", "fileReservedTim=1", code=2)
    assert "did you mean fileReservedTime" in wrong.err
    assert cli.json("broker", "config", "diff", "broker-a", "broker-a") == []
    assert cli.json("namesrv", "config", "get", "listenPort")
    assert cli("namesrv", "config", "set", "nothing=1", code=2).err
    cli("namesrv", "kv", "set", "space", "key", "value")
    assert cli.json("namesrv", "kv", "list", "space") == [{"key": "key", "value": "value"}]
    assert cli.json("namesrv", "kv", "get", "space", "key")["value"] == "value"
    assert cli("namesrv", "kv", "delete", "space", "key", code=4).err
    cli("namesrv", "kv", "delete", "space", "key", "-y")
    assert cli("namesrv", "kv", "get", "space", "key", code=3).err
    assert "the only broker" in cli("broker", "drain", "broker-a", "-y", code=4).err
    try:
        cli("broker", "drain", "broker-a", "-y", "--force")
        cli("topic", "create", "b-drained", code=None)
        (row, *_) = cli.json("topic", "route", "TBW102")
        assert row["permission"] == "ri"
    finally:
        cli("broker", "undrain", "broker-a")
    assert "w" in cli.json("topic", "route", "TBW102")[0]["permission"]


def test_a_file_is_applied_and_written_back(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text(
        "topics:\n  a-one: {queues: 3, type: FIFO}\n"
        "groups:\n  a-group: {max_retries: 2, broadcast: false}\n"
    )
    planned = cli.json("apply", "-f", file, "--diff")
    assert {one["what"] for one in planned} == {"topic a-one", "group a-group"}
    assert cli("topic", "describe", "a-one", code=3).out == ""
    assert cli.json("apply", "-f", file) == planned
    assert cli.json("apply", "-f", file) == []
    file.write_text("topics:\n  a-one: {queues: 5}\n")
    changes = cli.json("apply", "-f", file)
    assert {one["after"] for one in changes} == {"5"}
    found = cli.json("cluster", "export")
    assert found["topics"]["a-one"]["write_queues"] == 5
    assert found["groups"]["a-group"]["broadcast"] is False
    file.write_text(cli("cluster", "export", "-o", "yaml").out)
    assert cli.json("apply", "-f", file, "--diff") == []
    file.write_text("topics: {a: {qeues: 1}}")
    assert "'qeues'" in cli("apply", "-f", file, code=1).err


def test_a_store_is_verified_measured_and_dumped_while_it_is_in_use(
    cli: Cli, here: Any, tmp_path: Path
) -> None:
    cli("topic", "create", "s-kept", "--queues", "1")
    send(cli, "s-kept", "one", "two")
    found = cli.json("storage", "verify", here.store)
    assert found["messages"] >= 2
    assert (found["damaged"], found["closed_in_order"]) == (0, False)
    sizes = {one["topic"]: one for one in cli.json("storage", "du", here.store)["topics"]}
    assert sizes["s-kept"]["messages"] == 2
    dumped = cli.json("storage", "dump", here.store, "--topic", "s-kept")
    assert [one["body"] for one in dumped] == ["one", "two"]
    assert cli("storage", "clean", "queues", code=4).err
    for what in ("queues", "topics", "log"):
        cli("storage", "clean", what, "-y")
    assert cli("storage", "verify", tmp_path, code=1).err
    copy = tmp_path / "store"
    (copy / "commitlog").mkdir(parents=True)
    (log,) = (here.store / "commitlog").iterdir()
    data = bytearray(log.read_bytes()[: found["log_end"] + 100])
    at = data.rindex(b"two")
    data[at] ^= 0xFF
    (copy / "commitlog" / log.name).write_bytes(data)
    broken = cli.json("storage", "verify", copy, code=1)
    assert broken["damaged"] == 1
    assert "problem" not in broken["problems"][0]
    assert broken["problems"][0]["file"] == log.name


def test_loads_are_measured(cli: Cli) -> None:
    cli("topic", "create", "b-load", "--queues", "2")
    sent = cli.json("bench", "send", "b-load", "--count", "60", "--clients", "4", "--size", "100")
    assert (sent["messages"], sent["failed"]) == (60, 0)
    assert 0 < sent["p50"] <= sent["p99"] <= sent["max"]
    assert sum(one["count"] for one in sent["latencies"]) == 60
    where = ("--broker", "broker-a", "--rate", "2000/s")
    batches = cli.json(
        *("bench", "send", "b-load", "--count", "40", "--batch", "10", "--clients", "1", *where)
    )
    assert batches["messages"] == 40
    got = cli.json("bench", "consume", "b-load", "--count", "100", "--seconds", "30")
    assert got["messages"] == 100
    both = cli.json("bench", "roundtrip", "b-load", "--count", "30", "--clients", "2")
    assert (both["messages"], both["received"]) == (30, 30)
    assert both["p50"] < 10
    assert cli("bench", "send", "b-load", "--broker", "nobody", "--count", "1", code=2).err


def test_all_of_it_works_in_a_namespace(cli: Cli) -> None:
    space = f"rmq://{cli.environ['NAMESRV_ADDR']}/space"

    def inside(*words: object, code: int = 0) -> Any:
        return cli.json(*words, "-n", space, code=code)

    inside("topic", "create", "n-orders", "--queues", "1")
    cli("message", "send", "n-orders", "--body", "one", "--key", "k", "-n", space)
    assert cli.json("topic", "list", "--like", "*n-orders")[0]["topic"] == "space%n-orders"
    assert [one["topic"] for one in inside("topic", "list")] == ["n-orders"]
    (one,) = inside("message", "cat", "n-orders")
    assert inside("message", "get", "--topic", "n-orders", "--key", "k")["id"] == one["id"]
    inside("group", "create", "n-billing")
    cli("group", "mode", "n-billing", "n-orders", "pull", "-n", space)
    assert inside("storage", "cq", "n-orders", "0")["entries"][0]["offset"] == 0
    cli("replay", "n-orders", "--into", "group=n-again", "-y", "-n", space)
    found: list[str] = []
    with gantry.Consumer(
        space, group="n-again", start="latest", topics="n-orders",
        handler=lambda message: found.append(message.topic),
    ):  # fmt: skip
        until(lambda: len(found) == 1)
    assert "%RETRY%space%n-again" in cli("topic", "list", "-a").out
    assert inside("group", "explain", "n-again")["findings"]


def test_messages_that_wait_for_their_time_are_listed_and_taken_back(cli: Cli) -> None:
    cli("topic", "create", "w-orders", "--queues", "1")
    for delay, key in (("2h", "late"), ("30m", "soon"), ("2d", "later")):
        cli("message", "send", "w-orders", "--body", "x", "--delay", delay, "--key", key)
    url = f"rmq://{cli.environ['NAMESRV_ADDR']}"
    with gantry.Producer(url, group="w-shop") as producer:
        producer.send("w-orders", b"x", delay_level=18, keys="level")  # two hours
    listing = ("timer", "list", "--topic", "w-orders")
    until(lambda: len(cli.json(*listing)) == 4)
    found = cli.json(*listing)
    assert found[0]["keys"] == ["soon"]
    assert {one["keys"][0]: one["level"] for one in found} == {
        "soon": None, "late": None, "level": 18, "later": None,
    }  # fmt: skip
    assert 7100 < next(one["left"] for one in found if one["level"]) <= 7200
    assert [one["keys"] for one in cli.json(*listing, "--next", "1h")] == [["soon"]]
    counted = cli.json("timer", "histogram", "--topic", "w-orders")
    assert [(one["within"], one["messages"]) for one in counted] == [
        ("1h", 1),
        ("6h", 2),
        ("1w", 1),
    ]
    assert "due" in cli("timer", "cancel", found[0]["id"], "--dry-run").err
    assert "is taken back" in cli("timer", "cancel", found[0]["id"]).err
    until(lambda: len(cli.json(*listing)) == 3)
    assert cli("timer", "cancel", found[0]["id"], code=3).err
    assert bodies(cli, "w-orders") == []
