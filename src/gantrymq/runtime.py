"""What a flow may ask of the world, and how a flow is run without an event loop.

A flow is an ordinary `async def` that awaits its `Runtime` and other flows, and nothing else. So
the same flow runs in two ways. With an asynchronous runtime it is awaited like any coroutine. With
a blocking one it is *stepped*: that runtime's methods are coroutines too, but they never suspend;
they block the calling thread and return. One `send(None)` then carries the flow from its first
line to its `return`, on the caller's own thread, without a loop and without a second copy of the
code. A flow that suspends all the same has awaited something foreign, and is told so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from gantrymq.protocol.base import Reply, Request

T = TypeVar("T")
R = TypeVar("R", bound="Reply")
Given = TypeVar("Given", bound="Reply", covariant=True)

_FOREIGN_AWAIT = "a flow awaited something other than its Runtime"


class Runtime(Protocol):
    """The things a flow may ask for."""

    async def call(self, address: str, request: Request[R], *, timeout: float) -> R:
        """The reply of the peer at `address`, within `timeout` seconds or `CallTimeout`."""
        ...

    async def tell(self, address: str, request: Request[Any]) -> None:
        """Send `request` one-way: nothing comes back, and it may be lost."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...

    def now(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class Pending(Protocol[Given]):
    """A call whose reply is still to come."""

    async def reply(self, *, timeout: float) -> Given:
        """The reply, within `timeout` seconds from now or `CallTimeout`."""
        ...


class Pipe(Protocol):
    """One connection, for calls that go out before the replies to earlier ones have come."""

    async def begin(self, request: Request[R], *, timeout: float) -> Pending[R]:
        """Send `request`, which may take `timeout` seconds."""
        ...


class PipingRuntime(Runtime, Protocol):
    """A runtime that also lends out its connections."""

    def pipe(self, address: str, *, timeout: float) -> AbstractAsyncContextManager[Pipe]:
        """A connection to `address`; replies that nobody waited for are dropped at the end."""
        ...


def run_blocking(flow: Coroutine[object, None, T]) -> T:
    """What `flow` returns, run to its end on this thread."""
    try:
        flow.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        flow.close()
    raise RuntimeError(_FOREIGN_AWAIT)


def iterate_blocking(flow: AsyncIterator[T]) -> Iterator[T]:
    """What `flow` yields, one by one, each made on this thread when it is asked for.

    Leaving the loop early closes the flow, as leaving an `async for` would.
    """
    try:
        while True:
            try:
                item = _step(anext(flow))
            except StopAsyncIteration:
                return
            yield item
    finally:
        close = getattr(flow, "aclose", None)
        if close is not None:
            _step(close())


def _step(awaitable: Awaitable[T]) -> T:
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as done:
        value: T = done.value
        return value
    error = RuntimeError(_FOREIGN_AWAIT)
    throw = getattr(steps, "throw", None)
    if throw is not None:
        throw(error)  # not close(): the step of an asynchronous generator ends only by an error
    raise error
