"""A message platform that speaks Apache RocketMQ's wire protocol; importing it starts nothing."""

from __future__ import annotations

__version__ = "0.1.0"
