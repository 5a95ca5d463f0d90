"""Programs whose arguments point into earlier results, as a model would write them with unseen futures.

A result is an object and an argument is a scalar, so the bare name of a result is not enough: a projection
says which part of it is meant. Where a literal of a program equals a leaf of an earlier result, the literal
can be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from langgraph_flash.demo.bfcl.oracle import ProgramResult
from langgraph_flash.demo.bfcl.programs import Program, ProgramCall, Turn

__all__ = ["Projection", "Scope", "fill", "projections_of", "resolve", "value_at", "with_projections"]

Scope = Literal["turn", "program"]
"""How far back a projection may point: within its own turn, or to any earlier call of the program."""

# A small number is equal to some part of almost any result, which says nothing about where it came from.
_SMALLEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class Projection:
    """One value inside one earlier result.

    Attributes:
        turn: Index of the turn of the earlier call.
        call: Index of the earlier call within its turn.
        path: Where the value is in the parsed JSON, such as `items[0].id` or `["MA(5)"]`; never empty.
    """

    turn: int
    call: int
    path: str

    def reference(self, name: str) -> str:
        """The projection written after the name of the result, such as `fut_1.items[0].id`."""
        return f"{name}{self.path}" if self.path.startswith("[") else f"{name}.{self.path}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key.isidentifier():
                yield from _leaves(item, f"{path}.{key}" if path else key)
            else:
                yield from _leaves(item, f"{path}[{json.dumps(key)}]")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _telling(value: Any) -> bool:
    """Whether equality with a value suggests that it came from there."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return abs(value) >= _SMALLEST_NUMBER
    return isinstance(value, str) and value != ""


def _projectable(text: str) -> dict[tuple[type, Any], str]:
    """The leaves of one result by type and value, each with the first path that leads to it."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return {}
    found: dict[tuple[type, Any], str] = {}
    for path, leaf in _leaves(parsed, ""):
        if path and _telling(leaf):
            found.setdefault((type(leaf), leaf), path)
    return found


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, change) for item in value]
    return change(value)


def with_projections(program: Program, result: ProgramResult, *, scope: Scope = "turn") -> Program:
    """Replace literals of a program by projections into earlier results.

    Strings and numbers qualify, at any depth of an argument, when an earlier result has an equal leaf of the
    same type. Numbers under 10, booleans and empty strings do not; nor do results that are not JSON. The
    latest earlier result that has the value is taken.

    Args:
        program: The program.
        result: What it returns when run sequentially.
        scope: How far back to look.

    Returns:
        The same program with `Projection` objects inside its arguments.
    """
    earlier: list[tuple[int, int, dict[tuple[type, Any], str]]] = []

    def projected(literal: Any) -> Any:
        if _telling(literal):
            for turn, call, leaves in reversed(earlier):
                path = leaves.get((type(literal), literal))
                if path is not None:
                    return Projection(turn, call, path)
        return literal

    turns: list[Turn] = []
    for turn_index, turn in enumerate(program.turns):
        if scope == "turn":
            earlier.clear()
        calls: list[ProgramCall] = []
        for call_index, call in enumerate(turn.calls):
            calls.append(replace(call, args=_replaced(dict(call.args), projected)))
            earlier.append((turn_index, call_index, _projectable(result.results[turn_index][call_index])))
        turns.append(replace(turn, calls=tuple(calls)))
    return replace(program, turns=tuple(turns))


def projections_of(value: Any) -> list[Projection]:
    """Every projection inside a call's arguments, or inside any part of them, in order."""
    found: list[Projection] = []

    def note(leaf: Any) -> Any:
        if isinstance(leaf, Projection):
            found.append(leaf)
        return leaf

    _replaced(dict(value) if isinstance(value, Mapping) else value, note)
    return found


def value_at(text: str, path: str) -> Any:
    """The leaf of a result's text that a projection's path leads to."""
    return next(item for place, item in _leaves(json.loads(text), "") if place == path)


def fill(args: Mapping[str, Any], value_of: Callable[[Projection], Any]) -> dict[str, Any]:
    """Arguments of a call of a projected program, with every projection replaced by what `value_of` says."""
    filled: dict[str, Any] = _replaced(
        dict(args), lambda leaf: value_of(leaf) if isinstance(leaf, Projection) else leaf
    )
    return filled


def resolve(args: Mapping[str, Any], text_of: Callable[[int, int], str]) -> dict[str, Any]:
    """Put the values back: arguments with every projection replaced by what it points to.

    Args:
        args: Arguments of a call of a projected program.
        text_of: Gives the result text of a call, by turn and by index within the turn.
    """
    return fill(args, lambda projection: value_at(text_of(projection.turn, projection.call), projection.path))
