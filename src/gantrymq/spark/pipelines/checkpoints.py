"""What the checkpoints of a pipeline say: which batch of which flow was begun and not ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gantrymq.errors import ConfigError
from gantrymq.spark.offsets import Positions, from_json

_FEW = 8


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A batch that was begun and not ended."""

    flow: str
    batch: int
    starts: Positions
    ends: Positions

    def __str__(self) -> str:
        parts = [
            f"{queue.topic}[{queue.broker}:{queue.queue_id}] {self.starts.get(queue, 0):,}"
            f" to {end:,}"
            for queue, end in sorted(self.ends.items())
            if self.starts.get(queue, 0) < end
        ]
        more = f", and {len(parts) - _FEW} queues more" if len(parts) > _FEW else ""
        told = f": offsets {', '.join(parts[:_FEW])}{more}" if parts else ""
        return f"flow {self.flow}, batch {self.batch}{told}"


def unfinished(storage: Path) -> Iterator[Unfinished]:
    """Such batches; the next run begins with them."""
    for offsets in sorted(storage.glob("_checkpoints/**/offsets")):
        begun, ended = _newest(offsets), _newest(offsets.parent / "commits")
        if begun is not None and begun != ended:
            flow = offsets.parent.parent.name  # <flow>/<number of its checkpoint>/offsets
            starts = _positions(offsets / str(begun - 1)) if begun else {}
            yield Unfinished(flow, begun, starts, _positions(offsets / str(begun)))


def _newest(directory: Path) -> int | None:
    numbers = [int(path.name) for path in directory.glob("*") if path.name.isdecimal()]
    return max(numbers, default=None)


def _positions(path: Path) -> Positions:
    """The offsets of a batch; none where they are not those of queues."""
    found: Positions = {}
    try:
        lines = path.read_text("utf-8").splitlines()[2:]  # behind the version and the settings
    except OSError:
        return found
    for line in lines:
        try:
            tree = json.loads(line)
            found |= from_json(tree, str(path)) if isinstance(tree, dict) else {}
        except (ValueError, ConfigError):
            continue
    return found
