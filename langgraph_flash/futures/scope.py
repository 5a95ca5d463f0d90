"""The futures of one conversation, running: a scheduler with a loop, tasks, timeouts and waiters."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langgraph_flash.errors import FutureError, FutureFailed, ToolTimeout
from langgraph_flash.futures.future import Failure, Future, State, View, Work
from langgraph_flash.futures.references import Reference, project, substitute
from langgraph_flash.futures.registry import Registry
from langgraph_flash.futures.scheduler import DispatchOrder, OrderFailure, Scheduler, program_order
from langgraph_flash.futures.timeouts import PULSE, Timeout

__all__ = ["Scope"]

logger = logging.getLogger(__name__)

CANCEL_SECONDS = 1.0
"""How long a cancelled tool may take to end before it is abandoned."""


@dataclass(slots=True)
class _Run:
    """A call while it executes."""

    started: float
    last_sign: float
    task: asyncio.Task[None] | None = None
    stopping: str | None = None
    expired: str | None = None
    timer: asyncio.TimerHandle | None = None


class Scope:
    """Runs the calls of one conversation on one event loop; every method must be called on that loop.

    Args:
        key: What identifies the conversation.
        owner: Whatever the key identifies by its address, kept alive as long as the scope.
        loop: The loop that everything runs on.
        view: What references see of a call's value, for calls that do not say.
        failure: Says why a value that was returned normally is a failure, for calls that do not say.
        limit: Most calls running at once.
        on_order_failure: What a failure does to calls that only wait for their turn.
        order: Which startable call goes first.
        eager: Start calls as soon as they may; otherwise only while somebody waits for a result.
        measured: Told the tool and the seconds of every finished call.
    """

    def __init__(
        self,
        key: str,
        *,
        loop: asyncio.AbstractEventLoop,
        owner: object = None,
        view: View = lambda value: value,
        failure: Failure = lambda value: None,
        limit: int | None = None,
        on_order_failure: OrderFailure = "continue",
        order: DispatchOrder = program_order,
        eager: bool = True,
        measured: Callable[[str, float], None] | None = None,
    ) -> None:
        self.key = key
        self.owner = owner
        self.loop = loop
        self.scheduler = Scheduler(limit=limit, on_order_failure=on_order_failure, order=order)
        self.touched = loop.time()
        self.visitors = 0
        """How many are working with the scope right now; it is not dropped meanwhile, even if it holds nothing."""
        self._view = view
        self._failure = failure
        self._eager = eager
        self._measured = measured
        self.registry: Registry | None = None
        """Told which futures the scope holds, from the moment it is set."""
        self._runs: dict[str, _Run] = {}
        self._waiters = 0
        self.abandoned = 0
        """Calls given up because they would not stop."""

    # Registration ---------------------------------------------------------------------------------------------

    def submit(self, calls: Sequence[Future]) -> None:
        """Register calls in program order, all at once, and start those that may run."""
        self.touched = self.loop.time()
        held = len(self.scheduler)
        lost = self.scheduler.add(calls)
        if self.registry is not None:
            self.registry.count += len(self.scheduler) - held
            self.registry.scopes.update((call.id, self) for call in calls)
        self._announce_settled(lost)
        self._pump()

    def attach(self, call: Future, work: Work) -> None:
        """Bring the work of an announced call."""
        self.scheduler.attach(call, work)
        self._pump()

    def get(self, future_id: str) -> Future | None:
        """The future of this id, unless it is unknown or forgotten."""
        return self.scheduler.get(future_id)

    def calls(self) -> Sequence[Future]:
        """Every call not yet forgotten, in program order."""
        return self.scheduler.calls()

    @property
    def awaited(self) -> bool:
        """Whether somebody is waiting for a result right now."""
        return self._waiters > 0

    def forget(self, call: Future) -> None:
        """Drop a settled call; only calls that need its value still hold it."""
        held = len(self.scheduler)
        self.scheduler.forget(call)
        if self.registry is not None and len(self.scheduler) < held:
            self.registry.drop(self, call)

    def withdraw(self) -> None:
        """Leave the registry: nobody will ask this scope for its futures any more."""
        registry, self.registry = self.registry, None
        if registry is not None:
            for call in self.scheduler.calls():
                registry.drop(self, call)

    # Waiting --------------------------------------------------------------------------------------------------

    async def wait(self, calls: Iterable[Future], *, need: int | None = None, seconds: float | None = None) -> bool:
        """Wait until `need` of the calls have settled (all, by default); `False` if the seconds ran out first."""
        calls = list(calls)
        missing = len(calls) if need is None else min(need, len(calls))
        missing -= sum(call.settled for call in calls)
        if missing <= 0:
            return True
        if seconds is not None and seconds <= 0:
            return False
        waiter: asyncio.Future[None] = self.loop.create_future()

        def settled(_: Future) -> None:
            nonlocal missing
            missing -= 1
            if missing <= 0 and not waiter.done():
                waiter.set_result(None)

        unsettled = [call for call in calls if not call.settled]
        for call in unsettled:
            call.callbacks.append(settled)
        self._waiters += 1
        self._pump()
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            # The last one may have settled in the very round in which the time ran out.
            return missing <= 0
        finally:
            self._waiters -= 1
            self.touched = self.loop.time()
            for call in unsettled:
                if settled in call.callbacks:
                    call.callbacks.remove(settled)
        return True

    # Ending ---------------------------------------------------------------------------------------------------

    def cancel(self, call: Future, reason: str) -> bool:
        """Cancel one call; `False` if it had settled already.

        A call that has not started is cancelled at once, and with it everything that needs its result. A running one
        is asked to stop. A thread cannot be stopped: its call is abandoned, and what it still does goes unseen.
        """
        if call.settled:
            return False
        run = self._runs.get(call.id)
        if run is None:
            self._announce_settled(self.scheduler.cancel(call, reason))
            self._pump()
        elif run.stopping is None and run.expired is None:
            run.stopping = reason
            self._stop(call, run)
        return True

    def cancel_all(self, reason: str) -> None:
        """Cancel every call that has not settled, the latest first so that nothing starts in between."""
        for call in reversed(self.scheduler.calls()):
            self.cancel(call, reason)

    def _stop(self, call: Future, run: _Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
        if run.task is not None:
            run.task.cancel()
        run.timer = self.loop.call_later(CANCEL_SECONDS, self._abandon, call, run)

    def _abandon(self, call: Future, run: _Run) -> None:
        if not call.settled:
            self.abandoned += 1
            logger.warning("%s did not stop within %g s of being told to; it is abandoned", call, CANCEL_SECONDS)
            self._finish_stopped(call, run)

    # Running --------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        if not self._eager and not self._waiters:
            return
        while (call := self.scheduler.pop_ready()) is not None:
            now = self.loop.time()
            run = self._runs[call.id] = _Run(now, now)
            # Never the current context: that may be another call's, whose end is starting this one.
            context = call.context if call.context is not None else contextvars.Context()
            run.task = self.loop.create_task(self._drive(call), context=context)
            run.task.add_done_callback(partial(self._ended, call, run))
            if call.settled:  # under an eager task factory it may have run to its end already
                continue
            if call.timeout is not None and (call.timeout.total is not None or call.timeout.idle is not None):
                self._watch(call, run, call.timeout)

    def _watch(self, call: Future, run: _Run, timeout: Timeout) -> None:
        """Look again at the nearest deadline; a sign of life in between only moves the next look."""
        now = self.loop.time()
        total = None if timeout.total is None else run.started + timeout.total
        idle = None if timeout.idle is None else run.last_sign + timeout.idle
        if total is not None and now >= total:
            run.expired = f"still running after {timeout.total:g} s"
        elif idle is not None and now >= idle:
            run.expired = f"no sign of life for {timeout.idle:g} s"
        if run.expired is not None:
            self._stop(call, run)
            return
        nearest = min(deadline for deadline in (total, idle) if deadline is not None)
        run.timer = self.loop.call_at(nearest, self._watch, call, run, timeout)

    async def _drive(self, call: Future) -> None:
        run = self._runs[call.id]
        if call.timeout is not None and call.timeout.idle is not None:
            PULSE.set(partial(self._touch, run, PULSE.get()))
        work = call.work
        assert work is not None
        try:
            value = await work(self._arguments(call))
            reason = (call.failure or self._failure)(value)
        except asyncio.CancelledError:
            self._finish_stopped(call, run)
        except BaseException as error:  # noqa: BLE001 - kept whole; raised again where the graph can see it
            if run.stopping is not None or run.expired is not None:
                self._finish_stopped(call, run)
            else:
                self._finish(call, run, error=error)
        else:
            # Also when it was told to stop: what it has done is done, and its value says what that was.
            self._finish(call, run, value=value, reason=reason)

    def _touch(self, run: _Run, outer: Callable[[], None] | None) -> None:
        run.last_sign = self.loop.time()
        if outer is not None:  # a graph inside a tool keeps that tool alive as well
            outer()

    def _ended(self, call: Future, run: _Run, task: asyncio.Task[None]) -> None:
        # A task cancelled before its first step never entered `_drive`.
        if task.cancelled() and not call.settled:
            self._finish_stopped(call, run)

    def _arguments(self, call: Future) -> dict[str, Any]:
        if not call.needs:
            return dict(call.arguments)

        needed = {source.id: source for source in call.needs}

        def resolve(reference: Reference, name: str) -> Any:
            source = needed.get(reference.future_id)
            if source is None:
                return reference.text
            value = (source.view or self._view)(source.result())
            return project(reference, value, as_text=name in call.text_arguments)

        try:
            return substitute(call.arguments, resolve)
        except FutureError as error:
            raise FutureFailed(call.id, call.tool, str(error)) from error

    def _finish_stopped(self, call: Future, run: _Run) -> None:
        if run.expired is not None:
            self._finish(
                call,
                run,
                error=ToolTimeout(call.id, call.tool, run.expired),
                reason=f"timed out: {run.expired}",
            )
        else:
            reason = run.stopping or "its task was cancelled from outside"
            self._finish(call, run, reason=reason, cancelled=True)

    def _finish(self, call: Future, run: _Run, **outcome: Any) -> None:
        if call.state is not State.RUNNING:
            return
        if run.timer is not None:
            run.timer.cancel()
        del self._runs[call.id]
        self.touched = self.loop.time()
        if self._measured is not None and run.stopping is None and run.expired is None:
            self._measured(call.tool, self.touched - run.started)
        lost = self.scheduler.finish(call, **outcome)
        self._announce_settled([call, *lost])
        self._pump()

    def _announce_settled(self, calls: Iterable[Future]) -> None:
        for call in calls:
            callbacks, call.callbacks = call.callbacks, []
            for callback in callbacks:
                callback(call)

    async def close(self, reason: str) -> None:
        """Cancel everything and wait, within bounds, until it has ended."""
        self.cancel_all(reason)
        if tasks := [run.task for run in self._runs.values() if run.task is not None]:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    def __len__(self) -> int:
        return len(self.scheduler)

    def __repr__(self) -> str:
        return f"<Scope {self.key!r}: {len(self)} futures, {self.scheduler.running} running>"
