"""Finished results of a node that did not get to return them, so that entering it again does not run them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

__all__ = ["INTERRUPTED", "Memo"]

INTERRUPTED: Final = object()
"""Kept for a call that stopped to ask a person: it must run again when the answer is there."""


class Memo:
    """Results by call, the least recently used dropped first. Safe from any thread.

    Args:
        limit: Most results kept.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, call: str) -> Any:
        """What is kept for a call, or `None`."""
        with self._guard:
            if call in self._kept:
                self._kept.move_to_end(call)
            return self._kept.get(call)

    def keep(self, call: str, result: Any) -> None:
        """Keep a result. What is known to have interrupted stays so until it is dropped."""
        with self._guard:
            if self._kept.get(call) is not INTERRUPTED:
                self._kept[call] = result
            self._kept.move_to_end(call)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)

    def drop(self, call: str) -> None:
        """Forget a call."""
        with self._guard:
            self._kept.pop(call, None)

    def __len__(self) -> int:
        return len(self._kept)
