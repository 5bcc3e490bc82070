"""Room for messages that are under way: limits, order, and those who wait let in together."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gantrymq.client import buffering
from gantrymq.client.buffering import Room
from gantrymq.errors import BufferFull

LONG = 30.0


def full(messages: int = 16) -> Room:
    room = Room(messages, 1_000_000)
    for _ in range(messages):
        assert room.take(1)
    return room


def test_room_is_so_many_messages_and_so_many_bytes() -> None:
    room = Room(3, 100)
    assert room.take(60)
    assert not room.take(41)
    assert room.take(40)
    with pytest.raises(BufferFull, match="2 messages of 100 bytes are under way"):
        room.take_or_refuse(1)
    room.give_back(100, 2)
    assert room.take(1000)  # alone
    assert not room.take(1)


def test_who_waits_is_let_in_when_an_eighth_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffering, "_HELD_SECONDS", LONG)

    async def main() -> None:
        room = full()
        waits = asyncio.create_task(room.wait(1, LONG))
        await asyncio.sleep(0)
        room.give_back(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waits.done()
        assert not room.take(1)  # nobody overtakes
        room.give_back(1)
        await waits
        assert len(room) == 15
        assert room.take(1)

    asyncio.run(main())


def test_nobody_is_held_for_long_although_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffering, "_HELD_SECONDS", 0.0)

    async def main() -> None:
        room = full()
        first, second = (asyncio.create_task(room.wait(1, LONG)) for _ in range(2))
        await asyncio.sleep(0)
        room.give_back(1)
        await first
        assert not second.done()
        room.give_back(1)
        await second
        assert len(room) == 16

    asyncio.run(main())


def test_the_last_answer_lets_in_whoever_waits() -> None:
    async def main() -> None:
        room = full(2)
        waits = [asyncio.create_task(room.wait(1, LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        room.give_back(2, 2)
        await asyncio.gather(*waits)
        assert len(room) == 2

    asyncio.run(main())


def test_room_that_is_there_when_the_time_is_over_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffering, "_HELD_SECONDS", LONG)

    async def main() -> None:
        room = full()
        waits = asyncio.create_task(room.wait(1, 0.05))
        await asyncio.sleep(0)
        room.give_back(1)
        await waits
        assert len(room) == 16
        with pytest.raises(BufferFull, match=r"after 0.0s: 16 messages"):
            await room.wait(1, 0.01)
        assert len(room) == 16

    asyncio.run(main())


def test_who_is_cancelled_leaves_his_place() -> None:
    async def main() -> None:
        room = full()
        waits = asyncio.create_task(room.wait(1, LONG))
        await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        room.give_back(1)
        assert room.take(1)

    asyncio.run(main())


def test_threads_wait_as_well() -> None:
    room = full()
    there = threading.Thread(target=room.block, args=(1, LONG))
    there.start()
    room.give_back(2, 2)
    there.join(LONG)
    assert not there.is_alive()
    with pytest.raises(BufferFull):
        full().block(1, 0.01)
