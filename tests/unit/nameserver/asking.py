"""What brokers say to name servers, with little said by default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gantrymq.nameserver.registration import Registered, register
from gantrymq.nameserver.state import Place, Tables
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import RegisterBroker, Registration
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import TopicSettings, TopicTable
from gantrymq.wire.versions import CURRENT

A: str = "10.0.0.1:10911"
B: str = "10.0.0.2:10911"
C: str = "10.0.0.3:10911"


def settings(names: Iterable[str], **how: Any) -> dict[str, TopicSettings]:
    """Such topics, all alike."""
    return {name: TopicSettings(topic=name, **how) for name in names}


def registration(
    broker: str = "broker-a",
    broker_id: int = 0,
    address: str = A,
    *,
    cluster: str = "east",
    topics: Iterable[str] | Mapping[str, TopicSettings] = ("orders", "bills"),
    counter: int = 1,
    state: int = 0,
    filter_servers: list[str] | None = None,
    mappings: Mapping[str, QueueMapping] | None = None,
    compressed: bool = False,
    version: int = CURRENT,
    **header: Any,
) -> RegisterBroker:
    """A registration as a broker makes it."""
    table = TopicTable(
        version=DataVersion(counter=counter, state=state, timestamp_ms=1_700_000_000_000),
        topics=dict(topics) if isinstance(topics, Mapping) else settings(topics),
        mappings=dict(mappings or {}),
    )
    request = RegisterBroker(
        broker=broker,
        broker_id=broker_id,
        address=address,
        cluster=cluster,
        ha_address=f"{address}-ha",
        version=version,
        **header,
    )
    request.carry(Registration(filter_servers=filter_servers, table=table), compressed=compressed)
    return request


def take(
    tables: Tables,
    request: RegisterBroker,
    *,
    now: float = 0.0,
    connection: object = None,
    timeout: float = 120.0,
    delete_missing: bool = False,
) -> Registered:
    """The same, taken in."""
    return register(
        tables,
        request,
        now=now,
        connection=connection,
        timeout=timeout,
        delete_missing=delete_missing,
    )


def place(address: str = A, cluster: str = "east") -> Place:
    """Where a broker is."""
    return Place(cluster, address)
