"""What a terminal shows, with and without colours."""

# ruff: noqa: RUF001  signs as a reader sees them

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

import langgraph_flash.report as room
from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Span
from langgraph_flash.report import Column, TableView, TerminalTimeline, progress, terminal_table, timeline_view


def printed(*renderables, width=68, **more):
    console = Console(file=io.StringIO(), width=width, **more)
    for renderable in renderables:
        console.print(renderable)
    return console.file.getvalue()


def span(kind, name, start, end, **more):
    return Span(kind=kind, name=name, start=start, end=end, **more)


def test_two_timelines_on_one_axis():
    slow = timeline_view("ToolNode", [span("model", "m", 0, 4), span("tool", "search", 4, 10)])
    fast = timeline_view(
        "FlashNode", [span("model", "m", 0, 4), span("tool", "search", 0, 3), span("tool", "x", 3, 5, outcome="failed")]
    )
    # Fifty cells for ten seconds; eight for the lane labels, one for the end mark.
    assert printed(TerminalTimeline([slow, fast]), width=59).splitlines() == [
        "ToolNode  10.0 s",
        "model   " + "▐m" + "█" * 18 + "·" * 30 + "▏",
        "tools   " + "·" * 20 + "▐search" + "█" * 23 + "▏",
        "FlashNode  5.00 s  2.00× faster",
        "model   " + "▐m" + "█" * 18 + "·" * 5 + "▏",
        "tools   " + "▐search" + "█" * 8 + "▒x" + "▒" * 8 + "▏",
        "        0 s" + " " * 22 + "5.00 s" + " " * 14 + "10.0 s",
    ]


@pytest.mark.parametrize("width", [10, 20, 40, 200])
def test_any_width_and_any_run_can_be_printed(width):
    views = [
        timeline_view("empty", []),
        timeline_view("instant", [span("tool", "t", 1, 1)]),
        timeline_view("[bold]markup", [span("tool", "[red]x\n", 0, 1), span("stage", "s", 0, 9, outcome="cancelled")]),
    ]
    assert "[bold]" in printed(TerminalTimeline(views), width=width)


def test_colours_tell_models_from_tools():
    view = timeline_view("run", [span("model", "m", 0, 1), span("tool", "t", 0, 1)])
    text = printed(TerminalTimeline(view), force_terminal=True, color_system="standard", _environ={})
    assert "\x1b[34m" in text
    assert "\x1b[33m" in text


def test_there_must_be_a_timeline():
    with pytest.raises(ConfigurationError):
        TerminalTimeline([])


def test_a_table_shows_its_cells_as_they_are():
    view = TableView(
        title="[bold]T",
        columns=(Column(name="node"), Column(name="time", unit="s", align="right")),
        rows=(("[red]ToolNode", "1.50"),),
        note="[i]n",
    )
    text = printed(terminal_table(view))
    for part in ("[bold]T", "[red]ToolNode", "time [s]", "1.50", "[i]n"):
        assert part in text


def test_progress_counts_and_stays():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, _environ={})
    with progress("measuring [x]", total=2, console=console) as step:
        step("first [y]")
        step("second")
    text = console.file.getvalue()
    assert "measuring [x]" in text
    assert "2/2" in text
    assert "second" in text


def test_the_names_of_the_room_are_sorted_and_exist():
    assert room.__all__ == sorted(room.__all__)
    assert all(getattr(room, name) is not None for name in room.__all__)
    assert set(dir(room)) == set(room.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        room.nothing  # noqa: B018


def test_the_room_opens_without_rich():
    code = "import sys, langgraph_flash.report; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
