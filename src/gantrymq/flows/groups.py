"""What a member of a consumer group asks of brokers: who else is there, locks, messages given back.

**Giving a message back** stores it once more, in the group's retry topic, for whichever member is
free when its delay is over. The broker that has the message can do that by itself (`SendBack`).
Where it cannot be reached, any other broker will do: the message is then sent there, with what the
broker would have noted itself. The same way a message that is given up carries the reason with it
into the dead-letter topic: it is sent to the retry topic as one that failed more often than it may,
and the broker puts it where it belongs. (Whoever may not make topics could not send it there.)

RocketMQ: DefaultMQPushConsumerImpl.sendMessageBack, RebalanceImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gantrymq.errors import BrokerFailure, GantryError, InvalidInput, ReplyError
from gantrymq.model import MessageQueue
from gantrymq.protocol.groups import (
    CheckClientConfig,
    GetConsumerList,
    Subscription,
    UnregisterClient,
)
from gantrymq.protocol.locks import LockQueues, UnlockQueues
from gantrymq.protocol.names import is_retry_topic, retry_topic
from gantrymq.protocol.sending import SendBack, SendMessage
from gantrymq.rules.delay import FIRST_RETRY_LEVEL
from gantrymq.runtime import Runtime
from gantrymq.wire import properties
from gantrymq.wire.flags import COMPRESSED, COMPRESSION_BITS
from gantrymq.wire.record import StoredMessage

TIMEOUT: Final = 3.0
LOCK_TIMEOUT: Final = 1.0
GIVE_BACK_TIMEOUT: Final = 5.0

REASON: Final = "GANTRY_DLQ_REASON"
"""Why a message was given up: the error's type and text."""
TRACEBACK: Final = "GANTRY_DLQ_TRACEBACK"
"""Where the error came from, the innermost frames of it."""

_SPARE: Final = 1_024
"""Bytes of properties left free for what brokers add."""
_MOST_TRACEBACK: Final = 8_192
_MOST_REASON: Final = 1_024
_KEPT_FLAGS: Final = COMPRESSED | COMPRESSION_BITS
"""What a copy's system flag has of the first: that its body is compressed, and how."""
_UNSTORABLE: Final = {1: " ", 2: " "}


async def members(
    runtime: Runtime, addresses: Iterable[str], group: str, *, timeout: float = TIMEOUT
) -> list[str] | None:
    """The sorted ids of a group's clients, from the first broker that says; None if none does."""
    for address in addresses:
        try:
            reply = await runtime.call(address, GetConsumerList(group=group), timeout=timeout)
        except GantryError:
            continue
        if reply.client_ids:
            return sorted(reply.client_ids)
    return None


_NO_FILTERS: Final = "does not support consumer to filter"
"""What brokers say whose filters are off."""


async def check_filter(
    runtime: Runtime,
    address: str,
    group: str,
    subscription: Subscription,
    *,
    client_id: str,
    timeout: float = TIMEOUT,
) -> None:
    """Have a broker say whether it can filter by that expression; its refusal is raised."""
    check = CheckClientConfig(client_id=client_id, group=group, subscription=subscription)
    try:
        await runtime.call(address, check, timeout=timeout)
    except ReplyError as refused:
        if _NO_FILTERS not in (refused.remark or ""):
            raise
        raise InvalidInput(
            f"topic {subscription.topic} cannot be filtered by"
            f" {subscription.expression_type} at {address}: {refused.remark}; brokers do it with"
            f" enablePropertyFilter=true, or choose by tags"
        ) from refused


async def lock(
    runtime: Runtime,
    address: str,
    group: str,
    client_id: str,
    queues: Iterable[MessageQueue],
    *,
    timeout: float = LOCK_TIMEOUT,
) -> set[MessageQueue]:
    """Those of a broker's `queues` that are this client's alone for the next minute."""
    asked = LockQueues(group=group, client_id=client_id, queues=set(queues))
    return (await runtime.call(address, asked, timeout=timeout)).locked


async def unlock(
    runtime: Runtime,
    address: str,
    group: str,
    client_id: str,
    queues: Iterable[MessageQueue],
    *,
    timeout: float = LOCK_TIMEOUT,
) -> None:
    """Let other members have those queues."""
    asked = UnlockQueues(group=group, client_id=client_id, queues=set(queues))
    await runtime.call(address, asked, timeout=timeout)


async def leave(
    runtime: Runtime, address: str, group: str, client_id: str, *, timeout: float = TIMEOUT
) -> None:
    """Be a member of `group` no longer, as far as one broker is concerned."""
    order = UnregisterClient(client_id=client_id, consumer_group=group)
    await runtime.call(address, order, timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a message that was not dealt with.

    `level` is the delay level, 0 for the one that the broker finds right; below 0 the message is
    given up. `most` is how often it may fail in all, None for what the group's settings say.
    """

    level: int = 0
    most: int | None = None
    reason: str = ""
    traceback: str = ""

    @property
    def gives_up(self) -> bool:
        """Whether the message is not to be consumed again."""
        return self.level < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A message that goes back, and the queue that it was read from."""

    message: StoredMessage
    broker: str
    group: str
    verdict: Verdict
    born_ms: int
    """The time now, for copies that are sent."""
    others: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """Name and address of brokers that have the group's retry topic, the likeliest first."""


async def give_back(
    runtime: Runtime, address: str | None, failed: Failed, *, timeout: float = GIVE_BACK_TIMEOUT
) -> None:
    """Have a message consumed again later, or never again; `address` is that of its own broker."""
    errors: list[GantryError] = []
    verdict, message = failed.verdict, failed.message
    last = verdict.most is not None and message.reconsume_times >= verdict.most
    if (verdict.gives_up or last) and verdict.reason:
        verdict = replace(verdict, level=-1)
    elif address is not None:
        try:
            await runtime.call(address, _order(failed), timeout=timeout)
        except GantryError as error:
            errors.append(error)
        else:
            return
    await _send_copy(runtime, address, replace(failed, verdict=verdict), errors, timeout)


async def _send_copy(
    runtime: Runtime,
    address: str | None,
    failed: Failed,
    errors: list[GantryError],
    timeout: float,
) -> None:
    places = [(failed.broker, address)] if address is not None else []
    for broker, place in (*places, *(o for o in failed.others if o[1] != address)):
        try:
            await runtime.call(place, _copy(failed, broker), timeout=timeout)
        except GantryError as error:
            errors.append(error)
        else:
            return
    if failed.verdict.gives_up and address is not None:
        # Without its reason rather than not at all: that way needs nothing but the broker itself.
        await runtime.call(address, _order(failed), timeout=timeout)
        return
    if not errors:
        raise BrokerFailure.because(f"no broker is known that takes {failed.message!r} back")
    raise errors[0]


def _order(failed: Failed) -> SendBack:
    message, verdict = failed.message, failed.verdict
    return SendBack(
        log_offset=message.log_offset,
        group=failed.group,
        delay_level=verdict.level,
        message_id=message.offset_id,
        topic=message.topic,
        max_reconsume_times=verdict.most,
        broker=failed.broker,
    )


def _copy(failed: Failed, broker: str) -> SendMessage:
    message, verdict = failed.message, failed.verdict
    found = message.properties
    origin = found.setdefault(properties.RETRY_TOPIC, message.topic)
    if is_retry_topic(origin):
        raise InvalidInput(f"{message!r} does not say which topic it was first sent to")
    found.setdefault(properties.ORIGIN_MESSAGE_ID, message.offset_id)
    for name in (properties.HALF_MESSAGE, properties.DELAY, properties.WAIT):
        found.pop(name, None)
    times, most = message.reconsume_times + 1, verdict.most
    if verdict.gives_up:
        times, most = max(times, 1), 0
        _explain(found, message, verdict, origin)
    else:
        level = verdict.level or FIRST_RETRY_LEVEL + message.reconsume_times
        found[properties.DELAY] = str(level)
    return SendMessage(
        group=failed.group,
        topic=retry_topic(failed.group),
        queue_id=0,
        flags=message.sys_flag & _KEPT_FLAGS,
        born_ms=failed.born_ms,
        flag=message.flag,
        properties=properties.join(found),
        reconsume_times=times,
        max_reconsume_times=most,
        broker=broker,
        body=message.body,
    )


def _explain(found: dict[str, str], message: StoredMessage, verdict: Verdict, origin: str) -> None:
    """Note why a message is given up, as far as there is room for it."""
    found.setdefault(properties.DLQ_ORIGIN_TOPIC, origin)
    found.setdefault(properties.DLQ_ORIGIN_MESSAGE_ID, message.offset_id)
    room = properties.MAX_SIZE - _SPARE - len(properties.encode(found))
    for name, text, most in (
        (REASON, verdict.reason, _MOST_REASON),
        (TRACEBACK, verdict.traceback, _MOST_TRACEBACK),
    ):
        kept = _last_bytes(text.translate(_UNSTORABLE), min(most, room - len(name)))
        if kept:
            found[name] = kept
            room -= len(name) + len(kept.encode())


def _last_bytes(text: str, most: int) -> str:
    """The end of `text`: of an error's traceback that is where it was raised."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= most else data[len(data) - max(most, 0) :].decode("utf-8", "ignore")
