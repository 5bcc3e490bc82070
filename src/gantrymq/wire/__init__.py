"""Bytes to values and back: frames, commands, stored messages; no I/O and no clock in here."""
