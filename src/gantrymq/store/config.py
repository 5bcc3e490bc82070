"""The settings of a store, under RocketMQ's names where it has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gantrymq.settings import Alias, Bytes, Seconds, at_least, choice, group, millis, setting

_GIB: Final = 2**30
_MIB: Final = 2**20


def percent(key: str) -> Alias:
    """A RocketMQ key that holds a percentage."""
    return Alias(key, lambda text: str(float(text) / 100))


def hours(key: str) -> Alias:
    """A RocketMQ key that holds hours."""
    return Alias(key, lambda text: f"{text.strip()}h")


def _page_multiple(size: int) -> str | None:
    return None if size >= 4096 and size % 4096 == 0 else "it has to be a multiple of 4096"


def _entry_multiple(size: int) -> str | None:
    return None if size >= 20 and size % 20 == 0 else "it has to be a multiple of 20, of one entry"


def _ratio(value: float) -> str | None:
    return None if 0 < value <= 1 else "it is a part of the whole, above 0 and at most 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The commit log."""

    segment_size: Bytes = setting(
        _GIB, "size of each commit log file", rocketmq="mappedFileSizeCommitLog",
        check=_page_multiple,
    )  # fmt: skip
    max_message_size: Bytes = setting(
        4 * _MIB, "the largest body that is stored", rocketmq="maxMessageSize", check=at_least(1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The consume queues."""

    file_size: Bytes = setting(
        300_000 * 20, "size of each consume queue file", rocketmq="mappedFileSizeConsumeQueue",
        check=_entry_multiple,
    )  # fmt: skip
    light: bool = setting(
        True, "put messages into the light queues that they name, too",
        rocketmq="enableMultiDispatch",
    )  # fmt: skip
    most_light: int = setting(
        20_000, "most light queues there may be", rocketmq="maxLmqConsumeQueueNum",
        check=at_least(0),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """The key index."""

    enabled: bool = setting(
        True, "whether messages can be found by key", rocketmq="messageIndexEnable"
    )
    slots: int = setting(
        5_000_000, "hash slots in each index file", rocketmq="maxHashSlotNum", check=at_least(1)
    )
    entries: int = setting(
        20_000_000, "entries in each index file", rocketmq="maxIndexNum", check=at_least(2)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushConfig:
    """When bytes go to the disk."""

    mode: Literal["sync", "async"] = setting(
        "async", "when an append counts as stored",
        rocketmq=choice("flushDiskType", SYNC_FLUSH="sync", ASYNC_FLUSH="async"),
    )  # fmt: skip
    interval: Seconds = setting(
        0.5, "between flushes when async", rocketmq=millis("flushIntervalCommitLog"),
        check=at_least(0.001),
    )  # fmt: skip
    timeout: Seconds = setting(
        5.0, "how long an append waits for the disk when sync", rocketmq=millis("syncFlushTimeout"),
        check=at_least(0.001),
    )  # fmt: skip
    checkpoint_interval: Seconds = setting(
        10.0, "between checkpoints; a restart after a crash reads the log from the last one",
        rocketmq=millis("flushConsumeQueueThoroughInterval"), check=at_least(0.001),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """How much one read returns at most, and what counts as recent."""

    memory_bytes: Bytes = setting(
        4 * _MIB, "of messages that are taken to be in memory",
        rocketmq="maxTransferBytesOnMessageInMemory", check=at_least(1),
    )  # fmt: skip
    memory_messages: int = setting(
        4096, "of messages that are taken to be in memory",
        rocketmq="maxTransferCountOnMessageInMemory", check=at_least(1),
    )  # fmt: skip
    disk_bytes: Bytes = setting(
        4 * _MIB, "of messages that are taken to be on disk",
        rocketmq="maxTransferBytesOnMessageInDisk", check=at_least(1),
    )  # fmt: skip
    disk_messages: int = setting(
        4096, "of messages that are taken to be on disk",
        rocketmq="maxTransferCountOnMessageInDisk", check=at_least(1),
    )  # fmt: skip
    memory_ratio: float = setting(
        0.4, "of the machine's memory: how far back in the log messages are taken to be in memory",
        rocketmq=percent("accessMessageInMemoryMaxRatio"), check=_ratio,
    )  # fmt: skip
    scan_bytes: Bytes = setting(
        16_000, "of consume queue entries that one filtered read looks at",
        rocketmq="maxFilterMessageSize", check=at_least(20),
    )  # fmt: skip
    verify: bool = setting(
        True, "whether messages from before this start are checked against their CRC when read"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """When old messages go."""

    time: Seconds = setting(
        72 * 3600.0, "how long messages are kept at least; 0 means for ever",
        rocketmq=hours("fileReservedTime"), check=at_least(0),
    )  # fmt: skip
    size: Bytes = setting(
        0, "how large the commit log may be before its oldest file goes; 0 means any size",
        check=at_least(0),
    )  # fmt: skip
    hours: tuple[int, ...] = setting(
        (), "the hours of the day in which messages go that are past their time; none means any",
        rocketmq="deleteWhen",
    )  # fmt: skip
    batch: int = setting(
        10, "how many files go in one round", rocketmq="deleteFileBatchMax", check=at_least(1)
    )
    interval: Seconds = setting(
        10.0, "between rounds", rocketmq=millis("cleanResourceInterval"), check=at_least(0.01)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceConfig:
    """What happens as the disk fills up."""

    warn: float = setting(
        0.75, "part of the disk in use from which messages past their time go at any hour",
        rocketmq=percent("diskMaxUsedSpaceRatio"), check=_ratio,
    )  # fmt: skip
    clean: float = setting(
        0.85, "part of the disk in use from which the oldest messages go before their time",
        rocketmq=percent("diskSpaceCleanForciblyRatio"), check=_ratio,
    )  # fmt: skip
    refuse: float = setting(
        0.90, "part of the disk in use from which nothing more is stored",
        rocketmq=percent("diskSpaceWarningLevelRatio"), check=_ratio,
    )  # fmt: skip
    ample: Bytes = setting(
        4 * _GIB, "with this much free no part of the disk is too much; 0: parts alone count",
        check=at_least(0),
    )  # fmt: skip
    clean_early: bool = setting(
        True, "whether a full disk may take messages before their time",
        rocketmq="cleanFileForciblyEnable",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """All of it."""

    log: LogConfig = group(LogConfig, "the commit log")
    queues: QueueConfig = group(QueueConfig, "the consume queues")
    index: IndexConfig = group(IndexConfig, "the key index")
    flush: FlushConfig = group(FlushConfig, "when bytes go to the disk")
    read: ReadConfig = group(ReadConfig, "how much one read returns")
    retention: RetentionConfig = group(RetentionConfig, "when old messages go")
    space: SpaceConfig = group(SpaceConfig, "what happens as the disk fills up")
