"""The blocking consumer: real sockets, handlers in threads, loops, Ctrl-C, forks."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantrymq.client.states import ServiceState
from gantrymq.client.sync_consumer import Consumer
from gantrymq.errors import ClosedError, InvalidInput, StateError
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.offsets import QueryConsumerOffset
from tests.cluster.threads import Platform, ask, platform
from tests.support import LIMIT


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """The thread of the blocking clients ends with the last of them, those of handlers, too."""
    yield
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("gantrymq")], names


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("platform")) as running:
        yield running


@pytest.fixture
def topic(here: Platform, request: pytest.FixtureRequest) -> str:
    """A topic of one queue with eight messages, `0` to `7`."""
    name = re.sub(r"\W+", "_", request.node.name)[:80]
    here.topic(name, 1)
    here.send(name, 0, [b"%d" % number for number in range(8)])
    return name


def consumer(here: Platform, topic: str, **how: Any) -> Consumer:
    asked: dict[str, Any] = {"group": topic, "start": "earliest", "topics": topic}
    return Consumer(here.url, **(asked | how))


def offset(here: Platform, topic: str) -> int:
    question = QueryConsumerOffset(group=topic, topic=topic, queue_id=0, zero_if_unknown=False)
    return int(ask(here, question).offset)


class Seen:
    """A handler that notes what it is given, and says when it has so many."""

    def __init__(self, wanted: int = 8) -> None:
        self.messages: list[ReceivedMessage] = []
        self.threads: set[str] = set()
        self.enough = threading.Event()
        self._wanted = wanted

    def __call__(self, given: ReceivedMessage | list[ReceivedMessage]) -> None:
        self.threads.add(threading.current_thread().name)
        self.messages += given if isinstance(given, list) else [given]
        if len(self.messages) >= self._wanted:
            self.enough.set()

    async def in_a_task(self, given: ReceivedMessage) -> None:
        self(given)


@pytest.mark.parametrize("batch", [None, 3])
def test_handlers_are_called_in_threads(here: Platform, topic: str, batch: int | None) -> None:
    seen = Seen()
    with consumer(here, topic, handler=seen, batch=batch) as mine:
        assert seen.enough.wait(LIMIT)
        assert MessageQueue(topic, "broker-a", 0) in mine.queues
        assert mine.client_id
        assert mine.problems == []
    assert all(name.startswith("gantrymq handler") for name in seen.threads)
    assert sorted(message.body for message in seen.messages) == [b"%d" % n for n in range(8)]


def test_coroutines_are_run_too(here: Platform, topic: str) -> None:
    seen = Seen()
    with consumer(here, topic, topics=()) as mine:
        mine.subscribe(topic, seen.in_a_task)
        assert seen.enough.wait(LIMIT)
        mine.unsubscribe(topic)
        mine.close()
    assert seen.threads == {"gantrymq"}
    assert offset(here, topic) == 8


def test_a_blocking_call_in_a_coroutine_is_refused(here: Platform, topic: str) -> None:
    told: list[BaseException] = []
    over = threading.Event()

    async def handle(_message: ReceivedMessage) -> None:
        try:
            mine.pause()
        except StateError as error:
            told.append(error)
        over.set()

    with consumer(here, topic, handler=handle) as mine:
        assert over.wait(LIMIT)
    assert "would wait for itself" in str(told[0])


def test_a_loop_takes_messages_one_by_one(here: Platform, topic: str) -> None:
    got = []
    with consumer(here, topic) as mine:
        for message in mine:
            got.append(message.body)
            if len(got) == 8:
                break
    assert got == [b"%d" % number for number in range(8)]
    assert offset(here, topic) == 7  # the last was not said to be done
    with consumer(here, topic) as mine:
        for message in mine:
            assert message.body == b"7"
            mine.done(message)
            break
    assert offset(here, topic) == 8


def test_a_message_of_a_loop_can_be_put_off(here: Platform, topic: str) -> None:
    with consumer(here, topic) as mine:
        for message in mine:
            if message.body == b"3":
                mine.retry(message, reason="not now")
            if message.body == b"7":
                mine.done(message)
                break
        report = mine.close(5.0)
    assert report.left == {}
    assert offset(here, topic) == 8  # it went back, or the commit would stop before it


def test_pausing(here: Platform, topic: str) -> None:
    seen = Seen(9)
    with consumer(here, topic, handler=seen, pull_wait=0.2) as mine:
        mine.pause(topic)
        mine.resume(topic)
        here.send(topic, 0, [b"8"])
        assert seen.enough.wait(LIMIT)


def test_closing_elsewhere_ends_what_waits(here: Platform, topic: str) -> None:
    taken = threading.Event()
    ended: list[object] = []

    def take() -> None:
        for message in mine:
            if message.body == b"7":
                mine.done(message)
                taken.set()
        ended.append("loop")

    def wait() -> None:
        ended.append(mine.wait())

    with consumer(here, topic) as mine:
        assert not mine.wait(0.01)
        threads = [threading.Thread(target=target) for target in (take, wait)]
        for thread in threads:
            thread.start()
        assert taken.wait(LIMIT)
        assert mine.close(5.0).is_clean
        for thread in threads:
            thread.join(LIMIT)
    assert sorted(map(str, ended)) == ["True", "loop"]
    assert mine.wait()


def test_use_before_the_start_and_after_the_end(here: Platform, topic: str) -> None:
    mine = consumer(here, topic)
    with pytest.raises(StateError, match="has not been started"):
        mine.pause()
    with pytest.raises(StateError, match="has not been started"):
        iter(mine)
    assert mine.queues == frozenset()
    with mine:
        assert mine.state is ServiceState.RUNNING
        with pytest.raises(StateError, match="cannot be started"):
            mine.start()
    assert mine.state is ServiceState.SHUTDOWN
    assert mine.close().is_clean
    for use in (mine.start, mine.pause, lambda: mine.subscribe("more"), lambda: iter(mine)):
        with pytest.raises(ClosedError, match="was closed"):
            use()


def test_mistakes_are_told_at_once(here: Platform) -> None:
    with pytest.raises(InvalidInput, match="takes 'earliest'"):
        consumer(here, "orders", start="now")
    with pytest.raises(InvalidInput, match="RocketMQ has uses of its own for it"):
        consumer(here, "orders", group="TOOLS_CONSUMER")
    with pytest.raises(InvalidInput, match="RocketMQ has uses of its own for it"):
        consumer(here, "orders", group="CID_RMQ_SYS_mine")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_is_told(here: Platform, topic: str) -> None:
    program = f"""
import os, gantrymq
with gantrymq.Consumer({here.url!r}, group={topic!r}, start="earliest", topics={topic!r}) as mine:
    child = os.fork()
    if child == 0:
        for use in (mine.pause, mine.wait, lambda: next(iter(mine))):
            try:
                use()
            except gantrymq.errors.ClosedError as error:
                assert "forked" in str(error), error
            else:
                os._exit(1)
        mine.close()
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    for message in mine:
        print(message.body.decode(), flush=True)
        if message.body == b"7":
            break
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import gantrymq.errors\n" + program],
        capture_output=True,
        text=True,
        timeout=6 * LIMIT,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, [str(n) for n in range(8)]), done.stderr


@pytest.mark.parametrize("what", ["loop", "wait"])
def test_ctrl_c_ends_it_cleanly(here: Platform, topic: str, what: str, tmp_path: Path) -> None:
    waits = "mine.wait()" if what == "wait" else "for message in mine: handle(message)"
    program = f"""
import gantrymq
def handle(message):
    print(message.body.decode() + "\\n", end="", flush=True)  # in one piece: threads print
mine = gantrymq.Consumer({here.url!r}, group={topic!r}, start="earliest")
try:
    with mine:
        mine.subscribe({topic!r}, {"handle" if what == "wait" else None})
        {waits}
except KeyboardInterrupt:
    print("interrupted", mine.state, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as running:
        assert running.stdout is not None
        got = [running.stdout.readline().strip() for _ in range(8)]
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        rest, _ = running.communicate(timeout=3 * LIMIT)
    assert sorted(got) == [str(number) for number in range(8)]
    assert rest.split() == ["interrupted", "shutdown"]
    assert running.returncode == 0
    assert time.monotonic() - began < 2 * LIMIT
