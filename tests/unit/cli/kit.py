"""`gantry` run in this process, a small world to run it on, and golden files of what it says.

Golden files are written anew by `GANTRY_GOLDEN=write`; what changed is then to be looked at.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

import gantrymq as gantry
from gantrymq.cli.main import run
from gantrymq.model import MessageQueue

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "cli"
_WRITES: Final = os.environ.get("GANTRY_GOLDEN") == "write"
_VOLATILE: Final = {
    "put_rate", "get_rate", "rate", "disk", "seconds", "age", "puts_today", "gets_today", "value",
    "waiting_sends", "lag", "in_flight", "offset", "log_offset", "tags_code", "size", "consumed_at",
    "version", "why", "before", "checks", "messages", "last_stored", "said_by", "members",
    "topics",
}  # fmt: skip
"""What differs from run to run or from one make of broker to another."""
_TEXTS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "HOST:PORT"),
    (re.compile(r"\b[\w.]+@[\w#@.-]+"), "CLIENT"),
    (re.compile(r'File "[^"]+", line \d+'), 'File "FILE", line LINE'),
)


@dataclass(slots=True)
class Told:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


class Cli:
    """Runs `gantry`, on one cluster."""

    def __init__(self, home: Path, name_server: str | None = None) -> None:
        self.environ = {
            "GANTRY_CONFIG": str(home / "config.toml"),
            "XDG_STATE_HOME": str(home / "state"),
            "NAMESRV_ADDR": name_server or "",
            "GANTRY_URL": "",
            "GANTRY_CONTEXT": "",
            "NO_COLOR": "1",
        }
        self.home = home

    def __call__(self, *words: object, stdin: str = "", code: int | None = 0) -> Told:
        """What `gantry` with these words says; its exit code has to be that."""
        runner = CliRunner(env=self.environ)
        with runner.isolation(input=stdin) as (out, err, _):
            got = run([str(word) for word in words])
            told = Told(got, out.getvalue().decode(), err.getvalue().decode())
        if code is not None:
            assert told.code == code, f"gantry {' '.join(map(str, words))}: {told}"
        return told

    def json(self, *words: object, code: int | None = 0) -> Any:
        """The same as data."""
        return self(*words, "-o", "json", code=code).data


# --- golden files ---------------------------------------------------------------------------------


def same_as_golden(name: str, text: str) -> None:
    """Compare with the golden file of that name."""
    path = GOLDEN / name
    if _WRITES:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"{path} differs; GANTRY_GOLDEN=write writes it anew"


def settled(data: Any, key: str = "") -> Any:
    """Data with a word for what differs from run to run."""
    if key == "topics":
        return key.upper()
    if isinstance(data, dict):
        return {name: settled(value, name) for name, value in data.items()}
    if isinstance(data, list):
        return [settled(one, key) for one in data if not _is_of_retries(one)]
    if key in _VOLATILE and not isinstance(data, bool):
        return key.upper()
    if isinstance(data, str):
        for pattern, word in _TEXTS:
            data = pattern.sub(word, data)
    return data


def _is_of_retries(row: Any) -> bool:
    """Whether a row is there only once members have committed for the topic of their retries."""
    return isinstance(row, dict) and str(row.get("topic", "")).startswith("%RETRY%")


def shape(data: Any) -> Any:
    """The names in data, without its values: the same for every make of broker."""
    if isinstance(data, dict):
        if "UNIQ_KEY" in data:  # which properties there are, is each broker's own
            return "…"
        return {name: shape(value) for name, value in data.items()}
    if isinstance(data, list):
        shapes = [shape(one) for one in data if isinstance(one, dict)]
        return [shapes[0]] if shapes else []
    return "…"


# --- a small world --------------------------------------------------------------------------------

TOPIC: Final = "cli-orders"
GROUP: Final = "cli-billing"
BODIES: Final = (
    b'{"id": 1, "status": "ok", "items": [{"price": 2.5}]}',
    b'{"id": 2, "status": "failed", "items": [{"price": 9}]}',
    "plain grün".encode(),
    b"\x82\xa2id\x04\xa6status\xa6failed",  # MessagePack: {"id": 4, "status": "failed"}
    b'{"id": 5, "status": "failed"}',
    b"\xff\x00\xfe",
)


@dataclass(slots=True, kw_only=True)
class World:
    """Messages, a group that consumed them all, and one dead letter."""

    url: str
    broker: str
    ids: list[str]
    client_id: str


READS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic-list": ("topic", "list", "--like", "cli-ord*"),
    "topic-describe": ("topic", "describe", TOPIC),
    "topic-route": ("topic", "route", TOPIC),
    "topic-top": ("topic", "top", "--like", TOPIC, "--over", "10ms"),
    "topic-stats": ("topic", "stats", TOPIC),
    "group-list": ("group", "list", "--like", "cli-bill*"),
    "group-describe": ("group", "describe", GROUP),
    "group-lag": ("group", "lag", GROUP, "--topic", TOPIC, "--owners"),
    "group-members": ("group", "members", GROUP),
    "group-simulate-assign": ("group", "simulate-assign", TOPIC, "--members", "3"),
    "message-cat": ("message", "cat", TOPIC),
    "message-tail": ("message", "tail", TOPIC, "-c", "2"),
    "message-get": ("message", "get", "--topic", TOPIC, "--key", "order-2"),
    "message-search": ("message", "search", TOPIC, "--where", "body.status = 'failed'"),
    "dlq-list": ("dlq", "list"),
    "dlq-show": ("dlq", "show", GROUP),
    "broker-list": ("broker", "list"),
    "cluster-list": ("cluster", "list"),
    "cluster-status": ("cluster", "status"),
    "namesrv-status": ("namesrv", "status"),
    "client-list": ("client", "list", "--group", GROUP),
    "storage-cq": ("storage", "cq", TOPIC, "0"),
    "context-show": ("context", "show"),
}
"""Commands that change nothing, with the golden file of each."""


@contextmanager
def world(url: str, broker: str) -> Iterator[World]:
    """Such a world on a cluster, with a member of the group as long as the block lasts."""
    with gantry.Admin(url) as admin:
        admin.create_topic(TOPIC, queues=2)
        admin.create_group(GROUP, max_retries=0)
        with gantry.Producer(url, group="cli-shop") as producer:
            ids = [_send(producer, broker, number, body) for number, body in enumerate(BODIES)]
        _consume_all(url)
        with gantry.Consumer(
            url, group=GROUP, start="earliest", topics=TOPIC, handler=lambda _: None
        ) as member:
            _until(lambda: len(member.queues) == 3)  # both, and the one for retries
            client_id = member.client_id
            _until(lambda: bool(admin.group_members(GROUP).members))
            _until(lambda: not admin.group_lag(GROUP, topic=TOPIC).messages)
            yield World(url=url, broker=broker, ids=ids, client_id=client_id)


def _send(producer: gantry.Producer, broker: str, number: int, body: bytes) -> str:
    receipt = producer.send(
        TOPIC,
        body,
        tag="bad" if number == 1 else "good",
        keys=f"order-{number + 1}",
        properties={"region": "north" if number % 2 else "south"},
        queue=MessageQueue(TOPIC, broker, number % 2),
    )
    return receipt.message_id


def _consume_all(url: str) -> None:
    """Consume every message once; the bad one is given up."""
    seen: set[str] = set()

    def handle(message: gantry.ReceivedMessage) -> None:
        seen.add(message.message_id)
        if message.tag == "bad":
            raise gantry.GiveUp("no such customer")

    with gantry.Consumer(url, group=GROUP, start="earliest", topics=TOPIC, handler=handle):
        _until(lambda: len(seen) == len(BODIES))


def _until(holds: Callable[[], bool], limit: float = 30.0) -> None:
    import threading
    import time

    pause, deadline = threading.Event(), time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        pause.wait(0.02)


until = _until
