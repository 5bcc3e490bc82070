"""Brokers come, stay and go: what that does to the tables.

A registration is taken in these steps, which are RocketMQ's, in its order:

1. A broker id that is not known yet has to come with all its topics or none. One topic alone is an
   increment, and would later be taken for everything that the broker has. (RocketMQ asks this after
   step 4, and leaves the beginnings behind; nobody can see the difference but by those.)
2. The broker's name gets its place in the cluster, and the flags that this registration says.
3. Where this address stood under another id, it does so no more: a replica was promoted.
4. If somebody else with the same id is alive and knows a later state, the newcomer is turned away.
5. Topics are taken from the master. From the replica with the smallest id they are taken, too, if
   it is of the kind that can act as master; as such it may not be written to.
6. It is alive from now on, for as long as it said.

Most registrations repeat the one before, word for word, every half minute and with all the topics.
Such a one is told by its digest, and is not even read, unless the tables have changed in between.

Who was heard of too long ago, or lost the connection that it registered through, is taken out as if
it had asked for it. When the smallest id under a name is another one than before, those who have to
know get a notice.

RocketMQ: RouteInfoManager, BatchUnregistrationService.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from gantrymq.errors import BrokerFailure
from gantrymq.nameserver.state import MASTER, Live, Place, Said, Tables
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import NotifyLeastBrokerChanged, RegisterBroker
from gantrymq.protocol.routing import BrokerData, QueueData
from gantrymq.protocol.topics import WRITE, TopicSettings, TopicTable

log = logging.getLogger("gantrymq.nameserver")

_NONE: Final = 0
"""What counts as the smallest id where there is none: nobody can be below it."""


class Notice(NamedTuple):
    """Something to tell some brokers, one-way."""

    addresses: tuple[str, ...]
    request: NotifyLeastBrokerChanged


@dataclass(slots=True, kw_only=True)
class Registered:
    """What a broker hears about its master, and who else has to hear about the broker."""

    master_address: str | None = None
    ha_address: str | None = None
    notices: list[Notice] = field(default_factory=list)


# --- coming ---------------------------------------------------------------------------------------


def register(
    tables: Tables,
    request: RegisterBroker,
    *,
    now: float,
    connection: object,
    timeout: float,
    delete_missing: bool = False,
) -> Registered:
    """Take a registration in; `timeout` holds for brokers that name none.

    With `delete_missing`, topics that the broker had and does not list any more are dropped.
    """
    place = Place(request.cluster, request.address)
    before = tables.live.get(place)
    said = _said(request)
    if before is not None and before.said == said and before.edition == tables.edition:
        before.heard, before.connection = now, connection
        return _with_master(tables, request, Registered())

    registration = request.registration()
    is_new = _is_new(tables, request)
    if is_new and len(registration.table.topics) == 1:
        log.warning("refused one topic from %s: it has not registered yet", _name(request))
        raise BrokerFailure.because("register broker failed")
    data = tables.broker(request.broker, request.cluster)
    _take_flags(tables, data, request)
    least_before = min(data.addresses, default=_NONE)
    _leave_other_ids(tables, data, request)
    if _is_outdated(tables, data, request, registration.table.version):
        tables.live.pop(place, None)
        return Registered()
    if data.addresses.get(request.broker_id) != request.address:
        data.addresses[request.broker_id] = request.address
        tables.changed()
    whole = is_new or before is None or before.version != registration.table.version
    _take_table(tables, data, request, registration.table, whole, delete_missing)
    if registration.filter_servers is not None:
        tables.set_filter_servers(place, registration.filter_servers)

    own_timeout = timeout if request.timeout_ms is None else request.timeout_ms / 1000
    tables.live[place] = Live(
        broker=request.broker,
        broker_id=request.broker_id,
        heard=now,
        timeout=own_timeout,
        version=registration.table.version,
        ha_address=request.ha_address,
        connection=connection,
        said=said,
        edition=tables.edition,
    )
    if before is None:
        count = len(registration.table.topics)
        log.info("registered %s with %d topics", _name(request), count)
    registered = _with_master(tables, request, Registered())
    if request.broker_id < least_before:
        registered.notices += _notices(data, ha_address=request.ha_address)
    return registered


def _said(request: RegisterBroker) -> Said:
    return (
        request.broker,
        request.broker_id,
        request.ha_address,
        request.timeout_ms,
        request.acting_master,
        request.compressed,
        request.crc,
        request.zone,
        request.version,
        blake2b(request.body, digest_size=16).digest(),
    )


def _is_new(tables: Tables, request: RegisterBroker) -> bool:
    data = tables.brokers.get(request.broker)
    return data is None or request.broker_id not in data.addresses


def _take_flags(tables: Tables, data: BrokerData, request: RegisterBroker) -> None:
    flags = (bool(request.acting_master), request.zone)
    if (data.acting_master, data.zone) != flags:
        data.acting_master, data.zone = flags
        tables.changed()


def _leave_other_ids(tables: Tables, data: BrokerData, request: RegisterBroker) -> None:
    for broker_id, address in tuple(data.addresses.items()):
        if address == request.address and broker_id != request.broker_id:
            del data.addresses[broker_id]
            tables.changed()


def _is_outdated(
    tables: Tables, data: BrokerData, request: RegisterBroker, version: DataVersion
) -> bool:
    """Whether another address holds the id, is alive, and knows a later state."""
    other = data.addresses.get(request.broker_id, request.address)
    live = tables.live.get(Place(request.cluster, other))
    if other == request.address or live is None or live.version.state <= version.state:
        return False
    state = live.version.state
    log.warning(
        "turned away %s: %s has state %d, and it has %d",
        _name(request),
        other,
        state,
        version.state,
    )
    return True


def _acts_as_master(data: BrokerData, request: RegisterBroker) -> bool:
    """Whether it stands for the master; brokers before 5.0 do not know of that."""
    return (
        request.acting_master is not None
        and request.broker_id != MASTER
        and request.broker_id == min(data.addresses)
    )


def _with_master(tables: Tables, request: RegisterBroker, registered: Registered) -> Registered:
    """Tell a replica where its master is, if that one is alive."""
    if request.broker_id != MASTER:
        master = tables.brokers[request.broker].addresses.get(MASTER)
        live = None if master is None else tables.live.get(Place(request.cluster, master))
        if live is not None:
            registered.master_address, registered.ha_address = master, live.ha_address
    return registered


def _take_table(
    tables: Tables,
    data: BrokerData,
    request: RegisterBroker,
    table: TopicTable,
    whole: bool,
    delete_missing: bool,
) -> None:
    """Take the topics over if this broker speaks for its name."""
    acting = _acts_as_master(data, request)
    if not acting and request.broker_id != MASTER:
        return
    update = _Update(
        tables=tables,
        broker=request.broker,
        whole=whole,
        clear=WRITE if acting and data.acting_master else 0,
    )
    if delete_missing and not table.mappings:
        update.drop_all_but(table)
    update.take_topics(table)
    update.take_mappings(table)


@dataclass(slots=True, kw_only=True)
class _Update:
    """What one registration changes about topics."""

    tables: Tables
    broker: str
    whole: bool
    """Take everything, not only what is not here."""
    clear: int
    """Permissions that do not hold here."""

    def drop_all_but(self, table: TopicTable) -> None:
        for topic in self.tables.topics_of.get(self.broker, set()) - table.topics.keys():
            self.tables.drop_queues(topic, self.broker)
            log.info("topic %s is gone from %s", topic, self.broker)

    def take_topics(self, table: TopicTable) -> None:
        for name, settings in table.topics.items():
            topic = settings.topic or name
            there = self.tables.topics.get(topic, {}).get(self.broker)
            if there is None or (self.whole and not self._same(there, settings)):
                self._take(topic, settings)

    def _take(self, topic: str, settings: TopicSettings) -> None:
        queues = QueueData(
            broker=self.broker,
            read_queues=settings.read_queues,
            write_queues=settings.write_queues,
            perm=settings.perm & ~self.clear,
            flags=settings.flags,
        )
        self.tables.put_queues(topic, queues)

    def _same(self, there: QueueData, settings: TopicSettings) -> bool:
        return (
            there.read_queues == settings.read_queues
            and there.write_queues == settings.write_queues
            and there.perm == settings.perm & ~self.clear
            and there.flags == settings.flags
        )

    def take_mappings(self, table: TopicTable) -> None:
        for topic, mapping in table.mappings.items():
            if topic in self.tables.topics:
                at = self.tables.mappings.setdefault(topic, {})
                broker = mapping.broker or self.broker
                if broker not in at or (self.whole and at[broker] != mapping):
                    at[broker] = mapping
                    self.tables.changed()


def _name(request: RegisterBroker) -> str:
    return f"{request.broker}:{request.broker_id} of {request.cluster} at {request.address}"


# --- staying --------------------------------------------------------------------------------------


def refresh(tables: Tables, place: Place, now: float) -> Live | None:
    """A sign of life; who is not known yet has to register."""
    live = tables.live.get(place)
    if live is not None:
        live.heard = now
    return live


def expired(tables: Tables, now: float) -> list[Place]:
    """Those who were silent for longer than they may be."""
    return [place for place, live in tables.live.items() if live.heard + live.timeout < now]


def registered_through(tables: Tables, connection: object) -> list[Place]:
    """Those whose last registration came through `connection`."""
    return [place for place, live in tables.live.items() if live.connection is connection]


# --- going ----------------------------------------------------------------------------------------


def depart(tables: Tables, place: Place) -> list[Notice]:
    """Take a broker out that did not ask for it."""
    live = tables.live[place]
    return unregister(tables, place, live.broker, live.broker_id)


def unregister(tables: Tables, place: Place, broker: str, broker_id: int) -> list[Notice]:
    """Take a broker out: the address, and with the last one of its name all that it had.

    What stays behind without a master can be read, and not written.
    """
    tables.live.pop(place, None)
    tables.set_filter_servers(place, ())
    data = tables.brokers.get(broker)
    if data is None:
        return []
    was_least = broker_id == min(data.addresses, default=None)
    gone = [each for each, address in data.addresses.items() if address == place.address]
    for each in gone:
        del data.addresses[each]
        tables.changed()
    if not data.addresses:
        tables.drop_broker(broker)
        return []
    if not data.acting_master:
        return []
    if min(data.addresses) != MASTER:
        tables.stop_writes(broker)
    return list(_notices(data, offline=place.address)) if was_least else []


def _notices(
    data: BrokerData, *, offline: str | None = None, ha_address: str | None = None
) -> Iterator[Notice]:
    """To everybody left when one went; to everybody but the newcomer when one came."""
    least = min(data.addresses)
    told = [
        address
        for broker_id, address in data.addresses.items()
        if broker_id != least or offline is not None or len(data.addresses) == 1
    ]
    request = NotifyLeastBrokerChanged(
        least_id=least,
        broker=data.name,
        least_address=data.addresses[least],
        offline_address=offline,
        ha_address=ha_address,
    )
    yield Notice(tuple(told), request)
