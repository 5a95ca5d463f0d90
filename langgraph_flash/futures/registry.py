"""Which scope holds which future, over all conversations of a runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph_flash.futures.future import Future

if TYPE_CHECKING:
    from langgraph_flash.futures.scope import Scope

__all__ = ["Registry"]


class Registry:
    """The futures of many scopes: how many they are, and which scope holds each.

    It makes the cost of finding and counting futures independent of the number of conversations. Changed on the loop
    of its scopes only; single look-ups are safe from any thread.
    """

    __slots__ = ("count", "scopes")

    def __init__(self) -> None:
        self.count = 0
        self.scopes: dict[str, Scope] = {}

    def drop(self, scope: Scope, call: Future) -> None:
        """A scope no longer holds a future."""
        self.count -= 1
        if self.scopes.get(call.id) is scope:
            del self.scopes[call.id]
