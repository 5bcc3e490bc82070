"""What becomes of requests under way."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

from gantrymq.net.answering import Refusals
from gantrymq.net.serving import Serving
from gantrymq.wire.command import Command
from tests.support import PARROT, Echo, Parrot


def test_work_that_has_not_begun_ends_without_a_word() -> None:
    """A connection may end in the same turn of the loop in which a request came."""

    async def main() -> None:
        sent: list[Command] = []
        link: Any = SimpleNamespace(ending="cut", version=0, language=0)
        serving = Serving(
            link,
            PARROT,
            Parrot(),
            limit=4,
            refusals=Refusals(),
            send=sent.append,
            room=lambda: None,
        )
        serving.take(Echo(how="crash later").command())
        assert len(serving) == 1
        serving.cancel()
        await serving.drained()
        gc.collect()
        assert not len(serving)
        assert not sent

    asyncio.run(main())
