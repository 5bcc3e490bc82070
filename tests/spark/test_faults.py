"""What goes wrong around a reading: it goes on, or says what is missing, and never keeps quiet."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import gantrymq as gantry
from gantrymq.client.identity import now_ms
from gantrymq.errors import DataLost, GantryError, ReadFailed, RemoteProtocolError, SendFailed
from gantrymq.model import MessageQueue
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.brokers import DeleteExpiredLog
from gantrymq.protocol.offsets import GetMinOffset
from gantrymq.protocol.sending import SendMessage
from gantrymq.wire.flags import COMPRESSED
from tests.rows.platforms import NORTH, SOUTH, Ours
from tests.spark import direct
from tests.spark.direct import away

PATIENCE = 60.0


def numbers(start, end):
    return [b"%06d" % number for number in range(start, end)]


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


# --- messages that are gone -----------------------------------------------------------------------


def forget(place):
    """Have the broker drop all files but the last; where queue 0 of the topic begins then."""
    with BlockingPeer.connect(place.server.broker) as peer:

        def least():
            peer.call(DeleteExpiredLog(), timeout=20)
            question = GetMinOffset(topic=place.topic, queue_id=0)
            return peer.call(question, timeout=20).offset

        until(lambda: least() > 20)
        return least()


def fill(place):
    """More than one file of messages."""
    place.make(queues=1)
    place.send([bytes(100_000)] * 400)


def test_a_retention_overrun_is_an_error_that_names_the_offsets(place, caplog):
    fill(place)
    how = place.options | {"startingOffsets": "earliest", "columns": "queue_offset,broker"}
    with direct.Stream(**how, maxOffsetsPerTrigger=10) as stream:
        first = stream.step()
        assert first.num_rows == 10
        made = direct.source(how)
        planned = made.reader(direct.schema_in(made, None))
        partitions = planned.partitions()
        least = forget(place)
        with pytest.raises(DataLost, match=r"offsets 10 to 19: removed at the broker") as lost:
            stream.step()
        broker = first["broker"][0].as_py()
        assert lost.value.lost == ((place.topic, broker, 0, 10, 20),)
        with pytest.raises(DataLost, match=rf"offsets 0 to {least - 1:,}: removed at the broker"):
            direct.table(planned, partitions)  # it was all there when the batch was planned
        with direct.Stream(stream.at, **how, failOnDataLoss=False) as on:
            with caplog.at_level(logging.WARNING):
                rest = on.step()
            assert rest["queue_offset"].to_pylist() == list(range(least, 400))
            assert f"offsets 10 to {least - 1:,}: removed at the broker" in caplog.text


def test_a_start_before_the_oldest_message_is_a_loss(ours):
    fill(ours)
    least = forget(ours)
    broker = ours.server.BROKER
    starts = f'{{"{ours.topic}": {{"{broker}": {{"0": 3}}}}}}'
    how = ours.options | {"startingOffsets": starts, "columns": "queue_offset"}
    with pytest.raises(DataLost, match=rf"offsets 3 to {least - 1:,}: removed at the broker"):
        direct.read(**how)
    found = direct.read(**how, failOnDataLoss=False)
    assert found["queue_offset"].to_pylist() == list(range(least, 400))


def test_queues_that_were_removed(ours, caplog):
    ours.make(queues=4)
    ours.send(numbers(0, 4_000))
    how = ours.options | {"startingOffsets": "earliest", "topicRefresh": 0, "columns": "body"}
    with direct.Stream(**how, maxOffsetsPerTrigger=2_000) as stream:
        assert stream.step().num_rows == 2_000
        with ours.admin() as admin:
            admin.alter_topic(ours.topic, queues=2)
        with pytest.raises(DataLost, match="the queue was removed, with all that it had") as lost:
            stream.step()
        assert {queue for _, _, queue, _, _ in lost.value.lost} <= {2, 3}
        with direct.Stream(stream.at, **how, failOnDataLoss=False) as on:
            with caplog.at_level(logging.WARNING):
                on.step()
            assert set(on.at[ours.topic][ours.server.BROKER]) == {"0", "1"}
            assert "the queue was removed" in caplog.text


# --- brokers that die -----------------------------------------------------------------------------


def test_a_task_waits_for_a_broker_that_dies_and_comes_back(place):
    place.make(queues=2)
    place.send(numbers(0, 40_000))
    made = direct.source(place.options | {"columns": "body", "pullBytes": "64k"})
    reader = made.reader(direct.schema_in(made, None))
    (partition, *others) = reader.partitions()
    batches = reader.read(partition)
    found = [next(batches)]
    with away(place.server):
        found += list(batches)
    found += [batch for one in others for batch in reader.read(one)]
    assert direct.bodies(pa.Table.from_batches(found)) == numbers(0, 40_000)


def test_a_writing_task_does_so_too(place):
    place.make(queues=2)

    def batches():
        rows = pa.table({"body": numbers(0, 20_000)}).to_batches(1_000)
        yield from rows[:5]
        with away(place.server):
            yield from rows[5:]

    class Rows:
        def to_batches(self):
            return batches()

    direct.write(Rows(), **place.options)
    found = direct.bodies(direct.read(**place.options, columns="body"))
    assert sorted(set(found)) == numbers(0, 20_000)
    unique = direct.read(**place.options, columns="body", dropDuplicates=True)
    assert direct.bodies(unique) == numbers(0, 20_000)


@pytest.fixture(scope="module")
def pair():
    """A name server and two brokers, each a process that can be killed."""
    with closing(Ours()) as running:
        yield running


@pytest.fixture
def shared(pair, request):
    """A topic on both brokers; what leads there."""
    topic = f"pair-{abs(hash(request.node.name)) % 10**8}"

    def both_registered():  # not yet, where the name server has just come back
        return len(admin.list_brokers()) == 2

    with gantry.Admin(name_servers=pair.name_server, timeout=20) as admin:
        until(both_registered)
        admin.create_topic(topic, queues=2)
    return {"nameServer": pair.name_server, "topic": topic}


def send_to(pair, where, broker, bodies):
    """Messages into queue 0 of one broker."""
    with gantry.Producer(name_servers=pair.name_server, group="faults") as producer:
        for body in bodies:
            producer.send(where["topic"], body, queue=MessageQueue(where["topic"], broker, 0))


def test_while_one_broker_is_away_the_others_go_on_and_its_queues_wait(pair, shared):
    how = shared | {"startingOffsets": "earliest", "columns": "body", "idleWait": "100ms"}
    with direct.Stream(**how) as stream:
        send_to(pair, shared, NORTH, [b"n1"])
        send_to(pair, shared, SOUTH, [b"s1"])
        assert direct.bodies(stream.step()) == [b"n1", b"s1"]
        send_to(pair, shared, SOUTH, [b"s2"])
        pair.kill(SOUTH)
        try:
            send_to(pair, shared, NORTH, [b"n2"])
            assert direct.bodies(stream.step()) == [b"n2"]
            waiting = dict(stream.at[shared["topic"]][SOUTH])
            assert waiting == {"0": 1, "1": 0}
            with (
                direct.Stream(stream.at, **how, brokerTimeout="300ms") as short,
                pytest.raises(GantryError, match=f"broker {SOUTH} could not be asked"),
            ):
                for _ in range(100):
                    short.step()
        finally:
            pair.restart(SOUTH)
        found: list[bytes] = []
        until(lambda: found.extend(direct.bodies(stream.step())) or found)
        assert found == [b"s2"]


def test_without_a_name_server_what_is_known_goes_on(pair, shared, caplog):
    how = shared | {"startingOffsets": "earliest", "columns": "body", "topicRefresh": 0}
    with direct.Stream(**how, idleWait="100ms", callTimeout="1s") as stream:
        send_to(pair, shared, NORTH, [b"one"])
        assert direct.bodies(stream.step()) == [b"one"]
        with gantry.Producer(name_servers=pair.name_server, group="faults") as producer:
            queue = MessageQueue(shared["topic"], NORTH, 0)
            producer.send(shared["topic"], b"two", queue=queue)
            pair._names.kill()
            try:
                producer.send(shared["topic"], b"three", queue=queue)
                with caplog.at_level(logging.WARNING):
                    found = direct.bodies(stream.step())
                assert found == [b"three", b"two"]
                assert "routes cannot be looked up, what is known stays" in caplog.text
            finally:
                port = pair.name_server.rpartition(":")[2]
                pair._names = pair._run("names", "namesrv", (), "--port", port)
        with pytest.raises(GantryError, match="no name server answered"):
            direct.read(nameServer="127.0.0.1:1", topic=shared["topic"], callTimeout="1s")


def test_a_broker_that_stays_away_ends_the_task_with_its_name(pair, shared):
    send_to(pair, shared, SOUTH, numbers(0, 50))
    made = direct.source(shared | {"brokerTimeout": "300ms", "columns": "body"})
    reader = made.reader(direct.schema_in(made, None))
    partitions = reader.partitions()
    pair.kill(SOUTH)
    try:
        with pytest.raises(ReadFailed, match=rf"{shared['topic']}.*{SOUTH}.* was read up to 0"):
            direct.table(reader, partitions)
    finally:
        pair.restart(SOUTH)
    found = direct.read(**shared, columns="body")
    assert direct.bodies(found) == numbers(0, 50)


# --- messages and topics that are odd -------------------------------------------------------------


def test_a_body_that_cannot_be_opened(place, caplog):
    place.make(queues=1)
    place.send([b"good"])
    poison = SendMessage(
        group="faults",
        topic=place.topic,
        queue_id=0,
        flags=COMPRESSED,
        born_ms=now_ms(),
        properties="",
        body=b"not zlib",
    )
    with BlockingPeer.connect(place.server.broker) as peer:
        peer.call(poison, timeout=20)
    how = place.options | {"columns": "body,queue_offset"}
    with caplog.at_level(logging.WARNING):
        rows = direct.read(**how).to_pylist()
    assert rows == [
        {"body": b"good", "queue_offset": 0},
        {"body": None, "queue_offset": 1},
    ]
    assert f"{place.topic}" in caplog.text
    assert "@ 1: its body is compressed and cannot be opened" in caplog.text
    assert direct.read(**how, mode="dropmalformed").num_rows == 1
    with pytest.raises(RemoteProtocolError, match=rf"{place.topic}\S* @ 1"):
        direct.read(**how, mode="failfast")


def test_a_write_that_is_refused_says_partition_broker_and_code(place):
    place.make(queues=1)
    far = datetime.now(UTC) + timedelta(days=400)
    rows = pa.table({"body": [b"a", b"b"], "deliver_at": [None, far]})
    said = (
        rf"partition 3 of q:1: row 1 for topic {place.topic} could not be stored: 1 attempts in"
        rf" \S+s at {place.server.BROKER}; the last at broker {place.server.BROKER}, code 13: "
    )
    with pytest.raises(SendFailed, match=said) as refused:
        direct.write(rows, "q:1", 3, **place.options)
    assert (refused.value.code, refused.value.brokers) == (13, (place.server.BROKER,))


def test_a_queue_that_goes_while_it_is_written_to_is_left(ours):
    ours.make(queues=4)
    rows = pa.table({"body": numbers(0, 40), "sharding_key": [str(n % 7) for n in range(40)]})

    class Rows:
        def to_batches(self):
            yield from rows.slice(0, 20).to_batches()
            with ours.admin() as admin:
                admin.alter_topic(ours.topic, queues=1)
            yield from rows.slice(20).to_batches()

    written = direct.write(Rows(), **ours.options, batchBytes="1", seen=False)
    assert written.rows == 40
    with ours.admin() as admin:
        admin.alter_topic(ours.topic, queues=4)
    assert direct.bodies(direct.read(**ours.options)) == numbers(0, 40)


def test_a_topic_that_nobody_may_write_to(ours):
    ours.make(queues=1)
    with ours.admin() as admin:
        admin.alter_topic(ours.topic, permission="r")
    with pytest.raises(SendFailed, match=r"partition 4 of q:2: .*takes messages now"):
        direct.write(pa.table({"body": [b"x"]}), "q:2", 4, **ours.options)


def test_very_many_queues(ours):
    ours.make(queues=20_000)
    rows = pa.table({"body": numbers(0, 3_000)})
    direct.write(rows, **ours.options, batchBytes="1k", seen=False)
    how = ours.options | {"columns": "body", "startingOffsets": "earliest"}
    made = direct.source(how)
    reader = made.reader(direct.schema_in(made, None))
    partitions = reader.partitions()
    assert len(partitions) <= 2
    assert direct.bodies(direct.table(reader, partitions)) == numbers(0, 3_000)
    with direct.Stream(**how, idleWait=0) as stream:
        assert stream.step().num_rows == 3_000
        direct.write(rows, "again:0", **ours.options, batchBytes="1k", seen=False)
        assert stream.step().num_rows == 3_000


def test_a_micro_batch_is_repeated_by_a_driver_that_knows_nothing_yet(ours):
    """After a crash Spark asks for its partitions before anything else."""
    ours.make(queues=2)
    ours.send(numbers(0, 1_000))
    how = ours.options | {"startingOffsets": "earliest", "columns": "body"}
    with direct.Stream(**how) as stream:
        start = stream.at
        stream.step()
        end = stream.at
    with direct.Stream(start, **how) as again:
        found = direct.table(again.tasks, again.driver.partitions(start, end))
    assert direct.bodies(found) == numbers(0, 1_000)


def test_a_queue_that_was_made_anew_is_a_loss_in_a_running_query(ours, caplog):
    ours.make(queues=1)
    ours.send(numbers(0, 10))
    how = ours.options | {"startingOffsets": "earliest", "columns": "body", "idleWait": "50ms"}
    with direct.Stream(**how) as stream:
        assert stream.step().num_rows == 10
        with ours.admin() as admin:
            admin.delete_topic(ours.topic)
        ours.make(queues=1)
        ours.send(numbers(0, 3))
        begun = time.monotonic()
        with pytest.raises(DataLost, match=r"7 messages of .* are lost, offsets 3 to 9"):
            while True:
                assert stream.step().num_rows == 0
                assert time.monotonic() - begun < PATIENCE
        assert time.monotonic() - begun >= 2.5  # a broker that has just started gets a moment
        with direct.Stream(stream.at, **how, failOnDataLoss=False, brokerTimeout=0) as on:
            with caplog.at_level(logging.WARNING):
                on.step()
            assert "offsets 3 to 9: the query has read up to there" in caplog.text
            ours.send(numbers(3, 5))
            assert direct.bodies(on.step()) == numbers(3, 5)
