"""Timed messages, some of which are taken back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from gantrymq.errors import ReplyError
from gantrymq.net.aio import Peer
from gantrymq.protocol.sending import RecallMessage, SendMessage
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage
from tests.crashes.load import Load, Server, number_of

TOPIC = "timed"
_SPARE = 0.5
"""Seconds that a message has to have left to be taken back."""
_ENOUGH = 20.0


class Timed(Load):
    """Every message that was answered comes once, not before its time, unless it was taken back."""

    name = "timed messages"
    settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *args: Any, longest: float = 5.0, **more: Any) -> None:
        super().__init__(*args, **more)
        self._longest = longest
        self._due: dict[int, int] = {}
        self._tried: set[int] = set()
        """What somebody tried to take back."""
        self._delivered: dict[int, int] = {}

    async def one(self, peer: Peer) -> None:
        """A message, and sometimes the wish to have it back."""
        number = self.number()
        seconds = self.random.choice((0.1, 1.0, self._longest)) * self.random.random()
        due_ms = _now_ms() + int(seconds * 1000)
        reply = await self._send(peer, number, due_ms, TIMER_DELIVER_MS=str(due_ms))
        if self.random.random() < 0.1 and _now_ms() < due_ms - _SPARE * 1000:
            self._tried.add(number)
            request = RecallMessage(topic=TOPIC, handle=reply.recall_handle, group="timers")
            await self.ask(peer, request)
            if _now_ms() < due_ms:
                self.note("taken back", number)

    async def _send(self, peer: Peer, number: int, due_ms: int, **found: str) -> Any:
        self._due[number] = due_ms
        found["UNIQ_KEY"] = f"U{number:028d}"
        request = SendMessage(
            group="timers", topic=TOPIC, queue_id=number % 2, born_ms=_now_ms(),
            properties=properties.join(found),
            body=b"%d:" % number + b"x" * self.random.randrange(500),
        )  # fmt: skip
        reply = await self.ask(peer, request)
        self.note("stored", number)
        return reply

    def refused(self, refused: ReplyError) -> None:
        """A message cannot be taken back any more when it is due."""
        assert "timestamp invalid" in str(refused), refused

    async def judge(self, server: Server) -> None:
        """See `Load`."""
        news = self.reader.news(server.log_files())
        back = {event.number for event in self.journal if event.what == "taken back"}
        for message in news:
            if message.topic == TOPIC:
                self._take(message, back)

    def _take(self, message: StoredMessage, back: set[int]) -> None:
        number = number_of(message)
        early = self._due[number] - message.store_ms
        assert early <= 0, f"{number} came {early} ms before its time"
        assert number not in self._delivered, f"{number} came twice, again at {message.log_offset}"
        assert number not in back, f"{number} was taken back, and came"
        self._delivered[number] = message.store_ms

    async def settle(self, server: Server) -> None:
        """See `Load`."""
        waited = time.monotonic() + _ENOUGH
        missing = {event.number for event in self.journal if event.what == "stored"} - self._tried
        while missing := missing - self._delivered.keys():
            assert time.monotonic() < waited, f"{len(missing)} are missing: {sorted(missing)[:9]}"
            await asyncio.sleep(0.1)
            await self.judge(server)

    def counts(self) -> dict[str, int]:
        """See `Load`."""
        return {
            "acknowledged": sum(event.what == "stored" for event in self.journal),
            "taken back": sum(event.what == "taken back" for event in self.journal),
            "delivered": len(self._delivered),
        }


class Delayed(Timed):
    """The same for messages that wait for a delay level."""

    name = "delay levels"

    async def one(self, peer: Peer) -> None:
        """A message of one of the first two levels."""
        number, level = self.number(), self.random.choice((1, 1, 2))
        await self._send(peer, number, _now_ms() + (1000, 5000)[level - 1], DELAY=str(level))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
