"""What blocks and what is awaited are called alike, and documented alike."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from typing import Any

import pytest

import gantrymq as gantry
from gantrymq.errors import ClosedError

PAIRS = [
    (gantry.Consumer, gantry.AsyncConsumer),
    (gantry.PullConsumer, gantry.AsyncPullConsumer),
]


def public(cls: type) -> dict[str, Any]:
    return {name: found for name, found in vars(cls).items() if not name.startswith("_")}


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_both_faces_have_the_same_members(plain: type, awaited: type) -> None:
    assert sorted(public(plain)) == sorted(public(awaited))
    for name, found in public(plain).items():
        twin = vars(awaited)[name]
        assert isinstance(found, property) == isinstance(twin, property)
        assert inspect.getdoc(found) == inspect.getdoc(twin), name
        assert inspect.getdoc(found), name
        assert not inspect.iscoroutinefunction(found), name


@pytest.mark.parametrize("name", ["Producer", "Reader", "Admin", "SimpleConsumer"])
def test_other_pairs_have_the_same_members_and_arguments(name: str) -> None:
    plain, awaited = getattr(gantry, name), getattr(gantry, f"Async{name}")
    assert {*public(plain)} == {*public(awaited)} - {"open"}  # which the plain one does by itself
    for method, found in public(plain).items():
        assert inspect.getdoc(found), method
        if callable(found):
            twin = getattr(awaited, method)
            assert [*inspect.signature(found).parameters] == [*inspect.signature(twin).parameters]


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_both_faces_have_the_same_signatures(plain: type, awaited: type) -> None:
    for name, found in {**public(plain), "__init__": plain.__init__}.items():  # type: ignore[misc]
        if callable(found):
            assert inspect.signature(found) == inspect.signature(getattr(awaited, name)), name


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_each_has_its_way_in_and_out(plain: type, awaited: type) -> None:
    assert {"__enter__", "__exit__"} <= vars(plain).keys()
    assert {"__aenter__", "__aexit__"} <= vars(awaited).keys()


@pytest.mark.parametrize("name", ["Reader", "Admin"])
def test_use_after_close_says_so(name: str) -> None:
    made = getattr(gantry, name)("rmq://nobody:1")
    made.close()
    made.close()
    with pytest.raises(ClosedError, match=f"this {name} was closed"):
        made.queues("orders") if name == "Reader" else made.topic_status("orders")


@pytest.mark.parametrize("name", ["AsyncReader", "AsyncAdmin"])
def test_awaiting_after_close_says_so(name: str) -> None:
    async def main() -> None:
        async with getattr(gantry, name)("rmq://nobody:1") as made:
            pass
        await made.close()
        with pytest.raises(ClosedError, match=f"this {name} was closed"):
            await (made.queues("orders") if name == "AsyncReader" else made.topic_status("orders"))

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("name", ["Reader", "Admin", "AsyncReader", "AsyncAdmin"])
def test_a_forked_child_is_told(name: str) -> None:
    use = "queues" if name.endswith("Reader") else "topic_status"
    told = f"made.{use}('orders')"
    if name.startswith("Async"):
        told = f"asyncio.run({told})"
    program = f"""
import asyncio, os, gantrymq
from gantrymq.errors import ClosedError
made = gantrymq.{name}("rmq://nobody:1")
if hasattr(made, "open"):
    asyncio.run(made.open())
if os.fork() == 0:
    try:
        {told}
    except ClosedError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert f"this {name} was made in process" in done.stdout, done.stderr
    assert "forked" in done.stdout
