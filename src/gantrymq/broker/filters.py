"""What consumers want of a topic, in the form in which the store and those who wait ask about it.

A TAG expression is matched by the codes in the queue, an SQL92 expression by the properties in the
records. Subscriptions come in heartbeats, or with each pull; they are parsed once.

The properties of a message that comes back by a retry topic are those that it was sent with, so an
expression says of it what it said before. With `pulls.filter_retries` it is what the group wants of
the message's own topic that counts.

RocketMQ: ConsumerFilterManager, ExpressionMessageFilter, ExpressionForRetryMessageFilter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.errors import BrokerFailure, FilterMissing, InvalidInput, SubscriptionInvalid
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.names import RETRY_PREFIX
from gantrymq.rules.filtering import EVERYTHING, parse_tags
from gantrymq.rules.sql92 import SQL92, SqlFilter, parse_sql
from gantrymq.wire import properties

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker

TAG: Final = "TAG"


class Wanted(NamedTuple):
    """Which messages are wanted; None asks for nothing in particular."""

    code: Callable[[int], bool] | None = None
    """By the tags code."""
    properties: Callable[[bytes], bool] | None = None
    """By the stored properties."""
    mark: bytes = b""
    """What is among those of every message that is wanted."""

    def matches(self, code: int, raw: bytes) -> bool:
        """Whether a message with that tags code and those properties is wanted."""
        if self.code is not None and not self.code(code):
            return False
        return self.properties is None or self.properties(raw)


ANYTHING: Final = Wanted()


def is_tags(kind: str | None) -> bool:
    """Whether an expression type is the one that everybody has. RocketMQ: isTagType."""
    return not kind or kind == TAG


def asked_for(
    broker: Broker, group: str, topic: str, expression: str | None, kind: str | None
) -> Wanted:
    """What a pull wants that says so itself."""
    try:
        if is_tags(kind):
            return by_tags(expression)
        found = _by_sql(expression, kind)
    except InvalidInput as error:
        raise SubscriptionInvalid.because(
            f"parse the consumer's subscription failed: {error}"
        ) from error
    _check_enabled(broker, kind)
    return _of_topic(broker, group, topic, found)


def subscribed(broker: Broker, group: str, subscription: Subscription) -> Wanted:
    """What a group wants that said so in its heartbeats."""
    kind = subscription.expression_type
    if is_tags(kind):
        everything = subscription.expression == EVERYTHING
        return ANYTHING if everything else Wanted(code=subscription.codes.__contains__)
    try:
        found = _by_sql(subscription.expression, kind)
    except InvalidInput as error:
        raise FilterMissing.because(
            f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}"
        ) from error
    _check_enabled(broker, kind)
    return _of_topic(broker, group, subscription.topic, found)


def check(broker: Broker, subscription: Subscription) -> None:
    """Refuse what this broker cannot filter by."""
    kind = subscription.expression_type
    if is_tags(kind):
        return
    _check_enabled(broker, kind)
    try:
        _by_sql(subscription.expression, kind)
    except InvalidInput as error:
        raise SubscriptionInvalid.because(str(error)) from error


@lru_cache(maxsize=4096)
def by_tags(expression: str | None) -> Wanted:
    """The messages whose tags have the codes of a TAG expression."""
    tags = parse_tags(expression)
    return ANYTHING if tags.expression == EVERYTHING else Wanted(code=tags.codes.__contains__)


def _by_sql(expression: str | None, kind: str | None) -> SqlFilter:
    if kind != SQL92:
        raise InvalidInput(f"an expression is of type {TAG} or {SQL92}, not {kind}")
    return parse_sql(expression)


def _check_enabled(broker: Broker, kind: str | None) -> None:
    if not broker.config.pulls.sql:
        raise BrokerFailure.because(
            f"The broker does not support consumer to filter message by {kind}"
        )


def _of_topic(broker: Broker, group: str, topic: str, found: SqlFilter) -> Wanted:
    if not broker.config.pulls.filter_retries or not topic.startswith(RETRY_PREFIX):
        return Wanted(properties=found.accepts, mark=found.mark)

    def accepts(raw: bytes) -> bool:
        origin = properties.find(raw, properties.RETRY_TOPIC)
        subscription = broker.consumers.subscription(group, origin or "")
        if subscription is None or is_tags(subscription.expression_type):
            return True
        try:
            return _by_sql(subscription.expression, subscription.expression_type).accepts(raw)
        except InvalidInput:
            return True

    return Wanted(properties=accepts)
