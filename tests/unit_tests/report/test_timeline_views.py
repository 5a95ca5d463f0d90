"""Lanes never hold overlapping bars, and there are never more of them than calls at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Span
from langgraph_flash.report import TimelineView, axis_ticks, timeline_view


def tool(start, end, name="t", **more):
    return Span(kind="tool", name=name, start=start, end=end, **more)


def model(start, end):
    return Span(kind="model", name="m", start=start, end=end)


SPANS = st.lists(
    st.tuples(st.sampled_from(["tool", "model"]), st.integers(0, 20), st.integers(1, 9)).map(
        lambda given: Span(kind=given[0], name="x", start=given[1], end=given[1] + given[2])
    ),
    max_size=25,
)


def most_at_once(spans):
    return max((sum(span.start <= cell < span.end for span in spans) for cell in range(30)), default=0)


@given(SPANS)
def test_lanes_are_as_few_as_calls_at_once(spans):
    view = timeline_view("run", spans)
    for kind, label in (("model", "model"), ("tool", "tools")):
        lanes = [lane for lane in view.lanes if lane.label == label]
        assert len(lanes) == most_at_once([span for span in spans if span.kind == kind])


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=25))
def test_bars_of_a_lane_never_overlap_and_none_is_lost(pairs):
    view = timeline_view("run", [tool(start, start + length) for start, length in pairs])
    assert sum(len(lane.bars) for lane in view.lanes) == len(pairs)
    for lane in view.lanes:
        for left, right in pairwise(lane.bars):
            assert left.end <= right.start


def test_times_count_from_the_first_start():
    view = timeline_view("run", [tool(105, 107, "late", detail="a=1", outcome="failed"), model(100, 104)])
    assert [lane.label for lane in view.lanes] == ["model", "tools"]
    bar = view.lanes[1].bars[0]
    assert (bar.start, bar.end, bar.seconds, bar.label) == (5, 7, 2, "late")
    assert (bar.outcome, bar.detail, view.seconds) == ("failed", "a=1", 7)


def test_a_call_that_follows_at_once_shares_the_lane():
    view = timeline_view("run", [tool(0, 1), tool(1, 2), tool(2, 2), tool(2, 3)])
    assert len(view.lanes) == 1


def test_of_calls_that_start_together_the_longest_is_on_top():
    view = timeline_view("run", [tool(0, 1, "short"), tool(0, 3, "long")])
    assert [lane.bars[0].label for lane in view.lanes] == ["long", "short"]


def test_concurrent_decoding_gets_a_second_model_lane():
    assert [lane.label for lane in timeline_view("run", [model(0, 2), model(1, 3)]).lanes] == ["model", "model"]


def test_an_empty_run_has_no_lanes():
    assert timeline_view("run", []) == TimelineView(title="run", lanes=(), seconds=0)


def test_a_view_survives_json():
    view = timeline_view("run", [model(0, 2), tool(1, 3)])
    assert TimelineView.model_validate_json(view.model_dump_json()) == view


@pytest.mark.parametrize("times", [(1, 0), (0, float("inf")), (float("nan"), 1)])
def test_an_impossible_span_is_refused(times):
    with pytest.raises(ConfigurationError, match="'t'"):
        timeline_view("run", [tool(*times)])


@pytest.mark.parametrize(
    ("seconds", "target", "ticks"),
    [
        (10, 10, tuple(range(11))),
        (10, 5, (0, 2, 4, 6, 8, 10)),
        (11.2, 5, (0, 5, 10)),
        (0.3, 3, (0, 0.1, 0.2, 0.3)),
        (1000, 4, (0, 500, 1000)),
        (0, 5, (0,)),
    ],
)
def test_ticks_are_round(seconds, target, ticks):
    assert axis_ticks(seconds, target) == pytest.approx(ticks)


@given(st.floats(1e-6, 1e6), st.integers(1, 20))
def test_ticks_start_at_zero_stay_inside_and_are_not_many(seconds, target):
    ticks = axis_ticks(seconds, target)
    assert ticks[0] == 0
    assert ticks[-1] <= seconds * (1 + 1e-6)
    assert len(ticks) <= target + 1
