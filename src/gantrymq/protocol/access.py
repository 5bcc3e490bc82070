"""Users and what they may do, from 5.3.0 on."""

from __future__ import annotations

from dataclasses import field

from gantrymq.protocol.base import Done, Reply, Request, declared, named, whole_body
from gantrymq.wire.codes import RequestCode


@declared
class User:
    """Who may log in. Types are Super and Normal, states enable and disable. RocketMQ: UserInfo."""

    name: str | None = named("username", default=None)
    password: str | None = field(default=None, repr=False)
    type: str | None = named("userType", default=None)
    state: str | None = named("userStatus", default=None)


@declared
class Rule:
    """What may be done to a resource, from where. RocketMQ: AclInfo.PolicyEntryInfo."""

    resource: str | None = None
    actions: list[str] = field(default_factory=list)
    sources: list[str] = named("sourceIps", default_factory=list)
    decision: str | None = None


@declared
class Policy:
    """Rules of one kind, Custom or Default. RocketMQ: AclInfo.PolicyInfo."""

    type: str | None = named("policyType", default=None)
    rules: list[Rule] = named("entries", default_factory=list)


@declared
class AccessList:
    """What a subject, `User:name`, may do. RocketMQ: AclInfo."""

    subject: str | None = None
    policies: list[Policy] = field(default_factory=list)


@declared
class CreateUser(Request[Done]):
    """Let somebody in.

    RocketMQ: CreateUserRequestHeader, code 3001.
    """

    CODE = RequestCode.AUTH_CREATE_USER

    name: str | None = named("username", default=None)
    user: User = whole_body()


@declared
class UpdateUser(Request[Done]):
    """Change a user's password, type or state.

    RocketMQ: UpdateUserRequestHeader, code 3002.
    """

    CODE = RequestCode.AUTH_UPDATE_USER

    name: str | None = named("username", default=None)
    user: User = whole_body()


@declared
class DeleteUser(Request[Done]):
    """Let somebody in no more.

    RocketMQ: DeleteUserRequestHeader, code 3003.
    """

    CODE = RequestCode.AUTH_DELETE_USER

    name: str | None = named("username", default=None)


@declared
class UserReply(Reply):
    """A user, or none."""

    user: User | None = whole_body(default=None)


@declared
class GetUser(Request[UserReply]):
    """One user.

    RocketMQ: GetUserRequestHeader, code 3004.
    """

    CODE = RequestCode.AUTH_GET_USER

    name: str | None = named("username", default=None)


@declared
class UserList(Reply):
    """Users."""

    users: list[User] = whole_body(default_factory=list)


@declared
class ListUsers(Request[UserList]):
    """Every user, or those whose names contain a text.

    RocketMQ: ListUsersRequestHeader, code 3005.
    """

    CODE = RequestCode.AUTH_LIST_USER

    filter: str | None = None


@declared
class CreateAccess(Request[Done]):
    """Give a subject its rules.

    RocketMQ: CreateAclRequestHeader, code 3006.
    """

    CODE = RequestCode.AUTH_CREATE_ACL

    subject: str | None = None
    access: AccessList = whole_body()


@declared
class UpdateAccess(Request[Done]):
    """Change a subject's rules.

    RocketMQ: UpdateAclRequestHeader, code 3007.
    """

    CODE = RequestCode.AUTH_UPDATE_ACL

    subject: str | None = None
    access: AccessList = whole_body()


@declared
class DeleteAccess(Request[Done]):
    """Drop a subject's rules, or those of one kind or for one resource.

    RocketMQ: DeleteAclRequestHeader, code 3008.
    """

    CODE = RequestCode.AUTH_DELETE_ACL

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@declared
class AccessReply(Reply):
    """A subject's rules, or none."""

    access: AccessList | None = whole_body(default=None)


@declared
class GetAccess(Request[AccessReply]):
    """One subject's rules.

    RocketMQ: GetAclRequestHeader, code 3009.
    """

    CODE = RequestCode.AUTH_GET_ACL

    subject: str | None = None


@declared
class AccessLists(Reply):
    """Rules of several subjects."""

    lists: list[AccessList] = whole_body(default_factory=list)


@declared
class ListAccess(Request[AccessLists]):
    """Every subject's rules, or those that match.

    RocketMQ: ListAclsRequestHeader, code 3010.
    """

    CODE = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    resource_filter: str | None = None
