"""`gantry explain`: why things are as they are, for a message, a group, or a topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gantrymq.cli import screen
from gantrymq.cli.message_stories import explain_verb
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, View

if TYPE_CHECKING:
    from gantrymq.cli.findings import Finding

command = noun("explain", "Say why things are as they are, and what helps.", "Why.")

explain_verb(command, "message")


@verb(command, "group")
@click.argument("group")
def group(session: Session, group: str) -> View:
    """Say how GROUP is doing, and if it is stuck, why and what helps."""
    from gantrymq.cli.group_findings import explain_group

    return findings_page(group, "group", explain_group(session, group))


@verb(command, "topic")
@click.argument("topic")
def topic(session: Session, topic: str) -> View:
    """Say whether TOPIC can be sent to and read, from where, and if not, why."""
    from gantrymq.cli.topic_findings import explain_topic

    return findings_page(topic, "topic", explain_topic(session, topic))


def findings_page(name: str, what: str, found: list[Finding]) -> Page:
    """Findings about one thing."""
    from gantrymq.cli.findings import report, row_of

    data = {what: name, "findings": [row_of(one) for one in found]}
    text = report(found, screen.width_of(sys.stdout))
    return Page([(Column(what), name)], text=text, data=data)
