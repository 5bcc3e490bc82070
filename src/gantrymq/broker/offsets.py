"""How far each group has come in each queue, and where a queue begins and ends.

An offset may go back as well as on: a client that commits an older one wants to read again. What is
committed is in the file some seconds later; a group that lost its last offsets in a crash is given
some messages again.

**Resets.** Who resets a group sets its offsets and leaves a note. The next pull from that queue is
told to go on there, which takes the note away. Until then what the group commits is passed over:
it still comes from where the group was before.

RocketMQ: ConsumerOffsetManager, ConsumerManageProcessor, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.errors import GroupNotFound, InvalidParameter, NotFound, TopicNotFound
from gantrymq.protocol.base import Done, Long, declared, named
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.offsets import (
    AllConsumerOffsets,
    CorrectionOffsets,
    GetAllConsumerOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    SearchOffset,
    StoreTimeReply,
    UpdateConsumerOffset,
)

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.store.store import Store

FILE: Final = "consumerOffset.json"
_VERSION_STEP: Final = 500
"""Commits for which the version counts one. RocketMQ: consumerOffsetUpdateVersionStep."""
_UNREACHED: Final = 2**63 - 1

ByQueue: TypeAlias = dict[int, int]
Table: TypeAlias = dict[str, dict[str, ByQueue]]
"""Offsets by group, topic and queue id."""


@declared
class KeptOffsets:
    """What is in the file. RocketMQ: ConsumerOffsetManager, as it is written."""

    version: DataVersion = named("dataVersion", default_factory=DataVersion)
    topics: dict[str, list[str]] = named("groupTopicMap", default_factory=dict)
    """By group; for people, and not read."""
    offsets: dict[str, dict[Long, Long]] = named("offsetTable", default_factory=dict)
    """By `topic@group`."""


class Offsets:
    """The offsets of every group."""

    __slots__ = (
        "_changed",
        "_clock_ms",
        "_commits",
        "_keeper",
        "_pulled",
        "_resets",
        "_table",
        "_version",
    )

    def __init__(self, *, keeper: Keeper, clock_ms: Callable[[], int]) -> None:
        self._table: Table = {}
        self._pulled: Table = {}
        self._resets: Table = {}
        self._version = DataVersion(timestamp_ms=clock_ms())
        self._commits = 0
        self._changed = False
        self._keeper = keeper
        self._clock_ms = clock_ms

    def load(self) -> None:
        """Take in what was kept."""
        tree = self._keeper.load(FILE)
        if tree is None:
            return
        kept: KeptOffsets = shape(KeptOffsets).read(tree)
        self._version = kept.version
        for name, offsets in kept.offsets.items():
            topic, _, group = name.partition("@")
            if topic and group and "@" not in group:
                self._table.setdefault(group, {})[topic] = offsets

    def keep(self) -> None:
        """Have the table written, if it changed since it was the last time."""
        if self._changed:
            self._changed = False
            self._keeper.keep(FILE, self._tree)

    @property
    def count(self) -> int:
        """How many topics there are in which groups have offsets, a topic once for each group."""
        return sum(map(len, self._table.values()))

    # --- what pulling asks ----------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What comes before `offset` is done; passed over while a reset waits to be taken."""
        if self._resets and self.has_reset(group, topic, queue_id):
            return
        _of(self._table, group, topic)[queue_id] = offset
        self._changed = True
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self._count_version()

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group asked for messages from `offset` on."""
        _of(self._pulled, group, topic)[queue_id] = offset

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group has to go on by somebody's order, which is then carried out."""
        if not self._resets or not self.has_reset(group, topic, queue_id):
            return None
        topics = self._resets[group]
        offset = topics[topic].pop(queue_id)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._resets[group]
        return offset

    # --- what others ask ------------------------------------------------------------------------

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """How far the group has come; None if nobody knows."""
        reset = self._resets.get(group, {}).get(topic, {}).get(queue_id)
        return self.of(group, topic).get(queue_id) if reset is None else reset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """From where the group pulled last."""
        return self._pulled.get(group, {}).get(topic, {}).get(queue_id)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits to be taken."""
        return queue_id in self._resets.get(group, {}).get(topic, ())

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """How far the group has come in the queues of a topic."""
        return self._table.get(group, {}).get(topic, {})

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has offsets."""
        return list(self._table.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic."""
        return [group for group, topics in self._table.items() if topic in topics]

    def groups(self) -> list[str]:
        """Every group that has offsets."""
        return list(self._table)

    def least(self, topic: str, *, without: Collection[str] = ()) -> Iterator[tuple[int, int]]:
        """Queue ids and offsets of the groups that have some in a topic, one after the other."""
        for group, topics in self._table.items():
            if group not in without:
                yield from topics.get(topic, {}).items()

    def snapshot(self) -> KeptOffsets:
        """The table as it is now, in the form that is kept and sent."""
        return KeptOffsets(
            version=self._version,
            topics={group: list(topics) for group, topics in self._table.items()},
            offsets={
                f"{topic}@{group}": dict(held)
                for group, topics in self._table.items()
                for topic, held in topics.items()
            },
        )

    # --- changes --------------------------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Have the group go on at `offset`, whatever it is doing now."""
        _of(self._resets, group, topic)[queue_id] = offset
        _of(self._table, group, topic)[queue_id] = offset
        self._touch()

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets of another."""
        offsets = self.of(source, topic)
        if offsets:
            self._table.setdefault(target, {})[topic] = dict(offsets)
            self._touch()

    def drop_group(self, group: str) -> None:
        """Forget where a group was."""
        for table in (self._table, self._pulled, self._resets):
            table.pop(group, None)
        self._touch()

    def drop_topic(self, topic: str) -> None:
        """Forget where anybody was in a topic."""
        for table in (self._table, self._pulled, self._resets):
            for group in [group for group, topics in table.items() if topic in topics]:
                del table[group][topic]
                if not table[group]:
                    del table[group]
        self._touch()

    # --- inside ---------------------------------------------------------------------------------

    def _touch(self) -> None:
        self._changed = True
        self._count_version()

    def _count_version(self) -> None:
        version = self._version
        self._version = DataVersion(
            state=version.state, timestamp_ms=self._clock_ms(), counter=version.counter + 1
        )

    def _tree(self) -> Tree:
        """As `shape` would write it, without a look at each of what may be very many numbers."""
        kept = self.snapshot()
        return {
            "dataVersion": shape(DataVersion).write(kept.version),
            "groupTopicMap": kept.topics,
            "offsetTable": kept.offsets,
        }


def _of(table: Table, group: str, topic: str) -> ByQueue:
    """The offsets of a group in a topic, to be changed."""
    topics = table.get(group)
    if topics is None:
        topics = table[group] = {}
    offsets = topics.get(topic)
    if offsets is None:
        offsets = topics[topic] = {}
    return offsets


def first_offset(store: Store, topic: str, queue_id: int) -> int:
    """The first offset of a queue; 0 where nothing was ever put."""
    return store.first_offset(topic, queue_id)


def end_offset(store: Store, topic: str, queue_id: int) -> int:
    """The offset that the queue's next message gets."""
    queue = store.queue(topic, queue_id)
    return 0 if queue is None else queue.max_offset


def offset_at(
    store: Store, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
) -> int:
    """The offset of a time; 0 in a queue to which nothing was ever put."""
    queue = store.queue(topic, queue_id)
    if queue is None:
        return 0
    return queue.offset_at(time_ms, "upper" if boundary is Boundary.UPPER else "lower")


# --- answers --------------------------------------------------------------------------------------


def query_consumer_offset(request: QueryConsumerOffset, broker: Broker, _peer: Peer) -> OffsetReply:
    """How far a group has come; 0 for a new one if the first message is still at hand."""
    topic, queue_id = request.topic, request.queue_id
    offset = broker.offsets.query(request.group, topic, queue_id)
    if offset is not None:
        return OffsetReply(offset=offset)
    if request.zero_if_unknown is False:
        raise NotFound.because("Not found, do not set to zero, maybe this group boot first")
    if first_offset(broker.store, topic, queue_id) <= 0:
        first = broker.store.read(topic, queue_id, 0, max_messages=1)
        if first.count and not first.far_behind:
            return OffsetReply(offset=0)
    raise NotFound.because("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")


def update_consumer_offset(request: UpdateConsumerOffset, broker: Broker, _peer: Peer) -> Done:
    """Note how far a group has come."""
    group, topic, queue_id = request.group, request.topic, request.queue_id
    if group not in broker.groups.table:
        raise GroupNotFound.because(f"Group {group} not exist!")
    settings = broker.topics.find(topic)
    if settings is None:
        raise TopicNotFound.because(f"Topic {topic} not exist!")
    is_there = 0 <= queue_id < max(settings.read_queues, settings.write_queues)
    if not is_there and broker.store.queue(topic, queue_id) is None:  # it may have been once
        raise InvalidParameter.because(f"Topic {topic} has no queue {queue_id}")
    if request.offset < 0:
        raise InvalidParameter.because(f"Offset {request.offset} of {topic}[{queue_id}] is below 0")
    if broker.offsets.has_reset(group, topic, queue_id):
        return Done(remark="Offset has been previously reset")
    broker.offsets.commit(group, topic, queue_id, request.offset)
    return Done()


def search_offset(request: SearchOffset, broker: Broker, _peer: Peer) -> OffsetReply:
    """The offset of a time."""
    found = offset_at(
        broker.store, request.topic, request.queue_id, request.timestamp_ms, request.boundary
    )
    return OffsetReply(offset=found)


def get_max_offset(request: GetMaxOffset, broker: Broker, _peer: Peer) -> OffsetReply:
    """Where a queue ends."""
    return OffsetReply(offset=end_offset(broker.store, request.topic, request.queue_id))


def get_min_offset(request: GetMinOffset, broker: Broker, _peer: Peer) -> OffsetReply:
    """Where a queue begins."""
    return OffsetReply(offset=first_offset(broker.store, request.topic, request.queue_id))


def get_earliest_store_time(
    request: GetEarliestStoreTime, broker: Broker, _peer: Peer
) -> StoreTimeReply:
    """When the first message of a queue was stored; -1 if there is none."""
    first = first_offset(broker.store, request.topic, request.queue_id)
    return StoreTimeReply(
        timestamp_ms=broker.store.store_time(request.topic, request.queue_id, first)
    )


def query_correction_offsets(
    request: QueryCorrectionOffsets, broker: Broker, _peer: Peer
) -> CorrectionOffsets:
    """The least offset that any group has in each queue, unless one group is not that far.

    Offsets before the first message do not count. Where the group that is compared with is behind
    all others, the answer is the largest number there is.
    """
    found: dict[int, int] = {}
    for queue_id, offset in broker.offsets.least(
        request.topic, without=request.filter_groups or ()
    ):
        if offset >= first_offset(broker.store, request.topic, queue_id):
            found[queue_id] = min(offset, found.get(queue_id, offset))
    for queue_id, offset in broker.offsets.of(request.compare_group, request.topic).items():
        if found.get(queue_id, _UNREACHED) > offset:
            found[queue_id] = _UNREACHED
    return CorrectionOffsets(offsets=found)


def get_all_consumer_offsets(
    _request: GetAllConsumerOffsets, broker: Broker, _peer: Peer
) -> AllConsumerOffsets:
    """Every offset of every group."""
    held = broker.offsets.snapshot()
    return AllConsumerOffsets(version=held.version, offsets=held.offsets)
