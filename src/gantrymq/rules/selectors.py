"""Queues chosen by the sender: `send(message, selector=..., arg=...)`.

A selector is any callable that is given the topic's queues, the message and the sender's argument,
and names a queue. Messages that have to stay in order share an argument, an order number say, and
with it a queue. A choice made this way is kept: a send by a selector is not tried again at another
broker, since there its order would be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from gantrymq.errors import InvalidInput
from gantrymq.model import Message, MessageQueue
from gantrymq.rules.allocation import room_of
from gantrymq.rules.given import Chance
from gantrymq.rules.hashing import java_hash_of
from gantrymq.rules.turns import Turns, position
from gantrymq.wire.javahash import java_remainder


class Selector(Protocol):
    """How a sender chooses; write your own as a function.

    RocketMQ: MessageQueueSelector.
    """

    def __call__(
        self, queues: Sequence[MessageQueue], message: Message, arg: object, /
    ) -> MessageQueue:
        """Name one of `queues`."""
        ...


def select_queue(
    selector: Selector, queues: Sequence[MessageQueue], message: Message, arg: object
) -> MessageQueue:
    """What `selector` chooses, made sure to be a queue."""
    if not queues:
        raise InvalidInput(f"topic {message.topic} has no queue that a selector could choose")
    queue = selector(queues, message, arg)
    if not isinstance(queue, MessageQueue):
        name = getattr(selector, "__name__", type(selector).__name__)
        raise InvalidInput(
            f"select message queue return null: selector {name} gave {queue!r}"
            f" for {arg!r}, and not one of the {len(queues)} queues of {message.topic}"
        )
    return queue


def select_by_hash(queues: Sequence[MessageQueue], _message: Message, arg: object) -> MessageQueue:
    """The same queue for the same argument, as every RocketMQ client computes it.

    RocketMQ: SelectMessageQueueByHash.
    """
    return queues[abs(java_remainder(java_hash_of(arg), len(queues)))]


def select_at_random(chance: Chance) -> Selector:
    """A selector of any queue, each as likely as the others.

    RocketMQ: SelectMessageQueueByRandom.
    """

    def select(queues: Sequence[MessageQueue], _message: Message, _arg: object) -> MessageQueue:
        return queues[chance.randrange(len(queues))]

    return select


def select_in_rooms(rooms: Collection[str], turns: Turns) -> Selector:
    """A selector of queues, in turn, whose broker is named `room@name` with one of `rooms`.

    Where no queue is in these rooms all are taken in turn, so that a room can still send while its
    own brokers are down. (RocketMQ's own class is there, but never chooses anything.)

    RocketMQ: SelectMessageQueueByMachineRoom.
    """
    wanted = frozenset(rooms)

    def select(queues: Sequence[MessageQueue], _message: Message, _arg: object) -> MessageQueue:
        near = [queue for queue in queues if room_of(queue) in wanted] or queues
        return near[position(turns.next(), len(near))]

    return select
