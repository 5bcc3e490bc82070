"""Which queue the next message goes to.

Plainly, the queues of a topic are taken in turn, and a second attempt skips those of the broker
that just failed. With the latency fault strategy switched on, brokers that were slow or failed are
kept out as well. RocketMQ has had two forms of it, and both are here.

**4.x** (4.0 to 4.7). A choice takes one turn and looks at every queue from there:

1. A queue whose broker is available. On a retry it also has to be of the broker that just failed.
2. A broker of the better half of all that were ever reported, even if it is to be left alone: the
   next queue in turn, with that broker's name and a queue id of its own written over it.
3. Round robin.

That a retry looks for the very broker that failed is as RocketMQ had it. Once the failure is
reported that broker is out, so what it amounts to is step 2, the least bad broker. (4.8 dropped the
condition.)

**5.x** (5.1.4 and up). Each queue that is looked at takes a turn, and a retry first sets the turns
to a new random number:

1. A queue of a broker that is available and not the one that just failed.
2. A queue of a broker that can be reached and is not the one that just failed.
3. Round robin.

A queue is an immutable value here, so writing over one never reaches the route that others use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from gantrymq.errors import ConfigError, InvalidInput
from gantrymq.model import MessageQueue
from gantrymq.rules.fault_avoidance import (
    BACK_OFF,
    BackOff,
    FaultAvoidance,
    FaultVersion,
    outcome_of,
    verdict_on,
)
from gantrymq.rules.given import Chance, Clock
from gantrymq.rules.turns import Turns, position


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueues:
    """The queues a topic can be sent to, in the order they are taken, and the counter for them.

    `write_queues` holds how many queues each broker lets be written.

    RocketMQ: TopicPublishInfo.
    """

    queues: Sequence[MessageQueue]
    write_queues: Mapping[str, int]
    turns: Turns

    def __post_init__(self) -> None:
        if not self.queues:
            raise InvalidInput(
                "a topic that has no queue to write to leaves nothing to choose from"
            )

    @classmethod
    def of(cls, queues: Sequence[MessageQueue], turns: Turns) -> Self:
        """The usual case: a broker lets as many queues be written as are listed."""
        return cls(
            queues=queues,
            write_queues=Counter(queue.broker for queue in queues),
            turns=turns,
        )


def next_queue(topic: TopicQueues) -> MessageQueue:
    """Plain round robin."""
    return topic.queues[position(topic.turns.next(), len(topic.queues))]


def walk_in_one_turn(topic: TopicQueues) -> Iterator[MessageQueue]:
    """Every queue once, from this turn's on; the following turn starts one queue further."""
    size = len(topic.queues)
    first = position(topic.turns.next(), size)
    for step in range(size):
        yield topic.queues[(first + step) % size]


def walk_by_turns(topic: TopicQueues) -> Iterator[MessageQueue]:
    """Every queue once, a turn for each one looked at; the following turn goes on from there."""
    for step, queue in enumerate(walk_in_one_turn(topic)):
        if step:
            topic.turns.next()
        yield queue


Walk = Callable[[TopicQueues], Iterator[MessageQueue]]


def next_queue_elsewhere(topic: TopicQueues, failed: str | None, walk: Walk) -> MessageQueue:
    """Round robin that passes over the broker that failed, unless there is no other."""
    if failed is not None:
        for queue in walk(topic):
            if queue.broker != failed:
                return queue
    return next_queue(topic)


def choose_as_4x(topic: TopicQueues, faults: FaultAvoidance, failed: str | None) -> MessageQueue:
    """The latency fault strategy of RocketMQ 4.0 to 4.7."""
    for queue in walk_in_one_turn(topic):
        if failed in (None, queue.broker) and faults.available(queue.broker):
            return queue
    return _at_least_bad_broker(topic, faults) or next_queue(topic)


def _at_least_bad_broker(topic: TopicQueues, faults: FaultAvoidance) -> MessageQueue | None:
    broker = faults.pick_one_at_least()
    if broker is None:
        return None
    writable = topic.write_queues.get(broker, 0)
    if writable <= 0:
        faults.forget(broker)
        return None
    queue = next_queue(topic)
    return queue._replace(broker=broker, queue_id=position(topic.turns.next(), writable))


def choose_as_5x(topic: TopicQueues, faults: FaultAvoidance, failed: str | None) -> MessageQueue:
    """The latency fault strategy of RocketMQ 5.1.4 and up."""
    for usable in (faults.available, faults.reachable):
        for queue in walk_by_turns(topic):
            if queue.broker != failed and usable(queue.broker):
                return queue
    return next_queue(topic)


class _Form(NamedTuple):
    walk: Walk
    choose: Callable[[TopicQueues, FaultAvoidance, str | None], MessageQueue]
    retry_restarts: bool


_FORMS: Final[Mapping[FaultVersion, _Form]] = MappingProxyType(
    {
        "4.x": _Form(walk=walk_in_one_turn, choose=choose_as_4x, retry_restarts=False),
        "5.x": _Form(walk=walk_by_turns, choose=choose_as_5x, retry_restarts=True),
    }
)


class QueueChoice:
    """Everything a producer asks about queues: which one now, and here is how it went.

    `send_latency_fault_enable` may be switched at any time; while it is off nothing is recorded.

    RocketMQ: MQFaultStrategy.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        *,
        version: FaultVersion = "5.x",
        send_latency_fault_enable: bool = False,
        probing: bool = False,
        probe_interval: float = 2.0,
        back_off: BackOff | None = None,
    ) -> None:
        if version not in _FORMS:
            known = ", ".join(_FORMS)
            raise ConfigError(f"the fault strategy comes in the versions {known}, not {version!r}")
        self.send_latency_fault_enable = send_latency_fault_enable
        self.probing = probing
        self.version: Final = version
        self.faults: Final = FaultAvoidance(
            clock, chance, back_off=back_off or BACK_OFF[version], probe_interval=probe_interval
        )

    def choose(
        self, topic: TopicQueues, *, failed: str | None = None, retry: bool = False
    ) -> MessageQueue:
        """The queue for an attempt; `failed` names the broker of the attempt before it, if any."""
        form = _FORMS[self.version]
        if not self.send_latency_fault_enable:
            return next_queue_elsewhere(topic, failed, form.walk)
        if retry and form.retry_restarts:
            topic.turns.restart()
        return form.choose(topic, self.faults, failed)

    def report(self, broker: str, elapsed: float, error: BaseException | None = None) -> None:
        """Take note of an attempt that took `elapsed` seconds and ended with `error`, or well."""
        if not self.send_latency_fault_enable:
            return
        verdict = verdict_on(outcome_of(error), version=self.version, probing=self.probing)
        self.faults.report(broker, elapsed, failed=verdict.failed, reachable=verdict.reachable)
