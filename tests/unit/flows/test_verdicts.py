"""What became of a message is decided by what is known, in the right order, and never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gantrymq.flows.explanations import Explanation
from gantrymq.flows.trace_trees import Delivery
from gantrymq.flows.verdicts import (
    Copy,
    Evidence,
    Holding,
    Position,
    Role,
    State,
    fits,
    judge,
)
from gantrymq.model import ReceivedMessage
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.tracing import ConsumeBegun, ConsumeEnded
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

ID = "7F000001" + "0" * 24
T0 = 1_700_000_000_000
NOW = T0 + 60_000
ANYTHING = Subscription(topic="orders")


def copy(
    role: Role = Role.MESSAGE,
    topic: str = "orders",
    *,
    offset: int = 5,
    retries: int = 0,
    due_ms: int | None = None,
    note: str | None = None,
    found: Mapping[str, str] | None = None,
) -> Copy:
    stored = StoredMessage(
        topic=topic,
        body=b"one beer",
        property_bytes=properties.encode({"UNIQ_KEY": ID, "TAGS": "red"} | dict(found or {})),
        queue_offset=offset,
        reconsume_times=retries,
        store_ms=T0,
        born_ms=T0 - 3,
    )
    return Copy(role=role, message=ReceivedMessage(stored, "broker-a"), due_ms=due_ms, note=note)


def at(offset: int | None, *holders: Holding, where: Copy | None = None) -> Position:
    return Position(copy=where or copy(), offset=offset, holders=list(holders))


def holding(*, commit: int = 5, low: int = 5, high: int = 8, cached: int = 4) -> Holding:
    return Holding(
        client_id="me@1", commit_offset=commit, cached_min=low, cached_max=high, cached=cached
    )


def delivery(*, success: bool | None, retries: int = 0, code: int = 2) -> Delivery:
    begun = ConsumeBegun(
        time_ms=T0 + 10,
        region=None,
        group="billing",
        request_id="r",
        message_id=ID,
        retries=retries,
    )
    ended = ConsumeEnded(
        request_id="r", message_id=ID, cost_ms=2, success=bool(success), context_code=code,
        time_ms=T0 + 12, group="billing",
    )  # fmt: skip
    return Delivery(group="billing", begun=begun, ended=None if success is None else ended)


def of(position: Position | None = None, **known: Any) -> Evidence:
    fields: dict[str, Any] = {
        "group": "billing", "position": position, "subscription": ANYTHING, "members": ["me@1"],
    }  # fmt: skip
    return Evidence(**(fields | known))


RETRY = "%RETRY%billing"
DELAYED = copy(Role.DELAYED, "SCHEDULE_TOPIC_XXXX", retries=2, due_ms=NOW + 30_000)
RETRIED = at(3, where=copy(Role.RETRY, RETRY, offset=3, retries=2))
DEAD = copy(Role.DEAD_LETTER, "%DLQ%billing", offset=0, retries=3)

CASES = {
    "its offset is not there yet": (of(at(4)), State.WAITING, "1 message before it"),
    "it is the next": (of(at(5)), State.WAITING, "it is the next"),
    "nothing committed": (of(at(None)), State.WAITING, "has no offset in"),
    "nobody there": (of(at(5), members=[]), State.WAITING, "nobody of the group is connected"),
    "nobody reads the queue": (of(at(5)), State.WAITING, "no member reads this queue"),
    "somebody reads the queue": (
        of(at(2, holding(commit=2, low=2, high=3))), State.WAITING, "me@1 reads this queue",
    ),
    "in hand": (of(at(5, holding())), State.IN_FLIGHT, "me@1 has it"),
    "handled, not told": (
        of(at(5, holding(commit=6))), State.ACKNOWLEDGED, "the broker is told within seconds",
    ),
    "past": (of(at(6)), State.PASSED, "the group is past it, at 6 of orders[broker-a:0]"),
    "tag that nobody wants": (
        of(at(6), subscription=Subscription(topic="orders", expression="blue")),
        State.FILTERED, "it wants tags blue; the message's is red",
    ),
    "tag that somebody wants": (
        of(at(6), subscription=Subscription(topic="orders", expression="blue || red")),
        State.PASSED, "matched: it wants tags blue || red",
    ),
    "given up": (of(at(6), dead=DEAD, dead_reason="OSError: no"), State.DEAD, "after 2 retries, "),
    "given up, why": (
        of(at(6), dead=DEAD, dead_reason="OSError: no"), State.DEAD, "because of OSError: no",
    ),
    "given up, nobody says why": (of(at(6), dead=DEAD), State.DEAD, "did not say why"),
    "to be tried again": (
        of(at(6), delayed=[DELAYED], most_retries=7), State.RETRYING,
        "retry 2 of 7, at 2023-11-14 22:14:50.000Z (in 30 s)",
    ),
    "overdue": (
        of(at(6), delayed=[copy(Role.DELAYED, retries=1, due_ms=NOW - 5_000)]), State.RETRYING,
        "(due for 5 s)",
    ),
    "waiting in the retry topic": (
        of(at(6), delayed=[DELAYED], retries=[RETRIED]), State.WAITING,
        "retry 2 of 16 is stored: %RETRY%billing[broker-a:0] @ 3",
    ),
    "done in the retry topic": (
        of(at(6), retries=[at(4, where=RETRIED.copy)]), State.PASSED, "at 4 of %RETRY%billing",
    ),
    "a trace says so": (
        of(at(6), deliveries=[delivery(success=False), delivery(success=True, retries=1)]),
        State.ACKNOWLEDGED, "consumed at retry 1 at 2023-11-14 22:13:20.012Z, in 2 ms",
    ),
    "a trace of failures": (
        of(at(6), delayed=[DELAYED], deliveries=[delivery(success=False)]), State.RETRYING,
        "trace: 2023-11-14 22:13:20.010Z delivered, raised an error after 2 ms",
    ),
    "a trace of a handler at work": (
        of(at(5, holding()), deliveries=[delivery(success=None)]), State.IN_FLIGHT,
        "and nothing told of since",
    ),
    "broadcast": (
        of(at(None, holding(commit=9)), broadcast=True, members=["me@1", "you@2"]),
        State.BROADCAST, "me@1 is past it, at 9",
    ),
    "broadcast, a member that says nothing": (
        of(at(None, holding()), broadcast=True, members=["me@1", "you@2"]),
        State.BROADCAST, "you@2 does not say how far it is",
    ),
    "the message is gone": (of(None), State.UNKNOWN, "not in its topic any more"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_first_that_fits_decides(case: str) -> None:
    evidence, state, words = CASES[case]
    verdict = judge(evidence, now_ms=NOW)
    assert verdict.state is state
    assert any(words in line for line in verdict.why), verdict.why


def test_what_cannot_be_known_is_said() -> None:
    verdict = judge(of(at(6), subscription=None, members=[], unknown=["who: gone"]), now_ms=NOW)
    assert verdict.unknown[0] == "who: gone"
    assert any(line.startswith("what the group wants") for line in verdict.unknown)
    assert any(line.startswith("when it was consumed") for line in verdict.unknown)
    assert any("skipped by a reset" in line for line in verdict.unknown)


def test_what_pop_consumers_hold_is_not_known() -> None:
    verdict = judge(of(at(6), pops=True), now_ms=NOW)
    assert verdict.state is State.PASSED
    assert any(line.startswith("whether a member holds it still") for line in verdict.unknown)


def test_numbers_of_a_verdict() -> None:
    waits = judge(of(at(6), delayed=[DELAYED], most_retries=7), now_ms=NOW)
    assert (waits.retries, waits.most_retries, waits.due_ms) == (2, 7, NOW + 30_000)
    dead = judge(of(at(6), dead=DEAD, dead_reason="why"), now_ms=NOW)
    assert (dead.retries, dead.reason) == (2, "why")
    told = judge(of(at(6), deliveries=[delivery(success=True)]), now_ms=NOW)
    assert told.acknowledged_ms == T0 + 12
    assert judge(of(at(5, holding())), now_ms=NOW).holders == ["me@1"]


@pytest.mark.parametrize(
    ("subscription", "says", "fitting"),
    [
        (ANYTHING, None, True),
        (Subscription(topic="t", expression="red"), None, True),
        (Subscription(topic="t", expression="Red"), None, False),
        (Subscription(topic="t", expression=" || "), None, None),
        (Subscription(topic="t", expression="a > 1", expression_type="SQL92"), True, True),
        (Subscription(topic="t", expression="a > 1", expression_type="SQL92"), False, False),
        (Subscription(topic="t", expression="a > 1", expression_type="SQL92"), None, None),
        (Subscription(topic="t", class_filter=True), None, None),
    ],
)
def test_filters(subscription: Subscription, says: bool | None, fitting: bool | None) -> None:
    wanted, why = fits(subscription, "red", broker_says=says)
    assert wanted is fitting
    assert why


def test_the_whole_text() -> None:
    delayed = copy(Role.DELAYED, "SCHEDULE_TOPIC_XXXX", due_ms=NOW + 60_000, note="delay level 5")
    verdict = judge(of(at(5, holding())), now_ms=NOW)
    told = Explanation(
        message_id=ID,
        topic="orders",
        message=copy(found={"KEYS": "k1 k2"}).message,
        copies=[copy(), delayed],
        groups=[verdict],
        trace=None,
        notes=["a note"],
        now_ms=NOW,
    )
    offset_id = told.message.offset_id
    sent = "sent by 127.0.0.1:0 at 2023-11-14 22:13:19.997Z, 8 bytes, offset id"
    assert str(told).splitlines() == [
        f"message {ID} of orders, tag red, keys k1 k2",
        "├─ stored in orders[broker-a:0] @ 5, 2023-11-14 22:13:20.000Z",
        f"│  └─ {sent} {offset_id}",
        "├─ delayed in SCHEDULE_TOPIC_XXXX[broker-a:0] @ 5, 2023-11-14 22:13:20.000Z",
        f"│  ├─ {sent} {offset_id}",
        "│  ├─ to be delivered at 2023-11-14 22:15:20.000Z (in 1 min)",
        "│  └─ delay level 5",
        "├─ billing: in flight",
        "│  ├─ matched: it wants every tag",
        "│  ├─ me@1 has it",
        "│  └─ the group is at 5 of orders[broker-a:0]: it is the next",
        "└─ a note",
    ]
    assert told.group("billing") is verdict
    assert told.group("nobody") is None
