"""What `import gantrymq` offers: loaded when it is used, complete, and nothing at once."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gantrymq as gantry

SOURCE = Path(gantry.__file__)


def test_every_name_is_there_and_says_what_it_is() -> None:
    for name in gantry.__all__:
        found = getattr(gantry, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert found.__doc__, name
    assert set(gantry.__all__) <= set(dir(gantry))
    with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
        _ = gantry.Prodcuer  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    names = {
        alias.asname
        for node in ast.walk(ast.parse(SOURCE.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert names == set(gantry.__all__)


def test_importing_it_starts_nothing() -> None:
    program = (
        "import sys, threading, logging, gantrymq\n"
        "assert 'asyncio' not in sys.modules and 'socket' not in sys.modules\n"
        "assert threading.active_count() == 1 and not logging.getLogger().handlers\n"
        "gantrymq.Producer, gantrymq.errors\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
