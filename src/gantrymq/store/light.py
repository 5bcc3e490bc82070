"""Light queues: further queues that a message is in, without being stored again.

A message names them in `INNER_MULTI_DISPATCH`, as `%LMQ%a,%LMQ%b`. When it is appended the store
writes into `INNER_MULTI_QUEUE_OFFSET` which place it gets in each of them, so that the log alone
says it all; then an entry goes to queue 0 of each name, besides the one in the message's own queue.

Names that do not begin with `%LMQ%`, that cannot be a directory's, or that came before are passed
over; their place is the text `null`, as RocketMQ writes it. So are new ones where there are as many
light queues as may be. Messages in topics of the broker's own, in which they wait for something,
are in no light queue before they come out of it.

RocketMQ: LmqDispatch, MultiDispatchUtils.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

MARK: Final = b"INNER_MULTI_"
"""What is in the properties of every message that has to do with light queues."""
PREFIX: Final = "%LMQ%"
NOWHERE: Final = "null"
_BETWEEN: Final = ","
_MOST_OF_ONE: Final = 1000
"""Light queues of one message; the properties have room for not many more."""
_WAITING_TOPICS: Final = ("%RETRY%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_")


def names_of(message: StoredMessage) -> list[str]:
    """The names that a message wants to be in, whatever they are; none where it only waits."""
    text = message.find(properties.MULTI_DISPATCH)
    if not text or message.topic.startswith(_WAITING_TOPICS):
        return []
    return text.split(_BETWEEN, _MOST_OF_ONE)[:_MOST_OF_ONE]


def is_name(text: str) -> bool:
    """Whether a light queue can have that name."""
    return len(text) > len(PREFIX) and text.startswith(PREFIX) and not set(text) & {"/", "\\", "\0"}


def set_places(message: StoredMessage, places: list[str]) -> None:
    """Write into the message where it is in each of its names; nothing where there are none."""
    found = message.properties
    found.pop(properties.MULTI_QUEUE_OFFSET, None)
    if places:
        found[properties.MULTI_QUEUE_OFFSET] = _BETWEEN.join(places)
    message.property_bytes = properties.encode(found)


def places_of(message: StoredMessage) -> Iterator[tuple[str, int]]:
    """The light queues that a stored message is in, and its offset in each."""
    places = message.find(properties.MULTI_QUEUE_OFFSET)
    if not places:
        return
    for name, place in zip(names_of(message), places.split(_BETWEEN), strict=False):
        if is_name(name) and place.isascii() and place.isdecimal():
            yield name, int(place)
