"""An asyncio loop on a clock that never waits: it jumps to the next timer as soon as nothing is runnable."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import Future as ThreadFuture
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from langgraph_flash.errors import FlashError
from langgraph_flash.testing.loop_parts import DeferringSelector, Events, Instant, ObservedExecutor

__all__ = ["VirtualClock", "VirtualDeadlock", "VirtualTimeLoop", "run_virtual", "virtual_time"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Real seconds a thread asyncio did not start, such as a database driver's, gets to call back before nothing
# being runnable counts as a deadlock.
_PATIENCE = 1.0


class VirtualDeadlock(FlashError, RuntimeError):
    """Every task waits, and nothing is left that could wake one."""

    waiting: tuple[str, ...]
    """The tasks that wait, each with the line of its outermost coroutine."""

    def __init__(self, seconds: float, waiting: tuple[str, ...]) -> None:
        self.seconds = seconds
        self.waiting = waiting
        super().__init__(
            f"After {seconds:g} virtual seconds every task waits, no timer is set and no thread is working. "
            f"Waiting: {'; '.join(waiting) or 'no task'}. Look for an event nobody sets or tasks that await "
            "each other; around the work of a thread that asyncio does not know of, use loop.hold()."
        )

    def __reduce__(self) -> tuple[type[VirtualDeadlock], tuple[float, tuple[str, ...]]]:
        """Pickle by the facts: an exception is otherwise rebuilt from its sentence alone."""
        return type(self), (self.seconds, self.waiting)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at zero and jumps to the next timer when nothing is runnable.

    A run is deterministic as long as it stays on the loop: timers fire by their time, and those of one
    instant in the order they were set.

    Work in threads is real. While a function handed to `run_in_executor` or `asyncio.to_thread` runs, also
    one whose future was cancelled, the clock stands still and the loop waits for it: threads take no virtual
    time. Two threads that run at once end in whatever order they really do. A thread that waits for a timer
    of the loop waits for ever.

    Callbacks from other threads (`call_soon_threadsafe`) are taken when they come, but the loop cannot know
    that one is still to come. With timers set, it moves on; with none, it waits one real second before it
    raises `VirtualDeadlock`. `hold` tells it to wait. The loop does not know when a peer will answer on a
    socket either: timers, such as a client's timeout, win over sockets. Test real connections on a real loop.

    Raises:
        VirtualDeadlock: From running it, when nothing is runnable, no timer is set, no thread works for the
            loop, no socket is watched and no hold is in force.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._timers = itertools.count()
        self._holds: set[object] = set()
        self._thread_work: list[tuple[asyncio.Future[Any], ThreadFuture[Any]]] = []
        self._pool: ThreadPoolExecutor | None = None
        super().__init__(DeferringSelector(self._wait))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_now

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the clock still while something outside the loop works for it; usable from any thread.

        Enter it before the work starts and leave it after the work has called back.
        """
        token = object()
        self._holds.add(token)
        try:
            yield
        finally:
            self._holds.discard(token)
            self._wake()

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer; one that is due at infinity never fires and keeps nothing alive."""
        if when == math.inf:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(Instant(when, next(self._timers)), callback, *args, context=context)

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:  # type: ignore[override]
        """Use `executor` where `run_in_executor` is given none."""
        super().set_default_executor(executor)
        self._pool = executor

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in a thread or process, and hold the clock until it has ended and its result is here."""
        if executor is None:
            if self._pool is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="virtual-time"))
            executor = self._pool
            assert executor is not None
        observed = ObservedExecutor(executor)
        arrival = super().run_in_executor(observed, func, *args)
        work = observed.submitted
        self._thread_work.append((arrival, work))
        # The arrival wakes the loop by itself, unless it was cancelled while the thread went on.
        work.add_done_callback(lambda _: self._wake())
        return arrival

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
        """Wait for the threads of the default executor, really and without a limit."""
        # The loop joins them in a thread of its own, and from Python 3.12 on limits that by a timer.
        with self.hold():
            await super().shutdown_default_executor()

    def _wake(self) -> None:
        if not self.is_closed():
            try:
                self.call_soon_threadsafe(lambda: None)
            except RuntimeError:
                # Closed since it was asked: then nobody needs to wake.
                assert self.is_closed()

    def _held(self) -> bool:
        # Both, because work ends before its result has reached the loop, and when it is cancelled it is the
        # arrival that ends first.
        self._thread_work = [pair for pair in self._thread_work if not all(future.done() for future in pair)]
        return bool(self._holds or self._thread_work)

    def _wait(self, real: selectors.BaseSelector, timeout: float | None) -> Events:
        """What `select` does: nothing is runnable, and the next timer is due in `timeout` seconds."""
        # In this order: what ended before it was asked has called back before the sockets are asked.
        held = self._held()
        events = real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if held:
            return real.select(None)
        if timeout is not None:
            self._virtual_now += timeout
            return events
        # The loop itself watches one socket, by which other threads wake it.
        if len(real.get_map() or ()) > 1:
            return real.select(None)
        if threading.active_count() > 1:
            events = real.select(_PATIENCE)
        if not events:
            raise VirtualDeadlock(self._virtual_now, tuple(map(_describe, asyncio.all_tasks(self))))
        return events


class VirtualClock:
    """Runs coroutines on one virtual clock; made by `virtual_time`."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._loop = runner.get_loop()
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Virtual seconds that had passed when the last `run` returned or raised; zero before the first."""
        return self._seconds

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and return its result.

        Several runs continue on the same loop and the same clock. Tasks that a run leaves behind go on in the
        next one and are cancelled at the end of the `with` block.

        Raises:
            VirtualDeadlock: Nothing is left that could wake `main`.
            RuntimeError: The block has ended, or an event loop already runs in this thread.
        """
        try:
            return self._runner.run(main)
        finally:
            _discard(main)
            self._seconds = self._loop.time()


@contextmanager
def virtual_time() -> Iterator[VirtualClock]:
    """Open a virtual clock, for coroutines whose waiting should cost nothing.

        with virtual_time() as clock:
            state = clock.run(graph.ainvoke(question))
        assert clock.seconds == 12.5

    At the end of the block, tasks that are left are cancelled, asynchronous generators closed and the threads
    of the default executor joined, as `asyncio.run` does. Inside a coroutine,
    `asyncio.get_running_loop().time()` is the clock.

    Yields:
        The clock, with `run` and `seconds`.

    Raises:
        RuntimeError: An event loop already runs in this thread.
    """
    if _loop_is_running():
        raise RuntimeError("A virtual clock runs a loop of its own; open it in a plain function, not a coroutine.")
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        yield VirtualClock(runner)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a fresh virtual clock: `asyncio.run` without the waiting.

    Args:
        main: The coroutine to run to its end.

    Returns:
        Its result.

    Raises:
        VirtualDeadlock: Nothing is left that could wake it.
        RuntimeError: An event loop already runs in this thread.
    """
    try:
        with virtual_time() as clock:
            return clock.run(main)
    finally:
        _discard(main)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _discard(main: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine that was refused, or it would warn much later that nobody awaited it."""
    if inspect.iscoroutine(main) and inspect.getcoroutinestate(main) == inspect.CORO_CREATED:
        main.close()


def _describe(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    where = f" at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else ""
    return f"{task.get_name()} in {getattr(task.get_coro(), '__qualname__', task.get_coro())}{where}"
