"""Does a node leave a program as sequential execution would? Every result and every state, under hostile timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langgraph_flash.demo.bfcl import Program, difference, projections_of, run_sequential, with_projections
from langgraph_flash.demo.bfcl.latency import descending, halving, uniform
from langgraph_flash.demo.executors import (
    FLASH_SERIAL,
    FLASH_USES,
    TOOLNODE_PARALLEL,
    Executor,
    in_adversarial_order,
    without_grace,
)
from langgraph_flash.demo.replay import replay
from langgraph_flash.testing import run_virtual

__all__ = ["ADVERSARIAL", "PROJECTED", "RANDOM", "Verdict", "check_program"]

ADVERSARIAL: Mapping[str, Executor] = {
    "flash_serial": in_adversarial_order("none"),
    "flash_uses": in_adversarial_order("attribute"),
    "toolnode_parallel": TOOLNODE_PARALLEL,
}
"""Executors that take the latest possible call first; a stock `ToolNode` does when later calls are faster."""

RANDOM: Mapping[str, Executor] = {
    "flash_serial": FLASH_SERIAL,
    "flash_uses": FLASH_USES,
    "toolnode_parallel": TOOLNODE_PARALLEL,
}
"""Executors under seeded random latencies."""

PROJECTED: Mapping[str, Executor] = {"flash_serial": without_grace("none"), "flash_uses": without_grace("attribute")}
"""Executors that are given references to results which are not there yet."""

# Of the order of a call's own time, so that some calls end before the next one is written and some do not.
_DECODE_SECONDS = 0.2
# Halved up to 33 times within a turn, which makes the first call of the longest one take 9 seconds.
_LAST_CALL_SECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one program fared; each mapping gives the first difference by executor, or `None` for none."""

    program: str
    adversarial: Mapping[str, str | None]
    random: Mapping[str, str | None]
    projected: Mapping[str, str | None]
    projections: int
    """Arguments that can be written as references."""
    references: Mapping[str, int]
    """Those that were, because the result was not there yet, by executor."""


def check_program(
    program: Program, *, adversarial: bool = True, random: bool = True, projected: bool = True, seed: int = 0
) -> Verdict:
    """Replay a program through every executor in virtual time and compare each run with `run_sequential`.

    Args:
        program: The program.
        adversarial: Whether to run it with the latest possible call first.
        random: Whether to run it with random latencies.
        projected: Whether to run it with references for arguments; only done where there are any.
        seed: Chooses the random latencies.
    """
    reference = run_sequential(program)

    def compared(executor: Executor, **options: Any) -> tuple[str | None, int]:
        run = run_virtual(replay(program, executor, **options))
        return difference(reference, run.outcome), run.references

    worst: dict[str, str | None] = {}
    drawn: dict[str, str | None] = {}
    pointed: dict[str, str | None] = {}
    references: dict[str, int] = {}
    if adversarial:
        for name, executor in ADVERSARIAL.items():
            stock = executor is TOOLNODE_PARALLEL
            worst[name], _ = compared(executor, latency=descending(1.0, 2.0) if stock else None)
    if random:
        for name, executor in RANDOM.items():
            drawn[name], _ = compared(
                executor, latency=uniform(0.0, 1.0, seed=seed), first_token_seconds=_DECODE_SECONDS
            )
    with_references = with_projections(program, reference)
    projections = sum(len(projections_of(call.args)) for turn in with_references.turns for call in turn.calls)
    if projected and projections:
        for name, executor in PROJECTED.items():
            pointed[name], references[name] = compared(
                executor, latency=halving(_LAST_CALL_SECONDS), projected=with_references
            )
    return Verdict(program.id, worst, drawn, pointed, projections, references)
