"""What producers and consumers told of one message, put into order: who sent it, who had it when.

Records come in any order and more than once. A consumer writes two for each delivery, which share a
request id: one before its handler begins, one after it has ended. One of them may be missing: the
handler is still at work, or the record was lost.

    7F0000010A1C18B4AAC2000000000000 of orders
    ├─ 2026-11-19 20:40:01.123Z  sent by shop to 127.0.0.1:10911 in 3 ms
    └─ billing: consumed at the 2nd delivery
       ├─ +7 ms  delivered, failed after 2 ms
       └─ +10.2 s  delivered again (retry 1), consumed in 1 ms

Times are those of the clocks of whoever wrote the record; those after a `+` count from the send.

RocketMQ: QueryMsgTraceByIdSubCommand, TraceView.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Recalled,
    Sent,
    TracedType,
    TraceRecord,
    TransactionEnded,
)
from gantrymq.rules.drawing import Node, count, draw, moment, span

_HOW: Final = {1: "took too long", 2: "raised an error", 3: "gave null", 4: "failed"}
"""RocketMQ: ConsumeReturnType, by ordinal."""
_DECIDED: Final = {
    "COMMIT_MESSAGE": "committed",
    "ROLLBACK_MESSAGE": "rolled back",
    "UNKNOW": "left open",
}
_KINDS: Final = {
    TracedType.HALF: " as a half message",
    TracedType.DELAYED: " as a delayed message",
    TracedType.ORDERED: " as an ordered message",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One time that a consumer had the message."""

    group: str | None
    begun: ConsumeBegun | None
    ended: ConsumeEnded | None

    @property
    def began_ms(self) -> int:
        """When the handler was called."""
        if self.begun is not None:
            return self.begun.time_ms
        assert self.ended is not None
        return max(0, self.ended.time_ms - self.ended.cost_ms)

    @property
    def ended_ms(self) -> int | None:
        """When the handler was done; None if it has not told so."""
        if self.ended is None:
            return None
        # Before 4.9 the end has no time of its own.
        return self.ended.time_ms or self.began_ms + self.ended.cost_ms

    @property
    def retries(self) -> int | None:
        """How often the message had failed before; None where the beginning was not told."""
        return None if self.begun is None else self.begun.retries

    @property
    def succeeded(self) -> bool | None:
        """Whether it was consumed; None if nobody has told yet."""
        return None if self.ended is None else self.ended.success

    def __str__(self) -> str:
        again = f" again (retry {self.retries})" if self.retries else ""
        if self.ended is None:
            return f"delivered{again}, and nothing told of since"
        took = span(self.ended.cost_ms)
        if self.ended.success:
            return f"delivered{again}, consumed in {took}"
        how = _HOW.get(self.ended.context_code, "failed")
        return f"delivered{again}, {how} after {took}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """All that was told of one message, in the order of its times.

    `str()` is the tree that `gantry message trace` shows, its times in UTC.
    """

    message_id: str
    sends: list[Sent] = field(default_factory=list)
    transactions: list[TransactionEnded] = field(default_factory=list)
    recalls: list[Recalled] = field(default_factory=list)
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    """By consumer group; those whose group is not known are under the empty text."""

    @property
    def topic(self) -> str | None:
        """The topic it was sent to, where a producer told."""
        told: list[Sent | TransactionEnded | Recalled] = [
            *self.sends,
            *self.transactions,
            *self.recalls,
        ]
        return next((one.topic for one in told if one.topic), None)

    @property
    def is_empty(self) -> bool:
        """Whether nobody told anything."""
        return not (self.sends or self.transactions or self.recalls or self.deliveries)

    def consumed(self, group: str) -> Delivery | None:
        """The delivery by which a group was done with it."""
        return next((one for one in self.deliveries.get(group, ()) if one.succeeded), None)

    def __str__(self) -> str:
        return _Tree(self).text()


def put_together(message_id: str, records: Iterable[TraceRecord]) -> MessageTrace:
    """The trace of a message out of records, of which others may tell of other messages."""
    own = list(dict.fromkeys(one for one in records if _is_about(one, message_id)))
    sends = [one for one in own if isinstance(one, Sent)]
    transactions = [one for one in own if isinstance(one, TransactionEnded)]
    recalls = [one for one in own if isinstance(one, Recalled)]
    deliveries: dict[str, list[Delivery]] = {}
    for one in sorted(_deliveries(own), key=lambda each: each.began_ms):
        deliveries.setdefault(one.group or "", []).append(one)
    return MessageTrace(
        message_id=message_id,
        sends=sorted(sends, key=lambda one: one.time_ms),
        transactions=sorted(transactions, key=lambda one: one.time_ms),
        recalls=sorted(recalls, key=lambda one: one.time_ms),
        deliveries=dict(sorted(deliveries.items())),
    )


def _is_about(record: TraceRecord, message_id: str) -> bool:
    return record.message_id == message_id or getattr(record, "offset_id", None) == message_id


def _deliveries(records: list[TraceRecord]) -> list[Delivery]:
    begun = {one.request_id: one for one in records if isinstance(one, ConsumeBegun)}
    ended = {one.request_id: one for one in records if isinstance(one, ConsumeEnded)}
    found: list[Delivery] = []
    for key in dict.fromkeys((*begun, *ended)):
        first, last = begun.get(key), ended.get(key)
        group = (first.group if first else None) or (last.group if last else None)
        found.append(Delivery(group=group, begun=first, ended=last))
    return found


class _Tree:
    """The lines of a trace."""

    def __init__(self, trace: MessageTrace) -> None:
        self._trace = trace
        self._start = trace.sends[0].time_ms if trace.sends else None

    def text(self) -> str:
        trace = self._trace
        top = Node(f"{trace.message_id} of {trace.topic or 'a topic that nobody tells'}")
        if not trace.sends:
            top.add("no send was told of")
        for sent in trace.sends:
            top.add(self._sent(sent))
        for end in trace.transactions:
            top.add(self._decided(end))
        for recall in trace.recalls:
            top.add(self._recalled(recall))
        for group, deliveries in trace.deliveries.items():
            self._group(top, group, deliveries)
        if not trace.deliveries:
            top.add("no delivery was told of")
        return draw(top)

    def _at(self, ms: int) -> str:
        if self._start is None or ms == self._start:
            return moment(ms)
        late = ms - self._start
        return f"{'+' if late >= 0 else ''}{span(late)}"

    def _sent(self, one: Sent) -> str:
        how = "" if one.success else ", which did not store it safely"
        size, kind = count(one.body_length, "byte"), _KINDS.get(one.type, "")
        return (
            f"{self._at(one.time_ms)}  sent by {one.group}{kind}, {size}, to {one.store_host} "
            f"in {span(one.cost_ms)}{how}"
        )

    def _decided(self, one: TransactionEnded) -> str:
        decided = _DECIDED.get(one.state or "", f"ended as {one.state}")
        asked = ", when the broker asked" if one.from_check else ""
        return f"{self._at(one.time_ms)}  {decided} by {one.group}{asked}"

    def _recalled(self, one: Recalled) -> str:
        what = "taken back" if one.success else "could not be taken back"
        return f"{self._at(one.time_ms)}  {what} by {one.group}"

    def _group(self, top: Node, group: str, deliveries: list[Delivery]) -> None:
        node = top.add(f"{group or 'a group that is not told'}: {_summary(deliveries)}")
        for one in deliveries:
            node.add(f"{self._at(one.began_ms)}  {one}")


def _summary(deliveries: list[Delivery]) -> str:
    for number, one in enumerate(deliveries, 1):
        if one.succeeded:
            return f"consumed at the {ordinal(number)} delivery"
    if deliveries[-1].succeeded is None:
        return f"at the {ordinal(len(deliveries))} delivery"
    return f"not consumed, {ordinal(len(deliveries))} delivery failed"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`."""
    special = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else special.get(number % 10, "th")
    return f"{number}{ending}"
