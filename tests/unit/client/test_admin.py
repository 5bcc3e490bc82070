"""Both faces of the administrator are the same, documented, and say so when they are closed."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace

import pytest

import gantrymq as gantry
from gantrymq.client import admin as module
from gantrymq.client.admin import Admin, AsyncAdmin
from gantrymq.errors import ClosedError
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.statistics import GetTopicStats
from tests.unit.flows.world import NS, A, B, route, stats, world

METHODS = sorted(
    name
    for name, found in vars(Admin).items()
    if inspect.isfunction(found) and not name.startswith("_") and name != "close"
)


def test_there_is_one_method_for_every_flow() -> None:
    assert len(METHODS) > 45
    assert {"create_topic", "group_lag", "plan_reset", "find_message"} <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_the_faces_have_equal_signatures_and_texts(name: str) -> None:
    plain, awaited = getattr(Admin, name), getattr(AsyncAdmin, name)
    assert inspect.signature(plain) == inspect.signature(awaited)
    assert inspect.getdoc(plain) == inspect.getdoc(awaited)
    assert inspect.getdoc(plain)
    assert not inspect.iscoroutinefunction(plain)
    assert inspect.iscoroutinefunction(awaited)
    assert next(iter(inspect.signature(plain).parameters)) == "self"


def test_a_method_runs_its_flow() -> None:
    runtime, reach = world()
    admin = Admin("rmq://nobody:1")
    admin._reach = reach
    assert admin.topic_status("orders").messages == 24
    assert [address for address, _ in runtime.asked(GetTopicStats)] == [A, B]
    admin.close()


def test_names_are_put_into_the_namespace() -> None:
    runtime, reach = world()
    for address, name in ((A, "broker-a"), (B, "broker-b")):
        runtime.answer(address, GetTopicStats, stats(name, (0, 1), topic="shop%orders"))
    runtime.answer(NS, GetRoute, route("shop%orders"))
    admin = Admin("rmq://nobody:1/shop")
    assert admin.reach.namespace == "shop"
    admin._reach = replace(reach, namespace="shop")
    assert admin.topic_status("orders").topic == "shop%orders"
    assert admin.topic_status(topic="shop%orders").topic == "shop%orders"
    assert {request.topic for _, request in runtime.asked(GetRoute)} == {"shop%orders"}
    admin.close()


def test_use_after_close_says_so() -> None:
    with gantry.Admin("rmq://nobody:1") as admin:
        assert repr(admin) == "<Admin nobody:1>"
    with pytest.raises(ClosedError, match="this Admin was closed, or not opened yet"):
        admin.list_topics()

    async def main() -> None:
        admin = gantry.AsyncAdmin("rmq://nobody:1")
        with pytest.raises(ClosedError, match="this AsyncAdmin"):
            await admin.list_topics()
        async with admin:
            assert admin.reach.name_servers == ("nobody:1",)
        await admin.close()
        with pytest.raises(ClosedError):
            await admin.list_topics()

    asyncio.run(main())


def test_the_page_that_shows_it_names_methods_that_exist() -> None:
    text = module.__doc__ or ""
    assert all(name in METHODS for name in ("plan_reset", "apply_reset", "group_lag"))
    assert "admin.apply_reset(plan)" in text
