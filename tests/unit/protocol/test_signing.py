from __future__ import annotations

import pytest

from gantrymq.protocol.pulling import QueryMessages
from gantrymq.protocol.signing import Credentials, sign, signed_by
from gantrymq.wire.command import Command
from gantrymq.wire.versions import V4_9_3, V4_9_4

ME = Credentials(access_key="me", secret_key="secret")


def signed() -> Command:
    command = Command(310, fields={"b": "T", "a": "G"}, body=memoryview(b"hello"))
    sign(command, ME)
    return command


def test_only_the_right_secret_will_do() -> None:
    assert signed_by(signed(), "secret")
    assert not signed_by(signed(), "Secret")


@pytest.mark.parametrize(
    "change",
    [{"b": "U"}, {"AccessKey": "you"}, {"Signature": "ä"}, {"Signature": ""}, {"__ZONE_NAME": "z"}],
)
def test_whatever_is_changed_afterwards_breaks_it(change: dict[str, str]) -> None:
    command = signed()
    command.fields |= change
    assert not signed_by(command, "secret")
    command = signed()
    command.body = b"hallo"
    assert not signed_by(command, "secret")


def test_no_signature() -> None:
    assert not signed_by(Command(310), "secret")


def test_signing_twice_changes_nothing() -> None:
    command = signed()
    sign(command, ME)
    assert command == signed()


@pytest.mark.parametrize(("version", "right"), [(V4_9_3, True), (V4_9_4, False)])
def test_old_clients_sign_without_the_mark_of_a_unique_key(version: int, right: bool) -> None:
    query = QueryMessages(topic="T", key="k", max_messages=1, begin_ms=0, end_ms=1)
    command = query.command()
    sign(command, ME)
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    command.version = version
    assert signed_by(command, "secret") is right


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials(access_key="me", secret_key="secret", security_token="token"))
    assert shown == "Credentials(access_key='me')"
