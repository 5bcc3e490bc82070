"""What sending and pulling need of parts that look after groups, offsets, locks and delays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.groups import Subscription
from gantrymq.wire.record import StoredMessage


class Consumers(Protocol):
    """A consumer group that has members."""

    @property
    def message_model(self) -> MessageModel | None:
        """Whether its members share the messages."""
        ...

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What they want, by topic."""
        ...


class Groups(Protocol):
    """The consumer groups."""

    def settings(self, group: str) -> GroupSettings | None:
        """The settings of a group, made now if it has none and may be made; else None."""
        ...

    def consumers(self, group: str) -> Consumers | None:
        """A group's members and subscriptions; None if nobody is there."""
        ...

    def may_read(self, group: str, topic: str) -> bool:
        """Whether nobody forbade that group to read that topic."""
        ...


class Offsets(Protocol):
    """How far each group has come."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What comes before `offset` is done."""
        ...

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group asked for messages from `offset` on."""
        ...

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group has to go on by somebody's order, which is then carried out."""
        ...


class Locks(Protocol):
    """The queues that members of orderly groups have for themselves."""

    def any_held(self, group: str) -> bool:
        """Whether somebody in the group holds a queue now."""
        ...


class Counts(Protocol):
    """What goes through the broker, counted."""

    failed_puts: int
    """Messages that were to be stored and were not."""
    missed: int
    """Pulls that found nothing."""

    def stored(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        """Messages were stored, in one go."""
        ...

    def handed_out(self, group: str, topic: str, queue_id: int, messages: int, size: int) -> None:
        """A pull found messages."""
        ...


class Delays(Protocol):
    """Messages that are not to be delivered yet."""

    def redirect(self, message: StoredMessage) -> None:
        """Have a message that names a delay level wait for it: its topic and queue change."""
        ...


class Timers(Protocol):
    """Messages that are to be delivered at a time of their own."""

    def redirect(self, message: StoredMessage) -> None:
        """Have a message that asks for a time wait for it, or refuse it."""
        ...
