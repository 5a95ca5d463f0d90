"""Memory of one pending future."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path as FilePath
from typing import Any

from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.cost.lab import called, named
from benchmarks.cost.sizes import Sizes
from langgraph_flash import FlashNode, FutureRuntime, uses

__all__ = ["measure_memory"]


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

    node = FlashNode([uses(pure=True)(named(wait))], grace=0, runtime=runtime)
    builder = StateGraph(MessagesState)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    graph: Any = builder.compile()

    def run(calls: int) -> Any:
        message = called("wait", [{"number": index} for index in range(calls)])
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
