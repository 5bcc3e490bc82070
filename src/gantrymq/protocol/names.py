"""The names that RocketMQ gives a meaning: system topics and groups, derived topics, namespaces.

A group's failed messages live in topics whose names are made from the group's. The prefix always
comes first, then the namespace, then the name:

| name | form |
|---|---|
| retry topic | `%RETRY%group` |
| dead-letter topic | `%DLQ%group` |
| retry topic of POP consumers | `%RETRY%group_topic`, or `%RETRY%group+topic` where switched on |
| in a namespace | `space%topic`, `%RETRY%space%group` |
| light queue | `%LMQ%name`, `%LMQ%$parent$lite` |

The older POP form cannot be taken apart again without knowing the group, since both parts may hold
the underscore that joins them. That is what the newer one is for.
"""

from __future__ import annotations

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_HALF_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
POPS_TOPIC: Final = "rmq_sys_gantry_pops"
"""Where Gantry's broker notes what is popped; RocketMQ has nothing of that name."""
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

UNSENDABLE_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_OP_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_HALF_OP_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics that only brokers write.

RocketMQ: TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET.
"""

SYSTEM_TOPICS: Final = UNSENDABLE_TOPICS | {
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}
"""System topics by name; what starts with `rmq_sys_` is one too.

RocketMQ: TopicValidator.SYSTEM_TOPIC_SET.
"""

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

PREDEFINED_GROUPS: Final = frozenset(
    {
        DEFAULT_PRODUCER_GROUP,
        DEFAULT_CONSUMER_GROUP,
        INNER_PRODUCER_GROUP,
        TOOLS_GROUP,
        TRANSACTION_GROUP,
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)
"""Groups that RocketMQ has uses for.

RocketMQ: MixAll.PREDEFINE_GROUP_SET.
"""

_NAMESPACE_END: Final = "%"


def is_system_topic(topic: str) -> bool:
    """Whether `topic` belongs to RocketMQ itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether `group` belongs to RocketMQ itself, as namespaces and group creation see it."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether `topic` holds messages that a group is to be given again."""
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    """Whether `topic` holds messages that a group gave up on."""
    return topic.startswith(DEAD_LETTER_PREFIX)


def is_light_queue(topic: str) -> bool:
    """Whether `topic` is a light queue, which has no configuration of its own."""
    return topic.startswith(LIGHT_QUEUE_PREFIX)


def retry_topic(group: str) -> str:
    """Where the messages that `group` failed at wait for their next delivery."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where the messages end that `group` failed at too often."""
    return DEAD_LETTER_PREFIX + group


def group_of_derived_topic(topic: str) -> str | None:
    """The group whose retry or dead-letter topic this is, None for any other topic.

    Of the newer POP form it is the group alone; of the older one, the group and the topic.
    """
    prefix, name = _split_prefix(topic)
    if prefix == RETRY_PREFIX:
        return name.partition("+")[0]
    return name if prefix else None


def pop_retry_topic(group: str, topic: str, *, newer: bool = False) -> str:
    """Where POP keeps the messages of `topic` that `group` has not acknowledged in time.

    RocketMQ: KeyBuilder.buildPopRetryTopic (newer: enableRetryTopicV2).
    """
    return f"{RETRY_PREFIX}{group}{'+' if newer else '_'}{topic}"


def topic_of_pop_retry(retry: str, group: str) -> str:
    """The topic that a POP retry topic of `group` stands for; any other topic is itself.

    RocketMQ: KeyBuilder.parseNormalTopic.
    """
    for joint in "+_":
        start = f"{RETRY_PREFIX}{group}{joint}"
        if retry.startswith(start):
            return retry.removeprefix(start)
    return retry


def reply_topic(cluster: str) -> str:
    """Where the answers of request-reply go in `cluster`."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """Where POP keeps its checkpoints and acknowledgements in `cluster`."""
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"


def member_sync_topic(broker: str) -> str:
    """Where the members of a broker group keep each other informed."""
    return f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker}"


def region_trace_topic(region: str) -> str:
    """Where traces go that are kept by region."""
    return f"{SYSTEM_TOPIC_PREFIX}TRACE_DATA_{region}"


def light_queue(name: str) -> str:
    """The topic that stands for light queue `name`."""
    return LIGHT_QUEUE_PREFIX + name


def lite_topic_queue(parent: str, lite: str) -> str:
    """The light queue of lite topic `lite` under `parent`."""
    return f"{LIGHT_QUEUE_PREFIX}${parent}${lite}"


def wrap(namespace: str, name: str) -> str:
    """Topic or group `name` as brokers know it in `namespace`; wrapping it twice changes nothing.

    RocketMQ: NamespaceUtil.wrapNamespace.
    """
    prefix, plain = _split_prefix(name)
    if not namespace or not name or _is_shared(name) or _is_in(namespace, plain):
        return name
    return f"{prefix}{namespace}{_NAMESPACE_END}{plain}"


def unwrap(namespace: str, name: str) -> str:
    """Topic or group `name` as users of `namespace` know it; names of others stay as they are.

    RocketMQ: NamespaceUtil.withoutNamespace.
    """
    prefix, plain = _split_prefix(name)
    if not namespace or _is_shared(name) or not _is_in(namespace, plain):
        return name
    return prefix + plain.removeprefix(namespace + _NAMESPACE_END)


def namespace_of(name: str) -> str:
    """The namespace that `name` is in, empty for none.

    RocketMQ: NamespaceUtil.getNamespaceFromResource.
    """
    space, end, _ = _split_prefix(name)[1].partition(_NAMESPACE_END)
    return space if end and not _is_shared(name) else ""


def _is_shared(name: str) -> bool:
    return is_system_topic(name) or is_system_group(name) or is_light_queue(name)


def _is_in(namespace: str, plain: str) -> bool:
    return plain.startswith(namespace + _NAMESPACE_END)


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
