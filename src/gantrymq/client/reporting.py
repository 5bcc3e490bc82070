"""What a consumer says of itself when an administrator asks: settings, queues, rates, stacks.

Consoles and `mqadmin consumerStatus` show it as they show a Java consumer's. Where Java has the
stacks of its threads, there are those of this process's threads, and of the tasks of its loop.

RocketMQ: DefaultMQPushConsumerImpl.consumerRunningInfo.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields
from types import FrameType
from typing import TYPE_CHECKING, Final

from gantrymq.client.handling import REST_OF
from gantrymq.client.identity import now_ms
from gantrymq.client.reading import OwnedQueue
from gantrymq.protocol.running import PulledQueue, RunningInfo

if TYPE_CHECKING:
    from gantrymq.client.membership import GroupMember

_MIB: Final = 1024 * 1024
_VERSION: Final = "V5_5_0"


def running_info(work: GroupMember, *, stacks: bool) -> RunningInfo:
    """Everything that can be said of a consumer now."""
    engine, how, holding = work.engine, work.how, work.holding
    now = engine.runtime.now()
    wall = now_ms()
    told = {
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in engine.name_servers),
        "PROP_CONSUME_TYPE": str(work.consume_type),
        "PROP_CLIENT_VERSION": _VERSION,
        "PROP_CONSUMEORDERLY": str(how.in_order).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(how.config.concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(work.started_ms),
        "consumeFromWhere": str(how.from_where),
        "allocateMessageQueueStrategy": how.strategy.name,
        "client": "gantrymq",
    }
    told |= {part.name: str(getattr(how.config, part.name)) for part in fields(how.config)}
    return RunningInfo(
        properties=told,
        subscriptions=[wanted.data for wanted in holding.wanted.values()],
        queues={
            key: _queue(queue, lambda at: wall - round(1000 * (now - at)), now)
            for key, queue in holding.queues.items()
        },
        topics={topic: rates.status(now) for topic, rates in work.rates.items()},
        stacks=all_stacks() if stacks else None,
    )


def _queue(queue: OwnedQueue, at: Callable[[float], int], now: float) -> PulledQueue:
    in_flight = queue.in_flight
    messages = in_flight.messages()
    return PulledQueue(
        commit_offset=in_flight.committable,
        cached_min_offset=messages[0].offset if messages else 0,
        cached_max_offset=messages[-1].offset if messages else 0,
        cached=len(messages),
        cached_mib=in_flight.size // _MIB,
        locked=queue.in_order and now < queue.locked_until,
        dropped=queue.stopped,
        last_pull_ms=at(queue.last_pull),
        last_consume_ms=at(queue.last_consumed) if queue.last_consumed else 0,
    )


def all_stacks() -> str:
    """The stacks of all threads, and of all tasks of this thread's loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(number, '?')} ({number})\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    ]
    parts += [
        f"task {task.get_name()}\n{''.join(map(_line, waiting_frames(task.get_coro())))}"
        for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    ]
    return "\n".join(parts)


def waiting_frames(work: object) -> Iterator[FrameType]:
    """The frames of a coroutine that waits: its own, that of what it awaits, and so on."""
    while work is not None:
        frame = None
        for name in ("cr_frame", "gi_frame", "ag_frame"):
            frame = frame or getattr(work, name, None)
        if not isinstance(frame, FrameType):
            return
        if frame.f_code is REST_OF:  # it stands for the coroutine of a user's handler
            work = frame.f_locals.get("work")
            continue
        yield frame
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)


def _line(frame: FrameType) -> str:
    summary = traceback.FrameSummary(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
    )
    return traceback.format_list([summary])[0]
