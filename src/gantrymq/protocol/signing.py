"""Signed requests: who sends them, proved by a secret that is not sent.

What is signed is the values of all header fields in the order of their names, without the names and
without anything between them, and then the body. The signature is the base64 of its HMAC-SHA1.
Fields that are added after signing make it wrong; responses are never signed.

RocketMQ: AclClientRPCHook, AclUtils.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gantrymq.wire.command import Buffer, Command
from gantrymq.wire.versions import V4_9_3

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
_NOT_SIGNED_BY_OLD_CLIENTS: Final = "_UNIQUE_KEY_QUERY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key, its secret, and for temporary keys a token."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def signed_content(fields: Mapping[str, str], body: Buffer, *, without: str = "") -> bytes:
    """The bytes that a signature is made of."""
    names = sorted(fields.keys() - {SIGNATURE, without})
    return "".join([fields[name] for name in names]).encode() + bytes(body)


def signature(content: bytes, secret_key: str) -> str:
    """The signature of `content`."""
    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def sign(command: Command, credentials: Credentials) -> None:
    """Add the sender and his signature to a request that is otherwise complete."""
    fields = command.fields
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    content = signed_content(fields, command.body)
    fields[SIGNATURE] = signature(content, credentials.secret_key)


def signed_by(command: Command, secret_key: str) -> bool:
    """Whether the request's signature was made with this secret."""
    given = command.fields.get(SIGNATURE, "")
    without = _NOT_SIGNED_BY_OLD_CLIENTS if command.version <= V4_9_3 else ""
    expected = signature(signed_content(command.fields, command.body, without=without), secret_key)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
