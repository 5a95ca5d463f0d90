"""Limits on a call: what is no limit, what silence and progress do, and tools that do not stop."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from langgraph_flash.errors import ConfigurationError, FutureFailed, ToolTimeout
from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.resources import PURE, Access
from langgraph_flash.futures.scope import CANCEL_SECONDS, Scope
from langgraph_flash.futures.threads import DaemonThreads
from langgraph_flash.futures.timeouts import Timeout, heartbeat
from langgraph_flash.testing import run_virtual

X = Access(writes=(("x",),))


def virtually(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test on a virtual clock."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


def scope(**options: Any) -> Scope:
    return Scope("s", loop=asyncio.get_running_loop(), **options)


def future(name: str, work: Callable[[dict[str, Any]], Awaitable[Any]], **options: Any) -> Future:
    return Future(name, "tool", work=work, **{"access": PURE, **options})


def sleeps(seconds: float, value: Any = "value") -> Callable[[dict[str, Any]], Awaitable[Any]]:
    async def work(arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(seconds)
        return value

    return work


# Timeout -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, 0.0, -0.0, -0.1, math.nan, -math.inf, True, False, "5", [], {}, b"1", 1j])
def test_no_positive_number_no_timeout(bad: Any) -> None:
    for make in (lambda: Timeout(bad), lambda: Timeout(idle=bad), lambda: Timeout(5, idle=bad)):
        with pytest.raises(ConfigurationError, match="not a positive number of seconds"):
            make()
    with pytest.raises(ConfigurationError):
        Timeout.coerce(bad)


@pytest.mark.parametrize("bad", [timedelta(0), timedelta(seconds=-1)])
def test_no_positive_timedelta_no_timeout(bad: timedelta) -> None:
    with pytest.raises(ConfigurationError):
        Timeout.coerce(bad)


def test_every_way_to_write_a_timeout_gives_a_timeout() -> None:
    both = Timeout(5, idle=2)
    assert Timeout.coerce(both) is both
    assert Timeout.coerce(5) == Timeout(5) == Timeout(5.0)
    assert Timeout.coerce(timedelta(minutes=1, milliseconds=500)) == Timeout(60.5)
    assert Timeout.coerce(None) == Timeout()
    assert [repr(t) for t in (both, Timeout(0.5), Timeout(idle=2), Timeout())] == [
        "Timeout(5, idle=2)",
        "Timeout(0.5)",
        "Timeout(idle=2)",
        "Timeout()",
    ]


def test_a_heartbeat_outside_a_call_does_nothing() -> None:
    heartbeat()


# Limits ------------------------------------------------------------------------------------------------------


@virtually
async def test_a_call_that_takes_too_long_is_stopped_and_says_how_long_it_had() -> None:
    place = scope()
    call = future("a", sleeps(100), timeout=Timeout(5))
    place.submit([call])
    assert await place.wait([call])
    assert now() == 5
    assert call.state is State.FAILED
    assert call.reason == "timed out: still running after 5 s"
    with pytest.raises(ToolTimeout, match="still running after 5 s") as caught:
        call.result()
    assert caught.value.future_id == "a"
    assert isinstance(caught.value, (TimeoutError, FutureFailed))
    assert not place._runs


@virtually
async def test_waiting_for_its_turn_does_not_count() -> None:
    place = scope()
    first, second = future("a", sleeps(50), access=X), future("b", sleeps(4), access=X, timeout=Timeout(5, idle=5))
    place.submit([first, second])
    assert await place.wait([second])
    assert second.result() == "value"
    assert now() == 54


@virtually
async def test_silence_ends_a_call_and_heartbeats_put_it_off() -> None:
    place = scope()

    async def beats(arguments: dict[str, Any]) -> str:
        for _ in range(5):
            await asyncio.sleep(3)
            heartbeat()
        await asyncio.sleep(100)
        return "never"

    silent = future("a", sleeps(100), timeout=Timeout(idle=4))
    beating = future("b", beats, timeout=Timeout(idle=4))
    place.submit([silent, beating])
    assert await place.wait([silent])
    assert now() == 4
    assert await place.wait([beating])
    assert now() == 19
    assert [c.reason for c in (silent, beating)] == ["timed out: no sign of life for 4 s"] * 2


@virtually
async def test_heartbeats_do_not_put_off_the_total_limit() -> None:
    place = scope()

    async def beats(arguments: dict[str, Any]) -> None:
        while True:
            await asyncio.sleep(1)
            heartbeat()

    call = future("a", beats, timeout=Timeout(10, idle=2))
    place.submit([call])
    await place.wait([call])
    assert now() == 10
    assert call.reason == "timed out: still running after 10 s"


@virtually
async def test_heartbeats_from_threads_and_from_tasks_of_the_tool_count() -> None:
    place = scope()

    async def beat_later() -> None:
        await asyncio.sleep(3)
        heartbeat()

    async def work(arguments: dict[str, Any]) -> str:
        for _ in range(3):
            await asyncio.sleep(3)
            await asyncio.to_thread(heartbeat)
        task = asyncio.create_task(beat_later())
        await asyncio.sleep(6)
        await task
        return "done"

    call = future("a", work, timeout=Timeout(idle=4))
    place.submit([call])
    await place.wait([call])
    assert call.result() == "done"
    assert now() == 15


@virtually
async def test_a_heartbeat_of_one_call_does_not_keep_another_alive() -> None:
    place = scope()

    async def beats(arguments: dict[str, Any]) -> str:
        for _ in range(10):
            await asyncio.sleep(1)
            heartbeat()
        return "done"

    first = future("a", beats, timeout=Timeout(idle=2))
    second = future("b", sleeps(100), timeout=Timeout(idle=2))
    third = future("c", beats)
    place.submit([first, second, third])
    await place.wait([first, second, third])
    assert [c.state for c in (first, second, third)] == [State.SUCCEEDED, State.FAILED, State.SUCCEEDED]


@virtually
async def test_a_call_started_by_the_end_of_another_does_not_inherit_its_heartbeat() -> None:
    """`second` starts inside the task of `first`; it has no idle limit, so its heartbeat touches nobody."""
    place = scope()
    seen = []

    async def looks(arguments: dict[str, Any]) -> None:
        from langgraph_flash.futures.timeouts import PULSE

        seen.append(PULSE.get())

    first = future("a", sleeps(1), access=X, timeout=Timeout(idle=5))
    second = future("b", looks, access=X)
    place.submit([first, second])
    await place.wait([second])
    assert seen == [None]


@virtually
async def test_a_call_that_ends_at_the_last_moment_of_its_limit_is_not_both() -> None:
    place = scope()
    call = future("a", sleeps(5), timeout=Timeout(5))
    place.submit([call])
    await place.wait([call])
    assert call.state in (State.SUCCEEDED, State.FAILED)
    assert (call.error is None) is (call.state is State.SUCCEEDED)
    await asyncio.sleep(10)
    assert now() == 15
    assert place.scheduler.running == 0


@virtually
async def test_an_infinite_limit_is_no_limit() -> None:
    place = scope()
    call = future("a", sleeps(10**6), timeout=Timeout(math.inf, idle=math.inf))
    place.submit([call])
    await place.wait([call])
    assert call.result() == "value"


@virtually
async def test_no_timer_is_left_when_a_call_has_ended() -> None:
    place = scope()
    call = future("a", sleeps(1), timeout=Timeout(1000, idle=500))
    place.submit([call])
    await place.wait([call])
    run_timers = [t for t in asyncio.get_running_loop()._scheduled if not t.cancelled()]  # type: ignore[attr-defined]
    assert run_timers == []


# Tools that do not stop --------------------------------------------------------------------------------------


@virtually
async def test_a_tool_that_ignores_being_stopped_is_abandoned_after_the_bound_and_holds_nobody_up() -> None:
    place = scope(limit=1)
    release = asyncio.Event()
    late = []

    async def stubborn(arguments: dict[str, Any]) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                late.append(now())
        late.append("ended")
        return "too late"

    first = future("a", stubborn, access=X, timeout=Timeout(5))
    after = future("b", sleeps(1), access=X)
    needs = future("c", sleeps(1), needs=(first,))
    place.submit([first, after, needs])
    assert await place.wait([first])
    assert now() == 5 + CANCEL_SECONDS
    assert isinstance(first.error, ToolTimeout)
    assert needs.state is State.CANCELLED
    assert place.abandoned == 1
    assert await place.wait([after])
    assert after.result() == "value"
    release.set()
    await asyncio.sleep(1)
    assert late == [5, "ended"]
    assert first.state is State.FAILED
    assert first.value is None
    assert place.scheduler.running == 0


@virtually
async def test_cancelling_a_stubborn_tool_ends_as_cancelled_and_not_as_a_timeout() -> None:
    place = scope()
    release = asyncio.Event()

    async def stubborn(arguments: dict[str, Any]) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    call = future("a", stubborn, timeout=Timeout(1.5))
    place.submit([call])
    await asyncio.sleep(1)
    assert place.cancel(call, "not wanted")
    await place.wait([call])
    assert now() == 1 + CANCEL_SECONDS
    assert (call.state, call.reason) == (State.CANCELLED, "not wanted")
    release.set()
    await asyncio.sleep(1)


@virtually
async def test_a_tool_that_turns_being_timed_out_into_an_error_of_its_own_still_timed_out() -> None:
    place = scope()

    async def translates(arguments: dict[str, Any]) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise ConnectionError("aborted") from None

    call = future("a", translates, timeout=Timeout(5))
    place.submit([call])
    await place.wait([call])
    assert call.state is State.FAILED
    assert "timed out" in str(call.reason)


async def test_a_hung_thread_is_given_up_and_what_it_does_later_goes_unseen() -> None:
    threads = DaemonThreads()
    release, ended = threading.Event(), threading.Event()

    def hangs() -> str:
        release.wait(60)
        ended.set()
        return "too late"

    async def work(arguments: dict[str, Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(threads, hangs)

    place = scope()
    call, after = future("a", work, access=X, timeout=Timeout(0.02)), future("b", sleeps(0), access=X)
    place.submit([call, after])
    assert await place.wait([call, after], seconds=30)
    assert isinstance(call.error, ToolTimeout)
    assert after.result() == "value"
    assert not ended.is_set()
    assert threads.abandoned == 1
    release.set()
    assert await asyncio.to_thread(ended.wait, 30)
    await asyncio.sleep(0)
    assert call.value is None
    threads.shutdown()
