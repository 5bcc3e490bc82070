"""Hooks of users around every attempt to send, every transaction's end, and every handling.

Nothing that a hook raises changes what happens to a message; it is logged. The one exception is
`SendHook.check`, which is there to forbid an attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gantrymq.flows.sending import Attempt
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.transactions import Decision

log = logging.getLogger("gantrymq.client")


@dataclass(slots=True, kw_only=True)
class TransactionEnd:
    """How a transaction ended, as hooks see it.

    RocketMQ: EndTransactionContext.
    """

    topic: str
    message_id: str
    transaction_id: str
    tag: str | None
    keys: tuple[str, ...]
    address: str
    """Of the broker that has the half message."""
    decision: Decision
    from_check: bool
    """Whether the broker had to ask."""


class SendHook:
    """Looks on while messages are sent: a base whose methods do nothing.

    They are called on the thread, or the loop, that sends, and hold it up for as long as they take.

    RocketMQ: CheckForbiddenHook, SendMessageHook, EndTransactionHook.
    """

    def check(self, attempt: Attempt) -> None:
        """Raise to forbid the attempt; what is raised ends the send and reaches its caller."""

    def before(self, attempt: Attempt) -> None:
        """It is about to go out; properties may still be put into `attempt.draft.properties`."""

    def after(self, attempt: Attempt) -> None:
        """It ended, with `attempt.receipt` or `attempt.error`; one-way ones with neither."""

    def ended(self, end: TransactionEnd) -> None:
        """A transaction was committed, rolled back or left open, and its broker is told."""


@dataclass(slots=True, kw_only=True, eq=False)
class Handling:
    """Messages in somebody's hands, as hooks see them: before they are handled, and after.

    RocketMQ: ConsumeMessageContext.
    """

    group: str
    queue: MessageQueue
    messages: list[ReceivedMessage]
    called: bool = True
    """Whether a handler is called with them, between the hooks and where these are called. Not so
    for a loop that takes messages: there the hooks are called where it takes them."""
    error: BaseException | None = None
    """What the handler raised; known afterwards."""
    notes: dict[object, Any] = field(default_factory=dict)
    """What hooks want to remember from `before` to `after`, each under itself."""


class ConsumeHook:
    """Looks on while messages are handled: a base whose methods do nothing.

    They are called where the handler is, on its thread or on the loop.

    RocketMQ: ConsumeMessageHook.
    """

    def before(self, handling: Handling) -> None:
        """They are about to be handled."""

    def after(self, handling: Handling) -> None:
        """They were handled, or failed with `handling.error`."""


class HookChain:
    """Several send hooks as one. What they raise, unless it forbids the attempt, is logged."""

    def __init__(self, hooks: Iterable[SendHook] = ()) -> None:
        self._hooks = tuple(hooks)

    def __len__(self) -> int:
        return len(self._hooks)

    def add(self, hook: SendHook) -> None:
        """One more, after the others."""
        self._hooks = (*self._hooks, hook)

    def check(self, attempt: Attempt) -> None:
        """Ask them all."""
        for hook in self._hooks:
            hook.check(attempt)

    def before(self, attempt: Attempt) -> None:
        """Tell them all."""
        for hook in self._hooks:
            _tell(hook.before, attempt)

    def after(self, attempt: Attempt) -> None:
        """Tell them all."""
        for hook in self._hooks:
            _tell(hook.after, attempt)

    def ended(self, end: TransactionEnd) -> None:
        """Tell them all."""
        for hook in self._hooks:
            _tell(hook.ended, end)


class ConsumeHooks:
    """Several consume hooks as one, around the handlers of one group."""

    def __init__(self, group: str, hooks: Iterable[ConsumeHook]) -> None:
        self._group: Final = group
        self._hooks: Final = tuple(hooks)

    def __len__(self) -> int:
        return len(self._hooks)

    def before(self, messages: list[ReceivedMessage], *, called: bool = True) -> Handling:
        """Tell them all; what they are told of, to be handed to `after`."""
        handling = Handling(
            group=self._group, queue=messages[0].queue, messages=messages, called=called
        )
        for hook in self._hooks:
            _tell(hook.before, handling)
        return handling

    def after(self, handling: Handling, error: BaseException | None) -> None:
        """Tell them all, in the other order."""
        handling.error = error
        for hook in reversed(self._hooks):
            _tell(hook.after, handling)


def _tell(method: Callable[[Any], None], what: object) -> None:
    try:
        method(what)
    except Exception:
        log.exception("hook %s failed", getattr(method, "__qualname__", method))
