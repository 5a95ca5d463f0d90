"""Awaiting a coroutine on another event loop, so that being cancelled here means having ended there."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["run_elsewhere"]

T = TypeVar("T")


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
