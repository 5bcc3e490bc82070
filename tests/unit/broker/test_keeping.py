"""Tables in files: written behind one's back, in order, and tried again."""

import logging

import pytest

from gantrymq.broker.keeping import Keeper
from tests.support import run_on, until
from tests.unit.broker.rig import MemoryFiles, SlowFiles


def test_a_change_is_written_and_can_be_waited_for():
    async def main():
        files = MemoryFiles()
        keeper = Keeper(files)
        keeper.keep("topics.json", lambda: {"n": 1})
        assert files.trees == {}
        await keeper.kept("topics.json")
        assert files.trees == {"topics.json": {"n": 1}}
        assert keeper.load("topics.json") == {"n": 1}
        await keeper.kept("unknown.json")

    run_on("asyncio", main())


def test_changes_during_a_write_make_one_more():
    async def main():
        files = SlowFiles()
        keeper = Keeper(files)
        for n in range(5):
            keeper.keep("t", lambda n=n: n)
        await until(files.begun.is_set)
        for n in range(5, 9):
            keeper.keep("t", lambda n=n: n)
        files.gate.set()
        await keeper.kept("t")
        assert files.saves == ["t", "t"]
        assert files.trees == {"t": 8}

    run_on("asyncio", main())


def test_a_write_that_fails_is_told_and_done_with_the_next_change(caplog):
    async def main():
        files = MemoryFiles()
        files.failing = "no room"
        keeper = Keeper(files)
        keeper.keep("t", lambda: 1)
        with pytest.raises(OSError, match="no room"):
            await keeper.kept("t")
        keeper.keep("u", lambda: 2)
        await until(lambda: len(caplog.records) == 2)
        files.failing = None
        await keeper.close()
        assert files.trees == {"t": 1, "u": 2}

    with caplog.at_level(logging.ERROR):
        run_on("asyncio", main())
    assert [record.args[0] for record in caplog.records] == ["t", "u"]


def test_closing_writes_what_is_left():
    async def main():
        files = MemoryFiles()
        keeper = Keeper(files)
        keeper.keep("t", lambda: 1)
        await keeper.close()
        assert files.trees == {"t": 1}

    run_on("asyncio", main())
