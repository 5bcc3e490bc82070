"""`gantry up` as a process of its own, for the length of some tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import gantrymq

SOURCE: Final = Path(gantrymq.__file__).parent.parent
COMMAND: Final = (sys.executable, "-c", "from gantrymq.cli import main; main()")
_ENOUGH: Final = 30.0


class Gantry:
    """A name server and a broker of ours; a context manager."""

    CLUSTER = "DefaultCluster"
    BROKER = "broker-a"

    def __init__(self, *settings: str, options: tuple[str, ...] = ()) -> None:
        self.version = "ours"
        self.home = Path(tempfile.mkdtemp(prefix="gantry-up-"))
        self.log = self.home / "gantry.log"
        self.keep = False
        self._options = [*options]
        for setting in settings:
            self._options += ["--set", setting]
        self._ports = ("0", "0")
        self.start()

    def start(self) -> None:
        """Run it; after `stop`, on the same ports and files."""
        ready = self.home / "ready.json"
        namesrv_port, broker_port = self._ports
        ports = ["--namesrv-port", namesrv_port, "--broker-port", broker_port]
        places = ["--bind", "127.0.0.1", "--data", str(self.home / "data")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "up", *ports, *places, "--ready-file", str(ready), *self._options],
                env=os.environ | {"PYTHONPATH": str(SOURCE)},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        assert b"gantry is ready" in self._process.stdout.readline(), self.said()
        self.facts: dict[str, Any] = json.loads(ready.read_text())
        self.name_server: str = self.facts["namesrv"]
        self.broker: str = self.facts["brokers"][0]["address"]
        self._ports = (self.name_server.rpartition(":")[2], self.broker.rpartition(":")[2])

    @property
    def store(self) -> Path:
        """The directory of its store."""
        return self.home / "data" / self.BROKER

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-5000:]

    def stop(self) -> None:
        """End it in good order."""
        self._process.terminate()
        self._process.communicate(timeout=_ENOUGH)
        assert self._process.returncode == 0, self.said()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._process.kill()
        self._process.communicate(timeout=_ENOUGH)

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
        """End it and remove its files, unless `keep` says that somebody wants them."""
        if self._process.poll() is None:
            self.stop()
        if not self.keep:
            shutil.rmtree(self.home, ignore_errors=True)
