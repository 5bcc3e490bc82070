"""RocketMQ's `tls.properties`, read as it is.

| key | meaning | default |
|---|---|---|
| `tls.server.mode` | disabled, permissive or enforcing | permissive |
| `tls.enable` | our own connections use TLS | false |
| `tls.test.mode.enable` | see below | true |
| `tls.server.certPath`, `keyPath`, `keyPassword` | certificate and key of the server | |
| `tls.server.need.client.auth` | none, optional or require | none |
| `tls.server.authClient`, `trustCertPath` | check clients', against this file | false |
| `tls.client.certPath`, `keyPath`, `keyPassword` | certificate and key of the client | |
| `tls.client.authServer`, `trustCertPath` | check the server's, against this file | false |
| `tls.ciphers`, `tls.protocols` | lists, for both | what OpenSSL offers |

In test mode a RocketMQ server makes its own certificate, and a client trusts anything. Gantry makes
no certificates: a server without one has TLS disabled, unless the file asks for it by name. The
client's half is as there.

RocketMQ: TlsSystemConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, TypeVar

from gantrymq.errors import ConfigError
from gantrymq.net.tls import ClientAuth, ClientTls, ServerTls, TlsFiles, TlsMode

T = TypeVar("T")

_MODES: Final[dict[str, TlsMode]] = {mode: mode for mode in ("disabled", "permissive", "enforcing")}
_CLIENT_AUTHS: Final[dict[str, ClientAuth]] = {
    auth: auth for auth in ("none", "optional", "require")
}
_TRUTHS: Final = {"true": True, "false": False}
_OWN_KEYS: Final = ("keyPath", "keyPassword", "certPath", "trustCertPath")
_KEYS: Final = frozenset(
    [
        *("tls.enable", "tls.test.mode.enable", "tls.config.file", "tls.ciphers", "tls.protocols"),
        *("tls.server.mode", "tls.server.need.client.auth"),
        *("tls.server.authClient", "tls.client.authServer"),
        *(f"tls.{end}.{key}" for end in ("server", "client") for key in _OWN_KEYS),
    ]
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_ENTRY: Final = re.compile(r"((?:\\.|[^\s:=\\])+)\s*[:=]?\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Both halves; None where there is to be no TLS."""

    server: ServerTls | None
    client: ClientTls | None


def read_tls(path: Path) -> TlsSettings:
    """What the properties file at `path` says."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the TLS settings {path} cannot be read: {error}") from error
    return tls_settings(parse_properties(text))


def tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """What such properties say."""
    for key in properties:
        if key.startswith("tls.") and key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            raise ConfigError(f"no TLS setting {key!r}{f'; is it {near[0]!r}?' if near else ''}")
    return TlsSettings(server=_server(properties), client=_client(properties))


def _server(properties: Mapping[str, str]) -> ServerTls | None:
    named = "tls.server.mode" in properties
    mode = _one_of(properties, "tls.server.mode", _MODES, "permissive")
    auth = _one_of(properties, "tls.server.need.client.auth", _CLIENT_AUTHS, "none")
    files = _files(properties, "server", trusting=_is_true(properties, "tls.server.authClient"))
    if mode == "disabled" or (files.certificate is None and not named):
        return None
    if auth != "none" and files.trust is None:
        raise ConfigError(
            f"tls.server.need.client.auth={auth} needs tls.server.authClient=true and "
            "tls.server.trustCertPath: certificates cannot be asked for without being checked"
        )
    return ServerTls(files=files, mode=mode, client_auth=auth)


def _client(properties: Mapping[str, str]) -> ClientTls | None:
    if not _is_true(properties, "tls.enable"):
        return None
    verify = _is_true(properties, "tls.client.authServer")
    if "tls.test.mode.enable" in properties and _is_true(properties, "tls.test.mode.enable"):
        verify = False
    files = _files(properties, "client", trusting=verify)
    return ClientTls(files=files, verify=verify, check_hostname=False)


def _files(
    properties: Mapping[str, str], end: Literal["server", "client"], *, trusting: bool
) -> TlsFiles:
    def path(name: str) -> Path | None:
        value = properties.get(f"tls.{end}.{name}", "")
        return Path(value) if value else None

    return TlsFiles(
        certificate=path("certPath"),
        key=path("keyPath"),
        key_password=properties.get(f"tls.{end}.keyPassword") or None,
        trust=path("trustCertPath") if trusting else None,
        ciphers=_listed(properties, "tls.ciphers"),
        protocols=_listed(properties, "tls.protocols"),
    )


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return _one_of(properties, key, _TRUTHS, default="false")


def _one_of(properties: Mapping[str, str], key: str, values: Mapping[str, T], default: str) -> T:
    value = properties.get(key, default).strip().lower()
    if value not in values:
        raise ConfigError(f"{key} is {value!r}; it has to be one of {', '.join(values)}")
    return values[value]


def _listed(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(re.split(r"[\s,:;]+", value)) if (value := properties.get(key, "").strip()) else ()


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: comments, continued lines, escapes."""
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\n[ \t]*", r"\1", text.replace("\r\n", "\n"))
    found = {}
    for line in map(str.strip, joined.splitlines()):
        if line and line[0] not in "#!" and (entry := _ENTRY.match(line)) is not None:
            found[_unescape(entry[1])] = _unescape(entry[2])
    return found


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
