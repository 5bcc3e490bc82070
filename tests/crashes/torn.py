"""Cuts and flipped bits in the newest files of a store that a crash left, and in older ones.

A store is filled once; each case damages a copy of it and opens that. What has to hold:

- Damage in the newest part, after the last checkpoint: the store ends at the last whole record
  before it. Every record before is served, in queues and by key, and nothing that was hit.
- Older damage, which only a checksum tells: the record is left out, with a line that says so, and
  everything else is served.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from gantrymq.store.config import FlushConfig, IndexConfig, LogConfig, QueueConfig, StoreConfig
from gantrymq.store.store import Store
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage, iterate

QUEUES: Final = 3
_SEGMENT: Final = 32 * 1024
_TOPIC: Final = "torn"


@dataclass(slots=True)
class Sample:
    """A store as a crash left it."""

    home: Path
    made: list[StoredMessage]
    confirmed: int
    """The log offset of its checkpoint."""

    @property
    def log_end(self) -> int:
        """Where its last record ends."""
        return self.made[-1].log_offset + self.made[-1].size


@dataclass(slots=True)
class Case:
    """What is damaged, and how."""

    what: str
    served: int
    """How many of the first messages have to be served."""
    gone: set[int] = field(default_factory=set)
    """Messages that must not be served."""
    reported: str = ""
    """What has to be in some line for the operator."""
    may_miss: int = 0
    """How many of the others may be left out, if that is reported."""
    by_key: bool = True
    """Whether all that is served has to be found by its key, too."""


def config() -> StoreConfig:
    """Small files, so that there are several of each kind."""
    return StoreConfig(
        log=LogConfig(segment_size=_SEGMENT),
        queues=QueueConfig(file_size=20 * 150),
        index=IndexConfig(slots=50, entries=500),
        flush=FlushConfig(mode="async"),
    )


def open_store(home: Path, said: list[str]) -> Store:
    """The store, whatever that takes."""
    return Store.open(home, config(), report=said.append)


def fill(home: Path, random: Random, messages: int) -> Sample:
    """Messages, a checkpoint somewhere among them, and no proper end."""
    store, made = open_store(home, []), []
    checkpoint_at = random.randrange(messages // 2, messages - 20)
    for number in range(messages):
        one = StoredMessage(
            _TOPIC, b"%d:" % number + os.urandom(random.randrange(700)),
            properties.encode({"KEYS": f"k{number}", "TAGS": f"t{number % 3}"}),
            queue_id=number % QUEUES, born_ms=number,
        )  # fmt: skip
        store.append(one)
        made.append(one)
        if number == checkpoint_at:
            store.flush()
            store.checkpoint()
    for _, _, queue in store.queues():
        queue.sync()
    confirmed = store._files.checkpoint.confirmed_offset
    left = home.with_name(home.name + "-left")
    shutil.copytree(home, left)
    store.close()
    return Sample(left, made, confirmed)


# --- damage ---------------------------------------------------------------------------------------


def in_newest_log(random: Random, sample: Sample, home: Path) -> Case:
    """The log from the checkpoint on: cut to zeros, cut off, or bits flipped."""
    first = sample.confirmed
    if random.random() < 0.5:  # what is hit is surely in the newest file
        first = max(first, sample.log_end // _SEGMENT * _SEGMENT)
    at = random.randrange(first, sample.log_end)
    way = random.choice(("zeros", "cut off", "flip"))
    if way == "flip":
        hit, at = _checked_byte(random, sample, at)
        _flip(random, _log_file(home, at), at % _SEGMENT, random.choice((1, 1, 1, 8)))
        return Case(f"bits of the log at {at}", hit, {hit})
    hit = _hit(sample, at)
    for base in range(at // _SEGMENT * _SEGMENT, sample.log_end, _SEGMENT):
        path, kept = _log_file(home, base), max(at - base, 0)
        if base > at and way == "cut off":
            path.unlink()
            continue
        os.truncate(path, kept)
        if way == "zeros" or not kept:
            os.truncate(path, _SEGMENT)
    return Case(f"log {way} from {at} on", hit, set(range(hit, len(sample.made))))


def in_older_log(random: Random, sample: Sample, home: Path) -> Case:
    """A bit of a body that was on the disk for long."""
    hit = random.randrange(_hit(sample, sample.confirmed - 1))
    one = sample.made[hit]
    at = one.log_offset + 88 + random.randrange(len(one.body))
    _flip(random, _log_file(home, at), at % _SEGMENT, 1)
    return Case(f"a bit of the log at {at}", len(sample.made), {hit}, f"at {one.log_offset}")


def in_newest_queue(random: Random, sample: Sample, home: Path) -> Case:
    """The newest file of a consume queue; all of it can be made anew.

    But its format has no check for a flipped bit. If nothing else tells, then the message of that
    entry is left out, and reported.
    """
    files = (home / "consumequeue" / _TOPIC / str(random.randrange(QUEUES))).iterdir()
    case = _anywhere(random, sample, max(files))
    case.may_miss = int("flip" in case.what)
    return case


def in_newest_index(random: Random, sample: Sample, home: Path) -> Case:
    """The newest file of the index; the same, but its format has no check for a flipped bit."""
    case = _anywhere(random, sample, max((home / "index").iterdir()))
    case.by_key = "flip" not in case.what
    return case


def in_small_file(random: Random, sample: Sample, home: Path) -> Case:
    """What a start goes by, but need not have."""
    path = home / random.choice(("checkpoint", "queues.json", "abort"))
    if path.name != "checkpoint":
        data = bytearray(path.read_bytes())
        path.write_bytes(data[: random.randrange(len(data))])
        return Case(f"{path.name} cut off", len(sample.made))
    os.truncate(path, random.randrange(path.stat().st_size))
    return Case("checkpoint cut off", len(sample.made))


def _anywhere(random: Random, sample: Sample, path: Path) -> Case:
    size = path.stat().st_size
    at = random.randrange(size)
    way = random.choice(("zeros", "cut off", "flip"))
    if way == "flip":
        _flip(random, path, at, random.choice((1, 1, 8)))
    else:
        os.truncate(path, at)
        if way == "zeros":
            os.truncate(path, size)
    return Case(f"{path.parent.name}/{path.name} {way} at {at}", len(sample.made))


DAMAGES: Final[tuple[tuple[int, Callable[[Random, Sample, Path], Case]], ...]] = (
    (60, in_newest_log),
    (15, in_older_log),
    (12, in_newest_queue),
    (8, in_newest_index),
    (5, in_small_file),
)
"""How many of a hundred are of each kind."""


def _log_file(home: Path, at: int) -> Path:
    return home / "commitlog" / f"{at - at % _SEGMENT:020d}"


def _flip(random: Random, path: Path, at: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        for bit in random.sample(range(8), bits):
            byte ^= 1 << bit
        file.seek(at)
        file.write(bytes((byte,)))


def _hit(sample: Sample, at: int) -> int:
    return next(number for number, one in enumerate(sample.made) if one.log_offset + one.size > at)


def _checked_byte(random: Random, sample: Sample, at: int) -> tuple[int, int]:
    """A message at or after `at`, and a byte of it that a check covers: sizes, magic, CRC, body."""
    hit = _hit(sample, at)
    one = sample.made[hit]
    within = random.choice((random.randrange(12), 84 + random.randrange(4 + len(one.body))))
    return hit, one.log_offset + within


# --- verdicts -------------------------------------------------------------------------------------


def judge(sample: Sample, case: Case, home: Path) -> str:
    """Open what is left and look at it; how the store ended, in a word."""
    said: list[str] = []
    store = open_store(home, said)
    try:
        _look(sample, case, store, said)
        after = StoredMessage(_TOPIC, b"after", queue_id=0)
        store.append(after)
        assert _served(store)[-1].body == b"after"
    finally:
        store.close()
    return "cut" if store.recovered.end < sample.log_end else "whole"


def _look(sample: Sample, case: Case, store: Store, said: list[str]) -> None:
    found = _served(store)
    numbers = [int(one.body.partition(b":")[0]) for one in found]
    by_number = dict(zip(numbers, found, strict=True))
    assert len(by_number) == len(numbers), "something is served twice"
    assert not case.gone & by_number.keys(), f"{case.gone & by_number.keys()} is served"
    for number, one in by_number.items():
        assert one == sample.made[number], f"{number} is served changed"
    missing = set(range(case.served)) - case.gone - by_number.keys()
    assert len(missing) <= case.may_miss, f"{sorted(missing)[:9]} are not served; {said}"
    assert not missing or any("are lost" in line for line in said), f"nothing was said: {said}"
    assert case.reported in "".join(said), f"nothing was said of it: {said}"
    for number in (*range(0, case.served, 17), case.served - 1):
        if case.by_key and number >= 0 and number not in case.gone:
            pieces = store.query(_TOPIC, f"k{number}").pieces
            keys = [next(iterate(bytes(piece))).find("KEYS") for piece in pieces]
            assert f"k{number}" in keys, f"k{number} is not found; {said}"


def _served(store: Store) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    for _, queue_id, queue in store.queues():
        offset = queue.min_offset
        while offset < queue.max_offset:
            read = store.read(_TOPIC, queue_id, offset, max_messages=64)
            assert read.next_offset > offset
            offset = read.next_offset
            pulled = [one for piece in read.pieces for one in iterate(bytes(piece))]
            assert len(pulled) == read.count
            found += pulled
    return sorted(found, key=lambda one: one.log_offset)


def torn_rounds(
    home: Path, cases: int, random: Random, *, report: Callable[[str], object] = str,
    per_sample: int = 100, messages: int = 600,
) -> dict[str, float]:  # fmt: skip
    """Damage and open that many copies; what was counted."""
    counts: dict[str, float] = {}
    began = time.monotonic()
    kinds = [kind for share, kind in DAMAGES for _ in range(share)]
    for number in range(cases):
        if number % per_sample == 0:
            sample = fill(home / f"sample-{number}", random, messages)
            report(f"{number} cases: {counts}")
        copy, kind = home / "copy", random.choice(kinds)
        shutil.copytree(sample.home, copy)
        case = kind(random, sample, copy)
        try:
            ended = judge(sample, case, copy)
        except Exception as error:
            raise AssertionError(f"case {number}, {case.what}: {error}") from error
        shutil.rmtree(copy)
        name = f"{kind.__name__.replace('_', ' ')}, {ended}"
        counts[name] = counts.get(name, 0) + 1
    return {**counts, "cases": cases, "seconds": round(time.monotonic() - began, 1)}
