"""What may run now: program order, conflicts, data, failures and a limit, without a clock or a thread."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.futures.future import Future, State, Work
from langgraph_flash.futures.resources import conflicts
from langgraph_flash.futures.tree import ResourceTree

__all__ = ["DispatchOrder", "OrderFailure", "Scheduler", "longest_first", "program_order"]

OrderFailure = Literal["continue", "cancel"]
"""What a failure does to later calls that only had to wait for their turn."""

DispatchOrder = Callable[[Future], Any]
"""Sort key among calls that could start now but for the limit; the smallest starts first."""


def program_order(call: Future) -> Any:
    """Earlier calls first."""
    return call.index


def longest_first(call: Future) -> Any:
    """Calls expected to take longest first, which is the better order when slots are scarce (LPT)."""
    return (-(call.estimate or 0.0), call.index)


class Scheduler:
    """Decides which calls of one conversation may run.

    Calls are registered in program order. A call waits for every earlier call it conflicts with (an *order edge*) and
    for every future its arguments mention (a *data edge*). It never overtakes a conflicting earlier call, even one
    that itself still waits. When a call fails or is cancelled, its data dependents are cancelled, transitively, with
    the cause; its order dependents go on (`on_order_failure="continue"`, what running the calls one by one would have
    done) or are cancelled too (`"cancel"`). A call that has started is never touched by another one's failure.

    Not thread-safe, and knows no time: whoever drives it calls `pop_ready`, runs the call, and reports `finish`.

    Args:
        limit: Most calls running at once; `None` for no limit.
        on_order_failure: See above.
        order: Which of several startable calls goes first.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        on_order_failure: OrderFailure = "continue",
        order: DispatchOrder = program_order,
    ) -> None:
        if limit is not None and limit < 1:
            raise ConfigurationError(f"limit={limit!r} would let nothing run; give at least 1, or None for no limit.")
        if on_order_failure not in ("continue", "cancel"):
            raise ConfigurationError(f"on_order_failure={on_order_failure!r} is not 'continue' or 'cancel'.")
        self.limit = limit
        self.order = order
        self._on_order_failure = on_order_failure
        self._tree = ResourceTree()
        self._calls: dict[str, Future] = {}
        self._ready: list[tuple[Any, int, Future]] = []
        self._registered = 0
        self.running = 0
        """How many calls are executing."""

    def add(self, calls: Iterable[Future]) -> list[Future]:
        """Register calls, in program order, and return those cancelled at once because what they need has failed.

        Every future in `call.needs` must have been registered before, in this batch or earlier.
        """
        cancelled: list[Future] = []
        for call in calls:
            if (namesake := self._calls.get(call.id)) is not None and not namesake.settled:
                raise ConfigurationError(f"{call!r} cannot be registered: {namesake!r} has the same id.")
            call.index = self._registered
            self._registered += 1
            self._calls[call.id] = call
            for blocker in self._tree.add(call).values():
                blocker.order_dependents.append(call)
                call.blockers += 1
            lost: Future | None = None
            for needed in call.needs:
                if needed.state in (State.FAILED, State.CANCELLED):
                    lost = lost or needed
                elif not needed.settled:
                    needed.data_dependents.append(call)
                    call.unresolved += 1
            if lost is not None:
                cancelled += self._end_waiting([(call, _lost(lost), lost)])
            else:
                self._offer(call)
        return cancelled

    def attach(self, call: Future, work: Work) -> None:
        """Give an announced call its work, so that it may run."""
        if call.state is not State.ANNOUNCED:
            raise ConfigurationError(f"{call!r} already has its work.")
        call.work = work
        call._state = State.WAITING
        self._offer(call)

    def pop_ready(self) -> Future | None:
        """Start the next call that may run, or return `None` if there is none or the limit is reached."""
        while self._ready and (self.limit is None or self.running < self.limit):
            call = heapq.heappop(self._ready)[2]
            if call.state is State.WAITING:
                call._state = State.RUNNING
                self.running += 1
                return call
        return None

    def finish(
        self,
        call: Future,
        *,
        value: Any = None,
        error: BaseException | None = None,
        reason: str | None = None,
        cancelled: bool = False,
    ) -> list[Future]:
        """Record a running call's outcome and return the calls that were cancelled because of it.

        It succeeded, unless an error or a reason for its failure is given, or `cancelled` says that it was stopped.
        """
        if call.state is not State.RUNNING:
            raise ConfigurationError(f"{call!r} is not running, so it cannot finish.")
        self.running -= 1
        call.value, call.error, call.reason = value, error, reason
        if cancelled:
            call._state = State.CANCELLED
        elif error is not None or reason is not None:
            call.reason = reason or _words(error)
            call._state = State.FAILED
        else:
            call._state = State.SUCCEEDED
        return self._settle(call)

    def cancel(self, call: Future, reason: str) -> list[Future]:
        """Cancel a call that has not started; returns it and everything cancelled because of it."""
        if call.state not in (State.ANNOUNCED, State.WAITING):
            raise ConfigurationError(f"{call!r} has started or ended; only waiting calls are cancelled here.")
        return self._end_waiting([(call, reason, None)])

    def forget(self, call: Future) -> None:
        """Drop a settled call, so that it can no longer be referred to."""
        self._calls.pop(call.id, None)

    def get(self, future_id: str) -> Future | None:
        """The call of this id, unless it is unknown or forgotten."""
        return self._calls.get(future_id)

    def calls(self) -> Sequence[Future]:
        """Every call not yet forgotten, in program order."""
        return list(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)

    def _offer(self, call: Future) -> None:
        if call.state is State.WAITING and not call.blockers and not call.unresolved:
            heapq.heappush(self._ready, (self.order(call), call.index, call))

    def _settle(self, call: Future) -> list[Future]:
        """Tell dependents about an outcome; returns the calls cancelled because of it."""
        doomed: list[tuple[Future, str, Future | None]] = []
        failed = call.state is not State.SUCCEEDED
        for dependent in call.data_dependents:
            if failed:
                doomed.append((dependent, _lost(call), call))
            else:
                dependent.unresolved -= 1
                self._offer(dependent)
        if failed and self._on_order_failure == "cancel":
            doomed += [(dependent, _order_lost(call), call) for dependent in call.order_dependents]
        call.data_dependents = []
        cancelled = self._end_waiting(doomed)
        self._pass(call)
        return cancelled

    def _end_waiting(self, doomed: list[tuple[Future, str, Future | None]]) -> list[Future]:
        cancelled: list[Future] = []
        through: set[tuple[int, int]] = set()
        queue = doomed
        while queue:
            upcoming: list[tuple[Future, str, Future | None]] = []
            for call, reason, cause in queue:
                if call.state not in (State.ANNOUNCED, State.WAITING):
                    holds_place = call.settled and not call.passed
                    if cause is not None and holds_place and (call.index, cause.index) not in through:
                        through.add((call.index, cause.index))
                        upcoming += self._behind(call, cause)
                    continue
                call._state = State.CANCELLED
                call.reason, call.cause = reason, cause
                cancelled.append(call)
                upcoming += [(dependent, _lost(call), call) for dependent in call.data_dependents]
                if self._on_order_failure == "cancel":
                    upcoming += [(dependent, _order_lost(call), call) for dependent in call.order_dependents]
                call.data_dependents = []
            queue = upcoming
        for call in cancelled:
            self._pass(call)
        return cancelled

    def _behind(self, cancelled: Future, cause: Future) -> list[tuple[Future, str, Future | None]]:
        """Calls that come after `cause` although their edge leads to a call that was cancelled before it ended.

        That call took over the cause's place in the tree, and may hold other places besides.
        """
        if self._on_order_failure != "cancel":
            return []
        return [
            (dependent, _order_lost(cause), cause)
            for dependent in cancelled.order_dependents
            if conflicts(cause.access, dependent.access)
        ]

    def _pass(self, call: Future) -> None:
        """Let order dependents go on, once everything this call had to wait for has passed as well."""
        stack = [call]
        while stack:
            passing = stack.pop()
            if passing.passed or passing.blockers or not passing.settled:
                continue
            passing.passed = True
            self._tree.remove(passing)
            for dependent in passing.order_dependents:
                dependent.blockers -= 1
                if dependent.settled:
                    stack.append(dependent)
                else:
                    self._offer(dependent)
            passing.order_dependents = []
            passing.work = passing.context = None
            passing.needs = ()


def _words(error: BaseException | None) -> str:
    """What an error says, or its type where it says nothing or cannot be printed."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of the tool's own making must not become ours
        text = ""
    return (
        text if text and error is not None else f"{type(error).__name__ if error is not None else 'it'} gave no reason"
    )


def _lost(cause: Future) -> str:
    return f"it needs the result of {cause.id} ({cause.tool}), which {_ended(cause)}"


def _order_lost(cause: Future) -> str:
    return f"it comes after {cause.id} ({cause.tool}), which {_ended(cause)}"


def _ended(cause: Future) -> str:
    return "was cancelled" if cause.state is State.CANCELLED else "failed"
