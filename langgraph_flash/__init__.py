"""Make an existing LangGraph graph faster, cheaper and better without rewriting it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_flash.futures.runtime import FutureRuntime
    from langgraph_flash.futures.timeouts import Timeout, heartbeat
    from langgraph_flash.futures.uses import uses
    from langgraph_flash.nodes.condition import flash_condition
    from langgraph_flash.nodes.flash_node import FlashNode

__all__ = ["FlashNode", "FutureRuntime", "Timeout", "flash_condition", "heartbeat", "uses"]

# Names are imported when they are first used: the command line and the model server do without LangGraph.
_HOMES = {
    "FlashNode": "langgraph_flash.nodes.flash_node",
    "FutureRuntime": "langgraph_flash.futures.runtime",
    "Timeout": "langgraph_flash.futures.timeouts",
    "flash_condition": "langgraph_flash.nodes.condition",
    "heartbeat": "langgraph_flash.futures.timeouts",
    "uses": "langgraph_flash.futures.uses",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
