"""Runs the leaderboard's 800 programs through ToolNode and FlashNode: is anything different, and how fast can it be?

python -m benchmarks.bfcl                      tables, on all programs
python -m benchmarks.bfcl --json               one JSON object on standard output, progress on standard error
python -m benchmarks.bfcl --programs 80        a seeded sample

Time is virtual: models and tools wait on a clock that jumps, so only the interpreter's own work takes time, and
every number but `seconds` is the same on every machine.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, ToolCall
from rich.console import Console

from langgraph_flash.demo.bfcl import Program, difference, load_programs, run_sequential
from langgraph_flash.demo.bfcl.latency import uniform
from langgraph_flash.demo.equivalence import Verdict, check_program
from langgraph_flash.demo.executors import FLASH_SERIAL, FLASH_USES, TOOLNODE_PARALLEL, TOOLNODE_SEQUENTIAL
from langgraph_flash.demo.replay import replay
from langgraph_flash.demo.speed import Comparison, Total, compare
from langgraph_flash.report import (
    Column,
    TableView,
    format_count,
    format_ratio,
    format_seconds,
    progress,
    terminal_table,
)
from langgraph_flash.testing import count_tokens, run_virtual

T = TypeVar("T")
Speeds = dict[str, dict[str, tuple[Comparison, bool]]]
"""By ratio and executor: the comparison, and whether results and states were those of sequential execution."""

RATIOS: dict[str, float] = {"1:1": 1.0, "1:4": 4.0, "1:0.25": 0.25}
"""Decoding a message with one call : executing a call."""

EXECUTORS = {
    "toolnode_sequential": TOOLNODE_SEQUENTIAL,
    "toolnode_parallel": TOOLNODE_PARALLEL,
    "flash_serial": FLASH_SERIAL,
    "flash_uses": FLASH_USES,
}
FIRST_TOKEN_SECONDS = 0.2
SECONDS_PER_TOKEN = 0.02
PACKAGES = ("langgraph-flash", "langgraph", "langgraph-prebuilt", "langchain-core", "bfcl-eval")


@functools.cache
def programs() -> dict[str, Program]:
    """The programs by id, loaded once in each process."""
    return {program.id: program for program in load_programs()}


@functools.cache
def decode_seconds() -> float:
    """Mean time to decode a message with one call, over all programs."""
    calls = [call for program in programs().values() for turn in program.turns for call in turn.calls]
    return FIRST_TOKEN_SECONDS + SECONDS_PER_TOKEN * statistics.fmean(
        count_tokens(AIMessage("", tool_calls=[ToolCall(name=call.method, args=dict(call.args), id="1")]))
        for call in calls
    )


def verdict_of(name: str, seed: int) -> Verdict:
    return check_program(programs()[name], seed=seed)


def speeds_of(name: str, seed: int) -> Speeds:
    """Run one program through every executor at every ratio."""
    program = programs()[name]
    reference = run_sequential(program)
    found: Speeds = {}
    for label, ratio in RATIOS.items():
        mean = ratio * decode_seconds()
        runs = {
            key: run_virtual(
                replay(
                    program,
                    executor,
                    latency=uniform(0.5 * mean, 1.5 * mean, seed=seed),
                    first_token_seconds=FIRST_TOKEN_SECONDS,
                    seconds_per_token=SECONDS_PER_TOKEN,
                )
            )
            for key, executor in EXECUTORS.items()
        }
        baseline = runs["toolnode_sequential"]
        found[label] = {
            key: (
                compare(program, baseline, run, EXECUTORS[key].footprints),
                difference(reference, run.outcome) is None,
            )
            for key, run in runs.items()
        }
    return found


def mapped(pool: ProcessPoolExecutor, work: Callable[[str], T], names: Sequence[str], what: str) -> list[T]:
    with progress(what, total=len(names), console=Console(stderr=True)) as step:
        results = []
        for name, result in zip(names, pool.map(work, names, chunksize=4), strict=True):
            results.append(result)
            step(name)
        return results


def count_different(differences: Iterable[dict[str, str | None]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for each in differences:
        counts.update({name: int(found is not None) for name, found in each.items()})
    return dict(counts)


def summary(verdicts: Sequence[Verdict], speeds: Sequence[Speeds], seconds: float) -> dict[str, Any]:
    """Everything that was measured, ready for JSON."""
    return {
        "programs": len(verdicts),
        "differ": count_different(dict(verdict.adversarial) for verdict in verdicts),
        "differ_random": count_different(dict(verdict.random) for verdict in verdicts),
        "differ_projected": count_different(dict(verdict.projected) for verdict in verdicts),
        "projections": sum(verdict.projections for verdict in verdicts),
        "programs_projected": sum(verdict.projections > 0 for verdict in verdicts),
        "references": dict(sum((Counter(dict(verdict.references)) for verdict in verdicts), Counter())),
        "speed": {
            "programs": len(speeds),
            "decode_seconds": round(decode_seconds(), 4),
            "ratios": {ratio: speed_rows(speeds, ratio) for ratio in RATIOS} if speeds else {},
        },
        "seconds": round(seconds, 1),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "versions": {package: version(package) for package in PACKAGES},
        },
    }


def speed_rows(speeds: Sequence[Speeds], ratio: str) -> dict[str, dict[str, float | int | None]]:
    rows: dict[str, dict[str, float | int | None]] = {}
    for key in EXECUTORS:
        found = [each[ratio][key] for each in speeds]
        total = Total(comparison for comparison, _ in found)
        # The bound is one on runs that keep the order of the calls; the control does not keep it.
        ordered = key != "toolnode_parallel"
        rows[key] = {
            "seconds": round(total.seconds, 3),
            "speedup": round(total.speedup, 4),
            "bound": round(total.bound, 4) if ordered else None,
            "bound_with_turns": round(total.bound_with_turns, 4) if ordered else None,
            "saved_de": round(total.saved_de, 3),
            "saved_ff": round(total.saved_ff, 3),
            "differ": sum(not same for _, same in found),
        }
    return rows


def difference_table(data: dict[str, Any]) -> TableView:
    rows = [
        (label, *(format_count(data[key].get(name)) for key in ("differ", "differ_random", "differ_projected")))
        for name, label in (
            ("flash_serial", FLASH_SERIAL.label),
            ("flash_uses", FLASH_USES.label),
            ("toolnode_parallel", f"{TOOLNODE_PARALLEL.label} (control)"),
        )
    ]
    return TableView(
        title=f"Programs of {data['programs']} that end differently from sequential execution",
        columns=(
            Column(name="executor"),
            Column(name="latest call first", align="right"),
            Column(name="random latencies", align="right"),
            Column(name="references, latest first", align="right"),
        ),
        rows=tuple(rows),
        note="Compared strictly: the text of every result and every attribute of every service, private ones too. "
        f"References replace {data['projections']} arguments in {data['programs_projected']} programs.",
    )


def speed_tables(data: dict[str, Any]) -> list[TableView]:
    tables = []
    for ratio, rows in data["speed"]["ratios"].items():
        tables.append(
            TableView(
                title=f"Speed in virtual time, decoding : executing = {ratio}",
                columns=(
                    Column(name="executor"),
                    Column(name="time", unit="s", align="right"),
                    Column(name="speed-up", align="right"),
                    Column(name="bound", align="right"),
                    Column(name="bound, extra turns", align="right"),
                    Column(name="D‖E", unit="s", align="right"),
                    Column(name="F‖F", unit="s", align="right"),
                    Column(name="differ", align="right"),
                ),
                rows=tuple(
                    (
                        EXECUTORS[key].label,
                        format_seconds(row["seconds"], unit="s"),
                        format_ratio(row["speedup"]),
                        format_ratio(row["bound"]) if row["bound"] else "–",  # noqa: RUF001 - the report's own dash
                        format_ratio(row["bound_with_turns"]) if row["bound_with_turns"] else "–",  # noqa: RUF001
                        format_seconds(row["saved_de"], unit="s"),
                        format_seconds(row["saved_ff"], unit="s"),
                        format_count(row["differ"]),
                    )
                    for key, row in rows.items()
                ),
                note=f"Sums over {data['speed']['programs']} programs. Decoding: {FIRST_TOKEN_SECONDS} s to the first "
                f"token and {SECONDS_PER_TOKEN} s a token, {data['speed']['decode_seconds']:.2f} s for a mean message "
                "with one call. Executing: seeded, within half of its mean. The parallel ToolNode is a control: where "
                "it differs it is wrong, and its time means nothing.",
            )
        )
    return tables


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bfcl", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--programs", type=int, metavar="N", help="compare a seeded sample of N programs")
    parser.add_argument(
        "--speed-programs", type=int, default=100, metavar="N", help="sample for the speed tables (default: 100)"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses samples and random latencies (default: 0)")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8), help="processes (default: cores)")
    args = parser.parse_args(arguments)
    start = time.monotonic()
    names = list(programs())
    draw = random.Random(args.seed)
    chosen = names if args.programs is None else sorted(draw.sample(names, min(args.programs, len(names))))
    timed = sorted(draw.sample(chosen, min(args.speed_programs, len(chosen))))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, mp_context=context) as pool:
        verdicts = mapped(pool, functools.partial(verdict_of, seed=args.seed), chosen, "comparing")
        speeds = mapped(pool, functools.partial(speeds_of, seed=args.seed), timed, "timing")
    data = summary(verdicts, speeds, time.monotonic() - start)
    if args.json:
        print(json.dumps(data))
        return 0
    console = Console()
    console.width = max(console.width, 100)  # the tables need it, also in a pipe
    for table in (difference_table(data), *speed_tables(data)):
        console.print(terminal_table(table))
        console.print()
    for verdict in verdicts:
        for kind, found in (("latest", verdict.adversarial), ("random", verdict.random), ("refs", verdict.projected)):
            for name, what in found.items():
                if what is not None and name != "toolnode_parallel":
                    console.print(f"{verdict.program} {kind} {name}: {what}", markup=False)
    console.print(f"{data['seconds']} s on {data['machine']['cpus']} cores, Python {data['machine']['python']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
