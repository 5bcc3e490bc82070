"""Every file in examples/ runs to its end, as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

# What keeps an example short here; all others run without arguments.
ARGUMENTS = {"shop.py": ["--seconds", "3", "--rate", "100", "--no-spark", "--data", "data"]}


def test_there_are_examples():
    assert (ROOT / "examples" / "shop.py").exists()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name
)
def test_an_example_runs(path, tmp_path):
    told = subprocess.run(
        [sys.executable, "-W", "error", path, *ARGUMENTS.get(path.name, [])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Traceback" not in told.stderr
