"""Producers, consumers, administrators, and the engine that they share."""
