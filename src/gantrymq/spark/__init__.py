"""Gantry as a source and a sink for Apache Spark; importing it imports no Spark.

```python
import gantrymq.spark

spark = gantrymq.spark.session("my job")
reader = spark.read.format("rocketmq").options(nameServer="localhost:9876", topic="orders")
reader.load().groupBy("tags").count().show()
```

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gantrymq.spark.launching import session as session
    from gantrymq.spark.listener import Lag as Lag
    from gantrymq.spark.listener import ProgressListener as ProgressListener
    from gantrymq.spark.source import RocketMQDataSource as RocketMQDataSource

_PLACE_OF: Final = {
    "Lag": "gantrymq.spark.listener",
    "ProgressListener": "gantrymq.spark.listener",
    "RocketMQDataSource": "gantrymq.spark.source",
    "session": "gantrymq.spark.launching",
}

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
