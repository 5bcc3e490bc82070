"""All consume queues of a store: `consumequeue/<topic>/<queue id>/`, opened at the start.

A slot holds a queue together with the offset that its next message gets. The two differ while
messages are in the log but not yet in their queue: with sync flush they get there once the disk has
them, so that nobody reads what a power cut could take back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from gantrymq.errors import StoreError
from gantrymq.store.disk import Disk
from gantrymq.store.shapes import Queue
from gantrymq.wire.plain_record import topic_part

MakeQueue: TypeAlias = Callable[[Path], Queue]
"""Opens the consume queue whose files are in a directory, or begins it."""


_MANY: Final = 32
"""Queues that are brought to the disk together: one by one each would wait for it."""


class Slot:
    """One queue, and what comes next in it."""

    __slots__ = ("append", "next_offset", "queue", "queue_id", "topic", "topic_part")

    def __init__(self, topic: str, queue_id: int, queue: Queue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue = queue
        self.append = queue.append
        self.next_offset = queue.max_offset
        self.topic_part = topic_part(topic)
        """Its topic in a plain record; None where it does not fit one."""

    def __repr__(self) -> str:
        return f"<Slot {self.topic}[{self.queue_id}], next offset {self.next_offset}>"


class QueueTable:
    """The queues by topic and id.

    RocketMQ: ConsumeQueueStore.
    """

    __slots__ = ("_directory", "_disk", "_make", "changes", "slots")

    def __init__(self, disk: Disk, directory: Path, make: MakeQueue) -> None:
        self._disk = disk
        self._directory = directory
        self._make = make
        self.slots: dict[tuple[str, int], Slot] = {}
        self.changes = 0
        """How often a queue came or went."""

    def load(self) -> None:
        """Open what the directory holds; what does not look like a queue is passed over."""
        for topic in self._disk.entries(self._directory):
            if topic.is_directory:
                self._load_topic(topic.name)

    def obtain(self, topic: str, queue_id: int) -> Slot:
        """The queue's slot; a queue that does not exist is begun."""
        slot = self.slots.get((topic, queue_id))
        return slot if slot is not None else self._add(topic, queue_id)

    def remove_topic(self, topic: str) -> None:
        """Remove the topic's queues, with their files."""
        self.changes += 1
        for slot in [slot for slot in self if slot.topic == topic]:
            del self.slots[topic, slot.queue_id]
            slot.queue.destroy()
        if _is_name(topic):
            self._disk.remove_tree(self._directory / topic)

    def truncate(self, log_end: int) -> None:
        """Forget what ends after `log_end` in the log."""
        for slot in self:
            slot.queue.truncate(log_end)
            slot.next_offset = slot.queue.max_offset

    def correct_min(self, log_start: int) -> None:
        """Forget what is before the start of the log."""
        for slot in self:
            slot.queue.correct_min(log_start)

    def sync(self) -> None:
        """Return once all entries will survive the machine; may run on another thread."""
        queues = [slot.queue for slot in self if slot.queue.unsynced]
        if len(queues) >= _MANY:
            for queue in queues:
                queue.write_out()
            self._disk.hasten(self._directory)
        for queue in queues:
            queue.sync()

    @property
    def max_log_offset(self) -> int:
        """Where the last record that is in its queue ends; -1 where none is."""
        return max((slot.queue.max_log_offset for slot in self), default=-1)

    def totals(self) -> dict[str, dict[str, int]]:
        """The next offset by topic and queue id, to be compared or kept as JSON.

        A queue that never had a message may have no files, so it is not there.
        """
        found: dict[str, dict[str, int]] = {}
        for slot in self:
            if slot.queue.max_offset:
                found.setdefault(slot.topic, {})[str(slot.queue_id)] = slot.queue.max_offset
        return found

    def names(self) -> dict[str, list[int]]:
        """The ids of all queues that have or had a message, by topic."""
        found: dict[str, list[int]] = {}
        for slot in self:
            if slot.queue.max_offset:
                found.setdefault(slot.topic, []).append(slot.queue_id)
        return found

    def close(self) -> None:
        """Close all queues."""
        for slot in self:
            slot.queue.close()
        self.slots.clear()

    def __iter__(self) -> Iterator[Slot]:
        return iter(tuple(self.slots.values()))

    def _load_topic(self, topic: str) -> None:
        for entry in self._disk.entries(self._directory / topic):
            if entry.is_directory and entry.name.isdecimal():
                self._add(topic, int(entry.name))

    def _add(self, topic: str, queue_id: int) -> Slot:
        if queue_id < 0 or not _is_name(topic):
            raise StoreError(f"{topic!r:.200}[{queue_id}] cannot be a directory's name")
        slot = Slot(topic, queue_id, self._make(self._directory / topic / str(queue_id)))
        self.slots[topic, queue_id] = slot
        self.changes += 1
        return slot


def _is_name(topic: str) -> bool:
    return topic not in ("", ".", "..") and not any(mark in topic for mark in "/\\\0")
