"""The blocking pull consumer on real sockets: the same, from any thread."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gantrymq.client.states import ServiceState
from gantrymq.client.sync_pull_consumer import PullConsumer
from gantrymq.errors import ClosedError, InvalidInput, StateError
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.offsets import QueryConsumerOffset
from tests.cluster.threads import Platform, ask, platform
from tests.support import LIMIT


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """The thread of the blocking clients ends with the last of them."""
    yield
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("gantrymq")], names


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("platform")) as running:
        yield running


@pytest.fixture
def queue(here: Platform, request: pytest.FixtureRequest) -> MessageQueue:
    """The queue of a topic with eight messages, `0` to `7`."""
    name = re.sub(r"\W+", "_", request.node.name)[:80]
    here.topic(name, 1)
    here.send(name, 0, [b"%d" % number for number in range(8)])
    return MessageQueue(name, "broker-a", 0)


def consumer(here: Platform, queue: MessageQueue, **how: Any) -> PullConsumer:
    asked: dict[str, Any] = {"group": queue.topic, "start": "earliest"}
    return PullConsumer(here.url, **(asked | how))


def take(mine: PullConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for _ in range(20):
        if len(found) >= count:
            return found
        found += mine.poll()
    raise AssertionError(f"only {len(found)} came")


def offset(here: Platform, queue: MessageQueue) -> int:
    question = QueryConsumerOffset(
        group=queue.topic, topic=queue.topic, queue_id=0, zero_if_unknown=False
    )
    return int(ask(here, question).offset)


def test_subscribing_polling_and_committing(here: Platform, queue: MessageQueue) -> None:
    with consumer(here, queue) as mine:
        mine.subscribe(queue.topic)
        assert mine.queues == {queue}
        assert [message.body for message in take(mine, 8)] == [b"%d" % n for n in range(8)]
        assert mine.commit() == {queue: 8}
        assert mine.committed() == {queue: 8}
        assert mine.positions() == {queue: 8}
        assert mine.poll(timeout=0.01) == []
        assert mine.problems == []
        mine.unsubscribe(queue.topic)
        assert mine.queues == frozenset()
    assert offset(here, queue) == 8


def test_assigning_and_seeking(here: Platform, queue: MessageQueue) -> None:
    mine = consumer(here, queue, auto_commit=False)
    mine.assign([queue])
    with mine:
        assert mine.queues_of(queue.topic) == (queue,)
        assert (mine.bounds(queue).least, mine.bounds(queue).end) == (0, 8)
        first = take(mine, 8)[0]
        for place, found in (
            ("earliest", 0),
            (3, 3),
            (first.stored_at, 0),
            ("latest", 8),
            ("committed", 0),
        ):
            assert mine.offset(queue, place) == found  # type: ignore[arg-type]
            assert mine.seek(queue, place) == {queue: found}  # type: ignore[arg-type]
            assert [m.offset for m in mine.poll(1, timeout=0.05 if found == 8 else 5.0)] == (
                [] if found == 8 else [found]
            )
        with pytest.raises(InvalidInput, match="has no offset 99"):
            mine.seek(queue, 99)
        assert mine.committed(queue) == {queue: None}
        assert mine.commit({queue: 5}) == {queue: 5}
    assert offset(here, queue) == 5


def test_pausing(here: Platform, queue: MessageQueue) -> None:
    with consumer(here, queue, topics=queue.topic, pull_wait=0.1) as mine:
        mine.pause(queue)
        assert mine.poll(timeout=0.1) == []
        mine.resume(queue.topic)
        assert len(take(mine, 8)) == 8


def test_closing_elsewhere_ends_a_poll(here: Platform, queue: MessageQueue) -> None:
    found: list[list[ReceivedMessage]] = []
    with consumer(here, queue, topics=queue.topic) as mine:
        take(mine, 8)
        waiting = threading.Thread(target=lambda: found.append(mine.poll(timeout=None)))
        waiting.start()
        while not mine._inner._running.buffer.is_waited_for:
            pass
        mine.close()
        waiting.join(LIMIT)
    assert found == [[]]
    with pytest.raises(ClosedError, match="was closed"):
        mine.poll()


def test_use_before_the_start_and_after_the_end(here: Platform, queue: MessageQueue) -> None:
    mine = consumer(here, queue)
    for use in (mine.poll, mine.commit, mine.positions, mine.committed, mine.pause):
        with pytest.raises(StateError, match="has not been started"):
            use()
    with mine, pytest.raises(StateError, match="cannot be started"):
        mine.start()
    mine.close()
    assert mine.state is ServiceState.SHUTDOWN
    for use in (mine.poll, mine.commit, mine.positions, mine.committed, mine.pause, mine.start):
        with pytest.raises(ClosedError, match="was closed"):
            use()
    for change in (lambda: mine.subscribe("more"), lambda: mine.assign([queue])):
        with pytest.raises(ClosedError, match="was closed"):
            change()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_is_told(here: Platform, queue: MessageQueue) -> None:
    program = f"""
import os, gantrymq, gantrymq.errors
url, topic = {here.url!r}, {queue.topic!r}
with gantrymq.PullConsumer(url, group=topic, start="earliest", topics=topic) as mine:
    child = os.fork()
    if child == 0:
        for use in (mine.poll, mine.commit, mine.positions, mine.start):
            try:
                use()
            except gantrymq.errors.ClosedError as error:
                assert "forked" in str(error), error
            else:
                os._exit(1)
        mine.close()
        with gantrymq.PullConsumer(url, group=topic, start="earliest", topics=topic) as own:
            own.queues_of(topic)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    print(len(mine.poll()))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=6 * LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 1 <= int(done.stdout) <= 8


def test_ctrl_c_ends_a_poll(here: Platform, queue: MessageQueue) -> None:
    program = f"""
import gantrymq
url, topic = {here.url!r}, {queue.topic!r}
mine = gantrymq.PullConsumer(url, group=topic, start="earliest", topics=topic)
try:
    with mine:
        while True:
            for message in mine.poll(timeout=None):
                print(message.body.decode(), flush=True)
except KeyboardInterrupt:
    print("interrupted", mine.state, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        got = [running.stdout.readline().strip() for _ in range(8)]
        running.send_signal(signal.SIGINT)
        rest, _ = running.communicate(timeout=3 * LIMIT)
    assert got == [str(number) for number in range(8)]
    assert rest.split() == ["interrupted", "shutdown"]
    assert running.returncode == 0
