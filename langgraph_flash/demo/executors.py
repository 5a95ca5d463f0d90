"""The ways to execute a program's calls that are compared: the same tools in four different nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode

from langgraph_flash.demo.bfcl import Footprint, Level
from langgraph_flash.futures import FutureRuntime, uses
from langgraph_flash.futures.future import Future
from langgraph_flash.nodes import FlashNode

__all__ = [
    "FLASH_SERIAL",
    "FLASH_USES",
    "TOOLNODE_PARALLEL",
    "TOOLNODE_SEQUENTIAL",
    "Executor",
    "Mode",
    "declare",
    "in_adversarial_order",
    "without_grace",
]

Mode = Literal["all", "one"]
"""How a model writes the calls of a turn: all in one message, or one message each."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A way to execute calls."""

    label: str
    """What tables and pictures call it."""

    mode: Mode
    """How its model writes calls."""

    footprints: Level
    """What its tools declare."""

    node: Callable[[list[BaseTool]], ToolNode]
    """Makes the tools node."""


def declare(tool: BaseTool, footprint: Footprint) -> BaseTool:
    """Attach a footprint to a tool the way an application would, with `@uses`."""
    return uses(reads=footprint.reads, writes=footprint.writes)(tool)


def _flash(tools: list[BaseTool]) -> ToolNode:
    # The runtime lives on the caller's loop, which may be one in virtual time, and ends with it.
    return FlashNode(tools, background=True, runtime=FutureRuntime(loop="caller"))


def _impatient(tools: list[BaseTool]) -> ToolNode:
    return FlashNode(tools, background=True, grace=0, runtime=FutureRuntime(loop="caller"))


def _latest_first(tools: list[BaseTool]) -> ToolNode:
    runtime = FutureRuntime(loop="caller", order=_by_descending_index, eager=False)
    return FlashNode(tools, background=True, grace=0, runtime=runtime, max_parallel=1)


def _by_descending_index(call: Future) -> int:
    return -call.index


def in_adversarial_order(footprints: Level) -> Executor:
    """`FlashNode` where, without any clock, always the latest of the calls that may run is the next to run.

    Every pair of calls that the declarations leave unordered then runs reversed wherever that is possible.
    """
    return Executor("FlashNode, latest call first", "all", footprints, _latest_first)


def without_grace(footprints: Level) -> Executor:
    """`FlashNode` that never waits for a result before it answers with a placeholder."""
    return Executor("FlashNode, no grace", "one", footprints, _impatient)


TOOLNODE_SEQUENTIAL = Executor("ToolNode, one by one", "one", "none", ToolNode)
"""The honest baseline: a model that writes one call, waits for its result, and writes the next."""

TOOLNODE_PARALLEL = Executor("ToolNode, all at once", "all", "none", ToolNode)
"""The control: fast, and wrong wherever the calls of a message depend on each other."""

FLASH_SERIAL = Executor("FlashNode, serial", "one", "none", _flash)
"""Calls run one after another, beside the model's decoding."""

FLASH_USES = Executor("FlashNode, uses", "one", "attribute", _flash)
"""Calls run beside the model's decoding, and beside each other where they touch different things."""
