"""A runtime without a network: every call is answered at once by what a test has written down.

```python
runtime = ScriptedRuntime()
runtime.answer("10.0.0.1:10911", GetMaxOffset, OffsetReply(offset=7))
runtime.answer("10.0.0.2:10911", GetMaxOffset, ConnectFailed("no route"))
```

An answer is a reply, an error to raise, a function of the request, or a list of those, used up one
by one (the last stays). Time stands still, but for `sleep` and for calls that the script says take
some; one that would take longer than it may ends in `CallTimeout` when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from gantrymq.errors import CallTimeout, ConnectFailed
from gantrymq.protocol.base import Reply, Request

R = TypeVar("R", bound=Reply)

Outcome: TypeAlias = Reply | Exception | Callable[[Any], "Reply | Exception"]
"""What comes of a call."""


class ScriptedRuntime:
    """What flows ask for, by script; `calls` has what they asked, `told` what was one-way."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Request[Any]]] = []
        self.told: list[tuple[str, Request[Any]]] = []
        self.timeouts: list[float] = []
        """What each call was given."""
        self.slept: list[float] = []
        self.time = 0.0
        self._takes: dict[tuple[str, type[Request[Any]]], float] = {}
        self._script: dict[tuple[str, type[Request[Any]]], list[Outcome]] = {}

    def answer(
        self,
        address: str,
        request: type[Request[Any]],
        outcome: Outcome | list[Outcome],
        *,
        takes: float = 0.0,
    ) -> None:
        """From now on, what comes of such a request at `address`, and after how many seconds."""
        outcomes = outcome if isinstance(outcome, list) else [outcome]
        self._takes[address, request] = takes
        self._script[address, request] = list(outcomes)

    def asked(self, request: type[Request[Any]]) -> list[tuple[str, Any]]:
        """The calls of one kind: address and request."""
        return [(address, asked) for address, asked in self.calls if type(asked) is request]

    async def call(self, address: str, request: Request[R], *, timeout: float) -> R:
        """What the script says; an address that it does not know cannot be reached."""
        self.calls.append((address, request))
        self.timeouts.append(timeout)
        outcomes = self._script.get((address, type(request)))
        if outcomes is None:
            known = sorted(kind.__name__ for at, kind in self._script if at == address)
            if known:
                raise AssertionError(
                    f"the script has no {type(request).__name__} for {address}, only {known}"
                )
            raise ConnectFailed(f"cannot connect to {address} in {timeout:.1f}s: by script")
        takes = self._takes[address, type(request)]
        self.time += min(takes, timeout)
        if takes > timeout:
            raise CallTimeout(f"no reply from {address} in {timeout:.1f}s ({request})")
        outcome = outcomes[0] if len(outcomes) == 1 else outcomes.pop(0)
        if not isinstance(outcome, Reply | Exception):
            outcome = outcome(request)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, request.REPLY), (type(outcome), request)
        return outcome

    async def tell(self, address: str, request: Request[Any]) -> None:
        """Take note of it; what the script says of it is raised if it is an error."""
        self.told.append((address, request))
        outcome = next(iter(self._script.get((address, type(request)), ())), None)
        if isinstance(outcome, Exception):
            raise outcome

    async def sleep(self, seconds: float) -> None:
        """Let that much of the script's time pass."""
        self.slept.append(seconds)
        self.time += seconds

    def now(self) -> float:
        """The script's time."""
        return self.time
