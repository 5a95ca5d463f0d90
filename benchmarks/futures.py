"""What `FlashNode` and its scheduler cost: `python -m benchmarks.futures [--json] [--quick]`.

Four claims, each a ratio within one run, so that a slow or busy machine changes both sides of it:

    makespan_ratio        random call graphs through a real graph: (wall clock - 1 ms per call) over the critical path
    call_overhead_ratio   the node's own time for instant tools, per call, over that of the stock ToolNode
    pending_10k_ratio     adding and completing one more future beside 10,000 pending ones, over beside 100
                          (in other conversations; within one, whose history names them all, it has its own number)
    bytes_per_future      memory of one pending future, everything included that keeps it alive

Names in the JSON that end in `_ratio` are the worst of what stands beside them; see each section's docstring.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from rich.console import Console

from benchmarks.machine import describe_machine
from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses
from langgraph_flash.futures import BARRIER, PURE, Access, Future, Scope, conflicts
from langgraph_flash.nodes.ledger import read_ledger
from langgraph_flash.report import Column, TableView, format_count, format_ratio, format_seconds, terminal_table

__all__ = ["PlannedCall", "Sizes", "critical_path_seconds", "main", "measure", "random_program"]

ALLOWED_PER_CALL = 0.001
"""Seconds per call that a makespan may exceed the critical path by, before the ratio is taken."""

BARS = {
    "makespan_ratio": 1.05,
    "call_overhead_ratio": 1.3,
    "pending_10k_ratio": 1.5,
    "pending_10k_same_conversation_ratio": 1.5,
    "bytes_per_future": 20_000.0,
}

Mode = Literal["sync", "async"]
MODES: tuple[Mode, ...] = ("async", "sync")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    graphs: int = 200
    graph_repeats: int = 2
    """Runs of every call graph; the fastest counts, since noise only ever adds time."""
    calls: tuple[int, int] = (5, 40)
    durations: tuple[float, float] = (0.005, 0.050)
    per_message: tuple[int, ...] = (1, 4, 16)
    turns: int = 4
    overhead_repeats: int = 150
    few: int = 100
    many: int = 10_000
    scope_batch: int = 50
    pending_samples: int = 40
    memory_futures: int = 10_000
    seed: int = 1


QUICK = Sizes(
    graphs=2,
    graph_repeats=1,
    calls=(3, 6),
    durations=(0.001, 0.003),
    per_message=(1, 2),
    turns=1,
    overhead_repeats=2,
    few=5,
    many=20,
    scope_batch=5,
    pending_samples=3,
    memory_futures=50,
)


# Makespan against the critical path -------------------------------------------------------------------------------


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
        with _runtime() as runtime, asyncio.Runner() as runner:
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


# Overhead per call ------------------------------------------------------------------------------------------------


class _Clock:
    """Collects the seconds that a node took, visit by visit."""

    def __init__(self) -> None:
        self.seconds: list[float] = []


def _timed(node: ToolNode) -> tuple[ToolNode, _Clock]:
    """The node, timed where the graph calls it."""
    clock = _Clock()
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
    clock: _Clock
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
        with _runtime() as runtime, asyncio.Runner() as runner:
            for per_message in sizes.per_message:
                contestants = {}
                for name, plain in _nodes(mode, runtime).items():
                    node, clock = _timed(plain)
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


# One more among many ----------------------------------------------------------------------------------------------


def measure_pending(sizes: Sizes, step: Callable[[str], None]) -> dict[str, Any]:
    """Adding (register and start) and completing one more future beside few and beside many pending ones.

    At scope level the pending ones run, or wait behind one writer, or each behind the one before it; the added one is
    unrelated, or takes its place at the end of the queue (`queued`: it can only be added). At node level they are in
    other conversations (`one_each`: one in each of them; `elsewhere`: all in one), or in the conversation itself
    (`same`), whose history then holds a placeholder for each and whose notifications name them all.
    """
    report: dict[str, Any] = {}
    for variant in ("running", "behind_writer", "chain"):
        report[f"scope_{variant}"] = _compared(sizes, partial(_scope_costs, variant, sizes), rounds=3)
        step(f"scope, {variant}")
    for variant in ("one_each", "elsewhere", "same"):
        report[f"node_{variant}"] = _compared(sizes, partial(_node_costs, variant, sizes), rounds=2)
        step(f"node, {variant}")
    return report


def _compared(sizes: Sizes, costs: Callable[[int], dict[str, float]], rounds: int) -> dict[str, Any]:
    """Both sizes in turn; the smallest of the rounds counts."""
    found: dict[int, dict[str, float]] = {}
    for _ in range(rounds):
        for count in (sizes.few, sizes.many):
            for name, seconds in costs(count).items():
                kept = found.setdefault(count, {})
                kept[name] = min(seconds, kept.get(name, seconds))
    few, many = found[sizes.few], found[sizes.many]
    return {
        "few_seconds": few,
        "many_seconds": many,
        "ratios": {name: many[name] / few[name] for name in few},
    }


def _scope_costs(variant: str, sizes: Sizes, count: int) -> dict[str, float]:
    return asyncio.run(_scope_work(variant, sizes, count))


async def _scope_work(variant: str, sizes: Sizes, count: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    scope = Scope("benchmark", loop=loop)
    forever = asyncio.Event()

    async def wait_forever(arguments: dict[str, Any]) -> None:
        await forever.wait()

    def pending(index: int) -> Future:
        access = PURE
        if variant == "behind_writer":
            access = Access(writes=(("hot",),)) if index == 0 else Access(reads=(("hot", str(index)),))
        elif variant == "chain":
            access = Access(writes=(("hot",),))
        return Future(f"pending-{index}", "wait", access=access, work=wait_forever)

    scope.submit([pending(index) for index in range(count)])
    await asyncio.sleep(0)
    adding, completing, queueing = [], [], []
    number = 0
    for _ in range(sizes.pending_samples):
        done = asyncio.Event()

        async def wait_for_done(arguments: dict[str, Any], done: asyncio.Event = done) -> None:
            await done.wait()

        extra = [
            Future(f"extra-{number + i}", "wait", access=Access(writes=(("free", str(i)),)), work=wait_for_done)
            for i in range(sizes.scope_batch)
        ]
        number += len(extra)
        before = time.perf_counter()
        for future in extra:
            scope.submit([future])
        await asyncio.sleep(0)
        adding.append((time.perf_counter() - before) / len(extra))
        before = time.perf_counter()
        done.set()
        await scope.wait(extra)
        for future in extra:
            scope.forget(future)
        completing.append((time.perf_counter() - before) / len(extra))
        if variant == "running":
            continue
        last = Access(reads=(("hot", "new"),)) if variant == "behind_writer" else Access(writes=(("hot",),))
        queued = [
            Future(f"queued-{number + i}", "wait", access=last, work=wait_forever) for i in range(sizes.scope_batch)
        ]
        number += len(queued)
        before = time.perf_counter()
        for future in queued:
            scope.submit([future])
        queueing.append((time.perf_counter() - before) / len(queued))
    scope.cancel_all("the benchmark is over")
    await asyncio.sleep(0.01)
    costs = {"add": statistics.median(adding), "complete": statistics.median(completing)}
    if queueing:
        # Queued ones stay, so later samples stand behind more of them; the first ones count.
        costs["queue"] = statistics.median(queueing[: max(1, len(queueing) // 4)])
    return costs


@contextmanager
def _runtime() -> Iterator[FutureRuntime]:
    runtime = FutureRuntime()
    try:
        yield runtime
    finally:
        runtime.close()


class _Latch:
    """An event on the runtime's loop that tools wait for and the benchmark sets."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def set(self, runtime: FutureRuntime) -> None:
        runtime.start().call_soon_threadsafe(self._event.set)


def _node_costs(variant: str, sizes: Sizes, count: int) -> dict[str, float]:
    """Rounds of a model that calls a tool, says something final, and is shown the result; each visit is timed."""
    latches: dict[int, _Latch] = {}
    adding: list[float] = []
    completing: list[float] = []
    rounds: list[float] = []

    async def wait(number: int) -> str:
        """Wait for a latch, or forever."""
        if number < 0:
            await asyncio.Event().wait()
        await latches[number].wait()
        return "done"

    with _runtime() as runtime:
        node, clock = _timed(FlashNode([uses(pure=True)(_named(wait))], grace=0, runtime=runtime))
        number, stage, before = (-1 if variant == "same" else 0), "", 0.0

        def model(state: MessagesState) -> dict[str, Any]:
            nonlocal number, stage, before
            if number < 0:
                number = 0
                return _called("wait", [{"number": -1}] * count)
            if stage == "added":
                adding.append(clock.seconds[-1])
                stage = "completed"
                latches[number].set(runtime)
                return {"messages": [AIMessage("done")]}
            if stage == "completed":
                completing.append(clock.seconds[-1])
                rounds.append(time.perf_counter() - before)
                number += 1
            before = time.perf_counter()
            stage = "added"
            latches[number] = _Latch()
            return _called("wait", [{"number": number}])

        def route(state: MessagesState) -> str:
            return END if number >= sizes.pending_samples else flash_condition(state)

        builder = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_node("tools", node)
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", route, {"tools": "tools", END: END})
        builder.add_edge("tools", "model")
        graph: Any = builder.compile()
        if variant != "same":
            runtime.call(lambda: _crowd(runtime, count, 1 if variant == "one_each" else count))
        asyncio.run(graph.ainvoke({"messages": [("user", "go")]}, {"recursion_limit": 100_000}))
    return {
        "add": statistics.median(adding),
        "complete": statistics.median(completing),
        "whole_round": statistics.median(rounds),
    }


async def _crowd(runtime: FutureRuntime, count: int, per_scope: int) -> None:
    """Conversations with running futures."""

    async def wait_forever(arguments: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    for start in range(0, count, per_scope):
        key = f"crowd-{start}"
        scope = runtime.scope(key, lambda loop, key=key: Scope(key, loop=loop))  # type: ignore[misc]
        futures = [Future(f"crowd-{start + i}", "wait", access=PURE, work=wait_forever) for i in range(per_scope)]
        scope.submit(futures)
    await asyncio.sleep(0)


def _named(wait: Callable[[int], Coroutine[Any, Any, str]]) -> BaseTool:
    return StructuredTool.from_function(coroutine=wait, name="wait")


def _called(name: str, arguments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        {"name": name, "args": args, "id": f"call-{time.monotonic_ns()}-{index}", "type": "tool_call"}
        for index, args in enumerate(arguments)
    ]
    return {"messages": [AIMessage("", tool_calls=calls)]}


# Memory -----------------------------------------------------------------------------------------------------------


def measure_memory(sizes: Sizes, step: Callable[[str], None]) -> dict[str, Any]:
    """Memory of one pending future, from before the call to after its placeholder stands in the state.

    Everything counts that was not there before: the AIMessage's call, the placeholder, the task and the coroutines in
    it, LangChain's run manager. In a fresh process each: once with tracemalloc, once by the size of the process.
    """
    report: dict[str, Any] = {"futures": sizes.memory_futures}
    context = multiprocessing.get_context("spawn")
    for traced in (True, False):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            found = pool.submit(_pending_bytes, sizes.memory_futures, traced).result()
        report["traced_bytes" if traced else "resident_bytes"] = found
        step("memory")
    return report


def _pending_bytes(count: int, traced: bool) -> float | None:
    """Bytes per pending future, in this process."""
    runtime = FutureRuntime()
    never = asyncio.Event()

    async def wait(number: int) -> str:
        """Wait forever."""
        await never.wait()
        return "never"

    node = FlashNode([uses(pure=True)(_named(wait))], grace=0, runtime=runtime)
    builder = StateGraph(MessagesState)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    graph: Any = builder.compile()

    def run(calls: int) -> Any:
        message = _called("wait", [{"number": index} for index in range(calls)])
        return asyncio.run(graph.ainvoke(message))

    kept = [run(10)]  # imports and caches
    if traced:
        tracemalloc.start(1)
    before = _used(traced)
    kept.append(run(count))
    while runtime.statistics().running < count:
        time.sleep(0.01)
    after = _used(traced)
    tracemalloc.stop()
    running = runtime.statistics().running
    runtime.close()
    if running < count or before is None or after is None:
        return None
    return (after - before) / count


def _used(traced: bool) -> int | None:
    gc.collect()
    if traced:
        return tracemalloc.get_traced_memory()[0]
    try:
        pages = int(FilePath("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


# Report -----------------------------------------------------------------------------------------------------------

SECTIONS: Mapping[str, Callable[[Sizes, Callable[[str], None]], dict[str, Any]]] = {
    "makespan": measure_makespan,
    "overhead": measure_overhead,
    "pending": measure_pending,
    "memory": measure_memory,
}


def measure(
    sizes: Sizes, sections: Sequence[str] = tuple(SECTIONS), step: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure, and return the JSON: the headline numbers, then each section in full."""
    detail = {name: SECTIONS[name](sizes, step) for name in sections}
    result: dict[str, Any] = {"benchmark": "futures"}
    if "makespan" in detail:
        result["makespan_ratio"] = max(detail["makespan"][mode]["ratio"] for mode in MODES)
    if "overhead" in detail:
        result["call_overhead_ratio"] = max(
            detail["overhead"][mode][name]["ratio"] for mode in MODES for name in ("default", "futures")
        )
    if "pending" in detail:
        ratios = {
            (place, name): ratio
            for place, found in detail["pending"].items()
            for name, ratio in found["ratios"].items()
            if name != "whole_round"
        }
        result["pending_10k_ratio"] = max(ratio for (place, _), ratio in ratios.items() if place != "node_same")
        result["pending_10k_same_conversation_ratio"] = max(
            ratio for (place, _), ratio in ratios.items() if place == "node_same"
        )
    if "memory" in detail:
        result["bytes_per_future"] = detail["memory"]["traced_bytes"]
    result["bars"] = BARS
    return {**result, **detail, "machine": describe_machine()}


def tables(result: Mapping[str, Any]) -> list[TableView]:
    """What was measured, as tables for people."""
    views = []
    rows = []
    for name, bar in BARS.items():
        if (value := result.get(name)) is not None:
            shown = format_count if name == "bytes_per_future" else format_ratio
            rows.append((name, shown(value), shown(bar), "yes" if value <= bar else "no"))
    right: Literal["right"] = "right"
    views.append(
        TableView(
            title="Futures: what they cost",
            columns=(
                Column(name="measure"),
                Column(name="value", align=right),
                Column(name="bar", align=right),
                Column(name="met"),
            ),
            rows=tuple(rows),
            note="{cpu}, {cores_usable} cores, {python}".format(**result["machine"]),
        )
    )
    if found := result.get("makespan"):
        keys = ("ratio", "median", "worst", "calls_only", "plain", "without_allowance")
        views.append(
            TableView(
                title="Makespan over the critical path, 1 ms per call allowed",
                columns=(Column(name="tools"), *(Column(name=key.replace("_", " "), align=right) for key in keys)),
                rows=tuple((mode, *(format_ratio(found[mode][key]) for key in keys)) for mode in MODES),
                note=f"{found['graphs']} random call graphs, {found['calls']} calls",
            )
        )
    if found := result.get("overhead"):
        views.append(
            TableView(
                title="Time in the node per instant call, and over the stock ToolNode's",
                columns=(
                    Column(name="tools"),
                    Column(name="per message", align=right),
                    *(Column(name=name, align=right) for name in ("stock", *_COMPARED, *_COMPARED)),
                ),
                rows=tuple(row for mode in MODES for row in _overhead_rows(mode, found[mode])),
                note="Other loop: the stock node run on another thread's loop, which is what crossing threads costs.",
            )
        )
    if found := result.get("pending"):
        views.append(
            TableView(
                title="One more future, beside few and beside many pending ones",
                columns=(
                    Column(name="pending"),
                    Column(name="what"),
                    Column(name="few", align=right),
                    Column(name="many", align=right),
                    Column(name="ratio", align=right),
                ),
                rows=tuple(
                    (
                        place,
                        name,
                        format_seconds(part["few_seconds"][name]),
                        format_seconds(part["many_seconds"][name]),
                        format_ratio(ratio),
                    )
                    for place, part in found.items()
                    for name, ratio in part["ratios"].items()
                ),
            )
        )
    if found := result.get("memory"):
        views.append(
            TableView(
                title="Memory per pending future",
                columns=(Column(name="by"), Column(name="bytes", align=right)),
                rows=(
                    ("tracemalloc", format_count(found["traced_bytes"])),
                    ("process size", format_count(found["resident_bytes"])),
                ),
                note=f"{format_count(found['futures'])} running async tools",
            )
        )
    return views


_COMPARED = ("default", "futures", "other_loop")


def _overhead_rows(mode: str, found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    def ratio(mine: float | None, stock: float) -> str:
        return format_ratio(None if mine is None else mine / stock)

    for row in found["rows"]:
        node = row["node_seconds"]
        times = (format_seconds(node.get(name)) for name in ("stock", *_COMPARED))
        ratios = (ratio(node.get(name), node["stock"]) for name in _COMPARED)
        yield (mode, str(row["calls_per_message"]), *times, *ratios)
    for label, key in (("all", "ratio"), ("all, whole run", "graph_ratio"), ("all, processor time", "cpu_ratio")):
        yield (mode, label, *[""] * 4, *(ratio(found.get(name, {}).get(key), 1.0) for name in _COMPARED))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.futures", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    parser.add_argument("--only", choices=tuple(SECTIONS), action="append", help="measure only this section")
    parser.add_argument("--graphs", type=int, help="how many random call graphs")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    if options.graphs is not None:
        sizes = replace(sizes, graphs=options.graphs)
    os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"
    shown = ""

    def step(what: str) -> None:
        nonlocal shown
        if what != shown:
            shown = what
            print(f"measuring: {what}", file=sys.stderr)

    result = measure(sizes, options.only or tuple(SECTIONS), step)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    console = Console()
    for view in tables(result):
        console.print(terminal_table(view))


if __name__ == "__main__":
    main()
