"""The checkpoint: up to where each part of the store is known to be on the disk.

```
 0 store time of the newest flushed message i64     24 master's flushed offset i64
 8 … of the newest in the consume queues    i64     32 confirmed log offset    i64
16 … of the newest in the index             i64     40 zeros up to 4096
```

RocketMQ starts the recovery after a crash at a file whose first message is older than the times, by
3 seconds. A time does not say exactly where, and a clock that is set back makes it say something
wrong. So we write, as the confirmed offset, the log offset up to which log, queues and index all
are on the disk, and begin there. RocketMQ's broker writes its own idea of that field as it starts:
the end that it found, which serves as well.

RocketMQ: StoreCheckpoint.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

from gantrymq.store.disk import Disk, File

SIZE: Final = 4096
SLACK_MS: Final = 3000

_FIELDS: Final = Struct(">qqqqq")


class Checkpoint:
    """The file, with its fields as attributes."""

    log_ms: int
    queues_ms: int
    index_ms: int
    master_flushed_offset: int
    confirmed_offset: int

    def __init__(self, disk: Disk, path: Path) -> None:
        sizes = {entry.name: entry.size for entry in disk.entries(path.parent)}
        whole = sizes.get(path.name) == SIZE
        self._file: File = disk.open(path, SIZE) if whole else disk.create(path, SIZE)
        (
            self.log_ms,
            self.queues_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        ) = _FIELDS.unpack_from(self._file.view)

    @property
    def sure_ms(self) -> int:
        """A message older than this is in the log and in its queue, if clocks never jump."""
        return max(0, min(self.log_ms, self.queues_ms) - SLACK_MS)

    def save(self) -> None:
        """Write the fields to the disk."""
        fields = _FIELDS.pack(
            self.log_ms,
            self.queues_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        )
        self._file.write(0, fields)
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
