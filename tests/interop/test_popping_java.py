"""RocketMQ's own push consumers popping from `gantry up`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jars
import pytest
from gantry import Gantry
from peer import JavaPeer
from test_broker_groups_java import Java, bodies, numbered

from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.assignments import RequestMode, SetRequestMode
from gantrymq.protocol.enums import MessageRequestMode
from gantrymq.protocol.group_settings import GroupSettings, PutGroup
from gantrymq.protocol.names import POPS_TOPIC, pop_retry_topic


@pytest.fixture
def java(peers: Callable[[str], JavaPeer], ours: Gantry) -> Java:
    return Java(peers(jars.CURRENT), ours)


def pops(java: Java, topic: str, group: str) -> None:
    """Have the group pop that topic."""
    setting = RequestMode(topic=topic, group=group, mode=MessageRequestMode.POP)
    with BlockingPeer.connect(java.gantry.broker) as peer:
        peer.call(PutGroup(settings=GroupSettings(group=group)), timeout=10)
        peer.call(SetRequestMode(setting=setting), timeout=10)


def test_two_members_share_what_they_pop_and_a_failure_comes_again(java: Java) -> None:
    topic = f"java_pops_{time.time_ns()}"
    group = f"g_{topic}"
    java.send(topic, numbered(4))
    pops(java, topic, group)
    how: dict[str, Any] = {"pop": True, "fails": 1}
    names = [f"{topic}_{n}" for n in range(2)]
    for name in names:
        java.start("push", name, topic, group, **how)
    taken: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while len(taken) < 8 and time.monotonic() < deadline:
        for name in names:
            taken += java.take(name, 8, wait_ms=500)
    java.stop(*names)
    first = [one for one in taken if not one["reconsume_times"]]
    again = [one for one in taken if one["reconsume_times"]]
    assert sorted(bodies(first)) == sorted(bodies(again)) == numbered(4)
    assert {one["topic"] for one in taken} == {topic}
    assert {one["reconsume_times"] for one in again} == {1}
    assert {POPS_TOPIC, pop_retry_topic(group, topic)} <= java.topics()
