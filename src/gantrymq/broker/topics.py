"""The topics of a broker: the table, how topics come to be, and who may change them.

**Made when sent to.** A producer names a template, `TBW102` unless it was told otherwise. A topic
that does not exist is made after the template where that one has the INHERIT bit: with as many
queues as the producer asks for, but no more than the template has, and without the bit itself.

**Versions.** Every change counts the table's version up; name servers compare it with theirs. Who
wants to know about changes `watch`es; registration does.

Settings of a topic are never changed in place: whoever holds some can go on reading them.

RocketMQ: TopicConfigManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from gantrymq.broker.attributes import MESSAGE_TYPE, TOPIC_ATTRIBUTES, changed_attributes
from gantrymq.broker.config import IdentityConfig, TopicsConfig
from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.errors import InvalidInput, InvalidParameter, TopicNotFound
from gantrymq.protocol import names
from gantrymq.protocol.base import Done, declared, named
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.topics import (
    INHERIT,
    READ,
    WRITE,
    CleanUnusedTopics,
    DeleteTopic,
    GetBrokerSystemTopics,
    GetTopic,
    GetTopics,
    MappedTopicSettings,
    PutTopic,
    PutTopics,
    TopicList,
    TopicReply,
    TopicSettings,
    TopicTable,
    TopicTableReply,
)
from gantrymq.protocol.validation import check_topic_at_broker

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

FILE: Final = "topics.json"
DELAY_LEVELS: Final = 18
_REVIVE_QUEUES: Final = 8
_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16


@declared
class KeptTopics:
    """What is in the file. RocketMQ: TopicConfigSerializeWrapper."""

    version: DataVersion = named("dataVersion", default_factory=DataVersion)
    topics: dict[str, TopicSettings] = named("topicConfigTable", default_factory=dict)


class Topics:
    """Every topic of the broker."""

    __slots__ = ("_changed", "_clock_ms", "_identity", "_keeper", "settings", "table", "version")

    def __init__(
        self,
        settings: TopicsConfig,
        *,
        identity: IdentityConfig,
        keeper: Keeper,
        clock_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.table: dict[str, TopicSettings] = {}
        """By name; to look at. Changes go through the methods."""
        self.version = DataVersion(timestamp_ms=clock_ms())
        self._identity = identity
        self._keeper = keeper
        self._clock_ms = clock_ms
        self._changed: list[Callable[[Collection[str]], None]] = []

    def find(self, topic: str) -> TopicSettings | None:
        """The settings of a topic; those of light queues, which nobody makes, are all alike."""
        found = self.table.get(topic)
        if found is None and names.is_light_queue(topic):
            return TopicSettings(topic=topic, read_queues=1, write_queues=1)
        return found

    def load(self) -> None:
        """Take in what was kept, and see to it that RocketMQ's own topics are there."""
        tree = self._keeper.load(FILE)
        if tree is not None:
            kept: KeptTopics = shape(KeptTopics).read(tree)
            self.version = kept.version
            self.table.update(kept.topics)
        missing = {str(made.topic): made for made in self._system() if made.topic not in self.table}
        if missing:
            self._put(missing)

    def watch(self, changed: Callable[[Collection[str]], None]) -> None:
        """Call `changed` with the names of topics whenever some were made, changed or dropped."""
        self._changed.append(changed)

    # --- making them ----------------------------------------------------------------------------

    def make_for_send(
        self, topic: str, *, template: str, queues: int, flags: int = 0
    ) -> TopicSettings | None:
        """The settings of `topic`, made after `template` if need be and if that is allowed."""
        found = self.table.get(topic)
        if found is not None:
            return found
        like = self.table.get(template)
        if like is None or not like.perm & INHERIT:
            return None
        if template == names.AUTO_CREATE_TOPIC and not self.settings.auto_create:
            return None
        count = max(0, min(queues, like.write_queues))
        return self._make(
            TopicSettings(
                topic=topic,
                read_queues=count,
                write_queues=count,
                perm=like.perm & ~INHERIT,
                filter_type=like.filter_type,
                flags=flags,
            )
        )

    def make(
        self, topic: str, *, queues: int, perm: int = READ | WRITE, flags: int = 0
    ) -> TopicSettings:
        """The settings of `topic`, made with these if there is none; for retries and dead letters.

        RocketMQ: createTopicInSendMessageBackMethod.
        """
        return self.table.get(topic) or self._make(
            TopicSettings(
                topic=topic, read_queues=queues, write_queues=queues, perm=perm, flags=flags
            )
        )

    def put(self, changes: Iterable[TopicSettings]) -> None:
        """Make or change topics; the keys of their attributes carry a sign. All or none."""
        self._put({str(asked.topic): self._after(asked) for asked in changes})

    def is_as(self, asked: TopicSettings) -> bool:
        """Whether the topic is already what is asked for."""
        found = self.table.get(str(asked.topic))
        return found is not None and found == asked

    def drop(self, topic: str) -> bool:
        """Forget a topic; whether there was one."""
        if self.table.pop(topic, None) is None:
            return False
        self._note((topic,))
        return True

    def order(self, table: Mapping[str, str]) -> None:
        """Have exactly these topics, as far as they exist, be ordered ones."""
        self._put(
            {
                topic: changed_copy(found, ordered=topic in table)
                for topic, found in self.table.items()
                if found.ordered != (topic in table)
            }
        )

    # --- what others ask ------------------------------------------------------------------------

    def system(self) -> set[str]:
        """The topics that are RocketMQ's own, and those of them that this broker has."""
        found = {str(made.topic) for made in self._system()} | names.SYSTEM_TOPICS
        found.update(topic for topic in self.table if names.is_system_topic(topic))
        return found

    @property
    def unkept(self) -> bool:
        """Whether a crash now would take back a change."""
        return self._keeper.is_behind(FILE)

    async def kept(self) -> None:
        """Return when every change so far is on disk."""
        await self._keeper.kept(FILE)

    # --- inside ---------------------------------------------------------------------------------

    def _after(self, asked: TopicSettings) -> TopicSettings:
        found = self.table.get(str(asked.topic))
        attributes = changed_attributes(
            TOPIC_ATTRIBUTES, None if found is None else found.attributes, asked.attributes
        )
        return changed_copy(asked, attributes=attributes)

    def _make(self, made: TopicSettings) -> TopicSettings:
        self._put({str(made.topic): made})
        return made

    def _put(self, changed: dict[str, TopicSettings]) -> None:
        if changed:
            self.table.update(changed)
            self._note(changed)

    def _note(self, topics: Collection[str]) -> None:
        version = self.version
        self.version = DataVersion(
            state=version.state, timestamp_ms=self._clock_ms(), counter=version.counter + 1
        )
        self._keeper.keep(FILE, self._tree)
        for changed in self._changed:
            changed(topics)

    def _tree(self) -> Tree:
        return shape(KeptTopics).write(KeptTopics(version=self.version, topics=self.table))

    def _system(self) -> Iterable[TopicSettings]:
        """What a broker has from the start. RocketMQ: TopicConfigManager.init."""
        settings, cluster, broker = self.settings, self._identity.cluster, self._identity.name
        both, may_inherit = READ | WRITE, READ | WRITE | INHERIT
        if settings.auto_create:
            yield _topic(names.AUTO_CREATE_TOPIC, settings.queues, may_inherit)
        yield _topic(cluster, _CLUSTER_QUEUES, may_inherit if settings.cluster_topic else INHERIT)
        yield _topic(broker, 1, may_inherit if settings.broker_topic else INHERIT)
        yield _topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES, both)
        yield _topic(names.SCHEDULE_TOPIC, DELAY_LEVELS, both)
        yield _topic(names.revive_topic(cluster), _REVIVE_QUEUES, both)
        yield _topic(names.member_sync_topic(broker), 1, INHERIT)
        for single in (
            names.SELF_TEST_TOPIC,
            names.OFFSET_MOVED_TOPIC,
            names.reply_topic(cluster),
            names.HALF_TOPIC,
            names.HALF_OP_TOPIC,
            names.TIMER_TOPIC,
        ):
            yield _topic(single, 1, both)
        if settings.trace:
            yield _topic(settings.trace_topic, 1, both)


def _topic(topic: str, queues: int, perm: int) -> TopicSettings:
    return TopicSettings(topic=topic, read_queues=queues, write_queues=queues, perm=perm)


def changed_copy(
    found: TopicSettings,
    *,
    ordered: bool | None = None,
    perm: int | None = None,
    attributes: dict[str, str] | None = None,
) -> TopicSettings:
    """The same settings but for what is given."""
    return TopicSettings(
        topic=found.topic,
        read_queues=found.read_queues,
        write_queues=found.write_queues,
        perm=found.perm if perm is None else perm,
        filter_type=found.filter_type,
        flags=found.flags,
        ordered=found.ordered if ordered is None else ordered,
        attributes=dict(found.attributes) if attributes is None else attributes,
    )


# --- answers --------------------------------------------------------------------------------------


async def put_topic(request: PutTopic, broker: Broker, _peer: Peer) -> Done:
    """Make a topic or change it; it lasts when this is answered."""
    return await _put_all(
        broker,
        [
            TopicSettings(
                topic=request.topic,
                read_queues=request.read_queues,
                write_queues=request.write_queues,
                perm=request.perm,
                filter_type=request.filter_type,
                flags=request.flags or 0,
                ordered=request.ordered,
                attributes=request.attributes or {},
            )
        ],
    )


async def put_topics(request: PutTopics, broker: Broker, _peer: Peer) -> Done:
    """The same for several, all or none."""
    return await _put_all(broker, request.topics)


async def _put_all(broker: Broker, asked: list[TopicSettings]) -> Done:
    topics = broker.topics
    for one in asked:
        check_changeable(topics.settings, one.topic or "")
        _check(topics.settings, one)
    if not any(map(topics.is_as, asked)):  # one that is as asked ends it, as in RocketMQ
        topics.put(asked)
        await topics.kept()
        await broker.registrar.spread()
    return Done()


def check_changeable(settings: TopicsConfig, topic: str) -> None:
    """Refuse a name that nobody may give a topic, or that is RocketMQ's own."""
    try:
        check_topic_at_broker(topic)
    except InvalidInput as error:
        raise InvalidParameter.because(str(error)) from error
    if settings.check_system and names.is_system_topic(topic):
        raise InvalidParameter.because(f"The topic[{topic}] is conflict with system topic.")


def _check(settings: TopicsConfig, asked: TopicSettings) -> None:
    if not settings.mixed and asked.attributes.get(f"+{MESSAGE_TYPE}") == "MIXED":
        raise InvalidParameter.because("MIXED message type is not supported.")
    if not 0 <= asked.perm <= INHERIT | WRITE | READ:
        raise InvalidParameter.because(f"perm {asked.perm} of {asked.topic} is not within 0 to 7")
    for count in (asked.read_queues, asked.write_queues):
        if count < 0:
            raise InvalidParameter.because(f"{asked.topic} cannot have {count} queues")


async def delete_topic(request: DeleteTopic, broker: Broker, _peer: Peer) -> Done:
    """Forget a topic and its messages."""
    check_changeable(broker.topics.settings, request.topic)
    broker.drop_topic(request.topic)
    await broker.topics.kept()
    return Done()


def get_topics(request: GetTopics, broker: Broker, _peer: Peer) -> TopicTableReply:
    """All topics; from the asked one on for who has read those before it from the same table.

    RocketMQ's client asks until it has all but one, and so would miss a single one that is left.
    """
    topics = broker.topics
    start = request.start or 0
    if request.version is not None and request.version != topics.version:
        start = 0
    order = sorted(topics.table)[max(0, start) :]
    if request.most is not None and len(order) > max(1, request.most) + 1:
        order = order[: max(1, request.most)]
    table = TopicTable(version=topics.version, topics={name: topics.table[name] for name in order})
    return TopicTableReply(total=len(topics.table), table=table)


def get_topic(request: GetTopic, broker: Broker, _peer: Peer) -> TopicReply:
    """The settings of one topic."""
    found = broker.topics.table.get(request.topic)
    if found is None:
        raise TopicNotFound.because(f"No topic in this broker. topic: {request.topic}")
    return TopicReply(
        settings=MappedTopicSettings(
            topic=found.topic,
            read_queues=found.read_queues,
            write_queues=found.write_queues,
            perm=found.perm,
            filter_type=TopicFilterType(found.filter_type),
            flags=found.flags,
            ordered=found.ordered,
            attributes=found.attributes,
        )
    )


def get_system_topics(_request: GetBrokerSystemTopics, broker: Broker, _peer: Peer) -> TopicList:
    """The topics here that are RocketMQ's own."""
    return TopicList(topics=sorted(broker.topics.system()))


def clean_unused_topics(_request: CleanUnusedTopics, broker: Broker, _peer: Peer) -> Done:
    """Remove the messages of topics that are no more."""
    broker.drop_unused()
    return Done()
