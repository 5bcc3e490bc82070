"""`gantry message`: all its verbs, each from the module that it is in."""

from __future__ import annotations

from gantrymq.cli import (
    message_exports,
    message_reads,
    message_sends,
    message_shapes,
    message_stories,
)

command = message_shapes.command

__all__ = ["command", "message_exports", "message_reads", "message_sends", "message_stories"]
