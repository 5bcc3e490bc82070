"""Hostile frames of every kind, for bench/hostile.py: what no sound client sends.

Each kind is a method of `Frames` that gives a `Shot`. Names of topics and groups come from small
pools: whoever may send may also have topics made, and that is not what is looked at.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from random import Random
from struct import Struct
from typing import Any, Final

import fuzz

from gantrymq.errors import LocalProtocolError
from gantrymq.protocol.base import Request
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.offsets import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.protocol.pulling import PullFlag, PullMessage, QueryMessages, ViewMessage
from gantrymq.protocol.registration import RegisterBroker, checksum
from gantrymq.protocol.sending import SendBack, SendBatch, SendMessage
from gantrymq.wire.command import ONEWAY, Command, HeaderType

TOPIC: Final = "hostile"
_POOL: Final = 40
_PREFIX: Final = Struct(">iI")
_MIB: Final = 1 << 20

ABSURD: Final = (
    "-1", "0", "2147483647", "-2147483648", "2147483648", "9223372036854775807",
    "-9223372036854775808", "9" * 100, "1e999", "NaN", "", " 7", "1_000", "٣", "0x10", "null",
    "true", "[]",
)  # fmt: skip
"""What stands in the place of a number."""
NAMES: Final = (
    "", " ", "a" * 128, "a" * 256, "a" * 20_000, "../../../../tmp/hostile", "/", ".", "%RETRY%",
    "%DLQ%hostile", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer",
    "TBW102", "a\0b", "a\x01b\x02c", "ü☃", "a@b", "a#b", "{}", "\n", "%s%n", "DefaultCluster",
)  # fmt: skip
"""What stands in the place of a topic or group."""
PROPERTIES: Final = (
    "\x01", "\x02", "\x01\x02" * 500, "no separator", "a\x01b\x02" * 2000, "KEYS\x01" + "k " * 9000,
    "DELAY\x01999999\x02", "DELAY\x01-1\x02", "DELAY\x01x\x02", "TIMER_DELAY_MS\x01-5\x02",
    "TIMER_DELIVER_MS\x0199999999999999999999\x02", "TIMER_DELAY_SEC\x01NaN\x02", "WAIT\x01?\x02",
    "INNER_NUM\x0199\x02", "UNIQ_KEY\x01" + "u" * 30_000 + "\x02", "a\x01b\x02" * 20_000,
    "TRAN_MSG\x01true\x02", "__CRC32#\x01x\x02", "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
    "TAGS\x01" + "ü" * 1000 + "\x02", "PGROUP\x01\x02", "MSG_TYPE\x01reply\x02", "☃",
)  # fmt: skip
EXPRESSIONS: Final = (
    "", "||", "a || " * 5000, "a" * 30_000, "TAGS between", "a > 1 and", "(" * 2000, "\x00",
    "* || *",
)  # fmt: skip
HEADERS: Final = (
    b"", b"{", b"[]", b"null", b"7", b'"x"', b"{}", b"\xff\xfe", b"[" * 20_000, b'{"a":' * 20_000,
    b'{"code":"x"}', b'{"code":10,"opaque":"y","extFields":[]}', b'{"code":1e400}',
    b'{"code":10,"extFields":{"a":{"b":1}}}', b'{"code":11,"extFields":{"topic":7}}',
    b'{"code":10,"language":7,"version":"1","flag":[]}', b'{"code":34,"flag":-1}',
    b'{"code":99999999999999999999}', b'{"code":10,"code":11}', b"\0" * 40,
)  # fmt: skip
BODIES: Final = (
    b"", b"{", b"[]", b"null", b"{}", b"[" * 50_000, b'{"a":' * 50_000, b"\xff" * 100, b'"' * 999,
    b'{"clientID":7}', b'{"clientID":null,"consumerDataSet":[null]}', b"9" * 5000, b"{1:2,3:4}",
    b'{"consumerDataSet":[{"groupName":{},"subscriptionDataSet":7}]}', b'{"mqSet":[{}]}',
    b'{"topicConfigTable":{"a":null}}', b"a=b\n" * 2000, b"=\n\\", b"1e999", b'{"$ref":"$"}',
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Shot:
    """Bytes to send."""

    data: bytes
    frames: int = 1
    whole: bool = True
    """Whether what follows on the connection begins a new frame, or the peer ends it before."""


class Frames:
    """Makes shots from a random source."""

    def __init__(self, random: Random, *, sorts: int | None = None) -> None:
        """With `sorts`, sound frames of that many requests and replies are damaged, not of all."""
        self._random = random
        self._commands = list(fuzz.sample_commands(random, sorts=sorts))
        self._requests = [one for one in self._commands if not one.is_response]
        self._with_bodies = [one for one in self._requests if len(one.body)]
        self._frames = fuzz.frames_of(self._commands)
        self._bomb = _bomb()

    def next(self) -> tuple[str, Shot]:
        """The kind of one more shot, and the shot."""
        (kind,) = self._random.choices(_KINDS, _WEIGHTS)
        return kind.__name__, kind(self)

    # --- kinds ----------------------------------------------------------------------------------

    def damaged(self) -> Shot:
        return Shot(data=self._mutated(), whole=False)

    def damaged_inside(self) -> Shot:
        return Shot(data=_framed(self._mutated()[4:]))

    def half(self) -> Shot:
        data = self._random.choice(self._frames)
        return Shot(data=data[: self._random.randrange(1, len(data))], whole=False)

    def length_that_lies(self) -> Shot:
        size = self._random.choice((0, 3, -1, -(1 << 31), (1 << 31) - 1, 16 * _MIB + 1))
        return Shot(data=_PREFIX.pack(size, 0) + b"{}", whole=False)

    def much_announced(self) -> Shot:
        return Shot(data=_PREFIX.pack(15 * _MIB, 100) + b"{" * 100, whole=False)

    def header_type(self) -> Shot:
        header = b'{"code":105}'
        mark = self._random.randrange(2, 256) << 24 | len(header)
        return Shot(data=_PREFIX.pack(4 + len(header), mark) + header)

    def header(self) -> Shot:
        header = self._random.choice((*HEADERS, self._random.randbytes(60)))
        kind = self._random.getrandbits(1) << 24
        return Shot(data=_PREFIX.pack(4 + len(header), kind | len(header)) + header)

    def missing_fields(self) -> Shot:
        command = self._some(self._requests)
        names = list(command.fields)
        gone = set(self._random.sample(names, self._random.randint(0, len(names))))
        command.fields = {name: one for name, one in command.fields.items() if name not in gone}
        return self._shot(command)

    def absurd_numbers(self) -> Shot:
        command = self._some(self._requests)
        for name, value in command.fields.items():
            if value.lstrip("-").isdecimal() and self._random.random() < 0.6:
                command.fields[name] = self._random.choice(ABSURD)
        return self._shot(command)

    def other_names(self) -> Shot:
        command = self._some(self._requests)
        for name, value in command.fields.items():
            if not value.lstrip("-").isdecimal() and self._random.random() < 0.6:
                command.fields[name] = self._random.choice(NAMES)
        return self._shot(command)

    def unknown_topics(self) -> Shot:
        topic = f"unknown-{self._random.randrange(_POOL)}"
        template = self._random.choice(("TBW102", "nothing", "SELF_TEST_TOPIC"))
        return self._shot(self._about(topic, self._random.choice((0, 1)), template=template))

    def forged_queues(self) -> Shot:
        numbers = (-1, -(1 << 31), (1 << 31) - 1, 4, 8, 1000, 65_536)
        return self._shot(self._about(TOPIC, self._random.choice(numbers)))

    def forged_places(self) -> Shot:
        at = self._random.choice((-1, 0, 1, 17, 1 << 40, (1 << 63) - 1, -(1 << 63)))
        group = self._group()
        found: Sequence[Request[Any]] = (
            ViewMessage(log_offset=at, topic=TOPIC),
            SendBack(log_offset=at, group=group, delay_level=99),
            QueryMessages(topic=TOPIC, key="k", max_messages=1 << 30, begin_ms=at, end_ms=-at - 1),
        )
        return self._shot(self._random.choice(found).command())

    def bodies(self) -> Shot:
        command = self._some(self._with_bodies)
        command.body = self._random.choice(BODIES)
        return self._shot(command)

    def too_large(self) -> Shot:
        return self._shot(_sending(body=b"x" * (4 * _MIB + self._random.randrange(1, 9))))

    def properties(self) -> Shot:
        text = self._random.choice(PROPERTIES)
        return self._shot(_sending(properties=text, flags=self._random.choice((0, 1, 4, 8, 12))))

    def batches(self) -> Shot:
        sound = fuzz.batch_body(self._random)
        body = self._random.choice((fuzz.mutate(self._random, sound), b"", b"\0" * 999, sound[:-3]))
        request = SendBatch(group="G", topic=TOPIC, queue_id=0, born_ms=0, body=body)
        return self._shot(request.command())

    def expressions(self) -> Shot:
        request = PullMessage(
            group=self._group(), topic=TOPIC, queue_id=0, flags=self._flags(), wait_ms=5000,
            offset=self._random.choice((0, 1 << 62, -5)),
            max_messages=self._random.choice((0, -1, 1 << 30)),
            subscription=self._random.choice(EXPRESSIONS),
            expression_type=self._random.choice(("TAG", "SQL92", "nothing", None)),
        )  # fmt: skip
        return self._shot(request.command())

    def same_number(self) -> Shot:
        data = self._frame(self._some(self._requests))
        count = self._random.randint(2, 20)
        return Shot(data=data * count, frames=count)

    def unknown_codes(self) -> Shot:
        command = self._some(self._requests)
        command.code = self._random.randrange(-(1 << 31), 1 << 31)
        return self._shot(command)

    def answers_to_nothing(self) -> Shot:
        return self._shot(self._some([one for one in self._commands if one.is_response]))

    def bombs(self) -> Shot:
        return self._shot(copy(self._bomb))

    # --- parts ----------------------------------------------------------------------------------

    def _mutated(self) -> bytes:
        return fuzz.mutate(self._random, self._random.choice(self._frames))

    def _some(self, commands: Sequence[Command]) -> Command:
        command = copy(self._random.choice(commands))
        command.fields = dict(command.fields)
        return command

    def _about(self, topic: str, queue_id: int, *, template: str = "TBW102") -> Command:
        group = self._group()
        found: Sequence[Request[Any]] = (
            SendMessage(
                group=group, topic=topic, queue_id=queue_id, born_ms=0, body=b"x",
                default_topic=template,
            ),
            PullMessage(
                group=group, topic=topic, queue_id=queue_id, offset=0, flags=self._flags(),
                subscription="*",
            ),
            UpdateConsumerOffset(group=group, topic=topic, queue_id=queue_id, offset=1 << 40),
            QueryConsumerOffset(group=group, topic=topic, queue_id=queue_id),
            GetMaxOffset(topic=topic, queue_id=queue_id),
            GetMinOffset(topic=topic, queue_id=queue_id),
            SearchOffset(
                topic=topic, queue_id=queue_id, timestamp_ms=-1, boundary=Boundary.UPPER
            ),
        )  # fmt: skip
        return self._random.choice(found).command()

    def _flags(self) -> int:
        return self._random.choice((0, 1, 2, 4, int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND), 255))

    def _group(self) -> str:
        return f"hostile-{self._random.randrange(_POOL)}"

    def _shot(self, command: Command) -> Shot:
        if self._random.random() < 0.05:
            command.flag |= ONEWAY
        return Shot(data=self._frame(command))

    def _frame(self, command: Command) -> bytes:
        command.opaque = self._random.randrange(-9, 50)
        try:
            return fuzz.frame(command, self._random.choice(list(HeaderType)))
        except LocalProtocolError:  # what cannot be written in the binary form
            return fuzz.frame(command, HeaderType.JSON)


Kind = Callable[[Frames], Shot]

KINDS: Final[dict[Kind, float]] = {
    Frames.damaged: 6,
    Frames.damaged_inside: 20,
    Frames.half: 3,
    Frames.length_that_lies: 1,
    Frames.much_announced: 1,
    Frames.header_type: 1,
    Frames.header: 5,
    Frames.missing_fields: 10,
    Frames.absurd_numbers: 10,
    Frames.other_names: 8,
    Frames.unknown_topics: 8,
    Frames.forged_queues: 8,
    Frames.forged_places: 5,
    Frames.bodies: 6,
    Frames.too_large: 0.03,
    Frames.properties: 5,
    Frames.batches: 4,
    Frames.expressions: 4,
    Frames.same_number: 2,
    Frames.unknown_codes: 4,
    Frames.answers_to_nothing: 4,
    Frames.bombs: 0.05,
}
"""Every kind, and how often it comes."""
_KINDS: Final = tuple(KINDS)
_WEIGHTS: Final = tuple(KINDS.values())


def _framed(rest: bytes) -> bytes:
    rest = rest.ljust(4, b"\0")
    return len(rest).to_bytes(4, "big") + rest


def _sending(*, body: bytes = b"x", properties: str = "", flags: int = 0) -> Command:
    request = SendMessage(group="G", topic=TOPIC, queue_id=0, born_ms=0, body=body, flags=flags)
    command = request.command()
    command.fields["i"] = properties  # as it is, whatever the catalogue would make of it
    return command


def _bomb() -> Command:
    """A registration whose body is small, and 200 MiB long when it is unpacked."""
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(bytes(_MIB)) for _ in range(200)) + packer.flush()
    request = RegisterBroker(
        broker="bomb", address="127.0.0.1:1", cluster="C", ha_address="127.0.0.1:2", broker_id=0,
        compressed=True, crc=checksum(body), body=body,
    )  # fmt: skip
    return request.command()
