"""The demonstration's report: what was run, what came out, and what the numbers do and do not mean."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_flash.demo.live import Thinking, answer_table, time_table
from langgraph_flash.demo.showcase import (
    CALL_SECONDS,
    DECODE_SECONDS,
    RULE,
    Shown,
    control_table,
    program_table,
)
from langgraph_flash.demo.speed import Total
from langgraph_flash.report import (
    Figure,
    Heading,
    Section,
    format_ratio,
    format_seconds,
    overlap_table,
    report_html,
    timeline_svg,
    timeline_view,
)
from langgraph_flash.report.overlap import overlap

__all__ = ["coordinator_note", "page", "replay_note"]

_TITLE = "One agent, two tools nodes"


def replay_note() -> str:
    """What the replayed numbers mean."""
    low, high = CALL_SECONDS
    return (
        "What is real here: the graph, the nodes, the tools' code and state, the checkpoints, and the time on the "
        "clock. What is not: the calls are the ground truth of the Berkeley Function Calling Leaderboard, written by a "
        f"model double that takes {DECODE_SECONDS:g} s a message, and each tool sleeps {low:g} to {high:g} s (seeded) "
        "before it acts. So the table shows what the schedule is worth at these latencies, not what your model and "
        "your tools will give: quick tools leave little to gain, and waiting for results can cost extra model turns. "
        "Whether a real model handles placeholders well is not measured here either."
    )


def coordinator_note(thinking: Thinking) -> str:
    """Who did the work of the live part."""
    where = "the embedded model on this machine" if thinking.endpoint.embedded else thinking.endpoint.base_url
    if thinking.live_tools:
        return f"Everything is real here: {thinking.endpoint.model} ({where}) coordinates and answers."
    return (
        f"The sub-agents' answers are real: each is a small graph that asks {thinking.endpoint.model} ({where}). The "
        "coordinator's messages are replayed, because a model this small cannot call tools."
        if thinking.endpoint.embedded
        else f"The sub-agents' answers are real: each is a small graph that asks {thinking.endpoint.model} ({where}). "
        "The coordinator's messages are replayed; --live-tools lets the model write them."
    )


def page(shown: Sequence[Shown], thinking: Thinking | None, *, seed: int) -> str:
    """The whole page.

    Args:
        shown: The replayed programs.
        thinking: The live part, if it was run.
        seed: What chose programs and latencies.
    """
    sections: list[Section] = []
    if shown:
        sections += _replayed(shown, seed)
    if thinking is not None:
        sections += _live(thinking)
    return report_html(_TITLE, sections)


def _replayed(shown: Sequence[Shown], seed: int) -> list[Section]:
    total = Total(each.comparison for each in shown)
    best = max(shown, key=lambda each: each.gain)
    views = [timeline_view("ToolNode", best.stock.spans), timeline_view("FlashNode", best.flash.spans)]
    several = len(shown) != 1
    return [
        f"The same agent graph ran {len(shown)} program{'s' if several else ''} twice: once with LangGraph's ToolNode, "
        "where the model waits for each call, and once with FlashNode, where calls run in the background and overlap "
        f"as far as their declared resources allow. Together: {format_seconds(total.sequential)} and "
        f"{format_seconds(total.seconds)}, a speed-up of {format_ratio(total.speedup)} of at most "
        f"{format_ratio(total.bound)}."
        + (" Every result and every final state was the same." if all(each.same for each in shown) else "")
        + ("" if all(each.same for each in shown) else " NOT every run ended in the same state; see the table."),
        Figure(
            svg=timeline_svg(views),
            caption=f"Program {best.name}, the one with the largest gain"
            + (f" of the {len(shown)}" if several else "")
            + ". Both runs on one time axis; each bar is a message being decoded or a call being executed.",
        ),
        program_table(shown),
        Heading(text="What the numbers mean"),
        replay_note(),
        f"The programs were chosen by a rule (seed {seed}): {RULE}. Many programs of the leaderboard leave less "
        "to overlap, so this is not an average over it.",
        control_table(shown),
        overlap_table(
            f"Where the time went in program {best.name}",
            {"ToolNode": overlap(best.stock.spans), "FlashNode": overlap(best.flash.spans)},
        ),
    ]


def _live(thinking: Thinking) -> list[Section]:
    views = [timeline_view("ToolNode", thinking.stock.spans), timeline_view("FlashNode", thinking.flash.spans)]
    return [
        Heading(text="Live: sub-agents that think at the same time"),
        coordinator_note(thinking),
        Figure(
            svg=timeline_svg(views),
            caption="Each tool bar is a sub-agent waiting for the real model's answer.",
        ),
        time_table(thinking),
        answer_table(thinking),
    ]
