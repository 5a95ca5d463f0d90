"""How long each call of a program pretends to take: models that always give the same number.

A model is a pure function of a program and the position of a call in it. `delays` turns one into what tools
need, which only know their own name and arguments.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langgraph_flash.demo.bfcl.programs import Program
from langgraph_flash.errors import ConfigurationError

__all__ = ["LatencyModel", "constant", "delays", "descending", "halving", "none", "proportional", "uniform"]

LatencyModel: TypeAlias = Callable[[Program, int, int], float]
"""Seconds taken by a call, from the program, the index of the turn and the call's index within it."""


def _checked(**seconds: float) -> None:
    for name, value in seconds.items():
        if not value >= 0:
            raise ConfigurationError(f"{name} is {value!r}; a latency is a number of seconds, at least 0.")


def constant(seconds: float) -> LatencyModel:
    """Every call takes the same time."""
    _checked(seconds=seconds)
    return lambda program, turn, call: seconds


def none() -> LatencyModel:
    """No call takes any time."""
    return constant(0.0)


def uniform(low: float, high: float, *, seed: int = 0) -> LatencyModel:
    """Each call takes its own time, evenly spread between two bounds.

    Args:
        low: Shortest time, in seconds.
        high: Longest time, in seconds.
        seed: Chooses the times; the same seed gives the same times in every process.
    """
    _checked(low=low, high=high)

    def seconds(program: Program, turn: int, call: int) -> float:
        digest = hashlib.sha256(f"{seed}/{program.id}/{turn}/{call}".encode()).digest()
        return low + (high - low) * (int.from_bytes(digest[:8]) / 2**64)

    return seconds


def proportional(seconds_per_character: float) -> LatencyModel:
    """A call takes time in proportion to the length of its text, as writing it does.

    With the time a model needs for a character as the unit, this sets the ratio of tool time to model time.
    """
    _checked(seconds_per_character=seconds_per_character)
    return lambda program, turn, call: seconds_per_character * len(program.turns[turn].calls[call].source)


def descending(low: float, high: float) -> LatencyModel:
    """Within a turn every call is faster than the one before it, which punishes executors that keep no order.

    Args:
        low: Time of the last call of a turn, in seconds.
        high: Time of the first call of a turn with several, in seconds.
    """
    _checked(low=low, high=high)

    def seconds(program: Program, turn: int, call: int) -> float:
        last = len(program.turns[turn].calls) - 1
        return low + (high - low) * (last - call) / last if last else low

    return seconds


def halving(last: float) -> LatencyModel:
    """Within a turn every call takes twice as long as the one after it, so longer than all later ones together.

    Among calls started together, the later ones then end first, however many of them have to wait for each other:
    an executor without limits runs a turn in the order of `latest_first`, as far as its own rules allow.

    Args:
        last: Time of the last call of a turn, in seconds.
    """
    _checked(last=last)
    return lambda program, turn, call: last * 2.0 ** (len(program.turns[turn].calls) - 1 - call)


def _key(method: str, args: Mapping[str, Any]) -> str:
    return f"{method} {json.dumps(args, sort_keys=True, default=repr)}"


def delays(model: LatencyModel, program: Program) -> Callable[[str, Mapping[str, Any]], float]:
    """The delays of one run of a program, by method and arguments.

    The n-th execution of equal calls gets the time of the n-th such call in the program; a call the program
    does not have takes no time. Make a new one for every run: it counts.

    Args:
        model: The latency model.
        program: The program as loaded, with literal arguments.
    """
    planned: dict[str, list[float]] = {}
    for turn_index, turn in enumerate(program.turns):
        for call_index, call in enumerate(turn.calls):
            key = _key(call.method, call.args)
            planned.setdefault(key, []).append(model(program, turn_index, call_index))
    lock = threading.Lock()

    def delay(method: str, args: Mapping[str, Any]) -> float:
        with lock:
            left = planned.get(_key(method, args), [0.0])
            return left.pop(0) if len(left) > 1 else left[0]

    return delay
