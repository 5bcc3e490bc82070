"""The version of a table that is kept in more than one place."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from gantrymq.protocol.base import Long, declared, named
from gantrymq.protocol.text_forms import json_in_text


@declared
class DataVersion:
    """Which state a table is in: equal versions mean equal tables.

    RocketMQ: DataVersion.
    """

    state: Long = named("stateVersion", default=0)
    timestamp_ms: Long = named("timestamp", default=0)
    counter: Long = 0


DataVersionText: TypeAlias = Annotated[DataVersion, json_in_text(DataVersion)]
"""A data version as JSON in a header field."""
