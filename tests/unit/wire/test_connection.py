"""Frames: incremental, bounded, and right at every edge."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.connection import Connection


def frame(command: Command, header_type: HeaderType = HeaderType.JSON) -> bytes:
    return b"".join(Connection(header_type=header_type).encode(command))


def command(opaque: int = 1, size: int = 0) -> Command:
    return Command(310, opaque=opaque, fields={"a": "group", "b": "topic"}, body=b"x" * size)


def test_a_small_body_arrives_as_bytes() -> None:
    (received,) = Connection().feed(frame(command(size=1000)))
    assert type(received.body) is bytes
    assert received == command(size=1000)


@pytest.mark.parametrize("size", [65_000, 65_536, 70_000, 1_048_576, 5_000_000])
@pytest.mark.parametrize("step", [1_000_000, 65_536, 4_097])
def test_a_large_body_arrives_whole_and_the_next_frame_after_it(size: int, step: int) -> None:
    stream = frame(command(1, size)) + frame(command(2))
    connection = Connection()
    received = []
    for at in range(0, len(stream), step):
        received += connection.feed(stream[at : at + step])
    assert [(c.opaque, len(c.body)) for c in received] == [(1, size), (2, 0)]
    assert bytes(received[0].body) == b"x" * size
    assert not connection.mid_frame


def test_a_large_body_is_a_view_of_memory_that_is_not_used_again() -> None:
    connection = Connection()
    (first,) = connection.feed(frame(command(1, 2_000_000)))
    list(connection.feed(frame(Command(1, body=b"y" * 2_000_000))))
    assert isinstance(first.body, memoryview)
    assert bytes(first.body) == b"x" * 2_000_000


def test_many_frames_in_one_piece_and_one_byte_at_a_time() -> None:
    stream = b"".join(frame(command(n, n % 300)) for n in range(500))
    whole = list(Connection().feed(stream))
    connection = Connection()
    bytewise = [c for byte in stream for c in connection.feed(bytes([byte]))]
    assert [c.opaque for c in whole] == list(range(500))
    assert whole == bytewise


def test_mid_frame_says_whether_a_frame_has_begun() -> None:
    connection, data = Connection(), frame(command())
    assert not connection.mid_frame
    list(connection.feed(data[:3]))
    assert connection.mid_frame
    assert connection.buffered == 3
    list(connection.feed(data[3:]))
    assert not connection.mid_frame


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        (struct.pack(">iI", 16 * 1024 * 1024 - 3, 10), "16777213 bytes follow"),
        (struct.pack(">iI", -5, 10), "-5 bytes follow"),
        (struct.pack(">iI", 3, 0), "3 bytes follow"),
        (struct.pack(">iI", 10, 7), "its header is 7 bytes long"),
        (struct.pack(">iI", 100, 2 << 24 | 10), "type 2, neither JSON"),
    ],
)
def test_impossible_lengths_are_refused_before_memory_is_taken(prefix: bytes, says: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=says):
            list(Connection().feed(prefix))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_announcing_much_and_sending_little_takes_little_memory() -> None:
    connection = Connection()
    tracemalloc.start()
    try:
        list(connection.feed(struct.pack(">iI", 16 * 1024 * 1024 - 4, 100) + b" " * 1000))
        assert tracemalloc.get_traced_memory()[1] < 2_500_000
    finally:
        tracemalloc.stop()


def test_what_came_before_a_bad_frame_is_given_first() -> None:
    given = Connection().feed(frame(command(7)) + b"\xff" * 8)
    assert next(given).opaque == 7
    with pytest.raises(RemoteProtocolError, match="-1 bytes follow"):
        next(given)


def test_the_limit_is_the_callers() -> None:
    with pytest.raises(RemoteProtocolError, match="most 96"):
        list(Connection(limit=100).feed(frame(command(size=200))))
    with pytest.raises(LocalProtocolError, match="the limit is 100"):
        Connection(limit=100).encode(command(size=200))


def test_mirror_answers_in_the_type_that_the_peer_writes() -> None:
    mirror, fixed = Connection(mirror=True), Connection()
    for connection in (mirror, fixed):
        list(connection.feed(frame(command(), HeaderType.BINARY)))
    assert mirror.header_type is HeaderType.BINARY
    assert fixed.header_type is HeaderType.JSON
    list(mirror.feed(frame(command())))
    assert mirror.header_type is HeaderType.JSON


def test_the_buffer_of_a_quiet_connection_is_small() -> None:
    assert len(Connection().get_buffer()) <= 8192


def test_room_is_never_empty_while_frames_of_all_sizes_pass() -> None:
    connection = Connection()
    for size in range(0, 200_000, 7_919):
        data = frame(command(size=size))
        at = 0
        while at < len(data):
            room = connection.get_buffer()
            assert len(room) > 0
            count = min(len(room), len(data) - at, 10_007)
            room[:count] = data[at : at + count]
            at += count
            received = list(connection.received(count))
        assert [len(c.body) for c in received] == [size]


@pytest.mark.parametrize("body", [b"", b"first "], ids=["no body", "body"])
def test_buffers_of_a_body_go_out_as_they_are(body: bytes) -> None:
    log = bytearray(b"..second third..")
    more = [memoryview(log)[2:9], memoryview(log)[9:14]]
    scattered = Command(0, body=body, more=more)
    buffers = Connection().encode(scattered)
    assert all(sent is given for sent, given in zip(buffers[-2:], more, strict=True))
    (read,) = Connection().feed(b"".join(buffers))
    assert (read.body, read.more) == (body + b"second third", ())
    assert scattered.body_size == len(read.body) == read.body_size


def test_the_limit_counts_every_buffer() -> None:
    with pytest.raises(LocalProtocolError, match=r"\+240 B.*the limit is 250"):
        Connection(limit=250).encode(Command(0, more=[bytes(80)] * 3))
