"""What brokers take and what they do not, asked of them before anything is sent."""

from __future__ import annotations

from typing import Final

from gantrymq.errors import GantryError
from gantrymq.protocol.configs import GetBrokerConfig
from gantrymq.runtime import Runtime

_LONGEST: Final = "timerMaxDelaySec"


async def longest_delay(runtime: Runtime, address: str, *, timeout: float) -> float | None:
    """How many seconds ahead a broker takes messages that name a time.

    None where it does not say: it may be too old, or tell its settings to administrators alone.
    Then it refuses by itself what it does not take.
    """
    try:
        said = (await runtime.call(address, GetBrokerConfig(), timeout=timeout)).properties
        return float(said[_LONGEST])
    except (GantryError, KeyError, ValueError):
        return None
