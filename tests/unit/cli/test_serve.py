"""`gantry namesrv` as a process, and how any server of ours is run and stopped."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gantrymq
from gantrymq.cli.main import run
from gantrymq.cli.serve import Ready, serve
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.configs import GetNameServerConfig
from tests.support import run_on

SOURCE = Path(gantrymq.__file__).parent.parent
START = "from gantrymq.cli import main; main()"


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`gantry namesrv` with such arguments; dead at the end, whatever happened."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, "namesrv", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def page(url: str) -> str:
    """What is to be read there."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read(), "utf-8")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_one_line_when_ready_and_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    ready, conf = tmp_path / "deep" / "ready.json", tmp_path / "namesrv.conf"
    conf.write_text("rocketmqHome=/opt\nlistenPort=1\norderMessageEnable=true\n")
    options = ("--port", 0, "--bind", "127.0.0.1", "--data", tmp_path, "--config", conf)
    settings = ("--set", "scanNotActiveBrokerInterval=70", "--set", "routes.wait=yes")
    with started(*options, *settings, "--ready-file", ready) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        facts = json.loads(ready.read_text())
        assert line == f"name server ready on {facts['namesrv']}\n"
        assert (facts["brokers"], facts["pid"]) == ([], process.pid)
        assert 'gantry_namesrv_topics{node_type="nameserver"' in page(facts["metrics"])
        with BlockingPeer.connect(facts["namesrv"]) as peer:
            found = peer.call(GetNameServerConfig(), timeout=5).properties
        assert found["orderMessageEnable"] == found["needWaitForService"] == "true"
        assert found["scanNotActiveBrokerInterval"] == "70"
        process.send_signal(number)
        out, errors = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, "")
    assert not ready.exists()
    said = [line.partition(": ")[2] for line in errors.splitlines()]
    assert said == [
        f"{conf} has keys that mean nothing here: rocketmqHome",
        f"metrics are at {facts['metrics']}",
        "stopping",
        "stopped; 0 brokers and 0 topics were known",
    ]


def test_a_port_in_use_is_one_line_and_no_ready_file(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("stale")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--port", port, "--bind", "127.0.0.1", "--data", tmp_path)
        with started(*options, "--ready-file", ready) as process:
            out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    assert errors.startswith("gantry: [Errno ")
    assert f"cannot listen on 127.0.0.1:{port}" in errors
    assert errors.count("\n") == 1
    assert not ready.exists()


def test_a_port_of_metrics_in_use_is_one_line_and_nothing_is_left_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = f"metrics.port={taken.getsockname()[1]}"
        options = ("--port", 0, "--bind", "127.0.0.1", "--data", tmp_path, "--set", wanted)
        with started(*options) as process:
            out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    (line,) = [line for line in errors.splitlines() if line.startswith("gantry: ")]
    assert "set metrics.port, or metrics.enabled = false" in line
    assert "Traceback" not in errors


def test_json_lines_from_the_first_to_the_last(tmp_path: Path) -> None:
    options = ("--port", 0, "--bind", "127.0.0.1", "--data", tmp_path)
    with started(*options, "--log-format", "json", "--log-level", "info") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("name server ready on ")
        process.terminate()
        out, errors = process.communicate(timeout=20)
    said = [json.loads(line) for line in errors.splitlines()]
    assert [line["message"] for line in said][-2:] == [
        "stopping",
        "stopped; 0 brokers and 0 topics were known",
    ]
    assert {line["pid"] for line in said} == {process.pid}
    with started("--log-format", "json", "--set", "routes.oder=1") as process:
        out, errors = process.communicate(timeout=20)
    (line,) = errors.splitlines()
    assert json.loads(line)["message"].startswith("there is no setting routes.oder")
    assert (process.returncode, out) == (1, "")


def test_only_what_matters_at_a_higher_level(tmp_path: Path) -> None:
    options = ("--port", 0, "--bind", "127.0.0.1", "--data", tmp_path)
    with started(*options, "--log-level", "error") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.terminate()
        assert process.communicate(timeout=20)[1] == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "routes.oder=true"], "there is no setting routes.oder; did you mean routes.ord"),
        (["--set", "routes.order"], "--set takes KEY=VALUE, not 'routes.order'"),
        (["--port", "70000"], "ports go from 0 to 65535"),
        (["--config", "missing.conf"], "the settings missing.conf cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["namesrv", *arguments]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("gantry: ")
    assert said in errors
    assert errors.count("\n") == 1


class Patient:
    """A service that takes as long to close as it is allowed to."""

    def __init__(self) -> None:
        self.closed: list[float | None] = []

    async def start(self) -> None:
        """It is there."""

    async def close(self, *, grace: float | None = None) -> None:
        self.closed.append(grace)
        if grace is None:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()


def interrupted() -> Ready:
    os.kill(os.getpid(), signal.SIGTERM)
    return Ready("ready", {})


def test_the_second_signal_does_not_wait(capsys: pytest.CaptureFixture[str]) -> None:
    service = Patient()
    run_on("asyncio", serve(service, interrupted, None))
    assert service.closed == [None, 0]
    assert capsys.readouterr().out == "ready\n"


def test_a_service_that_cannot_say_that_it_is_ready_is_closed(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.mkdir()
    (ready / "full").touch()
    service = Patient()
    with pytest.raises(OSError, match=r"ready\.json"):
        run_on("asyncio", serve(service, lambda: Ready("ready", {}), ready))
    assert service.closed == []

    def unable() -> Ready:
        raise OSError("no address")

    with pytest.raises(OSError, match="no address"):
        run_on("asyncio", serve(service, unable, None))
    assert service.closed == [0]


def test_a_service_that_fails_while_closing_says_so() -> None:
    class Failing(Patient):
        async def close(self, *, grace: float | None = None) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_on("asyncio", serve(Failing(), interrupted, None))
