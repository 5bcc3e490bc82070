"""All that a store has on disk, opened together and made to agree.

```
<store>/lock abort checkpoint         who has it, how it was left, what is surely on the disk
        commitlog/<offset>            every message
        consumequeue/<topic>/<id>/…   where the messages of each queue are
        index/<time>                  which messages have a key
        clean-stop.json               ours: after a clean stop, what to expect at the next start
        queues.json                   ours: which queues there are, so that lost ones are missed
        config/                       not the store's business
```
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import orjson

from gantrymq.rules.delay import DelayLevels
from gantrymq.store.checkpoint import Checkpoint
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.compaction import Compaction
from gantrymq.store.config import StoreConfig
from gantrymq.store.disk import Disk, replace_whole
from gantrymq.store.dispatch import Dispatcher
from gantrymq.store.lock import StoreLock
from gantrymq.store.queue_table import MakeQueue, QueueTable
from gantrymq.store.recovery import CleanStop, Recovered, Recovery, Report
from gantrymq.store.segment import Segments
from gantrymq.store.shapes import Index

_NOTE: Final = "clean-stop.json"
_QUEUES: Final = "queues.json"


class MakeParts(Protocol):
    """Makes the parts of a store that keep entries about messages."""

    def queues(
        self, disk: Disk, directory: Path, config: StoreConfig, store_time: Callable[[int], int], /
    ) -> MakeQueue:
        """What opens each consume queue under `directory`."""
        ...

    def index(self, disk: Disk, directory: Path, config: StoreConfig, /) -> Index | None:
        """The key index in `directory`, or None where none is kept."""
        ...


class StoreFiles:
    """The open files of a store, recovered."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        parts: MakeParts,
        *,
        disk: Disk,
        monotonic: Callable[[], float],
        report: Report,
        delays: DelayLevels,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self._noted = -1
        disk.make_directory(directory)
        self._lock = StoreLock(disk, directory)
        try:
            self.checkpoint = Checkpoint(disk, directory / "checkpoint")
            segments = Segments(disk, directory / "commitlog", config.log.segment_size)
            segments.load()
            self.log = CommitLog(segments)
            queues = directory / "consumequeue"
            make = parts.queues(disk, queues, config, self.log.store_time)
            self.queues = QueueTable(disk, queues, make)
            self.queues.load()
            self.index = parts.index(disk, directory / "index", config)
            self.dispatcher = Dispatcher(self.queues, self.index, delays)
            self.recovered = self._recover(monotonic, report)
            self.compaction = Compaction(
                disk, directory / "compaction", log=self.log, queues=self.queues,
                dispatcher=self.dispatcher, report=report,
            )  # fmt: skip
            self.compaction.load()
        except BaseException:
            self._lock.release(in_order=False)
            raise

    def save_checkpoint(self, end: int, newest_ms: int) -> None:
        """Note that everything up to `end` of the log is on the disk, once it is.

        Every message up to `end` has to be in the log, on the disk, and in its queue.
        """
        changes = self.queues.changes
        self.queues.sync()
        if self._noted != changes:
            replace_whole(self.disk, self.directory / _QUEUES, orjson.dumps(self.queues.names()))
            self._noted = changes
        point = self.checkpoint
        if self.index is not None:
            self.index.sync()
            point.index_ms = self.index.max_store_ms
        point.confirmed_offset, point.log_ms, point.queues_ms = end, newest_ms, newest_ms
        point.save()
        for segment in self.log.segments.files[:-1]:
            segment.file.leave_memory()

    def leave_note(self) -> None:
        """Write down what the next start can rely on."""
        note = CleanStop(
            log_end=self.log.end,
            index_end=-1 if self.index is None else self.index.max_log_offset,
            totals=self.queues.totals(),
        )
        note.leave(self.disk, self.directory / _NOTE)

    def close(self, *, in_order: bool) -> None:
        """Close everything; `in_order` says that all of it is on the disk and noted."""
        try:
            self.compaction.close()
            self.queues.close()
            if self.index is not None:
                self.index.close()
            self.log.segments.close()
            self.checkpoint.close()
        finally:
            self._lock.release(in_order=in_order)

    def _recover(self, monotonic: Callable[[], float], report: Report) -> Recovered:
        note = CleanStop.take(self.disk, self.directory / _NOTE)
        found = Recovery(
            log=self.log, queues=self.queues, index=self.index, dispatcher=self.dispatcher,
            checkpoint=self.checkpoint, report=report, known=self._known(), monotonic=monotonic,
        ).run(after_crash=self._lock.after_crash, note=note)  # fmt: skip
        for segment in self.log.segments.files:
            if segment.end > found.start:
                segment.file.sync()
        self.log.segments.sync_names()
        self.save_checkpoint(found.end, max(self.checkpoint.log_ms, 1))
        self.disk.sync_directory(self.directory)
        return found

    def _known(self) -> dict[str, list[int]]:
        try:
            found = orjson.loads(self.disk.read(self.directory / _QUEUES))
            return {str(topic): [int(queue_id) for queue_id in ids] for topic, ids in found.items()}
        except (FileNotFoundError, ValueError, AttributeError, TypeError):
            return {}
