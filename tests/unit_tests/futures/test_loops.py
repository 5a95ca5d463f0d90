"""Crossing between event loops: cancellation first, then errors, then values."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from langgraph_flash.futures.loops import begin_elsewhere, run_elsewhere

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


@pytest.fixture
def home() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def wait(made: Callable[[], Coroutine[Any, Any, Any]], log: list[str]) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def run() -> Any:
        log.append("begun")
        try:
            return await made()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            log.append("cleaned up")
            raise

    return run


async def begun_elsewhere(home: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    outcome, _ = begin_elsewhere(home, make)
    return await outcome


async def begun(log: list[str]) -> None:
    while not log:
        await asyncio.sleep(0.001)


async def test_cancelling_the_caller_waits_for_the_clean_up_on_the_other_loop(home: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    task = asyncio.create_task(run_elsewhere(home, wait(lambda: asyncio.sleep(1000), log)))
    await begun(log)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["begun", "cleaned up"]


async def test_cancelling_before_the_first_step_runs_nothing(home: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    task = asyncio.create_task(run_elsewhere(home, wait(lambda: asyncio.sleep(1000), log)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == []


async def test_what_is_returned_in_spite_of_being_cancelled_is_kept(home: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []

    async def finishes() -> str:
        log.append("begun")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "committed"
        return "never"

    task = asyncio.create_task(run_elsewhere(home, finishes))
    await begun(log)
    task.cancel()
    assert await task == "committed"


async def test_an_error_during_the_clean_up_is_raised(home: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []

    async def breaks() -> None:
        log.append("begun")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise ValueError("in the clean-up") from None

    task = asyncio.create_task(run_elsewhere(home, breaks))
    await begun(log)
    task.cancel()
    with pytest.raises(ValueError, match="in the clean-up"):
        await task


async def test_what_is_told_to_stop_settles_when_it_has_ended(home: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    outcome, stop = begin_elsewhere(home, wait(lambda: asyncio.sleep(1000), log))
    await begun(log)
    stop()
    with pytest.raises(asyncio.CancelledError):
        await outcome
    assert log == ["begun", "cleaned up"]


async def test_what_is_stopped_before_it_crossed_never_starts(home: asyncio.AbstractEventLoop) -> None:
    log: list[str] = []
    released, passed = threading.Event(), threading.Event()
    home.call_soon_threadsafe(released.wait)
    outcome, stop = begin_elsewhere(home, wait(lambda: asyncio.sleep(0), log))
    stop()
    home.call_soon_threadsafe(passed.set)
    released.set()
    assert await asyncio.to_thread(passed.wait, 10)
    with pytest.raises(asyncio.CancelledError):
        await outcome
    assert log == []


@pytest.mark.parametrize("cross", [begun_elsewhere, run_elsewhere])
async def test_a_coroutine_that_cancels_itself_is_cancelled(home: asyncio.AbstractEventLoop, cross: Any) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await cross(home, gives_up)


@pytest.mark.parametrize("cross", [begun_elsewhere, run_elsewhere])
async def test_errors_and_values_come_across(home: asyncio.AbstractEventLoop, cross: Any) -> None:
    async def fails() -> None:
        raise LookupError("over there")

    async def where() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    with pytest.raises(LookupError, match="over there"):
        await cross(home, fails)
    assert await cross(home, where) is home


@pytest.mark.parametrize("cross", [begun_elsewhere, run_elsewhere])
async def test_the_coroutine_sees_the_callers_context(home: asyncio.AbstractEventLoop, cross: Any) -> None:
    NAME.set("the caller")

    async def who() -> str:
        return NAME.get()

    assert await cross(home, who) == "the caller"


@pytest.mark.parametrize("cross", [begun_elsewhere, run_elsewhere])
async def test_a_closed_loop_is_an_error_at_once(cross: Any) -> None:
    closed = asyncio.new_event_loop()
    closed.close()

    async def nothing() -> None:
        return None

    with pytest.raises(RuntimeError, match="closed"):
        await cross(closed, nothing)
