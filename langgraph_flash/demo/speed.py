"""How much faster a run is than the sequential one, and how much faster any run of its calls could be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from langgraph_flash.demo.bfcl import Level, Program, order_edges
from langgraph_flash.demo.replay import Replay, call_id
from langgraph_flash.records import Span
from langgraph_flash.report import Overlap, bound, critical_path, overlap

__all__ = ["Comparison", "Total", "compare"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of a program beside the sequential run of the same calls, in seconds."""

    sequential: float
    """The sequential run."""

    seconds: float
    """This run."""

    floor: float
    """No run that keeps the declared order can be shorter: the serial time divided by R, turn by turn."""

    floor_with_turns: float
    """The same, with the extra decoding that this run's later deliveries cost."""

    overlap: Overlap
    """Where this run's time went; it adds up over user turns, which do not overlap."""

    @property
    def speedup(self) -> float:
        """How many times faster it is."""
        return self.sequential / self.seconds

    @property
    def bound(self) -> float:
        """R, the most it could be; 1 where no time passes."""
        return self.sequential / self.floor if self.floor else 1.0

    @property
    def bound_with_turns(self) -> float:
        """R with the extra decoding."""
        return self.sequential / self.floor_with_turns if self.floor_with_turns else 1.0


class Total:
    """The sum of comparisons: times add up, ratios are ratios of sums."""

    def __init__(self, comparisons: Iterable[Comparison]) -> None:
        parts = list(comparisons)
        self.sequential = sum(part.sequential for part in parts)
        self.seconds = sum(part.seconds for part in parts)
        self.saved_de = sum(part.overlap.saving_de for part in parts)
        self.saved_ff = sum(part.overlap.saving_ff for part in parts)
        floor = sum(part.floor for part in parts)
        with_turns = sum(part.floor_with_turns for part in parts)
        self.speedup = self.sequential / self.seconds if self.seconds else 1.0
        self.bound = self.sequential / floor if floor else 1.0
        self.bound_with_turns = self.sequential / with_turns if with_turns else 1.0


def compare(program: Program, sequential: Replay, run: Replay, level: Level) -> Comparison:
    """Compare a run with the sequential one and with the bound of AsyncFC appendix B.

    The formula is applied to each user turn, because nothing overlaps beyond one. T_LLM, T_tool and the durations
    along the critical path are those of the sequential run, a is what this run decoded more than that.

    Args:
        program: What both ran.
        sequential: The run with one call at a time.
        run: The run to judge.
        level: What its tools declare; with nothing declared every call waits for the one before it.
    """
    floor = with_turns = 0.0
    for index, (before, after) in enumerate(zip(sequential.turns, run.turns, strict=True)):
        calls = program.turns[index].calls
        ids = [call_id(program, index, call) for call in range(len(calls))]
        if level == "none":
            edges = list(itertools.pairwise(ids))
        else:
            edges = [(ids[first], ids[second]) for first, second in order_edges(program.turns[index], level)]
        durations = {span.call_id: span.seconds for span in before if span.kind == "tool" and span.call_id is not None}
        decoding, executing = _seconds(before, "model"), sum(durations.values())
        chain = critical_path(durations, edges)
        extra = max(0.0, _seconds(after, "model") / decoding - 1) if decoding else 0.0
        floor += (decoding + executing) / bound(decoding, executing, chain)
        with_turns += (decoding + executing) / bound(decoding, executing, chain, extra)
    return Comparison(
        sequential=sequential.seconds,
        seconds=run.seconds,
        floor=floor,
        floor_with_turns=with_turns,
        overlap=overlap(run.spans),
    )


def _seconds(spans: Iterable[Span], kind: str) -> float:
    return sum(span.seconds for span in spans if span.kind == kind)
