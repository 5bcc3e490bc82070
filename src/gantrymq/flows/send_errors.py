"""What is said when a message could not be sent: what was tried, what is known, what would help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gantrymq.errors import (
    BrokerFailure,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    GantryError,
    GroupNotFound,
    InvalidParameter,
    MessageIllegal,
    NoAddress,
    NoPermission,
    NotSupported,
    ReplyError,
    RouteError,
    SendFailed,
    SendTimeout,
    ServiceUnavailable,
    SystemBusy,
    TopicNotFound,
    TransportError,
)
from gantrymq.flows.routing import SILENT

CONNECT: Final = 10001
NO_ANSWER: Final = 10002
NO_SUCH_BROKER: Final = 10003

_TIMER_WORDS: Final = ("timer", "wheel")

_HINTS: Final[tuple[tuple[type[GantryError], str], ...]] = (
    (
        TopicNotFound,
        "the route names a broker that does not have the topic: it was deleted, or has yet to be"
        " made there and may not be by itself (autoCreateTopicEnable): create it with"
        " `mqadmin updateTopic`",
    ),
    (
        NoPermission,
        "broker or topic is not open for writing (brokerPermission, the topic's perm), or the"
        " access key may not send there: look at `mqadmin topicRoute` and at the access rules",
    ),
    (
        SystemBusy,
        "the broker cannot keep up and did not store it: send less at a time, or look for a slow"
        " disk there; osPageCacheBusyTimeOutMills and waitTimeMillsInSendQueue set the limits",
    ),
    (
        ServiceUnavailable,
        "the broker does not take messages now: its disk is fuller than diskSpaceWarningLevelRatio"
        " allows (90 % unless set otherwise), or it is a replica, or shutting down; its remark says"
        " which. Make room there, or have messages kept for less long (fileReservedTime)",
    ),
    (
        MessageIllegal,
        "the broker's own limits are narrower than ours (maxMessageSize; properties over 32 KiB),"
        " or the topic asks for keys",
    ),
    (
        InvalidParameter,
        "the topic has fewer queues there than the route says, or its name will not do: look at"
        " `mqadmin topicRoute`",
    ),
    (
        NoAddress,
        "its master is down, or not registered with these name servers: look at"
        " `mqadmin clusterList`",
    ),
    (GroupNotFound, "create the consumer group first, with `mqadmin updateSubGroup`"),
    (NotSupported, "that server does not answer such requests: is it a broker, and new enough?"),
    (
        ConnectFailed,
        "the broker registered with this address: is it up, and is the address reachable from"
        " here? In a container or behind NAT set brokerIP1 to one that is, or pass"
        " address_map={'advertised:port': 'reachable:port'}",
    ),
    (
        ConnectionLost,
        "the connection ended before the answer came: the broker was stopped or restarted, or"
        " something between cuts connections; the message may have been stored",
    ),
    (
        CallTimeout,
        "the broker took the request and did not answer in time: it may be overloaded or its disk"
        " slow; the message may have been stored. Give it longer with timeout=, or find out what"
        " it waits for",
    ),
)


@dataclass(slots=True)
class Trail:
    """What has been tried for one message, in order."""

    brokers: list[str] = field(default_factory=list)
    maybe_stored: bool = False

    def failed(self, error: GantryError) -> None:
        """Take note of an attempt's end."""
        if isinstance(error, TransportError) and error.maybe_sent:
            self.maybe_stored = True


def code_of(error: GantryError) -> int:
    """The code that Java clients give for it, or the broker's own."""
    if isinstance(error, ReplyError):
        return error.code
    if isinstance(error, RouteError):
        return error.code
    if isinstance(error, ConnectFailed):
        return CONNECT
    return NO_ANSWER if isinstance(error, TransportError) else NO_SUCH_BROKER


def hint_for(error: GantryError) -> str:
    """What the cause may be, and what would help."""
    if isinstance(error, BrokerFailure | MessageIllegal) and _is_about_timers(error):
        return (
            "5.x delivers up to timerMaxDelaySec ahead (three days unless set otherwise), and only"
            " with timerWheelEnable"
        )
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")


def gave_up(
    topic: str, trail: Trail, elapsed: float, last: GantryError, *, out_of_time: float | None = None
) -> SendFailed:
    """The error that a send ends with; `out_of_time` is the time it had, if that is used up."""
    brokers = tuple(trail.brokers)
    hint = hint_for(last)
    said = f"Send [{len(brokers)}] times, still failed, cost [{elapsed * 1000:.0f}]ms"
    if out_of_time is not None:
        said = f"sendDefaultImpl call timeout: {elapsed:.3f}s of {out_of_time:.3f}s are gone"
    text = f"{said}, Topic: {topic}, BrokersSent: [{', '.join(brokers)}]; the last: {last}"
    kind = SendFailed if out_of_time is None else SendTimeout
    return kind(
        f"{text}; {hint}" if hint else text,
        topic=topic,
        brokers=brokers,
        elapsed=elapsed,
        code=code_of(last),
        maybe_stored=trail.maybe_stored,
        hint=hint,
    )


def before_any(topic: str, error: GantryError, elapsed: float) -> SendFailed:
    """The error of a send that found nowhere to send to."""
    hint = SILENT if isinstance(error, TransportError) else ""
    if isinstance(error, RouteError):
        hint = error.hint
    return SendFailed(str(error), topic=topic, elapsed=elapsed, code=code_of(error), hint=hint)


def _is_about_timers(error: ReplyError) -> bool:
    remark = (error.remark or "").lower()
    return any(word in remark for word in _TIMER_WORDS)
