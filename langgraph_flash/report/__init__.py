"""The report room: numbers and pictures computed from records, drawn as SVG, HTML or terminal text.

    views = [timeline_view("ToolNode", before.spans), timeline_view("FlashNode", after.spans)]
    page = report_html("Trip planner", ["One task, two nodes.", Figure(svg=timeline_svg(views))])

Views are records shared by every way of drawing them. The terminal names need rich and import it when first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph_flash.report.html import Figure, Heading, Section, report_html
from langgraph_flash.report.markup import markup_text
from langgraph_flash.report.overlap import (
    Intervals,
    Overlap,
    bound,
    critical_path,
    overlap,
    overlap_table,
    total_length,
    union_length,
)
from langgraph_flash.report.svg import timeline_svg
from langgraph_flash.report.table import (
    Column,
    TableView,
    format_count,
    format_percent,
    format_ratio,
    format_seconds,
)
from langgraph_flash.report.timeline import Bar, Lane, TimelineView, axis_ticks, timeline_view

if TYPE_CHECKING:
    from langgraph_flash.report.terminal import TerminalTimeline, progress, terminal_table

__all__ = [
    "Bar",
    "Column",
    "Figure",
    "Heading",
    "Intervals",
    "Lane",
    "Overlap",
    "Section",
    "TableView",
    "TerminalTimeline",
    "TimelineView",
    "axis_ticks",
    "bound",
    "critical_path",
    "format_count",
    "format_percent",
    "format_ratio",
    "format_seconds",
    "markup_text",
    "overlap",
    "overlap_table",
    "progress",
    "report_html",
    "terminal_table",
    "timeline_svg",
    "timeline_view",
    "total_length",
    "union_length",
]

_TERMINAL = frozenset({"TerminalTimeline", "progress", "terminal_table"})


def __getattr__(name: str) -> Any:
    if name in _TERMINAL:
        from langgraph_flash.report import terminal  # noqa: PLC0415  rich loads only where a terminal is drawn

        return getattr(terminal, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
