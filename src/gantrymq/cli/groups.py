"""`gantry group`: all its verbs, each from the module that it is in."""

from __future__ import annotations

from gantrymq.cli import group_changes, group_looks, group_moves

command = group_looks.command

__all__ = ["command", "group_changes", "group_moves"]
