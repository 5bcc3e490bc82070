"""What a topic's messages are like, by looking at some of them."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from gantrymq.cli import views
from gantrymq.cli.views import Column, Page, Table

if TYPE_CHECKING:
    from gantrymq.model import ReceivedMessage

_MOST: Final = 10
_BAR: Final = 30
_KEYS_KEPT: Final = 100_000


class Sample:
    """Counts over messages."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.without_key = 0
        self.first: int | None = None
        self.last: int | None = None
        self.sizes: Counter[int] = Counter()
        self.tags: Counter[str] = Counter()
        self.hosts: Counter[str] = Counter()
        self.keys: set[str] = set()

    def add(self, message: ReceivedMessage) -> None:
        """Count one."""
        size, when = len(message.stored.body), message.stored.store_ms
        self.messages += 1
        self.bytes += size
        self.sizes[max(0, math.ceil(math.log2(size))) if size else 0] += 1
        self.tags[message.tag or "(none)"] += 1
        self.hosts[message.born_host.rpartition(":")[0]] += 1
        self.without_key += not message.keys
        if len(self.keys) < _KEYS_KEPT:
            self.keys.update(message.keys)
        self.first = when if self.first is None else min(self.first, when)
        self.last = when if self.last is None else max(self.last, when)

    def page(self, topic: str) -> Page:
        """What was counted."""
        mean = self.bytes / self.messages if self.messages else None
        facts: list[tuple[Column, Any]] = [
            (Column("topic"), topic),
            (Column("sampled", "count"), self.messages),
            (Column("first_stored", "time"), self.first),
            (Column("last_stored", "time"), self.last),
            (Column("mean_size", "size"), mean),
            (Column("distinct_keys", "count"), len(self.keys)),
            (Column("without_key", "count"), self.without_key),
        ]
        sizes = {
            f"up to {views.size_text(2**power)}": count
            for power, count in sorted(self.sizes.items())
        }
        tables = {
            "sizes": self._table("size", list(sizes.items())),
            "tags": self._table("tag", self.tags.most_common(_MOST)),
            "senders": self._table("host", self.hosts.most_common(_MOST)),
        }
        return Page(facts, tables, main="tags")

    def _table(self, name: str, counts: list[tuple[str, int]]) -> Table:
        most = max((count for _, count in counts), default=1)
        rows = [
            {
                name: key,
                "messages": count,
                "share": count / self.messages,
                "bar": "█" * max(1, round(count / most * _BAR)),
            }
            for key, count in counts
        ]
        columns = [Column(name), Column("messages", "count"), Column("share", "ratio")]
        return Table([*columns, Column("bar", title=" ", short=True)], rows, empty="no message")
