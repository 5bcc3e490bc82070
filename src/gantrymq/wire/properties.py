r"""A message's properties: `name 0x01 value 0x02`, again and again, and the names RocketMQ uses.

The same form travels in three places: as UTF-8 bytes in stored messages and batch bodies, and as
text in the header of a send. Nothing is escaped, so neither separator can be written.

**What readers accept** is what Java's reader accepts. The last `0x02` may be missing (4.9.1 to 5.1
leave it out). An entry ends at the first `0x02` and its name at the first `0x01`, so a value may
hold further `0x01`. Entries without `0x01`, or with an empty name or value, are dropped. Of two
entries with one name the later counts. Bytes that are not UTF-8 become U+FFFD: one odd message must
not stop a whole queue.

Most readers want one property of many, so `find` and `find_text` look for it without taking the
rest apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from gantrymq.errors import LocalProtocolError

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
MAX_SIZE: Final = 32_767
"""A stored message holds the length of its properties in a signed int16."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
HALF_MESSAGE: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQUE_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQUE_INFO: Final = "EXTEND_UNIQ_INFO"
TRANSACTION_OFFSET: Final = "TRANS_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INNER_COUNT: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUPLICATION_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MESSAGE_TYPE: Final = "MSG_TYPE"
POP_HANDLE: Final = "POP_CK"
POP_HANDLE_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
LITE_TOPIC: Final = "__LITE_TOPIC"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DELETE_UNIQUE_KEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
BORN_HOST: Final = "__BORNHOST"
BORN_TIME: Final = "BORN_TIMESTAMP"
TRANSIENT_TOPIC_FLAG: Final = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
TRANSIENT_GROUP_FLAG: Final = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
TOMBSTONE: Final = "__TOMBSTONE"
"""Of a compacted topic: there is nothing under the message's key any more. RocketMQ has no such."""

RESERVED_PROPERTIES: Final = frozenset(
    (
        KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, ORIGIN_GROUP, REAL_TOPIC, REAL_QUEUE_ID, HALF_MESSAGE,
        PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG,
        CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, MAX_RECONSUME_TIMES, MSG_REGION, TRACE_ON,
        UNIQUE_KEY, EXTEND_UNIQUE_INFO, CONSUME_START_TIME, PRIORITY, DUPLICATION_INFO,
        PREPARED_QUEUE_OFFSET, INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL, ARRIVE_TIME,
        PUSH_REPLY_TIME, CLUSTER, MESSAGE_TYPE, POP_HANDLE, POP_HANDLE_OFFSET, FIRST_POP_TIME,
        LITE_TOPIC, MULTI_QUEUE_OFFSET, TIMER_DELAY_SECONDS, TIMER_DELAY_MS, TIMER_DELIVER_MS,
        TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DELETE_UNIQUE_KEY,
        TIMER_DELAY_LEVEL, BORN_HOST, BORN_TIME, CRC32, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID,
    )
)  # fmt: skip
"""Names that users may not set themselves: RocketMQ's own `putUserProperty` refuses them.

RocketMQ: MessageConst.STRING_HASH_SET.
"""


def join(properties: Mapping[str, str | None]) -> str:
    """The properties as the text that a send header carries; a None value is left out."""
    parts = [f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None]
    text = "".join(parts)
    if text.count(NAME_END) != len(parts) or text.count(VALUE_END) != len(parts):
        _refuse(properties)
    return text


def split(text: str) -> dict[str, str]:
    """The properties that `text` holds."""
    found = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def encode(properties: Mapping[str, str | None]) -> bytes:
    """The properties as a stored message holds them."""
    try:
        return join(properties).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            f"a property holds {error.object[error.start]!r}, half of a surrogate pair: "
            f"UTF-8 cannot carry it"
        ) from error


def decode(raw: bytes) -> dict[str, str]:
    """The properties that `raw` holds."""
    return split(raw.decode("utf-8", "replace"))


def find(raw: bytes, name: str) -> str | None:
    """One property out of bytes, as `decode(raw).get(name)` gives it; no separator in `name`."""
    _, found, rest = (b"\x02" + raw).rpartition(f"\x02{name}\x01".encode())
    if not found:
        return None
    value = rest.partition(b"\x02")[0]
    if value and name:
        return value.decode("utf-8", "replace")
    return decode(raw).get(name)  # an entry that readers drop may hide an earlier one


def find_text(text: str, name: str) -> str | None:
    """One property out of text, as `split(text).get(name)` gives it; no separator in `name`."""
    _, found, rest = f"\x02{text}".rpartition(f"\x02{name}\x01")
    if not found:
        return None
    value = rest.partition(VALUE_END)[0]
    if value and name:
        return value
    return split(text).get(name)


def without(raw: bytes, *names: str) -> bytes:
    """`raw` less all entries of these names; the others stay as they are, to the byte."""
    for name in names:
        key = f"{name}\x01".encode()
        at = raw.find(key)
        while at >= 0:
            if at and raw[at - 1] != 2:  # the end of a longer name, or within a value
                at = raw.find(key, at + 1)
                continue
            end = raw.find(b"\x02", at)
            raw = raw[:at] + raw[end + 1 :] if end >= 0 else raw[:at]
            at = raw.find(key, at)
    return raw


def added(raw: bytes, more: Mapping[str, str | None]) -> bytes:
    """`raw` with further entries, which count instead of earlier ones of the same names."""
    return b"".join((raw, b"" if raw[-1:] in (b"", b"\x02") else b"\x02", encode(more)))


def _refuse(properties: Mapping[str, str | None]) -> NoReturn:
    name, what, text, separator = next(
        (name, what, text, separator)
        for name, value in properties.items()
        if value is not None
        for what, text in (("name", name), ("value", value))
        for separator in (NAME_END, VALUE_END)
        if separator in text
    )
    raise LocalProtocolError(
        f"the {what} of property {name!r:.100} holds {separator!r} at character "
        f"{text.index(separator)}; it separates properties and cannot be escaped"
    )
