"""The settings of consumer groups at a broker."""

from __future__ import annotations

from dataclasses import field

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    Request,
    RpcRequest,
    TopicRequest,
    declared,
    in_body,
    named,
    whole_body,
)
from gantrymq.protocol.data_version import DataVersion, DataVersionText
from gantrymq.protocol.enums import RetryPolicyType
from gantrymq.wire.codes import RequestCode


@declared
class CustomizedRetry:
    """Delays in ms, one after the other. RocketMQ: CustomizedRetryPolicy."""

    delays_ms: list[Long] = named("next", default_factory=list)


@declared
class ExponentialRetry:
    """Delays in ms that grow by a factor. RocketMQ: ExponentialRetryPolicy."""

    first_ms: Long = named("initial", default=5_000)
    most_ms: Long = named("max", default=7_200_000)
    factor: Long = named("multiplier", default=2)


@declared
class RetryPolicy:
    """How long a message waits before it is consumed again. RocketMQ: GroupRetryPolicy."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    customized: CustomizedRetry | None = named("customizedRetryPolicy", default=None)
    exponential: ExponentialRetry | None = named("exponentialRetryPolicy", default=None)


@declared
class SimpleSubscription:
    """A subscription that is kept with the group. RocketMQ: SimpleSubscriptionData."""

    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: Long = 0


@declared
class GroupSettings:
    """What a broker keeps about a consumer group.

    In a request the keys of `attributes` carry a sign: `+key` sets, `-key` drops.

    RocketMQ: SubscriptionGroupConfig.
    """

    group: str | None = named("groupName", default=None)
    enabled: bool = named("consumeEnable", default=True)
    from_min_enabled: bool = named("consumeFromMinEnable", default=True)
    broadcast_enabled: bool = named("consumeBroadcastEnable", default=True)
    orderly: bool = named("consumeMessageOrderly", default=False)
    retry_queues: Int = named("retryQueueNums", default=1)
    max_retries: Int = named("retryMaxTimes", default=16)
    retry_policy: RetryPolicy = named("groupRetryPolicy", default_factory=RetryPolicy)
    broker_id: Long = 0
    broker_id_when_slow: Long = named("whichBrokerWhenConsumeSlowly", default=1)
    notify_changes: bool = named("notifyConsumerIdsChangedEnable", default=True)
    flags: Int = named("groupSysFlag", default=0)
    consume_timeout_minutes: Int = named("consumeTimeoutMinute", default=15)
    subscriptions: list[SimpleSubscription] | None = named("subscriptionDataSet", default=None)
    attributes: dict[str, str] = field(default_factory=dict)


@declared
class PutGroup(Request[Done]):
    """Create a consumer group, or change its settings.

    RocketMQ: SubscriptionGroupConfig, code 200.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP

    settings: GroupSettings = whole_body()


@declared
class PutGroups(Request[Done]):
    """Create or change several consumer groups.

    RocketMQ: SubscriptionGroupList, code 225.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST

    groups: list[GroupSettings] = in_body("groupConfigList")


@declared
class GroupTable(Reply):
    """Every consumer group's settings, or a page of them out of `total`.

    RocketMQ: SubscriptionGroupWrapper, GetAllSubscriptionGroupResponseHeader.
    """

    total: Int | None = named("totalGroupNum", default=None)
    version: DataVersion | None = in_body("dataVersion", default=None)
    groups: dict[str, GroupSettings] = in_body("subscriptionGroupTable", default_factory=dict)
    forbidden: dict[str, dict[str, Int]] = in_body("forbiddenTable", default_factory=dict)


@declared
class GetGroups(Request[GroupTable]):
    """The settings of all groups; with `start`, a page of them while `version` still holds.

    RocketMQ: GetAllSubscriptionGroupRequestHeader, code 201.
    """

    CODE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    start: Int | None = named("groupSeq", default=None)
    version: DataVersionText | None = named("dataVersion", default=None)
    most: Int | None = named("maxGroupNum", default=None)


@declared
class GroupReply(Reply):
    """One group's settings."""

    settings: GroupSettings = whole_body()


@declared
class GetGroup(RpcRequest[GroupReply]):
    """The settings of one group.

    RocketMQ: GetSubscriptionGroupConfigRequestHeader, code 352.
    """

    CODE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


@declared
class DeleteGroup(RpcRequest[Done]):
    """Drop a group's settings, and its offsets if asked.

    RocketMQ: DeleteSubscriptionGroupRequestHeader, code 207.
    """

    CODE = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group: str = named("groupName")
    clean_offsets: bool = named("cleanOffset", default=False)


@declared
class GroupForbidden(Reply):
    """Whether a group may read a topic. RocketMQ: GroupForbidden."""

    group: str | None = in_body(default=None)
    topic: str | None = in_body(default=None)
    readable: bool | None = in_body(default=None)


@declared
class ForbidGroup(TopicRequest[GroupForbidden]):
    """Allow or forbid a group to read a topic; without `readable`, ask.

    RocketMQ: UpdateGroupForbiddenRequestHeader, code 353.
    """

    CODE = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None
