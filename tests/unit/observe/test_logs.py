"""One line for each record, in either form, whatever is in it."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from gantrymq.observe import logs


@pytest.fixture
def record() -> logging.LogRecord:
    made = logging.LogRecord("x", logging.INFO, "", 0, "from %s", ("a\nb\rc\ud800",), None)
    made.created = 1_700_000_000.25
    return made


@pytest.fixture
def failed(record: logging.LogRecord) -> logging.LogRecord:
    try:
        raise ZeroDivisionError("by\nnought")
    except ZeroDivisionError:
        record.exc_info = sys.exc_info()
    return record


def test_text_is_one_line(record: logging.LogRecord) -> None:
    assert logs.TextLine("%(message)s").format(record) == "from a\\nb\\rc\ud800"


def test_text_with_a_traceback_is_one_line(failed: logging.LogRecord) -> None:
    line = logs.TextLine("%(message)s").format(failed)
    assert "\n" not in line
    assert "ZeroDivisionError: by\\nnought" in line


def test_json_is_one_object(record: logging.LogRecord) -> None:
    line = logs.JsonLine().format(record)
    assert line.isascii()
    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("pid") == record.process
    assert said == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "x",
        "message": "from a\nb\rc\ud800",
    }
    assert datetime.fromisoformat("2023-11-14T22:13:20.250Z").timestamp() == record.created


def test_json_has_the_traceback(failed: logging.LogRecord) -> None:
    said = json.loads(logs.JsonLine().format(failed))
    assert said["exception"].startswith("Traceback (most recent call last):\n")
    assert said["exception"].endswith("ZeroDivisionError: by\nnought")


@contextmanager
def bare() -> Iterator[None]:
    """The root logger as a fresh process has it."""
    root = logging.getLogger()
    held, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = held
        root.setLevel(level)
        logging.captureWarnings(False)


def test_everything_from_a_level_on_goes_there() -> None:
    stream = io.StringIO()
    with bare():
        assert not logs.in_json()
        logs.to_stderr("json", level="warning", stream=stream)
        assert logs.in_json()
        logging.getLogger("gantrymq.net").info("not this")
        logging.getLogger("gantrymq.net").warning("this")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "this"


def test_warnings_are_lines_as_well() -> None:
    code = (
        "import warnings; from gantrymq.observe import logs; logs.to_stderr('json');"
        "warnings.warn('odd')"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    (line,) = told.stderr.splitlines()
    assert "UserWarning: odd" in json.loads(line)["message"]
