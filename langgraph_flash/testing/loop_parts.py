"""The parts a virtual loop puts in the place of asyncio's: its selector, its executors, its instants."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

__all__ = ["DeferringSelector", "Events", "Instant", "ObservedExecutor"]

T = TypeVar("T")

Events = list[tuple[selectors.SelectorKey, int]]
"""What a selector returns."""


class DeferringSelector(selectors.BaseSelector):
    """The default selector, with its waiting left to the loop."""

    def __init__(self, wait: Callable[[selectors.BaseSelector, float | None], Events]) -> None:
        self._real = selectors.DefaultSelector()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Events:
        """Events that are ready, after whatever waiting the loop decides on."""
        return self._wait(self._real, timeout)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a file object."""
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch it no longer."""
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch it for other events."""
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is watched."""
        return self._real.get_map() or {}

    def close(self) -> None:
        """Close the real selector."""
        self._real.close()


class ObservedExecutor(Executor):
    """Hands one function on, and keeps the future that says when its thread is done with it."""

    submitted: Future[Any]

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Hand `fn` on and keep its future."""
        self.submitted = self._executor.submit(fn, *args, **kwargs)
        return self.submitted


class Instant(float):
    """A time with a number, so that asyncio's heap of timers keeps those of one instant in order."""

    number: int

    def __new__(cls, when: float, number: int) -> Instant:
        """The instant `when`, as number `number` of those made."""
        instant = super().__new__(cls, when)
        instant.number = number
        return instant

    def __lt__(self, other: float) -> bool:
        if isinstance(other, Instant) and float(self) == float(other):
            return self.number < other.number
        return float(self) < float(other)
