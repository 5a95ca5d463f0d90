"""Awaiting a coroutine on another event loop, so that being cancelled here means having ended there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["elsewhere", "run_elsewhere"]

T = TypeVar("T")


def elsewhere(home: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
    """A future on this loop for a coroutine that runs on `home`; cancelling it cancels that, and lets go at once.

    What `wrap_future(run_coroutine_threadsafe(make(), home))` gives, at two thirds of its cost: no thread blocks, so
    the future in between, with its lock and its callbacks, is left out.

    Raises:
        RuntimeError: `home` is closed.
    """
    here = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = here.create_future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        if not outcome.cancelled():
            task = home.create_task(make())
            tasks.append(task)
            task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # seen, even if the loop that waited for it is gone
        if not here.is_closed():
            here.call_soon_threadsafe(settle, task)

    def settle(task: asyncio.Task[T]) -> None:
        if outcome.done():
            return
        if task.cancelled():
            outcome.cancel()
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def stop() -> None:
        for task in tasks:
            task.cancel()

    def let_go(outcome: asyncio.Future[T]) -> None:
        if outcome.cancelled() and not home.is_closed():
            home.call_soon_threadsafe(stop)

    home.call_soon_threadsafe(start)
    outcome.add_done_callback(let_go)
    return outcome


async def run_elsewhere(home: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on `home`, in the current context, and wait for it here.

    When the caller is cancelled the coroutine is cancelled on its own loop, and waited for: its clean-up has run by
    the time this raises, and what it returns in spite of being cancelled is returned. (`asyncio.wrap_future` would let
    go at once.)

    Raises:
        RuntimeError: `home` is closed.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    context = contextvars.copy_context()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        task = home.create_task(make(), context=context)
        tasks.append(task)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            outcome.cancel()
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def stop() -> None:
        for task in tasks:
            task.cancel()

    home.call_soon_threadsafe(start)
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if waiting.done():
            raise
        home.call_soon_threadsafe(stop)
        await asyncio.wait({waiting})
        if waiting.cancelled():
            raise
        return waiting.result()
