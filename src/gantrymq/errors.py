"""Every exception that Gantry raises, so that callers can catch by what they would do next.

```
GantryError
├── ConfigError (ValueError)      a setting is wrong; the text names it
├── ClosedError                   used after close()
├── AlreadyExists                 what was to be made is there already
├── PartlyDone                    some servers did it and others did not
├── StateError                    not in this state: started twice, or not started yet
├── RouteError                    it is not known where to send or read
│   ├── NoNameServers             none was given
│   ├── NoRoute                   the name server knows nobody who has the topic
│   └── NoAddress                 a broker is named, and nobody says where its master is
├── SendFailed                    every attempt at a message failed; says what is known of it
│   └── SendTimeout               the time for it is over
├── ClusterTooOld                 the brokers cannot do that; nothing was sent
├── RequestTimeout                a request message was sent, and no answer came in time
├── BufferFull                    no room for another message that is to be sent later
├── ReadFailed                    a queue could not be read on in the time there was
├── DataLost                      messages that were asked for are not there any more
├── ProtocolError
│   ├── LocalProtocolError        we were about to break the protocol
│   │   └── InvalidInput (ValueError)   a name, message or property that RocketMQ would refuse
│   └── RemoteProtocolError       the peer broke it
├── TransportError                the bytes did not get through; trying again can help
│   ├── ConnectFailed
│   ├── ConnectionLost
│   └── CallTimeout
│       └── NotSentInTime         no answer, because the request never went out
├── ReplyError                    the peer answered "no"; one class per code a caller acts on
└── StoreError
    ├── CorruptRecord
    ├── StoreFull
    └── NotWritable
```

Two class attributes say what a caller may do: `retriable` (the same call may succeed at another
broker or a moment later) and `refresh_route` (the cached route is the likely cause).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self


class GantryError(Exception):
    """The root: catch it to catch whatever Gantry raises on purpose."""

    retriable: ClassVar[bool] = False
    refresh_route: ClassVar[bool] = False


class ConfigError(GantryError, ValueError):
    """A setting, address or option is wrong; the text names it and what would be right."""


class ClosedError(GantryError):
    """Something was used after its `close()`."""


class AlreadyExists(GantryError):
    """What was to be made is there already; nothing was changed."""


class PartlyDone(GantryError):
    """Some servers did what was asked and others did not: `done` has their names, `failed` why."""

    def __init__(
        self,
        what: str,
        where: str = "servers",
        *,
        done: tuple[str, ...] = (),
        failed: Mapping[str, GantryError] = MappingProxyType({}),
    ) -> None:
        self.what = what
        self.where = where
        self.done = done
        self.failed = dict(failed)
        super().__init__(what, where)

    def __str__(self) -> str:
        count = len(self.done) + len(self.failed)
        why = "; ".join(f"{name}: {error}" for name, error in self.failed.items())
        done = ", ".join(self.done) or "none"
        return f"{self.what}: done at {len(self.done)} of {count} {self.where} ({done}); {why}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, {"done": self.done, "failed": self.failed}


class StateError(GantryError):
    """Something was started twice, or used before it was started; the text names its state."""


class RouteError(GantryError):
    """It is not known where to send to or read from. `code` is the one that Java clients give."""

    code: ClassVar[int] = 0
    hint: str = ""
    """What the cause may be, and what would help; the text ends with it."""


class NoNameServers(RouteError):
    """No name server was given, by nobody and nothing."""

    code = 10004


class NoRoute(RouteError):
    """The name server knows of no broker that has the topic; the text says what may be the cause.

    RocketMQ: "No route info of this topic".
    """

    code = 10005


class NoAddress(RouteError):
    """A route names a broker, and no route says where its master is."""

    code = 10003
    retriable = True
    refresh_route = True


class SendFailed(GantryError):
    """A message could not be sent; the text says where it was tried, and what would help.

    `maybe_stored` says that an attempt ended without an answer: the message may be there all the
    same, and sending it again may make two of it. `code` is the broker's, or else the one that
    Java clients give: 10001 no connection, 10002 no answer in time, 10003 no such broker, 10004 no
    name server, 10005 no route. The last attempt's own error is the `__cause__`.
    """

    def __init__(
        self,
        text: str,
        *,
        topic: str = "",
        brokers: tuple[str, ...] = (),
        elapsed: float = 0.0,
        code: int = 0,
        maybe_stored: bool = False,
        hint: str = "",
        receipts: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(text)
        self.topic = topic
        self.brokers = brokers
        """The brokers that were tried, in order; one that was tried twice is named twice."""
        self.elapsed = elapsed
        self.code = code
        self.maybe_stored = maybe_stored
        self.hint = hint
        self.receipts = receipts
        """What was stored of a batch that took several frames, before one of them failed."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, dict(self.__dict__)


class SendTimeout(SendFailed, TimeoutError):
    """The time that was given for a send is over."""


class ClusterTooOld(GantryError):
    """The version of a broker says that it cannot do what is asked; nothing was sent."""


class RequestTimeout(GantryError, TimeoutError):
    """No answer to a request message came in time, though the message was sent."""

    code: ClassVar[int] = 10006


class BufferFull(GantryError):
    """There is no room for another message that is to be sent later: wait, or send less."""

    retriable = True


class ReadFailed(GantryError):
    """A queue could not be read on in the time there was; the text says from where."""


class DataLost(GantryError):
    """Messages that were asked for are not there any more; the text names their offsets.

    `lost` holds them as topic, broker, queue id, first offset, and the one after the last.
    """

    def __init__(self, text: str, lost: tuple[tuple[str, str, int, int, int], ...] = ()) -> None:
        super().__init__(text, lost)
        self.lost = lost

    def __str__(self) -> str:
        return str(self.args[0])


class ProtocolError(GantryError):
    """Bytes that are not RocketMQ's protocol."""


class LocalProtocolError(ProtocolError):
    """We were asked to send what the protocol cannot carry; nothing was sent."""


class InvalidInput(LocalProtocolError, ValueError):
    """A name, message or property breaks one of RocketMQ's rules; the text says which."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow; another peer may do better."""

    retriable = True


class TransportError(GantryError):
    """The request or its answer did not get through."""

    retriable = True
    maybe_sent: ClassVar[bool] = True
    """Whether the request may have been carried out all the same."""


class ConnectFailed(TransportError):
    """No connection could be made."""

    refresh_route = True
    maybe_sent = False


class ConnectionLost(TransportError):
    """The connection ended with an answer still owed; the request may have been carried out."""

    refresh_route = True


class CallTimeout(TransportError, TimeoutError):
    """No answer came before the deadline; the request may have been carried out."""


class NotSentInTime(CallTimeout):
    """The deadline came before the request could be sent: no connection, or no room on it."""

    maybe_sent = False


class StoreError(GantryError):
    """The files of a store are not as they should be, or cannot take more."""


class CorruptRecord(StoreError):
    """A record's bytes do not agree with their own length or checksum."""


class StoreFull(StoreError):
    """The disk or a set limit leaves no room."""


class NotWritable(StoreError):
    """The store does not accept writes now."""


class ReplyError(GantryError):
    """The peer answered with a code other than success.

    Subclasses name the codes that callers act on; every other code arrives as `ReplyError` itself
    with the code kept. `fields` are header fields that a server sends along.
    """

    CODE: ClassVar[int | None] = None
    _by_code: ClassVar[dict[int, type[ReplyError]]] = {}

    def __init__(self, code: int, remark: str | None = None, *, peer: str | None = None) -> None:
        self.code = code
        self.remark = remark
        self.peer = peer
        self.fields: Mapping[str, str] = {}
        super().__init__(code, remark)

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is None:
            return
        if code in ReplyError._by_code:
            taken = ReplyError._by_code[code].__name__
            raise TypeError(f"reply code {code} is already {taken}; {cls.__name__} cannot have it")
        cls.CODE = code
        ReplyError._by_code[code] = cls

    @staticmethod
    def for_code(code: int, remark: str | None = None, *, peer: str | None = None) -> ReplyError:
        """The error that stands for `code`."""
        return ReplyError._by_code.get(code, ReplyError)(code, remark, peer=peer)

    @classmethod
    def because(cls, remark: str) -> Self:
        """Make this refusal, for a server to raise."""
        if cls.CODE is None:
            raise TypeError(f"{cls.__name__} stands for no single code")
        return cls(cls.CODE, remark)

    def __str__(self) -> str:
        where = f" from {self.peer}" if self.peer else ""
        return f"{type(self).__name__} (code {self.code}){where}: {self.remark or 'no remark'}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.remark), {"peer": self.peer}


class BrokerFailure(ReplyError, code=1):
    """The peer failed inside, or gave no better code."""

    retriable = True


class SystemBusy(ReplyError, code=2):
    """Flow control: the broker is too busy; it did not store the message."""

    retriable = True


class NotSupported(ReplyError, code=3):
    """The peer does not answer this request code."""


class MessageIllegal(ReplyError, code=13):
    """The broker refuses the message: its size, its properties or a missing key."""


class QuotaExceeded(ReplyError, code=2017):
    """The broker has as many light queues as it may have, and this message names further ones."""


class ServiceUnavailable(ReplyError, code=14):
    """The broker does not take writes now: disk full, replica, or shutting down."""

    retriable = True


class NoPermission(ReplyError, code=16):
    """Broker, topic, group or access rules forbid it."""

    retriable = True
    refresh_route = True


class TopicNotFound(ReplyError, code=17):
    """No such topic there, and it was not created."""

    retriable = True
    refresh_route = True


class NotFound(ReplyError, code=22):
    """Nothing is stored under that key, id or offset."""


class SubscriptionInvalid(ReplyError, code=23):
    """The filter expression does not compile at the broker."""


class SubscriptionMissing(ReplyError, code=24):
    """The broker does not know this group's subscription yet: a heartbeat has to come first."""


class SubscriptionStale(ReplyError, code=25):
    """The broker holds an older subscription than the request names."""


class GroupNotFound(ReplyError, code=26):
    """No such consumer group there, and it was not created."""


class FilterMissing(ReplyError, code=27):
    """The broker has no filter for this group's subscription: its expression may be wrong."""


class FilterStale(ReplyError, code=28):
    """The broker's filter is of an older subscription than the request names."""


class InvalidParameter(ReplyError, code=29):
    """A parameter is out of range or badly formed."""


class NoBuyerId(ReplyError, code=204):
    """A legacy refusal that clients answer with another broker."""

    retriable = True


class NotInCurrentUnit(ReplyError, code=205):
    """A legacy refusal that clients answer with another broker."""

    retriable = True


class ConsumerOffline(ReplyError, code=206):
    """No member of the group is connected."""


class FlowControlled(ReplyError, code=215):
    """The broker, or a proxy before it, wants to be asked a moment later."""

    retriable = True


class NotLeaderForQueue(ReplyError, code=501):
    """A static topic's queue lives at another broker."""

    refresh_route = True


class IllegalOperation(ReplyError, code=604):
    """The request comes too late or does not fit the state of what it names."""


class GoingAway(ReplyError, code=1500):
    """The server is shutting down in good order: connect again and resend."""

    retriable = True
    refresh_route = True
