"""Random call graphs through a real graph, against their critical path."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.cost.lab import own_runtime
from benchmarks.cost.sizes import MODES, Mode, Sizes
from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses
from langgraph_flash.futures import BARRIER, PURE, Access, conflicts
from langgraph_flash.nodes.ledger import read_ledger

__all__ = ["ALLOWED_PER_CALL", "PlannedCall", "critical_path_seconds", "measure_makespan", "random_program"]


ALLOWED_PER_CALL = 0.001
"""Seconds per call that a makespan may exceed the critical path by, before the ratio is taken."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call of a random program."""

    number: int
    message: int
    """Which AIMessage it is in."""
    tool: str
    seconds: float
    source: str = ""
    target: str = ""
    inputs: tuple[int, ...] = ()
    """Numbers of the calls of earlier messages whose results it takes."""

    @property
    def access(self) -> Access:
        """What it touches, written down independently of the tools' templates."""
        source, target = (("data", *path.split("/")) for path in (self.source, self.target))
        match self.tool:
            case "think":
                return PURE
            case "look":
                return Access(reads=(source,))
            case "change":
                return Access(writes=(target,))
            case "move":
                return Access(reads=(source,), writes=(target,))
            case _:
                return BARRIER


def random_program(rng: random.Random, sizes: Sizes) -> list[PlannedCall]:
    """A program of calls in one to four messages, over a few paths that contain one another."""
    paths = ("a", "a/x", "a/y", "b", "b/x", "c", "d/x", "d/y")
    count = rng.randint(*sizes.calls)
    messages = min(rng.randint(1, 4), count)
    starts = sorted(rng.sample(range(1, count), messages - 1))
    calls = []
    for number in range(count):
        message = sum(number >= start for start in starts)
        first = starts[message - 1] if message else 0
        tool = rng.choices(("think", "look", "change", "move", "everything"), (35, 30, 20, 10, 5))[0]
        inputs = rng.sample(range(first), min(first, rng.randint(1, 2))) if rng.random() < 0.3 else []
        seconds = rng.uniform(*sizes.durations)
        calls.append(
            PlannedCall(number, message, tool, seconds, rng.choice(paths), rng.choice(paths), tuple(sorted(inputs)))
        )
    return calls


def critical_path_seconds(program: Sequence[PlannedCall]) -> float:
    """The longest chain of calls that must follow one another: the least time that any order of execution takes.

    A call follows every earlier one it conflicts with, and those it takes results from.
    """
    ends: list[float] = []
    for call in program:
        ends.append(max((ends[other.number] for other in predecessors(program, call)), default=0.0) + call.seconds)
    return max(ends)


def predecessors(program: Sequence[PlannedCall], call: PlannedCall) -> list[PlannedCall]:
    """The earlier calls that must have ended before this one starts, by the plain pairwise definition."""
    return [
        other for other in program[: call.number] if other.number in call.inputs or conflicts(other.access, call.access)
    ]


@dataclass(slots=True)
class _Trace:
    """The program that runs, and when its calls did."""

    program: list[PlannedCall]
    first: float = 0.0
    """When the model first spoke."""
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse a run that broke the program's order: its makespan would say nothing."""
        for call in self.program:
            for other in predecessors(self.program, call):
                if self.started[call.number] < self.ended[other.number]:
                    raise RuntimeError(f"{call} started before {other} had ended.")


class _Theatre:
    """A graph whose model emits a program message by message, and whose tools take the time it says."""

    def __init__(self, mode: Mode, runtime: FutureRuntime) -> None:
        self.mode: Mode = mode
        self.trace = _Trace([])
        self.node = FlashNode(self._tools(), grace=0, runtime=runtime)
        builder = StateGraph(MessagesState)
        builder.add_node("model", self._model)
        builder.add_node("tools", self.node)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", flash_condition, {"tools": "tools", END: END})
        builder.add_edge("tools", "model")
        self.graph: Any = builder.compile()

    def _tools(self) -> list[BaseTool]:
        def sync_run(number: int) -> str:
            self.trace.started[number] = time.perf_counter()
            time.sleep(self.trace.program[number].seconds)
            self.trace.ended[number] = time.perf_counter()
            return f"result {number}"

        async def async_run(number: int) -> str:
            self.trace.started[number] = time.perf_counter()
            await asyncio.sleep(self.trace.program[number].seconds)
            self.trace.ended[number] = time.perf_counter()
            return f"result {number}"

        def think(number: int, inputs: list[str]) -> str:
            """Touch nothing."""
            return sync_run(number)

        async def athink(number: int, inputs: list[str]) -> str:
            """Touch nothing."""
            return await async_run(number)

        def move(number: int, inputs: list[str], source: str, target: str) -> str:
            """Touch one path or two."""
            return sync_run(number)

        async def amove(number: int, inputs: list[str], source: str, target: str) -> str:
            """Touch one path or two."""
            return await async_run(number)

        def made(name: str, plain: Any, coroutine: Any, declaration: Mapping[str, Any]) -> BaseTool:
            function = {"func": plain} if self.mode == "sync" else {"coroutine": coroutine}
            tool: BaseTool = StructuredTool.from_function(**function, name=name)
            return uses(**declaration)(tool)

        return [
            made("think", think, athink, {"pure": True}),
            made("look", move, amove, {"reads": "data/{source}"}),
            made("change", move, amove, {"writes": "data/{target}"}),
            made("move", move, amove, {"reads": "data/{source}", "writes": "data/{target}"}),
            made("everything", think, athink, {"barrier": True, "background": True}),
        ]

    def _model(self, state: MessagesState) -> dict[str, Any]:
        messages = state["messages"]
        turn = sum(isinstance(message, AIMessage) and bool(message.tool_calls) for message in messages)
        if turn == 0:
            self.trace.first = time.perf_counter()
        todo = [call for call in self.trace.program if call.message == turn]
        if not todo:
            return {"messages": [AIMessage("done")]}
        pending = {record.call: record.future for record in read_ledger(messages).pending.values()}
        calls = []
        for call in todo:
            # What has been delivered is passed by value, as a model would.
            args: dict[str, Any] = {
                "number": call.number,
                "inputs": [pending.get(f"call-{number}", f"result {number}") for number in call.inputs],
            }
            if call.tool in ("look", "change", "move"):
                args |= {"source": call.source, "target": call.target}
            calls.append({"name": call.tool, "args": args, "id": f"call-{call.number}", "type": "tool_call"})
        return {"messages": [AIMessage("", tool_calls=calls)]}

    async def arun(self, program: list[PlannedCall]) -> tuple[float, float]:
        """Seconds to the end of the run, and to the end of the last call, from the model's first word."""
        self.trace = _Trace(program)
        await self.graph.ainvoke({"messages": [("user", "go")]}, {"recursion_limit": 1000})
        return self._ended()

    def run(self, program: list[PlannedCall]) -> tuple[float, float]:
        """The same from synchronous code."""
        self.trace = _Trace(program)
        self.graph.invoke({"messages": [("user", "go")]}, {"recursion_limit": 1000})
        return self._ended()

    def _ended(self) -> tuple[float, float]:
        seconds = time.perf_counter() - self.trace.first
        self.trace.check()
        return seconds, max(self.trace.ended.values()) - self.trace.first


async def _plainly(program: Sequence[PlannedCall], threads: ThreadPoolExecutor | None) -> float:
    """Seconds that bare asyncio takes for the same calls, given the edges: what this machine allows at this moment."""
    loop = asyncio.get_running_loop()
    done: list[asyncio.Task[None]] = []

    async def run(call: PlannedCall, before: Sequence[asyncio.Task[None]]) -> None:
        for task in before:
            await task
        if threads is None:
            await asyncio.sleep(call.seconds)
        else:
            await loop.run_in_executor(threads, time.sleep, call.seconds)

    edges = [predecessors(program, call) for call in program]
    started = time.perf_counter()
    for call, before in zip(program, edges, strict=True):
        done.append(loop.create_task(run(call, [done[other.number] for other in before])))
    await asyncio.gather(*done)
    return time.perf_counter() - started


def measure_makespan(sizes: Sizes, step: Callable[[str], None]) -> dict[str, Any]:
    """Random call graphs, from the model's first word to the end of the run: deliveries and all supersteps included.

    `ratio` is the sum of (makespan - 1 ms per call) over the sum of critical paths; `calls_only` is the same up to the
    end of the last call, which leaves out the supersteps that deliver the last results; `plain` is the same again for
    tasks of bare asyncio that are told the edges, run in between, which shows what the machine allowed.
    """
    rng = random.Random(sizes.seed)
    programs = [random_program(rng, sizes) for _ in range(sizes.graphs)]
    limits = [critical_path_seconds(program) for program in programs]
    allowed = [ALLOWED_PER_CALL * len(program) for program in programs]
    report: dict[str, Any] = {
        "graphs": len(programs),
        "calls": sum(map(len, programs)),
        "critical_path_seconds": sum(limits),
        "serial_seconds": sum(call.seconds for program in programs for call in program),
    }
    for mode in MODES:
        best = [(math.inf, math.inf, math.inf)] * len(programs)
        threads = ThreadPoolExecutor(sizes.calls[1]) if mode == "sync" else None
        with own_runtime() as runtime, asyncio.Runner() as runner:
            theatre = _Theatre(mode, runtime)
            for _ in range(sizes.graph_repeats):
                for index, program in enumerate(programs):
                    whole, last = theatre.run(program) if mode == "sync" else runner.run(theatre.arun(program))
                    plain = runner.run(_plainly(program, threads))
                    best[index] = tuple(map(min, best[index], (whole, last, plain)))  # type: ignore[assignment]
                    step(f"call graphs, {mode} tools")
        if threads is not None:
            threads.shutdown()
        ratios = [(found[0] - extra) / limit for found, extra, limit in zip(best, allowed, limits, strict=True)]
        whole, last, plain = (sum(parts) for parts in zip(*best, strict=True))
        report[mode] = {
            "ratio": (whole - sum(allowed)) / sum(limits),
            "median": statistics.median(ratios),
            "worst": max(ratios),
            "calls_only": (last - sum(allowed)) / sum(limits),
            "plain": (plain - sum(allowed)) / sum(limits),
            "without_allowance": whole / sum(limits),
            "plain_without_allowance": plain / sum(limits),
        }
    return report
