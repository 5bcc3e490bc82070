"""The pipeline as a whole: a platform of its own, orders in, large orders out.

pip install 'gantrymq[spark,server]' pytest
pytest
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import gantrymq as gantry

PROJECT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "from gantrymq.cli import main; main()"]


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """A name server and a broker, for the length of a test."""
    ready = tmp_path / "ready.json"
    places = ["--data", str(tmp_path / "platform"), "--ready-file", str(ready)]
    ports = ["--bind", "127.0.0.1", "--namesrv-port", "0", "--broker-port", "0"]
    with subprocess.Popen([*COMMAND, "up", *ports, *places], stdout=subprocess.PIPE) as platform:
        assert platform.stdout is not None
        assert b"ready" in platform.stdout.readline()
        yield json.loads(ready.read_text())["namesrv"]
        platform.terminate()


@pytest.fixture
def project(tmp_path: Path, name_server: str) -> Path:
    """The project, with a state of its own."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "transformations").symlink_to(PROJECT / "transformations")
    spec = yaml.safe_load((PROJECT / "spark-pipeline.yml").read_text())
    spec["storage"] = (place / "state").as_uri()
    spec["configuration"]["spark.gantry.nameServer"] = name_server
    (place / "spark-pipeline.yml").write_text(yaml.safe_dump(spec))
    return place


def test_large_orders_go_on(project: Path, name_server: str) -> None:
    """Those of at least 1000 do, and only those."""
    with gantry.Admin(name_servers=name_server) as admin:
        admin.create_topic("orders", queues=2)
        admin.create_topic("large-orders", queues=2)
    amounts = {"a": 10, "b": 1000, "c": 999, "d": 2500}
    with gantry.Producer(group="test", name_servers=name_server) as producer:
        for name, amount in amounts.items():
            body = json.dumps({"id": name, "amount": amount}).encode()
            producer.send(gantry.Message("orders", body))
    run = [*COMMAND, "pipeline", "run", str(project), "--master", "local[2]"]
    subprocess.run(run, check=True)
    with gantry.Reader(name_servers=name_server) as reader:
        bodies = [json.loads(message.body) for message in reader.messages("large-orders")]
    assert sorted(order["id"] for order in bodies) == ["b", "d"]
