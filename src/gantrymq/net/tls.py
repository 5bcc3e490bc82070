"""TLS for both ends, as RocketMQ has it, with certificates that are read again when they change.

Contexts are made from files at once, so that a mistake shows at the start. Whenever a handshake
needs one, and at most twice a second, the files are looked at: if one of them changed, a new
context is made from all of them and serves every handshake from then on, while connections that
exist stay as they are. Files that do not work, because only half of them are written yet or because
they are wrong, are logged once, and the last good context stays.

Python's `ssl` cannot ask a client for a certificate and then not check it, as RocketMQ does with
`need.client.auth` but without `authClient`; that combination is refused.

RocketMQ: TlsHelper, FileWatchService.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from gantrymq.errors import ConfigError

log = logging.getLogger("gantrymq.net")

TlsMode: TypeAlias = Literal["disabled", "permissive", "enforcing"]
ClientAuth: TypeAlias = Literal["none", "optional", "require"]

_LOOK_AGAIN: Final = 0.5
"""Seconds between looks at the files; RocketMQ's watcher takes as long."""

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}
_PROTOCOLS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """What either end needs to identify itself and to trust the other."""

    certificate: Path | None = None
    """Our certificate chain, in PEM."""
    key: Path | None = None
    """Its private key, in PEM."""
    key_password: str | None = None
    trust: Path | None = None
    """What the other side's certificates have to go back to, in PEM; else the system's."""
    ciphers: tuple[str, ...] = ()
    """For TLS 1.2 and below, as OpenSSL or as Java names them."""
    protocols: tuple[str, ...] = ()
    """Such as `TLSv1.2` and `TLSv1.3`; the lowest and the highest count."""

    def equip(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Put all of it into `context`."""
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, self.key_password)
        if self.trust is not None:
            context.load_verify_locations(self.trust)
        elif context.verify_mode is not ssl.CERT_NONE:
            context.load_default_certs()
        _choose_protocols(context, self.protocols)
        _choose_ciphers(context, self.ciphers)
        return context

    def watched(self) -> tuple[Path, ...]:
        """The files themselves."""
        return tuple(path for path in (self.certificate, self.key, self.trust) if path is not None)


@dataclass(slots=True, kw_only=True, eq=False)
class ClientTls:
    """How we connect with TLS. RocketMQ: tls.enable, tls.client.*."""

    files: TlsFiles = field(default_factory=TlsFiles)
    verify: bool = True
    """Check the server's certificate."""
    check_hostname: bool = True
    """Check that it is this server's; Java clients never do."""
    server_name: str | None = None
    """The name to ask for and to check, where it is not the host of the address."""
    clock: Callable[[], float] = time.monotonic
    _contexts: Contexts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._contexts = Contexts(self._make, self.files.watched(), self.clock)

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self._contexts.latest()

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verify and self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        return self.files.equip(context)


@dataclass(slots=True, kw_only=True, eq=False)
class ServerTls:
    """How we take connections with TLS. RocketMQ: tls.server.*."""

    files: TlsFiles
    mode: TlsMode = "permissive"
    """Refuse TLS, take both, or refuse what is not TLS."""
    client_auth: ClientAuth = "none"
    """Whether clients may, or have to, show a certificate that `files.trust` vouches for."""
    clock: Callable[[], float] = time.monotonic
    _contexts: Contexts = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.mode != "disabled" and self.files.certificate is None:
            raise ConfigError(f"TLS {self.mode} at a server needs a certificate and its key")
        if self.client_auth != "none" and self.files.trust is None:
            raise ConfigError(
                f"client certificates ({self.client_auth}) need a file of certificates to trust: "
                "they cannot be asked for without being checked"
            )
        self._contexts = Contexts(self._make, self.files.watched(), self.clock)

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self._contexts.latest()

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _VERIFY[self.client_auth]
        return self.files.equip(context)


class Contexts:
    """The context that files make, made again when they change."""

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        watched: Sequence[Path],
        clock: Callable[[], float],
    ) -> None:
        self._make = make
        self._watched = watched
        self._clock = clock
        self._stamps = self._look()
        self._look_at = clock() + _LOOK_AGAIN
        try:
            self._latest = make()
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise ConfigError(f"TLS cannot be set up from {self._names()}: {error}") from error

    def latest(self) -> ssl.SSLContext:
        """The newest that works."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
                self._renew()
        return self._latest

    def _renew(self) -> None:
        try:
            self._latest = self._make()
        except (OSError, ValueError) as error:
            log.warning("TLS goes on as it was; %s changed and failed: %s", self._names(), error)
        else:
            log.info("TLS now uses what changed in %s", self._names())

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What shows that a file changed; None for one that is not there."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in self._watched:
            try:
                found = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps

    def _names(self) -> str:
        return ", ".join(map(str, self._watched)) or "the system's certificates"


def _choose_protocols(context: ssl.SSLContext, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in _PROTOCOLS]
    if unknown:
        raise ConfigError(f"no TLS protocol {unknown[0]!r}; there are {', '.join(_PROTOCOLS)}")
    if names:
        versions = sorted(_PROTOCOLS[name] for name in names)
        context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _choose_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    chosen = [name for name in map(openssl_cipher, names) if name is not None]
    for name in chosen:  # one by one, since a list is accepted if one name in it is good
        try:
            context.set_ciphers(name)
        except ssl.SSLError as error:
            raise ConfigError(f"no TLS cipher {name!r} here") from error
    if chosen:
        context.set_ciphers(":".join(chosen))


def openssl_cipher(name: str) -> str | None:
    """OpenSSL's name for a cipher suite that may be given by Java's; None for TLS 1.3's.

    Those of TLS 1.3 are always on: OpenSSL keeps them apart, and Python has no switch for them.
    """
    if not name.startswith(("TLS_", "SSL_")):
        return name
    exchange, sign, rest = name[4:].partition("_WITH_")
    if not sign:
        return None
    rest = rest.replace("AES_", "AES").replace("_CBC", "").replace("3DES_EDE", "DES_CBC3")
    rest = rest.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    full = rest if exchange == "RSA" else f"{exchange}_{rest}"
    return full.replace("_", "-")
