"""The node's own time for instant tools, against the stock node's."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime

from benchmarks.cost.lab import own_runtime
from benchmarks.cost.sizes import MODES, Mode, Sizes
from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses

__all__ = ["Clock", "measure_overhead", "timed"]


class Clock:
    """Collects the seconds that a node took, visit by visit."""

    def __init__(self) -> None:
        self.seconds: list[float] = []


def timed(node: ToolNode) -> tuple[ToolNode, Clock]:
    """The node, timed where the graph calls it."""
    clock = Clock()
    kind: Any = type(node)

    class Timed(kind):  # type: ignore[misc]
        def invoke(self, *args: Any, **kwargs: Any) -> Any:
            before = time.perf_counter()
            result = super().invoke(*args, **kwargs)
            clock.seconds.append(time.perf_counter() - before)
            return result

        async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
            before = time.perf_counter()
            result = await super().ainvoke(*args, **kwargs)
            clock.seconds.append(time.perf_counter() - before)
            return result

    node.__class__ = Timed
    return node, clock


def _instant_tools(mode: Mode) -> list[BaseTool]:
    def add(number: int, text: str) -> str:
        """Put two values together."""
        return f"{text}{number}"

    async def aadd(number: int, text: str) -> str:
        """Put two values together."""
        return f"{text}{number}"

    if mode == "sync":
        return [StructuredTool.from_function(func=add, name="add")]
    return [StructuredTool.from_function(coroutine=aadd, name="add")]


def _turns_graph(node: ToolNode, per_message: int, turns: int) -> Any:
    """A graph whose model calls `add` so many times in each of so many messages."""

    def model(state: MessagesState) -> dict[str, Any]:
        turn = sum(isinstance(message, AIMessage) for message in state["messages"])
        calls = [
            {"name": "add", "args": {"number": i, "text": "x"}, "id": f"call-{turn}-{i}", "type": "tool_call"}
            for i in range(per_message if turn < turns else 0)
        ]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", flash_condition, {"tools": "tools", END: END})
    builder.add_edge("tools", "model")
    return builder.compile()


class _OtherLoop(ToolNode):
    """The stock node, run on a runtime's loop: what crossing threads costs before anything else is done."""

    crossing: FutureRuntime

    async def _afunc(self, input: Any, config: RunnableConfig, runtime: Runtime) -> Any:
        visit = super()._afunc(input, config, runtime)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(visit, self.crossing.start()))


def _nodes(mode: Mode, runtime: FutureRuntime) -> dict[str, ToolNode]:
    tools = _instant_tools(mode)
    nodes: dict[str, ToolNode] = {
        "stock": ToolNode(tools),
        "default": FlashNode(tools, runtime=runtime),
        "futures": FlashNode([uses(pure=True)(tool) for tool in tools], grace=60.0, runtime=runtime),
    }
    if mode == "async":
        other = nodes["other_loop"] = _OtherLoop(tools)
        other.crossing = runtime
    return nodes


@dataclass(slots=True)
class _Contestant:
    """One node in its graph, and what its runs took per call."""

    graph: Any
    clock: Clock
    node: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(self, calls: int, runner: asyncio.Runner | None) -> None:
        """Run once and note the time in the node, of the whole run, and of the processor."""
        self.clock.seconds.clear()
        before, cpu = time.perf_counter(), time.process_time()
        if runner is None:
            self.graph.invoke({"messages": [("user", "go")]})
        else:
            runner.run(self.graph.ainvoke({"messages": [("user", "go")]}))
        self.cpu.append((time.process_time() - cpu) / calls)
        self.whole.append((time.perf_counter() - before) / calls)
        self.node.append(sum(self.clock.seconds) / calls)


def _low(values: Sequence[float]) -> float:
    """The tenth percentile: a busy machine only ever adds time, and the minimum alone is a matter of luck."""
    return sorted(values)[len(values) // 10]


def measure_overhead(sizes: Sizes, step: Callable[[str], None]) -> dict[str, Any]:
    """Time inside the node, per call, of instant tools; the stock node, the default and the futures mode in turn.

    Tenth percentiles over interleaved runs. `node` is the time inside the node, `graph` that of the whole run, `cpu`
    the processor time of the whole run. The `ratio` of a mode is its node time per call, summed over the message
    sizes, over the stock node's.
    """
    report: dict[str, Any] = {}
    for mode in MODES:
        rows = []
        names: list[str] = []
        with own_runtime() as runtime, asyncio.Runner() as runner:
            for per_message in sizes.per_message:
                contestants = {}
                for name, plain in _nodes(mode, runtime).items():
                    node, clock = timed(plain)
                    contestants[name] = _Contestant(_turns_graph(node, per_message, sizes.turns), clock)
                names = list(contestants)
                turn = random.Random(sizes.seed)
                for repeat in range(sizes.overhead_repeats + 1):
                    for name in turn.sample(names, len(names)):
                        contestants[name].run(sizes.turns * per_message, None if mode == "sync" else runner)
                    if repeat == 0:  # the first one warms up
                        for contestant in contestants.values():
                            for values in (contestant.node, contestant.whole, contestant.cpu):
                                values.clear()
                    step(f"instant {mode} tools, {per_message} per message")
                rows.append(
                    {
                        "calls_per_message": per_message,
                        "node_seconds": {name: _low(contestants[name].node) for name in names},
                        "graph_seconds": {name: _low(contestants[name].whole) for name in names},
                        "cpu_seconds": {name: _low(contestants[name].cpu) for name in names},
                    }
                )
        report[mode] = {"rows": rows, **{name: _against_stock(rows, name) for name in names if name != "stock"}}
    return report


def _against_stock(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    def ratio(kind: str) -> float:
        mine: float = sum(row[kind][name] for row in rows)
        stock: float = sum(row[kind]["stock"] for row in rows)
        return mine / stock

    return {
        "ratio": ratio("node_seconds"),
        "graph_ratio": ratio("graph_seconds"),
        "cpu_ratio": ratio("cpu_seconds"),
        "by_size": {
            str(row["calls_per_message"]): row["node_seconds"][name] / row["node_seconds"]["stock"] for row in rows
        },
    }
