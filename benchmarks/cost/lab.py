"""What the sections share: a runtime of their own, a tool that waits, and a message that calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool

from langgraph_flash import FutureRuntime

__all__ = ["called", "named", "own_runtime"]


@contextmanager
def own_runtime() -> Iterator[FutureRuntime]:
    runtime = FutureRuntime()
    try:
        yield runtime
    finally:
        runtime.close()


def named(wait: Callable[[int], Coroutine[Any, Any, str]]) -> BaseTool:
    return StructuredTool.from_function(coroutine=wait, name="wait")


def called(name: str, arguments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        {"name": name, "args": args, "id": f"call-{time.monotonic_ns()}-{index}", "type": "tool_call"}
        for index, args in enumerate(arguments)
    ]
    return {"messages": [AIMessage("", tool_calls=calls)]}
