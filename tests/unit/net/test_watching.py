import pytest

from gantrymq.net.endings import Ending
from gantrymq.net.options import PeerOptions
from gantrymq.net.watching import Watch

OPTIONS = PeerOptions(idle_timeout=120, frame_timeout=30, first_frame_timeout=20)


@pytest.fixture
def watch() -> Watch:
    return Watch(OPTIONS, 100.0, accepted=True)


def test_a_new_connection_owes_a_first_frame(watch: Watch) -> None:
    assert watch.next_due(100.0) == (120.0, Ending.SILENT)
    watch.read(101.0, False, True)
    assert watch.next_due(100.0) == (120.0, Ending.SILENT)


def test_one_that_we_made_does_not() -> None:
    assert Watch(OPTIONS, 100.0, accepted=False).next_due(100.0) == (220.0, Ending.IDLE)


def test_a_read_or_a_write_keeps_it_from_being_idle(watch: Watch) -> None:
    watch.read(110.0, True, False)
    assert watch.next_due(100.0) == (230.0, Ending.IDLE)
    assert watch.next_due(115.0) == (235.0, Ending.IDLE)


def test_bytes_that_trickle_in_do_not_prolong_a_frame(watch: Watch) -> None:
    watch.read(110.0, True, False)
    for second in range(111, 139):
        assert watch.read(second, False, True) == 111
    assert watch.next_due(100.0) == (141.0, Ending.SLOW_FRAME)


def test_a_stream_of_frames_is_never_slow(watch: Watch) -> None:
    for second in range(110, 300, 10):
        watch.read(second, True, True)
        assert watch.next_due(100.0) == (second + 30, Ending.SLOW_FRAME)
    watch.read(300.0, True, False)
    assert watch.next_due(100.0) == (420.0, Ending.IDLE)
