"""Access rules kept in files, as brokers had them from 4.5 to 5.3.2.

Their refusals have the codes 209, 210 and 211, which mean other things to a pop.
"""

from __future__ import annotations

from dataclasses import field

from gantrymq.protocol.base import Done, Reply, Request, declared, in_body, named
from gantrymq.protocol.data_version import DataVersionText
from gantrymq.protocol.text_forms import CommaJoined
from gantrymq.wire.codes import RequestCode


@declared
class PutAccount(Request[Done]):
    """Create an account or change it; permissions are `topic=PUB|SUB` and `group=SUB`.

    RocketMQ: CreateAccessConfigRequestHeader, code 50.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG

    access_key: str
    secret_key: str | None = field(default=None, repr=False)
    white_address: str | None = named("whiteRemoteAddress", default=None)
    admin: bool = False
    default_topic: str | None = named("defaultTopicPerm", default=None)
    default_group: str | None = named("defaultGroupPerm", default=None)
    topics: CommaJoined | None = named("topicPerms", default=None)
    groups: CommaJoined | None = named("groupPerms", default=None)


@declared
class DeleteAccount(Request[Done]):
    """Drop an account.

    RocketMQ: DeleteAccessConfigRequestHeader, code 51.
    """

    CODE = RequestCode.DELETE_ACL_CONFIG

    access_key: str


@declared
class AccessFilesInfo(Reply):
    """Which state the files are in. RocketMQ: GetBrokerAclConfigResponseHeader."""

    version: DataVersionText | None = None
    file_versions: str | None = named("allAclFileVersion", default=None)
    broker: str | None = named("brokerName", default=None)
    address: str | None = named("brokerAddr", default=None)
    cluster: str | None = named("clusterName", default=None)


@declared
class GetAccessFilesInfo(Request[AccessFilesInfo]):
    """Which state a broker's access files are in.

    RocketMQ: GET_BROKER_CLUSTER_ACL_INFO, code 52.
    """

    CODE = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


@declared
class SetWhiteAddresses(Request[Done]):
    """Say which addresses need no account.

    RocketMQ: UpdateGlobalWhiteAddrsConfigRequestHeader, code 53.
    """

    CODE = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG

    addresses: CommaJoined = named("globalWhiteAddrs")
    file: str | None = named("aclFileFullPath", default=None)


@declared
class Account:
    """What somebody may do. RocketMQ: PlainAccessConfig."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    white_address: str | None = named("whiteRemoteAddress", default=None)
    admin: bool = False
    default_topic: str | None = named("defaultTopicPerm", default=None)
    default_group: str | None = named("defaultGroupPerm", default=None)
    topics: list[str] | None = named("topicPerms", default=None)
    groups: list[str] | None = named("groupPerms", default=None)


@declared
class AccessFiles(Reply):
    """What the files hold. RocketMQ: AclConfig."""

    white_addresses: list[str] = in_body("globalWhiteAddrs", default_factory=list)
    accounts: list[Account] = in_body("plainAccessConfigs", default_factory=list)


@declared
class GetAccessFiles(Request[AccessFiles]):
    """What a broker's access files hold.

    RocketMQ: GET_BROKER_CLUSTER_ACL_CONFIG, code 54.
    """

    CODE = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
