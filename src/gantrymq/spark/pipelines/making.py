"""Writes a project into a directory, where `spark-pipelines` and `gantry pipeline run` find it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gantrymq.errors import ConfigError
from gantrymq.spark.pipelines.shelf import DIRECTORIES, PREFIX, Project

SPEC: Final = "spark-pipeline.yml"
STATE: Final = "state"
"""The directory of checkpoints: what a run that follows goes on from."""


def make(project: Project, home: Path, told: Mapping[str, str]) -> Path:
    """Write a project of the shelf; what an earlier one was told holds where `told` is silent."""
    project.check(told)
    home = home.resolve()
    before = _told_before(home, project)
    home.mkdir(parents=True, exist_ok=True)
    shutil.copytree(project.place, home, dirs_exist_ok=True, ignore=_not_code)
    settings = project.defaults() | _of_the_place(project, home) | before | _rooted(told)
    _write_spec(home, project.name, {PREFIX + name: text for name, text in settings.items()})
    return home / SPEC


def read_spec(home: Path) -> dict[str, Any]:
    """What a project's file says."""
    path = home / SPEC
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{home} has no pipeline: there is no {SPEC}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(found, dict) or not {"name", "storage"} <= found.keys():
        raise ConfigError(f"{path} has no name, or no storage")
    return found


def _rooted(told: Mapping[str, str]) -> dict[str, str]:
    """The settings, directories such that they are found from elsewhere as well."""
    return {
        name: str(Path(text).absolute()) if name in DIRECTORIES and text else text
        for name, text in told.items()
    }


def _of_the_place(project: Project, home: Path) -> dict[str, str]:
    if any(setting.name == "path" for setting in project.settings):
        return {"path": str(home / project.results)}
    return {}


def _told_before(home: Path, project: Project) -> dict[str, str]:
    if not (home / SPEC).exists():
        return {}
    spec = read_spec(home)
    if spec["name"] != project.name:
        raise ConfigError(f"{home} has another pipeline, {spec['name']}: give another --data")
    found = dict(spec.get("configuration") or {})
    return {key.removeprefix(PREFIX): str(text) for key, text in found.items()}


def _write_spec(home: Path, name: str, configuration: Mapping[str, str]) -> None:
    spec = {
        "name": name,
        "storage": (home / STATE).as_uri(),
        "configuration": dict(sorted(configuration.items())),
        "libraries": [{"glob": {"include": "transformations/**"}}],
    }
    beside = home / f"{SPEC}.new"
    beside.write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True), encoding="utf-8")
    beside.replace(home / SPEC)


def _not_code(directory: str, names: list[str]) -> set[str]:  # noqa: ARG001
    return {name for name in names if name == "__pycache__"}
