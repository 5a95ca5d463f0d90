"""The simulated services as LangChain tools: one tool for each method of the classes a program involves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langchain_core.tools import BaseTool, StructuredTool

from langgraph_flash.demo.bfcl._package import documentation
from langgraph_flash.demo.bfcl.backends import execute
from langgraph_flash.demo.bfcl.footprints import Footprint, Level, footprint
from langgraph_flash.demo.bfcl.programs import Program
from langgraph_flash.errors import ConfigurationError

__all__ = ["Declare", "Delay", "make_tools"]

Delay: TypeAlias = Callable[[str, Mapping[str, Any]], float]
"""Seconds a call takes before it does anything, from its method and arguments."""

Declare: TypeAlias = Callable[[BaseTool, Footprint], BaseTool]
"""Attaches a footprint to a tool and returns the tool that carries it."""

# The leaderboard names types the way Python does; a model's API wants the names of JSON Schema.
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    translated = dict(schema)
    if "type" in translated:
        translated["type"] = _TYPES.get(translated["type"], translated["type"])
    if "properties" in translated:
        translated["properties"] = {name: _json_schema(each) for name, each in translated["properties"].items()}
    if "items" in translated:
        translated["items"] = _json_schema(translated["items"])
    return translated


def _tool(instance: Any, document: Mapping[str, Any], delay: Delay | None, asynchronous: bool) -> BaseTool:
    method: str = document["name"]

    def call(**arguments: Any) -> str:
        if delay is not None:
            time.sleep(delay(method, arguments))
        return execute(instance, method, arguments)

    async def acall(**arguments: Any) -> str:
        if delay is not None:
            await asyncio.sleep(delay(method, arguments))
        return execute(instance, method, arguments)

    return StructuredTool(
        name=method,
        description=document["description"],
        args_schema=_json_schema(document["parameters"]),
        func=None if asynchronous else call,
        coroutine=acall if asynchronous else None,
    )


def make_tools(
    program: Program,
    instances: Mapping[str, Any],
    *,
    footprints: Level = "none",
    declare: Declare | None = None,
    delay: Delay | None = None,
    asynchronous: bool = True,
) -> list[BaseTool]:
    """Make the tools of a program, acting on the given instances.

    A tool waits first and then acts in one atomic step, so the time it acts at is the time it ends at. Its
    result is the text the leaderboard's executor gives a model; an error object is a result like any other.

    Args:
        program: The program; says which classes are involved.
        instances: Instances by class name, from `fresh_instances`.
        footprints: How finely to declare what each tool reads and writes.
        declare: Attaches a declaration to a tool; needed unless `footprints` is `none`.
        delay: How long each call takes; without it none takes any time.
        asynchronous: Whether tools are coroutines that sleep on the event loop, or functions that block a
            thread.

    Returns:
        One tool a method, named after it.

    Raises:
        ConfigurationError: If footprints are asked for and nothing is given to declare them with.
    """
    if footprints != "none" and declare is None:
        raise ConfigurationError(f"footprints={footprints!r} needs `declare`, which attaches them to the tools.")
    tools: list[BaseTool] = []
    for cls in program.classes:
        for document in documentation(cls):
            tool = _tool(instances[cls], document, delay, asynchronous)
            declared = footprint(cls, document["name"], footprints)
            if declare is not None and declared is not None:
                tool = declare(tool, declared)
            tools.append(tool)
    return tools
