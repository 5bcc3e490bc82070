"""Arguments that name a topic, group, broker or context: as texts, completed by the tab key.

Completion asks the cluster that the command line names, for a second at most; without an answer it
completes nothing, and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session

    Texts = click.ParamType[str]
else:
    Texts = click.ParamType

_PATIENCE: Final = 1.0


class Named(Texts):
    """A text that is the name of something in the cluster."""

    def __init__(self, name: str, known: Callable[[Session], list[str]]) -> None:
        self.name = name
        self._known = known

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> str:
        """Any text."""
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The names that begin so."""
        from gantrymq.cli.verbs import Session, given_to
        from gantrymq.errors import GantryError

        given = given_to(ctx)
        given.timeout = min(given.timeout or _PATIENCE, _PATIENCE)
        session = Session(given)
        try:
            found = self._known(session)
        except (GantryError, OSError):
            return []
        finally:
            session.close()
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _topics(session: Session) -> list[str]:
    return session.admin.list_topics()


def _groups(session: Session) -> list[str]:
    held = session.admin.list_groups().answers.values()
    return sorted({group for groups in held for group in groups})


def _brokers(session: Session) -> list[str]:
    return sorted({place.name for place in session.admin.list_brokers()})


TYPES: Final = {
    "topic": Named("topic", _topics),
    "group": Named("group", _groups),
    "source": Named("group", _groups),
    "target": Named("group", _groups),
    "broker": Named("broker", _brokers),
    "brokers": Named("broker", _brokers),
    "other": Named("broker", _brokers),
}
"""By the names of parameters."""
