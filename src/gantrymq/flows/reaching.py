"""How flows of administration reach servers: any name server, every name server, many brokers.

A question to the name servers goes to one after the other until one answers; what is changed there
goes to all of them, since they do not tell each other. A change at several brokers that some took
and others did not is `PartlyDone`; a look at several brokers gives what was seen and, beside it,
why the rest was not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from gantrymq.errors import ConnectFailed, GantryError, InvalidInput, PartlyDone, TransportError
from gantrymq.protocol.base import Reply, Request
from gantrymq.runtime import Runtime

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

TIMEOUT: Final = 5.0
"""Seconds that one request of administration may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a flow of administration needs to reach servers."""

    runtime: Runtime
    name_servers: tuple[str, ...]
    now_ms: Callable[[], int]
    """The time of day here: flows have no clock."""
    timeout: float = TIMEOUT
    reachable: Mapping[str, str] = field(default_factory=dict)
    """Addresses that servers give for themselves, with those that reach them from here."""
    namespace: str = ""

    async def ask(self, address: str, request: Request[R], *, timeout: float | None = None) -> R:
        """The answer of the server at `address`."""
        limit = self.timeout if timeout is None else timeout
        address = self.reachable.get(address, address)
        return await self.runtime.call(address, request, timeout=limit)

    async def ask_name_server(self, request: Request[R]) -> R:
        """The answer of the first name server that has one."""
        why: list[str] = []
        for address in self.name_servers:
            try:
                return await self.ask(address, request)
            except TransportError as error:
                why.append(f"{address}: {error}")
        raise _no_name_server(why)

    async def tell_name_servers(self, make: Callable[[], Request[R]]) -> dict[str, R]:
        """The answer of each name server, by address; `PartlyDone` if only some took it."""
        gathered = await gather(self.name_servers, lambda address: self.ask(address, make()))
        return gathered.whole(str(type(make()).__name__), "name servers")


def _no_name_server(why: list[str]) -> GantryError:
    if not why:
        return InvalidInput(
            "no name server is known: give one (host:9876), or set GANTRY_URL or NAMESRV_ADDR"
        )
    return ConnectFailed(
        f"no name server answers ({'; '.join(why)}); is one running there, and is the port "
        f"that of a name server (9876 unless set otherwise), not of a broker?"
    )


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """What several servers answered, by name, and why the others did not."""

    answers: dict[str, T] = field(default_factory=dict)
    failures: dict[str, GantryError] = field(default_factory=dict)

    def whole(self, what: str, where: str = "brokers") -> dict[str, T]:
        """The answers of all; `PartlyDone` if some failed, the failure itself if all did."""
        if not self.failures:
            return self.answers
        if not self.answers and len({type(error) for error in self.failures.values()}) == 1:
            raise next(iter(self.failures.values()))
        raise PartlyDone(what, where, done=tuple(self.answers), failed=self.failures)

    def some(self, what: str, where: str = "brokers") -> dict[str, T]:
        """The answers that came; an error only if there is not one."""
        return self.answers or self.whole(what, where)


async def gather(
    places: Iterable[str] | Mapping[str, Any], ask: Callable[[str], Awaitable[T]]
) -> Gathered[T]:
    """Ask at one place after the other, and go on where one fails."""
    gathered: Gathered[T] = Gathered()
    for place in places:
        try:
            gathered.answers[place] = await ask(place)
        except GantryError as error:
            gathered.failures[place] = error
    return gathered
