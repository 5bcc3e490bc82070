"""The controller that elects masters: what brokers and administrators ask of it."""

from __future__ import annotations

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    Request,
    declared,
    in_body,
    named,
    whole_body,
)
from gantrymq.protocol.configs import ConfigReply
from gantrymq.protocol.routing import BrokerMembers
from gantrymq.protocol.text_forms import PropertiesText, SemicolonJoined
from gantrymq.wire.codes import RequestCode


@declared
class SyncState:
    """The replicas that have all of their master's log. RocketMQ: SyncStateSet."""

    members: set[Long] = named("syncStateSet", default_factory=set)
    epoch: Int = named("syncStateSetEpoch", default=0)


@declared
class AlterSyncStateReply(Reply):
    """The set as it is now. RocketMQ: AlterSyncStateSetResponseHeader."""

    epoch: Int = named("newSyncStateSetEpoch", default=0)
    state: SyncState | None = whole_body(default=None)


@declared
class AlterSyncState(Request[AlterSyncStateReply]):
    """Say which replicas are in step.

    RocketMQ: AlterSyncStateSetRequestHeader, code 1001.
    """

    CODE = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET

    broker: str | None = named("brokerName", default=None)
    master_id: Long | None = named("masterBrokerId", default=None)
    master_epoch: Int | None = None
    invoked_ms: Long | None = named("invokeTime", default=None)
    state: SyncState = whole_body()


@declared
class ElectMasterReply(Reply):
    """Who is master now. RocketMQ: ElectMasterResponseHeader, ElectMasterResponseBody."""

    master_id: Long | None = named("masterBrokerId", default=None)
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_epoch: Int | None = named("syncStateSetEpoch", default=None)
    members: BrokerMembers | None = in_body("brokerMemberGroup", default=None)
    in_sync: set[Long] | None = in_body("syncStateSet", default=None)


@declared
class ElectMaster(Request[ElectMasterReply]):
    """Have a master elected, this broker if `designated`.

    RocketMQ: ElectMasterRequestHeader, code 1002.
    """

    CODE = RequestCode.CONTROLLER_ELECT_MASTER

    cluster: str = named("clusterName", default="")
    broker: str = named("brokerName", default="")
    broker_id: Long = -1
    designated: bool = named("designateElect", default=False)
    invoked_ms: Long | None = named("invokeTime", default=None)


@declared
class RegisterReplicaReply(Reply):
    """Who is master. RocketMQ: RegisterBrokerToControllerResponseHeader."""

    cluster: str | None = named("clusterName", default=None)
    broker: str | None = named("brokerName", default=None)
    master_id: Long | None = named("masterBrokerId", default=None)
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_epoch: Int | None = named("syncStateSetEpoch", default=None)
    state: SyncState | None = whole_body(default=None)


@declared
class RegisterReplica(Request[RegisterReplicaReply]):
    """Make a broker known to the controller.

    RocketMQ: RegisterBrokerToControllerRequestHeader, code 1003.
    """

    CODE = RequestCode.CONTROLLER_REGISTER_BROKER

    cluster: str | None = named("clusterName", default=None)
    broker: str | None = named("brokerName", default=None)
    broker_id: Long | None = None
    address: str | None = named("brokerAddress", default=None)
    invoked_ms: Long = named("invokeTime", default=0)


@declared
class ReplicaInfo(Reply):
    """Who is master, and who is in step. RocketMQ: GetReplicaInfoResponseHeader."""

    master_id: Long | None = named("masterBrokerId", default=None)
    master_address: str | None = None
    master_epoch: Int | None = None
    state: SyncState | None = whole_body(default=None)


@declared
class GetReplicaInfo(Request[ReplicaInfo]):
    """Who is master among the brokers of a name.

    RocketMQ: GetReplicaInfoRequestHeader, code 1004.
    """

    CODE = RequestCode.CONTROLLER_GET_REPLICA_INFO

    broker: str | None = named("brokerName", default=None)


@declared
class ControllerInfo(Reply):
    """The controllers, each `id:ip:port`, and their leader. RocketMQ: GetMetaDataResponseHeader."""

    group: str | None = None
    leader_id: str | None = named("controllerLeaderId", default=None)
    leader_address: str | None = named("controllerLeaderAddress", default=None)
    is_leader: bool = False
    peers: SemicolonJoined | None = None


@declared
class GetControllerInfo(Request[ControllerInfo]):
    """Which controllers there are, and who leads them.

    RocketMQ: CONTROLLER_GET_METADATA_INFO, code 1005.
    """

    CODE = RequestCode.CONTROLLER_GET_METADATA_INFO


@declared
class Replica:
    """One broker of a name. RocketMQ: BrokerReplicasInfo.ReplicaIdentity."""

    broker: str | None = named("brokerName", default=None)
    broker_id: Long | None = None
    address: str | None = named("brokerAddress", default=None)
    alive: bool | None = None


@declared
class Replicas:
    """The brokers of a name, in step and not. RocketMQ: BrokerReplicasInfo.ReplicasInfo."""

    master_id: Long | None = named("masterBrokerId", default=None)
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_epoch: Int | None = named("syncStateSetEpoch", default=None)
    in_sync: list[Replica] = named("inSyncReplicas", default_factory=list)
    not_in_sync: list[Replica] = named("notInSyncReplicas", default_factory=list)


@declared
class SyncStates(Reply):
    """The replicas of each name. RocketMQ: BrokerReplicasInfo."""

    brokers: dict[str, Replicas] = in_body("replicasInfoTable", default_factory=dict)


@declared
class GetSyncStates(Request[SyncStates]):
    """Which replicas of some brokers are in step.

    RocketMQ: CONTROLLER_GET_SYNC_STATE_DATA, code 1006.
    """

    CODE = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA

    brokers: list[str] = whole_body()


@declared
class NotifyRoleChanged(Request[Done]):
    """Tell a broker who is master now; one-way.

    RocketMQ: NotifyBrokerRoleChangedRequestHeader, code 1008.
    """

    CODE = RequestCode.NOTIFY_BROKER_ROLE_CHANGED

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_epoch: Int | None = named("syncStateSetEpoch", default=None)
    master_id: Long | None = named("masterBrokerId", default=None)
    state: SyncState | None = whole_body(default=None)


@declared
class UpdateControllerConfig(Request[Done]):
    """Change settings of a controller.

    RocketMQ: UPDATE_CONTROLLER_CONFIG, code 1009.
    """

    CODE = RequestCode.UPDATE_CONTROLLER_CONFIG

    properties: PropertiesText = whole_body()


@declared
class GetControllerConfig(Request[ConfigReply]):
    """The settings of a controller.

    RocketMQ: GET_CONTROLLER_CONFIG, code 1010.
    """

    CODE = RequestCode.GET_CONTROLLER_CONFIG


@declared
class CleanBrokerData(Request[Done]):
    """Have the controller forget brokers, by default only those that are gone.

    RocketMQ: CleanControllerBrokerDataRequestHeader, code 1011.
    """

    CODE = RequestCode.CLEAN_BROKER_DATA

    cluster: str | None = named("clusterName", default=None)
    broker: str = named("brokerName")
    broker_ids: SemicolonJoined | None = named("brokerControllerIdsToClean", default=None)
    living_too: bool = named("isCleanLivingBroker", default=False)
    invoked_ms: Long | None = named("invokeTime", default=None)


@declared
class NextBrokerId(Reply):
    """An id that no broker has yet. RocketMQ: GetNextBrokerIdResponseHeader."""

    cluster: str | None = named("clusterName", default=None)
    broker: str | None = named("brokerName", default=None)
    broker_id: Long | None = named("nextBrokerId", default=None)


@declared
class GetNextBrokerId(Request[NextBrokerId]):
    """An id for a new broker.

    RocketMQ: GetNextBrokerIdRequestHeader, code 1012.
    """

    CODE = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID

    cluster: str | None = named("clusterName", default=None)
    broker: str | None = named("brokerName", default=None)


@declared
class BrokerIdApplied(Reply):
    """Whose id it is. RocketMQ: ApplyBrokerIdResponseHeader."""

    cluster: str | None = named("clusterName", default=None)
    broker: str | None = named("brokerName", default=None)


@declared
class ApplyBrokerId(Request[BrokerIdApplied]):
    """Take an id; `check_code` is the broker's address, a semicolon and a time in ms.

    RocketMQ: ApplyBrokerIdRequestHeader, code 1013.
    """

    CODE = RequestCode.CONTROLLER_APPLY_BROKER_ID

    cluster: str | None = named("clusterName", default=None)
    broker: str | None = named("brokerName", default=None)
    broker_id: Long | None = named("appliedBrokerId", default=None)
    check_code: str | None = named("registerCheckCode", default=None)
