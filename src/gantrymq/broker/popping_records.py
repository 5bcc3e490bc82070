"""What members of groups have popped and not acknowledged, kept so that a crash forgets none of it.

Of each queue a group pops there is the offset of the next message to be given, and what was given
and is out: hidden, until it is acknowledged or its time is over. A message whose time is over is
stored once more, in the group's retry topic for its topic, where it is popped like any other.

```
            ack
 out ────────────────▶ gone
  │ hide: a new time, and a new handle
  │ time over
  └──────────────────▶ stored in the retry topic, and gone
```

**Crashes.** Every change is a note in a topic of the broker's own, so it is in the log when the
client gets its answer, and is as safe there as a message is. A start takes the state as it was kept
in a file, and the notes that came after it. A message may come twice when the crash fell between
its retry and the note of it; none is lost.

**Offsets.** The group's offset of a queue, as others see it, is where the next pop begins. It is
committed when the disk has the note: an offset that were safer than the note would pass over
messages that nobody remembers to be out. Whoever sets the offset meanwhile, by a reset or a commit,
is obeyed by the next pop.

RocketMQ keeps checkpoints and acknowledgements in `rmq_sys_REVIVE_LOG_<cluster>` instead, as timed
messages. Its broker does not read these notes, nor this one those: what is out when a store changes
hands does not come again, which is a reason to let consumers finish before.

RocketMQ: PopBufferMergeService, PopReviveService, PopConsumerService.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.broker.offsets import FILE as OFFSETS_FILE
from gantrymq.broker.offsets import Offsets, first_offset
from gantrymq.errors import CorruptRecord, GantryError
from gantrymq.protocol.names import POPS_TOPIC, is_retry_topic, pop_retry_topic
from gantrymq.wire import fastjson, properties
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.storing import Storing
    from gantrymq.broker.topics import Topics
    from gantrymq.store.store import Store

log = logging.getLogger("gantrymq.broker")

FILE: Final = "gantryPops.json"
TICK: Final = 0.1
KEEP_INTERVAL: Final = 10.0
MOST_OUT: Final = 100_000
"""Messages of a queue that a group may have out; while there are as many, it gets no more."""
_STALE: Final = 10_000
_AT_ONCE: Final = 1_000
"""Messages that are given back in one turn of the loop."""
_REFUSED_MS: Final = 1_000
"""Until it is tried again to store a message for which there was no room."""
_PROPERTIES: Final = properties.encode({"TAGS": "pop", "WAIT": "false"})
_NOT_AGAIN: Final = (
    properties.MULTI_DISPATCH, properties.MULTI_QUEUE_OFFSET, properties.POP_HANDLE,
    properties.DELAY,
)  # fmt: skip

_TAKEN, _ACKED, _HIDDEN, _MOVED, _DROPPED = "t", "a", "h", "m", "d"

Key: TypeAlias = tuple[str, str, int]
"""Topic, group, and queue id."""


class Out(NamedTuple):
    """A message that is hidden: since when, and for how many ms."""

    pop_ms: int
    invisible_ms: int


class _Queue:
    """What a group has of one queue."""

    __slots__ = ("committed", "epoch", "next", "out")

    def __init__(self, next_: int, committed: int | None) -> None:
        self.next = next_
        """The offset of the next message to be given."""
        self.committed = committed
        """What the table of offsets has, as far as it comes from here."""
        self.epoch = 0
        """Counts how often somebody else set the offset."""
        self.out: dict[int, Out] = {}


class Pops:
    """What is out of all queues, for all groups."""

    def __init__(
        self,
        *,
        store: Store,
        storing: Storing,
        topics: Topics,
        offsets: Offsets,
        keeper: Keeper,
        clock_ms: Callable[[], int],
    ) -> None:
        self.polling: Counter[Key] = Counter()
        """How many requests wait."""
        self._store = store
        self._storing = storing
        self._topics = topics
        self._offsets = offsets
        self._keeper = keeper
        self._clock_ms = clock_ms
        self._queues: dict[Key, _Queue] = {}
        self._due: list[tuple[int, Key, int, int]] = []
        self._uncommitted: deque[tuple[int, Key, int, int]] = deque()
        self._changed = False
        self._keeping: asyncio.Task[None] | None = None

    # --- what handlers ask ----------------------------------------------------------------------

    def position(self, topic: str, group: str, queue_id: int, *, from_end: bool) -> int:
        """The offset of the next message to be given; a new group begins at one of the ends."""
        key = topic, group, queue_id
        queue = self._queues.get(key)
        self._offsets.take_reset(group, topic, queue_id)  # it is in the table, too
        held = self._offsets.query(group, topic, queue_id)
        if queue is None:
            begin = held if held is not None else self._begin(topic, queue_id, from_end=from_end)
            queue = self._queues[key] = _Queue(begin, held)
            if held is None:
                self._move(key, queue, begin)
        elif held is not None and held != queue.committed:
            queue.committed = held
            queue.epoch += 1
            self._move(key, queue, held)
        return queue.next

    def peek(self, topic: str, group: str, queue_id: int) -> int:
        """The same, and nothing changes; a new group would begin at the beginning."""
        queue = self._queues.get((topic, group, queue_id))
        held = self._offsets.query(group, topic, queue_id)
        if queue is not None and held in (None, queue.committed):
            return queue.next
        return first_offset(self._store, topic, queue_id) if held is None else held

    def take(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[int],
        after: int,
        out: Out,
    ) -> int:
        """Messages are given; the next one is at `after`. Where the log ends that says so."""
        key = topic, group, queue_id
        end = self._note([_TAKEN, *key, after, out.pop_ms, out.invisible_ms, list(offsets)])
        queue = self._queues[key]
        for offset in offsets:
            self._hide(key, queue, offset, out)
        self._go_on(key, queue, after, end)
        return end

    def skip(self, topic: str, group: str, queue_id: int, after: int) -> None:
        """Nothing of what comes before `after` is wanted."""
        key = topic, group, queue_id
        self._go_on(key, self._queues[key], after, 0)

    def out(self, topic: str, group: str, queue_id: int, offset: int) -> Out | None:
        """How a message is hidden; None if it is not out."""
        queue = self._queues.get((topic, group, queue_id))
        return None if queue is None else queue.out.get(offset)

    def is_full(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a group has as much out of a queue as it may have."""
        queue = self._queues.get((topic, group, queue_id))
        return queue is not None and len(queue.out) >= MOST_OUT

    def ack(
        self, topic: str, group: str, queue_id: int, offsets: Iterable[int], pop_ms: int
    ) -> int:
        """Messages are dealt with, those that were popped then and are out; the end of the log."""
        queue = self._queues.get((topic, group, queue_id))
        if queue is None:
            return 0
        held = queue.out
        gone = [n for n in offsets if (out := held.get(n)) is not None and out.pop_ms == pop_ms]
        if not gone:
            return 0
        end = self._note([_ACKED, topic, group, queue_id, gone])
        for offset in gone:
            del held[offset]
        return end

    def hide(self, topic: str, group: str, queue_id: int, offset: int, out: Out) -> int:
        """A message that is out is hidden for another time; the end of the log."""
        key = topic, group, queue_id
        end = self._note([_HIDDEN, *key, offset, out.pop_ms, out.invisible_ms])
        self._hide(key, self._queues[key], offset, out)
        return end

    @property
    def count(self) -> int:
        """How many messages are out."""
        return sum(len(queue.out) for queue in self._queues.values())

    # --- life -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Take in what was kept, and the notes that came after it."""
        tree = self._keeper.load(FILE)
        kept = tree if isinstance(tree, dict) else {}
        for topic, group, queue_id, next_, committed, out in kept.get("queues", ()):
            queue = self._queues[topic, group, queue_id] = _Queue(next_, committed)
            queue.out = {offset: Out(popped, hidden) for offset, popped, hidden in out}
        noted: set[Key] = set()
        for _, note in self._store.messages(POPS_TOPIC, 0, int(kept.get("notes", 0))):
            try:
                noted.add(self._replay(fastjson.loads(note.body)))
            except (GantryError, ValueError, TypeError, LookupError) as error:
                log.error("a note about pops cannot be read, %r: %s", note, error)  # noqa: TRY400
        for key, queue in self._queues.items():
            self._settle(key, queue, was_noted=key in noted)
        self._line_up()

    async def close(self) -> None:
        """Have kept how things are."""
        if self._keeping is not None:
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._changed:
            self._store.flush()
            self._commit()
            self._changed = False
            await self._keep()

    def tick(self) -> None:
        """Give back what is due, and commit what is safe; to be called every `TICK` seconds."""
        self._commit()
        if len(self._due) > _STALE and len(self._due) > 3 * self.count:
            self._line_up()  # without what was acknowledged or hidden anew
        now = self._clock_ms()
        for _ in range(_AT_ONCE):
            if not self._due or self._due[0][0] > now:
                return
            _, key, offset, pop_ms = heappop(self._due)
            queue = self._queues.get(key)
            out = queue.out.get(offset) if queue is not None else None
            if queue is None or out is None or out.pop_ms != pop_ms:
                continue
            try:
                self._give_back(key, queue, offset, out)
            except GantryError as error:
                log.warning("%s @ %d comes again later than it should: %s", key, offset, error)
                heappush(self._due, (now + _REFUSED_MS, key, offset, pop_ms))

    def keep(self) -> None:
        """Have written how things are, if that changed."""
        if self._changed and (self._keeping is None or self._keeping.done()):
            self._changed = False
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    def drop_topic(self, topic: str) -> None:
        """Forget what is out of a topic."""
        self._drop(lambda key: key[0] == topic)

    def drop_group(self, group: str) -> None:
        """Forget what a group has."""
        self._drop(lambda key: key[1] == group)

    # --- inside: state --------------------------------------------------------------------------

    def _begin(self, topic: str, queue_id: int, *, from_end: bool) -> int:
        queue = self._store.queue(topic, queue_id)
        if from_end and queue is not None and not is_retry_topic(topic):
            return queue.max_offset
        return first_offset(self._store, topic, queue_id)

    def _move(self, key: Key, queue: _Queue, to: int) -> None:
        end = self._note([_MOVED, *key, to])
        self._go_on(key, queue, to, end)

    def _go_on(self, key: Key, queue: _Queue, after: int, end: int) -> None:
        queue.next = after
        self._changed = True
        self._uncommitted.append((end, key, after, queue.epoch))

    def _hide(self, key: Key, queue: _Queue, offset: int, out: Out) -> None:
        queue.out[offset] = out
        heappush(self._due, (out.pop_ms + out.invisible_ms, key, offset, out.pop_ms))

    def _commit(self) -> None:
        """Commit the offsets whose notes are on the disk."""
        waiting, flushed_to = self._uncommitted, self._store.flushed_to
        while waiting and waiting[0][0] <= flushed_to:
            _, key, after, epoch = waiting.popleft()
            queue = self._queues.get(key)
            if queue is None or queue.epoch != epoch:
                continue
            topic, group, queue_id = key
            held = self._offsets.query(group, topic, queue_id)
            if held == queue.committed:  # or else somebody set it, whom the next pop obeys
                self._offsets.commit(group, topic, queue_id, after)
                queue.committed = after
                self._changed = True

    def _drop(self, meant: Callable[[Key], bool]) -> None:
        for key in [key for key in self._queues if meant(key)]:
            del self._queues[key]
            self._note([_DROPPED, *key])

    def _line_up(self) -> None:
        """Have what is out in the order in which its time is over."""
        self._due = [
            (out.pop_ms + out.invisible_ms, key, offset, out.pop_ms)
            for key, queue in self._queues.items()
            for offset, out in queue.out.items()
        ]
        heapify(self._due)

    # --- inside: messages that come again -------------------------------------------------------

    def _give_back(self, key: Key, queue: _Queue, offset: int, out: Out) -> None:
        """Store a message once more for its group, and note that it is not out."""
        topic, group, queue_id = key
        message = self._message(topic, queue_id, offset)
        if message is not None:
            target = topic if is_retry_topic(topic) else pop_retry_topic(group, topic)
            self._topics.make(target, queues=1)
            self._storing.put(_again(message, target, out))
        self._note([_ACKED, topic, group, queue_id, [offset]])
        del queue.out[offset]
        self._changed = True

    def _message(self, topic: str, queue_id: int, offset: int) -> StoredMessage | None:
        """A message of a queue; None if it is gone."""
        queue = self._store.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        try:
            for log_offset, _, _ in queue.entries(offset, 1):
                return self._store.message_at(log_offset)
        except CorruptRecord as error:
            log.error("%s[%d] @ %d is lost: %s", topic, queue_id, offset, error)  # noqa: TRY400
        return None

    # --- inside: notes --------------------------------------------------------------------------

    def _note(self, what: list[Any]) -> int:
        """Write a note; where the log ends then."""
        self._topics.make(POPS_TOPIC, queues=1)
        self._changed = True
        body = fastjson.dumps(what)
        note = StoredMessage(POPS_TOPIC, body, _PROPERTIES, born_ms=self._clock_ms())
        return self._storing.put(note).end

    def _replay(self, note: list[Any]) -> Key:
        """Do what was noted; of which queue it was."""
        what, topic, group, queue_id, *rest = note
        key = str(topic), str(group), int(queue_id)
        if what == _DROPPED:
            self._queues.pop(key, None)
            return key
        queue = self._queues.setdefault(key, _Queue(0, None))
        if what == _TAKEN:
            queue.next, popped, hidden, offsets = rest
            queue.out.update((offset, Out(popped, hidden)) for offset in offsets)
        elif what == _ACKED:
            for offset in rest[0]:
                queue.out.pop(offset, None)
        elif what == _HIDDEN:
            offset, popped, hidden = rest
            queue.out[offset] = Out(popped, hidden)
        elif what == _MOVED:
            queue.next = rest[0]
        return key

    def _settle(self, key: Key, queue: _Queue, *, was_noted: bool) -> None:
        """After a start: notes count, and else an offset that somebody has set since."""
        topic, group, queue_id = key
        held, before = self._offsets.query(group, topic, queue_id), queue.committed or 0
        if held is not None and not was_noted and not before <= held <= queue.next:
            queue.next = held
        end = self._store.queue(topic, queue_id)
        queue.next = min(queue.next, 0 if end is None else end.max_offset)
        queue.committed = held
        self._go_on(key, queue, queue.next, 0)

    # --- inside: the file -----------------------------------------------------------------------

    async def _keep(self) -> None:
        """Have the state written, after the offsets that go with it."""
        state = self._state()
        self._offsets.keep()
        try:
            await self._keeper.kept(OFFSETS_FILE)
        except OSError as error:
            self._changed = True
            log.warning("what is popped is kept later: %s", error)
            return
        self._keeper.keep(FILE, lambda: state)

    def _state(self) -> Tree:
        notes = self._store.queue(POPS_TOPIC, 0)
        queues = [
            [
                *key,
                queue.next,
                queue.committed,
                [[offset, *out] for offset, out in queue.out.items()],
            ]
            for key, queue in self._queues.items()
        ]
        return {"notes": 0 if notes is None else notes.max_offset, "queues": queues}


def _again(message: StoredMessage, topic: str, out: Out) -> StoredMessage:
    """A message as it is stored for its group to get it once more."""
    found = message.properties
    for name in _NOT_AGAIN:
        found.pop(name, None)
    found.setdefault(properties.FIRST_POP_TIME, str(out.pop_ms))
    found[properties.WAIT] = "false"
    return StoredMessage(
        topic=topic,
        body=message.body,
        property_bytes=properties.encode(found),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_ms=message.born_ms,
        born_ip=message.born_ip,
        born_port=message.born_port,
        store_ip=message.store_ip,
        store_port=message.store_port,
        reconsume_times=message.reconsume_times + 1,
    )
