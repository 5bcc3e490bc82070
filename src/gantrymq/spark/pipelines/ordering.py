"""The original order of messages: the one in which brokers stored them.

In a queue it is the order of offsets, always. Between queues it is that of store times, and for
the same millisecond at one broker that of places in its log. A broker's clock may be set back; a
message then counts as stored when the latest one before it in its queue was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

QUEUE: Final = ("topic", "broker", "queue_id")
TIME: Final = "store_timestamp"
LOG: Final = "commit_log_offset"


def in_original_order(table: pa.Table) -> pa.Table:
    """The rows in their original order, each message once."""
    order = original_order(table)
    queue, offset = codes(table, QUEUE)[order], ints(table, "queue_offset")[order]
    again = np.zeros(len(order), bool)
    again[1:] = (queue[1:] == queue[:-1]) & (offset[1:] == offset[:-1])
    return table.take(pa.array(order[~again]))


def original_order(table: pa.Table) -> Ints:
    """The numbers of the rows in their original order."""
    queue, offset = codes(table, QUEUE), ints(table, "queue_offset")
    place = ints(table, LOG) if LOG in table.schema.names else offset
    times = steady(queue, offset, ints(table, TIME) // 1000)
    return np.lexsort((offset, queue, place, codes(table, ("broker",)), times))


def steady(queue: Ints, offset: Ints, times: Ints) -> Ints:
    """The times, none of them earlier than one before it in its queue."""
    if not len(times):
        return times
    by_queue = np.lexsort((offset, queue))
    since = times[by_queue] - times.min()
    apart = queue[by_queue] * (since.max() + 1)  # so that no queue's times reach into the next's
    found = np.empty_like(times)
    found[by_queue] = np.maximum.accumulate(since + apart) - apart + times.min()
    return found


def codes(table: pa.Table, names: Sequence[str]) -> Ints:
    """A number for what these columns hold together."""
    found = np.zeros(table.num_rows, np.int64)
    for name in names:
        if name in table.schema.names:
            column = table.column(name).combine_chunks().dictionary_encode()
            found = found * max(1, len(column.dictionary)) + column.indices.to_numpy()
    return found


def ints(table: pa.Table, name: str) -> Ints:
    """A column of numbers or times."""
    column: Ints = table.column(name).cast(pa.int64()).to_numpy()
    return column
