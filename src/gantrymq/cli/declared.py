"""Topics and groups as a file says that they shall be: written from a cluster, and applied to one.

```yaml
topics:
  orders: {queues: 8, type: NORMAL, perm: rw, ordered: false, attributes: {}}
groups:
  billing: {max_retries: 16, orderly: false, enabled: true, broadcast: true, attributes: {}}
```

What the file does not name is left alone. What brokers of one cluster have differently is written
as the first of them has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli.shapes import CHANGES, change_rows
from gantrymq.cli.verbs import Verb
from gantrymq.cli.views import Table
from gantrymq.errors import ConfigError

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session
    from gantrymq.flows.configs import Change

TYPE: Final = "message.type"
_TOPIC: Final = frozenset(
    {"queues", "read_queues", "write_queues", "type", "perm", "ordered", "attributes"}
)
_GROUP: Final = frozenset(
    {"max_retries", "retry_queues", "orderly", "enabled", "broadcast", "attributes"}
)


def declared(session: Session, cluster: str | None) -> dict[str, Any]:
    """What a cluster has, as a file would say it; RocketMQ's own topics and groups are left out."""
    from gantrymq.flows.topic_changes import permission_text
    from gantrymq.flows.topics import kind_of

    admin = session.admin
    named = set(admin.list_topics(cluster=cluster))
    topics: dict[str, Any] = {}
    for settings in admin.all_topic_settings().whole("read topics").values():
        for name, one in settings.items():
            if name in named and name not in topics and kind_of(name) == "normal":
                topics[name] = {
                    "read_queues": one.read_queues,
                    "write_queues": one.write_queues,
                    "type": one.attributes.get(TYPE),
                    "perm": permission_text(one.perm),
                    "ordered": one.ordered,
                    "attributes": {k: v for k, v in one.attributes.items() if k != TYPE},
                }
    groups: dict[str, Any] = {}
    for by_group in admin.list_groups(cluster=cluster).whole("read groups").values():
        for name, one_group in by_group.items():
            groups.setdefault(
                name,
                {
                    "max_retries": one_group.max_retries,
                    "retry_queues": one_group.retry_queues,
                    "orderly": one_group.orderly,
                    "enabled": one_group.enabled,
                    "broadcast": one_group.broadcast_enabled,
                    "attributes": dict(one_group.attributes),
                },
            )
    return {"topics": dict(sorted(topics.items())), "groups": dict(sorted(groups.items()))}


def read(path: Path) -> dict[str, Any]:
    """A file of that kind; what it says that nobody understands is an error."""
    import yaml

    try:
        tree = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if not isinstance(tree, dict) or tree.keys() - {"topics", "groups"}:
        raise ConfigError(f"{path} has to hold topics: and groups:, and nothing else")
    for kind, known in (("topics", _TOPIC), ("groups", _GROUP)):
        for name, wanted in (tree.get(kind) or {}).items():
            unknown = sorted((wanted or {}).keys() - known)
            if unknown:
                raise ConfigError(
                    f"{path}: {kind[:-1]} {name} has {unknown[0]!r}; there is {sorted(known)}"
                )
    return tree


@dataclass(slots=True)
class Applying:
    """Brings a cluster to what a file says."""

    session: Session
    dry_run: bool
    cluster: str | None = None

    def topic(self, name: str, wanted: Mapping[str, Any]) -> list[Change]:
        """Make a topic, or change it."""
        from gantrymq.errors import TopicNotFound

        given = {key: value for key, value in wanted.items() if value is not None}
        options: dict[str, Any] = {k: given[k] for k in _TOPIC & given.keys() - {"type", "perm"}}
        if "type" in given:
            options["message_type"] = given["type"]
        if "perm" in given:
            options["permission"] = given["perm"]
        try:
            return self.session.admin.alter_topic(name, dry_run=self.dry_run, **options)
        except TopicNotFound:
            if not self.dry_run:
                self.session.admin.create_topic(name, cluster=self.cluster, **options)
            return [_new("topic", name)]

    def group(self, name: str, wanted: Mapping[str, Any]) -> list[Change]:
        """Make a group, or change it."""
        from gantrymq.errors import GroupNotFound

        options = {key: value for key, value in wanted.items() if value is not None}
        if "broadcast" in options:
            options["broadcast_enabled"] = options.pop("broadcast")
        try:
            return self.session.admin.alter_group(name, dry_run=self.dry_run, **options)
        except GroupNotFound:
            if not self.dry_run:
                self.session.admin.create_group(name, cluster=self.cluster, **options)
            return [_new("group", name)]


def _new(what: str, name: str) -> Change:
    from gantrymq.flows.configs import Change

    return Change("everywhere", f"{what} {name}", None, "created")


def _apply(session: Session, file: Path, diff: bool, cluster: str | None) -> Table:
    tree, dry = read(file), diff or session.dry_run
    work = Applying(session, dry, cluster)
    rows: list[dict[str, Any]] = []
    for kind, make in (("topics", work.topic), ("groups", work.group)):
        for name, wanted in (tree.get(kind) or {}).items():
            found = make(name, wanted or {})
            rows += [{"name": f"{kind[:-1]} {name}", **row} for row in change_rows(found)]
    if dry:
        session.note("nothing was changed")
    from gantrymq.cli.views import Column

    return Table([Column("name"), *CHANGES], rows, empty="all is as the file says")


def make_command() -> click.Command:
    """`gantry apply`."""
    from gantrymq.cli.verbs import verb

    @verb(click.Group("nouns"), "apply", changes=True)
    @click.option("-f", "--file", type=click.Path(path_type=Path), required=True, help="YAML.")
    @click.option("--diff", is_flag=True, help="Say what would change, and change nothing.")
    @click.option("--cluster", metavar="NAME", help="Where to make what is not there.")
    def apply(session: Session, file: Path, diff: bool, cluster: str | None) -> Table:
        """Make topics and groups what a file says, and show what changed.

        What the file does not name is left alone. `gantry cluster export` writes such a file.
        """
        return _apply(session, file, diff, cluster)

    assert isinstance(apply, Verb)
    return apply


command = make_command()
