from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from gantrymq.errors import CallTimeout, ConfigError, ConnectionLost, InvalidInput
from gantrymq.model import MessageQueue
from gantrymq.rules.fault_avoidance import FaultVersion
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues, next_queue
from gantrymq.rules.turns import RoundRobin
from gantrymq.wire.javahash import INT_MAX

if TYPE_CHECKING:
    from conftest import HandClock

VERSIONS: tuple[FaultVersion, ...] = ("4.x", "5.x")


def queues_of(brokers: Iterable[str], each: int = 4) -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for broker in brokers for number in range(each)]


def topic_of(brokers: Iterable[str], *, each: int = 4, start: int = 0) -> TopicQueues:
    return TopicQueues.of(queues_of(brokers, each), RoundRobin(random.Random(3), start=start))


def short(queue: MessageQueue) -> str:
    return f"{queue.broker}{queue.queue_id}"


@pytest.fixture(params=VERSIONS)
def plain(request: pytest.FixtureRequest, clock: HandClock, chance: random.Random) -> QueueChoice:
    return QueueChoice(clock, chance, version=request.param)


def strategy(
    clock: HandClock, chance: random.Random, version: FaultVersion, *, probing: bool = False
) -> QueueChoice:
    return QueueChoice(
        clock, chance, version=version, send_latency_fault_enable=True, probing=probing
    )


# Plain round robin: A1, A2


def test_golden_table_1(plain: QueueChoice) -> None:
    topic = topic_of("ab")
    taken = " ".join(short(plain.choose(topic)) for _ in range(9))
    assert taken == "a0 a1 a2 a3 b0 b1 b2 b3 a0"


def test_round_robin_survives_the_wrap_of_the_counter(plain: QueueChoice) -> None:
    topic = topic_of("ab", start=INT_MAX - 1)
    taken = [short(plain.choose(topic)) for _ in range(5)]
    assert taken == ["b2", "b3", "a0", "b3", "b2"]  # abs() counts down on the negative side


def test_a_retry_skips_the_queues_of_the_failed_broker(plain: QueueChoice) -> None:
    topic = topic_of("abc", start=2)
    assert short(plain.choose(topic, failed="a", retry=True)) == "b0"


def test_a_retry_takes_any_queue_when_all_are_of_the_failed_broker(plain: QueueChoice) -> None:
    topic = topic_of("a")
    assert {plain.choose(topic, failed="a", retry=True).broker for _ in range(8)} == {"a"}


def test_4x_spends_one_turn_on_a_retry_and_5x_one_on_each_queue(
    clock: HandClock, chance: random.Random
) -> None:
    following = {}
    for version in VERSIONS:
        topic, choice = topic_of("ab"), QueueChoice(clock, chance, version=version)
        assert short(choice.choose(topic, failed="a")) == "b0"
        following[version] = short(choice.choose(topic))
    assert following == {"4.x": "a1", "5.x": "b1"}


def test_4x_walks_on_over_the_wrap(clock: HandClock, chance: random.Random) -> None:
    topic = topic_of("ab", start=INT_MAX - 1)  # looks at b2, b3, then at a0
    assert short(QueueChoice(clock, chance, version="4.x").choose(topic, failed="b")) == "a0"


def test_a_topic_without_queues_says_so() -> None:
    with pytest.raises(InvalidInput, match="no queue to write to"):
        topic_of("")


# The switch and the facade: A3, A9


def test_the_fault_strategy_is_off_unless_asked_for(plain: QueueChoice) -> None:
    plain.report("a", 60.0, CallTimeout("late"))
    assert plain.faults.items() == []
    plain.send_latency_fault_enable = True
    assert plain.faults.available("a")


def test_the_switch_works_while_running(plain: QueueChoice) -> None:
    topic = topic_of("ab")
    plain.send_latency_fault_enable = True
    plain.report("a", 60.0)
    assert {plain.choose(topic).broker for _ in range(8)} == {"b"}
    plain.send_latency_fault_enable = False
    assert {plain.choose(topic).broker for _ in range(8)} == {"a", "b"}


def test_the_option_names_the_version(clock: HandClock, chance: random.Random) -> None:
    assert QueueChoice(clock, chance).version == "5.x"
    with pytest.raises(ConfigError, match=r"versions 4\.x, 5\.x, not '6'"):
        QueueChoice(clock, chance, version="6")  # type: ignore[arg-type]


# The strategy of 4.x: A4 to A8

LATENCY = {"broker1": 30.0, "broker2": 50.0}
LOOPS = 10


def run_loops(
    clock: HandClock, chance: random.Random, *, start: int, fail: bool, time_passes: bool
) -> list[list[str]]:
    """Golden table 2: ten sends of up to two attempts; the brokers each took."""
    choice, topic = strategy(clock, chance, "4.x"), topic_of(LATENCY, start=start)
    used: list[list[str]] = []
    for _ in range(LOOPS):
        failed: str | None = None
        used.append([])
        for attempt in range(2 if fail else 1):
            queue = choice.choose(topic, failed=failed, retry=attempt > 0)
            used[-1].append(queue.broker)
            clock.advance(LATENCY[queue.broker] if time_passes else 0)
            error = ConnectionLost("gone") if fail else None
            choice.report(queue.broker, LATENCY[queue.broker], error)
            failed = queue.broker
    return used


@pytest.mark.parametrize("time_passes", [False, True])
@pytest.mark.parametrize("start", [0, 8, 8000])
def test_golden_table_2_when_every_attempt_succeeds(
    clock: HandClock, chance: random.Random, start: int, time_passes: bool
) -> None:
    used = run_loops(clock, chance, start=start, fail=False, time_passes=time_passes)
    assert used == [["broker1"], ["broker2"], *[["broker1"]] * 8]


@pytest.mark.parametrize("time_passes", [False, True])
@pytest.mark.parametrize("start", [0, 8, 8000])
def test_golden_table_2_when_every_attempt_fails(
    clock: HandClock, chance: random.Random, start: int, time_passes: bool
) -> None:
    used = run_loops(clock, chance, start=start, fail=True, time_passes=time_passes)
    first, second, rest = ["broker1", "broker1"], ["broker2", "broker1"], ["broker1", "broker1"]
    assert used == [first, second, *[rest] * 8]


def test_4x_first_pass_wants_the_failed_broker_again_if_it_is_available(
    clock: HandClock, chance: random.Random
) -> None:
    choice, topic = strategy(clock, chance, "4.x"), topic_of("ab")
    assert short(choice.choose(topic, failed="b", retry=True)) == "b0"


def test_4x_second_pass_rewrites_a_copy(clock: HandClock, chance: random.Random) -> None:
    """A turn for the walk, one for the queue, one for the id: 4, 5 and 6, of which 6 mod 4 is 2."""
    choice, topic = strategy(clock, chance, "4.x"), topic_of("ab", start=4)
    before = list(topic.queues)
    for broker, elapsed in (("a", 20.0), ("b", 30.0)):
        choice.report(broker, elapsed)
    assert short(choice.choose(topic)) == "a2"
    assert list(topic.queues) == before


def test_4x_second_pass_draws_the_id_from_the_brokers_own_number_of_queues(
    clock: HandClock, chance: random.Random
) -> None:
    choice = strategy(clock, chance, "4.x")
    topic = TopicQueues(
        queues=[MessageQueue("T", "a", 0), *queues_of("b", 7)],
        write_queues={"a": 1, "b": 7},
        turns=RoundRobin(chance, start=0),
    )
    choice.report("a", 20.0)
    choice.report("b", 30.0)
    assert {short(choice.choose(topic)) for _ in range(30)} == {"a0"}


def test_4x_forgets_a_picked_broker_that_has_no_queue_to_write_to(
    clock: HandClock, chance: random.Random
) -> None:
    choice, topic = strategy(clock, chance, "4.x"), topic_of("ab", start=5)
    choice.report("elsewhere", 16.0)
    for broker in "ab":
        choice.report(broker, 20.0, CallTimeout("late"))
    assert short(choice.choose(topic)) == "b2"  # plain: the turn after the walk's
    assert sorted(item.broker for item in choice.faults.items()) == ["a", "b"]


def test_4x_goes_plain_when_nothing_is_known_of_any_broker(
    clock: HandClock, chance: random.Random
) -> None:
    choice, topic = strategy(clock, chance, "4.x"), topic_of("ab")
    assert short(choice.choose(topic, failed="gone", retry=True)) == "a1"


# The strategy of 5.x


def test_5x_takes_an_available_broker_other_than_the_failed_one(
    clock: HandClock, chance: random.Random
) -> None:
    choice, topic = strategy(clock, chance, "5.x"), topic_of("abc")
    choice.report("a", 20.0)
    assert {choice.choose(topic, failed="b", retry=True).broker for _ in range(50)} == {"c"}


def test_5x_then_a_reachable_one_then_any(clock: HandClock, chance: random.Random) -> None:
    choice, topic = strategy(clock, chance, "5.x", probing=True), topic_of("abc")
    for broker in "abc":
        choice.report(broker, 20.0)
    choice.report("b", 0.1, ConnectionLost("gone"))
    assert {choice.choose(topic, failed="a").broker for _ in range(50)} == {"c"}
    choice.report("c", 0.1, ConnectionLost("gone"))
    assert {choice.choose(topic, failed="a").broker for _ in range(50)} == {"a", "b", "c"}


def test_5x_walks_on_from_the_queue_it_took(clock: HandClock, chance: random.Random) -> None:
    choice, topic = strategy(clock, chance, "5.x"), topic_of("ab")
    choice.report("a", 20.0)
    assert [short(choice.choose(topic)) for _ in range(5)] == ["b0", "b1", "b2", "b3", "b0"]


def test_5x_retries_from_a_new_random_turn(clock: HandClock, chance: random.Random) -> None:
    choice = strategy(clock, chance, "5.x")
    topic = TopicQueues.of(queues_of("ab", 50), RoundRobin(random.Random(11), start=0))
    retried = random.Random(11).randrange(INT_MAX) % 100
    assert choice.choose(topic, failed="c", retry=True) == topic.queues[retried]
    assert choice.choose(topic) == topic.queues[(retried + 1) % 100]


def test_5x_a_broker_that_recovered_is_taken_again(clock: HandClock, chance: random.Random) -> None:
    choice, topic = strategy(clock, chance, "5.x"), topic_of("ab")
    choice.report("a", 0.1, ConnectionLost("gone"))
    clock.advance(9.9)
    assert {choice.choose(topic).broker for _ in range(8)} == {"b"}
    clock.advance(0.2)
    assert {choice.choose(topic).broker for _ in range(8)} == {"a", "b"}


def test_next_queue_is_the_whole_of_round_robin() -> None:
    topic = topic_of("a", each=3, start=7)
    assert [next_queue(topic).queue_id for _ in range(4)] == [1, 2, 0, 1]
