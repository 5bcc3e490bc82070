"""`gantry cluster`: the brokers of clusters at a glance, and a cluster's settings as one file."""

from __future__ import annotations

from typing import Any

import click

from gantrymq.cli.brokers import states_table
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, Table, View

command = noun("cluster", "Look at whole clusters.", "Clusters.")


@verb(command, "list", watch=True)
def list_clusters(session: Session) -> View:
    """List clusters with how many brokers they have."""
    return clusters_table(session)


def clusters_table(session: Session) -> Table:
    """The clusters that name servers know."""
    from gantrymq.flows.clusters import places

    info = session.admin.cluster_info()
    found = places(info)
    rows = [
        {
            "cluster": name,
            "masters": sum(one.is_master for one in found if one.cluster == name),
            "replicas": sum(not one.is_master for one in found if one.cluster == name),
            "brokers": sorted(members),
        }
        for name, members in sorted(info.clusters.items())
    ]
    columns = [Column("cluster"), Column("masters", "count"), Column("replicas", "count")]
    return Table([*columns, Column("brokers", "list", short=True)], rows, empty="no cluster")


@verb(command, "status", watch=True)
@click.option("--cluster", metavar="NAME", help="Only this one.")
def status(session: Session, cluster: str | None) -> View:
    """How each broker is doing, and the sums."""
    states = session.admin.describe_cluster(cluster=cluster)
    table = states_table(states)
    known = [one for one in states if one.error is None and one.place.is_master]
    facts: list[tuple[Column, Any]] = [
        (Column("brokers", "count"), len(states)),
        (Column("answering", "count"), sum(one.error is None for one in states)),
        (Column("put_rate", "rate", "messages/s in"), _sum([one.put_tps for one in known])),
        (Column("get_rate", "rate", "messages/s out"), _sum([one.get_tps for one in known])),
        (Column("versions", "list"), sorted({one.version for one in known if one.version})),
    ]
    return Page(facts, {"broker_list": table}, main="broker_list", failures=table.failures)


def _sum(values: list[float | None]) -> float | None:
    """The sum; None as long as one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


@verb(command, "export")
@click.option("--cluster", metavar="NAME", help="Only this one.")
def export(session: Session, cluster: str | None) -> View:
    """Write topics, groups and offsets of a cluster as what `gantry apply` reads.

    For people and with -o yaml that is YAML.
    """
    from gantrymq.cli.declared import declared
    from gantrymq.cli.views import yaml_text

    data = declared(session, cluster)
    return Page([], text=yaml_text(data), data=data)
