"""What the broker is doing, as the table of texts that `mqadmin` and dashboards show.

The names are RocketMQ's. What this broker has no counterpart of (capacities of thread pools) or
does not measure (the slowest writes) is left out rather than made up; tools print what is there.

RocketMQ: AdminBrokerProcessor.prepareRuntimeInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gantrymq.protocol.brokers import GetRuntimeInfo
from gantrymq.protocol.configs import KeyTable
from gantrymq.protocol.names import TIMER_TOPIC
from gantrymq.wire.versions import CURRENT, describe

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

_UNIT: Final = 1024
_NO_POOL: Final = 2**31 - 1
"""What RocketMQ says where messages are not written to a pool of buffers first."""
_ANSWERED_AT_ONCE: Final = (
    "EndTransactionQueueSize",
    "ackThreadPoolQueueSize",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "litePullThreadPoolQueueHeadWaitTimeMills",
)
"""Queues of RocketMQ's in which nothing waits here: what came is answered before more is read."""


def get_runtime_info(_request: GetRuntimeInfo, broker: Broker, _peer: Peer) -> KeyTable:
    """All of it."""
    found: dict[str, object] = {}
    for part in _PARTS:
        found |= part(broker)
    return KeyTable(table={name: _text(value) for name, value in found.items()})


def _life(broker: Broker) -> dict[str, object]:
    return {
        "brokerVersionDesc": f"V{describe(CURRENT).replace('.', '_')}",
        "brokerVersion": CURRENT,
        "brokerActive": True,
        "bootTimestamp": broker.boot_ms,
        "runtime": spelled_out(broker.now() - broker.boot),
        "startAcceptSendRequestTimeStamp": broker.config.sends.start_ms,
    }


def _traffic(broker: Broker) -> dict[str, object]:
    counts = broker.counts
    totals = counts.totals()
    this, last = counts.this_morning, counts.yesterday_morning
    return {
        "putMessageTimesTotal": totals.puts,
        "putMessageFailedTimes": counts.failed_puts,
        "putMessageSizeTotal": totals.put_size,
        "putMessageAverageSize": totals.put_size / totals.puts if totals.puts else 0.0,
        "putTps": counts.tps("puts"),
        "getFoundTps": counts.tps("found"),
        "getMissTps": counts.tps("missed"),
        "getTotalTps": counts.tps("pulls"),
        "getTransferredTps": counts.tps("gets"),
        "getTransferedTps": counts.tps("gets"),  # what RocketMQ 4 calls it, and its tools ask for
        "msgPutTotalYesterdayMorning": last.user_puts,
        "msgPutTotalTodayMorning": this.user_puts,
        "msgPutTotalTodayNow": totals.user_puts,
        "msgGetTotalYesterdayMorning": last.user_gets,
        "msgGetTotalTodayMorning": this.user_gets,
        "msgGetTotalTodayNow": totals.user_gets,
    }


def _store(broker: Broker) -> dict[str, object]:
    store, usage = broker.store, broker.store.fullness.usage
    return {
        "commitLogMinOffset": store.log_start,
        "commitLogMaxOffset": store.log_end,
        "commitLogDiskRatio": usage.ratio,
        f"commitLogDiskRatio_{store.directory / 'commitlog'}": usage.ratio,
        "consumeQueueDiskRatio": usage.ratio,
        "commitLogDirCapacity": f"Total : {readable(usage.total)}, Free : {readable(usage.free)}.",
        "dispatchBehindBytes": 0,  # a message is in its queue as soon as it may be read
        "dispatchMaxBuffer": 0,
        "remainTransientStoreBufferNumbs": _NO_POOL,
        "remainHowManyDataToFlush": readable(store.log_end - store.flushed_to),
        "earliestMessageTimeStamp": store.log.store_time(store.log_start),
        "pageCacheLockTimeMills": 0,  # nothing locks
    }


def _waiting(broker: Broker) -> dict[str, object]:
    return {
        "sendThreadPoolQueueSize": broker.store.waiting,
        "sendThreadPoolQueueCapacity": broker.config.flow.waiting_sends,
        "sendThreadPoolQueueHeadWaitTimeMills": 0,  # what waits was looked at when it came
        "pullThreadPoolQueueHeadWaitTimeMills": 0,
        "pullThreadPoolQueueSize": broker.waiting.count,
        "pullThreadPoolQueueCapacity": broker.config.pulls.waiting,
        **dict.fromkeys(_ANSWERED_AT_ONCE, 0),
    }


def _delays(broker: Broker) -> dict[str, object]:
    levels = range(1, broker.delays.levels.highest + 1)
    behind = {level: broker.delays.behind(level) for level in levels}
    return {
        f"scheduleMessageOffset_{level}": f"{done},{end}" for level, (done, end) in behind.items()
    }


def _timers(broker: Broker) -> dict[str, object]:
    return {
        "timerReadBehind": 0,  # messages get their place in the wheel as they are stored
        "timerOffsetBehind": 0,
        "timerCongestNum": broker.timers.behind,
        "timerEnqueueTps": broker.counts.put_tps(TIMER_TOPIC),
        "timerDequeueTps": broker.counts.release_tps,
    }


_PARTS: Final[tuple[Callable[[Broker], dict[str, object]], ...]] = (
    _life,
    _traffic,
    _store,
    _waiting,
    _delays,
    _timers,
)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def spelled_out(seconds: float) -> str:
    """A time span in RocketMQ's words."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"


def readable(size: int) -> str:
    """A number of bytes as RocketMQ writes it. RocketMQ: MixAll.humanReadableByteCount."""
    if size < _UNIT:
        return f"{size} B"
    amount, units = float(size), iter("KMGTPE")
    while amount >= _UNIT:
        amount, unit = amount / _UNIT, next(units)
    return f"{amount:.1f} {unit}iB"
