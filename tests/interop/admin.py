"""RocketMQ's own `mqadmin`, of any release, through any name server.

One JVM runs all the commands, since a JVM for each of them would take longer than all the rest.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import apache
import jars
from peer import SOURCES

_BETWEEN: Final = "\x01"
_END: Final = "\x02"
_LIST: Final = "\x03"
_ENDLESS: Final = "\x04"
_NEVER_ENDING: Final = frozenset({"clusterRT"})
"""Commands that go on until somebody stops them; they are stopped after a while."""
_SILENCE: Final = '<configuration><root level="OFF"/></configuration>'
_LOGBACK: Final = re.compile(r"^\d\d:\d\d:\d\d,\d+ \|-.*\n", re.MULTILINE)
"""What 5.x's logging says about its own setting up."""
FAILED: Final = re.compile(r"Exception|Error|command failed|not exist", re.IGNORECASE)
"""What is said where a command did not do what it was told."""


class AdminFailed(AssertionError):
    """A command did not do what it was told; the text is what it said."""


class Admin:
    """`mqadmin` of a release; a context manager."""

    def __init__(self, version: str, name_server: str) -> None:
        self.version = version
        self.name_server = name_server
        self.home = Path(tempfile.mkdtemp(prefix="gantry-admin-"))
        (self.home / "conf").mkdir()
        (self.home / "conf" / "logback_tools.xml").write_text(_SILENCE)
        options = ("-Xmx256m", f"-Duser.home={self.home}", *apache.OPENED, *apache.QUICK)
        self._process = subprocess.Popen(
            jars.java(version, "server", "Admin", *options, sources=SOURCES),
            env={"ROCKETMQ_HOME": str(self.home), "HOME": str(self.home), "LC_ALL": "C.UTF-8"},
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def __call__(self, command: str, *arguments: str) -> str:
        """What a command prints; `AdminFailed` where that tells of a failure."""
        # mqadmin ends with 0 whatever happens; what went wrong is a stack trace or a sentence.
        said = self.said(command, *arguments)
        if FAILED.search(said):
            raise AdminFailed(f"mqadmin {' '.join((command, *arguments))}:\n{said}")
        return said

    def said(self, command: str, *arguments: str) -> str:
        """What a command prints, whatever it tells of."""
        mark = _ENDLESS if command in _NEVER_ENDING else ""
        return self._ask(mark + _BETWEEN.join((command, "-n", self.name_server, *arguments)))

    def commands(self) -> dict[str, str]:
        """The commands that the jar has registered, and what it says of each."""
        lines = (line.partition(_BETWEEN) for line in self._ask(_LIST).splitlines())
        return {name: description for name, between, description in lines if between}

    def _ask(self, line: str) -> str:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("mqadmin was started without pipes")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        lines = []
        while (said := self._process.stdout.readline()) != f"{_END}\n":
            if not said:
                raise AdminFailed(f"mqadmin {line!r} ended the process:\n{''.join(lines)}")
            lines.append(said)
        return _LOGBACK.sub("", "".join(lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it ends by itself when its input does."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self.home, ignore_errors=True)
