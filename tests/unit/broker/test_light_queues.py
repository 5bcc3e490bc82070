"""Light queues: messages that are in further queues, over restarts and crashes."""

from __future__ import annotations

from random import Random

import pytest

from gantrymq.errors import ReplyError
from gantrymq.protocol.offsets import GetMaxOffset, UpdateConsumerOffset
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.command import Command
from tests.unit.broker.rig import Rig, bodies, on_loop, refusal, with_rig

A, B = "%LMQ%a", "%LMQ%b"


def named(*names: str, more: str = "") -> str:
    return f"{properties.MULTI_DISPATCH}\x01{','.join(names)}\x02{more}"


def entries(rig: Rig, topic: str) -> list[bytes]:
    return [message.body for message in rig.stored(topic)]


@on_loop
def test_a_message_is_in_the_queues_that_it_names(rig):
    rig.send(body=b"1", properties=named(A, B))
    rig.send(body=b"2", properties=named(B))
    rig.send(body=b"3")
    assert entries(rig, "orders") == [b"1", b"2", b"3"]
    assert entries(rig, A) == [b"1"]
    assert entries(rig, B) == [b"1", b"2"]
    places = [one.find(properties.MULTI_QUEUE_OFFSET) for one in rig.stored("orders")]
    assert places == ["0,0", "1", None]


@on_loop
def test_light_queues_are_read_as_others(rig):
    rig.send(body=b"1", properties=named(A, more="TAGS\x01x\x02"))
    rig.send(body=b"2", properties=named(A, more="TAGS\x01y\x02"))
    assert bodies(rig.pull(A)) == [b"1", b"2"]
    assert bodies(rig.pull(A, subscription="y")) == [b"2"]
    command = rig.answer(GetMaxOffset(topic=A, queue_id=0))
    assert isinstance(command, Command)
    assert command.fields["offset"] == "2"
    rig.answer(UpdateConsumerOffset(group="billing", topic=A, queue_id=0, offset=1))
    assert rig.broker.offsets.query("billing", A, 0) == 1
    assert A not in rig.broker.topics.table
    rig.broker.drop_unused()
    assert entries(rig, A) == [b"1", b"2"]


@on_loop
async def test_who_waits_at_a_light_queue_is_woken(rig):
    rig.send(body=b"1", properties=named(A))
    waiting = rig.pull(A, offset=1, flags=6, wait_ms=60_000)
    rig.send(body=b"2", properties=named(A))
    assert bodies(await waiting) == [b"2"]


@on_loop
def test_names_that_cannot_be_are_passed_over(rig):
    rig.send(properties=named("plain", "%LMQ%", "%LMQ%a/b", A, "", A))
    (stored,) = rig.stored("orders")
    assert stored.find(properties.MULTI_QUEUE_OFFSET) == "null,null,null,0,null,null"
    assert rig.store.queue("plain", 0) is None
    assert len(rig.stored(A)) == 1


@on_loop
def test_places_that_a_producer_makes_up_do_not_count(rig):
    forged = f"{properties.MULTI_QUEUE_OFFSET}\x01900\x02"
    rig.send(body=b"1", properties=named(A, more=forged))
    rig.send(body=b"2", properties=forged)
    assert entries(rig, A) == [b"1"]
    one = BatchMessage(b"3", f"KEYS\x01k\x02{named(A, more=forged)}".encode(), 0)
    rig.send(body=batch.encode([one]), batch=True)
    assert entries(rig, A) == [b"1"], "a batch is in its own queue alone"


@on_loop
def test_a_message_that_waits_is_in_no_light_queue_before_it_comes(rig):
    rig.send(properties=named(A, more="DELAY\x011\x02"))
    rig.send(properties=named(A, more="TRAN_MSG\x01true\x02"))
    assert rig.store.queue(A, 0) is None


@with_rig(store__queues__most_light=2)
def test_there_are_so_many_light_queues_at_most(rig):
    rig.send(properties=named(A))
    code, remark = refusal(lambda: rig.send(properties=named(B, "%LMQ%c")))
    assert (code, "2 light queues at most" in remark) == (2017, True)
    rig.send(properties=named(A, B))
    with pytest.raises(ReplyError, match="2 light queues"):
        rig.send(properties=named("%LMQ%c"))
    assert len(rig.stored("orders")) == 2


@with_rig(store__queues__light=False)
def test_light_queues_can_be_switched_off(rig):
    rig.send(properties=named(A))
    assert rig.store.queue(A, 0) is None
    assert len(rig.stored("orders")) == 1


@pytest.mark.parametrize("how", ["closed", "killed", "power cut", "queues lost"])
def test_light_queues_outlast_the_broker(how: str) -> None:
    disk = FaultyDisk()
    rig = Rig(disk=disk)
    rig.broker.topics.make("orders", queues=4)
    for n in range(20):
        rig.send(body=b"%d" % n, properties=named(*((A, B) if n % 2 else (B,))))
    if how == "closed":
        rig.store.close()
    else:
        rig.store.flush()
        disk = disk.after_power_cut(Random(7)) if how == "power cut" else disk.after_kill()
    if how == "queues lost":
        disk.remove_tree(rig.store.directory / "consumequeue")
    again = Rig(disk=disk, files=rig.files)
    assert entries(again, A) == [b"%d" % n for n in range(1, 20, 2)]
    assert entries(again, B) == [b"%d" % n for n in range(20)]
    again.broker.topics.make("orders", queues=4)
    again.send(body=b"more", properties=named(A, B))
    assert entries(again, A)[-1] == entries(again, B)[-1] == b"more"
    assert len(entries(again, B)) == 21
