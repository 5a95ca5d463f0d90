"""A timeline as data: the spans of one run packed into lanes, ready to be drawn anywhere."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Record, Span

__all__ = ["Bar", "Lane", "TimelineView", "axis_ticks", "timeline_view", "views_of"]

_LANE_LABELS: dict[Literal["model", "tool", "stage"], str] = {
    "stage": "stages",
    "model": "model",
    "tool": "tools",
}


class Bar(Record):
    """One span as it is drawn."""

    start: float
    """Seconds after the first start of the run."""

    end: float
    """Seconds after the first start of the run."""

    kind: Literal["model", "tool", "stage"]
    """What ran."""

    label: str
    """The name of what ran."""

    outcome: Literal["ok", "failed", "cancelled"] = "ok"
    """How it ended."""

    detail: str | None = None
    """More about it, for a tooltip."""

    @property
    def seconds(self) -> float:
        """Duration, in seconds."""
        return self.end - self.start


class Lane(Record):
    """A row of bars that do not overlap."""

    label: str
    """What runs here; neighbouring lanes of one kind share it."""

    bars: tuple[Bar, ...]
    """In the order of time."""


class TimelineView(Record):
    """One run over time."""

    title: str
    """What ran, such as the name of the node under test."""

    lanes: tuple[Lane, ...]
    """Top to bottom: stages, model, tools."""

    seconds: float
    """From the first start to the last end."""


def timeline_view(title: str, spans: Iterable[Span]) -> TimelineView:
    """Lay out the spans of one run.

    Each kind is packed on its own into the fewest lanes whose bars never overlap: one lane for a model that
    decodes serially, as many tool lanes as tools ever ran at once.

    Args:
        title: What ran.
        spans: The spans of one run, in any order; their clock's origin does not matter.

    Raises:
        ConfigurationError: A span ends before it starts, or a time is not finite.
    """
    spans = list(spans)
    for span in spans:
        if not (math.isfinite(span.start) and math.isfinite(span.end) and span.start <= span.end):
            raise ConfigurationError(
                f"The span of {span.name!r} runs from {span.start} to {span.end}; it must be finite "
                "and not end before it starts."
            )
    origin = min((span.start for span in spans), default=0.0)
    lanes: list[Lane] = []
    for kind, label in _LANE_LABELS.items():
        bars = [_bar(span, origin) for span in spans if span.kind == kind]
        lanes += [Lane(label=label, bars=tuple(row)) for row in _pack(bars)]
    return TimelineView(
        title=title,
        lanes=tuple(lanes),
        seconds=max((span.end for span in spans), default=0.0) - origin,
    )


def views_of(views: TimelineView | Sequence[TimelineView]) -> tuple[TimelineView, ...]:
    """One view or several, as several: what every drawing function accepts.

    Raises:
        ConfigurationError: There is no view.
    """
    several = (views,) if isinstance(views, TimelineView) else tuple(views)
    if not several:
        raise ConfigurationError("There is no timeline to draw: give at least one TimelineView.")
    return several


def axis_ticks(seconds: float, target: int) -> tuple[float, ...]:
    """Round tick positions from zero up to `seconds`, about `target` of them.

    The step is the smallest of 1, 2 or 5 times a power of ten that needs no more than `target` steps, so that
    labels stay short and the eye can subtract them.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        return (0.0,)
    raw = seconds / max(target, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    # 1e-9 forgives the rounding of log10 and the division: a step that fits exactly is not skipped.
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return tuple(index * step for index in range(math.floor(seconds / step * (1 + 1e-9)) + 1))


def _bar(span: Span, origin: float) -> Bar:
    return Bar(
        start=span.start - origin,
        end=span.end - origin,
        kind=span.kind,
        label=span.name,
        outcome=span.outcome,
        detail=span.detail,
    )


def _pack(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Interval partitioning: give each bar, in order of start, the topmost lane that is free.

    A new lane opens only while every other one is occupied, so there are exactly as many lanes as bars ever
    run at once, which no packing can beat. Two heaps, of running ends and of free lanes, make it O(n log n).
    """
    lanes: list[list[Bar]] = []
    running: list[tuple[float, int]] = []
    free: list[int] = []
    # Of bars that start together the longest comes on top; one without length stands before them, beside no other.
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.end > bar.start, -bar.end)):
        while running and running[0][0] <= bar.start:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            index = heapq.heappop(free)
        else:
            index = len(lanes)
            lanes.append([])
        lanes[index].append(bar)
        heapq.heappush(running, (bar.end, index))
    return lanes
