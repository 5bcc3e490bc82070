import asyncio
from contextlib import suppress

import pytest

from gantrymq.errors import ConnectionLost
from gantrymq.net.rooms import Room
from tests.support import run_on


def test_those_who_wait_are_let_in_in_their_order() -> None:
    async def main() -> list[int]:
        inside: set[int] = set()
        room = Room(asyncio.get_running_loop(), 2, inside)
        order: list[int] = []

        async def guest(number: int) -> None:
            if room.full:
                await room.wait()
            inside.add(number)
            order.append(number)

        guests = [asyncio.ensure_future(guest(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert inside == {0, 1}
        for gone in range(3):
            inside.discard(gone)
            room.admit()
            assert room.full, "a freed place is promised before anyone new can take it"
            await asyncio.sleep(0)
        await asyncio.gather(*guests)
        assert not room.waiting
        return order

    assert run_on("asyncio", main()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("promised", [False, True])
def test_a_cancelled_guest_passes_his_place_on(promised: bool) -> None:
    async def main() -> None:
        inside = {"somebody"}
        room = Room(asyncio.get_running_loop(), 1, inside)
        first = asyncio.ensure_future(room.wait())
        second = asyncio.ensure_future(room.wait())
        await asyncio.sleep(0)
        if promised:
            inside.clear()
            room.admit()
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        if not promised:
            inside.clear()
            room.admit()
        await second
        assert not room.full

    run_on("asyncio", main())


def test_a_closed_room_sends_everybody_away() -> None:
    async def main() -> None:
        room = Room(asyncio.get_running_loop(), 0, ())
        waiting = [asyncio.ensure_future(room.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        room.close(lambda: ConnectionLost("gone"))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            asyncio.CancelledError,
            ConnectionLost,
            ConnectionLost,
        ]

    run_on("asyncio", main())
