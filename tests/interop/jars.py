"""Apache RocketMQ's own jars, and Java programs of ours compiled against them.

Nothing of another project is kept in this repository: `mvn` fetches a release into a cache outside
it, once. A finished set is a directory; it is filled under another name beside it and then renamed,
so that a set is there whole or not at all, also when several test processes begin together.

The cache is `$GANTRY_CACHE_DIR`, else `gantry` in `$XDG_CACHE_HOME` or `~/.cache`. Removing it is
always safe.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

CURRENT: Final = "5.5.0"
OLD: Final = "4.9.7"
VERSIONS: Final = (CURRENT, OLD)

SETS: Final = {
    "client": ("rocketmq-client",),
    "server": ("rocketmq-tools", "rocketmq-broker", "rocketmq-namesrv"),
    "proxy": ("rocketmq-proxy", "rocketmq-tools", "rocketmq-namesrv"),
}
"""What is asked for; everything it depends on comes with it."""

# Pinned, so that a run does not depend on what a release of mvn takes for granted.
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
_ATTEMPTS: Final = 4
_FIRST_PAUSE: Final = 2.0
_FETCH_SECONDS: Final = 420

_POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId>
  <artifactId>jars-of-rocketmq</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""

_DEPENDENCY: Final = """\
    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>"""


class JavaUnavailable(Exception):
    """There is no JDK or no `mvn`, or the jars could not be fetched; the text says which."""


def cache_dir() -> Path:
    """Where jars and classes are kept between runs."""
    if own := os.environ.get("GANTRY_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry"


def tool(name: str) -> str:
    """The path of a program of the JDK or of `mvn`; `JAVA_HOME` goes before `PATH`."""
    if home := os.environ.get("JAVA_HOME"):
        inside = Path(home) / "bin" / name
        if inside.exists():
            return str(inside)
    if found := shutil.which(name):
        return found
    raise JavaUnavailable(
        f"{name} is not on PATH; RocketMQ's own jars need mvn, and a JDK of 17 or newer"
    )


def jars(version: str, which: str) -> list[Path]:
    """The jars of a set of a RocketMQ release, fetched when they are not in the cache."""
    target = cache_dir() / "jars" / f"{version}-{which}"
    _make(target, lambda fresh: _fetch(version, SETS[which], fresh))
    return sorted(target.glob("*.jar"))


def class_path(version: str, which: str, *, extra: Sequence[Path] = ()) -> str:
    """A class path of `extra` and then the jars of a set."""
    return os.pathsep.join(str(path) for path in (*extra, *jars(version, which)))


def compiled(version: str, which: str, sources: Sequence[Path]) -> Path:
    """The directory with the classes of `sources`, compiled against a set of a release."""
    digest = hashlib.sha256(f"{version} {which}".encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_dir() / "classes" / f"{version}-{which}-{digest.hexdigest()[:16]}"
    _make(target, lambda fresh: _compile(class_path(version, which), sources, fresh))
    return target


def java(version: str, which: str, main: str, *options: str, sources: Sequence[Path]) -> list[str]:
    """The command that runs class `main` of `sources` with a release's jars."""
    path = class_path(version, which, extra=[compiled(version, which, sources)])
    return [tool("java"), *options, "-cp", path, main]


def _make(target: Path, fill: Callable[[Path], None]) -> None:
    """Have `fill` make `target`, all of it or nothing; the first of several makers wins."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as outer:
        fresh = Path(outer) / "fresh"
        fresh.mkdir()
        fill(fresh)
        try:
            fresh.rename(target)
        except OSError:
            if not target.exists():
                raise


def _fetch(version: str, artifacts: Sequence[str], into: Path) -> None:
    pom = into.parent / "pom.xml"
    wanted = [_DEPENDENCY.format(artifact=name, version=version) for name in artifacts]
    pom.write_text(_POM.format(dependencies="\n".join(wanted)))
    command = [tool("mvn"), "-q", "-B", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={into}"]
    pause = _FIRST_PAUSE
    for attempt in range(1, _ATTEMPTS + 1):
        # What one attempt got stays in mvn's own repository, so each goes further than the last.
        failure = _failure_of(command, _FETCH_SECONDS)
        if failure is None:
            return
        if attempt < _ATTEMPTS:
            time.sleep(pause)
            pause *= 2
    raise JavaUnavailable(
        f"mvn could not fetch the jars of RocketMQ {version} in {_ATTEMPTS} attempts: {failure}"
    )


def _compile(path: str, sources: Sequence[Path], into: Path) -> None:
    command = [tool("javac"), "-nowarn", "-Xlint:-options", "-encoding", "UTF-8", "-cp", path]
    failure = _failure_of([*command, "-d", str(into), *map(str, sources)], 120)
    if failure is not None:
        raise RuntimeError(f"javac refused {', '.join(s.name for s in sources)}:\n{failure}")


def _failure_of(command: Sequence[str], seconds: float) -> str | None:
    """What a program said before it failed; None when it did not fail."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"no end after {seconds:.0f}s"
    if done.returncode == 0:
        return None
    said = (done.stdout + done.stderr).strip()
    return f"exit code {done.returncode}\n{said[-3000:]}"
