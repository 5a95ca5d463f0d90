"""Orders in which the calls of a turn may run: the worst one a given set of declarations still allows.

No clock is needed to find a missing declaration. Among the calls that are free to run, always take the one
written last: every pair that the declarations leave unordered then runs reversed wherever that is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from langgraph_flash.demo.bfcl.footprints import Footprint, Level, conflicts, footprint
from langgraph_flash.demo.bfcl.programs import Program, Turn

__all__ = ["adversarial_orders", "freed_calls", "latest_first", "merge_turns", "order_edges"]


def order_edges(turn: Turn, level: Level) -> list[tuple[int, int]]:
    """The pairs of calls of a turn, earlier first, that must keep their order.

    Args:
        turn: The turn.
        level: How finely the calls are declared. At level `none` there are no edges at all: this is what an
            executor that knows nothing and orders nothing respects.
    """
    declared = [footprint(call.cls, call.method, level) or Footprint() for call in turn.calls]
    return [
        (earlier, later)
        for later in range(len(declared))
        for earlier in range(later)
        if conflicts(declared[earlier], declared[later])
    ]


def latest_first(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The linear extension that always takes the latest of the calls that may run.

    Args:
        count: How many calls there are.
        edges: Pairs (before, after), each with the smaller position first.

    Returns:
        Positions in the order to run them.
    """
    order: list[int] = []
    left = set(range(count))
    while left:
        blocked = {after for before, after in edges if before in left}
        order.append(max(left - blocked))
        left.remove(order[-1])
    return order


def adversarial_orders(program: Program, level: Level) -> list[list[int]]:
    """For each turn, the order of `latest_first` under the declarations of a level."""
    return [latest_first(len(turn.calls), order_edges(turn, level)) for turn in program.turns]


def freed_calls(turn: Turn, level: Level) -> int:
    """How many calls of a turn, the first aside, wait for no earlier call of it."""
    waiting = {later for _, later in order_edges(turn, level)}
    return max(0, len(turn.calls) - 1 - len(waiting))


def merge_turns(program: Program) -> Program:
    """The same program as one turn without a user in between, which leaves far more calls to be ordered."""
    user = "\n".join(turn.user for turn in program.turns if turn.user)
    return replace(program, turns=(Turn(user, tuple(call for turn in program.turns for call in turn.calls)),))
