"""The equivalence oracle: run a program one call after another, and say whether another run ended the same.

The leaderboard's own checker skips private attributes, so it does not see the current directory, the random
generators or a brake's force. The canonical form here holds everything a later call could notice.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph_flash.demo.bfcl.backends import execute, fresh_instances
from langgraph_flash.demo.bfcl.programs import Program

__all__ = ["ProgramResult", "canonical", "difference", "run_in_order", "run_sequential"]

# When a file was written differs between any two runs, and no method shows it.
_IGNORED = frozenset({"_last_modified"})


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What a run of a program left behind.

    Attributes:
        results: The text of every result, by turn and by call in program order.
        states: Canonical final state of every instance, by class name.
    """

    results: tuple[tuple[str, ...], ...]
    states: Mapping[str, Any]


class _Canonical:
    """One conversion; it remembers what it has met, so that cycles and shared objects become references."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}

    def value(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        # Whether two places hold one object matters: a change through one of them shows in the other.
        if id(value) in self._seen:
            return {"same as": self._seen[id(value)]}
        self._seen[id(value)] = path
        if isinstance(value, dict):
            # Pairs, because keys may be numbers and because results show the order of insertion.
            pairs = [[self.value(key, path), self.value(item, f"{path}[{key!r}]")] for key, item in value.items()]
            return {"dict": pairs}
        if isinstance(value, list):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, set):
            return {"set": sorted(repr(item) for item in value)}
        if isinstance(value, random.Random):
            return {"random": hashlib.sha256(repr(value.getstate()).encode()).hexdigest()}
        if not hasattr(value, "__dict__"):
            raise TypeError(f"{path} holds a {type(value).__name__}, which has no canonical form yet.")
        return {name: self.value(item, f"{path}.{name}") for name, item in vars(value).items() if name not in _IGNORED}


def canonical(instance: Any) -> dict[str, Any]:
    """The whole state of an instance as JSON-able values, by attribute, private attributes included.

    Dictionaries are lists of pairs in insertion order; a file tree is its names and contents; a random
    generator is a digest of its state; the second mention of one object is a reference to the first. File
    times are left out.
    """
    state: dict[str, Any] = _Canonical().value(instance, type(instance).__name__)
    return state


def run_in_order(program: Program, orders: Sequence[Sequence[int]]) -> ProgramResult:
    """Run a program with the calls of each turn in a given order.

    Args:
        program: What to run.
        orders: For each turn, the positions of its calls in the order to run them.

    Returns:
        The outcome, with results in program order whatever order they were computed in.
    """
    instances = fresh_instances(program)
    results = []
    for turn, order in zip(program.turns, orders, strict=True):
        texts: dict[int, str] = {}
        for position in order:
            call = turn.calls[position]
            texts[position] = execute(instances[call.cls], call.method, call.args)
        results.append(tuple(texts[position] for position in range(len(turn.calls))))
    return ProgramResult(tuple(results), {name: canonical(each) for name, each in instances.items()})


def run_sequential(program: Program) -> ProgramResult:
    """Run a program the way it is written: the reference every other run is compared with."""
    return run_in_order(program, [range(len(turn.calls)) for turn in program.turns])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _differs(a: Any, b: Any, where: str) -> str | None:
    if type(a) is type(b):
        if isinstance(a, dict):
            for key in [*a, *(key for key in b if key not in a)]:
                if key not in a or key not in b:
                    return f"{where}.{key} exists only in the {'first' if key in a else 'second'}"
                if found := _differs(a[key], b[key], f"{where}.{key}"):
                    return found
            return None
        if isinstance(a, list):
            for index, (x, y) in enumerate(zip(a, b, strict=False)):
                if found := _differs(x, y, f"{where}[{index}]"):
                    return found
            if len(a) != len(b):
                return f"{where} has {len(a)} items in the first and {len(b)} in the second"
            return None
        if a == b or (a != a and b != b):  # noqa: PLR0124 - not-a-number equals itself here
            return None
    return f"{where} is {_short(a)} in the first and {_short(b)} in the second"


def difference(a: ProgramResult, b: ProgramResult) -> str | None:
    """Name the first thing that differs between two runs, or `None` when they are the same.

    Results come first, in program order, then states. Values must agree in type too: `1` is not `1.0`.
    """
    if len(a.results) != len(b.results):
        return f"there are {len(a.results)} turns in the first and {len(b.results)} in the second"
    for turn, (first, second) in enumerate(zip(a.results, b.results, strict=True)):
        if len(first) != len(second):
            return f"turn {turn} has {len(first)} results in the first and {len(second)} in the second"
        for call, (x, y) in enumerate(zip(first, second, strict=True)):
            if found := _differs(x, y, f"the result of turn {turn}, call {call}"):
                return found
    return _differs(dict(a.states), dict(b.states), "state")
