"""The pinned files: whole, consistent, free of addresses, and in step with the project."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

PIN = re.compile(r"[a-z0-9-]+==[0-9a-z.]+( ; (sys_platform|python_version) [!=<>]+ '[a-z0-9.]+')*")


def pins(path: Path) -> dict[str, Requirement]:
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_holds_nothing_but_pins(path):
    first, *lines = path.read_text("utf-8").splitlines()
    assert first == "# Written by tools/pin.py; change the group's source and run it again."
    assert [line.split("==")[0] for line in lines] == sorted(line.split("==")[0] for line in lines)
    for line in lines:
        assert PIN.fullmatch(line), line


def test_a_package_has_one_version_in_all_files():
    versions: dict[str, set[str]] = {}
    for path in FILES:
        for name, one in pins(path).items():
            versions.setdefault(name, set()).add(str(one.specifier))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def asked_for():
    extras = PROJECT["optional-dependencies"]
    groups = {"base": PROJECT["dependencies"]} | {name: extras[name] for name in extras}
    for group, lines in groups.items():
        if group != "all":
            yield from ((group, line) for line in lines)
    for source in sorted((ROOT / "requirements").glob("*.in")):
        for line in source.read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                yield source.stem, line


@pytest.mark.parametrize(("group", "line"), list(asked_for()))
def test_what_is_asked_for_is_pinned(group, line):
    wanted = Requirement(line)
    pin = pins(ROOT / "requirements" / f"{group}.txt")[canonicalize_name(wanted.name)]
    (version,) = (each.version for each in pin.specifier)
    assert wanted.specifier.contains(version)
    assert (pin.marker is None) <= (wanted.marker is None)


def test_every_pinned_file_has_a_source():
    sources = {"base", *PROJECT["optional-dependencies"]} - {"all"}
    sources |= {path.stem for path in (ROOT / "requirements").glob("*.in")}
    assert {path.stem for path in FILES} == sources


def test_what_is_installed_fits_together():
    told = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
