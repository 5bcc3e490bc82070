from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from gantrymq.errors import BrokerFailure, CallTimeout, InvalidInput
from gantrymq.model import MessageQueue
from gantrymq.protocol import names, validation
from gantrymq.rules.allocation import (
    EVENLY,
    IN_TURN,
    Strategy,
    by_consistent_hash,
    by_machine_room,
    by_nearby_machine_room,
    even_share,
    room_of,
    share_in_turn,
)
from gantrymq.rules.delay import DelayLevels
from gantrymq.rules.fault_avoidance import BACK_OFF, FaultItem, FaultVersion
from gantrymq.rules.filtering import parse_tags, tag_code
from gantrymq.rules.hashing import jump_hash
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.retry import ReconnectPauses, SendRetries
from gantrymq.rules.turns import RoundRobin, position
from gantrymq.wire.javahash import INT_MAX, INT_MIN, int32, java_hash

ints = st.integers(INT_MIN, INT_MAX)
chances = st.integers(0, 2**32).map(random.Random)
versions: st.SearchStrategy[FaultVersion] = st.sampled_from(("4.x", "5.x"))
rooms = st.sampled_from(("r1", "r2", "r3"))
brokers = st.builds(lambda room, name: f"{room}@{name}", rooms, st.sampled_from("abcde"))
queue_lists = st.lists(
    st.builds(MessageQueue, st.just("T"), brokers, st.integers(0, 20)),
    unique=True,
    min_size=1,
    max_size=40,
)
client_lists = st.lists(
    st.builds(lambda room, number: f"{room}@{number}", rooms, st.integers(0, 99)),
    unique=True,
    min_size=1,
    max_size=12,
)


def client_room(client: str) -> str:
    return client.partition("@")[0]


COMPLETE = [
    EVENLY,
    IN_TURN,
    by_consistent_hash(),
    by_machine_room({"r1", "r2", "r3"}),
    *(
        by_nearby_machine_room(inner, queue_room=room_of, client_room=client_room)
        for inner in (EVENLY, IN_TURN, by_consistent_hash())
    ),
]
strategies = st.sampled_from(COMPLETE)


def all_shares(
    strategy: Strategy, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> dict[str, list[MessageQueue]]:
    return {client: strategy.allocate(client, queues, clients) for client in clients}


# Sharing queues


@given(strategies, queue_lists, client_lists)
def test_every_queue_has_exactly_one_owner(
    strategy: Strategy, queues: list[MessageQueue], clients: list[str]
) -> None:
    shares = all_shares(strategy, queues, clients)
    assert Counter(queue for share in shares.values() for queue in share) == Counter(queues)


@given(strategies, queue_lists, client_lists, chances)
def test_shares_do_not_depend_on_the_order_of_the_lists(
    strategy: Strategy, queues: list[MessageQueue], clients: list[str], chance: random.Random
) -> None:
    shares = all_shares(strategy, queues, clients)
    chance.shuffle(queues)
    chance.shuffle(clients)
    assert all_shares(strategy, queues, clients) == shares


@given(st.sampled_from([EVENLY, IN_TURN, COMPLETE[3]]), queue_lists, client_lists)
def test_even_shares_differ_by_one_at_most(
    strategy: Strategy, queues: list[MessageQueue], clients: list[str]
) -> None:
    sizes = [len(share) for share in all_shares(strategy, queues, clients).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.sampled_from([even_share, share_in_turn]), st.integers(0, 300), st.integers(1, 50))
def test_shares_by_number_cover_every_number_once(
    share: Callable[[int, int, int], range], queues: int, clients: int
) -> None:
    taken = sorted(number for i in range(clients) for number in share(i, clients, queues))
    assert taken == list(range(queues))


@given(queue_lists, client_lists, st.data())
def test_on_the_ring_only_the_queues_of_a_leaver_move(
    queues: list[MessageQueue], clients: list[str], data: st.DataObject
) -> None:
    assume(len(clients) > 1)
    leaver = data.draw(st.sampled_from(clients))
    before = all_shares(by_consistent_hash(), queues, clients)
    stayed = [client for client in clients if client != leaver]
    after = all_shares(by_consistent_hash(), queues, stayed)
    assert all(set(before[client]) <= set(after[client]) for client in stayed)


@given(queue_lists, client_lists)
def test_nearby_keeps_a_room_with_clients_to_itself(
    queues: list[MessageQueue], clients: list[str]
) -> None:
    homes = {client_room(client) for client in clients}
    for client, share in all_shares(COMPLETE[4], queues, clients).items():
        assert {room_of(queue) for queue in share} & homes <= {client_room(client)}


# Choosing queues


@given(ints, st.integers(1, 5000))
def test_a_position_is_always_in_the_list(turn: int, size: int) -> None:
    assert 0 <= position(turn, size) < size


@given(ints, st.integers(1, 100), chances)
def test_n_turns_take_each_of_n_queues_once(start: int, size: int, chance: random.Random) -> None:
    # Neither over 0, where abs() turns round, nor over the place where an int wraps.
    assume(start > INT_MIN and not start <= 0 < start + size and start + size <= INT_MAX + 1)
    counter = RoundRobin(chance, start=start)
    assert sorted(position(counter.next(), size) for _ in range(size)) == list(range(size))


@given(st.integers(INT_MAX - 300, INT_MAX), st.integers(1, 20), chances)
def test_round_robin_stays_fair_over_the_wrap(start: int, size: int, chance: random.Random) -> None:
    counter, rounds = RoundRobin(chance, start=start), 1000
    taken = Counter(position(counter.next(), size) for _ in range(rounds * size))
    assert set(taken) == set(range(size))
    assert max(taken.values()) - min(taken.values()) <= 4


@st.composite
def topics(draw: st.DrawFn) -> TopicQueues:
    queues = sorted(draw(queue_lists))
    return TopicQueues.of(queues, RoundRobin(draw(chances), start=draw(ints)))


events = st.lists(
    st.tuples(
        st.floats(0, 40),
        st.sampled_from((None, CallTimeout("late"), BrokerFailure(1))),
        st.floats(0, 100),
    ),
    max_size=30,
)


@given(topics(), versions, st.booleans(), st.booleans(), chances, events)
def test_a_choice_is_always_a_queue_that_can_be_written_to(
    topic: TopicQueues,
    version: FaultVersion,
    on: bool,
    probing: bool,
    chance: random.Random,
    events: list[tuple[float, Exception | None, float]],
) -> None:
    now, before = 0.0, list(topic.queues)
    choice = QueueChoice(
        lambda: now, chance, version=version, send_latency_fault_enable=on, probing=probing
    )
    failed = None
    for elapsed, error, idle in events:
        queue = choice.choose(topic, failed=failed, retry=failed is not None)
        if on and version == "4.x" and queue not in before:
            assert queue.topic == "T"
            assert 0 <= queue.queue_id < topic.write_queues[queue.broker]
        else:
            assert queue in before
        if not on:
            elsewhere = {other.broker for other in before} - {failed}
            assert not elsewhere or queue.broker in elsewhere
        choice.report(queue.broker, elapsed, error)
        failed = queue.broker if error else None
        now += idle
    assert list(topic.queues) == before


@given(topics(), chances)
def test_5x_never_takes_a_broker_to_leave_alone_while_there_is_another(
    topic: TopicQueues, chance: random.Random
) -> None:
    choice = QueueChoice(lambda: 0.0, chance, send_latency_fault_enable=True)
    all_brokers = sorted({queue.broker for queue in topic.queues})
    assume(len(all_brokers) > 1)
    slow = set(all_brokers[: chance.randrange(len(all_brokers))])
    for broker in slow:
        choice.report(broker, 20.0)
    assert choice.choose(topic).broker not in slow


# Fault items

items = st.builds(
    FaultItem,
    broker=st.sampled_from("abc"),
    latency=st.integers(0, 3).map(float),
    available_from=st.integers(0, 3).map(float),
)


def compare_as_java(one: FaultItem, other: FaultItem, now: float) -> int:
    """`FaultItem.compareTo`, step by step."""
    if one.available(now) != other.available(now):
        return -1 if one.available(now) else 1
    if one.latency != other.latency:
        return -1 if one.latency < other.latency else 1
    return (one.available_from > other.available_from) - (one.available_from < other.available_from)


@given(st.lists(items, max_size=8), st.integers(0, 3).map(float))
def test_the_order_of_fault_items_is_total_and_javas(found: list[FaultItem], now: float) -> None:
    by_rank = sorted(found, key=lambda item: item.rank(now))
    by_java = sorted(found, key=functools.cmp_to_key(lambda a, b: compare_as_java(a, b, now)))
    assert by_rank == by_java
    for one in found:
        for other in found:
            compared = (one.rank(now) > other.rank(now)) - (one.rank(now) < other.rank(now))
            assert compared == compare_as_java(one, other, now)


@given(versions, st.floats(0, 100), st.floats(0, 100))
def test_a_longer_latency_never_earns_a_shorter_pause(
    version: FaultVersion, one: float, other: float
) -> None:
    shorter, longer = sorted((one, other))
    assert BACK_OFF[version].pause(shorter) <= BACK_OFF[version].pause(longer)


@given(versions, st.floats(0, 100))
def test_a_pause_is_found_as_java_looks_for_it(version: FaultVersion, latency: float) -> None:
    table = BACK_OFF[version]
    from_the_top = zip(reversed(table.latencies), reversed(table.pauses), strict=True)
    expected = next((pause for reached, pause in from_the_top if latency >= reached), 0.0)
    assert table.pause(latency) == expected


# Hashes, times, texts


@given(st.text())
def test_java_hash_is_the_sum_over_utf_16_units(text: str) -> None:
    expected = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        expected = int32(31 * expected + (high << 8 | low))
    assert java_hash(text) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000))
def test_jump_hash_moves_only_to_the_new_bucket(state: int, buckets: int) -> None:
    old, new = jump_hash(state, buckets), jump_hash(state, buckets + 1)
    assert 0 <= old < buckets
    assert new in (old, buckets)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_delay_levels_read_what_was_written(seconds: list[int]) -> None:
    levels = DelayLevels.parse(" ".join(f"{value}s" for value in seconds))
    assert levels.seconds == tuple(seconds)


# Sixteenths add up without rounding.
sixteenths = st.integers(0, 160).map(lambda number: number / 16)


@given(sixteenths, st.lists(sixteenths, max_size=8), st.none() | sixteenths, st.integers(0, 5))
def test_attempts_never_get_more_time_than_the_send(
    timeout: float, took: list[float], longest: float | None, retries: int
) -> None:
    now = 0.0
    budget = SendRetries(retries=retries, longest_attempt=longest).start(now, timeout, "sync")
    for seconds in took:
        if budget.exhausted or now > timeout:
            break
        allowed = budget.next_attempt(now)
        assert 0 <= allowed <= timeout - now
        if longest is not None and not budget.exhausted:
            assert allowed <= longest
        now += min(seconds, allowed)
    assert budget.made <= 1 + retries
    assert now <= timeout


@given(st.integers(0, 10**6), st.floats(0, 1), chances)
def test_reconnect_pauses_stay_in_their_range(
    failures: int, jitter: float, chance: random.Random
) -> None:
    pause = ReconnectPauses(jitter=jitter).pause(failures, chance)
    assert 0 <= pause <= 60
    if failures:
        assert pause >= 0.1 * (1 - jitter)


tags = st.text("abAB ö", min_size=1, max_size=4).map(str.strip).filter(bool)


@given(st.lists(tags, min_size=1), tags)
def test_what_the_consumer_wants_the_broker_lets_through(wanted: list[str], tag: str) -> None:
    parsed = parse_tags(" || ".join(wanted))
    assert parsed.matches(tag) == (tag in wanted)
    assert parsed.matches_code(tag_code(tag)) or not parsed.matches(tag)


legal = st.text("abXY09_-|%", min_size=1, max_size=40)
plain_names = st.text("abXY09_-|", min_size=1, max_size=40).filter(
    lambda name: not names.is_system_topic(name) and not names.is_system_group(name)
)


@given(plain_names, plain_names, st.sampled_from(("", "%RETRY%", "%DLQ%")))
def test_namespaces_come_off_as_they_went_on(space: str, name: str, prefix: str) -> None:
    wrapped = names.wrap(space, prefix + name)
    assert names.unwrap(space, wrapped) == prefix + name
    assert names.wrap(space, wrapped) == wrapped
    assume(not names.is_system_topic(f"{space}%{name}"))
    assume(not names.is_system_group(f"{space}%{name}"))
    assert names.namespace_of(wrapped) == space


@given(st.text(max_size=140))
def test_a_name_is_accepted_or_refused_by_the_published_pattern(name: str) -> None:
    allowed = frozenset("%|abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    good = 0 < len(name) <= 127 and set(name) <= allowed
    try:
        validation.check_topic(name)
    except InvalidInput:
        assert not good
    else:
        assert good


@given(legal)
def test_legal_names_are_accepted(name: str) -> None:
    validation.check_topic(name)
    validation.check_group(name)
