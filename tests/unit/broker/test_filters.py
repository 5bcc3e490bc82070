"""SQL92 filters at the broker: who gets what, who is woken, and who is refused."""

from __future__ import annotations

import asyncio

from gantrymq.broker import queries
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.pulling import PullFlag, PullStatus
from gantrymq.protocol.statistics import QueryConsumeQueue
from gantrymq.wire import properties
from tests.unit.broker.people import Client, beat
from tests.unit.broker.rig import bodies, on_loop, refusal, with_rig

DEAR = "amount > 10 AND region IN ('north', 'east')"


def fill(rig, **more):
    for n, region in enumerate(("north", "south", "east", "west") * 3):
        rig.send(
            body=b"%d" % n,
            properties=properties.join({"amount": str(n * 3), "region": region}),
            **more,
        )


def wants(expression, version=1, kind="SQL92", topic="orders"):
    return [Subscription(topic=topic, expression=expression, expression_type=kind, version=version)]


def sql(rig, expression=DEAR, **more):
    return rig.pull(subscription=expression, expression_type="SQL92", **more)


@on_loop
def test_a_pull_that_says_what_it_wants(rig):
    fill(rig)
    reply = sql(rig)
    assert bodies(reply) == [b"4", b"6", b"8", b"10"]
    assert (reply.status, reply.next_offset) == (PullStatus.FOUND, 12)
    nothing = sql(rig, "amount > 1000")
    assert (nothing.status, nothing.next_offset) == (PullStatus.NOTHING_MATCHED, 12)
    seen = rig.broker.consumers.subscription("billing", "orders")
    assert (seen.expression, seen.expression_type) == ("amount > 1000", "SQL92")
    code, remark = refusal(lambda: sql(rig, "amount >"))
    assert code == 23
    assert (
        "parse the consumer's subscription failed: the expression is wrong at character 9" in remark
    )
    assert refusal(lambda: sql(rig, ""))[0] == 23
    assert refusal(lambda: rig.pull(subscription="a", expression_type="XPATH"))[0] == 23


@on_loop
def test_a_pull_whose_group_said_what_it_wants(rig):
    fill(rig)
    client = Client()
    beat(rig, client, consumes={"billing": wants(DEAR)})
    assert bodies(rig.pull(flags=0)) == [b"4", b"6", b"8", b"10"]
    beat(rig, client, consumes={"billing": wants("amount = 33", version=2)})
    assert bodies(rig.pull(flags=0)) == [b"11"]
    assert refusal(lambda: rig.pull(flags=0, subscription_version=3))[0] == 25
    for version, wrong in enumerate((wants("amount = ", 3), wants("x", 4, kind="XPATH")), 3):
        beat(rig, client, consumes={"billing": wrong})
        code, remark = refusal(
            lambda version=version: rig.pull(flags=0, subscription_version=version)
        )
        assert code == 27
        assert remark.startswith("The broker's consumer filter data is not exist!")
    beat(rig, client, consumes={"billing": wants("7", version=5, kind="TAG")})
    assert bodies(rig.pull(flags=0)) == []


@with_rig(pulls__sql=False)
def test_where_it_is_turned_off(rig):
    fill(rig)
    beat(rig, Client(), consumes={"billing": wants(DEAR)})
    refused = (1, "The broker does not support consumer to filter message by SQL92")
    assert refusal(lambda: sql(rig)) == refused
    assert refusal(lambda: rig.pull(flags=0)) == refused


@on_loop
async def test_only_a_message_that_matches_wakes_a_pull(rig):
    fill(rig)
    waiting = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
    pulled = asyncio.ensure_future(sql(rig, offset=12, flags=waiting, wait_ms=60_000))
    await asyncio.sleep(0)
    rig.send(properties=properties.join({"amount": "5", "region": "north"}))
    await asyncio.sleep(0)
    assert rig.broker.waiting.count == 1
    rig.send(body=b"dear", properties=properties.join({"amount": "50", "region": "north"}))
    assert bodies(await pulled) == [b"dear"]


@on_loop
def test_what_comes_back_has_the_properties_that_it_was_sent_with(rig):
    retries = "%RETRY%billing"
    beat(rig, Client(), consumes={"billing": wants("amount = 1")})
    for n in (1, 2):
        text = properties.join({"amount": str(n), "RETRY_TOPIC": "orders"})
        rig.send(retries, body=b"%d" % n, properties=text)
    assert bodies(sql(rig, "amount = 2", topic=retries)) == [b"2"]


@with_rig(pulls__filter_retries=True)
def test_what_comes_back_by_what_the_group_wants_of_its_topic(rig):
    retries = "%RETRY%billing"
    beat(rig, Client(), consumes={"billing": wants("amount = 1")})
    for n, topic in ((1, "orders"), (2, "orders"), (3, "bills")):
        text = properties.join({"amount": str(n), "RETRY_TOPIC": topic})
        rig.send(retries, body=b"%d" % n, properties=text)
    assert bodies(sql(rig, "amount = 2", topic=retries)) == [b"1", b"3"]


@on_loop
def test_a_queue_is_looked_into_as_an_sql_consumer_sees_it(rig):
    fill(rig)
    beat(rig, Client(), consumes={"billing": wants("region = 'west'")})
    request = QueryConsumeQueue(topic="orders", queue_id=0, index=0, count=4, group="billing")
    seen = queries.query_consume_queue(request, rig.broker, rig.caller)
    assert [one.matches for one in seen.entries] == [False, False, False, True]
    beat(rig, Client(), consumes={"billing": wants("region = ", version=2)})
    seen = queries.query_consume_queue(request, rig.broker, rig.caller)
    assert not any(one.matches for one in seen.entries)
    assert "at character 10" in seen.filter_data


@on_loop
async def test_old_messages_are_fetched_before_they_are_looked_at(rig):
    fill(rig)
    for _ in range(18):
        rig.send("other", body=bytes(1_000_000))
    rig.disk.cold = True
    reply = await sql(rig)
    assert bodies(reply) == [b"4", b"6", b"8", b"10"]
    assert rig.disk.warmed
