"""Tables, timelines and progress in a terminal, drawn with rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from langgraph_flash.report.table import TableView, format_ratio, format_seconds
from langgraph_flash.report.timeline import Bar, Lane, TimelineView, axis_ticks, views_of

__all__ = ["TerminalTimeline", "progress", "terminal_table"]

# The glyph tells the outcome where there are no colours.
_GLYPHS = {"ok": "█", "failed": "▒", "cancelled": "░"}
_COLOURS = {
    "model": "blue",
    "tool": "yellow",
    "stage": "bright_black",
    "failed": "red",
    "cancelled": "bright_black",
}
_INKS = {"model": "bright_white", "tool": "black", "stage": "bright_white", "failed": "bright_white"}
_GUTTER = 8
_MIN_COLUMNS = 20


def terminal_table(view: TableView) -> Table:
    """A table as something rich can print. Cells are plain text: markup in them is shown, not obeyed."""
    table = Table(
        title=Text(view.title, style="bold"),
        title_justify="left",
        caption=Text(view.note) if view.note else None,
        caption_justify="left",
        header_style="dim",
    )
    for column in view.columns:
        table.add_column(Text(column.head), justify=column.align)
    for row in view.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


class TerminalTimeline:
    """One timeline, or several on one time axis, as something rich can print; it fills the width it is given.

    A bar covers the character cells in whose middle it runs, and at least one, so a short call stays visible.

    Raises:
        ConfigurationError: There is no view.
    """

    def __init__(self, views: TimelineView | Sequence[TimelineView]) -> None:
        self.views = views_of(views)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = max(options.max_width - _GUTTER - 1, _MIN_COLUMNS)
        longest = max(view.seconds for view in self.views)
        for view in self.views:
            yield _title(view, longest)
            previous = None
            for lane in view.lanes:
                label = lane.label if lane.label != previous else ""
                previous = lane.label
                yield Text.assemble((f"{label[: _GUTTER - 1]:<{_GUTTER}}", "dim"), *_lane(lane, view, longest, columns))
        yield _axis(longest, columns)


@contextmanager
def progress(
    description: str, total: int | None = None, console: Console | None = None
) -> Iterator[Callable[[str], None]]:
    """Show one live line for a loop of known or unknown length, and leave it there at the end.

    Example:
        with progress("measuring", total=len(tasks)) as step:
            for task in tasks:
                step(task.name)

    Args:
        description: What is going on.
        total: How many steps there will be, or `None` where that is unknown.
        console: Where to print; standard error by default, which leaves standard output to results.

    Yields:
        A function to call after each step, with a few words about it.
    """
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
        console=console or Console(stderr=True),
    )
    with bar:
        task = bar.add_task(description, total=total, note="")

        def step(note: str = "") -> None:
            bar.update(task, advance=1, note=" ".join(note.split()))

        yield step


def _title(view: TimelineView, longest: float) -> Text:
    text = Text.assemble((view.title, "bold"), "  ", (format_seconds(view.seconds), "bold"))
    if view.seconds and longest / view.seconds >= 1.005:
        text.append(f"  {format_ratio(longest / view.seconds)} faster", style="green")
    return text


def _lane(lane: Lane, view: TimelineView, longest: float, columns: int) -> list[tuple[str, str]]:
    """The cells of one lane up to the end of the run, which a bar marks."""
    scale = columns / (longest or 1.0)
    end = round(view.seconds * scale)
    cells: list[tuple[str, str]] = [("·", "bright_black")] * end
    for bar in lane.bars:
        first = min(round(bar.start * scale), max(end - 1, 0))
        last = max(round(bar.end * scale), first + 1)
        cells[first:last] = _cells(bar, last - first)
    # One piece per style: a console writes its codes once per piece.
    pieces = [("".join(char for char, _ in run), style) for style, run in groupby(cells, key=itemgetter(1))]
    return [*pieces, ("▏", "bold")]


def _cells(bar: Bar, width: int) -> list[tuple[str, str]]:
    look = bar.kind if bar.outcome == "ok" else bar.outcome
    colour, ink = _COLOURS[look], _INKS.get(look, "bright_white")
    # A filled cell on either side frames the label where there are no colours; half of the first one is left free,
    # so that neighbours stay apart.
    label = _clip(" ".join(bar.label.split()), width - 2)
    fill = (_GLYPHS[bar.outcome], colour)
    edge = ("▐", colour) if bar.outcome == "ok" and width > 1 else fill
    return [edge, *((char, f"{ink} on {colour}") for char in label), *([fill] * width)][:width]


def _clip(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room >= 4 else ""


def _axis(longest: float, columns: int) -> Text:
    """Times under the lanes: each begins below its tick, the last one ends with the line."""
    line = ""
    for tick in axis_ticks(longest, target=max(columns // 12, 1)):
        label = format_seconds(tick)
        start = min(round(tick * columns / (longest or 1.0)), columns + 1 - len(label))
        if not line or start > len(line):
            line = f"{line:<{start}}{label}"
    return Text(" " * _GUTTER + line, style="dim")
