"""Why a connection ended, what the log and an error say about it, and how loudly."""

from __future__ import annotations

import logging
from enum import Enum

log = logging.getLogger("gantrymq.net")


class Ending(Enum):
    """A reason, the words for it, and the level at which a server logs it."""

    LOCAL = ("closed here", logging.DEBUG)
    REMOTE = ("closed by the peer", logging.DEBUG)
    BROKEN = ("broken", logging.INFO)
    IDLE = ("nothing read or written for too long", logging.INFO)
    SILENT = ("no frame after connecting", logging.INFO)
    SLOW_FRAME = ("a frame was begun and not finished in time", logging.WARNING)
    SLOW_READER = ("the peer does not read what it asked for", logging.WARNING)
    BAD_FRAME = ("the peer broke the protocol", logging.WARNING)
    TIMED_OUT = ("a call got no reply in time", logging.INFO)
    UNRESPONSIVE = ("calls got no reply, and nothing else came either", logging.WARNING)
    SHUTDOWN = ("this server is shutting down", logging.DEBUG)

    def __init__(self, words: str, level: int) -> None:
        self.words = words
        self.level = level

    def note(self, remote: str, detail: object = None) -> None:
        """One line in the log."""
        if detail is None:
            log.log(self.level, "connection with %s ended: %s", remote, self.words)
        else:
            log.log(self.level, "connection with %s ended: %s: %s", remote, self.words, detail)
