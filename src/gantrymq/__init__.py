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
    from gantrymq.client.admin import Admin as Admin
    from gantrymq.client.admin import AsyncAdmin as AsyncAdmin
    from gantrymq.client.consumer import AsyncConsumer as AsyncConsumer
    from gantrymq.client.consuming import DrainReport as DrainReport
    from gantrymq.client.producer import AsyncProducer as AsyncProducer
    from gantrymq.client.pull_consumer import AsyncPullConsumer as AsyncPullConsumer
    from gantrymq.client.reader import AsyncReader as AsyncReader
    from gantrymq.client.reader import Reader as Reader
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
    from gantrymq.rules.redelivery import GIVE_UP as GIVE_UP
    from gantrymq.rules.redelivery import GiveUp as GiveUp
    from gantrymq.rules.redelivery import RetryLater as RetryLater
    from gantrymq.rules.redelivery import RetryPolicy as RetryPolicy

__version__ = "0.1.0"

_PLACES: Final = {
    "gantrymq.client.consumer": ("AsyncConsumer",),
    "gantrymq.client.consuming": ("DrainReport",),
    "gantrymq.client.admin": ("Admin", "AsyncAdmin"),
    "gantrymq.client.producer": ("AsyncProducer",),
    "gantrymq.client.sync_consumer": ("Consumer",),
    "gantrymq.client.sync_producer": ("Producer",),
    "gantrymq.client.pull_consumer": ("AsyncPullConsumer",),
    "gantrymq.client.reader": ("AsyncReader", "Reader"),
    "gantrymq.client.sync_pull_consumer": ("PullConsumer",),
    "gantrymq.client.table_view": ("AsyncTableView", "TableView"),
    "gantrymq.model": (
        "Message", "MessageQueue", "ReceivedMessage", "SendReceipt", "SendStatus", "Subscription",
    ),
    "gantrymq.rules.redelivery": ("GIVE_UP", "GiveUp", "RetryLater", "RetryPolicy"),
}  # fmt: skip
_PLACE_OF: Final = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    *sorted(_PLACE_OF),
]


def __getattr__(name: str) -> Any:
    place = _PLACE_OF.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACE_OF})
