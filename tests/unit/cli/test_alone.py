"""What needs no cluster: times, decoding, conditions, contexts, old names, screens, latencies."""

from __future__ import annotations

import io
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.cli import contexts_file, exits, screen, times, views
from gantrymq.cli.decoding import Decoder, protobuf_fields
from gantrymq.cli.doctor_checks import clock_of
from gantrymq.cli.latencies import Latencies
from gantrymq.cli.mqadmin import parse
from gantrymq.cli.mqadmin_table import COMMANDS, Given
from gantrymq.cli.views import Column, Page, Table
from gantrymq.errors import CallTimeout, ConfigError, GroupNotFound, InvalidInput, PartlyDone
from tests.unit.cli.kit import Cli

NOW = datetime(2026, 11, 19, 12, 30, tzinfo=UTC)


# --- times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW),
        ("15m ago", NOW - timedelta(minutes=15)),
        ("2 hours ago", NOW - timedelta(hours=2)),
        ("-2h30m", NOW - timedelta(hours=2, minutes=30)),
        ("in 5m", NOW + timedelta(minutes=5)),
        ("+90s", NOW + timedelta(seconds=90)),
        ("10:00", NOW.replace(hour=10, minute=0)),
        ("10:00:30.5", NOW.replace(hour=10, minute=0, second=30, microsecond=500_000)),
        ("today", NOW.replace(hour=0, minute=0)),
        ("yesterday 18:30", NOW.replace(day=18, hour=18, minute=30)),
        ("2026-11-19", NOW.replace(hour=0, minute=0)),
        ("20261119", NOW.replace(hour=0, minute=0)),
        ("2026-11-19T10:00Z", NOW.replace(hour=10, minute=0)),
        ("2026-11-19 10:00+02:00", NOW.replace(hour=8, minute=0)),
        ("1795091400000", NOW),
        ("1795091400", NOW),
    ],
)
def test_times_are_read_in_any_form(text: str, wanted: datetime) -> None:
    assert times.time_of(text, NOW) == wanted


@pytest.mark.parametrize("text", ["", "soon", "25:00", "-", "5 parsecs ago", "9" * 30, "10:00 ago"])
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"no (time|span)"):
        times.time_of(text, NOW)


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        assert times.time_of(text, NOW).tzinfo is not None
    except (ValueError, OverflowError) as error:
        assert isinstance(error, ValueError)


@given(st.integers(0, 4_000_000_000_000))
def test_what_is_written_is_read_back(ms: int) -> None:
    assert times.ms_of(times.time_of(times.iso(ms))) == ms


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90", 90), ("1h30m", 5400), ("200ms", 0.2), ("2 days", 172_800), ("1 hour and 5 min", 3900)],
)
def test_spans_are_read(text: str, wanted: float) -> None:
    assert times.seconds_of(text) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(0, "0s"), (0.25, "250ms"), (3.21, "3.2s"), (75, "1m 15s"), (7200, "2h"), (90_061, "1d 1h")],
)
def test_spans_are_written_in_two_units(seconds: float, wanted: str) -> None:
    assert times.span_text(seconds) == wanted


def test_rates_are_so_many_a_second() -> None:
    assert times.RATE.convert("200/s", None, None) == 200
    assert times.RATE.convert("1_200/m", None, None) == 20
    for wrong in ("fast", "-1", "1/parsec"):
        with pytest.raises(click.BadParameter):
            times.RATE.convert(wrong, None, None)


# --- views ----------------------------------------------------------------------------------------

COLUMNS = [Column("name", short=True), Column("count", "count"), Column("at", "time"),
           Column("more", wide=True)]  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"name": "orders", "count": 1234567, "at": 1_700_000_000_000, "more": "x"},
    {"name": "a-very-long-name-that-has-no-end", "count": None, "at": None, "more": ["y", "z"]},
]


def written(view: views.View, form: views.Form, width: int | None = None) -> str:
    out = io.StringIO()
    views.write(view, form, out, width=width)
    return out.getvalue()


def test_a_table_for_people_lines_up_and_shortens_only_for_a_terminal() -> None:
    head, first, second = written(Table(COLUMNS, ROWS), "table").splitlines()
    assert head.split() == ["NAME", "COUNT", "AT"]
    assert "1,234,567" in first
    assert second.split() == ["a-very-long-name-that-has-no-end", "–", "–"]
    narrow = written(Table(COLUMNS, ROWS), "table", width=45).splitlines()
    assert max(map(len, narrow)) <= 45
    assert "…" in narrow[2]
    assert "y, z" in written(Table(COLUMNS, ROWS), "wide", width=45)
    assert written(Table(COLUMNS, [], empty="no topic"), "table") == "no topic\n"


def test_what_nobody_knows_is_null_for_programs() -> None:
    first, second = json.loads(written(Table(COLUMNS, ROWS), "json"))
    assert first["at"] == "2023-11-14T22:13:20.000Z"
    assert (second["count"], second["more"]) == (None, ["y", "z"])
    assert written(Table(COLUMNS, ROWS), "csv").splitlines()[2].endswith(',,,"[""y"", ""z""]"')


def test_a_page_has_facts_and_tables_in_every_form() -> None:
    page = Page([(Column("name"), "n")], {"rows": Table(COLUMNS, ROWS)}, main="rows", note="so")
    assert json.loads(written(page, "json")).keys() == {"name", "rows"}
    assert written(page, "table").startswith("name  n\n\nROWS\n  NAME")
    assert written(page, "table").endswith("so\n")
    assert written(page, "csv").startswith("name,count,at,more\n")
    assert written(Page([(Column("size", "size"), 5)]), "csv") == "name,value\nsize,5\n"


@pytest.mark.parametrize(("size", "wanted"), [(5, "5 B"), (2048, "2.0 KiB"), (3 << 30, "3.0 GiB")])
def test_sizes_have_units(size: int, wanted: str) -> None:
    assert views.shown(size, "size") == wanted


def test_colours_are_for_terminals_and_never_against_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert screen.is_colored(Terminal())
    assert not screen.is_colored(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not screen.is_colored(Terminal())
    out = Terminal()
    views.write(Page([], text=click.style("red", fg="red")), "table", out)
    assert out.getvalue() == "red\n"


def test_progress_says_how_far_how_fast_and_how_long() -> None:
    assert screen.progress_text(50, 200, 10.0) == "50 of 200 (25 %), 5/s, 30s left"
    assert screen.progress_text(7, None, 1.0) == "7, 7/s"


def test_latencies_have_percentiles_in_little_room() -> None:
    seen = Latencies()
    for number in range(1, 1001):
        seen.add(number / 1000)
    assert seen.percentile(50) == pytest.approx(0.5, rel=0.05)
    assert seen.percentile(99) == pytest.approx(0.99, rel=0.05)
    assert seen.percentile(100) == pytest.approx(1.0, rel=0.05)
    assert sum(row["count"] for row in seen.histogram().rows) == 1000
    assert Latencies().percentile(50) is None
    assert Latencies().histogram().rows == []


# --- decoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "form", "data"),
    [
        (b'{"a": 1}', "json", {"a": 1}),
        (b"[1, 2]", "json", [1, 2]),
        (b"17", "json", 17),
        (b"{broken", "text", "{broken"),
        ("grün\n".encode(), "text", "grün\n"),
        (b"", "text", ""),
        (b"\x82\xa1a\x01\xa1b\xc4\x01\xff", "msgpack", {"a": 1, "b": "ff"}),
        (b"\x01\x02", "hex", "0102"),
        (b"\x1b[2J", "hex", "1b5b324a"),  # nothing that would move a terminal
        (b"\xff", "hex", "ff"),
        (b"Obj\x01nothing", "hex", b"Obj\x01nothing".hex()),
    ],
)
def test_bodies_are_taken_for_what_they_look_like(body: bytes, form: str, data: Any) -> None:
    found = Decoder()(body)
    assert (found.form, found.data) == (form, data)


@given(st.binary(max_size=60), st.sampled_from(["auto", "json", "msgpack", "avro", "protobuf"]))
def test_any_bytes_are_decoded_or_shown_as_hex(body: bytes, form: str) -> None:
    found = Decoder(form)(body)
    json.dumps(found.data, default=str)
    if found.error is not None:
        assert (found.form, found.data) == ("hex", body.hex())
        assert found.error.startswith(f"not {form}")


def test_avro_comes_with_its_schema_or_is_given_one(tmp_path: Path) -> None:
    import fastavro

    schema = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    file, plain = io.BytesIO(), io.BytesIO()
    fastavro.writer(file, schema, [{"id": 7}])
    fastavro.schemaless_writer(plain, schema, {"id": 8})
    assert Decoder()(file.getvalue()).data == {"id": 7}
    path = tmp_path / "o.avsc"
    path.write_text(json.dumps(schema))
    decode = Decoder("avro", path)
    assert decode(plain.getvalue()).data == {"id": 8}
    assert decode(file.getvalue()).data == {"id": 7}
    assert "left over" in str(decode(plain.getvalue() + b"xx").error)


def test_protobuf_has_names_with_a_description_and_numbers_without(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="tags", number=2, type=9, label=3)
    path = tmp_path / "o.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    body = b"\x08\x96\x01\x12\x01a\x12\x01b"
    assert Decoder("protobuf", path, "shop.Order")(body).data == {"id": "150", "tags": ["a", "b"]}
    assert Decoder("protobuf")(body).data == {"1": 150, "2": ["a", "b"]}
    assert protobuf_fields(b"\x0a\x02\x08\x05\x15\x01\x00\x00\x00") == {"1": {"1": 5}, "2": 1}
    with pytest.raises(ConfigError, match=r"no message 'shop\.Nothing'"):
        Decoder("protobuf", path, "shop.Nothing")
    with pytest.raises(ConfigError, match="--message"):
        Decoder("protobuf", path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Decoder("avro", tmp_path / "absent")


# --- exit codes -----------------------------------------------------------------------------------


def test_each_kind_of_ending_has_its_code() -> None:
    assert exits.code_of(GroupNotFound.because("x")) == 3
    assert exits.code_of(InvalidInput("x")) == 2
    assert exits.code_of(CallTimeout("x")) == 5
    assert exits.code_of(PartlyDone("x", done=("a",), failed={"b": CallTimeout("y")})) == 6
    assert exits.code_of(exits.Refused("x")) == 4
    assert exits.code_of(ConfigError("x")) == 1


# --- contexts -------------------------------------------------------------------------------------


def test_contexts_are_kept_for_their_owner_alone(alone: Cli) -> None:
    alone("context", "add", "prod", "mq1:9876;mq2:9876", "--set", "tls=true")
    alone("context", "add", "lab", "rmq://lab:1/space")
    first, second = alone.json("context", "list")
    assert [(one["name"], one["current"]) for one in (first, second)] == [
        ("lab", False),
        ("prod", True),
    ]
    path = Path(alone.environ["GANTRY_CONFIG"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = alone.json("context", "show")
    assert shown == {
        "name_servers": "mq1:9876;mq2:9876",
        "said_by": f"context prod (current in {path})",
    }
    assert alone.json("context", "show", "--context", "lab")["name_servers"] == "lab:1"
    assert alone.json("context", "show", "-n", "here:1")["said_by"] == "--namesrv"
    alone("context", "use", "lab")
    assert alone.json("context", "show")["name_servers"] == "lab:1"
    assert "is there already" in alone("context", "add", "lab", "x", code=1).err
    assert "no setting" in alone("context", "add", "bad", "x", "--set", "tsl=1", code=1).err
    assert "no context is called" in alone("context", "use", "nobody", code=1).err
    alone("context", "remove", "lab")
    assert alone.json("context", "show")["said_by"] == "nobody said: this machine"


def test_a_secret_is_asked_for_or_read_and_never_shown(alone: Cli, tmp_path: Path) -> None:
    add = ("context", "add", "--set", "access_key=me")
    alone(*add, "asked", "a:1", stdin="hush\n")
    (tmp_path / "secret").write_text("hush\n")
    alone(*add, "read", "b:1", "--secret-file", tmp_path / "secret")
    told = alone("context", "list").out
    assert "hush" not in told
    assert told.count("***") == 2
    file = contexts_file.load(Path(alone.environ["GANTRY_CONFIG"]))
    assert {one["secret_key"] for one in file.contexts.values()} == {"hush"}


def test_a_file_of_contexts_survives_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    odd = {"url": 'a "quoted" \\ place', "tls": True, "call_timeout": 5, "address_map": ["a=b"]}
    contexts_file.Contexts(path, "od d", {"od d": odd}).save()
    assert contexts_file.load(path).contexts == {"od d": odd}
    for text, why in (
        ("x = [", "no TOML"),
        ("contexts = 1", "tables"),
        ('current = "x"', "is not there"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            contexts_file.load(path)


def test_the_environment_wins_over_the_file_and_options_over_both(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    contexts_file.Contexts(path, "one", {"one": {"url": "one:1"}, "two": {"url": "two:1"}}).save()
    environ = {"GANTRY_CONFIG": str(path)}
    assert contexts_file.target(None, None, environ).url == "rmq://one:1"
    environ["NAMESRV_ADDR"] = "three:1"
    assert contexts_file.target(None, None, environ).origin == "NAMESRV_ADDR"
    environ["GANTRY_CONTEXT"] = "two"
    assert contexts_file.target(None, None, environ).url == "rmq://two:1"
    assert contexts_file.target(None, "one", environ).url == "rmq://one:1"
    assert contexts_file.target("rmq://four/space", "one", environ).url == "rmq://four/space"


# --- old names ------------------------------------------------------------------------------------


def test_all_old_names_are_known_and_have_a_new_form_or_a_reason(alone: Cli) -> None:
    listed = alone("mqadmin").out
    assert len(COMMANDS) >= 89
    assert all(name in listed for name in COMMANDS)
    for name, old in COMMANDS.items():
        if old.make is None:
            assert old.form in alone("mqadmin", name, code=1).err
    assert "did you mean topicRoute" in alone("mqadmin", "topicRout", code=2).err
    assert "needs -g" in alone("mqadmin", "consumerConnection", code=2).err
    assert "takes options alone" in alone("mqadmin", "topicRoute", "x", code=2).err


class _NoSession:
    class admin:  # noqa: N801
        @staticmethod
        def list_brokers() -> list[Any]:
            return []

        @staticmethod
        def list_topics(**_: Any) -> list[str]:
            return ["there"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("consumerProgress -g g -t t", "group lag g --topic t"),
        ("resetOffsetByTime -g g -t t -s now", "group reset g --topic t --to latest --yes"),
        ("resetOffsetByTime -g g -t t -s -1 -o 0 -q 3",
         "group reset g --topic t --to 0 --queue 3 --yes"),
        ("skipAccumulatedMessage -g g -t t", "group skip g --topic t --yes"),
        ("updateTopic -t new -c C -w 3 -r 3 -p 6",
         "topic create new --queues 3 --cluster C --perm rw"),
        ("updateTopic -t there -b h:1 -p 4", "topic alter there --broker h:1 --perm r"),
        ("updateTopic --topic new --clusterName C -a +a=b,-c",
         "topic create new --cluster C --attribute a=b --drop c"),
        ("deleteSubGroup -g g -r true", "group delete g --yes"),
        ("deleteSubGroup -g g", "group delete g --yes --keep-offsets"),
        ("queryMsgById -i ID -t t", "message get ID --topic t"),
        ("queryMsgById -i ID -g g -d client", "message redeliver ID --group g --client client"),
        ("queryMsgByOffset -t t -b b -i 1 -o 9", "message get --topic t --offset b:1:9"),
        ("printMsgByQueue -t t -a b -i 1", "message cat t --broker b --queue 1"),
        ("wipeWritePerm -b b", "broker drain b --yes --force"),
        ("updateBrokerConfig -b b -k k -v v", "broker config set b k=v"),
        ("updateKvConfig -s s -k k -v v", "namesrv kv set s k v"),
        ("setConsumeMode -t t -g g -m POP -q 3", "group mode g t pop --share-queues 3"),
        ("cleanExpiredCQ", "storage clean queues --yes"),
        ("allocateMQ -t t -i a,b,c", "group simulate-assign t --members 3"),
        ("producerConnection -g g -t t", "client list --producer --group g"),
    ],
)  # fmt: skip
def test_old_lines_become_new_ones(old: str, new: str) -> None:
    name, *rest = old.split()
    make = COMMANDS[name].make
    assert make is not None
    assert " ".join(make(Given(parse(name, rest).given), _NoSession())) == new  # type: ignore[arg-type]


# --- clocks ---------------------------------------------------------------------------------------


def test_a_brokers_clock_is_told_from_its_runtime() -> None:
    facts = {"bootTimestamp": "1000", "runtime": "[ 1 days, 0 hours, 1 minutes, 2 seconds ]"}
    assert clock_of(facts) == 1000 + (86_400 + 62) * 1000 + 500
    assert clock_of({}) is None
    assert clock_of({"bootTimestamp": "x", "runtime": "soon"}) is None
