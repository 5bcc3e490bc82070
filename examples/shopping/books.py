"""What was sent, what became of it, and whether the two agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TOPICS: Final = ("orders", "mails", "payments", "reminders")
DEAD: Final = "%DLQ%mails-desk"
RETRIED: Final = "%RETRY%mails-desk"


@dataclass(slots=True)
class Books:
    """What was sent, and what became of it."""

    orders: int = 0
    cents: int = 0
    handled: set[bytes] = field(default_factory=set)
    repeats: int = 0
    disordered: int = 0
    last_of: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    by_member: Counter[str] = field(default_factory=Counter)
    mails: int = 0
    mailed: set[bytes] = field(default_factory=set)
    retries: int = 0
    dead: set[bytes] = field(default_factory=set)
    paid: set[bytes] = field(default_factory=set)
    rolled_back: set[bytes] = field(default_factory=set)
    booked: set[bytes] = field(default_factory=set)
    reminders: int = 0
    reminded: set[bytes] = field(default_factory=set)
    late: list[float] = field(default_factory=list)

    @property
    def sent(self) -> dict[str, int]:
        """What brokers acknowledged, by topic; a payment counts when it is committed."""
        counts = (self.orders, self.mails, len(self.paid), self.reminders)
        return dict(zip(TOPICS, counts, strict=True))

    @property
    def consumed(self) -> dict[str, int]:
        """What handlers have done, by topic; what came twice counts once."""
        done = (self.handled, self.mailed, self.booked, self.reminded)
        return {topic: len(bodies) for topic, bodies in zip(TOPICS, done, strict=True)}

    @property
    def settled(self) -> bool:
        """Whether everything that was sent has come to its end."""
        dead = {"mails": len(self.dead)}
        consumed = self.consumed
        return all(
            count == consumed[topic] + dead.get(topic, 0) for topic, count in self.sent.items()
        )

    @property
    def right(self) -> bool:
        """Whether orders kept their order, and nothing that was rolled back was booked."""
        return not self.disordered and not self.booked & self.rolled_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What brokers say at one moment, by topic."""

    messages: Mapping[str, int]
    """How many each topic holds; those that are given up and those to be tried again, too."""
    waiting: Mapping[str, int]
    """How many of them its group has not consumed; of mails those to be tried again as well."""

    @property
    def archivable(self) -> int:
        """How many rows the archive is to have: all but those that are only to be tried again."""
        return sum(count for topic, count in self.messages.items() if topic != RETRIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One topic at the end."""

    topic: str
    sent: int
    consumed: int
    dead: int
    in_flight: int
    stored: int
    archived: int | None
    """Rows in Parquet; None where Spark was left out."""

    @property
    def agrees(self) -> bool:
        """Whether what was sent is what became of it."""
        return self.sent == self.consumed + self.dead + self.in_flight

    @property
    def behind(self) -> int:
        """Stored messages without a row; fewer than none are rows too many."""
        return 0 if self.archived is None else self.stored - self.archived


def accounts(books: Books, stored: Stored, archived: Mapping[str, int] | None) -> list[Account]:
    """What was sent against what brokers and Parquet have, by topic."""
    sent, consumed = books.sent, books.consumed
    timed = {
        # a delayed message is stored in its topic when it is due, and a mail to be tried again too
        "reminders": sent["reminders"] - stored.messages.get("reminders", 0),
        "mails": books.retries - stored.messages.get(RETRIED, 0),
    }
    return [
        Account(
            topic=topic,
            sent=sent[topic],
            consumed=consumed[topic],
            dead=stored.messages.get(DEAD, 0) if topic == "mails" else 0,
            in_flight=stored.waiting.get(topic, 0) + timed.get(topic, 0),
            stored=stored.messages.get(topic, 0),
            archived=None if archived is None else archived.get(topic, 0),
        )
        for topic in TOPICS
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether everything agrees, and if not, what does not."""

    accounts: list[Account]
    faults: list[str]


def judge(books: Books, lines: list[Account], *, ended: bool, repeated_rows: int) -> Verdict:
    """Compare; a run that was stopped midway may leave work undone, and one that ended not."""
    faults = [
        f"{line.topic}: {line.sent:,} sent, but {line.consumed:,} consumed + {line.dead:,}"
        f" dead-lettered + {line.in_flight:,} in flight"
        for line in lines
        if not line.agrees
    ]
    faults += [
        f"{line.topic}: {line.archived:,} rows in Parquet of {line.stored:,} stored messages"
        for line in lines
        if line.behind < 0 or (ended and line.behind)
    ]
    if ended and not books.settled:
        faults.append("not everything came to its end in time")
    if books.disordered:
        faults.append(f"{books.disordered:,} orders came out of their customer's order")
    if wrong := len(books.booked & books.rolled_back):
        faults.append(f"{wrong:,} payments were booked although they were rolled back")
    if repeated_rows:
        faults.append(f"{repeated_rows:,} rows are in Parquet more than once")
    return Verdict(accounts=lines, faults=faults)
