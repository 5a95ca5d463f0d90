"""One more future among many pending ones."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.cost.lab import called, named, own_runtime
from benchmarks.cost.overhead import timed
from benchmarks.cost.sizes import Sizes
from langgraph_flash import FlashNode, FutureRuntime, flash_condition, uses
from langgraph_flash.futures import PURE, Access, Future, Scope

__all__ = ["measure_pending"]


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

    with own_runtime() as runtime:
        node, clock = timed(FlashNode([uses(pure=True)(named(wait))], grace=0, runtime=runtime))
        number, stage, before = (-1 if variant == "same" else 0), "", 0.0

        def model(state: MessagesState) -> dict[str, Any]:
            nonlocal number, stage, before
            if number < 0:
                number = 0
                return called("wait", [{"number": -1}] * count)
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
            return called("wait", [{"number": number}])

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
