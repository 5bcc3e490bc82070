from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gantrymq.store import system
from gantrymq.store.disk import Entry, RealDisk, Usage, replace_whole

PAGE = mmap.PAGESIZE
pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_a_file_has_its_size_at_once_and_takes_room_as_it_fills(
    disk: RealDisk, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    file = disk.create(path, 64 * PAGE, stride=4 * PAGE)
    assert path.stat().st_size == 64 * PAGE
    assert path.stat().st_blocks == 0
    file.write(10, b"hello")
    assert 0 < path.stat().st_blocks * 512 <= 8 * PAGE
    assert bytes(file.view[8:17]) == b"\0\0hello\0\0"
    file.sync()
    assert path.read_bytes()[10:15] == b"hello"
    file.close()


def test_the_view_cannot_be_written_and_outlives_file_and_name(
    disk: RealDisk, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    file = disk.create(path, PAGE)
    file.write(0, b"kept")
    held = file.view[0:4]
    assert held.readonly
    file.close()
    disk.remove(path)
    del file
    gc.collect()
    assert bytes(held) == b"kept"


def test_a_thin_file_is_seen_as_it_was_written_and_takes_little(
    disk: RealDisk, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    file = disk.create(path, 1024 * PAGE, thin=True)
    for at in range(0, 40, 10):
        file.write(at, b"%010d" % at)
    assert bytes(file.view[20:41]) == b"00000000200000000030\0"
    file.sync()
    assert path.stat().st_blocks * 512 <= 2 * PAGE
    file.close()
    again = disk.open(path, 1024 * PAGE, thin=True)
    assert bytes(again.view[:10]) == b"0000000000"
    again.close()
    disk.hasten(tmp_path)


@pytest.mark.parametrize("thin", [False, True])
def test_nothing_is_written_past_the_end(disk: RealDisk, tmp_path: Path, thin: bool) -> None:
    file = disk.create(tmp_path / "f", PAGE, thin=thin)
    with pytest.raises(ValueError, match=f"byte {PAGE + 2} is past the end"):
        file.write(PAGE - 2, b"four")
    file.close()


def test_zeros_from_the_middle_of_a_page_on(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "f"
    size = 100 * PAGE
    file = disk.create(path, size)
    for at in (0, 5 * PAGE, 50 * PAGE, size - 3):
        file.write(at, b"xyz")
    file.zero_from(5 * PAGE + 1)
    file.close()
    wanted = bytearray(size)
    wanted[0:3], wanted[5 * PAGE : 5 * PAGE + 1] = b"xyz", b"x"
    assert path.read_bytes() == wanted


def test_an_existing_file_is_opened_as_it_is_and_can_be_filled(
    disk: RealDisk, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * PAGE + bytes(PAGE))
    file = disk.open(path, 2 * PAGE)
    file.write(PAGE, b"b")
    file.close()
    assert path.read_bytes() == b"a" * PAGE + b"b" + bytes(PAGE - 1)


def test_a_file_of_another_size_is_not_opened(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"short")
    with pytest.raises(ValueError, match="greater than file size"):
        disk.open(tmp_path / "f", PAGE)


def test_a_removed_file_cannot_be_synced(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f", PAGE)
    (tmp_path / "f").unlink()
    with pytest.raises(FileNotFoundError, match="removed while it was in use"):
        file.sync()
    file.close()


def test_bytes_just_written_are_in_memory_and_warming_reads_them(
    disk: RealDisk, tmp_path: Path
) -> None:
    file = disk.create(tmp_path / "f", 16 * PAGE)
    file.write(3 * PAGE - 1, b"ab")
    assert file.resident(3 * PAGE - 1, 3 * PAGE + 1)
    file.warm(0, 16 * PAGE)
    assert file.resident(0, 16 * PAGE)
    file.close()


def test_a_file_can_leave_this_process_and_stay_in_the_cache(
    disk: RealDisk, tmp_path: Path
) -> None:
    file = disk.create(tmp_path / "f", 256 * PAGE)
    file.write(0, b"kept" * 64 * PAGE)
    held = file.view[:4]
    file.leave_memory()
    if sys.platform == "linux":
        maps = Path("/proc/self/smaps").read_text().split(str(tmp_path / "f"))[1]
        assert maps.split("Rss:")[1].split()[0] == "0"
        assert file.resident(0, 256 * PAGE)
    assert bytes(held) == b"kept"
    file.write(0, b"more")
    assert bytes(held) == b"more"
    file.close()


def test_a_hole_that_nobody_touched_is_not_in_memory(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.create(tmp_path / "f", 1024 * PAGE, stride=PAGE)
    if system._mincore is None:
        pytest.skip("this system does not say what is in memory")
    assert not file.resident(900 * PAGE, 901 * PAGE)
    file.close()


def test_directories_files_and_names(disk: RealDisk, tmp_path: Path) -> None:
    there = tmp_path / "a" / "b"
    assert disk.entries(there) == []
    disk.make_directory(there)
    disk.make_directory(there)
    disk.write(there / "one", b"1")
    disk.write(there / "two", b"22")
    disk.make_directory(there / "three")
    found = [(name, size, is_directory) for name, size, is_directory, _ in disk.entries(there)]
    assert [entry for entry in found if not entry[2]] == [("one", 1, False), ("two", 2, False)]
    assert [name for name, _, is_directory in found if is_directory] == ["three"]
    disk.rename(there / "one", there / "two")
    assert disk.read(there / "two") == b"1"
    assert not disk.exists(there / "one")
    disk.remove_tree(tmp_path / "a")
    disk.remove_tree(tmp_path / "a")
    assert not disk.exists(tmp_path / "a")


def test_entries_say_when_they_changed(disk: RealDisk, tmp_path: Path) -> None:
    disk.write(tmp_path / "f", b"")
    os.utime(tmp_path / "f", ns=(0, 1_234_567_890_000_000))
    assert disk.entries(tmp_path) == [Entry("f", 0, False, 1_234_567_890)]


def test_a_small_file_is_replaced_whole(disk: RealDisk, tmp_path: Path) -> None:
    replace_whole(disk, tmp_path / "f", b"old")
    replace_whole(disk, tmp_path / "f", b"new")
    assert [entry.name for entry in disk.entries(tmp_path)] == ["f"]
    assert disk.read(tmp_path / "f") == b"new"


def test_usage_is_that_of_the_file_system(disk: RealDisk, tmp_path: Path) -> None:
    usage = disk.usage(tmp_path)
    assert 0 < usage.free < usage.total
    assert 0 < usage.ratio < 1
    assert Usage(100, 25).ratio == 0.75
    assert Usage(0, 0).ratio == 1


def test_a_lock_is_held_once_even_within_a_process(disk: RealDisk, tmp_path: Path) -> None:
    held = disk.lock(tmp_path / "lock")
    assert held is not None
    assert disk.lock(tmp_path / "lock") is None
    held.release()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    again = disk.lock(tmp_path / "lock")
    assert again is not None
    again.release()


@pytest.mark.skipif(sys.platform == "win32", reason="record locks")
def test_another_process_sees_the_lock_where_java_puts_it(disk: RealDisk, tmp_path: Path) -> None:
    held = disk.lock(tmp_path / "lock")
    assert held is not None
    attempt = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError: print('refused')\n"
        "else: print('granted')"
    )

    def ask() -> str:
        command = [sys.executable, "-c", attempt, str(tmp_path / "lock")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert ask() == "refused"
    held.release()
    assert ask() == "granted"


SMALL_DISK = """
import errno, sys
from pathlib import Path
from gantrymq.store.disk import RealDisk

file = RealDisk().create(Path(sys.argv[1], "f"), 2**30, stride=65536)
at = 0
try:
    while True:
        file.write(at, bytes(4096))
        at += 4096
except OSError as error:
    print(at, errno.errorcode[error.errno])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system of its own")
def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """A store into a mapping without room behind it would be a signal."""
    own = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of our own on this system")
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    command = [*own, script, "sh", str(tmp_path), sys.executable, SMALL_DISK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(2**20), "ENOSPC"]


WINDOWS = """
import asyncio, ctypes, logging, mmap, pathlib, shutil, subprocess, sys, types
import gantrymq.wire.record

sys.platform = "win32"
sys.modules["fcntl"] = None
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
import gantrymq.store.store
"""


def test_the_store_can_be_imported_where_there_is_nothing_of_posix() -> None:
    subprocess.run([sys.executable, "-c", WINDOWS], check=True)
