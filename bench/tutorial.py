"""The tutorial "Send and receive", followed word for word in a fresh environment.

Every block of the page is taken as it stands: commands are run, programs are saved under the name
in their first line and run with the environment's Python, and what they print has to be what the
page says. Where the page's ports are taken on this machine, free ones stand in for them.

    ./dev bench tutorial [--keep]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "tutorial" / "send-and-receive.md"
FENCE: Final = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
PORTS: Final = ("9876", "10911")
PATIENCE: Final = 300.0


class Wrong(Exception):
    """The page says otherwise."""


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ports = [free(port) for port in PORTS]
        self.platform: subprocess.Popen[str] | None = None
        self.printed = ""
        path = f"{place / 'shop' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        dropped = ("PYTHONPATH", "GANTRY_URL", "NAMESRV_ADDR", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        self.environ = kept | {"PATH": path}

    def follow(self) -> None:
        """Every block, from the first to the last."""
        for block in FENCE.finditer(PAGE.read_text("utf-8")):
            info, text = block["info"].strip(), block["text"]
            if info == "console":
                self.do(text)
            elif info == "python":
                self.run(text)
            elif info == "text output" and self.printed != text:
                raise Wrong(f"the page says\n{text}\nand it printed\n{self.printed}")

    def do(self, text: str) -> None:
        """Commands; the one that serves goes on in the background."""
        for command in re.findall(r"^\$ (.+)$", text, re.MULTILINE):
            began = time.monotonic()
            if command.startswith("gantry up"):
                self.serve(command, text)
            elif not command.startswith(". "):  # activating is what our PATH does
                self.shell(command.replace("'.[server]'", f"'{ROOT}[server]'"))
            print(f"{time.monotonic() - began:>7.1f}s  $ {command}", flush=True)

    def shell(self, command: str) -> None:
        """One that ends by itself."""
        done = subprocess.run(
            command, shell=True, cwd=self.place, env=self.environ, text=True,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Wrong(f"$ {command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def serve(self, command: str, text: str) -> None:
        """Start the platform, and see that it says what the page says."""
        names, broker = self.ports
        options = f"--namesrv-port {names} --broker-port {broker} --set metrics.enabled=false"
        self.platform = subprocess.Popen(
            f"exec {command} {options if self.ports != [*PORTS] else ''}",
            shell=True, cwd=self.place, env=self.environ, text=True, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.platform.stdout is not None
        line, said = self.platform.stdout.readline().strip(), self.here(text).splitlines()
        if line not in said:
            raise Wrong(f"$ {command} said {line!r}")

    def run(self, text: str) -> None:
        """Save a program, and run it."""
        name = text.partition("\n")[0].removeprefix("# ")
        (self.place / name).write_text(self.here(text), "utf-8")
        began = time.monotonic()
        done = subprocess.run(
            ["python", name], cwd=self.place, env=self.environ, text=True,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        print(f"{time.monotonic() - began:>7.1f}s  $ python {name}", flush=True)
        if done.returncode:
            raise Wrong(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        self.printed = done.stdout

    def here(self, text: str) -> str:
        """The page's ports as they are here."""
        for port, ours in zip(PORTS, self.ports, strict=True):
            text = text.replace(port, ours)
        return text

    def end(self) -> None:
        """Ctrl-C; then the last program fails, and says why."""
        platform = self.platform
        assert platform is not None
        platform.send_signal(signal.SIGINT)
        platform.communicate(timeout=60)
        failed = subprocess.run(
            ["python", "order.py"], cwd=self.place, env=self.environ, text=True,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        if not failed.returncode or "is one running there" not in failed.stderr:
            raise Wrong(f"without a platform, order.py said\n{failed.stderr}")

    def close(self) -> None:
        """End what is still running."""
        if self.platform is not None and self.platform.poll() is None:
            self.platform.kill()
            self.platform.communicate(timeout=60)


def free(port: str) -> str:
    """That port, or another one where it is taken."""
    for wanted in (int(port), 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return str(probe.getsockname()[1])
    raise Wrong(f"neither {port} nor any other port is free")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench tutorial")
    parser.add_argument("--keep", action="store_true", help="leave the environment behind")
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="gantry-tutorial-"))
    reader = Reader(place)
    began = time.monotonic()
    try:
        reader.follow()
        reader.end()
    except Wrong as wrong:
        sys.exit(f"tutorial: {wrong}")
    finally:
        reader.close()
        if not asked.keep:
            shutil.rmtree(place, ignore_errors=True)
    print(f"the page is right, in {time.monotonic() - began:.0f}s")


if __name__ == "__main__":
    main()
