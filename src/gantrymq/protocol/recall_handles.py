"""The handle of a timed message that has been sent: with it, it can be taken back.

The text is base64 for URLs of `v1 topic broker time id`, where the time is when the message is due,
in ms since 1970, and the id is the unique one that its producer gave it.

RocketMQ: RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from gantrymq.errors import InvalidInput

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    broker: str
    due_ms: int
    message_id: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Read a handle, or `InvalidInput`."""
        try:
            words = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
            version, topic, broker, due_ms, message_id = words
            if version == _VERSION:
                return cls(topic, broker, int(due_ms), message_id)
        except (binascii.Error, ValueError):
            pass
        raise InvalidInput(f"{text!r:.200} is no handle of a message that can be taken back")

    def __str__(self) -> str:
        plain = " ".join((_VERSION, self.topic, self.broker, str(self.due_ms), self.message_id))
        return base64.urlsafe_b64encode(plain.encode()).decode()
