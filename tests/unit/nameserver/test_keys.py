"""The table of keys and its file."""

import asyncio
from pathlib import Path

import pytest

from gantrymq.errors import BrokerFailure, ConfigError
from gantrymq.nameserver import files
from gantrymq.nameserver.files import Turns
from gantrymq.nameserver.keys import Keys, read_tables, with_key, without_key, write_tables
from tests.support import run_on


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "kvConfig.json"


def test_changes_make_new_tables_and_leave_the_old_ones():
    empty = {}
    one = with_key(empty, "N", "k", "v")
    two = with_key(one, "N", "l", "w")
    assert (empty, one, two) == ({}, {"N": {"k": "v"}}, {"N": {"k": "v", "l": "w"}})
    assert without_key(two, "N", "k") == {"N": {"l": "w"}}
    assert without_key(one, "N", "k") == {"N": {}}
    assert without_key(one, "N", "x") is one
    assert without_key(one, "M", "k") is one


def test_the_file_is_rocketmqs():
    tables = {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:8;broker-b:4"}, "free": {}}
    data = write_tables(tables)
    assert data == (
        b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8;broker-b:4"},"free":{}}}'
    )
    assert read_tables(data, Path("x")) == tables
    assert read_tables(b"{configTable:{'N':{'k':'v',},},}", Path("x")) == {"N": {"k": "v"}}
    assert read_tables(b" \n", Path("x")) == {}


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"configTable":{"N":"k"}}', b"\xff"])
def test_a_damaged_file_is_refused_by_name(path, data):
    with pytest.raises(ConfigError, match=r"kvConfig\.json cannot be read") as caught:
        read_tables(data, path)
    assert "move it away" in str(caught.value)


def test_what_is_put_is_there_after_a_restart(path):
    async def main() -> None:
        keys = Keys.load(path, Turns())
        assert keys.namespace("N") is None
        await keys.put("N", "k", "v")
        await keys.put("N", "ü\n", "✓")
        await keys.delete("N", "k")
        await keys.delete("N", "never there")
        assert keys.get("N", "k") is None

    run_on("asyncio", main())
    again = Keys.load(path, Turns())
    assert again.namespace("N") == {"ü\n": "✓"}
    assert [each.name for each in path.parent.iterdir()] == ["kvConfig.json"]


def test_a_disk_that_refuses_leaves_everything_as_it_was(path):
    async def main() -> None:
        keys = Keys.load(path, Turns())
        await keys.put("N", "k", "v")
        before = path.read_bytes()
        (path.parent / "kvConfig.json.new").mkdir()
        with pytest.raises(BrokerFailure, match="nothing changed"):
            await keys.put("N", "k", "w")
        assert keys.get("N", "k") == "v"
        assert path.read_bytes() == before

    run_on("asyncio", main())


def test_a_change_goes_on_when_who_asked_has_gone_and_the_next_one_waits(path, monkeypatch):
    async def main() -> None:
        turns = Turns()
        keys = Keys.load(path, turns)
        loop, begun, write = asyncio.get_running_loop(), asyncio.Event(), files.replace

        def slowly(*how: object) -> None:
            loop.call_soon_threadsafe(begun.set)
            write(*how)  # type: ignore[arg-type]

        monkeypatch.setattr(files, "replace", slowly)
        first = asyncio.create_task(keys.put("N", "first", "1"))
        await begun.wait()
        second = asyncio.create_task(keys.put("N", "second", "2"))
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        await turns.over()
        assert keys.namespace("N") == {"first": "1", "second": "2"}

    run_on("asyncio", main())
    assert Keys.load(path, Turns()).namespace("N") == {"first": "1", "second": "2"}


def test_a_file_that_cannot_take_the_name_leaves_no_litter(tmp_path):
    target = tmp_path / "occupied"
    (target / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="occupied"):
        files.replace(target, b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["occupied"]
    assert files.read(tmp_path / "missing") is None
