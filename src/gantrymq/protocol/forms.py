"""The frame of a plain send, most of whose header is known before there is a message.

Between two messages to the same queue three things of a header differ: when the message was made,
its properties, and the number of the request. A `SendForm` is the header of such a request with
these left out. It is made from what the encoder writes, so that what is filled in comes out as the
encoder would have written it, to the byte.
"""

from __future__ import annotations

from typing import Final, Self

import orjson

from gantrymq.protocol.sending import SendMessage
from gantrymq.wire.command import HeaderType, encode_header

_MADE: Final = 1_234_567_890_987_654_321
_NUMBER: Final = 1_987_654_321
_TEXT: Final = "\x01properties\x02"


class SendForm:
    """The header of sends to one queue, but for what messages bring with them."""

    __slots__ = ("_gaps", "_where")

    def __init__(self, gaps: tuple[bytes, bytes, bytes, bytes], where: str) -> None:
        self._gaps = gaps
        self._where = where

    @classmethod
    def of(cls, request: SendMessage) -> Self | None:
        """From a request to that queue; None if it holds the very marks by which we cut."""
        request.born_ms, request.properties = _MADE, _TEXT
        command = request.command()
        command.opaque = _NUMBER
        _, rest = encode_header(command, HeaderType.JSON)
        gaps: list[bytes] = []
        for mark in (b"%d" % _MADE, orjson.dumps(_TEXT), b"%d" % _NUMBER):
            before, found, rest = rest.partition(mark)
            if not found or mark in rest:
                return None
            gaps.append(before)
        return cls((gaps[0], gaps[1], gaps[2], rest), str(request))

    def fill(self, made_ms: int, properties: str) -> FilledForm | None:
        """For a message made at that time; None if JSON cannot hold its properties."""
        first, second, third, last = self._gaps
        try:
            text = orjson.dumps(properties)
        except TypeError:
            return None
        return FilledForm(b"%b%d%b%b%b" % (first, made_ms, second, text, third), last, self._where)


class FilledForm:
    """The same with everything but the number."""

    __slots__ = ("_end", "_start", "_where")

    def __init__(self, start: bytes, end: bytes, where: str) -> None:
        self._start = start
        self._end = end
        self._where = where

    def header(self, number: int) -> bytes:
        """All of it."""
        return b"%b%d%b" % (self._start, number, self._end)

    def __str__(self) -> str:
        return self._where
