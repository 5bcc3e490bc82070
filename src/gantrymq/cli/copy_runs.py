"""Runs of copying that can be stopped and gone on with: replays and redrives.

How far a run is, is kept in a file: for each queue the next offset and the last, and what was asked
for. The file is written anew once a second and at the end of a run that did not come to its end; it
is whole or the one before. So after a crash at most the messages of the last second are copied once
more, none is left out; after Ctrl-C none is copied twice. A run that is done has no file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gantrymq.cli import screen
from gantrymq.cli.message_shapes import Choice, Range
from gantrymq.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session
    from gantrymq.flows.copying import Destination
    from gantrymq.model import ReceivedMessage

_KEPT_EVERY: Final = 1.0
_LOOK: Final = 0.1
_FIELDS: Final = ("tag", "sql", "where", "text", "decode", "message")


@dataclass(slots=True)
class Run:
    """What is to be copied, where to, and how far that is."""

    topic: str
    into: str
    """`topic=NAME` or `group=NAME`; `origin` for the topic that each message was sent to."""
    ranges: list[Range]
    choice: Choice
    rate: float = 0.0
    limit: int | None = None
    copied: int = 0
    passed: int = 0
    """Messages that were looked at and are not meant."""
    file: Path | None = None
    _saved: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """Offsets that are still to be looked at."""
        return sum(one.size for one in self.ranges)

    # --- the file -------------------------------------------------------------------------------

    def save(self) -> None:
        """Write down how far it is."""
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        with fresh.open("w", encoding="utf-8") as out:
            json.dump(self._data(), out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self.file)
        self._saved = time.monotonic()

    def _data(self) -> dict[str, Any]:
        choice = {name: getattr(self.choice, name) for name in _FIELDS}
        choice["schema"] = None if self.choice.schema is None else str(self.choice.schema)
        queues = [[r.queue.broker, r.queue.queue_id, r.start, r.end] for r in self.ranges if r.size]
        return {
            "topic": self.topic,
            "into": self.into,
            "queues": queues,
            "choice": choice,
            "rate": self.rate,
            "limit": self.limit,
            "copied": self.copied,
            "passed": self.passed,
        }

    @classmethod
    def load(cls, file: Path) -> Run:
        """Read a file that a run left."""
        from gantrymq.model import MessageQueue

        try:
            data = json.loads(file.read_text("utf-8"))
            topic, chosen = data["topic"], data["choice"]
            schema = None if chosen["schema"] is None else Path(chosen["schema"])
            return cls(
                topic=topic,
                into=data["into"],
                ranges=[Range(MessageQueue(topic, b, q), s, e) for b, q, s, e in data["queues"]],
                choice=Choice(**{name: chosen[name] for name in _FIELDS}, schema=schema),
                rate=data["rate"],
                limit=data["limit"],
                copied=data["copied"],
                passed=data["passed"],
                file=file,
            )
        except FileNotFoundError as error:
            raise ConfigError(f"{file} is not there: was the run done already?") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file} is not what a run of copying leaves: {error!r}") from error

    def forget(self) -> None:
        """It is done."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    # --- the work -------------------------------------------------------------------------------

    def chosen(self, session: Session) -> Iterator[ReceivedMessage]:
        """The messages that are meant, without noting that they were looked at."""
        reader, meant = self.choice.reader(session), self.choice.test()
        for one in self.ranges:
            yield from (message for message in reader.messages(*one) if meant(message))

    def work(self, session: Session, copy: Callable[[ReceivedMessage], None], bar: Any) -> None:
        """Copy until it is done, the limit is reached, or somebody stops it."""
        try:
            with screen.gently() as stopping:
                self._work(session, copy, bar, stopping)
        finally:
            self.save()

    def _work(
        self,
        session: Session,
        copy: Callable[[ReceivedMessage], None],
        bar: Any,
        stopping: screen.Stopping,
    ) -> None:
        reader, meant = self.choice.reader(session), self.choice.test()
        start, before = time.monotonic(), self.copied
        for number, one in enumerate(self.ranges):
            for message in reader.messages(*one):
                if self.limit is not None and self.copied >= self.limit:
                    return
                if meant(message):
                    self._wait(start, self.copied - before, stopping)
                    copy(message)
                    self.copied += 1
                else:
                    self.passed += 1
                self._note(number, message.offset + 1, bar)
                stopping.check()
            self._note(number, one.end, bar)

    def _wait(self, start: float, number: int, stopping: screen.Stopping) -> None:
        """Wait for the turn of this copy, looking now and then whether to stop."""
        while self.rate and (ahead := start + number / self.rate - time.monotonic()) > 0:
            stopping.check()
            time.sleep(min(ahead, _LOOK))

    def _note(self, number: int, offset: int, bar: Any) -> None:
        one = self.ranges[number]
        bar.add(offset - one.start)
        self.ranges[number] = one._replace(start=offset)
        if time.monotonic() - self._saved >= _KEPT_EVERY:
            self.save()


class Copier:
    """Copies messages into the place that a run names."""

    def __init__(self, session: Session, into: str, *, origin: str | None = None) -> None:
        """`origin` is the topic of all messages; None where each knows its own."""
        self._reach = session.admin.reach
        self.kind, self.name = parsed(into)
        self.name = session.wrapped(self.name)
        self._origin = None if origin is None else session.wrapped(origin)
        self._destinations: dict[str, Destination] = {}

    def __call__(self, message: ReceivedMessage) -> None:
        """Copy one."""
        from gantrymq.flows.copying import copy, origin_topic
        from gantrymq.runtime import run_blocking

        origin = self._origin or origin_topic(message)
        place = self.destination(origin)
        run_blocking(copy(self._reach, message, place, origin=origin))

    def destination(self, origin: str) -> Destination:
        """Where messages of a topic go."""
        from gantrymq.flows.copying import into_group, into_topic
        from gantrymq.runtime import run_blocking

        if origin not in self._destinations:
            if self.kind == "group":
                flow = into_group(self._reach, self.name, origin)
            else:
                flow = into_topic(self._reach, origin if self.kind == "origin" else self.name)
            self._destinations[origin] = run_blocking(flow)
        return self._destinations[origin]


def parsed(into: str) -> tuple[str, str]:
    """`topic=orders` as its two parts; `origin` has one."""
    kind, _, name = into.partition("=")
    if kind == "origin" and not name:
        return kind, ""
    if kind not in ("topic", "group") or not name:
        raise InvalidInput(f"{into!r} is no place for copies: write topic=NAME or group=NAME")
    return kind, name


def run_file(what: str, environ: Mapping[str, str] = os.environ) -> Path:
    """A new file for how far a run is."""
    home = Path(environ.get("HOME") or Path.home())
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    safe = "".join(letter if letter.isalnum() else "-" for letter in what)
    return state / "gantry" / f"{safe}-{stamp}-{os.getpid()}.json"
