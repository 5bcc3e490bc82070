"""What a client is told: where its name servers are, who it is, and how patient.

```
rmq://access:secret@host:9876;host2:9876/namespace?tls=1&call_timeout=5s
```

Settings come from six places; each wins over those before it: defaults, `NAMESRV_ADDR` (RocketMQ's
own variable, name servers alone), `GANTRY_URL`, single variables (`GANTRY_CLIENT_VIP_CHANNEL=1`), a
URL in the program, and arguments in the program. What stands behind the `?` of a URL are settings
by their names. A host that is left out is this machine, a port 9876.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypedDict
from urllib.parse import parse_qsl, unquote

from gantrymq.errors import ConfigError
from gantrymq.net.addresses import parse_name_servers
from gantrymq.net.options import PeerOptions
from gantrymq.net.tls import ClientTls, TlsFiles
from gantrymq.protocol.signing import Credentials
from gantrymq.settings import Seconds, at_least, load, millis, nearest, rows, setting
from gantrymq.wire.command import HeaderType

SCHEME: Final = "rmq"
DEFAULT_PORT: Final = 9876
DEFAULT_INSTANCE: Final = "DEFAULT"
_PREFIX: Final = "GANTRY_CLIENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client finds its cluster and makes itself known. RocketMQ: ClientConfig."""

    name_servers: tuple[str, ...] = setting(
        (), "name servers, host:port each", rocketmq="namesrvAddr"
    )
    namespace: str | None = setting(
        None, "put in front of every topic and group", rocketmq="namespace"
    )
    access_key: str | None = setting(None, "who signs the requests", rocketmq="accessKey")
    secret_key: str | None = setting(None, "what they are signed with", rocketmq="secretKey")
    security_token: str | None = setting(
        None, "goes with a temporary access key", rocketmq="securityToken"
    )
    tls: bool = setting(False, "connect with TLS", rocketmq="useTLS")
    tls_trust: str | None = setting(
        None, "PEM file of what servers' certificates go back to; else the system's"
    )
    tls_certificate: str | None = setting(None, "PEM file with our own certificate chain")
    tls_key: str | None = setting(None, "PEM file with the key of that certificate")
    tls_key_password: str | None = setting(None, "opens that key")
    tls_verify: bool = setting(True, "check servers' certificates")
    tls_check_hostname: bool = setting(
        True, "check that a certificate is that server's; Java clients never do"
    )
    tls_server_name: str | None = setting(
        None, "the name to ask for and check, where it is not the host of the address"
    )
    instance_name: str = setting(
        DEFAULT_INSTANCE,
        "tells clients of one machine apart; DEFAULT stands for a name of its own for each",
        rocketmq="instanceName",
    )
    unit_name: str | None = setting(None, "becomes part of the client id", rocketmq="unitName")
    unit_mode: bool = setting(False, "say in requests that units are used", rocketmq="unitMode")
    client_ip: str | None = setting(
        None, "our address in client and message ids; else looked up", rocketmq="clientIP"
    )
    vip_channel: bool = setting(
        False, "send to the brokers' fast port, two below the other", rocketmq="vipChannelEnabled"
    )
    address_map: tuple[str, ...] = setting(
        (), "brokers' addresses that are reached by others: advertised=reachable, each host:port"
    )
    header: Literal["json", "binary"] = setting("json", "how headers of requests are written")
    call_timeout: Seconds = setting(
        3.0,
        "for what has no time-out of its own",
        rocketmq=millis("mqClientApiTimeout"),
        check=at_least(0.001),
    )
    connect_timeout: Seconds = setting(3.0, "for making a connection", check=at_least(0.001))
    route_interval: Seconds = setting(
        30.0,
        "between looks for changed routes",
        rocketmq=millis("pollNameServerInterval"),
        check=at_least(0.01),
    )
    heartbeat_interval: Seconds = setting(
        30.0,
        "between heartbeats to brokers",
        rocketmq=millis("heartbeatBrokerInterval"),
        check=at_least(0.01),
    )

    @property
    def credentials(self) -> Credentials | None:
        """Who signs, if anyone does."""
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
        )

    @property
    def client_tls(self) -> ClientTls | None:
        """How connections use TLS, if they do."""
        if not self.tls:
            return None
        files = TlsFiles(
            certificate=_path(self.tls_certificate),
            key=_path(self.tls_key),
            key_password=self.tls_key_password,
            trust=_path(self.tls_trust),
        )
        return ClientTls(
            files=files,
            verify=self.tls_verify,
            check_hostname=self.tls_check_hostname,
            server_name=self.tls_server_name,
        )

    @property
    def peer_options(self) -> PeerOptions:
        """How connections behave."""
        return PeerOptions(
            header_type=HeaderType.BINARY if self.header == "binary" else HeaderType.JSON,
            credentials=self.credentials,
        )

    @property
    def reachable(self) -> dict[str, str]:
        """Advertised addresses with those that reach them."""
        pairs = (entry.partition("=") for entry in self.address_map)
        return {advertised.strip(): address.strip() for advertised, _, address in pairs}

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            given, missing = "access_key", "secret_key"
            if self.access_key is None:
                given, missing = missing, given
            raise ConfigError(f"{given} was given without {missing}; requests are signed with both")
        for entry in self.address_map:
            if "=" not in entry:
                raise ConfigError(f"address_map: {entry!r} is not advertised=reachable")

    def __repr__(self) -> str:
        return f"<ClientConfig {';'.join(self.name_servers) or 'no name server'}>"


class ClientArguments(TypedDict, total=False):
    """The same as keyword arguments."""

    name_servers: str | tuple[str, ...] | list[str]
    namespace: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    tls: bool
    tls_trust: str | None
    tls_certificate: str | None
    tls_key: str | None
    tls_key_password: str | None
    tls_verify: bool
    tls_check_hostname: bool
    tls_server_name: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    client_ip: str | None
    vip_channel: bool
    address_map: dict[str, str] | tuple[str, ...]
    header: Literal["json", "binary"]
    call_timeout: float
    connect_timeout: float
    route_interval: float
    heartbeat_interval: float


def load_config(
    url: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    others: AbstractSet[str] = frozenset(),
) -> ClientConfig:
    """The settings of a client from everywhere they can come from.

    URLs may also hold the settings named by `others`, which somebody else reads.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, Any] = {}
    if text := environ.get("NAMESRV_ADDR", "").strip():
        found |= _name_servers(text, "NAMESRV_ADDR")
    if text := environ.get("GANTRY_URL", "").strip():
        found |= parse_url(text)
    own = {name: value for name, value in environ.items() if name.startswith(f"{_PREFIX}_")}
    given = parse_url(url) if url is not None else {}
    for name, value in (arguments or {}).items():
        given |= _argument(name, value)
    for name in others:
        found.pop(name, None)
        given.pop(name, None)
    _check_names({*found, *given}, others)
    return load(ClientConfig, file=found, environ=own, prefix=_PREFIX, flags=given).value


def _check_names(given: AbstractSet[str], others: AbstractSet[str]) -> None:
    """Names that nobody knows are asked about with those in mind that somebody else reads."""
    known = {row.path for row in rows(ClientConfig)}
    for name in sorted(given - known):
        raise ConfigError(f"there is no setting {name}{nearest(name, known | others)}")


def parse_url(url: str) -> dict[str, Any]:
    """The settings that a URL holds. Several hosts are joined by `;` or `,`."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme.lower() != SCHEME:
        raise ConfigError(
            f"{_shown(url)!r} is no address of a cluster; it looks like"
            f" {SCHEME}://[access:secret@]host:{DEFAULT_PORT}[;host2:{DEFAULT_PORT}][/namespace]"
        )
    rest, _, query = rest.partition("?")
    place, _, namespace = rest.partition("/")
    who, _, hosts = place.rpartition("@")
    found: dict[str, Any] = {}
    if who:
        access, _, secret = who.partition(":")
        found["access_key"], found["secret_key"] = unquote(access), unquote(secret) or None
    found |= _name_servers(_with_ports(hosts), _shown(url))
    if namespace.strip("/"):
        found["namespace"] = unquote(namespace.strip("/"))
    for name, value in parse_qsl(query, keep_blank_values=True):
        found[name.replace("-", "_")] = value
    return found


def _argument(name: str, value: Any) -> dict[str, Any]:
    if name == "name_servers":
        text = value if isinstance(value, str) else ";".join(value)
        return _name_servers(text, name)
    if name == "address_map" and isinstance(value, Mapping):
        return {name: tuple(f"{advertised}={real}" for advertised, real in value.items())}
    return {name: value}


def _name_servers(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = parse_name_servers(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    found: dict[str, Any] = {"name_servers": parsed.addresses}
    if parsed.namespace is not None:
        found["namespace"] = parsed.namespace
    return found


def _with_ports(hosts: str) -> str:
    return ";".join(_with_port(host.strip()) for host in hosts.replace(",", ";").split(";"))


def _with_port(host: str) -> str:
    if not host or host.startswith(":"):
        host = f"localhost{host}"
    if host.startswith("[") and host.endswith("]"):
        return f"{host}:{DEFAULT_PORT}"
    return host if ":" in host else f"{host}:{DEFAULT_PORT}"


def _shown(url: str) -> str:
    """The URL without its secret."""
    scheme, mark, rest = url.partition("://")
    who, at, hosts = rest.rpartition("@")
    if not at:
        return url
    return f"{scheme}{mark}{who.partition(':')[0]}:***@{hosts}"


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
