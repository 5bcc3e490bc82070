"""Whatever happens at whatever moment, the store comes back with what it promised.

A run of steps is done once to count the disk's operations, and again with the machine stopping at
one of them. Then the store is opened on what is left, perhaps stopping again on the way. What has
to hold is stated in `check`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantrymq.rules.filtering import tag_code
from gantrymq.store.flush import Outcome
from gantrymq.store.opening import MakeParts
from gantrymq.store.recovery import Walk
from gantrymq.store.store import Store
from gantrymq.testing.faulty_disk import FaultyDisk, PowerCut
from gantrymq.wire.record import StoredMessage, decode
from tests.unit.store.plain import Bench, PlainParts, RocketParts, message

Step = tuple[str, int]


@dataclass
class Run:
    """What was asked of the store, and what it said."""

    appended: list[StoredMessage] = field(default_factory=list)
    written: int = 0
    """So many of them, from the first on, survive the process."""
    synced: int = 0
    """So many survive the machine."""

    def do(self, bench: Bench, steps: list[Step]) -> None:
        for number, (what, size) in enumerate(steps):
            bench.now_ms += 7
            if what == "append":
                body, long = b"%d-" % number * (1 + size // 4), "p" * (size % 400)
                made = message(
                    "T", number % 3, body, TAGS=f"t{number % 5}", KEYS=f"k{number}", long=long
                )
                self.append(bench, made)
            elif what == "batch":
                parts = range(1 + size % 5)
                self.append(bench, *[message("B", 0, b"%d.%d" % (number, part)) for part in parts])
            elif what == "flush":
                bench.store.flush()
            elif what == "checkpoint":
                bench.store.checkpoint()
            else:
                bench.reopen()
                self.synced = self.written

    def append(self, bench: Bench, *made: StoredMessage) -> None:
        self.appended += made
        store = bench.store
        end = store.append(*made).end if len(made) == 1 else store.append_batch(made).end
        count = self.written = len(self.appended)
        store.durable(end, lambda outcome: self.told(outcome, count))

    def told(self, outcome: Outcome, count: int) -> None:
        assert outcome is Outcome.STORED
        self.synced = count


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append"] * 14 + ["batch"] * 2 + ["flush", "flush", "checkpoint", "reopen"]
        ),
        st.integers(0, 2500),
    ),
    max_size=30,
)
MODES = st.sampled_from(["sync", "async"])
PARTS = st.sampled_from([PlainParts(), RocketParts(lambda: 10**12)])
RANDOMS = st.randoms(use_true_random=False)


def crash(steps: list[Step], mode: str, parts: MakeParts, random: Random) -> tuple[Run, FaultyDisk]:
    """Do the steps on a machine that stops somewhere among them."""
    whole, counts = Bench(mode=mode, parts=parts), [1]
    counts.append(whole.disk.operations)
    for step in steps:
        Run().do(whole, [step])
        counts.append(whole.disk.operations)
    part = random.randint(1, len(counts) - 1)  # a step first, since some take many operations
    disk, run = FaultyDisk(), Run()
    disk.stop_at = random.randint(counts[part - 1], counts[part])
    disk.tear_at = random.choice([0, 1, 7, 8, 40, 91, 100, 300, 10_000])
    with pytest.raises(PowerCut):
        run.do(Bench(disk, mode=mode, parts=parts), steps)
        disk.step("nothing")
    return run, disk


def recovered(disk: FaultyDisk, mode: str, parts: MakeParts, power: bool, random: Random) -> Bench:
    """Open the store on what is left of `disk`; the machine may stop a few times more."""
    for _ in range(random.randint(0, 3)):
        disk = disk.after_power_cut(random) if power else disk.after_kill()
        disk.stop_at, disk.tear_at = random.randint(1, 40), random.randint(0, 60)
        with suppress(PowerCut):
            Bench(disk, mode=mode, parts=parts)
    return Bench(
        disk.after_power_cut(random) if power else disk.after_kill(), mode=mode, parts=parts
    )


def check(bench: Bench, run: Run, at_least: int) -> None:
    """The log has the first so many messages, whole and once; the queues have exactly those."""
    store = bench.store
    found, walk = in_log(store)
    assert walk.at == store.log_end
    assert not walk.damage
    assert len(found) >= at_least
    assert [same(one) for one in found] == [same(one) for one in run.appended[: len(found)]]
    for topic, queue_id, queue in store.queues():
        wanted = [one for one in found if (one.topic, one.queue_id) == (topic, queue_id)]
        assert [one.queue_offset for one in wanted] == list(range(queue.max_offset))
        assert list(queue.entries(0, len(wanted))) == [entry(store, one) for one in wanted]
    assert {(one.topic, one.queue_id) for one in found} <= {
        (topic, queue_id) for topic, queue_id, _ in store.queues()
    }
    if not isinstance(bench.parts, PlainParts):
        for one in found:
            key = one.find("KEYS")
            assert key is None or one in by_key(store, one.topic, key)
    for segment in store.log.segments.files:  # or else a record would seem to follow
        assert not any(segment.view[max(store.log_end - segment.base, 0) :])


def in_log(store: Store) -> tuple[list[StoredMessage], Walk]:
    walk = Walk(store.log, store.log_start, 0)
    return list(walk), walk


def by_key(store: Store, topic: str, key: str) -> list[StoredMessage]:
    return [decode(piece) for piece in store.query(topic, key).pieces]


def same(one: StoredMessage) -> tuple[object, ...]:
    return one.topic, one.queue_id, one.queue_offset, one.body, one.property_bytes, one.store_ms


def entry(store: Store, one: StoredMessage) -> tuple[int, int, int]:
    return one.log_offset, one.size, tag_code(one.find("TAGS"))


def go_on(bench: Bench, run: Run) -> None:
    """The store that came back works, and closes as if nothing had been."""
    del run.appended[len(in_log(bench.store)[0]) :]
    run.do(bench, [("append", 30), ("batch", 2), ("append", 800), ("reopen", 0)])
    check(bench, run, len(run.appended))
    assert bench.store.recovered.messages == 0


@settings(max_examples=200)
@given(STEPS, MODES, PARTS, RANDOMS)
def test_killed_at_any_moment(
    steps: list[Step], mode: str, parts: MakeParts, random: Random
) -> None:
    run, disk = crash(steps, mode, parts, random)
    bench = recovered(disk, mode, parts, False, random)
    check(bench, run, run.written)
    go_on(bench, run)


@settings(max_examples=200)
@given(STEPS, MODES, PARTS, RANDOMS)
def test_without_power_at_any_moment(
    steps: list[Step], mode: str, parts: MakeParts, random: Random
) -> None:
    run, disk = crash(steps, mode, parts, random)
    bench = recovered(disk, mode, parts, True, random)
    check(bench, run, run.synced)
    go_on(bench, run)
