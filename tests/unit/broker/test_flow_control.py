"""When messages are refused because others have to wait already."""

import pytest

from gantrymq.broker.config import FlowConfig
from gantrymq.broker.flow_control import INTERVAL, FlowControl


class Progress:
    waiting = 0
    flushed_to = 0


class Watched:
    """Flow control on a clock that tests move."""

    def __init__(self, **settings) -> None:
        self.store = Progress()
        self.flow = FlowControl(FlowConfig(**settings), store=self.store)
        self.now = 100.0
        self.flow.look(self.now)

    def look(self, *, late: float = 0.0) -> str | None:
        """What is said at the next look, which comes that late."""
        self.now += INTERVAL + late
        self.flow.look(self.now)
        return self.flow.refusal


def test_a_loop_in_time_takes_messages():
    watched = Watched()
    assert [watched.look(late=late) for late in (0.0, 0.1, 0.19, 0.0)] == [None] * 4


def test_a_loop_that_is_late_again_and_again_refuses_until_it_is_not():
    watched = Watched()
    assert [watched.look(late=0.5) for _ in range(2)] == [None, None]  # a hiccup
    assert watched.look(late=0.31) == "requests wait for 310ms, 200 are the most"
    assert watched.look(late=0.4) == "requests wait for 400ms, 200 are the most"
    assert watched.look() is None
    assert watched.look(late=0.5) is None


def test_too_many_that_wait_for_the_disk_are_too_many():
    watched = Watched(waiting_sends=10)
    watched.store.waiting = 10
    assert watched.look() is None
    watched.store.waiting = 11
    assert watched.look() == "11 messages wait for the disk, 10 are the most"


def test_a_disk_that_finishes_nothing_is_stuck():
    watched = Watched(disk_lag=1.0)
    watched.store.waiting = 3
    said = [watched.look() for _ in range(20)]
    assert said == [None] * 20
    assert watched.look(late=0.1) == (
        "the disk has finished nothing for 1.1s, 3 messages wait for it"
    )
    watched.store.flushed_to = 4096
    assert watched.look() is None


def test_a_disk_that_nobody_waits_for_is_never_stuck():
    watched = Watched(disk_lag=1.0)
    assert [watched.look() for _ in range(60)] == [None] * 60


def test_it_can_be_switched_off():
    watched = Watched(enabled=False, waiting_sends=1)
    watched.store.waiting = 100
    assert [watched.look(late=3.0) for _ in range(4)] == [None] * 4


@pytest.mark.parametrize("waiting", [0, 1])
def test_settings_can_be_changed_meanwhile(waiting):
    watched = Watched()
    watched.flow.settings = FlowConfig(loop_lag=1.0, disk_lag=60.0)
    watched.store.waiting = waiting
    assert [watched.look(late=0.5) for _ in range(4)] == [None] * 4
