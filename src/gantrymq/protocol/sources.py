"""Source text of a codec while it is being put together, and the function it becomes.

Codecs are straight-line functions made once per class, at its first use, as `dataclasses` makes
`__init__`: no loop over fields, no lookup of types, nothing but the conversions themselves. To say
which field could not be read costs nothing while all can be: each field has lines of its own, and
the line at which an exception left the function names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gantrymq.protocol.scalars import Unreadable, missing


class Source:
    """Lines of one function, and the values its text refers to by name."""

    def __init__(self, owner: type, head: str) -> None:
        self.owner = owner
        self.lines = [head]
        self.names: dict[str, Any] = {"owner": owner, "new": object.__new__, "blame": self.blame}
        self.steps: dict[int, str] = {}

    def add(self, line: str, step: str | None = None) -> None:
        """One more line; `step` is the field it reads or writes, as the wire spells it."""
        self.lines.append(line)
        if step is not None:
            self.steps[len(self.lines)] = step

    def give(self, value: Any) -> str:
        """What the text calls `value`; numbers and the like stand for themselves."""
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = f"given{len(self.names)}"
        self.names[name] = value
        return name

    def blame(self, error: Exception) -> Unreadable:
        """`error`, which left the function, with the field that it is about."""
        trace = error.__traceback__
        step = self.steps.get(trace.tb_lineno) if trace else None
        if isinstance(error, KeyError):
            what = missing()
        else:
            what = error if isinstance(error, Unreadable) else Unreadable(str(error))
        return what if step is None else what.under(step)

    def function(self) -> Callable[..., Any]:
        """What the text comes to."""
        name = self.lines[0].removeprefix("def ").partition("(")[0]
        code = compile("\n".join(self.lines), f"<{name} of {self.owner.__qualname__}>", "exec")
        exec(code, self.names)
        made: Callable[..., Any] = self.names[name]
        return made
