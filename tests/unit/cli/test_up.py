"""`gantry up` and `gantry broker` as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gantrymq
from gantrymq.broker.config import BrokerConfig
from gantrymq.cli.main import run
from gantrymq.cli.up import Plan, broker_names, load_broker, load_name_server, own_store
from gantrymq.errors import ConfigError
from gantrymq.nameserver.config import NameServerConfig
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.routing import GetClusterInfo, GetRoute
from gantrymq.protocol.sending import SendMessage
from gantrymq.wire import record

SOURCE = Path(gantrymq.__file__).parent.parent
START = "from gantrymq.cli import main; main()"
LOCAL = ("--bind", "127.0.0.1")
ANY = ("--namesrv-port", "0", "--broker-port", "0")


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`gantry` with such arguments; dead at the end, whatever happened."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *map(str, arguments)],
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


def ready(process: subprocess.Popen[str]) -> str:
    """Its first line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return line


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """What it said on stderr until it ended in good order."""
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, ""), errors
    return [line.partition(": ")[2] for line in errors.splitlines()]


def ask(address: str, request: Any) -> Any:
    with BlockingPeer.connect(address) as peer:
        return peer.call(request, timeout=10)


def page(url: str) -> str:
    """What is to be read there."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read(), "utf-8")


def send(address: str, body: bytes = b"hello") -> int:
    request = SendMessage(group="g", topic="orders", queue_id=0, born_ms=1, body=body)
    return int(ask(address, request).offset)


def bodies(address: str) -> list[bytes]:
    request = PullMessage(
        group="g", topic="orders", queue_id=0, offset=0, flags=PullFlag.SUBSCRIPTION
    )
    return [message.body for message in record.iterate(ask(address, request).body)]


# --- gantry up ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_one_line_when_ready_and_a_clean_stop_that_says_what_was_flushed(
    tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "deep" / "ready.json"
    with started("up", *ANY, *LOCAL, "--data", tmp_path / "d", "--ready-file", file) as process:
        line = ready(process)
        facts = json.loads(file.read_text())
        (broker,) = facts["brokers"]
        assert (broker["name"], broker["id"], facts["pid"]) == ("broker-a", 0, process.pid)
        assert line == (
            f"gantry is ready: name server on {facts['namesrv']},"
            f" broker broker-a on {broker['address']}\n"
        )
        route = ask(facts["namesrv"], GetRoute(topic="TBW102")).route
        assert route.brokers[0].addresses == {0: broker["address"]}
        assert [send(broker["address"]) for _ in range(3)] == [0, 1, 2]
        assert broker["metrics"] == facts["metrics"]  # one process, one page
        measured = page(facts["metrics"])
        assert re.search(r'\nrocketmq_messages_in_total\{.*topic="orders".*\} 3\n', measured)
        assert re.search(r'\ngantry_requests_total\{node_type="nameserver".*\} \d+\n', measured)
        assert measured.count("\nprocess_cpu_seconds_total ") == 1
        said = stop(process, number)
    assert not file.exists()
    assert "stopping" in said
    (flushed,) = [line for line in said if line.startswith("stopped; log ends at")]
    assert "bytes of it flushed at the end" in flushed
    assert said.index("stopping") < said.index(flushed)


def test_data_stays_between_runs_in_a_store_of_its_own(tmp_path: Path) -> None:
    for run_ in range(3):
        with started("up", *ANY, *LOCAL, "--data", tmp_path / "d") as process:
            address = ready(process).split()[-1]
            assert bodies(address) == [b"%d" % n for n in range(run_)] if run_ else True
            send(address, b"%d" % run_)
            stop(process)
    assert {path.name for path in (tmp_path / "d").iterdir()} == {"broker-a"}
    (log,) = (tmp_path / "d" / "broker-a" / "commitlog").iterdir()
    assert log.stat().st_size == 64 << 20
    assert not (tmp_path / "d" / "broker-a" / "abort").exists()


def test_a_second_one_on_the_same_data_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with started("up", *ANY, *LOCAL, "--data", tmp_path) as first:
        ready(first)
        with started("up", *ANY, *LOCAL, "--data", tmp_path) as second:
            out, errors = second.communicate(timeout=30)
        assert (second.returncode, out) == (1, "")
        last = errors.splitlines()[-1]
        assert last.startswith("gantry: ")
        assert f"in use by process {first.pid}" in last
        stop(first)


def test_several_brokers_are_processes_that_stop_together(tmp_path: Path) -> None:
    names = ("--brokers", 3, "--broker-name", "one", "--cluster", "east")
    file = tmp_path / "ready.json"
    with started("up", *ANY, *LOCAL, *names, "--data", tmp_path, "--ready-file", file) as process:
        line = ready(process)
        assert [f"broker {name} on" in line for name in ("one", "broker-a", "broker-b")] == [
            True
        ] * 3
        found = ask(line.split()[6].rstrip(","), GetClusterInfo())
        assert found.clusters == {"east": {"one", "broker-a", "broker-b"}}
        facts = json.loads(file.read_text())
        pages = [one["metrics"] for one in facts["brokers"]] + [facts["metrics"]]
        assert len(set(pages)) == 4
        nodes = [re.findall(r'gantry_connections\{.*node_id="([^"]+)"', page(url)) for url in pages]
        assert nodes == [["one"], ["broker-a"], ["broker-b"], [facts["namesrv"]]]
        addresses = [data.addresses[0] for data in found.brokers.values()]
        assert [send(address) for address in addresses] == [0, 0, 0]
        said = stop(process)
    assert sum(line.startswith("stopped; log ends at") for line in said) == 3
    for address in addresses:
        with pytest.raises(Exception, match=r"connecting|refused"):
            send(address)


def test_brokers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    with started("up", *ANY, *LOCAL, "--brokers", 2, "--data", tmp_path) as process:
        ready(process)
        process.kill()
        _, errors = process.communicate(timeout=30)  # ends when nobody holds the pipe any more
    assert sum("stopped; log ends at" in line for line in errors.splitlines()) == 2


def test_a_broker_that_dies_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    with started("up", *ANY, *LOCAL, "--brokers", 2, "--data", tmp_path) as process:
        found = ask(ready(process).split()[6].rstrip(","), GetClusterInfo())
        os.kill(int((tmp_path / "broker-b" / "abort").read_text()), signal.SIGKILL)
        assert process.stderr is not None
        for line in process.stderr:
            if "broker-b ended" in line:
                break
        assert "broker-b ended by itself with exit code -9" in line
        assert send(found.brokers["broker-a"].addresses[0]) == 0
        stop(process)


def test_a_broker_that_cannot_start_ends_all(tmp_path: Path) -> None:
    (tmp_path / "broker-b").write_text("no directory")
    with started("up", *ANY, *LOCAL, "--brokers", 2, "--data", tmp_path) as process:
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert errors.splitlines()[-1].startswith("gantry: broker broker-b ended with exit code 1")


# --- gantry broker --------------------------------------------------------------------------------


def test_a_broker_alone(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=own\nbrokerRole=ASYNC_MASTER\nlistenPort=1\n")
    options = ("--port", 0, *LOCAL, "--data", tmp_path / "store", "--config", conf)
    with started("broker", *options, "--set", "flushDiskType=SYNC_FLUSH") as process:
        line = ready(process)
        assert line.startswith("broker own ready on 127.0.0.1:")
        address = line.split()[4].rstrip(",")
        assert send(address) == 0
        said = stop(process)
    assert said[0] == f"{conf} has keys that mean nothing here: brokerRole"
    assert said[-1].endswith("0 bytes of it flushed at the end")


def test_a_broker_that_finds_no_name_server_can_be_stopped(tmp_path: Path) -> None:
    options = ("--port", 0, *LOCAL, "--data", tmp_path, "--namesrv", "127.0.0.1:1")
    with started("broker", *options) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        assert "metrics are at" in said[0]
        assert "registering at name server 127.0.0.1:1 failed" in said[1]
        said = stop(process)
    assert said[-1] == "stopped before it was ready"
    assert not (tmp_path / "abort").exists()


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "--set", "flush.mode=sync"], "there is no setting flush.mode; did you mean"),
        (["up", "--set", "namesrv.routes.oder=true"], "there is no setting routes.oder"),
        (["up", "--set", "flushDiskType"], "--set takes KEY=VALUE"),
        (["up", "--broker-name", "a", "--broker-name", "a"], "two brokers cannot have one name"),
        (["up", "--brokers", "1", "--broker-name", "a", "--broker-name", "b"], "for 1 brokers"),
        (["broker", "--port", "70000"], "ports go from 0 to 65535"),
        (["broker", "--config", "missing.conf"], "the settings missing.conf cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(arguments) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("gantry: ")
    assert said in errors
    assert errors.count("\n") == 1


def test_one_file_can_be_for_both(tmp_path: Path) -> None:
    file = tmp_path / "gantry.toml"
    file.write_text("[namesrv.routes]\norder = true\n[topics]\nqueues = 3\n[store.log]\n")
    assert tomllib.loads(file.read_text())
    assert load_name_server(file, [], {}).value.routes.order
    loaded = load_broker(file, ["defaultTopicQueueNums=5"], {}, {"store.log.segment_size": 4096})
    assert (loaded.value.topics.queues, loaded.value.store.log.segment_size) == (5, 4096)
    file.write_text("[store.log]\nsegment_size = '8 KiB'\n")
    loaded = load_broker(file, [], {"listen.port": None}, {"store.log.segment_size": 4096})
    assert loaded.value.store.log.segment_size == 8192


def test_a_broker_conf_says_where_the_store_is(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nmetricsPromExporterPort=7000\n")
    loaded = load_broker(file, [], {})
    store = own_store(loaded, None, 1)
    assert store == f"{tmp_path}/store"
    assert own_store(loaded, "elsewhere", 1) is None
    assert own_store(load_broker(None, [], {}), None, 3) is None
    with pytest.raises(ConfigError, match="3 brokers cannot share"):
        own_store(loaded, None, 3)
    plan = Plan(
        name_server=NameServerConfig(),
        broker=loaded.value,
        directory=Path("/data"),
        names=["broker-a"],
        store=store,
    )
    config = plan.config(0, "127.0.0.1:9876")
    assert (config.data, config.metrics.port) == (store, 7000)
    assert plan.one_page


def test_a_namesrv_conf_for_the_name_server_alone(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1\norderMessageEnable=true\nrocketmqHome=/opt\n")
    loaded = load_name_server(None, [], {"listen.port": 5}, file)
    assert (loaded.value.routes.order, loaded.value.listen.port) == (True, 5)
    assert loaded.unknown == ("rocketmqHome",)


@pytest.mark.parametrize(
    ("names", "count", "expected"),
    [
        ([], None, ["broker-a"]),
        ([], 3, ["broker-a", "broker-b", "broker-c"]),
        (["x"], None, ["x"]),
        (["x", "broker-a"], 4, ["x", "broker-a", "broker-b", "broker-c"]),
    ],
)
def test_the_names_of_brokers(names: Sequence[str], count: int | None, expected: list[str]) -> None:
    assert broker_names(names, count, "broker-a") == expected


def test_too_many_names() -> None:
    with pytest.raises(ConfigError, match="given 2 times for 1"):
        broker_names(["a", "b"], 1, "broker-a")


def test_brokers_side_by_side_have_ports_and_stores_of_their_own() -> None:
    plan = Plan(
        name_server=NameServerConfig(),
        broker=BrokerConfig(),
        directory=Path("/data"),
        names=["broker-a", "broker-b"],
    )
    one, other = (plan.config(number, "127.0.0.1:9876") for number in range(2))
    assert not plan.one_page
    assert (one.listen.port, other.listen.port) == (10_911, 10_921)
    assert (one.directory, other.directory) == (Path("/data/broker-a"), Path("/data/broker-b"))
    assert one.registering.name_servers == "127.0.0.1:9876"
    assert one.listen.advertise == "0.0.0.0"  # the name server beside it knows better
