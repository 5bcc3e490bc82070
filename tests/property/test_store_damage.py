"""Cuts and flipped bits: what is before them is served, what they hit is not."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gantrymq.store.config import LogConfig
from gantrymq.store.parts import RocketParts
from gantrymq.store.recovery import Walk
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire.record import StoredMessage, decode, iterate
from tests.unit.store.plain import ROOT, Bench, message

SIZES = st.lists(st.integers(0, 700), min_size=2, max_size=25)
PLACES = st.floats(0, 1, exclude_max=True)
SEGMENT = 4096


def filled(sizes: list[int]) -> tuple[Bench, list[StoredMessage]]:
    """A store with a message of each size, on the disk but left by a crash."""
    bench = Bench(parts=RocketParts(lambda: 10**12), log=LogConfig(segment_size=SEGMENT))
    made = []
    for number, size in enumerate(sizes):
        bench.now_ms += 1000
        body = (b"%d-" % number * (1 + size // 3))[: size + 1]
        made.append(message("T", number % 3, body, KEYS=f"k{number}"))
        bench.store.append(made[-1])
    bench.store.flush()
    return bench, made


def byte_of(disk: FaultyDisk, offset: int, bits: int) -> None:
    base = offset - offset % SEGMENT
    disk.flip(ROOT / "commitlog" / f"{base:020d}", offset - base, bits)


def hit(made: list[StoredMessage], offset: int) -> int:
    """The first message that ends after `offset`."""
    return next(at for at, one in enumerate(made) if one.log_offset + one.size > offset)


def served(bench: Bench) -> list[StoredMessage]:
    """All that reading the three queues gives, in the order of the log."""
    found: list[StoredMessage] = []
    for queue_id in range(3):
        queue = bench.store.queue("T", queue_id)
        offset = queue.min_offset if queue else 0
        while queue and offset < queue.max_offset:
            read = bench.store.read("T", queue_id, offset, max_messages=4)
            assert read.next_offset > offset
            offset = read.next_offset
            pulled = [one for piece in read.pieces for one in iterate(bytes(piece))]
            assert len(pulled) == read.count
            found += pulled
    return sorted(found, key=lambda one: one.log_offset)


@settings(max_examples=100)
@given(SIZES, PLACES)
def test_a_cut_log_is_served_up_to_the_cut(sizes: list[int], place: float) -> None:
    bench, made = filled(sizes)
    cut = int(bench.store.log_end * place)
    disk = bench.disk.after_kill()
    for base in range(0, bench.store.log_end, SEGMENT):
        if base + SEGMENT > cut:
            disk.wipe(ROOT / "commitlog" / f"{base:020d}", max(cut - base, 0))
    bench.reopen(disk)
    left = made[: hit(made, cut)]
    assert served(bench) == left
    assert list(Walk(bench.store.log, 0, 0)) == left
    again = message("T", len(left) % 3, b"after")
    bench.store.append(again)
    assert again.queue_offset == sum(one.queue_id == again.queue_id for one in left)
    assert served(bench)[-1].body == b"after"


def is_checked(message: StoredMessage, offset: int) -> bool:
    """Whether damage at `offset` shows: in sizes, magic number, checksum or body.

    The rest of the head, the topic and the properties are under no checksum in RocketMQ's format.
    """
    at = offset - message.log_offset
    return 0 <= at < 12 or 84 <= at < 88 + len(message.body)


@settings(max_examples=200)
@given(SIZES, PLACES, st.integers(0, 7))
def test_a_flipped_bit_cuts_the_log_and_never_reaches_a_reader(
    sizes: list[int], place: float, bit: int
) -> None:
    bench, made = filled(sizes)
    offset = int(bench.store.log_end * place)
    first = hit(made, offset)
    assume(is_checked(made[first], offset))
    disk = bench.disk.after_kill()
    byte_of(disk, offset, 1 << bit)
    bench.reopen(disk)
    found = served(bench)
    assert found[:first] == made[:first]
    assert [one.body for one in found] == [one.body for one in made[: len(found)]]
    for one, wanted in zip(found[first + 1 :], made[first + 1 :], strict=False):
        assert one == wanted


@settings(max_examples=200)
@given(SIZES, PLACES, st.integers(0, 7))
def test_a_flipped_bit_under_no_checksum_makes_up_no_message(
    sizes: list[int], place: float, bit: int
) -> None:
    bench, made = filled(sizes)
    offset = int(bench.store.log_end * place)
    assume(not is_checked(made[hit(made, offset)], offset))
    disk = bench.disk.after_kill()
    byte_of(disk, offset, 1 << bit)
    bench.reopen(disk)
    bodies = {one.body for one in made}
    assert all(one.body in bodies for one in served(bench))


@settings(max_examples=100)
@given(SIZES, PLACES, st.integers(0, 7), st.booleans())
def test_older_damage_is_left_out_and_reported(
    sizes: list[int], place: float, bit: int, lost_queues: bool
) -> None:
    bench, made = filled(sizes)
    bench.store.checkpoint()
    bench.store.close()
    bodies = [
        offset
        for one in made
        for offset in range(one.log_offset + 88, one.log_offset + 88 + len(one.body))
    ]
    offset = bodies[int(len(bodies) * place)]
    disk = bench.disk.after_kill()
    byte_of(disk, offset, 1 << bit)
    if lost_queues:
        disk.remove_tree(ROOT / "consumequeue")
    bench.reopen(disk)
    gone = hit(made, offset)
    assert served(bench) == [one for at, one in enumerate(made) if at != gone]
    assert any(f"of the log at {made[gone].log_offset}" in line for line in bench.said)
    for queue_id in range(3):
        count = sum(one.queue_id == queue_id for one in made)
        lost_last = made[gone].queue_id == queue_id and made[gone].queue_offset == count - 1
        queue = bench.store.queue("T", queue_id)
        most = queue.max_offset if queue else 0
        assert most == count or (lost_queues and lost_last and most == count - 1)
    for number, one in enumerate(made):
        pieces = bench.store.query("T", f"k{number}").pieces
        assert (one in map(decode, pieces)) == (number != gone)


@settings(max_examples=200)
@given(SIZES, PLACES, st.integers(0, 7), st.booleans())
def test_older_damage_anywhere_lets_the_store_open_and_readers_read(
    sizes: list[int], place: float, bit: int, lost_queues: bool
) -> None:
    bench, made = filled(sizes)
    bench.store.checkpoint()
    offset = int(bench.store.log_end * place)
    disk = bench.disk.after_kill()
    byte_of(disk, offset, 1 << bit)
    if lost_queues:
        disk.remove_tree(ROOT / "consumequeue")
    bench.reopen(disk)
    bodies = {one.body for one in made}
    assert all(one.body in bodies for one in served(bench))
    bench.store.append(message("T", 0, b"after"))
    bench.reopen()
    assert served(bench)[-1].body == b"after"


@settings(max_examples=100)
@given(SIZES, PLACES, st.booleans())
def test_a_newest_file_that_was_cut_off_costs_what_was_cut_off(
    sizes: list[int], place: float, clean: bool
) -> None:
    bench, made = filled(sizes)
    base = (bench.store.log_end - 1) // SEGMENT * SEGMENT
    cut = base + 1 + int((bench.store.log_end - base - 1) * place)
    if clean:
        bench.store.close()
    disk = bench.disk.after_kill()
    disk.shorten(ROOT / "commitlog" / f"{base:020d}", cut - base)
    bench.reopen(disk)
    left = made[: hit(made, cut)]
    found = served(bench)
    assert found == left
    if clean and len(left) < len(made):  # nobody looks before they are read
        assert any("are lost" in line for line in bench.said)
    again = message("T", 0, b"after")
    bench.store.append(again)
    bench.reopen()
    assert served(bench) == [*left, again]
