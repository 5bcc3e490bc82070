"""OpenTelemetry, where it is: found when a member starts, and not before.

Whoever installs `opentelemetry-api` gets spans; whoever also sets up its SDK gets them exported. In
a program that has the one and not the other, nothing is recorded and next to nothing done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantrymq.client.spans import HandlingSpans, SendSpans


def send_spans(client_id: str, namespace: str | None) -> SendSpans | None:
    """For the sends of a producer; None without OpenTelemetry."""
    if not is_there():
        return None
    from gantrymq.client.spans import SendSpans

    return SendSpans(client_id, namespace)


def handling_spans(
    client_id: str, namespace: str | None, *, everything: bool
) -> HandlingSpans | None:
    """For what a consumer handles; None without OpenTelemetry."""
    if not is_there():
        return None
    from gantrymq.client.spans import HandlingSpans

    return HandlingSpans(client_id, namespace, everything=everything)


def is_there() -> bool:
    """Whether the API package can be imported."""
    try:
        import opentelemetry.trace
    except ImportError:
        return False
    return opentelemetry.trace is not None
