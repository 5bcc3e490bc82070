"""The requests that a peer sends us, from the frame to the answer on its way out.

A handler that answers at once is answered in the same turn of the loop. One that returns something
to await gets a task, which belongs to the connection: it is cancelled when the connection ends, and
so many of them may be under way; over that, the connection reads no further.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from gantrymq.errors import LocalProtocolError
from gantrymq.net.answering import Refusals, Table, ask, failure, go_away
from gantrymq.protocol.base import Reply
from gantrymq.wire.command import ONEWAY, RESPONSE, Command

if TYPE_CHECKING:
    from gantrymq.net.link import Link

_EAGER: Final[dict[str, Any]] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
"""Where Python can, a task's first step is taken at once: handlers that do not wait stay cheap."""


class Serving:
    """Answers one peer from a table."""

    __slots__ = (
        "_limit",
        "_owner",
        "_peer",
        "_refusals",
        "_room",
        "_send",
        "_table",
        "_tasks",
        "draining",
    )

    def __init__(
        self,
        peer: Link,
        table: Table,
        owner: object,
        *,
        limit: int,
        refusals: Refusals,
        send: Callable[[Command], None],
        room: Callable[[], None],
    ) -> None:
        """`send` takes an answer; `room` is called when there is room for requests again."""
        self._peer = peer
        self._table = table
        self._owner = owner
        self._limit = limit
        self._refusals = refusals
        self._send = send
        self._room = room
        self._tasks: dict[asyncio.Task[None], Awaitable[Reply]] = {}
        self.draining = False

    @property
    def full(self) -> bool:
        """Whether as many requests are under way as may be."""
        return len(self._tasks) >= self._limit

    def __len__(self) -> int:
        return len(self._tasks)

    def take(self, command: Command) -> None:
        """Answer `command` now, or begin to."""
        peer = self._peer
        peer.version = command.version
        peer.language = command.language
        if self.draining and (answer := go_away(command)) is not None:
            self._answer(command, answer)
            return
        outcome = ask(command, self._table, self._owner, peer, self._refusals)
        if isinstance(outcome, Command):
            self._answer(command, outcome)
        else:
            self._begin(command, outcome)

    def cancel(self) -> None:
        """End what is under way, unanswered."""
        for task in tuple(self._tasks):
            task.cancel()

    async def drained(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, command: Command, outcome: Awaitable[Reply]) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.Task(self._finish(command, outcome), loop=loop, **_EAGER)
        if not task.done():
            self._tasks[task] = outcome
            task.add_done_callback(self._ended)

    async def _finish(self, command: Command, outcome: Awaitable[Reply]) -> None:
        try:
            answer = (await outcome).command()
        except asyncio.CancelledError:
            if self._peer.ending is None:  # not us: something that the handler waited for
                self._answer(command, self._failure(command, RuntimeError("cancelled")))
            raise
        except Exception as error:
            answer = self._failure(command, error)
        self._answer(command, answer)

    def _answer(self, command: Command, answer: Command) -> None:
        if command.flag & ONEWAY:
            return
        answer.opaque = command.opaque
        answer.flag = RESPONSE
        try:
            self._send(answer)
        except LocalProtocolError as error:
            refusal = self._failure(command, error)
            refusal.opaque = command.opaque
            self._send(refusal)

    def _failure(self, command: Command, error: Exception) -> Command:
        return failure(command, error, self._peer, self._refusals)

    def _ended(self, task: asyncio.Task[None]) -> None:
        was_full = self.full
        outcome = self._tasks.pop(task)
        if task.cancelled() and asyncio.iscoroutine(outcome):
            outcome.close()  # it has not begun where the task was cancelled before its first step
        if was_full:
            self._room()
