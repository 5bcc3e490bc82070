"""The generated reference says what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

from gantrymq import errors
from gantrymq.broker import table as broker
from gantrymq.nameserver import table as nameserver
from gantrymq.observe.metrics import METRICS
from gantrymq.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The text of every generated page, by name."""
    target = tmp_path_factory.mktemp("generated")
    command = [sys.executable, str(ROOT / "tools" / "gen_reference.py"), str(target)]
    told = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    return {path.stem: path.read_text("utf-8") for path in target.iterdir()}


def rows(page):
    """The cells of the page's tables, without their heads."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = {"---", "Code", "Error", "RocketMQ", "Metric"}
    return [row for row in cells if row[0] not in heads]


def test_every_page_of_the_index_is_made_and_no_other(pages):
    index = (ROOT / "docs" / "reference" / "index.md").read_text("utf-8")
    assert {name for name in pages if f"generated/{name}\n" in index} == set(pages)
    assert index.count("generated/") == len(pages)


def test_errors_are_all_there_with_what_they_tell_callers(pages):
    table = {row[0]: row[1:] for row in rows(pages["errors"])}
    kinds = {
        f"`{name}`": kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.GantryError)
    }
    assert set(table) == set(kinds)
    assert table["`TopicNotFound`"][:3] == ["17", "yes", "yes"]
    assert table["`SystemBusy`"][:3] == ["2", "yes", ""]
    assert table["`ConfigError`"][:3] == ["", "", ""]
    assert all(row[3] for row in table.values())


def test_the_tree_of_errors_shows_who_is_whose_parent(pages):
    assert "\n  ProtocolError\n    LocalProtocolError\n      InvalidInput\n" in pages["errors"]


def test_every_request_code_is_either_typed_or_listed_as_not_yet(pages):
    typed, missing, *_ = pages["requests"].split("\n## ")[1:]
    of_typed, of_missing = ({int(row[0]) for row in rows(part)} for part in (typed, missing))
    assert not of_typed & of_missing
    assert of_typed | of_missing == {int(code) for code in RequestCode}
    assert all(len(row) == 2 or all(row) for row in rows(typed))


@pytest.mark.parametrize(
    ("heading", "column", "answered"),
    [
        ("What the broker refuses", 4, broker.HANDLERS),
        ("What the name server refuses", 5, nameserver.HANDLERS),
    ],
)
def test_what_a_server_refuses_is_all_that_it_does_not_answer(pages, heading, column, answered):
    parts = {part.partition("\n")[0]: part for part in pages["requests"].split("\n## ")[1:]}
    refused = {int(row[0]) for row in rows(parts[heading])}
    assert refused | set(answered) == {int(code) for code in RequestCode}
    assert not refused & set(answered)
    said = {int(row[0]): row[column] for row in rows(parts["Typed"])}
    assert {code for code, text in said.items() if text == "answers"} == set(answered)


def test_every_metric_is_told(pages):
    table = {row[0].strip("`"): row[1:] for row in rows(pages["metrics"])}
    assert list(table) == [one.name for one in METRICS]
    assert table["rocketmq_messages_in_total"][:2] == [
        "counter",
        "`topic`, `message_type`, `is_system`",
    ]


def test_the_glossary_knows_classes_functions_and_modules(pages):
    found = [(row[0], row[1]) for row in rows(pages["glossary"])]
    assert ("RequestCode", "`RequestCode`") in found
    assert ("Message", "`Message`") in found
    assert ("MessageQueue", "`MessageQueue`") in found
    assert found == sorted(found, key=lambda row: row[0].lower())


def test_the_commands_are_those_of_gantry(pages):
    assert "## `gantry completion`" in pages["commands"]
    assert "--install" in pages["commands"]
    assert "Usage: gantry completion [OPTIONS]" in pages["commands"]
