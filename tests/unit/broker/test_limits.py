"""Attributes of topics that limit how much of them is kept."""

from gantrymq.protocol.topics import DeleteTopic, PutTopic, TopicSettings
from gantrymq.store.retention import Limits
from gantrymq.wire.command import Command
from tests.support import run_on
from tests.unit.broker.rig import START_MS, Rig, with_rig


async def put(rig: Rig, **attributes: str) -> None:
    signed = {f"+{name.replace('__', '.')}": value for name, value in attributes.items()}
    asked = PutTopic(topic="orders", read_queues=1, write_queues=1, perm=6, attributes=signed)
    await answer(rig, asked)


async def answer(rig: Rig, request) -> None:
    outcome = rig.answer(request)
    if isinstance(outcome, Command):
        request.reply_from(outcome)
    else:
        await outcome


@with_rig()
async def test_the_store_is_told_what_a_topic_says(rig):
    limits = rig.broker.store.limits
    assert limits == {}
    await put(rig, reserve__time="2", reserve__size="5000")
    assert limits == {"orders": Limits(seconds=7200.0, size=5000)}
    await put(rig, reserve__time="-1")
    assert limits == {"orders": Limits(seconds=None, size=5000)}
    await put(rig, reserve__size="-1")
    assert limits == {}
    await put(rig, reserve__size="0")
    await answer(rig, DeleteTopic(topic="orders"))
    assert limits == {}


def test_it_is_told_again_after_a_restart():
    async def main():
        rig = Rig().load()
        await put(rig, reserve__size="7")
        found = {"reserve.time": "soon", "reserve.size": "8"}
        rig.broker.topics.table["odd"] = TopicSettings(topic="odd", attributes=found)
        await put(rig, reserve__time="1")
        await rig.broker.close()
        again = Rig(files=rig.files).load()
        assert again.broker.store.limits == {
            "orders": Limits(seconds=3600.0, size=7),
            "odd": Limits(seconds=None, size=8),
        }
        await again.broker.close()

    run_on("virtual", main())


@with_rig()
async def test_what_is_beyond_the_limit_is_not_served_any_more(rig):
    for number in range(4):
        rig.send("orders", b"%d" % number)
        rig.now_ms = START_MS + (number + 1) * 1_800_000
        rig.aged += 1800
    await put(rig, reserve__time="1")
    rig.broker.store.clean()
    queue = rig.broker.store.queue("orders", 0)
    assert (queue.min_offset, queue.max_offset) == (2, 4)
