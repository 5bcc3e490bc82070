"""How shots are sent (`gantrymq.flows.shots`): on the engine's loop, or on a caller's own thread.

On the loop a shot that nobody waits for is a future and no task: the connection tells its `Sending`
of the answer while it reads, and that makes the receipt of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from gantrymq.client.engine import Engine
from gantrymq.client.messages import How
from gantrymq.client.producing import Channel
from gantrymq.errors import GoingAway, ReplyError
from gantrymq.flows.shots import Shot, make_shot
from gantrymq.model import Message, SendReceipt, SendStatus
from gantrymq.net.lending import BlockingRuntime
from gantrymq.net.options import PeerOptions
from gantrymq.net.peer import Peer
from gantrymq.protocol.sending import SendReply
from gantrymq.rules.retry import Mode
from gantrymq.runtime import run_blocking
from gantrymq.wire.command import Command, HeaderType


def written_plainly(options: PeerOptions) -> bool:
    """Whether requests go out as a form has them: as JSON, and unsigned."""
    mirrored = options.mirror_header_type
    return options.header_type is HeaderType.JSON and options.credentials is None and not mirrored


def send_blocking(runtime: BlockingRuntime, shot: Shot) -> SendReceipt:
    """Send it on this thread."""
    receipt: SendReceipt | None = None
    failure: BaseException | None = None
    if shot.address is None or shot.form is None:
        return run_blocking(shot.fire(runtime))
    try:
        reply = runtime.post(shot.address, shot.form, shot.body, shot.target.left)
        receipt = shot.receipt(reply, runtime.now())
        if receipt.status is SendStatus.OK:
            return receipt
    except GoingAway:
        runtime.pool.drop(shot.address)
        return run_blocking(shot.fire(runtime))
    except BaseException as error:
        failure = error
    return run_blocking(shot.go_on(runtime, receipt, failure))


class Express:
    """Sends the shots of one producer over its engine's connections."""

    def __init__(self, channel: Channel, engine: Engine) -> None:
        options = engine.config.peer_options
        self.runtime: Final = engine.runtime
        self.loop: Final = engine.loop
        self._sender: Final = channel.sender
        self._pool: Final = engine.pool
        self._now: Final = engine.runtime.now
        self._usable: Final = written_plainly(options)

    def prepare(self, message: Message, how: How, timeout: float, mode: Mode) -> Shot | None:
        """The message as a shot, if it can be one."""
        if not self._usable:
            return None
        extra, kind, choice = how.extra, how.kind, how.choice
        now = self._now()
        return make_shot(
            self._sender, message, extra, kind, choice, now=now, timeout=timeout, mode=mode
        )

    async def send(self, shot: Shot) -> SendReceipt:
        """Send it, and wait for where it was stored."""
        answer: asyncio.Future[Command] = self.loop.create_future()
        peer, number = self._call(shot, answer)
        if peer is None:
            return await shot.fire(self.runtime)
        receipt: SendReceipt | None = None
        failure: BaseException | None = None
        try:
            receipt = self.receipt(shot, peer, await answer)
            if receipt.status is SendStatus.OK:
                return receipt
        except GoingAway:
            self._pool.retire(peer)
            return await shot.fire(self.runtime)
        except BaseException as error:
            peer.forget(number)  # if it is this task that was cancelled
            failure = error
        return await shot.go_on(self.runtime, receipt, failure)

    def begin(self, shot: Shot) -> Sending | None:
        """Send it, and have a future of where it was stored; None if that is not to be had now."""
        begun = Sending(self, shot)
        begun.peer, begun.number = self._call(shot, begun)
        return None if begun.peer is None else begun

    def fire(self, shot: Shot) -> asyncio.Future[SendReceipt]:
        """Send it the long way."""
        return self.loop.create_task(shot.fire(self.runtime), name="gantrymq send")

    def receipt(self, shot: Shot, peer: Peer | None, answer: Command) -> SendReceipt:
        """What an answer says."""
        try:
            return shot.receipt(SendReply.from_command(answer), self._now())
        except ReplyError as refusal:
            refusal.peer = str(peer)
            raise

    async def afresh(self, shot: Shot, peer: Peer | None) -> SendReceipt:
        """Once more, over a new connection: the server at that one is going away."""
        if peer is not None:
            self._pool.retire(peer)
        return await shot.fire(self.runtime)

    def _call(
        self, shot: Shot, waiter: asyncio.Future[Command] | Sending
    ) -> tuple[Peer | None, int]:
        form, address = shot.form, shot.address
        if form is None or address is None:
            return None, 0
        peer = self._pool.ready(address)
        if peer is None:
            return None, 0
        number = peer.begin(form, shot.body, waiter, shot.target.begun, shot.deadline)
        return (None, 0) if number is None else (peer, number)


class Sending:
    """A send that nobody has to wait for: it is told of the answer, and makes a receipt of it."""

    __slots__ = ("_express", "_shot", "_task", "future", "number", "peer")

    def __init__(self, express: Express, shot: Shot) -> None:
        self.future: asyncio.Future[SendReceipt] = express.loop.create_future()
        self.peer: Peer | None = None
        self.number = 0
        self._express = express
        self._shot = shot
        self._task: asyncio.Task[SendReceipt] | None = None

    def done(self) -> bool:
        """Whether nobody wants to know any more."""
        return self.future.done()

    def set_result(self, answer: Command) -> None:
        """The broker's answer."""
        express, shot = self._express, self._shot
        try:
            receipt = express.receipt(shot, self.peer, answer)
        except GoingAway:
            self._follow_up(express.afresh(shot, self.peer))
        except Exception as error:
            self.set_exception(error)
        else:
            if receipt.status is SendStatus.OK:
                self.future.set_result(receipt)
            else:
                self._follow_up(shot.go_on(express.runtime, receipt, None))

    def set_exception(self, error: BaseException) -> None:
        """There is no answer."""
        self._follow_up(self._shot.go_on(self._express.runtime, None, error))

    def forget(self) -> None:
        """Nobody wants to know any more."""
        if self.peer is not None:
            self.peer.forget(self.number)
        if self._task is not None:
            self._task.cancel()

    def _follow_up(self, work: Coroutine[Any, Any, SendReceipt]) -> None:
        self._task = self._express.loop.create_task(work, name="gantrymq send")
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[SendReceipt]) -> None:
        future = self.future
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            if not future.done():
                future.set_exception(error)
        elif not future.done():
            future.set_result(task.result())
