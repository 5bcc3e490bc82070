"""Keeping messages hidden while somebody is at them.

A popped message is hidden for a time. As long as a renewal goes on, each of its messages is hidden
anew when half of that time is over, so that two more attempts fit in before the end if the broker
cannot be reached. A renewal that is ended lets the attempt under way come to its end: cut off, it
would leave nobody knowing which handle stands for the message.

RocketMQ: the proxy's ReceiptHandleProcessor; remoting clients have nothing like it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from gantrymq.client.identity import now_ms
from gantrymq.errors import GantryError, ReplyError

if TYPE_CHECKING:
    from gantrymq.client.simple_consumer import PoppedMessage

log = logging.getLogger("gantrymq.client")

_PART: Final = 0.5
"""Of a message's time, until it is hidden anew."""
_RETRY_PART: Final = 0.15
"""The same until it is tried again after a failure."""


class Renewal:
    """Messages that are kept hidden, for so many seconds at most."""

    def __init__(
        self,
        renew: Callable[[PoppedMessage], Awaitable[None]],
        messages: Sequence[PoppedMessage],
        at_most: float,
    ) -> None:
        self._renew = renew
        self._due = {message: _due(message, _PART) for message in messages}
        self._until = now_ms() + round(at_most * 1000)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Hide them no longer than they are."""
        self._ended.set()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Go on while the block lasts."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            self.end()
            await task

    async def run(self) -> None:
        """Go on until it is ended."""
        while self._due:
            message = min(self._due, key=lambda each: self._due[each])
            if await self._is_over(self._due[message]):
                return
            await self._again(message)

    async def _is_over(self, due: int) -> bool:
        """Wait until then; whether it was ended meanwhile, or has gone on for long enough."""
        if due > self._until:
            left = max(0, self._until - now_ms()) / 1000
        else:
            left = max(0, due - now_ms()) / 1000
        try:
            async with asyncio.timeout(left):
                await self._ended.wait()
        except TimeoutError:
            if due <= self._until:
                return False
            log.warning("%d messages are kept hidden no longer: at_most is over", len(self._due))
        return True

    async def _again(self, message: PoppedMessage) -> None:
        if message.settled:
            del self._due[message]
            return
        try:
            await self._renew(message)
        except ReplyError as error:
            log.warning("%r could not be kept hidden, and may come again: %s", message, error)
            del self._due[message]
        except GantryError as error:
            log.warning("%r is not hidden for longer yet: %s", message, error)
            self._due[message] = now_ms() + round(message.handle.invisible_ms * _RETRY_PART)
        else:
            self._due[message] = _due(message, _PART)


def _due(message: PoppedMessage, part: float) -> int:
    return message.since_ms + round(message.handle.invisible_ms * part)
