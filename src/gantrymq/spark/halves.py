"""Exactly once: half messages that nobody sees, until their whole micro-batch is decided on.

```
tasks: half messages ─▶ commit: a note of what is to be ended ─▶ each is ended ─▶ Spark commits
```

A crash before the note leaves half messages that nobody ends and nobody sees; the micro-batch is
run again, with new ones. A crash after it makes Spark run the batch again as well; its tasks find
the note and send nothing, and the commit ends what the note names, leaving out what readers can see
already. So each row becomes visible once, whenever the driver or a task dies.

The note is kept in a topic, `GANTRY_SPARK_COMMITS` unless told otherwise, as messages whose key is
the query and the batch: parts with the names of half messages, and at last one that says how many
parts there are. Brokers find them by their index of keys, as long as they keep messages.

Brokers ask who has sent a half message what to make of it, and give one up that nobody answers for:
RocketMQ after 15 questions half a minute apart. A micro-batch has to be committed before that.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from gantrymq.client.config import ClientConfig
from gantrymq.client.identity import now_ms, unique_ids
from gantrymq.errors import GantryError, NoRoute, SendFailed, TopicNotFound
from gantrymq.flows import lookup
from gantrymq.flows.reaching import Reach
from gantrymq.flows.topics import brokers_of
from gantrymq.net.lending import BlockingRuntime
from gantrymq.protocol import names
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.transactions import Decision, EndTransaction
from gantrymq.runtime import Pipe
from gantrymq.spark.shipping import Frame, Shipper, Stored
from gantrymq.wire import properties
from gantrymq.wire.flags import Transaction
from gantrymq.wire.message_id import parse_offset_id

log = logging.getLogger("gantrymq.spark")

PARTS: Final = "GANTRY_PARTS"
_IN_A_PART: Final = 20_000
_MOST_PARTS: Final = 30
_AHEAD: Final = 128
_PAUSE: Final = 0.2


class Half(NamedTuple):
    """A half message, as its broker knows it."""

    broker: str
    topic: str
    half_offset: int
    log_offset: int
    message_id: str


def half_request(request: SendMessage, group: str) -> SendMessage:
    """The request, for a message that nobody sees yet."""
    mark = properties.join({properties.HALF_MESSAGE: "true", properties.PRODUCER_GROUP: group})
    request.properties = (request.properties or "") + mark
    request.flags |= Transaction.PREPARED
    return request


def half_of(stored: Stored, request: SendMessage) -> Half:
    """What it is ended by."""
    reply = stored.reply
    message_id = properties.find_text(request.properties or "", properties.UNIQUE_KEY)
    return Half(
        stored.queue.broker,
        stored.queue.topic,
        reply.offset,
        parse_offset_id(reply.message_id).log_offset,
        message_id or "",
    )


class Commits:
    """The notes of batches, and the ending of their half messages."""

    def __init__(
        self, runtime: BlockingRuntime, config: ClientConfig, topic: str, group: str, timeout: float
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._topic = names.wrap(config.namespace or "", topic)
        self._group = group
        self._timeout = timeout
        self._shipper = Shipper(runtime, config, timeout=timeout, first=0)
        self._reach = Reach(
            runtime=runtime,
            name_servers=config.name_servers,
            now_ms=lambda: time.time_ns() // 1_000_000,
            timeout=config.call_timeout,
            reachable=config.reachable,
            namespace="",
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._shipper.close()

    # --- notes ------------------------------------------------------------------------------------

    async def find(self, run: str) -> list[Half] | None:
        """The half messages of a batch that was decided on; None if it was not."""
        try:
            found = await lookup.messages_by_key(self._reach, self._topic, run)
        except (NoRoute, TopicNotFound):
            return None  # nobody has written one yet
        parts: dict[int, list[Half]] = {}
        count = None
        for message in found:
            number, _, total = (message.find(PARTS) or "").partition("/")
            if total:
                rows = json.loads(zlib.decompress(message.body))
                parts[int(number)] = [Half(*row) for row in rows]
            elif number.isdecimal():
                count = int(number)
        if count is None:
            return None
        if len(parts) < count:
            raise SendFailed(
                f"{run} was decided on, but {count - len(parts)} of {count} parts of its note are"
                f" not found in topic {self._topic}"
            )
        return [half for number in range(count) for half in parts[number]]

    async def note(self, run: str, halves: Sequence[Half]) -> None:
        """Decide to commit: from here on there is no way back."""
        parts = [halves[at : at + _IN_A_PART] for at in range(0, len(halves), _IN_A_PART)]
        if len(parts) > _MOST_PARTS:
            raise SendFailed(
                f"{run} has {len(halves):,} rows; exactly once, a batch has at most"
                f" {_IN_A_PART * _MOST_PARTS:,}: set maxOffsetsPerTrigger at its source"
            )
        for number, part in enumerate(parts):
            body = zlib.compress(json.dumps(part).encode(), 1)
            await self._shipper.ship(self._frame(run, f"{number}/{len(parts)}", body))
        await self._shipper.settle()
        await self._shipper.ship(self._frame(run, str(len(parts)), b"decided"))
        await self._shipper.settle()

    def _frame(self, run: str, parts: str, body: bytes) -> Frame:
        named = {
            properties.UNIQUE_KEY: unique_ids("127.0.0.1").next(),
            properties.WAIT: "true",
            properties.KEYS: run,
            PARTS: parts,
        }
        request = SendMessage(
            group=self._group,
            topic=self._topic,
            queue_id=0,
            born_ms=now_ms(),
            properties=properties.join(named),
            body=body,
        )
        return Frame(self._topic, request, 0, 1)

    # --- ending -----------------------------------------------------------------------------------

    async def commit(self, run: str, halves: Sequence[Half]) -> None:
        """Have every row of a batch seen, once."""
        known = await self.find(run)
        if known is None:
            await self.note(run, halves)
            await self._end(halves, Decision.COMMIT, sure=True)
            return
        await self.forget(sorted(set(halves) - set(known)))
        await self._end(known, Decision.COMMIT, sure=False)

    async def roll_back(self, run: str, halves: Sequence[Half]) -> None:
        """Have nothing of a batch seen, unless it was decided to commit it."""
        if halves and await self.find(run) is None:
            await self.forget(halves)

    async def forget(self, halves: Sequence[Half]) -> None:
        """Roll back what is not needed; what cannot be is left for brokers to give up."""
        await self._end(halves, Decision.ROLLBACK, sure=True)

    async def _end(self, halves: Sequence[Half], decision: Decision, *, sure: bool) -> None:
        """End each; where it is not `sure` that none was ended before, look first."""
        deadline = self._runtime.now() + self._timeout
        left = list(halves)
        while True:
            if not sure:
                left = [half for half in left if not await self._seen(half)]
            left, error = await self._tell(left, decision)
            if error is None:
                return
            if decision is Decision.ROLLBACK:
                log.warning(
                    "%d half messages are left for brokers to give up: %s", len(left), error
                )
                return
            if self._runtime.now() > deadline:
                raise SendFailed(
                    f"{len(left):,} of {len(halves):,} half messages were decided on and could not"
                    f" be committed, the first of them at broker {left[0].broker}: {error}"
                ) from error
            sure = False
            await self._runtime.sleep(_PAUSE)

    async def _seen(self, half: Half) -> bool:
        found = await lookup.messages_by_unique_id(self._reach, half.topic, half.message_id)
        return any(one.topic == half.topic for one in found)

    async def _tell(
        self, halves: Sequence[Half], decision: Decision
    ) -> tuple[list[Half], GantryError | None]:
        """Tell the brokers; those of which it is not known whether they heard, and why."""
        failed: list[Half] = []
        last: GantryError | None = None
        by_broker: dict[str, list[Half]] = {}
        for half in halves:
            by_broker.setdefault(half.broker, []).append(half)
        for broker, its in by_broker.items():
            done = 0
            try:
                address = await self._address(broker, its[0].topic)
                limit = self._config.connect_timeout
                async with self._runtime.pipe(address, timeout=limit) as pipe:
                    for at in range(0, len(its), _AHEAD):
                        await self._tell_some(pipe, its[at : at + _AHEAD], decision)
                        done = at + _AHEAD
            except GantryError as error:
                failed += its[done:]
                last = error
        return failed, last

    async def _tell_some(self, pipe: Pipe, halves: Sequence[Half], decision: Decision) -> None:
        endings = [self._ending(half, decision) for half in halves]
        begun = [await pipe.begin(ending, timeout=self._timeout) for ending in endings]
        for one in begun:
            await one.reply(timeout=self._timeout)

    def _ending(self, half: Half, decision: Decision) -> EndTransaction:
        return EndTransaction(
            topic=half.topic,
            group=self._group,
            half_offset=half.half_offset,
            log_offset=half.log_offset,
            decision=decision,
            message_id=half.message_id,
            transaction_id=half.message_id,
            broker=half.broker,
        )

    async def _address(self, broker: str, topic: str) -> str:
        places = await brokers_of(self._reach, topic)
        if broker not in places:
            raise SendFailed(f"broker {broker} is in no route of {topic} now")
        return places[broker]
