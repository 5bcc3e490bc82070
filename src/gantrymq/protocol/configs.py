"""Settings of servers, read and changed while they run, and a name server's own table of keys."""

from __future__ import annotations

from gantrymq.protocol.base import Done, Reply, Request, declared, in_body, named, whole_body
from gantrymq.protocol.data_version import DataVersionText
from gantrymq.protocol.text_forms import PropertiesText
from gantrymq.wire.codes import RequestCode


@declared
class PutKey(Request[Done]):
    """Set a key in a namespace.

    RocketMQ: PutKVConfigRequestHeader, code 100.
    """

    CODE = RequestCode.PUT_KV_CONFIG

    namespace: str
    key: str
    value: str


@declared
class KeyReply(Reply):
    """A key's value. RocketMQ: GetKVConfigResponseHeader."""

    value: str | None = None


@declared
class GetKey(Request[KeyReply]):
    """Read a key in a namespace.

    RocketMQ: GetKVConfigRequestHeader, code 101.
    """

    CODE = RequestCode.GET_KV_CONFIG

    namespace: str
    key: str


@declared
class DeleteKey(Request[Done]):
    """Drop a key, or say that it is gone already.

    RocketMQ: DeleteKVConfigRequestHeader, code 102.
    """

    CODE = RequestCode.DELETE_KV_CONFIG

    namespace: str
    key: str


@declared
class KeyTable(Reply):
    """Keys and values. RocketMQ: KVTable."""

    table: dict[str, str] = in_body(default_factory=dict)


@declared
class GetKeys(Request[KeyTable]):
    """Every key of a namespace.

    RocketMQ: GetKVListByNamespaceRequestHeader, code 219.
    """

    CODE = RequestCode.GET_KVLIST_BY_NAMESPACE

    namespace: str


@declared
class KeyTables:
    """Namespace, key, value, as a name server keeps them. RocketMQ: KVConfigSerializeWrapper."""

    tables: dict[str, dict[str, str]] = named("configTable", default_factory=dict)


@declared
class ConfigReply(Reply):
    """A server's settings."""

    properties: PropertiesText = whole_body(default_factory=dict)


@declared
class UpdateNameServerConfig(Request[Done]):
    """Change settings of a name server.

    RocketMQ: UPDATE_NAMESRV_CONFIG, code 318.
    """

    CODE = RequestCode.UPDATE_NAMESRV_CONFIG

    properties: PropertiesText = whole_body()


@declared
class GetNameServerConfig(Request[ConfigReply]):
    """The settings of a name server.

    RocketMQ: GET_NAMESRV_CONFIG, code 319.
    """

    CODE = RequestCode.GET_NAMESRV_CONFIG


@declared
class UpdateBrokerConfig(Request[Done]):
    """Change settings of a broker.

    RocketMQ: UPDATE_BROKER_CONFIG, code 25.
    """

    CODE = RequestCode.UPDATE_BROKER_CONFIG

    properties: PropertiesText = whole_body()


@declared
class BrokerConfigReply(Reply):
    """A broker's settings and their version. RocketMQ: GetBrokerConfigResponseHeader."""

    version: DataVersionText
    properties: PropertiesText = whole_body(default_factory=dict)


@declared
class GetBrokerConfig(Request[BrokerConfigReply]):
    """The settings of a broker.

    RocketMQ: GET_BROKER_CONFIG, code 26.
    """

    CODE = RequestCode.GET_BROKER_CONFIG
