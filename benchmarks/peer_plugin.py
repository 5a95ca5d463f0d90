"""A pytest plug-in that puts `FlashNode` in the place of `ToolNode` before the tests of a peer are imported."""

from __future__ import annotations

import importlib
import math
import os
from typing import Any

from langgraph_flash import FlashNode

__all__ = ["ToolNode", "pytest_terminal_summary"]

_BUILT = [0]
# Every call takes the background path and still answers in place, which is what the suites assert.
_PATIENCE = math.inf


class ToolNode(FlashNode):
    """`FlashNode` under the name that the suites' error texts expect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _BUILT[0] += 1
        if os.environ.get("FLASH_MODE") == "background":
            kwargs.setdefault("background", True)
            kwargs.setdefault("grace", _PATIENCE)
        super().__init__(*args, **kwargs)


def _replace() -> None:
    homes = {
        "langgraph.prebuilt": ("ToolNode",),
        "langgraph.prebuilt.tool_node": ("ToolNode",),
        "langgraph.prebuilt.chat_agent_executor": ("ToolNode",),
        "langchain.agents.factory": ("ToolNode",),
        "langchain.tools": ("ToolNode",),
        "langchain.tools.tool_node": ("ToolNode", "_ToolNode"),
    }
    for home, names in homes.items():
        module = importlib.import_module(home)
        for name in names:
            if hasattr(module, name):
                setattr(module, name, ToolNode)


_replace()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many nodes went through the replacement."""
    terminalreporter.write_line(f"flash nodes built: {_BUILT[0]}")
