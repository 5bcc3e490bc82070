"""Making the broker known to its name servers, and keeping it known.

Each name server is looked after by itself, so that one that is away keeps nobody waiting:

```
             ┌─────── topics changed: only these ───────┐
             ▼                                          │
unknown ──everything──▶ known ──version still the same──┘
   ▲                      │
   └── failed, or the name server has another version ──┘
```

Every interval it is asked which version of the topics it has. The question itself is the sign of
life; everything is sent again only where the answer is another version than ours. A name server
that cannot be reached at the start is tried again every second.

What is sent of a topic's permission is no more than the broker itself allows.

RocketMQ: BrokerController.registerBrokerAll, BrokerOuterAPI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from gantrymq.broker.config import IdentityConfig, RegisteringConfig
from gantrymq.broker.topics import Topics, changed_copy
from gantrymq.errors import BrokerFailure, GantryError
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import (
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
    Registration,
    UnregisterBroker,
)
from gantrymq.protocol.topics import READ, WRITE, TopicSettings, TopicTable
from gantrymq.runtime import Runtime

log = logging.getLogger("gantrymq.broker")

FindAddress: TypeAlias = Callable[[str], Awaitable[str]]
"""Finds the address to register at a name server."""

RETRY: Final = 1.0
"""Seconds before a name server is tried again that was never reached."""
PATIENCE: Final = 1.0
"""Seconds that somebody who changed a topic waits for name servers to know it."""
GOODBYE: Final = 3.0
"""Seconds that unregistering may take."""


class Registrar:
    """Keeps the broker known."""

    def __init__(
        self,
        settings: RegisteringConfig,
        *,
        identity: IdentityConfig,
        permission: int,
        topics: Topics,
        runtime: Runtime,
    ) -> None:
        self.settings = settings
        self._identity = identity
        self._permission = permission
        self._topics = topics
        self._runtime = runtime
        self._places: list[_NameServer] = []
        self._tasks: list[asyncio.Task[None]] = []
        topics.watch(self.changed)

    @property
    def known_to(self) -> list[str]:
        """The name servers that know the broker."""
        return [place.address for place in self._places if place.known]

    async def start(
        self,
        name_servers: Sequence[str],
        address_for: FindAddress,
        ha_address: str,
    ) -> None:
        """Return when one of the name servers knows the broker; at once if there are none."""
        self._places = [
            _NameServer(name_server, self, address_for, ha_address) for name_server in name_servers
        ]
        self._tasks = [asyncio.create_task(place.look_after()) for place in self._places]
        if self._places:
            known = [asyncio.create_task(place.became_known.wait()) for place in self._places]
            _, waiting = await asyncio.wait(known, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()

    @property
    def behind(self) -> bool:
        """Whether a name server that knows the broker is still to be told of changed topics."""
        return any(place.known and not place.told.is_set() for place in self._places)

    async def spread(self) -> None:
        """Return when those name servers were told, or when that takes too long."""
        waiting = [place.told.wait() for place in self._places if place.known]
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*waiting)

    def changed(self, topics: Collection[str]) -> None:
        """Some topics are not what they were."""
        for place in self._places:
            place.tell(topics)

    def permit(self, permission: int) -> None:
        """Clients may do something else now."""
        if permission != self._permission:
            self._permission = permission
            for place in self._places:
                place.tell_everything()

    async def close(self) -> None:
        """Have the name servers forget the broker."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(place.leave() for place in self._places if place.known))

    # --- what the name servers are told ---------------------------------------------------------

    @property
    def version(self) -> DataVersion:
        """The version of the topics."""
        return self._topics.version

    @property
    def identity(self) -> IdentityConfig:
        """Who the broker is."""
        return self._identity

    def table(self, topics: Iterable[str] | None) -> TopicTable:
        """These topics, or all of them."""
        known = self._topics.table
        names = known if topics is None else [name for name in topics if name in known]
        return TopicTable(
            version=self._topics.version,
            topics={name: self._permitted(known[name]) for name in names},
        )

    async def call(self, address: str, request: RegisterBroker) -> RegisterBrokerReply:
        """Register, and note which topics are ordered."""
        reply = await self._runtime.call(address, request, timeout=self.settings.timeout)
        if reply.order_topics is not None:
            self._topics.order(reply.order_topics)
        return reply

    async def has_our_version(self, address: str, request: QueryDataVersion) -> bool:
        """Whether a name server has the topics as they are."""
        reply = await self._runtime.call(address, request, timeout=self.settings.timeout)
        return not reply.changed

    async def unregister(self, address: str, request: UnregisterBroker) -> None:
        """Say goodbye."""
        await self._runtime.call(address, request, timeout=GOODBYE)

    def _permitted(self, settings: TopicSettings) -> TopicSettings:
        allowed = self._permission & (READ | WRITE)
        if allowed == READ | WRITE:
            return settings
        return changed_copy(settings, perm=settings.perm & self._permission)


class _NameServer:
    """One name server, and what it knows of us."""

    def __init__(
        self,
        address: str,
        registrar: Registrar,
        address_for: FindAddress,
        ha_address: str,
    ) -> None:
        self.address = address
        self.known = False
        self.became_known = asyncio.Event()
        self.told = asyncio.Event()
        """Set while it knows all that there is to know."""
        self._registrar = registrar
        self._address_for = address_for
        self._ours = ""
        self._complained = False
        self._ha_address = ha_address
        self._changed: set[str] = set()
        self._compressed = registrar.settings.compressed
        self._bell = asyncio.Event()

    def tell(self, topics: Collection[str]) -> None:
        """Have it learn of changed topics."""
        self._changed.update(topics)
        self.told.clear()
        self._bell.set()

    def tell_everything(self) -> None:
        """Have it learn of all topics again."""
        self.known = False
        self.told.clear()
        self._bell.set()

    async def look_after(self) -> None:
        """Keep it up to date, for ever."""
        while True:
            self._bell.clear()
            try:
                await self._update()
            except (GantryError, OSError) as error:
                self.known = False
                self._complain(error)
            await self._rest()

    async def leave(self) -> None:
        """Have it forget us."""
        ours = self._registrar.identity
        request = UnregisterBroker(
            broker=ours.name,
            address=self._ours,
            cluster=ours.cluster,
            broker_id=ours.id,
        )
        try:
            await self._registrar.unregister(self.address, request)
        except (GantryError, OSError) as error:
            log.warning("unregistering at name server %s failed: %s", self.address, error)

    def _complain(self, error: Exception) -> None:
        """Say it once for as long as nothing changes."""
        if not self._complained:
            self._complained = True
            log.warning("registering at name server %s failed: %s", self.address, error)

    async def _rest(self) -> None:
        interval = self._registrar.settings.interval
        try:
            async with asyncio.timeout(interval if self.known else min(RETRY, interval)):
                await self._bell.wait()
        except TimeoutError:
            pass

    async def _update(self) -> None:
        if self.known and not self._changed and not await self._is_same():
            self.known = False
        if not self.known:
            await self._register(None)
        elif self._changed:
            await self._register(self._changed)

    async def _is_same(self) -> bool:
        ours = self._registrar.identity
        request = QueryDataVersion(
            broker=ours.name,
            address=self._ours,
            cluster=ours.cluster,
            broker_id=ours.id,
            version=self._registrar.version,
        )
        return await self._registrar.has_our_version(self.address, request)

    async def _register(self, topics: set[str] | None) -> None:
        """Register these topics or all; what changes meanwhile is noted for the next time."""
        if topics is None:
            self._ours = await self._address_for(self.address)
        self._changed = set()
        await self._send(Registration(filter_servers=[], table=self._registrar.table(topics)))
        if not self._changed:
            self.told.set()
        if not self.known:
            self.known, self._complained = True, False
            log.info("registered at name server %s as %s", self.address, self._ours)
            self.became_known.set()

    async def _send(self, registration: Registration) -> None:
        """Compressed if that is wanted, and plain where that cannot be read.

        Releases before 5 cannot: the lines in it have the attributes of topics, as theirs have not.
        """
        try:
            await self._registrar.call(self.address, self._request(registration))
        except BrokerFailure as refused:
            if not self._compressed or "RegisterBrokerBody" not in str(refused):
                raise
            self._compressed = False
            log.warning(
                "name server %s cannot read compressed registrations; it gets plain ones",
                self.address,
            )
            await self._registrar.call(self.address, self._request(registration))

    def _request(self, registration: Registration) -> RegisterBroker:
        ours = self._registrar.identity
        request = RegisterBroker(
            broker=ours.name,
            address=self._ours,
            cluster=ours.cluster,
            ha_address=self._ha_address,
            broker_id=ours.id,
            acting_master=False,
        )
        request.carry(registration, compressed=self._compressed)
        return request
