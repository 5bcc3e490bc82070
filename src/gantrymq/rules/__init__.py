"""Decisions as plain functions: which queue, which broker, which consumer, when again."""
