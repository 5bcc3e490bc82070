"""Readers against a name server and brokers: everything there is, exactly, in three forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gantrymq.client.reader import AsyncReader, Reader
from gantrymq.errors import ConfigError, DataLost, InvalidInput, NoRoute, ReadFailed
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.net import aio
from gantrymq.wire import record
from gantrymq.wire.compression import compress
from gantrymq.wire.flags import Compression
from tests.cluster.threads import Platform, platform

Q0 = MessageQueue("orders", "broker-a", 0)


class Both:
    """Either reader, as what it reads."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url

    def messages(
        self, what: Any, start: Any = None, end: Any = None, **how: Any
    ) -> list[ReceivedMessage]:
        return self._read(how, lambda reader: reader.messages(what, start, end))

    def rows(
        self, what: Any, start: Any = None, end: Any = None, **how: Any
    ) -> list[dict[str, Any]]:
        columns = how.pop("columns", None)
        batches = self._read(how, lambda reader: reader.batches(what, start, end, columns=columns))
        return [row for batch in batches for row in batch.to_pylist()]

    def chunks(self, what: Any, start: Any = None, end: Any = None, **how: Any) -> list[bytes]:
        return self._read(how, lambda reader: reader.chunks(what, start, end))

    def ask(self, question: Callable[[Any], Any]) -> Any:
        if self.kind == "sync":
            with Reader(self.url) as reader:
                return question(reader)

        async def main() -> Any:
            async with AsyncReader(self.url) as reader:
                return await question(reader)

        return aio.run(main())

    def _read(self, how: dict[str, Any], of: Callable[[Any], Any]) -> list[Any]:
        if self.kind == "sync":
            with Reader(self.url, **how) as reader:
                return list(of(reader))

        async def main() -> list[Any]:
            async with AsyncReader(self.url, **how) as reader:
                return [one async for one in of(reader)]

        return aio.run(main())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("platform"), count=2) as running:
        running.topic("orders", 2)
        for to in range(2):
            for queue_id in range(2):
                bodies = [f"{to}-{queue_id}-{n}".encode() for n in range(500)]
                running.send("orders", queue_id, bodies[:250], to=to, TAGS="red", KEYS="k1 k2")
                running.send(
                    "orders", queue_id, bodies[250:], to=to, TAGS="blue", UNIQ_KEY="A" * 32
                )
        yield running


@pytest.fixture(params=["sync", "async"])
def reader(request: pytest.FixtureRequest, here: Platform) -> Both:
    return Both(request.param, here.url)


def test_a_whole_topic(reader: Both) -> None:
    messages = reader.messages("orders")
    assert len(messages) == 2_000
    for queue in {message.queue for message in messages}:
        mine = [message for message in messages if message.queue == queue]
        assert [message.offset for message in mine] == list(range(500))
        number = "ab".index(queue.broker[-1])
        assert mine[7].body == f"{number}-{queue.queue_id}-7".encode()


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 1), (17, 480), (499, 500), (300, 200)])
def test_a_part_of_a_queue_in_all_forms(reader: Both, start: int, end: int) -> None:
    wanted = list(range(start, end))
    assert [one.offset for one in reader.messages(Q0, start, end)] == wanted
    assert [row["queue_offset"] for row in reader.rows(Q0, start, end)] == wanted
    stored = [one for chunk in reader.chunks(Q0, start, end) for one in record.iterate(chunk)]
    assert [one.queue_offset for one in stored] == wanted


def test_places_by_name_and_by_time(reader: Both) -> None:
    assert len(reader.messages(Q0, "earliest", "latest")) == 500
    assert reader.messages(Q0, "latest") == []
    middle = reader.messages(Q0, 400, 401)[0].stored_at
    later = reader.messages(Q0, middle)
    assert later[0].offset <= 400
    assert later[-1].offset == 499
    assert reader.messages(Q0, datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert reader.ask(lambda r: r.offset(Q0, datetime(1990, 1, 1, tzinfo=UTC))) == 0
    assert reader.ask(lambda r: r.bounds(Q0)).end == 500
    assert reader.ask(lambda r: r.queues("orders"))[0] == Q0


def test_all_columns(reader: Both) -> None:
    messages = {message.offset: message for message in reader.messages(Q0)}
    for row in reader.rows(Q0):
        message = messages[row["queue_offset"]]
        assert row == {
            "topic": "orders",
            "broker": "broker-a",
            "queue_id": 0,
            "queue_offset": message.offset,
            "message_id": message.message_id,
            "unique_id": message.find("UNIQ_KEY"),
            "keys": message.find("KEYS"),
            "tags": message.tag,
            "body": message.body,
            "properties": [*message.all_properties.items()],
            "born_timestamp": message.born_at,
            "store_timestamp": message.stored_at,
            "born_host": message.stored.born_host,
            "store_host": message.stored.store_host,
            "reconsume_times": 0,
            "sys_flag": message.stored.sys_flag,
            "flag": 0,
            "commit_log_offset": message.stored.log_offset,
            "crc_ok": True,
        }


def test_tags_are_compared_exactly(reader: Both) -> None:
    assert {one.tag for one in reader.messages("orders", tags="red")} == {"red"}
    assert len(reader.rows("orders", tags="red || green", columns=["tags"])) == 1_000
    assert reader.messages("orders", tags="green") == []


def test_what_is_not_there_is_said(reader: Both, here: Platform) -> None:
    with pytest.raises(NoRoute, match="no route info of this topic: nothing"):
        reader.messages("nothing")
    with pytest.raises(
        DataLost, match=r"20 messages of orders\[broker-a:0\] .* 500 to 519"
    ) as lost:
        reader.messages(Q0, 490, 520, patience=0.2)
    assert lost.value.lost == (("orders", "broker-a", 0, 500, 520),)
    assert len(reader.messages(Q0, 490, 520, patience=0.2, on_loss="skip")) == 10
    with pytest.raises(ReadFailed, match="queueId"):
        reader.messages(MessageQueue("orders", "broker-a", 9), 0, 5)
    with pytest.raises(ConfigError, match="'bodi'; they have topic, broker"):
        reader.rows("orders", columns=["bodi"])
    with pytest.raises(InvalidInput, match="'yesterday' is no place"):
        reader.messages("orders", "yesterday")
    with pytest.raises(InvalidInput, match="no time zone"):
        reader.messages("orders", datetime(2026, 1, 1))
    with pytest.raises(ConfigError, match="a reader filters by one"):
        reader.messages("orders", tags="red", sql="a > 1")


def test_compressed_bodies_are_opened(reader: Both, here: Platform) -> None:
    topic = f"packed_{reader.kind}"
    here.topic(topic, 1)
    for kind in Compression:
        body = compress(kind.name.encode() * 2_000, kind)
        here.send(topic, 0, [body, body], flags=str(kind.bits))
    here.send(topic, 0, [b"plain"])
    bodies = [message.body for message in reader.messages(topic)]
    assert bodies == [row["body"] for row in reader.rows(topic, columns=["body"])]
    assert {len(body) for body in bodies} == {len(b"plain"), 6_000, 8_000}


def test_both_are_called_alike() -> None:
    def shape(cls: type) -> dict[str, Any]:
        return {
            name: [
                (one.name, one.kind, one.default)
                for one in inspect.signature(method).parameters.values()
            ]
            for name, method in vars(cls).items()
            if callable(method) and not name.startswith("_")
        }

    assert shape(Reader) == shape(AsyncReader)


@pytest.mark.usefixtures("no_leaks")
def test_leaving_early_leaves_nothing_behind(here: Platform) -> None:
    with Reader(here.url) as reader:
        for message in reader.messages("orders"):
            if message.offset == 3:
                break
