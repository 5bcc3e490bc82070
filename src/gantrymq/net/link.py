"""One connection's bytes and life: reading, writing, the times to keep, and how it ends.

A `Link` is the protocol of one transport. What it reads goes through `wire.connection.Connection`:
replies end the calls that wait for them, requests are answered (`Serving`). What it writes goes
through its `Outbox`. What has to happen at a time is asked of its one `Alarm`. What one does with a
connection, calling above all, is in `gantrymq.net.peer`.

```
            connection_made                close(), abort()            connection_lost
  (made) ───────────────────▶  open  ───────────────────────▶ ending ─────────────────▶ (ended)
                                 └──────────────────────── connection_lost ───────────────┘
```

`ending` says why, from the first moment on; whoever was first keeps that word. Calls that wait fail
as soon as the connection is ending. What has been written still goes out after `close()`, for
`linger` seconds at most; `abort()` drops it.

**Reading stops** while as many of the peer's requests are under way as may be, and, at a server,
while the peer does not read its answers. Commands that have arrived are then kept as they are: the
iterator over them is put aside, and taken up again when there is room. A client never stops reading
because it cannot write: if both ends did, neither would ever read again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from gantrymq.errors import ConnectionLost, GantryError, RemoteProtocolError
from gantrymq.net.addresses import join_address
from gantrymq.net.alarms import Alarm, clock_of
from gantrymq.net.answering import NO_TABLE, Refusals, Table
from gantrymq.net.calls import Calls, Waiting, What, lost_error
from gantrymq.net.endings import Ending
from gantrymq.net.options import PLAIN, PeerOptions
from gantrymq.net.outbox import Outbox
from gantrymq.net.proxy_header import ProxyHeader
from gantrymq.net.rooms import Room
from gantrymq.net.serving import Serving
from gantrymq.net.watching import Watch
from gantrymq.wire.command import PYTHON, RESPONSE, Command
from gantrymq.wire.connection import Connection
from gantrymq.wire.versions import CURRENT

if TYPE_CHECKING:
    from gantrymq.net.peer import Peer


_FILLED: Final = 2
"""So many full buffers are read in a row before others have their turn."""


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What went over a connection, or over all connections of a server."""

    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    """Requests of the peer, one-way ones included."""
    late: int = 0
    """Replies that no call waited for any more, or ever had."""

    def add(self, other: Traffic) -> None:
        """Count `other` in."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.requests += other.requests
        self.late += other.late


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What connections of one kind are made with."""

    table: Table = field(default_factory=lambda: NO_TABLE)
    """Answers what the peer asks."""
    owner: object = None
    """Handed to the table's handlers."""
    options: PeerOptions = PLAIN
    on_open: Callable[[Peer], None] | None = None
    on_end: Callable[[Peer], None] | None = None
    """Called when a connection is there, and when it is gone for good."""
    refusals: Refusals = field(default_factory=Counter)
    """Counts what was refused, for all these connections together."""


class Link(asyncio.BufferedProtocol):
    """The protocol of one transport."""

    def __init__(
        self,
        terms: Terms,
        *,
        address: str | None = None,
        accepted: bool = False,
        proxied: ProxyHeader | None = None,
    ) -> None:
        """`address` is the name that was connected to; it is what errors call the peer."""
        self.options: Final = terms.options
        self.accepted: Final = accepted
        self.proxied: Final = proxied
        self.state: dict[str, object] = {}
        """For owners to keep what belongs to this connection."""
        self.ending: Ending | None = None
        self.detail: object = None
        self.language = PYTHON
        """The language and version that the peer's last request named."""
        self.version = CURRENT
        self._terms = terms
        self._address = address
        self._connection = Connection(
            limit=terms.options.frame_limit,
            header_type=terms.options.header_type,
            mirror=terms.options.mirror_header_type,
        )
        self._calls = Calls()
        self._serving = Serving(
            self,
            terms.table,
            terms.owner,
            limit=terms.options.answers_in_flight,
            refusals=terms.refusals,
            send=self._send,
            room=self._read_on,
        )
        self._traffic = Traffic()
        self._kept: Iterator[Command] | None = None
        self._offered = 0
        self._filled = 0

    # --- what it is -----------------------------------------------------------------------------

    def __str__(self) -> str:
        return self._address or self.remote

    def __repr__(self) -> str:
        state = "open" if self.ending is None else self.ending.words
        return f"<Peer {self} {state}, {len(self._calls)} calls, {len(self._serving)} answers>"

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self.ending is None

    @property
    def calls(self) -> int:
        """How many calls wait for their reply."""
        return len(self._calls)

    @property
    def answers(self) -> int:
        """How many of the peer's requests are under way."""
        return len(self._serving)

    @property
    def traffic(self) -> Traffic:
        """The counters, as they stand."""
        self._traffic.bytes_out = self.outbox.bytes_out
        self._traffic.late = self._calls.late
        return self._traffic

    def extra(self, name: str) -> object:
        """What the transport knows under that name, such as `ssl_object` or `peercert`."""
        return self._transport.get_extra_info(name)

    async def wait_closed(self) -> Ending:
        """Why the connection ended, when it has."""
        return await asyncio.shield(self.closed)

    # --- reading --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It begins."""
        self._transport = transport
        self._loop = loop = asyncio.get_running_loop()
        self._clock = clock = clock_of(loop)
        self.closed: asyncio.Future[Ending] = loop.create_future()
        self.local = _name(transport.get_extra_info("sockname"))
        self.socket_remote = _name(transport.get_extra_info("peername"))
        """Who the socket says the peer is; a load balancer, perhaps."""
        source = None if self.proxied is None else self.proxied.source
        self.remote = source or self.socket_remote
        """Who the peer is: the source that a PROXY header named, or else the socket's."""
        overflow = self._give_up_on_reader if self.accepted else None
        self.outbox = Outbox(loop, transport, self.options, overflow)
        self._room = Room(loop, self.options.calls_in_flight, self._calls.waiting)
        self._watch = Watch(self.options, clock(), accepted=self.accepted)
        self._alarm = Alarm(loop, self._ring)
        self._alarm.by(self._watch.next_due(clock()).at)
        self.opened()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for the transport to read into."""
        room = self._connection.get_buffer(sizehint)
        self._offered = len(room)
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """That many bytes came in."""
        self._traffic.bytes_in += nbytes
        self._take(self._connection.received(nbytes))
        if nbytes < self._offered:
            self._filled = 0
        else:
            self._filled += 1
            if self._filled >= _FILLED:
                self._let_others()

    def _let_others(self) -> None:
        """Read on in the next turn: uvloop reads again at once for as long as buffers get full."""
        self._filled = 0
        if self._kept is None and self.ending is None:
            self._transport.pause_reading()
            self._loop.call_soon(self._resume_reading)

    def _take(self, commands: Iterator[Command]) -> None:
        """Handle the commands that have arrived."""
        waiting, outbox = self._calls.waiting, self.outbox
        outbox.collect()
        command = None
        try:
            for command in commands:
                if command.flag & RESPONSE:
                    call = waiting.pop(command.opaque, None)
                    if call is None or call[0].done():
                        self._calls.late += 1
                    else:
                        call[0].set_result(command)
                else:
                    self._traffic.requests += 1
                    self._serving.take(command)
                    if self._has_to_stop():
                        self._stop_reading(commands)
                        break
        except RemoteProtocolError as error:
            self._end(Ending.BAD_FRAME, error)
        outbox.flush()
        if self._room.waiting:
            self._room.admit()
        # A frame that has begun has to end in time, except while it is we who do not read.
        mid_frame = self._connection.mid_frame and self._kept is None
        since = self._watch.read(self._clock(), command is not None, mid_frame)
        if since is not None:
            self._alarm.by(since + self.options.frame_timeout)

    def _has_to_stop(self) -> bool:
        """Whether no further request can be taken now."""
        if self.accepted and self.outbox.full:
            self.outbox.flush()
            self.outbox.collect()
            if self.outbox.paused:
                return True
        return self._serving.full or self.ending is not None

    def _stop_reading(self, rest: Iterator[Command]) -> None:
        self._kept = rest
        if self.ending is None:
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """There may be room again: take what had arrived, then read."""
        rest = self._kept
        if rest is None or self._has_to_stop():
            return
        self._kept = None
        self._take(rest)
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._kept is None and self.ending is None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- writing --------------------------------------------------------------------------------

    def _send(self, answer: Command) -> None:
        if self.ending is None:
            self.outbox.put(self._connection.encode(answer))

    def pause_writing(self) -> None:
        """The transport holds too much."""
        self.outbox.pause()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self.outbox.resume()
        self._read_on()

    # --- times ----------------------------------------------------------------------------------

    def _ring(self, now: float) -> float:
        """Do everything that is due; when to look again."""
        if self.ending is not None:
            return self._ring_last(now)
        overdue = self._calls.expire(now, str(self))
        strike = self._watch.next_due(self.outbox.last_write)
        if strike.at <= now:
            self.abort(strike.ending)
            return inf
        if overdue:
            self._room.admit()
            if (verdict := self._verdict(overdue, now)) is not None:
                self.close(verdict)
                return inf
        return min(strike.at, self._calls.due)

    def _verdict(self, overdue: list[Waiting], now: float) -> Ending | None:
        """Whether calls that timed out are the end of the connection."""
        if self.options.close_after_timeout and any(call[4] for call in overdue):
            return Ending.TIMED_OUT
        silent = now - self._watch.last_read >= self.options.silence_timeout
        return Ending.UNRESPONSIVE if silent and self._kept is None else None

    def _ring_last(self, now: float) -> float:
        """The connection is ending: do its last bytes still have time?"""
        if now < self._gone_by:
            return self._gone_by
        self._transport.abort()
        return inf

    # --- ending ---------------------------------------------------------------------------------

    def close(self, ending: Ending = Ending.LOCAL) -> None:
        """End the connection when everything written has gone out; calls that wait fail now."""
        self._end(ending)

    def abort(self, ending: Ending = Ending.LOCAL) -> None:
        """End it at once."""
        self._end(ending)
        self._transport.abort()

    async def finish(self) -> None:
        """Close in good order: answer what is under way, refuse what comes, then `close()`."""
        self._serving.draining = True
        await self._serving.drained()
        self.close(Ending.SHUTDOWN if self.accepted else Ending.LOCAL)

    def eof_received(self) -> None:
        """The peer sends no more; the transport closes itself."""
        self._end(Ending.REMOTE)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over; whoever says so again is not heard."""
        if self.closed.done():
            return
        self._end(Ending.REMOTE if exc is None else Ending.BROKEN, exc)
        self._alarm.stop()
        self._kept = None
        assert self.ending is not None
        self.ending.note(str(self), self.detail)
        self.closed.set_result(self.ending)
        self.ended()

    def opened(self) -> None:
        """The connection is there; for what is built on this class."""

    def ended(self) -> None:
        """The connection is gone."""

    def _end(self, ending: Ending, detail: object = None) -> None:
        """From open to ending; only the first reason counts."""
        if self.ending is not None:
            return
        self.ending = ending
        self.detail = detail
        self.outbox.flush()
        self._transport.close()
        self._calls.end(self._lost)
        self._room.close(self._closed_error)
        self.outbox.close(self._closed_error)
        self._serving.cancel()
        self._gone_by = self._clock() + self.options.linger
        self._alarm.by(self._gone_by)

    def _give_up_on_reader(self) -> None:
        self.abort(Ending.SLOW_READER)

    def _lost(self, what: What, started: float) -> GantryError:
        return lost_error(str(self), self._why(), what, self._clock() - started)

    def _closed_error(self) -> Exception:
        return ConnectionLost(f"connection to {self} ended: {self._why()}")

    def _why(self) -> str:
        words = self.ending.words if self.ending is not None else "unknown"
        return words if self.detail is None else f"{words} ({self.detail})"


def _name(address: object) -> str:
    """A socket's address as text; whatever is not one stands for itself."""
    if isinstance(address, tuple) and len(address) > 1:
        return join_address(address[0], address[1])
    return str(address)
