"""Awaiting a coroutine on another event loop, so that being cancelled here means having ended there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["begin_elsewhere", "run_elsewhere"]

T = TypeVar("T")


async def run_elsewhere(home: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on `home`, in the current context, and wait for it here.

    When the caller is cancelled the coroutine is cancelled on its own loop, and waited for: its clean-up has run by
    the time this raises, and what it returns in spite of being cancelled is returned.

    Raises:
        RuntimeError: `home` is closed.
    """
    outcome, stop = begin_elsewhere(home, make)
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        if outcome.done():
            raise
        stop()
        await asyncio.wait({outcome})
        return await outcome


def begin_elsewhere(
    home: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]
) -> tuple[asyncio.Future[T], Callable[[], None]]:
    """Start a coroutine on `home`; returns a future on this loop for its outcome, and what asks it to stop.

    The future settles when the coroutine has ended. No thread blocks for it, so it costs two thirds of
    `wrap_future(run_coroutine_threadsafe(make(), home))`, which moreover lets go at once when it is cancelled.

    Raises:
        RuntimeError: `home` is closed.
    """
    here = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = here.create_future()
    tasks: list[asyncio.Task[T]] = []
    stopped: list[bool] = []

    def start() -> None:
        if stopped or outcome.cancelled():
            report(None)
            return
        task = home.create_task(make())
        tasks.append(task)
        task.add_done_callback(report)

    def report(task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # seen, even if the loop that waited for it is gone
        if not here.is_closed():
            here.call_soon_threadsafe(settle, task)

    def settle(task: asyncio.Task[T] | None) -> None:
        if outcome.done():
            return
        if task is None or task.cancelled():
            outcome.cancel()
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def cancel_there() -> None:
        for task in tasks:
            task.cancel()

    def stop() -> None:
        stopped.append(True)
        if not home.is_closed():
            home.call_soon_threadsafe(cancel_there)

    home.call_soon_threadsafe(start)
    return outcome, stop
