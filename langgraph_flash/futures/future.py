"""One future: the handle of a tool call whose result is not there yet."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from langgraph_flash.errors import FutureCancelled, FutureFailed, FutureNotFinished
from langgraph_flash.futures.resources import BARRIER, Access
from langgraph_flash.futures.timeouts import Timeout

if TYPE_CHECKING:
    from langgraph_flash.futures.tree import ResourceNode

__all__ = ["Failure", "Future", "State", "View", "Work"]

Work = Callable[[dict[str, Any]], Awaitable[Any]]
"""Runs the tool with its final arguments."""

View = Callable[[Any], Any]
"""From what a tool's work returned to the value that references see."""

Failure = Callable[[Any], str | None]
"""From what a tool's work returned to the reason why it is a failure, or `None` if it is none."""


class State(Enum):
    """Where a future is.

    ```text
    ANNOUNCED ──attach──▶ WAITING ──start──▶ RUNNING ──▶ SUCCEEDED
        │                    │                  ├──────▶ FAILED
        └──────cancel────────┴──────cancel──────┴──────▶ CANCELLED
    ```
    """

    ANNOUNCED = "announced"
    """Its place in program order is known; the node task that brings the call itself has not arrived."""
    WAITING = "waiting"
    """An earlier conflicting call, a value it needs, or a free slot is missing."""
    RUNNING = "running"
    """Its tool is executing."""
    SUCCEEDED = "succeeded"
    """It has a value."""
    FAILED = "failed"
    """Its tool raised, reported an error or ran out of time."""
    CANCELLED = "cancelled"
    """It was cancelled before it finished: by id, or because something it depends on failed."""

    @property
    def settled(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in _SETTLED


_SUCCEEDED, _FAILED, _CANCELLED = State.SUCCEEDED, State.FAILED, State.CANCELLED
_SETTLED = frozenset({_SUCCEEDED, _FAILED, _CANCELLED})


class Future:
    """One call on its way to an outcome. Only its scope's scheduler changes it; everybody may read it.

    A settled future that has not yet *passed* still holds its place in program order: it was cancelled while earlier
    conflicting calls were unfinished, and later calls must keep waiting for those.
    """

    __slots__ = (
        "_state",
        "access",
        "arguments",
        "background",
        "blockers",
        "callbacks",
        "cause",
        "context",
        "data_dependents",
        "error",
        "estimate",
        "failure",
        "id",
        "index",
        "label",
        "marks",
        "needs",
        "order_dependents",
        "passed",
        "reason",
        "tags",
        "text_arguments",
        "timeout",
        "tool",
        "unresolved",
        "value",
        "view",
        "work",
    )

    def __init__(
        self,
        id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        access: Access = BARRIER,
        work: Work | None = None,
        needs: tuple[Future, ...] = (),
        timeout: Timeout | None = None,
        context: contextvars.Context | None = None,
        estimate: float | None = None,
        background: bool = True,
        label: str | None = None,
        text_arguments: frozenset[str] = frozenset(),
        view: View | None = None,
        failure: Failure | None = None,
        tags: Any = None,
    ) -> None:
        self.id = id
        self.tool = tool
        self.arguments: Mapping[str, Any] = arguments or {}
        self.access = access
        self.work = work
        self.needs = needs
        """The futures whose values its arguments mention."""
        self.timeout = timeout
        self.context = context
        self.estimate = estimate
        self.background = background
        self.label = label or tool
        """How the call reads in a sentence: `search(query="x")`."""
        self.text_arguments = text_arguments
        """Names of the arguments that want text, so that text which is JSON stays text there."""
        self.view = view
        """What references see of its value; the value itself if `None`."""
        self.failure = failure
        """Says why a value that was returned normally is a failure all the same."""
        self.tags = tags
        """Whatever the owner wants to remember about the call."""
        self.value: Any = None
        self.error: BaseException | None = None
        self.reason: str | None = None
        self.cause: Future | None = None
        """The future whose failure or cancellation ended this one."""
        self.index = -1
        """Position in the scope's program order; set when it is registered."""
        self.passed = False
        self.blockers = 0
        self.unresolved = 0
        self.order_dependents: list[Future] = []
        self.data_dependents: list[Future] = []
        self.marks: list[ResourceNode] = []
        self.callbacks: list[Callable[[Future], None]] = []
        self._state = State.WAITING if work is not None else State.ANNOUNCED

    @property
    def state(self) -> State:
        """Where it is; see `State` for every transition."""
        return self._state

    @property
    def settled(self) -> bool:
        """Whether it has an outcome."""
        # Asked for all the time, and hashing a member of an enum is a call.
        return self._state is _SUCCEEDED or self._state is _FAILED or self._state is _CANCELLED

    def result(self) -> Any:
        """The tool's value.

        Raises:
            FutureNotFinished: It is still waiting or running.
            FutureFailed: The tool failed; `ToolTimeout` if it ran out of time.
            FutureCancelled: It was cancelled.
        """
        if self._state is State.SUCCEEDED:
            return self.value
        if self._state is State.FAILED:
            if isinstance(self.error, FutureFailed) and self.error.future_id == self.id:
                raise self.error
            raise FutureFailed(self.id, self.tool, self.reason or "unknown reason") from self.error
        if self._state is State.CANCELLED:
            raise FutureCancelled(self.id, self.reason or "no reason given")
        raise FutureNotFinished(self.id, self._state.value)

    def root_cause(self) -> Future:
        """The future at the end of the chain of causes: itself, unless something it depended on ended it."""
        current = self
        while current.cause is not None:
            current = current.cause
        return current

    def __repr__(self) -> str:
        return f"<Future {self.id} {self.label} {self._state.value}>"
