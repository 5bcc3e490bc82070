"""Settings read and changed while the broker runs, as `mqadmin` does it.

Both ways they are RocketMQ's properties: its names, its units. Of what is asked for, either all is
taken or nothing. Names that mean nothing here are passed over, as RocketMQ does it, and named in
the log. Most settings hold at once; the log says which wait for the next start.

**Over a restart** a change holds for as long as nobody has set that setting otherwise meanwhile:
what is kept is the value before and the value after, and at a start the one is put in the place of
the other. So the file or flag that is changed last is what counts.

RocketMQ: Configuration, AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.errors import BrokerFailure, ConfigError, InvalidParameter, NoPermission
from gantrymq.protocol.base import Done, declared, named
from gantrymq.protocol.brokers import SwitchTimerEngine, TimerEngine
from gantrymq.protocol.configs import BrokerConfigReply, GetBrokerConfig, UpdateBrokerConfig
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.json_shapes import shape
from gantrymq.settings import Row, load, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

log = logging.getLogger("gantrymq.broker")

FILE: Final = "changedSettings.json"
ALWAYS_LOCKED: Final = frozenset(
    {
        "configBlackList",
        "brokerConfigPath",
        "rocketmqHome",
        "storePathRootDir",
        "brokerName",
        "brokerClusterName",
        "brokerId",
    }
)
"""What nobody may change while the broker runs: its own protection, and who and where it is."""
AT_START_ONLY: Final = ("listen.", "identity.", "metrics.", "store.", "delays.", "data")
"""Settings that begin so are looked at when the broker starts."""

_WORDS: Final[dict[str, dict[object, str]]] = {
    "flushDiskType": {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"},
    "metricsExporterType": {True: "PROM", False: "DISABLE"},
}
_SCALES: Final = {"1ms": 1000.0, "0.01": 100.0, "1h": 1 / 3600}
"""What an alias makes of "1", and what our number is multiplied by to get RocketMQ's."""


@declared
class Change:
    """What a setting was and has come to be, as RocketMQ writes it."""

    before: str
    after: str


@declared
class KeptChanges:
    """What is in the file: the changes by RocketMQ's name of the setting."""

    version: DataVersion = named("dataVersion", default_factory=DataVersion)
    changes: dict[str, Change] = named("changes", default_factory=dict)


class Changes:
    """The settings that were changed while the broker ran."""

    __slots__ = ("_clock_ms", "_keeper", "table", "version")

    def __init__(self, *, keeper: Keeper, clock_ms: Callable[[], int]) -> None:
        self.table: dict[str, Change] = {}
        self.version = DataVersion(timestamp_ms=clock_ms())
        self._keeper = keeper
        self._clock_ms = clock_ms

    def load(self) -> None:
        """Take in what was kept."""
        tree = self._keeper.load(FILE)
        if tree is not None:
            kept: KeptChanges = shape(KeptChanges).read(tree)
            self.table, self.version = kept.changes, kept.version

    def note(self, before: BrokerConfig, after: BrokerConfig) -> None:
        """Have what differs kept."""
        old, new = as_properties(before), as_properties(after)
        for name, text in new.items():
            if text != old[name]:
                first = self.table.pop(name, Change(before=old[name], after=text)).before
                if first != text:
                    self.table[name] = Change(before=first, after=text)
        version = self.version
        self.version = DataVersion(
            state=version.state, timestamp_ms=self._clock_ms(), counter=version.counter + 1
        )
        self._keeper.keep(FILE, self._tree)

    async def kept(self) -> None:
        """Return when every change so far is on disk."""
        await self._keeper.kept(FILE)

    def _tree(self) -> Tree:
        return shape(KeptChanges).write(KeptChanges(version=self.version, changes=self.table))


def with_changes(config: BrokerConfig, tree: Tree | None) -> BrokerConfig:
    """The settings to start with, where `tree` is what the file says."""
    if tree is None:
        return config
    kept: KeptChanges = shape(KeptChanges).read(tree)
    properties = as_properties(config)
    wanted = {
        name: change.after
        for name, change in kept.changes.items()
        if properties.get(name) == change.before
    }
    try:
        return changed(config, wanted) if wanted else config
    except ConfigError as error:
        log.warning("what was changed while the broker ran is passed over: %s", error)
        return config


def aliases() -> dict[str, Row]:
    """The settings that RocketMQ knows, by its names."""
    return {row.alias.key: row for row in rows(BrokerConfig) if row.alias is not None}


def as_properties(config: BrokerConfig) -> dict[str, str]:
    """What is set, under RocketMQ's names and in its units."""
    return {name: _text(row, _value(config, row.path)) for name, row in aliases().items()}


def facts(config: BrokerConfig) -> dict[str, str]:
    """What can be set in RocketMQ and is as it is here; 4.x's tools fail where it is missing."""
    return {
        "brokerRole": "ASYNC_MASTER" if config.identity.id == 0 else "SLAVE",
        "clientCallbackExecutorThreads": str(os.cpu_count() or 1),  # what tools take for the CPUs
        "filterServerNums": "0",
        "useTLS": str(bool(config.listen.tls)).lower(),
    }


def changed(config: BrokerConfig, properties: Mapping[str, str]) -> BrokerConfig:
    """The settings after such a change; `ConfigError` for a value that will not do."""
    before = {row.path: _value(config, row.path) for row in rows(BrokerConfig)}
    return load(BrokerConfig, file=before, properties=properties).value


def check_allowed(config: BrokerConfig, names: Iterable[str]) -> None:
    """Refuse the whole change if it touches what is locked."""
    if ALWAYS_LOCKED.union(config.locked.split(";")).intersection(names):
        raise NoPermission.because("Can not update config in black list.")


def _value(config: BrokerConfig, path: str) -> Any:
    return reduce(getattr, path.split("."), config)


def _text(row: Row, value: Any) -> str:
    """The text that the setting's alias would read as `value`."""
    assert row.alias is not None
    if value is None:
        return ""
    if row.alias.key in _WORDS:
        return _WORDS[row.alias.key][value]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ";".join(map(str, value))
    if isinstance(value, int | float):
        scaled = value * _SCALES.get(row.alias.convert("1"), 1)
        return f"{scaled:.6f}".rstrip("0").rstrip(".")
    return str(value)


# --- answers --------------------------------------------------------------------------------------


def get_config(_request: GetBrokerConfig, broker: Broker, _peer: Peer) -> BrokerConfigReply:
    """Every setting that RocketMQ has a name for."""
    config = broker.config
    return BrokerConfigReply(
        version=broker.changes.version, properties=facts(config) | as_properties(config)
    )


async def update_config(request: UpdateBrokerConfig, broker: Broker, peer: Peer) -> Done:
    """Change some of them; the change lasts when this is answered."""
    check_allowed(broker.config, request.properties)
    known = {name: text for name, text in request.properties.items() if name in aliases()}
    unknown = sorted(request.properties.keys() - known.keys())
    if unknown:
        log.warning("%s sets what means nothing here: %s", peer, ", ".join(unknown))
    if not known:
        return Done()
    before = broker.config
    try:
        after = changed(before, known)
    except ConfigError as error:
        raise BrokerFailure.because(f"nothing changed, {error}") from error
    broker.apply(after)
    broker.changes.note(before, after)
    for name in known:
        late = aliases()[name].path.startswith(AT_START_ONLY)
        log.info("%s set %s%s", peer, name, ", which holds from the next start on" if late else "")
    await broker.changes.kept()
    return Done()


def switch_timer_engine(request: SwitchTimerEngine, _broker: Broker, _peer: Peer) -> Done:
    """Timed messages are kept in files, and nowhere else."""
    if request.engine != TimerEngine.FILES:
        raise InvalidParameter.because(
            "timed messages are kept in files (timer wheel and timer log); there is no RocksDB here"
        )
    return Done()
