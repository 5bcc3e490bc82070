"""A member of a consumer group, whichever way its messages are taken: given, or asked for.

It has queues (`Holding`), which are read by its subclass's `Reader`. Here is what all members have
in common: what heartbeats say of them, what brokers ask of them, which topics they want, how far
they have come, and the tasks that see to that.

RocketMQ: MQConsumerInner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from gantrymq.client.agreeing import Agreement
from gantrymq.client.engine import Engine
from gantrymq.client.holding import Holding, Manner, Wanted
from gantrymq.client.identity import now_ms
from gantrymq.client.members import Member
from gantrymq.client.offsets import BrokerOffsets, LocalOffsets, local_path
from gantrymq.client.rates import Rates
from gantrymq.client.reporting import running_info
from gantrymq.client.watching import Alarm, Problem, problems
from gantrymq.flows.groups import check_filter
from gantrymq.flows.pulling import TAG
from gantrymq.model import MessageQueue
from gantrymq.protocol.enums import ConsumeType, MessageModel
from gantrymq.protocol.groups import ConsumerData
from gantrymq.protocol.running import RunningInfo

log = logging.getLogger("gantrymq.client")

_SETTLED: Final = 2.0
"""Seconds after a change of the group's members until they are asked what they want."""


class GroupMember(Member):
    """One member of a group: a base, to which its subclass adds who takes the messages."""

    kind = "consumer"
    consume_type: ClassVar[ConsumeType]
    holding: Holding

    def __init__(self, engine: Engine, how: Manner) -> None:
        self.engine = engine
        self.how = how
        self.group = how.group
        self.rates: dict[str, Rates] = {}
        self.started_ms = 0
        self._alarm = Alarm(how.group)
        self._agreement = Agreement(engine, how.group)
        self._members: set[str] = set()
        self._tasks: dict[asyncio.Task[None], None] = {}  # ended in the order of their beginning
        self._unwatch: Callable[[], None] = lambda: None

    # --- what the engine asks -------------------------------------------------------------------

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say of it."""
        how = self.how
        model = MessageModel.BROADCASTING if how.everything else MessageModel.CLUSTERING
        return ConsumerData(
            group=how.group,
            consume_type=self.consume_type,
            message_model=model,
            consume_from=how.from_where,
            subscriptions=[wanted.data for wanted in self.holding.wanted.values()],
            unit_mode=self.engine.config.unit_mode,
        )

    def topics(self) -> Collection[str]:
        """The topics that it reads."""
        return tuple(self.holding.wanted)

    def members_changed(self) -> None:
        """Share the queues anew, at once."""
        self.holding.again.set()

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far it has come in the queues of `topic` that it has."""
        return {
            queue.key: queue.in_flight.committable
            for queue in self.holding.of_topic(topic)
            if queue.begun
        }

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets in the queues that are ours."""
        for queue in self.holding.of_topic(topic):
            if (offset := offsets.get(queue.key)) is not None:
                log.info("%s of %s goes on at %d, as it was told", queue, self.group, offset)
                self.holding.restart(queue, offset)

    def running_info(self, *, stacks: bool) -> RunningInfo:
        """What it is doing."""
        return running_info(self, stacks=stacks)

    def problems(self) -> list[Problem]:
        """What of its queues stands still, and why."""
        return problems(self.holding, self.engine.runtime.now(), self.how.config.alarm_after)

    async def _watch(self) -> None:
        now = self.engine.runtime.now()
        for rates in self.rates.values():
            rates.sample(now)
        self._alarm.look(self.problems(), now)

    def _members_seen(self) -> None:
        """Ask the others what they want, if they are others than before."""
        members = {one for members in self.holding.members.values() for one in members}
        if members != self._members and self.how.config.check_subscriptions:
            self._members = members
            self._spawn(self._compare(members), "comparing subscriptions")

    async def _compare(self, members: Collection[str]) -> None:
        await asyncio.sleep(_SETTLED)
        data = [wanted.data for wanted in self.holding.wanted.values()]
        for queue in tuple(self.holding.queues):
            if (address := self.engine.routes.master(queue.broker)) is not None:
                await self._agreement.check(data, members, address)
                return

    def rates_of(self, topic: str) -> Rates:
        """The rates of a topic."""
        rates = self.rates.get(topic)
        if rates is None:
            rates = self.rates[topic] = Rates.since(self.engine.runtime.now())
        return rates

    # --- the start ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group, and begin."""
        how, engine, holding = self.how, self.engine, self.holding
        holding.on_round = self._members_seen
        await engine.join(self)
        try:
            await self._check_filters(holding.wanted.values())
        except BaseException:
            await engine.leave(self)
            raise
        self.started_ms = now_ms()
        self._joined()
        holding.store = self._offset_store()
        self._unwatch = engine.routes.watch(self._route_changed)
        self._spawn(holding.rebalance_for_ever(), "rebalance")
        if how.commits:
            self._spawn(self._every(how.config.commit_interval, holding.commit), "commits")
        self._spawn(self._every(how.config.alarm_after / 3, self._watch), "alarms")

    def _joined(self) -> None:
        """The client has its id; nothing has been read yet."""

    def _offset_store(self) -> BrokerOffsets | LocalOffsets:
        engine, config = self.engine, self.how.config
        if not self.how.everything:
            return BrokerOffsets(engine, self.group)
        name = f"{engine.client_id.partition('@')[0]}@{engine.config.instance_name}"
        directory = None if config.offsets_directory is None else Path(config.offsets_directory)
        return LocalOffsets(engine, local_path(directory, name, self.group))

    async def _check_filters(self, wanted: Iterable[Wanted]) -> None:
        """Have brokers say whether they can filter, before anything is missed."""
        routes = self.engine.routes
        for want in wanted:
            if want.data.expression_type == TAG:
                continue
            queues = await routes.queues_to_subscribe(want.data.topic)
            for broker in sorted({queue.broker for queue in queues}):
                if (address := routes.address(broker)) is not None:
                    await check_filter(
                        self.engine.runtime,
                        address,
                        self.group,
                        want.data,
                        client_id=self.engine.client_id,
                    )

    def _route_changed(self, topic: str) -> None:
        if topic in self.holding.wanted:
            self.holding.again.set()

    # --- changes --------------------------------------------------------------------------------

    async def want(self, wanted: Wanted) -> None:
        """Read one more topic, or the same with another filter or handler."""
        topic = wanted.data.topic
        await self.engine.routes.refresh([topic])
        await self._check_filters([wanted])
        for queue in self.holding.of_topic(topic):
            self.holding.let_go(queue)
        self.holding.wanted[topic] = wanted
        await self.engine.beat()
        self.holding.again.set()

    async def unwant(self, topic: str) -> None:
        """Read a topic no more."""
        for table in (self.holding.wanted, self.holding.members, self.holding.unknown):
            table.pop(topic, None)
        for queue in self.holding.of_topic(topic):
            self.holding.let_go(queue)
        await self.engine.beat()

    def pause(self, topics: Collection[str] | None, *, paused: bool = True) -> None:
        """Read no more for now, or read on; what was read is handled."""
        if topics is None:
            self.holding.paused = paused
        for queue in self.holding.queues.values():
            if topics is None or queue.key.topic in topics:
                queue.paused = paused
                queue.made_room()

    # --- the end --------------------------------------------------------------------------------

    async def _stop_reading(self) -> None:
        """End every task, and those that read."""
        self.holding.closing = True
        self._unwatch()
        readers = (queue.reader for queue in self.holding.queues.values())
        tasks = [*self._tasks, *(reader for reader in readers if reader is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- tasks ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"gantrymq {name}")
        self._tasks[task] = None
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s of group %s failed", task.get_name(), self.group, exc_info=error)

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await do()
            except Exception:  # the next time may be better, and there has to be a next time
                log.exception("group %s", self.group)
