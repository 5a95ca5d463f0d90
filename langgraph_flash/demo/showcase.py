"""The replayed half of the demonstration: which programs, run how, and the tables that say what came out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from langgraph_flash.demo.bfcl import Program, ProgramResult, difference, freed_calls, run_sequential
from langgraph_flash.demo.bfcl.latency import uniform
from langgraph_flash.demo.executors import FLASH_USES, TOOLNODE_PARALLEL, TOOLNODE_SEQUENTIAL, Executor
from langgraph_flash.demo.replay import Replay, replay
from langgraph_flash.demo.speed import Comparison, Total, compare
from langgraph_flash.report import Column, TableView, format_ratio, format_seconds

__all__ = [
    "CALL_SECONDS",
    "DECODE_SECONDS",
    "RULE",
    "RUNS",
    "Shown",
    "choose",
    "control_table",
    "program_table",
    "show",
]

DECODE_SECONDS = 0.15
"""How long the replayed model takes for a message."""

CALL_SECONDS = (0.2, 0.6)
"""Between which bounds the seeded latency of a call lies."""

RUNS: tuple[Executor, ...] = (TOOLNODE_SEQUENTIAL, FLASH_USES, TOOLNODE_PARALLEL)
"""How each program is run, in this order."""

_DOMAINS = ("GorillaFileSystem", "VehicleControlAPI", "TradingBot", "TravelAPI")
_CALLS = range(4, 7)

RULE = (
    f"{_CALLS[0]} to {_CALLS[-1]} calls, of which the declarations leave at least one free to overlap; shuffled by "
    "the seed, and taken in turn from the file system, the car, the broker and the travel agency"
)
"""How programs are chosen, in words."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One program, run in every way."""

    program: Program = field(repr=False)
    stock: Replay
    flash: Replay
    parallel: Replay
    comparison: Comparison
    """FlashNode beside ToolNode."""
    differences: tuple[str | None, str | None, str | None]
    """What each run left otherwise than plain sequential execution, in the order of `RUNS`."""

    @property
    def name(self) -> str:
        """A short name."""
        return self.program.id.removeprefix("multi_turn_")

    @property
    def same(self) -> bool:
        """Whether both runs that must be right are."""
        return self.differences[0] is None and self.differences[1] is None

    @property
    def gain(self) -> float:
        """Seconds saved."""
        return self.comparison.sequential - self.comparison.seconds


def choose(programs: Iterable[Program], count: int, seed: int) -> list[Program]:
    """Choose programs by `RULE`.

    Args:
        programs: The programs to choose from.
        count: How many; fewer are returned if there are not so many.
        seed: Shuffles them.
    """
    fitting = [
        program
        for program in programs
        if sum(len(turn.calls) for turn in program.turns) in _CALLS
        and any(freed_calls(turn, "attribute") for turn in program.turns)
    ]
    random.Random(seed).shuffle(fitting)  # noqa: S311 - a sample, not a secret
    rows = [[program for program in fitting if domain in program.classes] for domain in _DOMAINS]
    taken = chain.from_iterable(zip_longest(*rows))
    return list({program.id: program for program in taken if program is not None}.values())[:count]


async def show(program: Program, seed: int, on_run: Callable[[str], None]) -> Shown:
    """Run one program in every way, on the wall clock, with the same latencies each time.

    Args:
        program: The program.
        seed: Chooses the latencies.
        on_run: Told the label of each run when it has ended.
    """
    reference = run_sequential(program)
    runs: list[Replay] = []
    for executor in RUNS:
        runs.append(
            await replay(
                program,
                executor,
                latency=uniform(*CALL_SECONDS, seed=seed),
                first_token_seconds=DECODE_SECONDS,
            )
        )
        on_run(executor.label)
    stock, flash, parallel = runs
    return Shown(
        program=program,
        stock=stock,
        flash=flash,
        parallel=parallel,
        comparison=compare(program, stock, flash, FLASH_USES.footprints),
        differences=_differences(reference, stock, flash, parallel),
    )


def _differences(
    reference: ProgramResult, stock: Replay, flash: Replay, parallel: Replay
) -> tuple[str | None, str | None, str | None]:
    return (
        difference(reference, stock.outcome),
        difference(reference, flash.outcome),
        difference(reference, parallel.outcome),
    )


def program_table(shown: Sequence[Shown]) -> TableView:
    """ToolNode and FlashNode side by side, one row for each program and one for all."""
    total = Total(each.comparison for each in shown)
    rows = [
        (
            each.name,
            format_seconds(each.comparison.sequential, unit="s"),
            format_seconds(each.comparison.seconds, unit="s"),
            format_ratio(each.comparison.speedup),
            format_ratio(each.comparison.bound),
            format_seconds(each.comparison.overlap.saving_de, unit="s"),
            format_seconds(each.comparison.overlap.saving_ff, unit="s"),
            "yes" if each.same else "NO",
        )
        for each in shown
    ]
    rows.append(
        (
            "all",
            format_seconds(total.sequential, unit="s"),
            format_seconds(total.seconds, unit="s"),
            format_ratio(total.speedup),
            format_ratio(total.bound),
            format_seconds(total.saved_de, unit="s"),
            format_seconds(total.saved_ff, unit="s"),
            "yes" if all(each.same for each in shown) else "NO",
        )
    )
    return TableView(
        title="ToolNode, one call a message, and FlashNode with declared resources, in seconds",
        columns=(
            Column(name="program"),
            Column(name="ToolNode", align="right"),
            Column(name="FlashNode", align="right"),
            Column(name="speed-up", align="right"),
            Column(name="bound", align="right"),
            Column(name="D‖E", align="right"),
            Column(name="F‖F", align="right"),
            Column(name="same"),
        ),
        rows=tuple(rows),
        note="bound: the most any run that keeps the declared order could gain. D‖E: executing beside decoding. "
        "F‖F: executing beside executing. same: every result and every state, private ones too, equal those of "
        "plain sequential execution.",
    )


def control_table(shown: Sequence[Shown]) -> TableView:
    """The control: what a stock `ToolNode` makes of all calls of a turn at once."""
    return TableView(
        title="Control: ToolNode given all calls of a turn at once, whether they depend on each other or not",
        columns=(
            Column(name="program"),
            Column(name="ToolNode, at once", unit="s", align="right"),
            Column(name="same end"),
            Column(name="first difference"),
        ),
        rows=tuple(
            (
                each.name,
                format_seconds(each.parallel.seconds, unit="s"),
                "yes" if each.differences[2] is None else "NO",
                _short(each.differences[2]),
            )
            for each in shown
        ),
        note="Fast, because it orders nothing; where it ends differently, its time means nothing.",
    )


def _short(text: str | None, limit: int = 44) -> str:
    if text is None:
        return ""
    where = text.partition(" is ")[0]
    return where if len(where) <= limit else f"{where[: limit - 1]}…"
