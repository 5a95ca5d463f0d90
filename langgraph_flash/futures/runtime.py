"""Where futures live in a process: a daemon thread with an event loop, and the scopes that run on it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from langgraph_flash.errors import ConfigurationError, DeadlockError, RuntimeClosed
from langgraph_flash.futures.future import Future
from langgraph_flash.futures.loops import begin_elsewhere
from langgraph_flash.futures.memo import Memo
from langgraph_flash.futures.registry import Registry
from langgraph_flash.futures.scheduler import DispatchOrder
from langgraph_flash.futures.scope import Scope
from langgraph_flash.futures.threads import DaemonThreads

__all__ = ["FutureRuntime", "RuntimeStatistics", "default_runtime", "live_runtimes"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CLOSED = "the runtime was closed"
_PATIENCE = 5.0


async def _contained(visit: Coroutine[Any, Any, T]) -> Callable[[], T]:
    """Await a visit so that what would end the loop itself is raised where the visit was asked for."""
    try:
        value = await visit
    except (KeyboardInterrupt, SystemExit) as error:
        return partial(_reraise, error)
    return lambda: value


def _reraise(error: BaseException) -> Any:
    raise error


class RuntimeStatistics(NamedTuple):
    """What a runtime holds right now."""

    scopes: int
    """Conversations with futures that are not delivered yet."""
    futures: int
    """Futures in all scopes, settled ones that wait for delivery included."""
    running: int
    """Calls executing."""
    abandoned: int
    """Calls given up although they are still running: threads that cannot be stopped, coroutines that would not."""


class FutureRuntime:
    """Owns live work: one event loop, the scopes on it, and threads for synchronous tools.

    Work in a runtime survives the superstep and the run that started it, and even the caller's event loop. Nodes share
    the process's default runtime unless they are given one.

    Args:
        loop: `"own"` starts a daemon thread with a loop when it is first needed. `"caller"` runs everything on the
            event loop of whoever visits a node; work then ends with that loop, and only async graph methods work.
            Tests use it with virtual time.
        order: Overrides which startable call goes first, for every node that uses the runtime.
        eager: `False` starts calls only while somebody waits for a result, which makes orders reproducible in tests.
        max_futures: Past this many futures, nodes run their calls in the foreground instead of adding more.
        ttl: Seconds after which a scope that nothing touched is cancelled and dropped.
    """

    def __init__(
        self,
        *,
        loop: Literal["own", "caller"] = "own",
        order: DispatchOrder | None = None,
        eager: bool = True,
        max_futures: int = 100_000,
        ttl: float = 3600.0,
    ) -> None:
        if loop not in ("own", "caller"):
            raise ConfigurationError(f"loop={loop!r} is not 'own' or 'caller'.")
        if max_futures < 1:
            raise ConfigurationError(f"max_futures={max_futures!r} leaves no room for a future; give at least 1.")
        if not ttl > 0:
            raise ConfigurationError(f"ttl={ttl!r} is not a positive number of seconds.")
        self.order = order
        self.eager = eager
        self.max_futures = max_futures
        self.ttl = ttl
        self.threads = DaemonThreads()
        self.memo = Memo()
        """Results of visits that raised, by future id."""
        self.delivered = Memo(limit=1_000)
        """Futures that were delivered lately: a fork of the conversation may ask for them once more."""
        self._owns_loop = loop == "own"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._guard = threading.Lock()
        self._scopes: dict[str, Scope] = {}
        self._registry = Registry()
        self._seconds: dict[str, float] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        _runtimes.add(self)

    # Loops ----------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.AbstractEventLoop:
        """The loop that scopes run on, started if need be."""
        if self._closed:
            raise RuntimeClosed
        if not self._owns_loop:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:
                self._leave_loop("its event loop was left for another")
                self._sweeping = None
                self._loop = loop
            return loop
        if self._loop is None:
            with self._guard:
                if self._loop is None:
                    loop = asyncio.new_event_loop()
                    loop.set_default_executor(self.threads)
                    self._thread = threading.Thread(
                        target=self._serve, args=(loop,), name="langgraph-flash", daemon=True
                    )
                    self._thread.start()
                    self._loop = loop
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def call(self, visit: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a visit on the runtime's loop and block this thread until it is done.

        Raises:
            DeadlockError: This thread is the one that would have to do the work.
            ConfigurationError: The runtime has no thread of its own.
            RuntimeClosed: It has been closed.
        """
        if not self._owns_loop:
            raise ConfigurationError(
                "A FutureRuntime(loop='caller') has no thread of its own, so it serves ainvoke and astream only."
            )
        loop = self.start()
        if threading.current_thread() is self._thread:
            raise DeadlockError(
                "A graph was invoked synchronously inside an async tool that runs on the future runtime's own loop, "
                "which would wait for itself. Await graph.ainvoke(...) in that tool, or make the tool a plain def."
            )
        waiting = asyncio.run_coroutine_threadsafe(_contained(visit()), loop)
        try:
            outcome = waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise
        except concurrent.futures.CancelledError:
            if self._closed:
                raise RuntimeClosed from None
            raise
        return outcome()

    async def acall(self, visit: Callable[[], Coroutine[Any, Any, T]], pulse: Callable[[], None] | None = None) -> T:
        """Await a visit on the runtime's loop, from any loop; cancelling the caller cancels the visit.

        Args:
            visit: Makes the coroutine.
            pulse: Called about once a second on the caller's loop while the visit lasts.
        """
        home = self.start()
        task: asyncio.Future[Callable[[], T]]
        stop: Callable[[], object]
        if asyncio.get_running_loop() is home:
            task = asyncio.ensure_future(_contained(visit()))
            stop = task.cancel
        else:
            task, stop = begin_elsewhere(home, lambda: _contained(visit()))
        try:
            if pulse is None:
                await asyncio.wait({task})
            else:
                while not (await asyncio.wait({task}, timeout=1.0))[0]:
                    pulse()
        except GeneratorExit:
            stop()
            raise
        except BaseException:
            stop()
            # A visit ends within the bound of its calls; longer than this only if its loop was stopped under it.
            await asyncio.wait({task}, timeout=_PATIENCE)
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                logger.warning("a visit failed while it was being cancelled", exc_info=error)
            raise
        return task.result()()

    # Scopes ---------------------------------------------------------------------------------------------------

    def scope(self, key: str, make: Callable[[asyncio.AbstractEventLoop], Scope]) -> Scope:
        """The scope of this key, made if it is new; call it on the runtime's loop."""
        scope = self._scopes.get(key)
        loop = asyncio.get_running_loop()
        if scope is not None:
            scope.touched = loop.time()
        else:
            scope = self._scopes[key] = make(loop)
            scope.registry = self._registry
            if self._sweeping is None:
                self._sweeping = loop.call_later(self.ttl / 4, self._sweep)
        return scope

    def find_scope(self, key: str) -> Scope | None:
        """The scope of this key, if it holds futures."""
        return self._scopes.get(key)

    def release(self, scope: Scope) -> None:
        """Drop a scope that holds nothing any more."""
        if not len(scope) and not scope.visitors and self._scopes.get(scope.key) is scope:
            del self._scopes[scope.key]

    def cancel(self, future_id: str, reason: str) -> bool:
        """Cancel a future from any thread, without waiting for it to end; `False` if it is not here or has settled."""
        scope = self._registry.scopes.get(future_id)
        call = None if scope is None else scope.get(future_id)
        if scope is None or call is None or call.settled or scope.loop.is_closed():
            return False
        scope.loop.call_soon_threadsafe(scope.cancel, call, reason)
        return True

    def confirm(self, delivered: Collection[str]) -> None:
        """Forget settled futures that a conversation is known to hold, from any thread."""
        known = self._registry.scopes
        scopes = {id(scope): scope for future_id in delivered if (scope := known.get(future_id)) is not None}
        for scope in scopes.values():
            if not scope.loop.is_closed():
                scope.loop.call_soon_threadsafe(self._forget, scope, delivered)

    def _forget(self, scope: Scope, delivered: Collection[str]) -> None:
        for future_id in delivered:
            call = scope.get(future_id)
            if call is not None and call.settled:
                scope.forget(call)
                self.delivered.keep(future_id, call)
        self.release(scope)

    def find(self, future_id: str) -> Future | None:
        """A future of any conversation here, or one that was delivered lately."""
        scope = self._registry.scopes.get(future_id)
        if scope is not None and (call := scope.get(future_id)) is not None and not scope.loop.is_closed():
            return call
        found: Future | None = self.delivered.get(future_id)
        return found

    def has_room(self, calls: int) -> bool:
        """Whether so many more futures fit."""
        return self._registry.count + calls <= self.max_futures

    def measured(self, tool: str, seconds: float) -> None:
        """Remember how long a call took, as a moving average over about five calls."""
        before = self._seconds.get(tool)
        self._seconds[tool] = seconds if before is None else before + 0.2 * (seconds - before)

    def usual_seconds(self, tool: str) -> float | None:
        """How long calls of this tool have been taking, in seconds."""
        return self._seconds.get(tool)

    def _sweep(self) -> None:
        self._sweeping = None
        loop = asyncio.get_running_loop()
        for key, scope in list(self._scopes.items()):
            if loop.time() - scope.touched > self.ttl and not (scope.awaited or scope.visitors):
                scope.cancel_all(f"nothing asked for it within {self.ttl:g} s")
                del self._scopes[key]
                scope.withdraw()
        if self._scopes:
            self._sweeping = loop.call_later(self.ttl / 4, self._sweep)

    def statistics(self) -> RuntimeStatistics:
        """What it holds right now; cheap, and safe from any thread."""
        scopes = list(self._scopes.values())
        return RuntimeStatistics(
            scopes=len(scopes),
            futures=self._registry.count,
            running=sum(scope.scheduler.running for scope in scopes),
            abandoned=self.threads.abandoned + sum(scope.abandoned for scope in scopes),
        )

    # The end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel everything, give it a moment to end, and stop the thread. Safe to call twice.

        Raises:
            DeadlockError: It was called from the runtime's own thread.
        """
        if self._closed:
            return
        if self._thread is not None and threading.current_thread() is self._thread:
            raise DeadlockError("A FutureRuntime was closed from its own thread, which would have to wait for itself.")
        self._closed = True
        _runtimes.discard(self)
        loop, self._loop = self._loop, None
        if not self._owns_loop:
            self._leave_loop(_CLOSED)
        if loop is not None and self._thread is not None and not loop.is_closed():
            with contextlib.suppress(concurrent.futures.TimeoutError):
                asyncio.run_coroutine_threadsafe(self._close_scopes(), loop).result(timeout=5)
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(timeout=5)
        self.threads.shutdown(wait=False)

    def _leave_loop(self, reason: str) -> None:
        scopes, self._scopes = self._scopes, {}
        self._registry = Registry()
        for scope in scopes.values():
            if not scope.loop.is_closed():
                scope.loop.call_soon_threadsafe(scope.cancel_all, reason)

    async def _close_scopes(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        scopes, self._scopes = list(self._scopes.values()), {}
        self._registry = Registry()
        await asyncio.gather(*(scope.close(_CLOSED) for scope in scopes))
        # Visits may wait for something else than futures; whoever called them must not block for ever.
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in rest:
                task.cancel()
            await asyncio.wait(rest, timeout=1.0)

    def _forked(self) -> None:
        """A forked child has neither the thread nor the loop nor what ran there: begin again without them."""
        self._guard = threading.Lock()
        self.threads = DaemonThreads()
        self.memo, self.delivered = Memo(), Memo(limit=1_000)
        self._loop = self._thread = self._sweeping = None
        self._scopes = {}
        self._registry = Registry()

    def __repr__(self) -> str:
        return f"<FutureRuntime {'closed' if self._closed else self.statistics()}>"


def live_runtimes() -> list[FutureRuntime]:
    """Every runtime of this process that is still in use."""
    return list(_runtimes)


_runtimes: weakref.WeakSet[FutureRuntime] = weakref.WeakSet()
_default: list[FutureRuntime] = []
_default_guard = threading.Lock()


def default_runtime() -> FutureRuntime:
    """The process's shared runtime, made when first asked for."""
    with _default_guard:
        if not _default or _default[0]._closed:
            _default[:] = [FutureRuntime()]
        return _default[0]


def _start_afresh() -> None:
    global _default_guard  # noqa: PLW0603 - another thread may have held it while the process was forked
    _default_guard = threading.Lock()
    for runtime in live_runtimes():
        runtime._forked()


def _close_all() -> None:
    for runtime in live_runtimes():
        runtime.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_start_afresh)
