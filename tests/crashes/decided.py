"""Transactions: half messages, decisions that are told or not, and questions that are answered.

A producer decides once and says the same ever after. So each message has one fate from the start;
what differs is how far it comes before the crash: the half message was answered or not, the
decision sent or not, answered or not. Some decisions are said once more after the crash, and every
question of the broker is answered with the fate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from gantrymq.errors import GantryError, ReplyError
from gantrymq.net.aio import Peer
from gantrymq.protocol.base import Done, table
from gantrymq.protocol.groups import Heartbeat, ProducerData
from gantrymq.protocol.names import HALF_TOPIC
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.transactions import CheckTransactionState, Decision, EndTransaction
from gantrymq.wire import properties, record
from gantrymq.wire.flags import Transaction, with_transaction
from gantrymq.wire.message_id import parse_offset_id
from gantrymq.wire.record import StoredMessage
from tests.crashes.load import Load, Server, number_of

TOPIC = "decided"
_GROUP = "deciders"
_QUIET_ENOUGH = 1.5
"""Seconds without a question after which nothing is open."""


class Decided(Load):
    """Every decision that was answered lasts, and counts once; what is open is asked about."""

    name = "transactions"
    settings: ClassVar[Mapping[str, Any]] = {
        "transactions.immunity": 0.4,
        "transactions.interval": 0.3,
        "transactions.most_checks": 1000,
    }

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.table = table(CheckTransactionState.answered_by(_asked))
        self.questions = 0
        self._fates: dict[int, Decision] = {}
        self._halves: dict[int, tuple[int, int]] = {}
        self._delivered: dict[int, int] = {}
        self._sure: set[int] = set()
        """What was decided, and answered, before the last crash."""
        self._again: list[int] = []
        self._last_question = 0.0

    def _fate(self, number: int) -> Decision:
        if number not in self._fates:
            self._fates[number] = self.random.choice((Decision.COMMIT, Decision.ROLLBACK))
        return self._fates[number]

    async def greet(self, peer: Peer) -> None:
        """See `Load`."""
        producers = [ProducerData(group=_GROUP)]
        await self.ask(peer, Heartbeat(client_id=f"{id(peer)}", producers=producers))

    async def one(self, peer: Peer) -> None:
        """A half message, and mostly its decision."""
        if self._again:
            await self._end(peer, self._again.pop())
        number = self.number()
        found = {"TRAN_MSG": "true", "PGROUP": _GROUP, "UNIQ_KEY": f"U{number}"}
        reply = await self.ask(
            peer,
            SendMessage(
                group=_GROUP, topic=TOPIC, queue_id=number % 2, born_ms=time.time_ns() // 1_000_000,
                flags=with_transaction(0, Transaction.PREPARED), properties=properties.join(found),
                body=b"%d:" % number + b"x" * self.random.randrange(500),
            ),
        )  # fmt: skip
        self.note("half", number, (reply.offset, parse_offset_id(reply.message_id).log_offset))
        self._halves[number] = self.journal[-1].told
        if self.random.random() < 0.8:
            await self._end(peer, number)

    async def _end(self, peer: Peer, number: int, *, from_check: bool = False) -> None:
        half_offset, log_offset = self._halves[number]
        request = EndTransaction(
            group=_GROUP, half_offset=half_offset, log_offset=log_offset,
            decision=self._fate(number), message_id=f"U{number}", from_check=from_check,
        )  # fmt: skip
        await self.ask(peer, request)
        self.note("ended", number)

    def asked(self, request: CheckTransactionState) -> EndTransaction:
        """The answer to a question, which must not be about what was decided before the crash."""
        number = number_of(record.decode(request.body))
        assert number not in self._sure, f"the decision on {number} was answered, and is lost"
        self.questions += 1
        self._last_question = time.monotonic()
        self._halves[number] = request.half_offset, request.log_offset
        return EndTransaction(
            group=_GROUP, half_offset=request.half_offset, log_offset=request.log_offset,
            decision=self._fate(number), message_id=f"U{number}", from_check=True,
        )  # fmt: skip

    def refused(self, refused: ReplyError) -> None:
        """A decision that comes after the message's own time is refused in favour of a question."""

    def crashed(self, sure: int | None = None) -> None:
        """See `Load`."""
        super().crashed(sure)
        self._sure = {event.number for event in self.journal if event.what == "ended"}
        self._halves = {event.number: event.told for event in self.journal if event.what == "half"}
        open_ones = sorted(self._halves.keys() - self._sure)
        self._again = self.random.sample(open_ones, len(open_ones) // 3)

    async def judge(self, server: Server) -> None:
        """See `Load`."""
        for message in self.reader.news(server.log_files()):
            if message.topic == HALF_TOPIC:
                self._fate(number_of(message))
            elif message.topic == TOPIC:
                self._take(message)
        for number in self._sure:
            wanted = self._fate(number) is Decision.COMMIT
            assert (number in self._delivered) == wanted, f"{self._fate(number)!r} of {number}"

    def _take(self, message: StoredMessage) -> None:
        number = number_of(message)
        assert number not in self._delivered, f"{number} was committed twice"
        assert self._fate(number) is Decision.COMMIT, f"{number} was never committed"
        self._delivered[number] = message.log_offset

    async def settle(self, server: Server) -> None:
        """See `Load`."""
        peer = await server.connect(self.table, self)
        try:
            await self.greet(peer)
            self._last_question = time.monotonic()
            left = _QUIET_ENOUGH
            while left > 0:
                await asyncio.sleep(left)
                left = self._last_question + _QUIET_ENOUGH - time.monotonic()
        finally:
            peer.close()
        await self.judge(server)
        halves = {event.number for event in self.journal if event.what == "half"}
        for number in halves:
            wanted = self._fate(number) is Decision.COMMIT
            assert (number in self._delivered) == wanted, f"{self._fate(number)!r} of {number}"

    def counts(self) -> dict[str, int]:
        """See `Load`."""
        return {
            "half messages answered": sum(event.what == "half" for event in self.journal),
            "decisions answered": len(self._sure),
            "committed": len(self._delivered),
            "questions": self.questions,
        }


def _asked(request: CheckTransactionState, load: Decided, peer: Peer) -> Awaitable[Done]:
    answer = load.asked(request)
    return _answer(answer, peer)


async def _answer(answer: EndTransaction, peer: Peer) -> Done:
    with suppress(GantryError):  # the broker died meanwhile, and will ask again
        peer.notify(answer)
    return Done()
