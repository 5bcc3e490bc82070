"""What users write when they send: a topic and a body, or a message, and how it shall be sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, TypedDict

from gantrymq.errors import InvalidInput
from gantrymq.flows.drafting import MessageKind
from gantrymq.flows.sending import Choice
from gantrymq.model import Message, MessageQueue
from gantrymq.rules.selectors import Selector, select_by_hash
from gantrymq.wire import properties as names


class MessageOptions(TypedDict, total=False):
    """A message beyond its topic and body."""

    tag: str | None
    keys: str | Iterable[str]
    flag: int
    properties: dict[str, str] | None
    wait_stored: bool
    delay_level: int
    delay: timedelta | None
    deliver_at: datetime | None
    priority: int | None
    light_queues: Iterable[str]


class SendOptions(MessageOptions, total=False):
    """And how it is sent.

    `order_key`: messages with the same one go to the same queue, and so stay in order. `selector`
    names a queue by a rule of yours, given `argument`; `queue` names it outright.
    """

    order_key: str | int | None
    selector: Selector | None
    argument: object
    queue: MessageQueue | None
    timeout: float | None


_MESSAGE_OPTIONS: Final = frozenset(MessageOptions.__annotations__)
_HOW: Final = frozenset(SendOptions.__annotations__) - _MESSAGE_OPTIONS
_NOT_GIVEN: Final = SendOptions()


def make_message(
    message: Message | str,
    body: bytes | bytearray | memoryview | None,
    options: SendOptions = _NOT_GIVEN,
) -> Message:
    """The message that a user's arguments describe."""
    if isinstance(message, Message):
        given = sorted(options.keys() & _MESSAGE_OPTIONS)
        if body is not None or given:
            what = "body" if body is not None else given[0]
            raise InvalidInput(
                f"{what} was given twice over: the first argument is a Message, which has its own"
            )
        return message
    if body is None:
        raise InvalidInput(f"a message for topic {message} needs a body: send(topic, body)")
    if not options:
        return Message(message, body)
    keys = options.get("keys", ())
    return Message(
        message,
        body,
        tag=options.get("tag"),
        keys=(keys,) if isinstance(keys, str) else tuple(keys),
        flag=options.get("flag", 0),
        properties=dict(options.get("properties") or {}),
        wait_stored=options.get("wait_stored", True),
        delay_level=options.get("delay_level", 0),
        delay=options.get("delay"),
        deliver_at=options.get("deliver_at"),
        priority=options.get("priority"),
        light_queues=tuple(options.get("light_queues", ())),
    )


class How(NamedTuple):
    """How a message is sent, as a user's options say."""

    choice: Choice | None = None
    extra: Mapping[str, str] = MappingProxyType({})
    """Properties that go with it."""
    kind: MessageKind = MessageKind.NORMAL
    timeout: float | None = None


PLAINLY: Final = How()


def make_how(options: SendOptions) -> How:
    """How, by the options that do not describe the message."""
    if not options:
        return PLAINLY
    unknown = sorted(options.keys() - _MESSAGE_OPTIONS - _HOW)
    if unknown:
        known = ", ".join(sorted(_MESSAGE_OPTIONS | _HOW))
        raise TypeError(f"there is no option {unknown[0]!r} of a send; there are {known}")
    choice = _choice(options)
    order_key = options.get("order_key")
    extra = {} if order_key is None else {names.SHARDING_KEY: str(order_key)}
    kind = MessageKind.NORMAL if choice is None else MessageKind.ORDERED
    return How(choice, extra, kind, options.get("timeout"))


def _choice(options: SendOptions) -> Choice | None:
    """The user's own word on the queue, if he has one."""
    order_key, selector = options.get("order_key"), options.get("selector")
    queue = options.get("queue")
    given = [
        name
        for name, value in (("order_key", order_key), ("selector", selector), ("queue", queue))
        if value is not None
    ]
    if len(given) > 1:
        raise InvalidInput(f"a queue is chosen in one way; given were {' and '.join(given)}")
    if order_key is not None:
        return Choice(selector=select_by_hash, argument=order_key)
    if selector is not None:
        return Choice(selector=selector, argument=options.get("argument"))
    return None if queue is None else Choice(queue=queue)
