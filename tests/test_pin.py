"""tools/pin.py: who needs what where, and the markers that say so."""

import shutil

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from tools import pin
from tools.pin import EVERYWHERE, PLATFORMS, PYTHONS, Pinned, follow, marker, pin_file


def pinned(**needs):
    """A resolution in which everything is at version 1."""
    return {
        name: Pinned(name=name, version="1", needs=[Requirement(line) for line in lines])
        for name, lines in needs.items()
    }


def walk(found, group, *lines):
    return {
        need.name
        for environment in EVERYWHERE
        for need in follow(map(Requirement, lines), found, group, environment)
    }


def places(pythons=PYTHONS, platforms=PLATFORMS):
    return {(python, platform) for python in pythons for platform in platforms}


@pytest.mark.parametrize(
    ("environments", "expected"),
    [
        (places(), ""),
        (places(pythons=PYTHONS[:3]), "python_version < '3.14'"),
        (places(pythons=PYTHONS[1:]), "python_version >= '3.12'"),
        (places(pythons=["3.12"]), "python_version >= '3.12' and python_version < '3.13'"),
        (places(platforms=["linux", "darwin"]), "sys_platform != 'win32'"),
        (places(platforms=["win32"]), "sys_platform == 'win32'"),
        (places(["3.11"], ["win32"]), "python_version < '3.12' and sys_platform == 'win32'"),
    ],
)
def test_a_marker_says_where_in_few_words(environments, expected):
    assert marker(environments) == expected


@pytest.mark.parametrize(
    "environments",
    [
        places(["3.11"], ["win32"]) | places(platforms=["linux"]),
        places(PYTHONS[:2], ["linux", "darwin"]) | places(PYTHONS[2:], ["win32"]),
        places(pythons=["3.14"], platforms=["darwin"]),
    ],
)
def test_a_marker_is_true_there_and_nowhere_else(environments):
    text = Marker(marker(environments))
    true = {
        (python, platform)
        for python, platform in EVERYWHERE
        if text.evaluate({"python_version": python, "sys_platform": platform})
    }
    assert true == environments


def test_a_row_of_pythons_with_a_gap_is_refused():
    with pytest.raises(SystemExit, match="broken row of Pythons"):
        marker(places(pythons=["3.11", "3.13"]))


def test_needs_are_followed_to_the_end_and_round_in_circles():
    found = pinned(a=["b"], b=["c", "a"], c=[], unused=[])
    assert walk(found, "base", "a") == set()
    assert [name for name, one in found.items() if one.used_in] == ["a", "b", "c"]


def test_extras_are_followed_only_where_they_are_asked_for():
    found = pinned(a=["b ; extra == 'fast'", "c"], b=[], c=[])
    walk(found, "base", "a")
    assert not found["b"].used_in
    walk(found, "test", "a[fast]")
    assert set(found["b"].used_in) == {"test"}
    assert set(found["c"].used_in) == {"base", "test"}


def test_what_is_needed_elsewhere_and_not_pinned_is_told():
    found = pinned(a=["colorama ; sys_platform == 'win32'", "tomli ; python_version < '3.11'"])
    assert walk(found, "base", "a") == {"colorama"}


def test_a_file_has_what_its_group_needs_and_what_it_stands_on():
    found = pinned(orjson=[], click=[], pytest=["colorama ; sys_platform == 'win32'"], colorama=[])
    for group, name in (("base", "orjson"), ("server", "click"), ("test", "pytest")):
        walk(found, group, name)
    head = "# Written by tools/pin.py; change the group's source and run it again.\n"
    assert pin_file("base", found) == head + "orjson==1\n"
    assert pin_file("server", found) == head + "click==1\norjson==1\n"
    assert pin_file("test", found) == head + "colorama==1 ; sys_platform == 'win32'\npytest==1\n"


def test_a_pip_that_fails_is_shown(monkeypatch):
    monkeypatch.setattr(pin.sys, "executable", shutil.which("false"))
    with pytest.raises(SystemExit, match="pip could not resolve orjson"):
        pin.pip("orjson")
