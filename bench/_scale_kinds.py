"""What bench/scale.py lets grow, beside what bench/growth.py does: topics, timers, a backlog."""

from __future__ import annotations

import time
from typing import Final

from growth import (
    BODY,
    PATIENCE,
    SUBSCRIBED,
    WINDOW,
    Subject,
    Wire,
    Work,
    frame,
    in_windows,
    pull_frame,
    send_frame,
)

from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.offsets import GetMaxOffset
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.topics import PutTopics, TopicSettings

_AT_ONCE: Final = 500
_QUEUES: Final = 8
_DAY_MS: Final = 86_400_000
_SOON_MS: Final = 1500
_LOOK_EVERY: Final = 0.02


class Topics(Subject):
    """Many topics of one queue each."""

    def prepare(self) -> None:
        names = [f"t{number}" for number in range(self.size)]
        with BlockingPeer.connect(self.broker) as peer:
            for first in range(0, self.size, _AT_ONCE):
                topics = [
                    TopicSettings(topic=name, read_queues=1, write_queues=1)
                    for name in names[first : first + _AT_ONCE]
                ]
                peer.call(PutTopics(topics=topics), timeout=PATIENCE)
        self._sends = [send_frame(name, 0) for name in names]
        self._routes = [frame(GetRoute(topic=name)) for name in names]
        self._names = Wire(self.ours.name_server)
        self.wires.append(self._names)
        in_windows(self.wire, self._sends, max(self.size, WINDOW))

    def works(self) -> dict[str, Work]:
        return {"send": self._send, "route": self._route}

    def _send(self) -> int:
        in_windows(self.wire, self._sends, self.messages)
        return self.messages

    def _route(self) -> int:
        in_windows(self._names, self._routes, self.messages)
        return self.messages


class Timers(Subject):
    """Many messages that wait for a time within the next day."""

    def prepare(self) -> None:
        self.make_topic("t", _QUEUES)
        self.make_topic("later", 1)
        self.make_topic("due", 1)
        self._sends = [send_frame("t", queue_id) for queue_id in range(_QUEUES)]
        self._came = 0
        now = time.time_ns() // 1_000_000
        pause = _DAY_MS // (self.size + 1)
        for first in range(0, self.size, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, self.size))
            frames = [_timed("later", now + _DAY_MS // 24 + number * pause) for number in some]
            in_windows(self.wire, frames, len(frames))

    def works(self) -> dict[str, Work]:
        return {"send": self._send, "release": self._release}

    def _send(self) -> int:
        in_windows(self.wire, self._sends, self.messages)
        return self.messages

    def _release(self) -> int:
        """Take in messages that are due soon, and deliver them."""
        count = self.messages // 8
        frames = [_timed("due", time.time_ns() // 1_000_000 + _SOON_MS)]
        in_windows(self.wire, frames, count)
        self._came += count
        deadline = time.monotonic() + PATIENCE
        with BlockingPeer.connect(self.broker) as peer:
            while (there := self._delivered(peer)) < self._came:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{there:,} of {self._came:,} timed messages came")
                time.sleep(_LOOK_EVERY)
        return count

    def _delivered(self, peer: BlockingPeer) -> int:
        return peer.call(GetMaxOffset(topic="due", queue_id=0), timeout=PATIENCE).offset


def _timed(topic: str, due_ms: int) -> bytes:
    found = f"UNIQ_KEY\x01{due_ms:032X}\x02WAIT\x01true\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    return frame(
        SendMessage(
            group="growth", topic=topic, queue_id=0, body=BODY, properties=found,
            born_ms=time.time_ns() // 1_000_000,
        )
    )  # fmt: skip


class Backlog(Subject):
    """Many messages that nobody has read yet, in a topic of eight queues."""

    def prepare(self) -> None:
        self.make_topic("t", _QUEUES)
        self._sends = [send_frame("t", queue_id) for queue_id in range(_QUEUES)]
        in_windows(self.wire, self._sends, self.size)

    def works(self) -> dict[str, Work]:
        return {"send": self._send, "oldest": self._oldest, "newest": self._newest}

    def _send(self) -> int:
        in_windows(self.wire, self._sends, self.messages)
        return self.messages

    def _oldest(self) -> int:
        return self._read(0)

    def _newest(self) -> int:
        with BlockingPeer.connect(self.broker) as peer:
            request = GetMaxOffset(topic="t", queue_id=0)
            return self._read(peer.call(request, timeout=PATIENCE).offset - 4 * WINDOW)

    def _read(self, first: int) -> int:
        """32 at a time of one queue after the other, the same four times 32 again and again."""
        places = [(queue_id, first + step * WINDOW) for step in range(4) for queue_id in range(8)]
        pulls = [pull_frame("g", "t", *place, SUBSCRIBED, WINDOW) for place in places]
        rounds = 8 * self.messages // WINDOW
        for number in range(rounds):
            self.wire.write(pulls[number % len(pulls)])
            self.wire.read(1)
        return rounds * WINDOW


KINDS: Final[dict[str, type[Subject]]] = {"topics": Topics, "timers": Timers, "backlog": Backlog}
