"""A relay between clients and a server that reads every command, and can meddle with them.

```python
with Tap(broker_address) as tap:
    tap.asked = lambda command: refusal(14) if command.code in SENDS else None
    ...
    assert tap.requests(RequestCode.HEART_BEAT)
```

Clients are led to it with `address_map`. Whether it is our server that is behind it or RocketMQ's
makes no difference to it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import RESPONSE, Command, HeaderType
from gantrymq.wire.connection import Connection

HOST: Final = "127.0.0.1"
SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
"""What carries messages."""


class Lost(Exception):
    """Raised by who meddles: the connection ends here."""


class Swallowed(Exception):
    """Raised by who meddles: this command goes no further."""


Asked = Callable[[Command], Command | None]
"""Given a request: the answer to it, or None to have the server asked."""
Answered = Callable[[Command, Command], None]
"""Given a request and its answer, which may be changed."""


def refusal(code: int, remark: str = "as the test wants it") -> Command:
    """An answer that is none."""
    return Command(code, flag=RESPONSE, remark=remark)


class Tap:
    """Listens at a port of this machine and passes on what comes."""

    def __init__(self, upstream: str, *, port: int = 0) -> None:
        self.upstream = upstream
        self.asked: Asked = lambda _: None
        self.answered: Answered = lambda _request, _answer: None
        self.said: Callable[[Command], None] = lambda _: None
        """Given a request of the server."""
        self.heard: list[Command] = []
        """Every request of clients."""
        self.told: list[Command] = []
        """Every request of the server."""
        self.accepted = 0
        """How many connections came."""
        self._port = port
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.admit()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self._port}"

    def requests(self, *codes: int) -> list[Command]:
        """What clients asked with one of these codes."""
        return [command for command in tuple(self.heard) if command.code in codes]

    def sends(self) -> list[Command]:
        """What clients asked to be stored."""
        return self.requests(*SENDS)

    # --- life -----------------------------------------------------------------------------------

    def admit(self) -> None:
        """Let connections in."""
        self._listener = socket.create_server((HOST, self._port), reuse_port=False)
        self._port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def refuse(self) -> None:
        """Let nobody in, and end what is there, as after the death of a server."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection."""
        for one in tuple(self._open):
            _end(one)

    def close(self) -> None:
        """End everything."""
        self.refuse()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- carrying -------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, name="tap", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            host, _, port = self.upstream.rpartition(":")
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            line = _Line(self, near, far)
            self._open |= {near, far}
            self._start(line.carry_in)
            self._start(line.carry_out)

    def over(self, *ends: socket.socket) -> None:
        """A connection has ended."""
        for one in ends:
            _end(one)
            self._open.discard(one)


class _Line:
    """One connection through a tap."""

    def __init__(self, tap: Tap, near: socket.socket, far: socket.socket) -> None:
        self._tap = tap
        self._near, self._far = near, far
        self._asked: dict[int, Command] = {}
        self._turn = threading.Lock()

    def carry_in(self) -> None:
        """From the client to the server."""
        with self._to_its_end():
            for command, binary in _commands(self._near):
                if not command.is_response:
                    self._tap.heard.append(command)
                    try:
                        answer = self._tap.asked(command)
                    except Swallowed:
                        continue
                    if answer is not None:
                        answer.opaque = command.opaque
                        self._write(self._near, answer, binary)
                        continue
                    self._asked[command.opaque] = command
                self._write(self._far, command, binary)

    def carry_out(self) -> None:
        """From the server to the client."""
        with self._to_its_end():
            for command, binary in _commands(self._far):
                try:
                    self._meddle(command)
                except Swallowed:
                    continue
                self._write(self._near, command, binary)

    def _meddle(self, command: Command) -> None:
        if not command.is_response:
            self._tap.told.append(command)
            self._tap.said(command)
        elif (request := self._asked.pop(command.opaque, None)) is not None:
            self._tap.answered(request, command)

    @contextlib.contextmanager
    def _to_its_end(self) -> Iterator[None]:
        try:
            with contextlib.suppress(OSError, Lost):
                yield
        finally:
            self._tap.over(self._near, self._far)

    def _write(self, end: socket.socket, command: Command, header: HeaderType) -> None:
        data = b"".join(Connection(header_type=header).encode(command))
        with self._turn:
            end.sendall(data)


def _commands(source: socket.socket) -> Iterator[tuple[Command, HeaderType]]:
    connection = Connection(mirror=True)
    while data := source.recv(1 << 16):
        for command in connection.feed(data):
            command.body = bytes(command.body)
            yield command, connection.header_type


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
