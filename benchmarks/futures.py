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
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from rich.console import Console

from benchmarks.cost.makespan import measure_makespan
from benchmarks.cost.memory import measure_memory
from benchmarks.cost.overhead import measure_overhead
from benchmarks.cost.pending import measure_pending
from benchmarks.cost.sizes import MODES, QUICK, Sizes
from benchmarks.machine import describe_machine
from langgraph_flash.report import Column, TableView, format_count, format_ratio, format_seconds, terminal_table

__all__ = ["BARS", "main", "measure", "tables"]


BARS = {
    "makespan_ratio": 1.05,
    "call_overhead_ratio": 1.3,
    "pending_10k_ratio": 1.5,
    "pending_10k_same_conversation_ratio": 1.5,
    "bytes_per_future": 20_000.0,
}


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
