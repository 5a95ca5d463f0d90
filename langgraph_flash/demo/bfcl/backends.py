"""The simulated services of one program: fresh instances, and the execution of one call on them.

The leaderboard's own executor keeps instances in module globals. Here each run owns its instances, and
nothing one run does can reach another: what the simulators share between instances is copied first.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from langgraph_flash.demo.bfcl._package import backend_class, is_stateless
from langgraph_flash.demo.bfcl.programs import Program, public_methods

__all__ = ["execute", "fresh_instances", "result_text"]

# A call is one atomic step whatever thread it runs in, so that only the order of calls can make a difference.
# One lock for all, because some methods use process-wide state: `logarithm` sets the precision of mpmath.
_ATOMIC = threading.Lock()


def fresh_instances(program: Program) -> dict[str, Any]:
    """New instances of the program's classes in their starting state, by class name."""
    instances = {}
    for name in program.classes:
        instance = backend_class(name)()
        if not is_stateless(name):
            config = deepcopy(program.initial_config.get(name, {}))
            instance._load_scenario(config, long_context=program.long_context)
            # Long-context scenarios share dictionaries of a module, which calls would then change for all.
            vars(instance).update(deepcopy(vars(instance)))
        instances[name] = instance
    return instances


def result_text(value: object) -> str:
    """The text of a result, as the leaderboard's executor gives it to a model.

    Strings stay, dictionaries become JSON where they can, anything else is printed the way Python prints it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return str(value)
    return str(value)


def execute(instance: Any, method: str, args: Mapping[str, Any]) -> str:
    """Run one call atomically and return the text of its result.

    A raised exception becomes a text too, as in the leaderboard: there an error is a result like any other.

    Args:
        instance: An instance from `fresh_instances`.
        method: The method's name.
        args: Arguments by name; copied, because the simulators keep what they are given.
    """
    arguments = deepcopy(dict(args))
    for name, parameter in public_methods(type(instance).__name__)[method].parameters.items():
        # A default list is one object per process, and `mention` would append to the one of `post_tweet`.
        if isinstance(parameter.default, list | dict):
            arguments.setdefault(name, deepcopy(parameter.default))
    with _ATOMIC:
        try:
            return result_text(getattr(instance, method)(**arguments))
        except Exception as error:  # noqa: BLE001 - any failure of a simulator is a result
            return f"Error during execution: {error}"
