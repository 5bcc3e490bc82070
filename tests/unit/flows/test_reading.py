"""Reading stretches of queues from brokers that cap pulls, lose messages, fail and come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import (
    BrokerFailure,
    ConnectionLost,
    GantryError,
    NoPermission,
    ReadFailed,
    SystemBusy,
)
from gantrymq.flows.reading import Gap, Piece, ReadTerms, Stretch, before, read
from gantrymq.model import MessageQueue
from gantrymq.protocol.pulling import PullMessage, PullReply, PullStatus
from gantrymq.runtime import iterate_blocking
from gantrymq.wire import record
from gantrymq.wire.record import StoredMessage

A = MessageQueue("orders", "broker-a", 0)
B = MessageQueue("orders", "broker-a", 1)


@dataclass
class Broker:
    """A runtime whose only peer is a broker with one queue of messages of some sizes."""

    sizes: list[int]
    low: int = 0
    most_messages: int = 1 << 20
    most_bytes: int = 1 << 30
    removed: frozenset[int] = frozenset()
    wanted: Callable[[int], bool] | None = None
    scan: int = 800
    trouble: Callable[[int], GantryError | None] = lambda number: None
    pulls: list[tuple[int, int, int]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    time: float = 0.0
    connections: int = 0

    # --- a runtime

    @asynccontextmanager
    async def pipe(self, address: str, *, timeout: float) -> AsyncIterator[Broker]:
        self.connections += 1
        self.under_way = 0
        yield self

    async def begin(self, request: PullMessage, *, timeout: float) -> Asked:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        return Asked(self, request)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def now(self) -> float:
        return self.time

    async def call(self, address, request, *, timeout):
        raise NotImplementedError

    # --- a broker

    def answer(self, request: PullMessage) -> PullReply:
        self.under_way -= 1
        number = len(self.pulls)
        at = request.offset
        self.pulls.append((request.queue_id, at, request.max_messages))
        if (error := self.trouble(number)) is not None:
            raise error
        high = len(self.sizes)
        if not self.low <= at < high:
            status = PullStatus.NOTHING_NEW if at == high else PullStatus.OFFSET_MOVED
            return self.reply(status, self.low if at < self.low else high)
        found, size, looked = [], 0, 0
        while at < high:
            if at not in self.removed:
                if self.wanted is None or self.wanted(at):
                    full = len(found) >= min(self.most_messages, request.max_messages)
                    full |= bool(found) and size + self.sizes[at] > min(
                        self.most_bytes, request.max_bytes or 1 << 30
                    )
                    if full:
                        break
                    found.append(self.message(at, request.queue_id))
                    size += self.sizes[at]
            elif self.wanted is None and not found:
                return self.reply(PullStatus.NOTHING_MATCHED, at + 1)
            elif self.wanted is None:
                break
            at += 1
            looked += 1
            if looked >= max(self.scan, request.max_messages):
                break
        status = PullStatus.FOUND if found else PullStatus.NOTHING_MATCHED
        return self.reply(status, at, b"".join(found))

    def reply(self, status: PullStatus, to: int, body: bytes = b"") -> PullReply:
        return PullReply(
            status=status, suggested_broker=0, next_offset=to,
            min_offset=self.low, max_offset=len(self.sizes), body=body,
        )  # fmt: skip

    def message(self, at: int, queue_id: int) -> bytes:
        body = at.to_bytes(8, "big") * max(1, self.sizes[at] // 8)
        return StoredMessage("orders", body, queue_offset=at, queue_id=queue_id).encode()


@dataclass
class Asked:
    broker: Broker
    request: PullMessage

    async def reply(self, *, timeout: float) -> PullReply:
        return self.broker.answer(self.request)


async def there(broker: str, attempt: int) -> str:
    return f"{broker}:{attempt}"


def run(broker: Broker, *stretches: Stretch, **terms) -> list[Piece | Gap]:
    return list(iterate_blocking(read(broker, there, stretches, ReadTerms(**terms))))


def offsets(found: list[Piece | Gap]) -> list[int]:
    pieces = [piece for piece in found if isinstance(piece, Piece)]
    return [message.queue_offset for piece in pieces for message in record.iterate(piece.body)]


def check_seamless(found: list[Piece | Gap], *stretches: Stretch) -> None:
    """Pieces and gaps follow each other, and every message is within its piece."""
    at = [(number, stretch.start) for number, stretch in enumerate(stretches)]
    reached = dict(at)
    for one in found:
        assert one.start == reached[one.number]
        assert one.start < one.end <= stretches[one.number].end
        reached[one.number] = one.end
        if isinstance(one, Piece):
            for message in record.iterate(one.body):
                assert one.start <= message.queue_offset < one.end
                assert message.queue_id == stretches[one.number].queue.queue_id
    for number, stretch in enumerate(stretches):
        assert reached[number] == max(stretch.start, stretch.end)


def test_big_pulls_bring_all_in_a_few() -> None:
    broker = Broker([100] * 10_000)
    stretch = Stretch(A, 0, 10_000)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert offsets(found) == list(range(10_000))
    assert len(broker.pulls) == 3


def test_small_pulls_are_sent_ahead_of_their_answers() -> None:
    broker = Broker([100] * 10_000, most_messages=32)
    stretch = Stretch(A, 1_000, 9_000)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert offsets(found) == list(range(1_000, 9_000))
    assert broker.most_under_way == 32
    assert len(broker.pulls) < 8_000 // 32 + 8, "each pull is sent once"


def test_a_cap_in_bytes_is_kept_away_from() -> None:
    random = Random(7)
    broker = Broker([random.randrange(200, 2_000) for _ in range(5_000)], most_bytes=65_536)
    stretch = Stretch(A, 0, 5_000)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert offsets(found) == list(range(5_000))
    assert len(broker.pulls) < 1.7 * sum(broker.sizes) / 65_536


def test_few_bytes_are_under_way_when_pulls_bring_much() -> None:
    broker = Broker([4_096] * 3_000)
    found = run(broker, Stretch(A, 0, 3_000), max_bytes=1 << 20, ahead_bytes=3 << 20)
    assert offsets(found) == list(range(3_000))
    assert 2 <= broker.most_under_way <= 4


def test_many_short_stretches_share_the_connection() -> None:
    broker = Broker([50] * 100)
    queues = [A._replace(queue_id=number) for number in range(200)]
    stretches = [Stretch(queue, 10, 10 + number % 4) for number, queue in enumerate(queues)]
    found = run(broker, *stretches)
    check_seamless(found, *stretches)
    assert len(offsets(found)) == sum(number % 4 for number in range(200))
    assert broker.most_under_way == 32
    assert broker.connections == 1


def test_nothing_to_read_asks_nobody() -> None:
    broker = Broker([50] * 10)
    assert run(broker) == []
    assert run(broker, Stretch(A, 5, 5), Stretch(B, 7, 3)) == []
    assert broker.connections == 0


def test_what_was_removed_is_a_gap_with_exact_offsets() -> None:
    broker = Broker([50] * 100, low=30)
    stretch = Stretch(A, 10, 60)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert found[0] == Gap(0, 10, 30, "removed at the broker, where the queue begins at 30")
    assert offsets(found) == list(range(30, 60))


def test_a_damaged_message_is_a_gap_of_one() -> None:
    broker = Broker([50] * 100, removed=frozenset({17, 18}))
    stretch = Stretch(A, 0, 100)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert [(one.start, one.end) for one in found if isinstance(one, Gap)] == [(17, 18), (18, 19)]
    assert offsets(found) == [n for n in range(100) if n not in (17, 18)]


def test_a_queue_that_ends_too_early_is_waited_for_and_then_a_gap() -> None:
    broker = Broker([50] * 40)
    stretches = Stretch(A, 10, 60), Stretch(B, 0, 20)
    found = run(broker, *stretches, patience=5.0)
    check_seamless(found, *stretches)
    assert Gap(0, 40, 60, "the queue ends at 40") in found
    assert len(offsets(found)) == 30 + 20
    assert broker.time == pytest.approx(5.0)


def test_a_queue_that_grows_in_time_leaves_no_gap() -> None:
    broker = Broker([50] * 40)

    def grow(number: int) -> None:
        if number == 4:
            broker.sizes += [50] * 40

    broker.trouble = grow
    stretch = Stretch(A, 10, 60)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert offsets(found) == list(range(10, 60))


def test_a_lost_connection_repeats_nothing_and_leaves_nothing_out() -> None:
    broker = Broker([100] * 5_000, most_messages=32)
    broker.trouble = lambda number: ConnectionLost("gone") if number % 40 == 39 else None
    stretch = Stretch(A, 0, 5_000)
    found = run(broker, stretch)
    check_seamless(found, stretch)
    assert offsets(found) == list(range(5_000))
    assert broker.connections > 4


def test_a_busy_broker_is_asked_again_with_pauses() -> None:
    broker = Broker([100] * 50)
    broker.trouble = lambda number: SystemBusy.because("later") if number < 6 else None
    assert offsets(run(broker, Stretch(A, 0, 50))) == list(range(50))
    assert broker.time == pytest.approx(3.15)


def test_it_ends_when_patience_does() -> None:
    broker = Broker([100] * 50)
    broker.trouble = lambda number: ConnectionLost("gone")
    with pytest.raises(
        ReadFailed, match=r"orders\[broker-a:0\] from 5 up to 50 was read up to 5"
    ) as e:
        run(broker, Stretch(A, 5, 50), patience=10.0)
    assert broker.time == pytest.approx(10.0)
    assert isinstance(e.value.__cause__, ConnectionLost)


def test_a_refusal_ends_it_soon() -> None:
    broker = Broker([100] * 50)
    broker.trouble = lambda number: NoPermission.because("not for you")
    with pytest.raises(ReadFailed, match="not for you"):
        run(broker, Stretch(A, 0, 50))
    assert len(broker.pulls) == 3
    broker = replace(broker, pulls=[], trouble=lambda number: BrokerFailure.because("broken"))
    with pytest.raises(ReadFailed, match="3 attempts"):
        run(broker, Stretch(A, 0, 50))


def test_an_order_to_read_elsewhere_is_not_for_us() -> None:
    broker = Broker([100] * 50)
    answer = broker.answer

    def moved_once(request: PullMessage) -> PullReply:
        found = answer(request)
        if len(broker.pulls) == 1:
            return broker.reply(PullStatus.OFFSET_MOVED, 40)
        return found

    broker.answer = moved_once  # type: ignore[method-assign]
    assert offsets(run(broker, Stretch(A, 0, 50))) == list(range(50))


@pytest.mark.parametrize("one_in", [2, 10, 1_000, 10_000])
def test_a_filter_leaves_holes_and_nothing_twice(one_in: int) -> None:
    broker = Broker([100] * 20_000, most_messages=32, wanted=lambda at: at % one_in == 0)
    stretch = Stretch(A, 3, 19_990)
    found = run(broker, stretch, expression="TagA")
    check_seamless(found, stretch)
    assert offsets(found) == [at for at in range(3, 19_990) if at % one_in == 0]


@given(
    sizes=st.lists(st.sampled_from([8, 80, 900, 5_000]), max_size=300),
    low=st.integers(0, 40),
    most_messages=st.sampled_from([1, 3, 32, 1_000]),
    most_bytes=st.sampled_from([1, 1_000, 20_000, 1 << 30]),
    removed=st.frozensets(st.integers(0, 300), max_size=5),
    faults=st.frozensets(st.integers(0, 60), max_size=6),
    spans=st.lists(st.tuples(st.integers(0, 310), st.integers(0, 310)), min_size=1, max_size=4),
    one_in=st.sampled_from([None, 1, 3]),
    ahead=st.integers(1, 8),
)
def test_whatever_the_broker_is_like(
    sizes, low, most_messages, most_bytes, removed, faults, spans, one_in, ahead
) -> None:
    broker = Broker(
        sizes,
        low=min(low, len(sizes)),
        most_messages=most_messages,
        most_bytes=most_bytes,
        removed=removed,
        wanted=None if one_in is None else lambda at: at % one_in == 0,
        trouble=lambda number: ConnectionLost("gone") if number in faults else None,
    )
    stretches = [
        Stretch(A._replace(queue_id=number), start, min(end, len(sizes)))
        for number, (start, end) in enumerate(spans)
    ]
    how = {} if one_in is None else {"expression": "TagA"}
    found = run(broker, *stretches, ahead=ahead, patience=5.0, max_messages=64, **how)
    check_seamless(found, *stretches)
    expected = [
        at
        for _, start, end in stretches
        for at in range(max(start, broker.low), end)
        if at not in removed and (broker.wanted is None or broker.wanted(at))
    ]
    assert offsets(found) == expected


def test_cutting_keeps_whole_messages() -> None:
    broker = Broker([10] * 5)
    body = b"".join(broker.message(at, 0) for at in range(5))
    assert [m.queue_offset for m in record.iterate(before(body, 3))] == [0, 1, 2]
    assert before(body, 5) is body
    assert bytes(before(body, 0)) == b""
