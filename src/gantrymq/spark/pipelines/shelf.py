"""The projects that ship with the package, and what each of them can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gantrymq.errors import ConfigError
from gantrymq.settings import nearest

PROJECTS: Final = Path(__file__).parent / "projects"
PREFIX: Final = "spark.gantry."
"""What the names of settings begin with in a project's `configuration`."""
SERVER: Final = "nameServer"
DIRECTORIES: Final = frozenset(("path", "archive"))
"""Settings that name directories of this machine."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that a project can be told; without a default it may stay unsaid."""

    name: str
    text: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """A project on the shelf."""

    name: str
    text: str
    settings: tuple[Setting, ...]
    results: str = "archive"
    """Where its setting `path` leads to in its directory, if it has one and is not told."""
    folder: str = ""
    """Where its files are, if that is not its name."""

    @property
    def place(self) -> Path:
        """The directory of its files."""
        return PROJECTS / (self.folder or self.name)

    def check(self, given: Mapping[str, str]) -> None:
        """Refuse settings that it does not have."""
        known = {setting.name for setting in self.settings} | {SERVER}
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"pipeline {self.name} has no setting {name!r}{nearest(name, known)}; it has"
                    f" {', '.join(sorted(known))}"
                )

    def defaults(self) -> dict[str, str]:
        """What holds where nothing else is said."""
        return {one.name: one.default for one in self.settings if one.default}


READING: Final = (
    Setting("topic", "the topic to read"),
    Setting("topics", "several topics, with commas between them"),
    Setting("topicPattern", "a regular expression for the names of topics; new ones join later"),
    Setting("tags", "only messages with one of these tags: a || b"),
    Setting("sql", "only messages whose properties fit this SQL92 expression"),
    Setting("startingOffsets", "where the first run begins: earliest, latest, or JSON"),
    Setting("startingTimestamp", "begin with what was stored at this time"),
    Setting("maxOffsetsPerTrigger", "most messages of a batch", "1000000"),
    Setting("failOnDataLoss", "false: go on when messages are gone before they were read"),
)
"""Options of the format that a project hands on as they are."""

_REPLAYED: Final = frozenset(
    ("topic", "topics", "topicPattern", "startingTimestamp", "failOnDataLoss")
)

_STARTED: Final = frozenset(("startingOffsets", "startingTimestamp", "failOnDataLoss"))

SHELF: Final = {
    project.name: project
    for project in (
        Project(
            "archive",
            "Topics to Parquet, by topic, date and hour, each message once.",
            (
                *READING,
                Setting("path", "the directory of the archive; `archive` beside the project"),
                Setting("fileBytes", "begin another file when one has so many bytes", "268435456"),
            ),
        ),
        Project(
            "replay",
            "An archive, or a time range of topics, once more into a topic, in the original order.",
            (
                Setting("archive", "the directory of an archive to read, instead of topics"),
                *(one for one in READING if one.name in _REPLAYED),
                Setting("endingTimestamp", "end before what was stored at this time"),
                Setting("where", "only messages that fit this condition of Spark SQL"),
                Setting("target", "the topic to write to; each message's own if not said"),
                Setting("order", "whose order to keep: each queue's, or each key's", "queue"),
                Setting("rate", "most messages a second"),
                Setting("maxOffsetsPerTrigger", "most messages of a batch", "100000"),
            ),
        ),
        Project(
            "traces",
            "What clients told of their messages: latencies, what was slow, what failed; a page.",
            (
                Setting("traceTopic", "the topic of traces", "RMQ_SYS_TRACE_TOPIC"),
                Setting("topics", "topics whose messages' times of storing to look at as well"),
                *(one for one in READING if one.name in _STARTED),
                Setting("maxOffsetsPerTrigger", "most messages of a batch", "100000"),
                Setting("path", "the directory of the records; `told` beside the project"),
            ),
            results="told",
        ),
        Project(
            "lag",
            "Sizes and rates of queues and the lag of groups, over time; skew; a page.",
            (
                Setting("topics", "the topics to look at; all of the cluster"),
                Setting("groups", "the consumer groups to look at; all of the cluster"),
                Setting("samples", "how many looks a run takes", "30"),
                Setting("every", "the time from one to the next", "2s"),
                Setting("path", "the directory of the looks; `samples` beside the project"),
            ),
            results="samples",
        ),
    )
}


def template(name: str) -> Project:
    """A small project of that name, for its user to change."""
    return Project(
        name,
        "Orders that are large go on to another topic.",
        (
            Setting("topic", "the topic to read", "orders"),
            Setting("target", "the topic to write to", "large-orders"),
            Setting("least", "the least amount that is large", "1000"),
        ),
        folder="template",
    )


def project(name: str) -> Project:
    """The project of that name."""
    if name not in SHELF:
        raise ConfigError(
            f"no pipeline is called {name!r}{nearest(name, SHELF)}: {', '.join(SHELF)}"
        )
    return SHELF[name]
