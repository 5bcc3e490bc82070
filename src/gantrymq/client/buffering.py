"""Room for messages that are under way while their sender does something else.

A producer that does not wait could otherwise fill the memory: so many messages, so many bytes, and
whoever comes then waits for room or is refused. Room is given in the order in which it was asked
for. A message larger than everything there is room for goes when it is alone.

**Those who wait are let in together.** One for each answer would mean a turn of the loop and a
write for every single message. So they wait until an eighth of the room is free, or for 2 ms since
there was any; then the sender goes on for as long as there is room.

Taking and giving back is safe in any thread; who waits says how he wants to be woken.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Final, NamedTuple

from gantrymq.client.messages import How
from gantrymq.errors import BufferFull, ClosedError
from gantrymq.model import Message, SendReceipt

_PART: Final = 8
_HELD_SECONDS: Final = 0.002


class _Waiting(NamedTuple):
    size: int
    wake: Callable[[], object]


class Room:
    """A limit on messages and on their bytes."""

    def __init__(self, messages: int, size: int) -> None:
        self._limits: Final = (messages, size)
        self._lock: Final = threading.Lock()
        self._messages = 0
        self._size = 0
        self._waiting: deque[_Waiting] = deque()
        self._free_since = 0.0
        """Since when somebody is kept waiting although there is room; 0 if nobody is."""
        self._empty: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return self._messages

    def take(self, size: int) -> bool:
        """Take room for a message, if there is any and nobody waits for it."""
        with self._lock:
            if self._waiting or not self._fits(size):
                return False
            self._messages += 1
            self._size += size
            return True

    def take_or_refuse(self, size: int) -> None:
        """The same, or `BufferFull`."""
        if not self.take(size):
            raise BufferFull(self._full())

    def give_back(self, size: int, messages: int = 1) -> None:
        """A message is done, or several."""
        woken: list[Callable[[], object]] = []
        with self._lock:
            self._messages -= messages
            self._size -= size
            if self._waiting and self._is_worth_it():
                woken = self._let_in()
            if not self._messages:
                woken += self._empty
                self._empty = []
        for wake in woken:
            wake()

    async def wait(self, size: int, timeout: float) -> None:
        """Take room as soon as there is some; for coroutines."""
        loop = asyncio.get_running_loop()
        ticket: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if asyncio._get_running_loop() is loop:
                _resolve(ticket)
            else:
                loop.call_soon_threadsafe(_resolve, ticket)

        entry = self._take_or_queue(size, wake)
        if entry is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await ticket
        except BaseException as error:
            late = isinstance(error, TimeoutError)
            if not self._withdraw(entry, take=late):
                if late:
                    raise BufferFull(self._full(timeout)) from None
                raise

    def block(self, size: int, timeout: float) -> None:
        """The same for threads."""
        ticket = threading.Event()
        entry = self._take_or_queue(size, ticket.set)
        if entry is None:
            return
        try:
            there = ticket.wait(timeout)
        except BaseException:
            self._withdraw(entry)
            raise
        if not there and not self._withdraw(entry, take=True):
            raise BufferFull(self._full(timeout))

    def when_empty(self, wake: Callable[[], object]) -> None:
        """Call `wake` when nothing is under way; at once, if that is so now."""
        with self._lock:
            if self._messages:
                self._empty.append(wake)
                return
        wake()

    def _is_worth_it(self) -> bool:
        """Whether to let in those who wait now."""
        messages, size = self._limits
        much = self._messages <= messages - messages // _PART
        if not self._messages or (much and self._size <= size - size // _PART):
            return True
        if not self._fits(self._waiting[0].size):
            return False
        now = time.monotonic()
        if not self._free_since:
            self._free_since = now
        return now - self._free_since >= _HELD_SECONDS

    def _let_in(self) -> list[Callable[[], object]]:
        self._free_since = 0.0
        woken = []
        while self._waiting and self._fits(self._waiting[0].size):
            first = self._waiting.popleft()
            self._messages += 1
            self._size += first.size
            woken.append(first.wake)
        return woken

    def _fits(self, size: int) -> bool:
        messages, most = self._limits
        return not self._messages or (self._messages < messages and self._size + size <= most)

    def _take_or_queue(self, size: int, wake: Callable[[], object]) -> _Waiting | None:
        with self._lock:
            if not self._waiting and self._fits(size):
                self._messages += 1
                self._size += size
                return None
            entry = _Waiting(size, wake)
            self._waiting.append(entry)
            return entry

    def _withdraw(self, entry: _Waiting, *, take: bool = False) -> bool:
        """Wait no more; whether there is room all the same, if that is to be taken.

        Otherwise room that was given meanwhile goes back.
        """
        with self._lock:
            if entry in self._waiting:
                first = self._waiting[0] is entry
                self._waiting.remove(entry)
                if not (take and first and self._fits(entry.size)):
                    return False
                self._messages += 1
                self._size += entry.size
                return True
        if not take:
            self.give_back(entry.size)
        return take

    def _full(self, waited: float = 0.0) -> str:
        messages, size = self._limits
        after = f" after {waited:.1f}s" if waited else ""
        return (
            f"there is no room for another message{after}: {self._messages} messages of"
            f" {self._size} bytes are under way; the limits are {messages} and {size}"
            f" (buffer_messages, buffer_bytes)"
        )


def _resolve(ticket: asyncio.Future[None]) -> None:
    if not ticket.done():
        ticket.set_result(None)


class Outbox:
    """Messages that other threads hand to the loop: one call to wake it for all that are there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[Message, How], asyncio.Future[SendReceipt]],
    ) -> None:
        self._loop: Final = loop
        self._begin: Final = begin
        self._waiting: deque[_Handed] = deque()
        self._woken = False

    def put(self, message: Message, how: How) -> concurrent.futures.Future[SendReceipt]:
        """Have it sent; its room is taken already. For any thread."""
        receipt: concurrent.futures.Future[SendReceipt] = concurrent.futures.Future()
        self._waiting.append(_Handed(message, how, receipt, copy_context()))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self.begin)
        return receipt

    def begin(self) -> None:
        """Begin to send what was handed over; on the loop."""
        self._woken = False  # before looking, so that nothing is left behind
        while self._waiting:
            message, how, receipt, context = self._waiting.popleft()
            if receipt.set_running_or_notify_cancel():
                sending = context.run(self._begin, message, how)
                sending.add_done_callback(partial(_hand_back, receipt))


class _Handed(NamedTuple):
    message: Message
    how: How
    receipt: concurrent.futures.Future[SendReceipt]
    context: Context
    """The sender's own, in which his message is sent."""


def _hand_back(
    receipt: concurrent.futures.Future[SendReceipt], done: asyncio.Future[SendReceipt]
) -> None:
    if done.cancelled():
        receipt.set_exception(ClosedError("the producer was closed before this was sent"))
    elif (error := done.exception()) is not None:
        receipt.set_exception(error)
    else:
        receipt.set_result(done.result())
