"""Every request and reply of the catalogue, there and back, and what a peer may send instead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantrymq.errors import RemoteProtocolError, ReplyError
from gantrymq.protocol.catalogue import CATALOGUE
from gantrymq.wire import fastjson
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.connection import Connection
from tests import strategies

REQUESTS = sorted(set(CATALOGUE.values()), key=lambda cls: cls.__name__)
REPLIES = sorted({cls.REPLY for cls in REQUESTS}, key=lambda cls: cls.__name__)
EVERY = [*REQUESTS, *REPLIES]

every_class = pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
few = settings(
    max_examples=5 if settings.get_current_profile_name() == "gantry" else 200,
    suppress_health_check=[HealthCheck.too_slow],
)
"""There are hundreds of classes, so each gets few examples in an ordinary run."""


@every_class
@few
@given(data=st.data())
def test_comes_back_from_its_command(cls: Any, data: st.DataObject) -> None:
    value = data.draw(strategies.instances(cls))
    assert cls.from_command(value.command()) == value
    assert cls.from_command(value.command(bare_numbers=True)) == value


@settings(max_examples=300)
@given(data=st.data())
def test_comes_back_from_a_frame(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(EVERY))
    value = data.draw(strategies.instances(cls))
    wire = b"".join(Connection(header_type=HeaderType.JSON).encode(value.command()))
    (command,) = Connection().feed(wire)
    assert cls.from_command(command) == value


def read_or_refuse(cls: Any, command: Command) -> None:
    """Read `command`; only our own errors may come of it, and what is read can be written."""
    try:
        value = cls.from_command(command)
    except (RemoteProtocolError, ReplyError):
        return
    assert isinstance(value, cls)
    assert cls.from_command(value.command()) == value


@every_class
@few
@given(data=st.data())
def test_whatever_comes_is_read_or_refused(cls: Any, data: st.DataObject) -> None:
    command = data.draw(strategies.instances(cls)).command()
    names = st.sampled_from(sorted(body_names(cls))) if body_names(cls) else strategies.texts
    tree = strategies.json_trees(names).map(fastjson.dumps)
    bodies = st.just(command.body) | st.binary(max_size=60) | tree | mutated(command.body)
    fields = st.just(command.fields) | strategies.junk_fields(cls)
    code = data.draw(codes(cls))
    read_or_refuse(cls, Command(code, fields=data.draw(fields), body=data.draw(bodies)))


def codes(cls: Any) -> st.SearchStrategy[int]:
    known = [0] if strategies.is_reply(cls) else [int(code) for code in cls.codes()]
    return st.sampled_from(known) | strategies.int32s


def mutated(body: Any) -> st.SearchStrategy[bytes]:
    """The body with one byte changed or its end cut off."""
    raw = bytes(body)
    if not raw:
        return st.just(b"{")
    cut = st.integers(0, len(raw)).map(lambda end: raw[:end])
    place = st.integers(0, len(raw) - 1)
    changed = st.builds(
        lambda at, new: raw[:at] + new + raw[at + 1 :], place, st.binary(max_size=2)
    )
    return cut | changed


def body_names(cls: Any) -> set[str]:
    """Every member name that occurs in the class's own JSON."""
    found: set[str] = set()

    def collect(hint: Any) -> None:
        for part in strategies.declared_parts(hint):
            found.add(part.wire)
            collect(part.hint)

    collect(cls)
    return found
