"""Runs the Java side of the wire benchmarks, `java/WireBench.java`, and gives its numbers.

The jars come as the interop tests get them; `JavaUnavailable` says what is missing where there is
no `mvn` or JDK. As a program it prints what it measured:

    python bench/java_peer.py [--seconds 1.0]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop"))

import jars  # noqa: E402

SOURCES: Final = sorted((HERE / "java").glob("*.java"))
OPTIONS: Final = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC")

JavaUnavailable = jars.JavaUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case of the Java codec.

    `case` is `command.encode`, `command.decode` (the frame alone, its fields as a map),
    `request.encode`, `request.decode` (with the typed header), `header.decode`, `message.encode`,
    `message.decode` or `pull.decode` (a whole answer of about 1 MiB); `form` is `json`, `binary`
    or the version of the message; `size` the bytes of a body; `ns` the median of seven rounds and
    `best_ns` the quickest of them.
    """

    case: str
    form: str
    size: int
    ns: float
    best_ns: float
    version: str
    messages: int = 0
    bytes: int = 0
    messages_per_s: float = 0.0
    gb_per_s: float = 0.0


def measure(*, seconds: float = 0.6, warm_seconds: float | None = None) -> list[Measured]:
    """Every case, each warmed up and then measured for about `seconds`."""
    with tempfile.TemporaryDirectory(prefix="gantry-bench-") as home:
        command = jars.java(
            jars.CURRENT, "client", "WireBench", *OPTIONS, f"-Duser.home={home}", sources=SOURCES
        )
        warm = seconds if warm_seconds is None else warm_seconds
        done = subprocess.run([*command, str(warm), str(seconds)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"WireBench ended with {done.returncode}: {done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [Measured(**json.loads(line)) for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.6, help="how long to measure each case")
    for each in measure(seconds=parser.parse_args().seconds):
        rate = f"{each.messages_per_s:15,.0f} messages/s" if each.messages else ""
        sys.stdout.write(
            f"{each.case:16} {each.form:7} {each.size:6} B {each.ns:12,.0f} ns{rate}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
