"""Every request there is a class for, by its code, and the codes there is none for."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from gantrymq.protocol import (
    access,
    access_files,
    assignments,
    brokers,
    configs,
    controllers,
    group_settings,
    groups,
    lite,
    locks,
    offsets,
    popping,
    pulling,
    registration,
    replicas,
    resets,
    routing,
    running,
    sending,
    statistics,
    topics,
    transactions,
)
from gantrymq.protocol.base import Request
from gantrymq.wire.codes import RequestCode

_MODULES: Final = (
    access, access_files, assignments, brokers, configs, controllers, group_settings, groups,
    lite, locks, offsets, popping, pulling, registration, replicas, resets, routing, running,
    sending, statistics, topics, transactions,
)  # fmt: skip


def _collect() -> dict[RequestCode, type[Request[Any]]]:
    found: dict[RequestCode, type[Request[Any]]] = {}
    for module in _MODULES:
        for value in vars(module).values():
            if not isinstance(value, type) or value.__module__ != module.__name__:
                continue
            if issubclass(value, Request) and hasattr(value, "CODE"):
                for code in value.codes():
                    other = found.setdefault(code, value)
                    if other is not value:
                        names = f"{other.__name__} and {value.__name__}"
                        raise TypeError(f"{names} are both {code.name} ({code})")
    return dict(sorted(found.items()))


CATALOGUE: Final = MappingProxyType(_collect())
"""Code to class. A request with an older code stands under both."""


def unanswered() -> tuple[RequestCode, ...]:
    """The codes that RocketMQ has and that no class here stands for."""
    return tuple(code for code in RequestCode if code not in CATALOGUE)
