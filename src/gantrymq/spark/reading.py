"""What a task does to read: its ranges of queues as record batches.

Connections, and what is known of addresses, stay in the worker process from task to task: a
micro-batch does not connect anew. So does what `gc.freeze` sets aside, once: Spark's workers
collect garbage after every task, and would go through every module of pandas and pyarrow each time.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from gantrymq.client.arrow import Rows
from gantrymq.client.config import ClientConfig
from gantrymq.client.reader import Losses, Places, together
from gantrymq.errors import ConnectFailed, GantryError
from gantrymq.flows import reading
from gantrymq.flows.reading import Piece, ReadTerms, Stretch
from gantrymq.net.lending import BlockingPool, BlockingRuntime
from gantrymq.protocol import names
from gantrymq.rules.filtering import parse_tags
from gantrymq.runtime import iterate_blocking
from gantrymq.spark.planning import Share
from gantrymq.spark.projecting import Projection
from gantrymq.spark.repeats import Repeats

log = logging.getLogger("gantrymq.spark")

_GONE: Final = "the broker does not have them, though it has what comes after"
_frozen = threading.Event()
_pools: dict[ClientConfig, BlockingPool] = {}


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, shares: Sequence[Share]) -> None:
        super().__init__(None)
        self.shares = tuple(shares)

    def __repr__(self) -> str:
        parts = [str(stretch) for share in self.shares for stretch in share.stretches]
        return f"<Ranges {'; '.join(parts)}>"


def freeze() -> None:
    """Set aside what is loaded, so that collecting garbage does not go through it; once."""
    if not _frozen.is_set():
        _frozen.set()
        gc.freeze()


def pool_of(config: ClientConfig) -> BlockingPool:
    """The connections of this process for clients of that kind."""
    pool = _pools.get(config)
    if pool is None:
        pool = _pools[config] = BlockingPool(
            options=config.peer_options,
            tls=config.client_tls,
            connect_timeout=config.connect_timeout,
            back_off=_back_off,
        )
    return pool


def _back_off(failures: int) -> float:
    """A task that waits for a broker is to see soon that it is back."""
    return min(1.0, 0.1 * failures)


class TaskReader:
    """Reads ranges; what travels to the workers."""

    def __init__(
        self,
        config: ClientConfig,
        terms: ReadTerms,
        projection: Projection,
        *,
        fails: bool = True,
        window: int | None = None,
    ) -> None:
        """`window` is how many messages before a range are looked at to find repeats; or None."""
        self._config = config
        self._terms = terms
        self._projection = projection
        self._fails = fails
        self._window = window
        self._space = config.namespace or ""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one partition."""
        freeze()
        assert isinstance(partition, Ranges)
        return self._batches(partition)

    def _batches(self, partition: Ranges) -> Iterator[pa.RecordBatch]:
        runtime = BlockingRuntime(pool_of(self._config))
        places = Places(self._config, runtime)
        losses = Losses("fail" if self._fails else "skip")
        tags = (
            parse_tags(self._terms.expression)
            if self._terms.expression_type == reading.TAG
            else None
        )
        for share in partition.shares:
            queues = [stretch.queue for stretch in share.stretches]
            places.learn(queues[0], share.addresses)
            repeats = None if self._window is None else self._repeats(runtime, places, share)
            found = self._pieces(runtime, places, share.stretches, losses)
            for pieces, _ in iterate_blocking(together(found)):
                rows = Rows(pieces, queues)
                self._check(rows, share, losses)
                batch, mask = self._projection.batch(rows, self._plain)
                if tags is not None and tags.tags:
                    mask = _both(mask, rows.tagged(tags))
                if repeats is not None:
                    mask = _both(mask, repeats.fresh(rows, pieces, queues))
                if mask is not None:
                    batch = batch.filter(mask)
                if len(batch):
                    yield batch

    async def _pieces(
        self,
        runtime: BlockingRuntime,
        places: Places,
        stretches: Sequence[Stretch],
        losses: Losses | None,
    ) -> AsyncIterator[tuple[Piece, Sequence[Stretch]]]:
        async def where(broker: str, attempt: int) -> str:
            """A broker that is away is in no route: it is looked for where it was."""
            try:
                return await places.where(broker, attempt)
            except GantryError as error:
                known = places.addresses(broker)
                if not known:
                    raise ConnectFailed(f"broker {broker} is in no route: {error}") from error
                return known[sorted(known)[attempt % len(known)]]

        async for one in reading.read(runtime, where, stretches, self._terms):
            if isinstance(one, Piece):
                yield one, stretches
            elif losses is not None:
                queue = stretches[one.number].queue
                losses.note([(queue, one.start, one.end, one.why)])

    def _repeats(self, runtime: BlockingRuntime, places: Places, share: Share) -> Repeats:
        """What stands before the ranges, so far as repeats are looked for; it may be gone."""
        repeats = Repeats()
        before = [
            Stretch(queue, max(0, start - (self._window or 0)), start)
            for queue, start, _ in share.stretches
        ]
        queues = [stretch.queue for stretch in before]
        found = self._pieces(runtime, places, before, None)
        for pieces, _ in iterate_blocking(together(found)):
            repeats.fresh(Rows(pieces, queues), pieces, queues)
        return repeats

    def _check(self, rows: Rows, share: Share, losses: Losses) -> None:
        if not self._terms.filtered:
            stretches = share.stretches
            losses.note([(stretches[n].queue, a, b, _GONE) for n, a, b in rows.holes()])

    def _plain(self, topic: str) -> str:
        return names.unwrap(self._space, topic) if self._space else topic


def _both(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    """What both masks keep; None keeps everything."""
    if one is None or other is None:
        return other if one is None else one
    return pa.compute.and_(one, other)
