"""Hooks of users around every attempt to send."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from gantrymq.flows.sending import Attempt

log = logging.getLogger("gantrymq.client")


class SendHook:
    """Looks on while messages are sent: a base whose methods do nothing.

    They are called on the thread, or the loop, that sends, and hold it up for as long as they take.

    RocketMQ: CheckForbiddenHook, SendMessageHook.
    """

    def check(self, attempt: Attempt) -> None:
        """Raise to forbid the attempt; what is raised ends the send and reaches its caller."""

    def before(self, attempt: Attempt) -> None:
        """It is about to go out; properties may still be put into `attempt.draft.properties`."""

    def after(self, attempt: Attempt) -> None:
        """It ended, with `attempt.receipt` or `attempt.error`; one-way ones with neither."""


class HookChain:
    """Several hooks as one. What they raise, unless it forbids the attempt, is logged."""

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
            try:
                hook.before(attempt)
            except Exception:
                log.exception("a hook failed before %s was sent", attempt.queue)

    def after(self, attempt: Attempt) -> None:
        """Tell them all."""
        for hook in self._hooks:
            try:
                hook.after(attempt)
            except Exception:
                log.exception("a hook failed after %s was sent", attempt.queue)
