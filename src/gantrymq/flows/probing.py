"""Asking brokers that could not be reached whether they can be by now.

RocketMQ: LatencyFaultToleranceImpl.detectByOneRound.
"""

from __future__ import annotations

from typing import Protocol

from gantrymq.errors import GantryError, ReplyError
from gantrymq.protocol.offsets import GetMaxOffset
from gantrymq.rules.fault_avoidance import PROBE_TIMEOUT, FaultAvoidance
from gantrymq.runtime import Runtime


class Known(Protocol):
    """Where brokers are, and what they have."""

    def master(self, broker: str) -> str | None:
        """The broker's address."""
        ...

    def topic_at(self, broker: str) -> str | None:
        """A topic that the broker has."""
        ...


async def probe_round(runtime: Runtime, faults: FaultAvoidance, known: Known) -> None:
    """Ask every broker whose turn it is; those that no route names any more are forgotten."""
    for broker in faults.due_for_probe():
        address, topic = known.master(broker), known.topic_at(broker)
        if address is None or topic is None:
            faults.forget(broker)
            continue
        question = GetMaxOffset(topic=topic, queue_id=0)
        try:
            await runtime.call(address, question, timeout=PROBE_TIMEOUT)
        except ReplyError:
            pass  # it refuses, but it is there
        except GantryError:
            continue
        faults.found_reachable(broker)
