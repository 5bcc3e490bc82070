from __future__ import annotations

from gantrymq.protocol.access import (
    AccessList,
    CreateAccess,
    CreateUser,
    DeleteAccess,
    DeleteUser,
    GetAccess,
    GetUser,
    ListAccess,
    ListUsers,
    Policy,
    Rule,
    UpdateAccess,
    UpdateUser,
    User,
)
from gantrymq.wire.command import Command

USER = User(name="u", password="secret", type="Normal", state="enable")
USER_TEXT = b'{"password":"secret","userStatus":"enable","userType":"Normal","username":"u"}'
RULES = AccessList(
    subject="User:u",
    policies=[
        Policy(
            type="Custom",
            rules=[
                Rule(resource="Topic:T", actions=["Pub"], sources=["10.0.0.1"], decision="Allow")
            ],
        )
    ],
)
RULES_TEXT = (
    b'{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:T",'
    b'"sourceIps":["10.0.0.1"]}],"policyType":"Custom"}],"subject":"User:u"}'
)


def test_users() -> None:
    for request, code in ((CreateUser(name="u", user=USER), 3001), (UpdateUser(user=USER), 3002)):
        command = request.command()
        assert (command.code, command.body) == (code, USER_TEXT)
        assert type(request).from_command(command) == request
    assert GetUser(name="u").reply_from(Command(0, body=USER_TEXT)).user == USER
    assert GetUser(name="u").reply_from(Command(0)).user is None
    assert ListUsers().reply_from(Command(0, body=b"[" + USER_TEXT + b"]")).users == [USER]
    assert ListUsers(filter="u").reply_from(Command(0)).users == []
    assert DeleteUser(name="u").command().fields == {"username": "u"}


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(CreateUser(name="u", user=USER))


def test_rules() -> None:
    for request, code in (
        (CreateAccess(subject="User:u", access=RULES), 3006),
        (UpdateAccess(subject="User:u", access=RULES), 3007),
    ):
        command = request.command()
        assert (command.code, command.body) == (code, RULES_TEXT)
        assert command.fields == {"subject": "User:u"}
    assert GetAccess(subject="User:u").reply_from(Command(0, body=RULES_TEXT)).access == RULES
    assert GetAccess(subject="User:u").reply_from(Command(0)).access is None
    lists = ListAccess().reply_from(Command(0, body=b"[" + RULES_TEXT + b",null]"))
    assert lists.lists == [RULES]
    assert DeleteAccess(subject="User:u", resource="Topic:T").command().fields == {
        "subject": "User:u", "resource": "Topic:T",
    }  # fmt: skip
