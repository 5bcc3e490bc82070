"""What every request and reply is: declared once, read from a command, written as one.

```python
@declared
class GetMaxOffset(TopicRequest[OffsetReply]):
    CODE = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: Int
    committed: bool = True
```

`request.command()` is what goes on the wire, `GetMaxOffset.from_command(command)` what came from
it; `request.reply_from(command)` reads the answer. The type in brackets is the reply, for the type
checker and as `REPLY`. How fields are declared is told in `gantrymq.protocol.declaring`.

A server's answers are a table: `table(GetMaxOffset.answered_by(get_max_offset), ...)`. A handler
gets the request, the owner of the table and the peer, and returns a reply, or something to await
for one. The type checker refuses a handler of another request or reply, the table refuses a code
that is given twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, get_args

from gantrymq.errors import ReplyError
from gantrymq.protocol.codecs import Plan
from gantrymq.protocol.declaring import (
    Form,
    Int,
    Long,
    OpenStrEnum,
    Where,
    declared,
    in_body,
    named,
    of_frame,
    parts,
    raw_body,
    whole_body,
    zero,
)
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Buffer, Command

__all__ = [
    "Buffer",
    "Done",
    "Entry",
    "Form",
    "Handler",
    "Int",
    "Long",
    "OpenStrEnum",
    "Reply",
    "Request",
    "RpcRequest",
    "TopicRequest",
    "declared",
    "in_body",
    "named",
    "of_frame",
    "raw_body",
    "table",
    "whole_body",
]

R = TypeVar("R", bound="Reply")
Owner = TypeVar("Owner")
Peer = TypeVar("Peer")
Q = TypeVar("Q", bound="Request[Any]")

Handler: TypeAlias = Callable[[Q, Owner, Peer], R | Awaitable[R]]
"""What answers a request: a plain function, or a coroutine function where it has to wait."""


class _Coded:
    """What has a code and travels as a command."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Each class makes its own codecs at its first use; it must not find those of its base.
        for name in ("command", "from_command"):
            setattr(cls, name, _Coded.__dict__[name])

    @classmethod
    def _plan(cls) -> Plan:
        raise NotImplementedError

    def command(self, *, bare_numbers: bool = False) -> Command:
        """What goes on the wire; `bare_numbers`: number keys in JSON unquoted, for old peers."""
        _equip(type(self))
        return self.command(bare_numbers=bare_numbers)

    @classmethod
    def from_command(cls, command: Command) -> Self:
        """What `command` says; `RemoteProtocolError` if it does not say it as declared."""
        _equip(cls)
        return cls.from_command(command)


def _equip(cls: type[_Coded]) -> None:
    """Put the functions made for `cls` in the place of those that make them."""
    plan = cls._plan()
    for name, made in (("command", plan.writer()), ("from_command", staticmethod(plan.reader()))):
        setattr(cls, name, made)


@declared
class Reply(_Coded):
    """An answer. Codes other than those it stands for are raised as `ReplyError`.

    A server that refuses and still has header fields to send sets `refusal` to the code.
    """

    remark: str | None = of_frame("remark", default=None)
    refusal: Int | None = of_frame("refusal", default=None)

    @classmethod
    def refusing(cls, error: ReplyError, **fields: Any) -> Self:
        """A refusal that has this reply's header; what is not given and has to be there is zero.

        Java sends some of its headers with errors too, since its numbers cannot be left out.
        """
        for part in parts(cls):
            if part.required and part.name not in fields and part.where is Where.NEAR:
                fields[part.name] = zero(part.hint)
        return cls(**fields, refusal=error.code, remark=error.remark)

    @classmethod
    def _plan(cls) -> Plan:
        return Plan(cls, {0: True}, reply=True)


@declared
class Done(Reply):
    """An answer that says no more than that it was done."""


class Request(_Coded, Generic[R]):
    """A question or an order, answered with an `R`."""

    __slots__ = ()

    CODE: ClassVar[RequestCode]
    """The code it is sent with."""
    LONG_CODE: ClassVar[RequestCode | None] = None
    """The older code of the same request, which spells names out where `CODE` shortens them."""
    REPLY: type[R]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Reply):
                    type.__setattr__(cls, "REPLY", argument)  # what mypy knows by the brackets

    @classmethod
    def codes(cls) -> tuple[RequestCode, ...]:
        """Every code that this class stands for."""
        return (cls.CODE,) if cls.LONG_CODE is None else (cls.CODE, cls.LONG_CODE)

    @classmethod
    def _plan(cls) -> Plan:
        return Plan(cls, {code: code is not cls.LONG_CODE for code in cls.codes()}, reply=False)

    def reply_from(self, command: Command) -> R:
        """The answer to this request that `command` is."""
        return self.REPLY.from_command(command)

    @classmethod
    def answered_by(cls, handler: Handler[Self, Owner, Peer, R]) -> Entry[Owner, Peer]:
        """A line of a table: `handler` answers this request."""
        return Entry(cls, handler)

    def __str__(self) -> str:
        place = getattr(self, "topic", None) or getattr(self, "group", None) or ""
        queue = getattr(self, "queue_id", None)
        offset = getattr(self, "offset", None)
        text = f"{type(self).__name__} {place}{'' if queue is None else f'[{queue}]'}"
        return text.rstrip() if offset is None else f"{text} @ {offset}"


class Entry(Generic[Owner, Peer]):
    """One line of a table: a request, and what answers it."""

    __slots__ = ("handler", "request")

    def __init__(
        self, request: type[Request[Any]], handler: Handler[Any, Owner, Peer, Any]
    ) -> None:
        self.request = request
        self.handler = handler

    @property
    def decode(self) -> Callable[[Command], Request[Any]]:
        """Reads the request from its command."""
        return self.request.from_command


def table(*entries: Entry[Owner, Peer]) -> Mapping[int, Entry[Owner, Peer]]:
    """Which handler answers which code; a code given twice is a mistake."""
    found: dict[int, Entry[Owner, Peer]] = {}
    for entry in entries:
        for code in entry.request.codes():
            if code in found:
                first, second = found[code].request.__name__, entry.request.__name__
                raise TypeError(f"{code.name} ({code}) is answered twice: {first} and {second}")
            found[int(code)] = entry
    return MappingProxyType(found)


@declared
class RpcRequest(Request[R]):
    """What 5.x clients add to most requests. RocketMQ: RpcRequestHeader."""

    namespace: str | None = named("ns", default=None)
    namespaced: bool | None = named("nsd", default=None)
    broker: str | None = named("bname", default=None)
    oneway: bool | None = named("oway", default=None)


@declared
class TopicRequest(RpcRequest[R]):
    """The same for requests about a topic. RocketMQ: TopicRequestHeader, TopicQueueRequestHeader.

    `logical` false says that queue id and offset are those of the broker's own queue, not those of
    a static topic.
    """

    logical: bool | None = named("lo", default=None)
