"""From a request of the peer to its answer: ask the table, and make whatever happens a reply.

| what happens | code | remark |
|---|---|---|
| the code is not in the table | 3 | ` request type N not supported`, the name it has, and why |
| the request does not decode | 1 | what is wrong with it |
| the handler raises `ReplyError` | its code | its remark |
| the handler raises anything else | 1 | the exception; logged once, with its traceback |
| the reply cannot be encoded | 1 | why not; logged |

A handler may also give back a `Command`, which goes out as it is: that is how a proxy passes on
what it does not read. Nothing here waits or writes, so the asyncio and the blocking endpoint share
it.

Refusals are counted by what was asked and what was answered. Numbers that are nobody's code count
as one, so that strangers cannot make the count grow.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gantrymq.errors import ProtocolError, ReplyError
from gantrymq.protocol import unsupported
from gantrymq.protocol.base import Entry, Reply
from gantrymq.wire.codes import RequestCode, ResponseCode
from gantrymq.wire.command import RESPONSE, Command
from gantrymq.wire.versions import V5_3_1

log = logging.getLogger("gantrymq.net")

Table: TypeAlias = Mapping[int, Entry[Any, Any]]
NO_TABLE: Final[Table] = MappingProxyType({})
"""Answers nothing; every request of the peer is refused."""

_SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
_NOT_SUPPORTED: Final = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
_GO_AWAY: Final = int(ResponseCode.GO_AWAY)

Refusals: TypeAlias = Counter[tuple[str, str]]
"""How often which request was refused with which response; names as RocketMQ has them."""
UNKNOWN: Final = "unknown"


def ask(
    command: Command,
    table: Table,
    owner: object,
    peer: object,
    refusals: Refusals | None = None,
) -> Command | Awaitable[Reply]:
    """The answer to `command`, or what to await for it."""
    entry = table.get(command.code)
    if entry is None:
        return _counted(command, _not_supported(command.code), refusals)
    try:
        outcome = entry.handler(entry.request.from_command(command), owner, peer)
        return outcome.command() if isinstance(outcome, Reply) else outcome
    except Exception as error:
        return failure(command, error, peer, refusals)


def _not_supported(code: int) -> Command:
    return Command(_NOT_SUPPORTED, flag=RESPONSE, remark=unsupported.remark(code))


def failure(
    command: Command, error: Exception, peer: object, refusals: Refusals | None = None
) -> Command:
    """The answer that `error` becomes."""
    return _counted(command, _failure(command, error, peer), refusals)


def _failure(command: Command, error: Exception, peer: object) -> Command:
    if isinstance(error, ReplyError):
        return Command(error.code, flag=RESPONSE, remark=error.remark, fields=dict(error.fields))
    name = RequestCode(command.code).name
    if isinstance(error, ProtocolError):
        log.info("%s from %s could not be handled: %s", name, peer, error)
    else:
        log.error("the handler of %s from %s failed", name, peer, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return Command(_SYSTEM_ERROR, flag=RESPONSE, remark=remark)


def _counted(command: Command, answer: Command, refusals: Refusals | None) -> Command:
    if refusals is not None:
        asked, answered = RequestCode(command.code), ResponseCode(answer.code)
        refusals[_name(asked), _name(answered)] += 1
    return answer


def _name(code: RequestCode | ResponseCode) -> str:
    return code.name.lower() if code.known else UNKNOWN


def go_away(command: Command) -> Command | None:
    """What a server that is shutting down answers a client new enough to understand it."""
    if command.version <= V5_3_1:
        return None
    return Command(_GO_AWAY, flag=RESPONSE, remark="please go away")
