"""JSON files: RocketMQ's form, backups, and what is there after a crash at any moment."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from gantrymq.errors import LocalProtocolError, StoreError
from gantrymq.store.disk import RealDisk
from gantrymq.store.json_files import JsonFiles, encode
from gantrymq.testing.faulty_disk import FaultyDisk, PowerCut
from gantrymq.wire import fastjson

CONFIG = Path("/store/config")
NAME = "consumerOffset.json"
VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_000}
OFFSETS: dict[str, Any] = {
    "dataVersion": VERSION,
    "groupTopicMap": {"G": ["T", "T2"]},
    "offsetTable": {"T@G": {10: 7, 0: 12, 1: 9}, "T2@G": {5: 1}, "E@G": {}},
}

# As RocketMQ 5.5.0's RemotingSerializable.toJson(…, true) writes it.
OFFSETS_TEXT = b"""\
{
	"dataVersion":{
		"counter":3,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"groupTopicMap":{
		"G":[
			"T",
			"T2"
		]
	},
	"offsetTable":{
		"E@G":{},
		"T2@G":{
			5:1
		},
		"T@G":{
			0:12,
			1:9,
			10:7
		}
	}
}"""

# The same from RocketMQ 4.9.7, whose fastjson has other ideas of lines.
OFFSETS_TEXT_OF_4 = b"""\
{
	"dataVersion":{
		"counter":3,
		"timestamp":1700000000000
	},
	"groupTopicMap":{
		"G":["T","T2"]
	},
	"offsetTable":{
		"T2@G":{5:1
		},
		"T@G":{0:12,1:9,10:7
		},
		"E@G":{}
	}
}"""


class Reports(list[str]):
    """What was said to the operator."""


def opened(disk: FaultyDisk, reports: list[str] | None = None) -> JsonFiles:
    return JsonFiles(disk, CONFIG, (reports if reports is not None else []).append)


# form


def test_the_form_is_that_of_rocketmq() -> None:
    assert encode(OFFSETS) == OFFSETS_TEXT


def test_every_kind_of_value() -> None:
    tree = {
        "text": "a\"b\\c\n\t\x01é/😀<>'",
        "0": True,
        "none": None,
        "ratio": 0.9,
        "list": [{"k": 1}, [], [[2]], "s"],
        "map": {},
        "big": 2**63 - 1,
    }
    text = encode(tree)
    assert fastjson.loads(text) == tree
    assert text.startswith(b'{\n\t"0":true,\n\t"big":9223372036854775807,\n\t"list":[\n\t\t{\n')
    assert b'"text":"a\\"b\\\\c\\n\\t\\u0001\xc3\xa9/\xf0\x9f\x98\x80<>\'"' in text
    assert encode({}) == b"{}"


@pytest.mark.parametrize("tree", [{"a": object()}, {"a": {(1, 2): 3}}, {"a": "\ud800"}, {1.5: 1}])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(tree: dict[Any, Any]) -> None:
    disk = FaultyDisk()
    with pytest.raises(LocalProtocolError):
        opened(disk).save(NAME, tree)
    assert disk.operations == 0


@pytest.mark.parametrize("text", [OFFSETS_TEXT, OFFSETS_TEXT_OF_4])
def test_files_of_rocketmq_are_read(text: bytes) -> None:
    disk = FaultyDisk()
    disk.make_directory(CONFIG)
    disk.write(CONFIG / NAME, text)
    found = opened(disk).load(NAME)
    assert found is not None
    assert found["offsetTable"] == {"T@G": {"0": 12, "1": 9, "10": 7}, "T2@G": {"5": 1}, "E@G": {}}


# file and backup


def test_nothing_there_is_nothing() -> None:
    reports: list[str] = []
    assert opened(FaultyDisk(), reports).load(NAME) is None
    assert reports == []


def test_the_file_before_is_the_backup() -> None:
    disk = FaultyDisk()
    files = opened(disk)
    for number in range(3):
        files.save(NAME, {"number": number})
    assert {path.name: fastjson.loads(data) for path, data in disk.tree().items()} == {
        NAME: {"number": 2},
        f"{NAME}.bak": {"number": 1},
    }
    assert files.load(NAME) == {"number": 2}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"a":', "JSON: "),
        (b"[1]", "it holds no JSON object"),
        (b'{"a":"\xff"}', "not UTF-8"),
    ],
)
def test_a_damaged_file_gives_way_to_its_backup_and_is_put_aside(text: bytes, why: str) -> None:
    disk = FaultyDisk()
    files = opened(disk)
    files.save(NAME, {"number": 1})
    files.save(NAME, {"number": 2})
    disk.write(CONFIG / NAME, text)
    reports: list[str] = []
    files = opened(disk, reports)
    assert files.load(NAME) == {"number": 1}
    assert len(reports) == 1
    assert why in reports[0]
    assert f"{NAME}.bak is taken instead" in reports[0]
    files.save(NAME, {"number": 3})
    assert disk.read(CONFIG / f"{NAME}.damaged") == text
    assert disk.read(CONFIG / f"{NAME}.bak") == encode({"number": 1})
    files.save(NAME, {"number": 4})
    assert opened(disk).load(NAME) == {"number": 4}
    assert disk.read(CONFIG / f"{NAME}.bak") == encode({"number": 3})


def test_a_missing_file_gives_way_to_its_backup() -> None:
    disk = FaultyDisk()
    disk.make_directory(CONFIG)
    disk.write(CONFIG / f"{NAME}.bak", b'{"number":7}')
    reports: list[str] = []
    assert opened(disk, reports).load(NAME) == {"number": 7}
    assert "it is missing" in reports[0]


def test_both_damaged_names_both() -> None:
    disk = FaultyDisk()
    disk.make_directory(CONFIG)
    disk.write(CONFIG / NAME, b"{]")
    disk.write(CONFIG / f"{NAME}.bak", b"")
    files = opened(disk)
    pattern = rf"{CONFIG}/{NAME}: JSON: .* near '\{{\]'; and {CONFIG}/{NAME}\.bak: it is empty"
    with pytest.raises(StoreError, match=pattern):
        files.load(NAME)


def test_a_damaged_file_without_a_backup_is_not_taken_for_nothing() -> None:
    disk = FaultyDisk()
    disk.make_directory(CONFIG)
    disk.write(CONFIG / NAME, b"?")
    with pytest.raises(StoreError, match=rf"{NAME}: JSON: .*; and there is no .*{NAME}\.bak"):
        opened(disk).load(NAME)


# crashes and real files


def test_what_was_saved_last_is_there_wherever_the_next_save_stops() -> None:
    stop, stopped = 1, True
    while stopped:
        disk = FaultyDisk()
        files = opened(disk)
        files.save(NAME, {"number": 1})
        files.save(NAME, {"number": 2})
        disk.stop_at, disk.tear_at = disk.operations + stop, 5
        try:
            files.save(NAME, {"number": 3})
            stopped = False
        except PowerCut:
            pass
        numbers = [2, 3] if stopped else [3]
        for seed in range(20):
            for left in (disk.after_kill(), disk.after_power_cut(Random(seed))):
                again = opened(left)
                found = again.load(NAME)
                assert found is not None
                assert found["number"] in numbers
                again.save(NAME, {"number": 9})
                assert opened(left).load(NAME) == {"number": 9}
        stop += 1
    assert stop > 5


def test_a_full_disk_leaves_the_old_file() -> None:
    disk = FaultyDisk(capacity=10_000)
    files = opened(disk)
    files.save(NAME, {"number": 1})
    with pytest.raises(OSError, match=r"(?i)no space"):
        files.save(NAME, {"text": "x" * 20_000})
    assert opened(disk).load(NAME) == {"number": 1}


@pytest.mark.usefixtures("no_leaks")
def test_real_files(tmp_path: Path) -> None:
    files = JsonFiles(RealDisk(), tmp_path / "config")
    assert files.load(NAME) is None
    files.save(NAME, OFFSETS)
    files.save(NAME, OFFSETS)
    assert (tmp_path / "config" / NAME).read_bytes() == OFFSETS_TEXT
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [NAME, f"{NAME}.bak"]
