"""The one thread behind the blocking faces: a loop for what is driven by events.

Heartbeats, fresh routes and what brokers ask need something that runs while the program does not
call. All blocking clients of a process share this thread. It begins with the first of them and ends
with the last.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from gantrymq.client.config import ClientConfig
from gantrymq.client.identity import Origin
from gantrymq.client.inside import inside_of
from gantrymq.errors import ClosedError, StateError
from gantrymq.net.aio import loop_factory

T = TypeVar("T")

_NAME: Final = "gantrymq"
_HEARS_AFTER: Final = 0.2


class LoopThread:
    """A loop on a thread of its own."""

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        self._origin = Origin()
        self._users = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
        self.loop: asyncio.AbstractEventLoop = (make_loop or loop_factory())()
        self._thread.start()
        self._ready.wait()

    @property
    def is_here(self) -> bool:
        """Whether it is a thread of this process, and not of the one that we were forked from."""
        return self._origin.is_here

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """What `work` returns, run there while this thread waits."""
        if threading.current_thread() is self._thread:
            work.close()
            raise StateError(
                "a blocking call was made on the thread that runs the client itself, from a hook"
                " say: it would wait for itself for ever"
            )
        future = self.submit(work)
        try:
            return _result(future, timeout)
        except concurrent.futures.CancelledError as gone:
            raise ClosedError("the client was closed while it was waited for") from gone
        except BaseException:
            future.cancel()
            raise

    def do(self, work: Callable[..., T], *args: Any) -> T:
        """What a plain function returns, called there."""

        async def there() -> T:
            return work(*args)

        return self.call(there())

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Have `work` done there."""
        if not self.is_here:
            work.close()
            self._origin.check("this client")
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError as closed:
            work.close()
            raise ClosedError("this client was closed") from closed

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._ready.set)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_wind_up(self.loop))
            self.loop.close()

    def stop(self) -> None:
        """End it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def _result(future: concurrent.futures.Future[T], timeout: float | None) -> T:
    """The result; on Windows a wait without end would not hear Ctrl-C."""
    if timeout is None and os.name == "nt":
        while not concurrent.futures.wait((future,), _HEARS_AFTER).done:
            continue
    return future.result(timeout)


async def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


_lock: Final = threading.Lock()
_current: list[LoopThread] = []


def thread_of(config: ClientConfig) -> LoopThread:
    """The thread of the platform in this process that such a client is meant for."""
    inside = inside_of(config)
    if inside is None or inside.thread is None:
        raise StateError(
            f"{config!r} runs on the loop of its clients: use those that are awaited, such as"
            f" AsyncProducer, where it was started by an `async def`"
        )
    return inside.thread


def borrow(config: ClientConfig) -> LoopThread:
    """The thread for such a client, begun if need be; to be given back."""
    with _lock:
        if inside_of(config) is not None:
            thread = thread_of(config)
            thread._users += 1
            return thread
        if _current and not _current[0].is_here:
            _current.clear()  # of the process that we were forked from
        if not _current:
            _current.append(LoopThread())
        _current[0]._users += 1
        return _current[0]


def give_back(thread: LoopThread) -> None:
    """One user fewer; the last one ends it."""
    with _lock:
        thread._users -= 1
        if thread._users > 0 or not thread.is_here:
            return
        if thread not in _current:
            return  # of a platform, which ends it
        _current.remove(thread)
    thread.stop()
