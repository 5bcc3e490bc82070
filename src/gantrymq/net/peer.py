"""The other end of a connection, as everybody else sees it: call it, tell it, close it.

A connection is symmetrical: both ends call and both answer. `Link` does what every connection does
by itself; `Peer` adds what is asked of it.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from gantrymq.errors import ClosedError, NotSentInTime, ReplyError
from gantrymq.net.calls import Reception, What, blames_connection, describe
from gantrymq.net.endings import Ending
from gantrymq.net.link import Link
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.forms import FilledForm
from gantrymq.protocol.signing import sign
from gantrymq.wire.command import ONEWAY, Buffer, Command

R = TypeVar("R", bound=Reply)


class Peer(Link):
    """The other end of a connection over asyncio."""

    def opened(self) -> None:
        """Tell whoever made the terms."""
        if self._terms.on_open is not None:
            self._terms.on_open(self)

    def ended(self) -> None:
        """Tell whoever made the terms."""
        if self._terms.on_end is not None:
            self._terms.on_end(self)

    async def call(self, request: Request[R], *, timeout: float) -> R:
        """The reply to `request`; a refusal is raised as `ReplyError`."""
        command = request.command()
        if self.outbox.full or self._room.full:
            future = await self._begin_later(command, request, timeout)
        else:
            now = self._clock()
            future = self._begin(command, request, now, now + timeout)
        try:
            return request.reply_from(await future)
        except asyncio.CancelledError:
            self._forget(command, future)
            raise
        except ReplyError as refusal:
            refusal.peer = str(self)
            raise

    async def invoke(self, command: Command, *, timeout: float) -> Command:
        """The response to `command`, whose opaque is set here; refusals come back as they are."""
        if self.outbox.full or self._room.full:
            future = await self._begin_later(command, command.code, timeout)
        else:
            now = self._clock()
            future = self._begin(command, command.code, now, now + timeout)
        try:
            return await future
        except asyncio.CancelledError:
            self._forget(command, future)
            raise

    def begin(
        self,
        form: FilledForm,
        body: Buffer,
        waiter: asyncio.Future[Command] | Reception,
        started: float,
        deadline: float,
    ) -> int | None:
        """Send a request that is written already, and have `waiter` told of the reply.

        The number of the call, or None if there is no room for it now. Requests are not signed.
        """
        outbox = self.outbox
        if outbox.full and self.ending is None:
            outbox.flush()
        if outbox.full or self._room.full or self._room.waiting or self.ending is not None:
            return None
        number = self._calls.next_number()
        outbox.put(self._connection.frame(form.header(number), body))
        self._expect(number, form, waiter, started, deadline)
        return number

    def forget(self, number: int) -> None:
        """Nobody waits for that call any more: its place is free."""
        if self._calls.waiting.pop(number, None) is not None:
            self._room.admit()

    async def tell(self, request: Request[Any]) -> None:
        """Send `request` one-way: nothing comes back, and it may be lost."""
        self._check_open(request)
        if self.outbox.full:
            await self.outbox.wait()
        self.notify(request)

    def notify(self, request: Request[Any]) -> None:
        """The same without waiting for room; for servers, whose outbox has a limit of its own."""
        self._check_open(request)
        command = request.command()
        command.flag |= ONEWAY
        if self.options.credentials is not None:
            sign(command, self.options.credentials)
        command.opaque = self._calls.next_number()
        self.outbox.put(self._connection.encode(command))

    async def idle(self) -> None:
        """Return when no call waits for its reply."""
        while waiters := [call[0] for call in self._calls.waiting.values()]:
            await asyncio.wait([w if isinstance(w, asyncio.Future) else w.future for w in waiters])

    def _begin(
        self, command: Command, what: What, started: float, deadline: float, *, blame: bool = True
    ) -> asyncio.Future[Command]:
        if self.ending is not None:
            self._check_open(what)
        future = self._loop.create_future()
        if self.options.credentials is not None:
            sign(command, self.options.credentials)
        command.opaque = number = self._calls.next_number()
        self.outbox.put(self._connection.encode(command))
        self._expect(number, what, future, started, deadline, blame=blame)
        return future

    def _expect(
        self,
        number: int,
        what: What,
        waiter: asyncio.Future[Command] | Reception,
        started: float,
        deadline: float,
        *,
        blame: bool = True,
    ) -> None:
        """Wait for the reply to a request that has just been sent."""
        calls = self._calls
        calls.waiting[number] = (waiter, what, started, deadline, blame)
        if deadline < calls.due:
            calls.due = deadline
            self._alarm.by(deadline)

    async def _begin_later(
        self, command: Command, what: What, timeout: float
    ) -> asyncio.Future[Command]:
        """The same when there is no room yet."""
        self._check_open(what)
        started = self._clock()
        deadline = started + timeout
        try:
            async with asyncio.timeout(timeout):
                await self.outbox.wait()
                if self._room.full:
                    await self._room.wait()
        except TimeoutError:
            raise NotSentInTime(
                f"no room for a call to {self} in {timeout:.1f}s ({describe(what)}): "
                f"{self.calls} wait for their reply, {self.outbox.unsent} bytes to be sent"
            ) from None
        blame = blames_connection(timeout, deadline - self._clock())
        return self._begin(command, what, started, deadline, blame=blame)

    def _forget(self, command: Command, future: asyncio.Future[Command]) -> None:
        """The caller was cancelled: his place is free, and a reply would come too late."""
        self._calls.waiting.pop(command.opaque, None)
        if future.done() and not future.cancelled():
            future.exception()  # seen, so that asyncio does not complain that nobody did
        self._room.admit()

    def _check_open(self, what: What) -> None:
        if self.ending is Ending.LOCAL:
            raise ClosedError(f"the connection to {self} was closed here ({describe(what)})")
        if self.ending is not None:
            raise self._lost(what, self._clock())
