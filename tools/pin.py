"""Renews the pinned requirement files: `.venv/bin/python tools/pin.py [--check]`.

A group is what one kind of work needs. `base` and the extras come from `pyproject.toml`, the
others from `requirements/<group>.in`. pip resolves all groups at once, so that any of them fit into
one environment, and is told that Python is 3.11.0, because the oldest limits the versions. It
still evaluates markers for the machine it runs on; this tool therefore follows the dependencies
itself, once for every Python and platform that we support, and writes the difference as markers:
one set of files for all of them. Only names, versions and markers reach the files.

`--check` writes nothing and fails where the files are out of step with what could be had now.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "requirements"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux": {"os_name": "posix", "platform_system": "Linux"},
    "darwin": {"os_name": "posix", "platform_system": "Darwin"},
    "win32": {"os_name": "nt", "platform_system": "Windows"},
}
# Groups that carry another one's needs with them when installed alone.
INCLUDES = {"server": ("base",), "spark": ("base",), "outbox": ("base",), "formats": ("base",)}
# Published without wheels; everything else must have one for every supported Python.
SOURCE_ONLY = frozenset({"pyspark"})

Environment = tuple[str, str]  # (python version, sys_platform)
EVERYWHERE = frozenset((python, platform) for python in PYTHONS for platform in PLATFORMS)


@dataclass(slots=True, kw_only=True)
class Pinned:
    """One resolved distribution and what it asks for."""

    name: str
    version: str
    needs: list[Requirement]
    used_in: dict[str, set[Environment]] = field(default_factory=dict)


def requirements_of_groups() -> dict[str, list[Requirement]]:
    """What each group asks for directly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked: dict[str, list[str]] = {"base": project["dependencies"]}
    for extra, lines in project["optional-dependencies"].items():
        asked[extra] = [line for line in lines if not line.startswith(project["name"])]
    for source in sorted(FILES.glob("*.in")):
        lines = [line.partition("#")[0].strip() for line in source.read_text("utf-8").splitlines()]
        asked[source.stem] = [line for line in lines if line]
    return {group: [Requirement(line) for line in lines] for group, lines in asked.items() if lines}


def resolve(wanted: Iterable[str]) -> dict[str, Pinned]:
    """Let pip choose one version of everything that `wanted` leads to."""
    direct = [Requirement(line) for line in wanted]
    from_source = report(
        "--no-deps", *(str(one) for one in direct if canonicalize_name(one.name) in SOURCE_ONLY)
    )
    behind = [str(need) for one in from_source.values() for need in one.needs if not need.marker]
    wheels = [str(one) for one in direct if canonicalize_name(one.name) not in SOURCE_ONLY]
    only = ("--only-binary", ":all:", "--python-version", f"{PYTHONS[0]}.0")
    return from_source | report(*only, *wheels, *behind)


def report(*arguments: str) -> dict[str, Pinned]:
    """What pip would install into an empty place, by name."""
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory, "report.json")
        target = ("--target", str(Path(directory, "target")))
        pip("--report", str(told), *target, *arguments)
        chosen = [item["metadata"] for item in json.loads(told.read_text("utf-8"))["install"]]
    found = [
        Pinned(
            name=canonicalize_name(metadata["name"]),
            version=metadata["version"],
            needs=[Requirement(line) for line in metadata.get("requires_dist") or ()],
        )
        for metadata in chosen
    ]
    return {one.name: one for one in found}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", *arguments]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise SystemExit(f"pip could not resolve {arguments[-1]}:\n{outcome.stderr.strip()}")


def resolve_everywhere(groups: dict[str, list[Requirement]]) -> dict[str, Pinned]:
    """Resolve, and again with what only other Pythons or platforms need, until it is whole."""
    direct = {str(one) for needs in groups.values() for one in needs}
    elsewhere: set[str] = set()
    while True:
        pinned = resolve(sorted(direct | elsewhere))
        missing = {
            f"{need.name}{need.specifier}"
            for group, needs in groups.items()
            for environment in EVERYWHERE
            for need in follow(needs, pinned, group, environment)
        }
        if not missing - elsewhere:
            return pinned
        elsewhere |= missing


def follow(
    needs: Iterable[Requirement],
    pinned: dict[str, Pinned],
    group: str,
    environment: Environment,
) -> Iterator[Requirement]:
    """Mark what `needs` lead to in `environment` as used by `group`; yield what is not pinned."""
    waiting = [(need, "") for need in needs]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        need, extra = waiting.pop()
        key = (canonicalize_name(need.name), frozenset(need.extras))
        if not applies(need, extra, environment) or key in seen:
            continue
        seen.add(key)
        if key[0] not in pinned:
            yield need
            continue
        found = pinned[key[0]]
        found.used_in.setdefault(group, set()).add(environment)
        waiting += [(deeper, asked) for asked in ("", *need.extras) for deeper in found.needs]


def applies(need: Requirement, extra: str, environment: Environment) -> bool:
    if need.marker is None:
        return True
    python, platform = environment
    return need.marker.evaluate(
        {
            **PLATFORMS[platform],
            "extra": extra,
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": platform,
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
    )


def marker(environments: set[Environment]) -> str:
    """The shortest marker that is true in `environments` and in none of the others."""
    if environments == EVERYWHERE:
        return ""
    by_pythons: dict[frozenset[str], list[str]] = {}
    for platform in PLATFORMS:
        pythons = frozenset(python for python, here in environments if here == platform)
        if pythons:
            by_pythons.setdefault(pythons, []).append(platform)
    choices = [
        " and ".join(filter(None, (python_marker(pythons), platform_marker(platforms))))
        for pythons, platforms in by_pythons.items()
    ]
    return choices[0] if len(choices) == 1 else " or ".join(f"({choice})" for choice in choices)


def python_marker(pythons: frozenset[str]) -> str:
    first, last = (PYTHONS.index(edge(pythons, key=PYTHONS.index)) for edge in (min, max))
    if pythons != frozenset(PYTHONS[first : last + 1]):
        raise SystemExit(f"a dependency is wanted on a broken row of Pythons: {sorted(pythons)}")
    parts = []
    if first > 0:
        parts.append(f"python_version >= '{PYTHONS[first]}'")
    if last < len(PYTHONS) - 1:
        parts.append(f"python_version < '{PYTHONS[last + 1]}'")
    return " and ".join(parts)


def platform_marker(platforms: list[str]) -> str:
    if len(platforms) == len(PLATFORMS):
        return ""
    if len(platforms) == 1:
        return f"sys_platform == '{platforms[0]}'"
    (other,) = set(PLATFORMS) - set(platforms)
    return f"sys_platform != '{other}'"


def pin_file(group: str, pinned: dict[str, Pinned]) -> str:
    lines = ["# Written by tools/pin.py; change the group's source and run it again."]
    for one in sorted(pinned.values(), key=lambda each: each.name):
        environments = set[Environment]()
        for member in (group, *INCLUDES.get(group, ())):
            environments |= one.used_in.get(member, set())
        if environments:
            condition = marker(environments)
            lines.append(f"{one.name}=={one.version}" + (f" ; {condition}" if condition else ""))
    return "\n".join(lines) + "\n"


def demand_wheels(pinned: dict[str, Pinned]) -> None:
    """Fail unless every pin has a wheel, for this platform, on every later Python too."""
    for python in PYTHONS[1:]:
        wanted = [
            f"{one.name}=={one.version}"
            for one in pinned.values()
            if one.name not in SOURCE_ONLY
            and any((python, sys.platform) in places for places in one.used_in.values())
        ]
        with tempfile.TemporaryDirectory() as target:
            only = ("--no-deps", "--only-binary", ":all:", "--python-version", python)
            pip(*only, "--target", target, *wanted)


def main(arguments: list[str]) -> int:
    groups = requirements_of_groups()
    pinned = resolve_everywhere(groups)
    demand_wheels(pinned)
    stale = []
    for group in groups:
        path, text = FILES / f"{group}.txt", pin_file(group, pinned)
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text, "utf-8")
    print("out of date:" if "--check" in arguments else "renewed:", ", ".join(stale) or "nothing")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
