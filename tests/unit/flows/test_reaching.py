"""Any name server will do for a question; an order some did not take is told in full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantrymq.errors import (
    CallTimeout,
    ConnectFailed,
    InvalidInput,
    NoPermission,
    PartlyDone,
    TopicNotFound,
)
from gantrymq.flows.reaching import Gathered, gather
from gantrymq.protocol.base import Done
from gantrymq.protocol.configs import PutKey
from gantrymq.protocol.routing import GetClusterInfo, GetRoute
from gantrymq.runtime import run_blocking
from tests.unit.flows.world import ABSENT, NS, cluster, world


def test_the_next_name_server_is_asked_when_one_is_away() -> None:
    runtime, reach = world()
    reach = replace(reach, name_servers=("gone:9876", NS))
    assert run_blocking(reach.ask_name_server(GetClusterInfo())) == cluster()
    assert [address for address, _ in runtime.calls] == ["gone:9876", NS]


def test_a_refusal_is_an_answer_and_nobody_else_is_asked() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetRoute, ABSENT)
    reach = replace(reach, name_servers=(NS, "gone:9876"))
    with pytest.raises(TopicNotFound):
        run_blocking(reach.ask_name_server(GetRoute(topic="orders")))


def test_no_name_server_at_all_says_why_for_each() -> None:
    _, reach = world()
    reach = replace(reach, name_servers=("x:1", "y:2"))
    with pytest.raises(ConnectFailed, match=r"x:1: cannot.*y:2: cannot.*not of a broker"):
        run_blocking(reach.ask_name_server(GetClusterInfo()))
    with pytest.raises(InvalidInput, match="NAMESRV_ADDR"):
        run_blocking(replace(reach, name_servers=()).ask_name_server(GetClusterInfo()))


def test_an_order_goes_to_every_name_server() -> None:
    runtime, reach = world()
    runtime.answer(NS, PutKey, Done())
    runtime.answer("ns2:9876", PutKey, Done())
    reach = replace(reach, name_servers=(NS, "ns2:9876", "gone:9876"))
    with pytest.raises(PartlyDone) as caught:
        run_blocking(reach.tell_name_servers(lambda: PutKey(namespace="n", key="k", value="v")))
    assert caught.value.done == (NS, "ns2:9876")
    assert "done at 2 of 3 name servers" in str(caught.value)
    assert "gone:9876: cannot connect" in str(caught.value)


def test_what_fails_everywhere_in_one_way_is_that_error() -> None:
    refused = {name: NoPermission.because("no") for name in "ab"}
    with pytest.raises(NoPermission):
        Gathered({}, refused).whole("change it")
    with pytest.raises(PartlyDone, match="done at 0 of 2 brokers"):
        Gathered({}, {**refused, "b": CallTimeout("late")}).whole("change it")


def test_a_look_gives_what_was_seen() -> None:
    async def ask(name: str) -> int:
        if name == "b":
            raise CallTimeout("late")
        return 7

    gathered = run_blocking(gather("ab", ask))
    assert gathered.some("look") == {"a": 7}
    assert list(gathered.failures) == ["b"]
