"""What blocks and what is awaited are called alike, and documented alike."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import gantrymq as gantry

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


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_both_faces_have_the_same_signatures(plain: type, awaited: type) -> None:
    for name, found in {**public(plain), "__init__": plain.__init__}.items():  # type: ignore[misc]
        if callable(found):
            assert inspect.signature(found) == inspect.signature(getattr(awaited, name)), name


@pytest.mark.parametrize(("plain", "awaited"), PAIRS)
def test_each_has_its_way_in_and_out(plain: type, awaited: type) -> None:
    assert {"__enter__", "__exit__"} <= vars(plain).keys()
    assert {"__aenter__", "__aexit__"} <= vars(awaited).keys()
