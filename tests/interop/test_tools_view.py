"""What tools read of brokers, texts and counts: ours tell the same as RocketMQ's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from apache import Cluster
from gantry import Gantry
from jars import CURRENT

from gantrymq.errors import BrokerFailure, SystemBusy
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.brokers import GetRuntimeInfo
from gantrymq.protocol.configs import GetBrokerConfig
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.statistics import GetBrokerStats, StatsItem

TOPIC: Final = "tools-view"
GROUP: Final = "GID_tools_view"
SENT: Final = 12

LEFT_OUT: Final = {
    "EndTransactionThreadPoolQueueCapacity": "there is no such pool",
    "ackThreadPoolQueueCapacity": "there is no such pool",
    "litePullThreadPoolQueueCapacity": "there is no such pool",
    "queryThreadPoolQueueCapacity": "there is no such pool",
    "getMessageEntireTimeMax": "not measured",
    "putLatency99": "not measured",
    "putLatency999": "not measured",
    "putMessageDistributeTime": "not measured",
    "putMessageEntireTimeMax": "not measured",
}
"""Rows of RocketMQ's runtime table that ours lacks; nobody looks at them by name."""

READ_BY_TOOLS: Final = frozenset(
    {
        "brokerVersionDesc",
        "putTps",
        "getTransferredTps",
        "msgPutTotalTodayNow",
        "msgPutTotalTodayMorning",
        "msgPutTotalYesterdayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalTodayMorning",
        "msgGetTotalYesterdayMorning",
        "sendThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "ackThreadPoolQueueSize",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "timerReadBehind",
        "timerOffsetBehind",
        "timerCongestNum",
        "timerEnqueueTps",
        "timerDequeueTps",
        "brokerActive",
        "bootTimestamp",
        "runtime",
        "putMessageAverageSize",
    }
)
"""Rows that clusterList, exportMetrics and the dashboard look at by name."""

CONFIGS_READ: Final = frozenset(
    {
        "brokerName",
        "brokerRole",
        "clientCallbackExecutorThreads",
        "fileReservedTime",
        "filterServerNums",
        "flushDiskType",
        "maxMessageSize",
        "messageDelayLevel",
        "msgTraceTopicName",
        "slaveReadEnable",
        "traceTopicEnable",
        "useTLS",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "brokerClusterName",
        "brokerPermission",
        "deleteWhen",
    }
)
"""Settings that exportConfigs and exportMetrics look at by name."""
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


@pytest.fixture(scope="module")
def both(
    clusters: Callable[[str], Cluster], ours: Gantry
) -> Iterator[tuple[BlockingPeer, BlockingPeer]]:
    """Connections to RocketMQ's broker and to ours, to which the same was sent."""
    with (
        BlockingPeer.connect(clusters(CURRENT).broker) as theirs,
        BlockingPeer.connect(ours.broker) as own,
    ):
        for peer in (theirs, own):
            use(peer)
        yield theirs, own


def use(peer: BlockingPeer) -> None:
    for _ in range(SENT):
        message = SendMessage(
            group="PID_tools_view",
            topic=TOPIC,
            queue_id=0,
            born_ms=int(time.time() * 1000),
            body=b"one beer",
        )
        until_taken(peer, message)
    deadline = time.monotonic() + 10
    while True:
        pull = PullMessage(
            group=GROUP,
            topic=TOPIC,
            queue_id=0,
            offset=0,
            flags=int(PullFlag.SUBSCRIPTION),
            subscription="*",
        )
        if peer.call(pull, timeout=10).next_offset == SENT:
            return
        assert time.monotonic() < deadline, "nothing to read"


def until_taken(peer: BlockingPeer, message: SendMessage) -> None:
    """A broker that has just started, on a machine that is busy, asks for patience."""
    deadline = time.monotonic() + 20
    while True:
        try:
            peer.call(message, timeout=10)
        except SystemBusy:
            assert time.monotonic() < deadline, "busy all the time"
            time.sleep(0.2)
        else:
            return


def runtime_of(peer: BlockingPeer) -> dict[str, str]:
    table = peer.call(GetRuntimeInfo(), timeout=10).table
    return {re.sub("^commitLogDiskRatio_.*", "commitLogDiskRatio_", k): v for k, v in table.items()}


def test_the_runtime_table(both: tuple[BlockingPeer, BlockingPeer]) -> None:
    theirs, own = map(runtime_of, both)
    assert theirs.keys() >= READ_BY_TOOLS
    assert theirs.keys() - own.keys() == LEFT_OUT.keys()
    assert not READ_BY_TOOLS - own.keys()
    for name in theirs.keys() & own.keys():
        if _NUMBER.fullmatch(theirs[name]):
            assert _NUMBER.fullmatch(own[name]), (name, theirs[name], own[name])
    assert abs(float(theirs["commitLogDiskRatio"]) - float(own["commitLogDiskRatio"])) < 0.05


def test_settings_that_tools_look_at(both: tuple[BlockingPeer, BlockingPeer]) -> None:
    theirs, own = (peer.call(GetBrokerConfig(), timeout=10).properties for peer in both)
    assert not CONFIGS_READ - own.keys()
    assert not CONFIGS_READ - theirs.keys() - {"filterServerNums"}  # 4.x had that
    assert own["clientCallbackExecutorThreads"] == theirs["clientCallbackExecutorThreads"]


def test_counts_of_a_minute_an_hour_a_day(both: tuple[BlockingPeer, BlockingPeer]) -> None:
    """Each window is a difference of samples; the first of them comes after some ten seconds."""

    def windows(peer: BlockingPeer, name: str, key: str) -> tuple[StatsItem | None, ...]:
        try:
            said = peer.call(GetBrokerStats(name=name, key=key), timeout=10)
        except BrokerFailure:  # RocketMQ counts a topic a moment after its first message
            return None, None, None
        return said.minute, said.hour, said.day

    asked = {
        "TOPIC_PUT_NUMS": TOPIC,
        "GROUP_GET_NUMS": f"{TOPIC}@{GROUP}",
    }
    deadline = time.monotonic() + 40
    while True:
        found = [windows(peer, *one)[0] for one in asked.items() for peer in both]
        if all(one is not None and one.sum == SENT for one in found):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    for one in asked.items():
        theirs, own = (windows(peer, *one) for peer in both)
        assert [each is None for each in theirs] == [each is None for each in own]
        minutes = [each[0] for each in (theirs, own)]
        assert all(minute is not None and minute.tps > 0 for minute in minutes)
        averages = [minute.average for minute in minutes if minute is not None]
        assert averages[0] == pytest.approx(averages[1]), one
