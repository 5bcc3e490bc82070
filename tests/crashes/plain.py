"""Messages that are sent singly and in batches, to a topic that is there and one that is new."""

from __future__ import annotations

import time

from gantrymq.errors import TopicNotFound
from gantrymq.net.aio import Peer
from gantrymq.protocol.offsets import GetMaxOffset
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullStatus
from gantrymq.protocol.sending import SendBatch, SendMessage
from gantrymq.wire import batch, record
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.message_id import parse_offset_id
from gantrymq.wire.record import StoredMessage
from tests.crashes.load import Load, Server, number_of

QUEUES = 4
_PREFIX = "crash-"


class Plain(Load):
    """Every message that was answered is where the answer said, once, and queues have no gaps."""

    name = "messages"

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self._places: dict[int, tuple[str, int, int, int]] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._pulled: dict[tuple[str, int], int] = {}
        self._wanted: dict[tuple[str, int], list[StoredMessage]] = {}
        self._known: set[str] = set()
        self._judged = self._acknowledged = 0

    async def one(self, peer: Peer) -> None:
        """A message, or a batch of some."""
        topic = f"{_PREFIX}{self.round}" if self.random.random() < 0.2 else f"{_PREFIX}all"
        queue_id = self.random.randrange(QUEUES)
        if self.random.random() < 0.1:
            await self._batch(peer, topic, queue_id)
            return
        number = self.number()
        reply = await self.ask(
            peer,
            SendMessage(
                group="crash", topic=topic, queue_id=queue_id, born_ms=_now_ms(),
                body=self._body(number), properties=self._properties(number),
            ),
        )  # fmt: skip
        self._answered(number, topic, queue_id, reply.offset, reply.message_id)

    async def _batch(self, peer: Peer, topic: str, queue_id: int) -> None:
        numbers = [self.number() for _ in range(self.random.randrange(2, 12))]
        body = batch.encode(
            [
                BatchMessage(self._body(number), self._properties(number).encode())
                for number in numbers
            ]
        )
        reply = await self.ask(
            peer,
            SendBatch(group="crash", topic=topic, queue_id=queue_id, born_ms=_now_ms(), body=body),
        )
        for at, (number, place) in enumerate(
            zip(numbers, reply.message_id.split(","), strict=True)
        ):
            self._answered(number, topic, queue_id, reply.offset + at, place)

    def _body(self, number: int) -> bytes:
        size = 20_000 if self.random.random() < 0.03 else self.random.randrange(1500)
        return b"%d:" % number + b"x" * size

    def _properties(self, number: int) -> str:
        """Mostly what Java's clients send, which brokers store the quick way; or nothing."""
        if self.random.random() < 0.3:
            return ""
        tag = self.random.choice(("", "TAGS\x01a\x02", "TAGS\x01b\x02"))
        return f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02{tag}"

    def _answered(
        self, number: int, topic: str, queue_id: int, offset: int, message_id: str
    ) -> None:
        place = parse_offset_id(message_id).log_offset
        self.note("stored", number, (topic, queue_id, offset, place))

    async def judge(self, server: Server) -> None:
        """See `Load`."""
        news = [
            message
            for message in self.reader.news(server.log_files())
            if message.topic.startswith(_PREFIX)
        ]
        for message in news:
            self._take(message)
        for event in self.journal[self._judged :]:
            found = self._places.get(event.number)
            assert found == event.told, f"message {event.number} of {event.told} is at {found}"
            self._known.add(event.told[0])
        self._acknowledged += len(self.journal) - self._judged
        self._judged = len(self.journal)
        await self._pull_all(server, news)

    def _take(self, message: StoredMessage) -> None:
        number, queue = number_of(message), (message.topic, message.queue_id)
        place = (*queue, message.queue_offset, message.log_offset)
        assert number not in self._places, f"{number} twice: {self._places[number]} and {place}"
        wanted = self._next.get(queue, 0)
        assert message.queue_offset == wanted, f"{message!r} comes where {wanted} should be"
        self._places[number] = place
        self._next[queue] = wanted + 1

    async def _pull_all(self, server: Server, news: list[StoredMessage]) -> None:
        """Consumers find the same, at the same offsets."""
        peer = await server.connect()
        try:
            for message in news:
                self._wanted.setdefault((message.topic, message.queue_id), []).append(message)
            for queue, wanted in list(self._wanted.items()):
                try:
                    found = await self._pull(peer, *queue)
                except TopicNotFound:  # nobody was answered before the topic was on the disk
                    assert queue[0] not in self._known, f"{queue[0]} is lost"
                    continue
                assert found == wanted, f"{queue}: {len(found)} pulled, {len(wanted)} in the log"
                del self._wanted[queue]
        finally:
            peer.close()

    async def _pull(self, peer: Peer, topic: str, queue_id: int) -> list[StoredMessage]:
        end = (await self.ask(peer, GetMaxOffset(topic=topic, queue_id=queue_id))).offset
        at, found = self._pulled.get((topic, queue_id), 0), list[StoredMessage]()
        while at < end:
            reply = await self.ask(
                peer,
                PullMessage(
                    group="judge", topic=topic, queue_id=queue_id, offset=at, max_messages=1000,
                    flags=PullFlag.SUBSCRIPTION, subscription="*",
                ),
            )  # fmt: skip
            assert reply.status is PullStatus.FOUND, f"{topic}[{queue_id}] at {at}: {reply.status}"
            found += record.iterate(reply.body)
            at = reply.next_offset
        self._pulled[topic, queue_id] = at
        return found

    def counts(self) -> dict[str, int]:
        """See `Load`."""
        return {"acknowledged": self._acknowledged, "stored": len(self._places)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
