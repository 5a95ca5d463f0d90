"""The arithmetic of overlap: how much time a trace saved, by what, and how much there was to save.

Pure functions on intervals and spans; the notation is that of AsyncFC section 4 and appendix B. For a set I
of intervals, S(I) is the sum of their lengths and D(I) the length of their union. M are the intervals in
which a model decodes, E those in which a tool executes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Record, Span
from langgraph_flash.report.table import Column, TableView, format_ratio, format_seconds

__all__ = [
    "Intervals",
    "Overlap",
    "bound",
    "critical_path",
    "overlap",
    "overlap_table",
    "total_length",
    "union_length",
]

Intervals = Sequence[tuple[float, float]] | npt.NDArray[np.float64]
"""Pairs (start, end) in seconds, in any order: a sequence of pairs, or an array of shape (n, 2)."""

# Sums of floats in another order differ in the last digits; that is no contradiction in the input.
_TOLERANCE = 1e-9


class Overlap(Record):
    """Where the time of one trace went, in seconds (AsyncFC section 4).

    The saving is relative to this trace's own serial sum, that is to running the same calls one after
    another. It is not a comparison with a separately run sequential agent, which may decode other turns;
    report both.
    """

    makespan: float
    """From the first start to the last end."""

    busy_seconds: float
    """D(M|E): the time in which anything ran; what remains of `makespan` is idle."""

    model_seconds: float
    """S(M): decoding, summed over the calls."""

    tool_seconds: float
    """S(E): execution, summed over the calls."""

    saving_mm: float
    """M‖M = S(M) - D(M): saved by decoding beside decoding; zero when decoding is serial."""

    saving_ff: float
    """F‖F = S(E) - D(E): saved by tools beside tools."""

    saving_de: float
    """D‖E = D(M) + D(E) - D(M|E): saved by tools beside decoding."""

    @property
    def saving(self) -> float:
        """T_saving = S(M) + S(E) - D(M|E), which is `saving_mm + saving_ff + saving_de`."""
        return self.saving_mm + self.saving_ff + self.saving_de

    @property
    def ratio(self) -> float:
        """(S(M) + S(E)) / D(M|E), the speed-up over this trace's own serial sum; 1 for an empty trace."""
        return (self.model_seconds + self.tool_seconds) / self.busy_seconds if self.busy_seconds else 1.0


def total_length(intervals: Intervals) -> float:
    """S(I): the sum of the lengths of the intervals, in seconds.

    Raises:
        ConfigurationError: An interval is not a finite pair with start ≤ end.
    """
    pairs = _pairs(intervals)
    return float(np.sum(pairs[:, 1] - pairs[:, 0]))


def union_length(intervals: Intervals) -> float:
    """D(I): the length of the union of the intervals, in seconds.

    Ordered by start, interval i adds the part of it that lies behind every earlier end,
    max(0, eᵢ - max(sᵢ, hᵢ)) with hᵢ = max(e₁ … eᵢ₋₁): what lies between sᵢ and hᵢ is covered, because the
    interval that reaches hᵢ began no later than sᵢ. Sorting dominates: O(n log n) time, O(n) memory.

    Raises:
        ConfigurationError: An interval is not a finite pair with start ≤ end.
    """
    pairs = _pairs(intervals)
    if not len(pairs):
        return 0.0
    starts, ends = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    reached = np.maximum.accumulate(ends)
    begins = np.maximum(starts, np.concatenate(([-np.inf], reached[:-1])))
    return float(np.sum(np.maximum(ends - begins, 0.0)))


def overlap(spans: Iterable[Span]) -> Overlap:
    """Decompose the saving of one observed trace (AsyncFC section 4 and appendix B).

    Adding and subtracting D(M) and D(E) splits T_saving without a remainder:

        S(M) + S(E) - D(M|E) = [S(M) - D(M)] + [S(E) - D(E)] + [D(M) + D(E) - D(M|E)]

    where D(M|E) is the union of both. No term is negative. The paper's two-term form is the case of serial
    decoding, S(M) = D(M).

    Spans of kind "stage" contain the others and are left out. A model that a tool calls counts as decoding
    and its tool as executing, so a sub-agent adds to D‖E.

    Args:
        spans: The spans of one run, in any order, whatever their outcome: a failed call took its time too.
    """
    measured = [span for span in spans if span.kind != "stage"]
    model = [(span.start, span.end) for span in measured if span.kind == "model"]
    tool = [(span.start, span.end) for span in measured if span.kind == "tool"]
    both = model + tool
    busy = union_length(both)
    model_sum, model_union = total_length(model), union_length(model)
    tool_sum, tool_union = total_length(tool), union_length(tool)
    return Overlap(
        makespan=max(end for _, end in both) - min(start for start, _ in both) if both else 0.0,
        busy_seconds=busy,
        model_seconds=model_sum,
        tool_seconds=tool_sum,
        # Rounding may leave -1e-16 where the terms are equal.
        saving_mm=max(model_sum - model_union, 0.0),
        saving_ff=max(tool_sum - tool_union, 0.0),
        saving_de=max(model_union + tool_union - busy, 0.0),
    )


def overlap_table(title: str, overlaps: Mapping[str, Overlap]) -> TableView:
    """The decompositions of several traces side by side, one row each."""
    names = ("makespan", "model", "tools", "saved", "by D‖E", "by F‖F", "by M‖M")
    return TableView(
        title=title,
        columns=(
            Column(name="trace"),
            *(Column(name=name, unit="s", align="right") for name in names),
            Column(name="own speed-up", align="right"),
        ),
        rows=tuple(
            (
                name,
                *(
                    format_seconds(seconds, unit="s")
                    for seconds in (
                        found.makespan,
                        found.model_seconds,
                        found.tool_seconds,
                        found.saving,
                        found.saving_de,
                        found.saving_ff,
                        found.saving_mm,
                    )
                ),
                format_ratio(found.ratio),
            )
            for name, found in overlaps.items()
        ),
        note="Saved time is relative to the same calls one after another: D‖E tools beside decoding, "
        "F‖F tools beside tools, M‖M decoding beside decoding.",
    )


def bound(t_llm: float, t_tool: float, t_cp: float, extra: float = 0.0) -> float:
    """R, the most a run can speed up by overlapping, over running everything serially (AsyncFC appendix B).

    A serial run takes T_LLM + T_tool. An overlapped one cannot be shorter than its decoding, which is serial
    and grows to (1 + a)·T_LLM when waiting costs extra turns, nor than the critical path of its calls, T_cp.
    Hence

        R = (T_LLM + T_tool) / T_cp              if T_cp ≥ (1 + a)·T_LLM   (the tools are the bottleneck)
        R = (T_LLM + T_tool) / ((1 + a)·T_LLM)   otherwise                 (decoding is)

    With a = 0 this is the ideal bound (T_LLM + T_tool) / max(T_LLM, T_cp). R < 1 says that the extra turns
    cost more than any overlap can return.

    Args:
        t_llm: T_LLM, seconds of decoding of the serial run.
        t_tool: T_tool, seconds of execution summed over the calls.
        t_cp: T_cp, seconds of execution along the longest chain of dependent calls; see `critical_path`.
        extra: a, the extra decoding as a fraction of T_LLM.

    Returns:
        The ratio; 1 where nothing runs at all.

    Raises:
        ConfigurationError: A value is negative or not finite, or T_cp exceeds T_tool.
    """
    for name, value in (("t_llm", t_llm), ("t_tool", t_tool), ("t_cp", t_cp), ("extra", extra)):
        if not (np.isfinite(value) and value >= 0):
            raise ConfigurationError(f"{name} must be finite and at least 0, not {value!r}.")
    if t_cp > t_tool * (1 + _TOLERANCE):
        raise ConfigurationError(
            f"t_cp={t_cp!r} exceeds t_tool={t_tool!r}: the critical path is a part of all executions. "
            "Measure both on the same calls."
        )
    decoding = (1 + extra) * t_llm
    limit = t_cp if t_cp >= decoding else decoding
    return (t_llm + t_tool) / limit if limit > 0 else 1.0


def critical_path(durations: Mapping[str, float], edges: Iterable[tuple[str, str]]) -> float:
    """T_cp: the length of the longest chain of dependent calls, in seconds.

    The finish f(v) = duration(v) + max over edges (u, v) of f(u) is computed in topological order (Kahn
    1962), and the longest path is the largest finish. O(calls + edges) time and memory.

    Args:
        durations: Seconds of each call, by id.
        edges: Pairs (before, after): `after` needs the result of `before`. Repeated pairs count once.

    Raises:
        ConfigurationError: The edges form a cycle, which the message names; an edge names an unknown call;
            or a duration is negative or not finite.
    """
    for call, seconds in durations.items():
        if not (np.isfinite(seconds) and seconds >= 0):
            raise ConfigurationError(f"The duration of {call!r} must be finite and at least 0, not {seconds!r}.")
    after: dict[str, list[str]] = {call: [] for call in durations}
    waiting = dict.fromkeys(durations, 0)
    for source, target in dict.fromkeys(edges):
        for end in (source, target):
            if end not in waiting:
                raise ConfigurationError(f"The edge {source!r} → {target!r} names {end!r}, which has no duration.")
        after[source].append(target)
        waiting[target] += 1
    finish = {call: float(seconds) for call, seconds in durations.items()}
    ready = deque(call for call, count in waiting.items() if not count)
    while ready:
        call = ready.popleft()
        for target in after[call]:
            finish[target] = max(finish[target], finish[call] + durations[target])
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    stuck = {call for call, count in waiting.items() if count}
    if stuck:
        cycle = " → ".join(_cycle(stuck, after))
        raise ConfigurationError(f"The calls depend on each other in a circle: {cycle}. Remove one of these edges.")
    return max(finish.values(), default=0.0)


def _cycle(stuck: set[str], after: Mapping[str, Sequence[str]]) -> list[str]:
    """One cycle among the calls Kahn's algorithm could not place, first call repeated at its end.

    Each of them waits for another of them, so walking backwards must return to a call already seen.
    """
    before = {target: call for call in sorted(stuck) for target in after[call]}
    call = min(stuck)
    seen: list[str] = []
    while call not in seen:
        seen.append(call)
        call = before[call]
    circle = [*seen[seen.index(call) :], call]
    return circle[::-1]


def _pairs(intervals: Intervals) -> npt.NDArray[np.float64]:
    pairs = np.asarray(intervals, dtype=np.float64)
    if not pairs.size:
        return np.empty((0, 2))
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ConfigurationError(f"Intervals are pairs (start, end), not an array of shape {pairs.shape}.")
    wrong = ~(np.isfinite(pairs).all(axis=1) & (pairs[:, 0] <= pairs[:, 1]))
    if wrong.any():
        start, end = pairs[int(np.argmax(wrong))].tolist()
        raise ConfigurationError(f"An interval must be finite and must not end before it starts: ({start}, {end}).")
    return pairs
