"""The transactions that nobody has decided on yet, as the brokers' own topics tell of them.

A half message is open unless a note says that it has ended (`RMQ_SYS_TRANS_OP_HALF_TOPIC`). Before
the offsets that `CID_RMQ_SYS_TRANS` has in both topics everything is done, so what has to be read
is what came after. RocketMQ's brokers store a half message anew each time they ask about it, and
note the end of the one before a moment later; its age counts from when it was first sent all the
same.

RocketMQ has no such list.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Final

from gantrymq.errors import NotFound, TopicNotFound
from gantrymq.flows import clusters, pulling
from gantrymq.flows.reaching import Reach, gather
from gantrymq.protocol import names
from gantrymq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from gantrymq.protocol.offsets import GetMinOffset, QueryConsumerOffset
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullStatus
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

MOST: Final = 100
_PAGE: Final = 256
_MOST_READ: Final = 1_000_000
"""Messages of one topic at one broker that are looked through; so many open ones nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A message that was sent in a transaction, and waits for the word of its producer."""

    topic: str
    group: str
    """Of its producer: any member may be asked."""
    message_id: str
    broker: str
    half_offset: int
    """Its offset in the broker's half topic."""
    log_offset: int
    age: float
    """Seconds since it was sent, by the clock here."""
    checks: int | None
    """How often the broker asked; None where it does not write that down."""


async def open_transactions(
    reach: Reach,
    *,
    group: str | None = None,
    cluster: str | None = None,
    brokers: Collection[str] | None = None,
    most: int = MOST,
) -> list[OpenTransaction]:
    """Those of all producer groups, or of one; the oldest first.

    Where there is a namespace, those of others are not shown.
    """
    at = await clusters.masters(reach, cluster=cluster, brokers=brokers)

    now_ms = reach.now_ms()  # one moment for all: whose turn is later is not older

    async def one(name: str) -> list[OpenTransaction]:
        return [found async for found in _of_broker(reach, name, at[name], now_ms)]

    answers = (await gather(at, one)).whole("look for open transactions")
    found = [each for answer in answers.values() for each in answer]
    own = group if group is None else names.unwrap(reach.namespace, group)
    wanted = [each for each in found if own is None or each.group == own]
    return sorted(wanted, key=lambda each: -each.age)[:most]


async def _of_broker(
    reach: Reach, name: str, address: str, now_ms: int
) -> AsyncIterator[OpenTransaction]:
    # first the half messages: whose note comes meanwhile is then known to have ended
    halves = [half async for half in _messages(reach, address, HALF_TOPIC)]
    ended = {
        int(word)
        async for note in _messages(reach, address, HALF_OP_TOPIC)
        for word in bytes(note.body).split(b",")
        if word.isdigit()
    }
    newest = {half.message_id: half for half in halves if half.queue_offset not in ended}
    for half in newest.values():
        space = names.namespace_of(half.find(properties.REAL_TOPIC) or "")
        if not reach.namespace or space == reach.namespace:
            yield _described(reach, name, half, now_ms)


def _described(reach: Reach, broker: str, half: StoredMessage, now_ms: int) -> OpenTransaction:
    checks = half.find(properties.TRANSACTION_CHECK_TIMES) or ""
    return OpenTransaction(
        topic=names.unwrap(reach.namespace, half.find(properties.REAL_TOPIC) or ""),
        group=names.unwrap(reach.namespace, half.find(properties.PRODUCER_GROUP) or ""),
        message_id=half.find(properties.UNIQUE_KEY) or half.offset_id,
        broker=broker,
        half_offset=half.queue_offset,
        log_offset=half.log_offset,
        age=max(0.0, (now_ms - half.born_ms) / 1000),
        checks=int(checks) if checks.isdecimal() else None,
    )


async def _messages(reach: Reach, address: str, topic: str) -> AsyncIterator[StoredMessage]:
    """What a topic of transactions holds after what is done with."""
    offset, read = await _begin(reach, address, topic), 0
    while read < _MOST_READ:
        request = PullMessage(
            group=names.TOOLS_GROUP,
            topic=topic,
            queue_id=0,
            offset=offset,
            max_messages=_PAGE,
            flags=int(PullFlag.SUBSCRIPTION),
            wait_ms=0,
            subscription="*",
        )
        there = reach.reachable.get(address, address)
        try:
            pulled = await pulling.pull(reach.runtime, there, request, timeout=reach.timeout)
        except TopicNotFound:  # RocketMQ 4.x makes the topic of notes when it has the first
            return
        for message in pulled.messages:
            yield message
        if pulled.status is PullStatus.NOTHING_NEW or pulled.next_offset <= offset:
            return
        read += pulled.next_offset - offset
        offset = pulled.next_offset


async def _begin(reach: Reach, address: str, topic: str) -> int:
    asked = QueryConsumerOffset(group=TRANSACTION_GROUP, topic=topic, queue_id=0)
    try:
        known = (await reach.ask(address, asked)).offset
    except NotFound:
        known = 0
    least = (await reach.ask(address, GetMinOffset(topic=topic, queue_id=0))).offset
    return max(known, least)
