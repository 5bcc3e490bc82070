"""The pull consumer for asyncio: it reads ahead, and gives messages when it is asked for some.

```python
async with AsyncPullConsumer("rmq://localhost:9876", group="billing", start="earliest") as consumer:
    await consumer.subscribe("orders")
    while True:
        for message in await consumer.poll():
            print(message.body)
```

Asking for more says that what was given before is dealt with; so does `commit()`, which is what to
call before the end. Whatever is not known to be dealt with is given again.

It either subscribes to topics, whose queues the members of its group share, or is assigned queues,
which it reads alone and whoever else does. RocketMQ 5's *simple consumer* is another thing
(`gantrymq.client.simple_consumer`): it receives and acknowledges single messages, which its broker
keeps invisible meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, Unpack

from gantrymq.client.consumer import Topics, subscriptions, wanted_of
from gantrymq.client.consumer_config import PullArguments, load_consumer
from gantrymq.client.engine import Engine, shared
from gantrymq.client.holding import Assigned, Manner, Wanted, make_wanted
from gantrymq.client.pulling import Pulling
from gantrymq.client.states import Life, ServiceState
from gantrymq.client.watching import Problem
from gantrymq.errors import ClosedError, InvalidInput, NoAddress, StateError
from gantrymq.flows import offsets as flows
from gantrymq.flows.offsets import Bounds, Start, check_start
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.net.network import Network
from gantrymq.protocol.names import wrap
from gantrymq.protocol.validation import check_consumer_group
from gantrymq.rules.allocation import EVENLY, Strategy

Which: TypeAlias = str | MessageQueue | Iterable[MessageQueue]
"""The consumer's queues of a topic, one queue, or several."""
SeekTo: TypeAlias = int | datetime | Literal["earliest", "latest", "committed"]
"""An offset, the first message stored at a time or later, an end, or where the group is."""


class AsyncPullConsumer:
    """A consumer that is asked for messages.

    RocketMQ: DefaultLitePullConsumer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str,
        start: Start,
        topics: Topics = (),
        auto_commit: bool = True,
        strategy: Strategy = EVENLY,
        network: Network | None = None,
        **settings: Unpack[PullArguments],
    ) -> None:
        """`start` counts for a group that is new to a queue: `earliest`, `latest` or a time.

        With `auto_commit`, what is dealt with is committed from time to time, and at the end;
        without it, by `commit()` alone.
        """
        check_consumer_group(group)
        client, config = load_consumer(url, settings)
        self.group = group
        self._client = client
        self._network = network
        self._namespace = client.namespace or ""
        self._how: Final = Manner(
            group=wrap(self._namespace, group),
            start=check_start(start),
            namespace=self._namespace,
            strategy=strategy,
            config=replace(config, ordered=False),  # a queue's messages come in order anyway
            commits=auto_commit,
        )
        self._life: Final = Life(f"consumer {group}")
        wanted = [wanted_of(self._namespace, one) for one in subscriptions(topics)]
        self._first: dict[str, Wanted] = {one.data.topic: one for one in wanted}
        self._assigned: Assigned | None = None
        self._work: Pulling | None = None
        self._engine: Engine | None = None

    # --- life -----------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """Where the consumer is in its life."""
        return self._life.state

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return "" if self._engine is None else self._engine.client_id

    async def start(self) -> None:
        """Join the group, and read ahead."""
        self._life.begin()
        self._engine = shared(self._client, network=self._network)
        work = Pulling(self._engine, self._how, self._first, self._assigned)
        await work.start()
        if self._life.state is ServiceState.SHUTDOWN:
            await work.close()
            raise ClosedError(f"consumer {self.group} was closed while it was started")
        self._work = work
        self._life.began()

    async def close(self) -> None:
        """Leave the group; what the last poll gave counts as dealt with only after `commit()`."""
        was_running = self._life.end()
        work, self._work = self._work, None
        if work is not None and was_running:
            await work.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- topics and queues ----------------------------------------------------------------------

    async def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Take our share of a topic, or of the same one with another filter."""
        self._check_open()
        if self._assigned is not None:
            raise StateError(
                f"consumer {self.group} has assigned queues: it cannot subscribe to {topic} as well"
            )
        wanted = make_wanted(self._namespace, topic, tags=tags, sql=sql)
        self._first[wanted.data.topic] = wanted
        if self._work is not None:
            await self._work.want(wanted)

    async def unsubscribe(self, topic: str) -> None:
        """Take nothing of a topic any more."""
        self._check_open()
        full = wrap(self._namespace, topic)
        self._first.pop(full, None)
        if self._work is not None:
            await self._work.unwant(full)

    async def assign(
        self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None
    ) -> None:
        """Read these queues and no others, without sharing them with anybody."""
        self._check_open()
        if self._first and self._assigned is None:
            raise StateError(
                f"consumer {self.group} has subscribed to {', '.join(sorted(self._first))}: its"
                f" group shares those queues out, and none can be assigned as well"
            )
        full = frozenset(self._full(queue) for queue in queues)
        wanted = [
            make_wanted(self._namespace, topic, tags=tags, sql=sql)
            for topic in sorted({queue.topic for queue in full})
        ]
        assigned = self._assigned = Assigned()
        assigned.queues = full
        self._first = {one.data.topic: one for one in wanted}
        if self._work is not None:
            await self._work.assign(assigned, self._first)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        return frozenset(self._work.holding.queues) if self._work is not None else frozenset()

    @property
    def problems(self) -> list[Problem]:
        """Queues of this consumer that stand still, and why; the log tells of them, too."""
        return self._work.problems() if self._work is not None else []

    def pause(self, *which: str | MessageQueue) -> None:
        """Give no messages of these topics and queues, or of all, and read no more of them."""
        self._set_paused(which, paused=True)

    def resume(self, *which: str | MessageQueue) -> None:
        """Go on with them."""
        self._set_paused(which, paused=False)

    # --- messages -------------------------------------------------------------------------------

    async def poll(self, limit: int = 100, timeout: float | None = 5.0) -> list[ReceivedMessage]:
        """Up to `limit` messages, as soon as there is one; none after `timeout` seconds.

        With 0 it does not wait, with None for as long as it takes. What was given before counts as
        dealt with from now on.
        """
        if limit < 1:
            raise InvalidInput(f"limit={limit}: a poll asks for one message at least")
        return await self._running.poll(limit, timeout)

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None
    ) -> dict[MessageQueue, int]:
        """Keep how far the group is: behind everything given, or at `offsets`; what was new.

        Returns when the brokers have it, and raises `PartlyDone` if one of them did not take it.
        """
        if offsets is not None:
            offsets = {self._full(queue): offset for queue, offset in offsets.items()}
        return await self._running.commit(offsets)

    # --- places ---------------------------------------------------------------------------------

    async def seek(self, which: Which, to: SeekTo) -> dict[MessageQueue, int]:
        """Go on elsewhere in queues of ours; where that is. What was read ahead is forgotten.

        `committed` is where the group was at the last commit, or begins if it never did.
        """
        work = self._running
        keys = self._keys(which)
        if isinstance(to, int) and len(keys) > 1:
            raise InvalidInput(f"offset {to} is meant for one queue, and these are {len(keys)}")
        for key in keys:
            work.owned(key)
        places = {key: await self._place(key, to) for key in keys}
        for key, offset in places.items():
            work.seek(key, offset)
        return places

    def positions(self) -> dict[MessageQueue, int]:
        """The offset of the next message that will be given, of each queue where it is known."""
        return self._running.positions()

    async def committed(self, *queues: MessageQueue) -> dict[MessageQueue, int | None]:
        """How far the group is by what is kept, in these queues or all of ours; None if nothing."""
        work = self._running
        keys = [self._full(queue) for queue in queues] or sorted(work.holding.queues)
        return {key: await work.holding.store.stored(key) for key in keys}

    async def offset(self, queue: MessageQueue, to: SeekTo) -> int:
        """The offset that `to` stands for in any queue."""
        return await self._place(self._full(queue), to)

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """The offsets that any queue has."""
        key = self._full(queue)
        return await flows.bounds(self._running.engine.runtime, await self._address(key), key)

    async def queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of any topic that can be read."""
        routes = self._running.engine.routes
        return tuple(await routes.queues_to_subscribe(wrap(self._namespace, topic)))

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _running(self) -> Pulling:
        self._life.check()
        assert self._work is not None
        return self._work

    def _check_open(self) -> None:
        """Topics and queues may be named before the start, and while it runs."""
        if self._life.state is not ServiceState.CREATED:
            self._life.check()

    def _take_back(self) -> None:
        """Whoever asked last did not get what was given."""
        if self._work is not None:
            self._work.buffer.take_back()

    def _full(self, queue: MessageQueue) -> MessageQueue:
        """A queue as brokers know it."""
        return queue._replace(topic=wrap(self._namespace, queue.topic))

    def _keys(self, which: Which) -> list[MessageQueue]:
        if isinstance(which, str):
            topic = wrap(self._namespace, which)
            keys = [key for key in self._running.holding.queues if key.topic == topic]
            if not keys:
                raise StateError(
                    f"no queue of topic {which} is this consumer's of {self.group} now"
                )
            return sorted(keys)
        queues = [which] if isinstance(which, MessageQueue) else which
        return [self._full(queue) for queue in queues]

    def _set_paused(self, which: tuple[str | MessageQueue, ...], *, paused: bool) -> None:
        work = self._running
        topics = {wrap(self._namespace, one) for one in which if isinstance(one, str)}
        queues = [self._full(one) for one in which if isinstance(one, MessageQueue)]
        if topics or not which:
            work.pause(topics or None, paused=paused)
        work.pause_queues(queues, paused=paused)

    async def _place(self, key: MessageQueue, to: SeekTo) -> int:
        work = self._running
        runtime, address = work.engine.runtime, await self._address(key)
        if isinstance(to, bool) or not isinstance(to, int | str | datetime):
            raise _no_place(to)
        if isinstance(to, int):
            there = await flows.bounds(runtime, address, key)
            if not there.least <= to <= there.end:
                raise InvalidInput(
                    f"queue {key} has no offset {to}: it has those from {there.least} on, and the"
                    f" next message will be {there.end}"
                )
            return to
        if to == "committed":
            return await work.holding.store.begin(key, self._how.start)
        if to == "earliest" or to == "latest" or isinstance(to, datetime):
            return await flows.beginning(runtime, address, key, check_start(to))
        raise _no_place(to)

    async def _address(self, key: MessageQueue) -> str:
        routes = self._running.engine.routes
        if routes.address(key.broker) is None:
            await routes.of(key.topic)
        address = routes.address(key.broker)
        if address is None:
            raise NoAddress(f"no route names broker {key.broker}, where {key} is")
        return address


def _no_place(to: object) -> InvalidInput:
    return InvalidInput(
        f"{to!r} is no place in a queue: it takes an offset, 'earliest', 'latest', 'committed', or"
        f" a datetime with a time zone"
    )
