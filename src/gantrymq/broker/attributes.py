"""The attributes of a topic: which there are, what they may be, and what a change may do.

`queue.type` of BatchCQ is taken, and kept for tools and for RocketMQ; here the messages of a batch
are stored one by one in such a topic as in any other, which consumers cannot tell from it.

A change comes as `{"+key": "value", "-key": ""}`. It is taken as a whole or refused as a whole.

RocketMQ: TopicAttributes, AttributeUtil.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gantrymq.errors import BrokerFailure

MESSAGE_TYPE: Final = "message.type"
CLEANUP_POLICY: Final = "cleanup.policy"
QUEUE_TYPE: Final = "queue.type"
RESERVE_TIME: Final = "reserve.time"
RESERVE_SIZE: Final = "reserve.size"
COMPACTION: Final = "COMPACTION"
"""The cleanup policy of topics that keep the newest message of each key."""
_LONG_MAX: Final = 2**63 - 1
_MONTH_MINUTES: Final = 43_200


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: what is wrong with a value, and whether it can be changed later."""

    complaint: Callable[[str], str | None]
    changeable: bool


def _one_of(*words: str) -> Callable[[str], str | None]:
    return lambda value: None if value in words else f"it takes one of {', '.join(words)}"


def _between(least: int, most: int) -> Callable[[str], str | None]:
    def complaint(value: str) -> str | None:
        try:
            fits = least <= int(value) <= most
        except ValueError:
            return "it takes a whole number"
        return None if fits else f"it takes {least} to {most}"

    return complaint


TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    QUEUE_TYPE: Attribute(_one_of("BatchCQ", "SimpleCQ"), changeable=False),
    CLEANUP_POLICY: Attribute(_one_of("DELETE", COMPACTION), changeable=False),
    MESSAGE_TYPE: Attribute(
        _one_of(
            "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"
        ),
        changeable=True,
    ),
    RESERVE_TIME: Attribute(_between(-1, _LONG_MAX), changeable=True),
    RESERVE_SIZE: Attribute(_between(-1, _LONG_MAX), changeable=True),
    "lite.topic.expiration": Attribute(_between(-1, _MONTH_MINUTES), changeable=True),
}


def changed_attributes(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> dict[str, str]:
    """`current` after `changes`; None says that what has the attributes is only being made."""
    signs: dict[str, str] = {}
    for signed in changes:
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-") or not key:
            raise BrokerFailure.because(f"add/alter attribute format is wrong: {signed}")
        if sign == "-" and current is None:
            raise BrokerFailure.because(
                f"only add attribute is supported while creating topic. key: {key}"
            )
        if key in signs:
            raise BrokerFailure.because(f"alter duplication key. key: {key}")
        if key not in known:
            raise BrokerFailure.because(f"unsupported key: {key}")
        signs[key] = sign
    after = dict(current or {})
    for key, sign in signs.items():
        _check_changeable(known[key], key, current)
        if sign == "-":
            if after.pop(key, None) is None:
                raise BrokerFailure.because(f"attempt to delete a nonexistent key: {key}")
            continue
        value = changes["+" + key]
        complaint = known[key].complaint(value)
        if complaint:
            raise BrokerFailure.because(f"value is not in range or set: {key}={value}, {complaint}")
        after[key] = value
    return after


def _check_changeable(attribute: Attribute, key: str, current: Mapping[str, str] | None) -> None:
    if current is not None and not attribute.changeable:
        raise BrokerFailure.because(f"attempt to update an unchangeable attribute. key: {key}")
