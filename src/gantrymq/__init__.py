"""A message platform in Python that speaks Apache RocketMQ's protocol; importing it starts nothing.

```python
import gantrymq as gantry

with gantry.Producer("rmq://localhost:9876") as producer:
    producer.send("orders", b"hello")
```

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gantrymq import errors as errors
    from gantrymq.client.admin import Admin as Admin
    from gantrymq.client.admin import AsyncAdmin as AsyncAdmin
    from gantrymq.client.consumer import AsyncConsumer as AsyncConsumer
    from gantrymq.client.consuming import DrainReport as DrainReport
    from gantrymq.client.hooks import ConsumeHook as ConsumeHook
    from gantrymq.client.hooks import SendHook as SendHook
    from gantrymq.client.producer import AsyncProducer as AsyncProducer
    from gantrymq.client.pull_consumer import AsyncPullConsumer as AsyncPullConsumer
    from gantrymq.client.reader import AsyncReader as AsyncReader
    from gantrymq.client.reader import Reader as Reader
    from gantrymq.client.simple_consumer import AsyncSimpleConsumer as AsyncSimpleConsumer
    from gantrymq.client.simple_consumer import PoppedMessage as PoppedMessage
    from gantrymq.client.simple_consumer import SimpleConsumer as SimpleConsumer
    from gantrymq.client.sync_consumer import Consumer as Consumer
    from gantrymq.client.sync_producer import Producer as Producer
    from gantrymq.client.sync_pull_consumer import PullConsumer as PullConsumer
    from gantrymq.client.table_view import AsyncTableView as AsyncTableView
    from gantrymq.client.table_view import TableView as TableView
    from gantrymq.model import Message as Message
    from gantrymq.model import MessageQueue as MessageQueue
    from gantrymq.model import ReceivedMessage as ReceivedMessage
    from gantrymq.model import SendReceipt as SendReceipt
    from gantrymq.model import SendStatus as SendStatus
    from gantrymq.model import Subscription as Subscription
    from gantrymq.protocol.transactions import Decision as Decision
    from gantrymq.rules.allocation import EVENLY as EVENLY
    from gantrymq.rules.allocation import IN_TURN as IN_TURN
    from gantrymq.rules.allocation import by_config as by_config
    from gantrymq.rules.allocation import by_consistent_hash as by_consistent_hash
    from gantrymq.rules.allocation import by_machine_room as by_machine_room
    from gantrymq.rules.allocation import by_nearby_machine_room as by_nearby_machine_room
    from gantrymq.rules.redelivery import GIVE_UP as GIVE_UP
    from gantrymq.rules.redelivery import GiveUp as GiveUp
    from gantrymq.rules.redelivery import RetryLater as RetryLater
    from gantrymq.rules.redelivery import RetryPolicy as RetryPolicy
    from gantrymq.rules.selectors import select_at_random as select_at_random
    from gantrymq.rules.selectors import select_by_hash as select_by_hash
    from gantrymq.rules.selectors import select_in_rooms as select_in_rooms

__version__ = "0.1.0"

_PLACES: Final = {
    "gantrymq.client.consumer": ("AsyncConsumer",),
    "gantrymq.client.consuming": ("DrainReport",),
    "gantrymq.client.admin": ("Admin", "AsyncAdmin"),
    "gantrymq.client.hooks": ("ConsumeHook", "SendHook"),
    "gantrymq.client.producer": ("AsyncProducer",),
    "gantrymq.client.sync_consumer": ("Consumer",),
    "gantrymq.client.sync_producer": ("Producer",),
    "gantrymq.client.pull_consumer": ("AsyncPullConsumer",),
    "gantrymq.client.reader": ("AsyncReader", "Reader"),
    "gantrymq.client.simple_consumer": (
        "AsyncSimpleConsumer", "PoppedMessage", "SimpleConsumer",
    ),
    "gantrymq.client.sync_pull_consumer": ("PullConsumer",),
    "gantrymq.client.table_view": ("AsyncTableView", "TableView"),
    "gantrymq.model": (
        "Message", "MessageQueue", "ReceivedMessage", "SendReceipt", "SendStatus", "Subscription",
    ),
    "gantrymq.protocol.transactions": ("Decision",),
    "gantrymq.rules.allocation": (
        "EVENLY", "IN_TURN", "by_config", "by_consistent_hash", "by_machine_room",
        "by_nearby_machine_room",
    ),
    "gantrymq.rules.selectors": ("select_at_random", "select_by_hash", "select_in_rooms"),
    "gantrymq.rules.redelivery": ("GIVE_UP", "GiveUp", "RetryLater", "RetryPolicy"),
}  # fmt: skip
_PLACE_OF: Final = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    *sorted(_PLACE_OF),
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("gantrymq.errors")
    place = _PLACE_OF.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
