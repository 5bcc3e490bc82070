"""Random commands and messages with the odd cases in them, made fast enough for ten thousand a run.

Everything comes from the `Random` that is handed in, so one seed gives one run.
"""

from __future__ import annotations

import string
from random import Random
from typing import Final

from gantrymq.wire import flags
from gantrymq.wire import properties as wire_properties
from gantrymq.wire.codes import Language, RequestCode, ResponseCode
from gantrymq.wire.command import ONEWAY, RESPONSE, Command
from gantrymq.wire.record import MAX_TOPIC, MAX_TOPIC_V1, StoredMessage

INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)

_ALPHABETS: Final = (
    string.ascii_letters + string.digits + "_-%",
    string.ascii_letters,
    "".join(map(chr, range(32))),
    "\"'\\/{}[]:,\u007f\u0080\u00a0\u2028\u2029\ufeff\ufffd\uffff",
    "äßéñø¿ŁžΩЖא",
    "日本語中文한국어ทดสอบ",
    "😀𝒜𐍈\U0010ffff",
)
_EDGES_32: Final = (0, 1, -1, 127, 128, 255, 256, 32767, 32768, -32768, -32769, 2**31 - 1, -(2**31))
_EDGES_64: Final = (*_EDGES_32, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))


def text(rng: Random, *, least: int = 0, most: int = 24) -> str:
    """Mostly short text from one alphabet, sometimes a mixture, seldom long."""
    size = rng.randint(least, most) if rng.random() < 0.97 else rng.randint(least, 40 * most)
    if rng.random() < 0.6:
        return "".join(rng.choices(_ALPHABETS[0], k=size))
    return "".join(rng.choices("".join(rng.sample(_ALPHABETS, rng.randint(1, 4))), k=size))


def name(rng: Random, *, most: int = 40) -> str:
    """A legal name of a topic or group."""
    return "".join(rng.choices(_ALPHABETS[0], k=rng.randint(1, most)))


def int32(rng: Random) -> int:
    return rng.choice(_EDGES_32) if rng.random() < 0.4 else rng.randint(*INT32)


def int64(rng: Random) -> int:
    return rng.choice(_EDGES_64) if rng.random() < 0.4 else rng.randint(*INT64)


def body(rng: Random) -> bytes:
    """Nothing, a few bytes, or some that compress well."""
    kind = rng.random()
    if kind < 0.2:
        return b""
    if kind < 0.8:
        return rng.randbytes(rng.randint(1, 60))
    if kind < 0.99:
        return rng.randbytes(rng.randint(1, 8)) * rng.randint(1, 200)
    return rng.randbytes(rng.randint(4096, 70_000))


_CODES: Final = tuple(code.value for code in (*RequestCode, *ResponseCode))


def command(rng: Random) -> Command:
    """Any command that our side can put into either header type."""
    return Command(
        rng.choice(_CODES) if rng.random() < 0.7 else int32(rng),
        opaque=int32(rng),
        flag=rng.choice((0, 0, RESPONSE, ONEWAY, RESPONSE | ONEWAY, int32(rng))),
        remark=text(rng) if rng.random() < 0.4 else None,
        fields=fields(rng) if rng.random() < 0.9 else None,
        body=body(rng),
        language=rng.choice(tuple(Language)).value if rng.random() < 0.9 else rng.randint(14, 127),
        version=rng.randint(0, 612) if rng.random() < 0.9 else rng.randint(-32768, 32767),
    )


def fields(rng: Random) -> dict[str, str]:
    """Field names as headers have them and odder ones, values of all kinds."""
    made: dict[str, str] = {}
    for _ in range(rng.randint(0, 14)):
        key = name(rng, most=14) if rng.random() < 0.9 else _json_name(text(rng))
        made[key] = str(int64(rng)) if rng.random() < 0.4 else text(rng)
    return made


def _json_name(value: str) -> str:
    """`value` as fastjson2 of 5.5.0 can read it back as a name.

    It refuses a name, its own writing included, that holds both an escape and a character beyond
    16 bits ("malformed input"). Values have no such limit.
    """
    if any(letter < " " or letter in '"\\' for letter in value):
        return "".join(letter for letter in value if letter <= "\uffff")
    return value


def properties(rng: Random) -> dict[str, str]:
    """Properties that a stored message can hold: nothing empty, no separators, not too long."""
    made: dict[str, str] = {}
    for _ in range(rng.randint(0, 8)):
        made[_without_separators(text(rng, least=1))] = _without_separators(text(rng, least=1))
    while len(wire_properties.encode(made)) > wire_properties.MAX_SIZE - 100:
        made.popitem()
    return made


def _without_separators(value: str) -> str:
    return value.replace("\x01", "1").replace("\x02", "2")


def topic(rng: Random, version: int) -> str:
    """Mostly a legal name; any text of up to 127 bytes for version 1, of more for version 2."""
    if rng.random() < 0.8:
        return name(rng, most=127 if version == 1 else 255)
    made = text(rng, least=1, most=30 if version == 1 else 300)
    while len(made.encode()) > (MAX_TOPIC_V1 if version == 1 else MAX_TOPIC):
        made = made[: len(made) // 2]
    return made


def address(rng: Random) -> bytes:
    return rng.randbytes(4 if rng.random() < 0.7 else 16)


def sys_flag(rng: Random, kind: flags.Compression | None) -> int:
    """Any bits but those that follow from the hosts, or that promise a batch as the body."""
    made = rng.choice((0, flags.MULTI_TAGS)) | rng.choice(tuple(flags.Transaction)).value
    made |= rng.choice((0, 0, 0, flags.NEED_UNWRAP, flags.INNER_BATCH))
    if kind is None:
        return made | rng.choice((0, 0, 0, 0x100, 0x700, 1 << 20))
    if kind is flags.Compression.ZLIB and rng.random() < 0.3:
        return made | flags.COMPRESSED  # as senders before 4.9.4 wrote it
    return made | kind.bits


def message(rng: Random, version: int, *, log_offset: int | None = None) -> StoredMessage:
    """A stored message, its body plain whatever its system flag says; `size` is left at 0."""
    content = body(rng)
    kinds = (None, None, *flags.Compression) if content else (None,)
    made = properties(rng)
    if rng.random() < 0.4:
        made["UNIQ_KEY"] = rng.randbytes(rng.choice((16, 28))).hex().upper()
    born_ip, store_ip = address(rng), address(rng)
    ipv6 = (len(born_ip) == 16) * flags.BORN_HOST_IPV6
    ipv6 |= (len(store_ip) == 16) * flags.STORE_HOST_IPV6
    return StoredMessage(
        topic=topic(rng, version),
        body=content,
        property_bytes=wire_properties.encode(made),
        queue_id=int32(rng),
        flag=int32(rng),
        queue_offset=int64(rng),
        log_offset=int64(rng) if log_offset is None else log_offset,
        sys_flag=sys_flag(rng, rng.choice(kinds)) | ipv6,
        born_ms=int64(rng),
        born_ip=born_ip,
        born_port=rng.randint(0, 65535),
        store_ms=int64(rng),
        store_ip=store_ip,
        store_port=rng.randint(0, 65535),
        reconsume_times=int32(rng),
        prepared_offset=int64(rng),
        version=version,
    )
