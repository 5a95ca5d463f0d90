"""`langgraph-flash demo`: programs through ToolNode and FlashNode on the wall clock, a real model, and a report."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from langsmith import tracing_context
from rich.console import Console

from langgraph_flash.demo.bfcl import load_programs
from langgraph_flash.demo.live import Endpoint, Thinking, answer_table, endpoint, run_thinking, time_table
from langgraph_flash.demo.page import coordinator_note, page, replay_note
from langgraph_flash.demo.showcase import RULE, RUNS, Shown, choose, control_table, program_table, show
from langgraph_flash.errors import ConfigurationError, MissingDependencyError
from langgraph_flash.report import (
    TerminalTimeline,
    format_ratio,
    format_seconds,
    progress,
    terminal_table,
    timeline_view,
)

__all__ = ["add_arguments", "run"]

_REPORT = Path("out", "demo.html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--programs", type=int, default=6, metavar="N", help="programs to replay, 0 for none (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses programs and latencies (default: %(default)s)")
    parser.add_argument(
        "--report", type=Path, default=_REPORT, metavar="PATH", help="HTML report to write (default: %(default)s)"
    )
    live = parser.add_argument_group("live part", "sub-agents on a real model; by default on the embedded one")
    live.add_argument("--no-live", action="store_true", help="leave it out")
    live.add_argument("--base-url", metavar="URL", help="OpenAI-compatible endpoint to use instead")
    live.add_argument("--model", metavar="NAME", help="model to ask for at that endpoint")
    live.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds its key")
    live.add_argument(
        "--live-tools", action="store_true", help="let that model coordinate too, instead of replaying a coordinator"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demonstration.

    Returns:
        0, or 1 if any final state differs from that of plain sequential execution.

    Raises:
        ConfigurationError: The options do not fit together, or the report cannot be written.
        EndpointFailed: The given model endpoint did not answer.
        MissingDependencyError: Nothing could be run, because packages are missing.
    """
    if args.programs < 0:
        raise ConfigurationError(f"--programs is {args.programs}; give 0 or more.")
    if args.live_tools and args.base_url is None:
        raise ConfigurationError("--live-tools needs --base-url and --model: the embedded model cannot call tools.")
    _check_writable(args.report)
    console = Console()
    shown: list[Shown] = []
    thinking: Thinking | None = None
    missing: list[MissingDependencyError] = []
    # Nothing a demonstration runs is sent anywhere, whatever the environment asks for.
    with tracing_context(enabled=False):
        if args.programs:
            try:
                shown = _replay(args.programs, args.seed, console)
            except MissingDependencyError as error:
                missing.append(error)
                console.print(f"The replayed part is left out. {error}", markup=False)
            else:
                _write(args.report, page(shown, None, seed=args.seed))
        if not args.no_live:
            try:
                with endpoint(args.base_url, args.model, args.api_key_env) as target:
                    thinking = _think(target, args.live_tools, console)
            except MissingDependencyError as error:
                missing.append(error)
                console.print(f"The live part is left out. {error}", markup=False)
            else:
                _write(args.report, page(shown, thinking, seed=args.seed))
    if not shown and thinking is None:
        if missing:
            raise missing[0]
        raise ConfigurationError("--programs 0 with --no-live leaves nothing to show.")
    console.print(f"Report: {args.report}", markup=False, soft_wrap=True)
    return 0 if all(each.same for each in shown) else 1


def _replay(count: int, seed: int, console: Console) -> list[Shown]:
    programs = choose(load_programs(["base"]), count, seed)
    console.print(f"Replaying {len(programs)} programs of the Berkeley Function Calling Leaderboard: {RULE}.\n")
    shown: list[Shown] = []
    with progress("replaying", total=len(RUNS) * len(programs), console=console) as step:
        for program in programs:
            each = asyncio.run(show(program, seed, step))
            shown.append(each)
            console.print(
                f"  {each.name}: ToolNode {format_seconds(each.comparison.sequential)}, FlashNode "
                f"{format_seconds(each.comparison.seconds)}, {format_ratio(each.comparison.speedup)}",
                markup=False,
            )
    best = max(shown, key=lambda each: each.gain)
    views = [timeline_view("ToolNode", best.stock.spans), timeline_view("FlashNode", best.flash.spans)]
    console.print()
    console.print(terminal_table(program_table(shown)))
    console.print(terminal_table(control_table(shown)))
    console.print(f"\nProgram {best.name}, the one with the largest gain:", markup=False)
    console.print(TerminalTimeline(views))
    console.print(f"\n{replay_note()}\n", markup=False)
    return shown


def _think(target: Endpoint, live_tools: bool, console: Console) -> Thinking:
    console.print(f"Live: asking {target.model} …", markup=False)
    thinking = asyncio.run(run_thinking(target, live_tools=live_tools))
    views = [timeline_view("ToolNode", thinking.stock.spans), timeline_view("FlashNode", thinking.flash.spans)]
    console.print(f"{coordinator_note(thinking)}\n", markup=False)
    console.print(terminal_table(answer_table(thinking)))
    console.print(terminal_table(time_table(thinking)))
    console.print(TerminalTimeline(views))
    console.print()
    return thinking


def _check_writable(path: Path) -> None:
    """Refuse a report that could not be written before anything is run for it; nothing is written yet.

    Raises:
        ConfigurationError: The path is a folder, or there is no folder to write it to.
    """
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if path.is_dir():
        problem = "is a folder"
    elif nearest != path and not nearest.is_dir():
        problem = f"would be inside {str(nearest)!r}, which is a file"
    elif not os.access(nearest, os.W_OK):
        problem = "may not be written"
    else:
        return
    raise ConfigurationError(f"--report {str(path)!r} {problem}; give the path of a file to write.")


def _write(path: Path, html: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
