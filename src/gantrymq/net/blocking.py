"""Connections for callers without an event loop: one thread, one socket, one call after another.

A call writes its request, waits, and reads its reply on the caller's own thread: three system calls
in all. Several calls can be in flight: `begin` sends one, `finish` waits for it and keeps what
comes for the others. While it waits, the connection answers what the peer asks, from its table.

A `BlockingPeer` belongs to one thread at a time; nothing in it is locked. Threads that share
connections do so through `gantrymq.net.lending`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from gantrymq.errors import (
    ClosedError,
    LocalProtocolError,
    RemoteProtocolError,
    ReplyError,
)
from gantrymq.net.answering import NO_TABLE, Table, ask, failure
from gantrymq.net.calls import NUMBERS, What, describe, lost_error, timeout_error
from gantrymq.net.endings import Ending
from gantrymq.net.options import PLAIN, PeerOptions
from gantrymq.net.streams import Stream, open_stream
from gantrymq.net.tls import ClientTls
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.forms import FilledForm
from gantrymq.protocol.sending import SendReply
from gantrymq.protocol.signing import sign
from gantrymq.runtime import run_blocking
from gantrymq.wire.command import ONEWAY, PYTHON, RESPONSE, Buffer, Command
from gantrymq.wire.connection import Connection
from gantrymq.wire.versions import CURRENT

R = TypeVar("R", bound=Reply)

CONNECT_TIMEOUT: Final = 3.0
_ANSWER_TIMEOUT: Final = 3.0
"""Seconds that the peer has to take our answer to what it asked."""


class Begun(Generic[R]):
    """A call whose reply is still to come."""

    __slots__ = ("deadline", "number", "request", "started")

    def __init__(self, request: Request[R], number: int, started: float, deadline: float) -> None:
        self.request = request
        self.number = number
        self.started = started
        self.deadline = deadline


class BlockingPeer:
    """The other end of a connection over a blocking socket."""

    def __init__(
        self,
        stream: Stream,
        address: str,
        *,
        table: Table = NO_TABLE,
        owner: object = None,
        options: PeerOptions = PLAIN,
    ) -> None:
        self.address: Final = address
        self.options: Final = options
        self.state: dict[str, object] = {}
        """For owners to keep what belongs to this connection."""
        self.language = PYTHON
        self.version = CURRENT
        self.late = 0
        """Replies that no call waited for any more, or ever had."""
        self.last_used = self._last_heard = time.monotonic()
        self.ending: Ending | None = None
        self._stream = stream
        self._table = table
        self._owner = owner
        self._connection = Connection(
            limit=options.frame_limit,
            header_type=options.header_type,
            mirror=options.mirror_header_type,
        )
        self._replies: dict[int, Command | None] = {}
        self._answers: list[Buffer] = []
        self._detail: object = None
        self._last = 0

    @classmethod
    def connect(
        cls,
        address: str,
        table: Table = NO_TABLE,
        owner: object = None,
        *,
        options: PeerOptions = PLAIN,
        tls: ClientTls | None = None,
        timeout: float = CONNECT_TIMEOUT,
    ) -> Self:
        """A connection to `address`, or `ConnectFailed`."""
        stream = open_stream(address, tls, timeout)
        return cls(stream, address, table=table, owner=owner, options=options)

    def __str__(self) -> str:
        return self.address

    @property
    def is_open(self) -> bool:
        """Whether calls can be made, as far as is known."""
        return self.ending is None

    @property
    def calls(self) -> int:
        """How many calls were begun and not finished."""
        return len(self._replies)

    def call(self, request: Request[R], *, timeout: float) -> R:
        """The reply to `request`; a refusal is raised as `ReplyError`."""
        return self.finish(self.begin(request, timeout=timeout))

    def begin(self, request: Request[R], *, timeout: float) -> Begun[R]:
        """Send `request`; its reply is for `finish` to wait for, within `timeout` from now."""
        started = time.monotonic()
        deadline = started + timeout
        number = self._send(request.command(), request, started, deadline)
        self._replies[number] = None
        return Begun(request, number, started, deadline)

    def post(self, form: FilledForm, body: Buffer, deadline: float) -> SendReply:
        """The reply to a send that is written already, and not signed."""
        started = time.monotonic()
        self._check_open(form, started)
        self._last = number = (self._last + 1) & NUMBERS
        self._put(self._connection.frame(form.header(number), body), form, started, deadline)
        self._replies[number] = None
        try:
            reply = self._await(number, form, started, deadline)
            return SendReply.from_command(reply)
        except ReplyError as refusal:
            refusal.peer = self.address
            raise
        finally:
            del self._replies[number]

    def finish(self, begun: Begun[R]) -> R:
        """The reply to a call that was begun here."""
        try:
            reply = self._await(begun.number, begun.request, begun.started, begun.deadline)
        finally:
            self._replies.pop(begun.number, None)
        try:
            return begun.request.reply_from(reply)
        except ReplyError as refusal:
            refusal.peer = self.address
            raise

    def tell(self, request: Request[Any], *, timeout: float = _ANSWER_TIMEOUT) -> None:
        """Send `request` one-way: nothing comes back, and it may be lost."""
        command = request.command()
        command.flag |= ONEWAY
        now = time.monotonic()
        self._send(command, request, now, now + timeout)

    def catch_up(self) -> bool:
        """Read and answer what has come in while nobody called; whether the connection lives."""
        while self.ending is None and self._stream.has_input():
            self._read(time.monotonic() + _ANSWER_TIMEOUT)
        return self.ending is None

    def close(self) -> None:
        """Close the socket; calls that were begun cannot be finished any more."""
        self._end(Ending.LOCAL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- writing --------------------------------------------------------------------------------

    def _send(self, command: Command, what: What, started: float, deadline: float) -> int:
        """Write a request of ours; its number."""
        self._check_open(what, started)
        if self.options.credentials is not None:
            sign(command, self.options.credentials)
        self._last = command.opaque = number = (self._last + 1) & NUMBERS
        self._put(self._connection.encode(command), what, started, deadline)
        return number

    def _put(self, buffers: list[Buffer], what: What, started: float, deadline: float) -> None:
        self.last_used = started
        try:
            self._write(buffers, deadline)
        except TimeoutError:  # half a frame has gone out: nothing can follow it
            self._end(Ending.TIMED_OUT)
            raise timeout_error(self.address, what, deadline - started) from None
        self._check_open(what, started)

    def _write(self, buffers: list[Buffer], deadline: float) -> None:
        try:
            self._stream.write(buffers, deadline, self._drain)
        except TimeoutError:
            raise
        except OSError as error:
            self._end(Ending.BROKEN, error)

    # --- reading --------------------------------------------------------------------------------

    def _await(self, number: int, what: What, started: float, deadline: float) -> Command:
        replies = self._replies
        if number not in replies:
            raise LocalProtocolError(f"{describe(what)} was not begun here, or has ended")
        try:
            while (reply := replies[number]) is None:
                self._check_open(what, started)
                self._read(deadline)
        except TimeoutError:
            timeout = deadline - started
            if self.options.close_after_timeout:
                self._end(Ending.TIMED_OUT)
            elif time.monotonic() - self._last_heard >= self.options.silence_timeout:
                self._end(Ending.UNRESPONSIVE)
            raise timeout_error(self.address, what, timeout) from None
        return reply

    def _read(self, deadline: float) -> None:
        """Take in what comes, waiting for it until `deadline`, and send the answers it asks for."""
        self._take_in(deadline)
        if self._answers and self.ending is None:
            answers, self._answers = self._answers, []
            self._write(answers, time.monotonic() + _ANSWER_TIMEOUT)

    def _drain(self) -> None:
        """Take in what is there while a frame of ours is half written: keep the answers."""
        with suppress(TimeoutError):
            self._take_in(0.0)

    def _take_in(self, deadline: float) -> None:
        try:
            count = self._stream.read(self._connection.get_buffer(), deadline)
            self._last_heard = time.monotonic()
            for command in self._connection.received(count):
                if not command.flag & RESPONSE:
                    self._answer(command)
                elif command.opaque in self._replies:
                    self._replies[command.opaque] = command
                else:
                    self.late += 1
            if count == 0:
                self._end(Ending.REMOTE)
        except TimeoutError:
            raise
        except OSError as error:
            self._end(Ending.BROKEN, error)
        except RemoteProtocolError as error:
            self._end(Ending.BAD_FRAME, error)

    def _answer(self, command: Command) -> None:
        self.version = command.version
        self.language = command.language
        try:
            outcome = ask(command, self._table, self._owner, self)
            if not isinstance(outcome, Command):
                outcome = run_blocking(_awaited(outcome)).command()
            if not command.flag & ONEWAY:
                self._answers += self._encoded(command, outcome)
        except Exception as error:
            self._answers += self._encoded(command, failure(command, error, self))

    def _encoded(self, command: Command, answer: Command) -> list[Buffer]:
        answer.opaque = command.opaque
        answer.flag = RESPONSE
        return self._connection.encode(answer)

    # --- ending ---------------------------------------------------------------------------------

    def _end(self, ending: Ending, detail: object = None) -> None:
        if self.ending is None:
            self.ending = ending
            self._detail = detail
            self._stream.close()
            ending.note(self.address, detail)

    def _check_open(self, what: What, started: float) -> None:
        if self.ending is None:
            return
        if self.ending is Ending.LOCAL:
            raise ClosedError(f"the connection to {self} was closed here ({describe(what)})")
        why = self.ending.words if self._detail is None else f"{self.ending.words} ({self._detail})"
        raise lost_error(self.address, why, what, time.monotonic() - started)


async def _awaited(outcome: Awaitable[Reply]) -> Reply:
    return await outcome
