"""The formulas against brute force on an integer grid, and against closed forms."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Span
from langgraph_flash.report import (
    Overlap,
    bound,
    critical_path,
    overlap,
    overlap_table,
    total_length,
    union_length,
)

INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=12
)


def covered(intervals):
    """The unit cells of an integer grid that some interval covers."""
    return {cell for start, end in intervals for cell in range(start, end)}


def spans_of(kind, intervals):
    return [Span(kind=kind, name="x", start=start, end=end) for start, end in intervals]


@given(INTERVALS)
def test_lengths_agree_with_counting_cells(intervals):
    assert total_length(intervals) == sum(end - start for start, end in intervals)
    assert union_length(intervals) == len(covered(intervals))
    assert union_length(np.array(intervals, dtype=float).reshape(-1, 2)) == union_length(intervals)


@given(INTERVALS, INTERVALS)
def test_the_three_savings_are_counted_cells_and_add_up_exactly(model, tool):
    found = overlap(spans_of("model", model) + spans_of("tool", tool))
    decoding, executing = covered(model), covered(tool)
    assert found.busy_seconds == len(decoding | executing)
    assert found.saving_mm == found.model_seconds - len(decoding)
    assert found.saving_ff == found.tool_seconds - len(executing)
    assert found.saving_de == len(decoding & executing)
    assert found.saving == found.model_seconds + found.tool_seconds - found.busy_seconds
    assert found.makespan >= found.busy_seconds


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e3)), min_size=1, max_size=20))
def test_savings_of_measured_times_are_never_negative(pairs):
    found = overlap(spans_of("tool", [(start, start + length) for start, length in pairs]))
    assert min(found.saving_mm, found.saving_ff, found.saving_de) >= 0
    assert found.saving_mm == 0
    assert found.saving == pytest.approx(found.tool_seconds - found.busy_seconds, abs=1e-6)


def test_a_textbook_trace():
    # model  0----4      6--8
    # tool     1----5
    # tool        3--5
    trace = spans_of("model", [(0, 4), (6, 8)]) + spans_of("tool", [(1, 5), (3, 5)]) + spans_of("stage", [(0, 9)])
    assert overlap(trace) == Overlap(
        makespan=8, busy_seconds=7, model_seconds=6, tool_seconds=6, saving_mm=0, saving_ff=2, saving_de=3
    )
    assert overlap(trace).saving == 5
    assert overlap(trace).ratio == 12 / 7


def test_an_empty_trace_saves_nothing():
    assert overlap([]).saving == 0
    assert overlap([]).ratio == 1


@pytest.mark.parametrize("wrong", [[(2, 1)], [(0, math.inf)], [(math.nan, 1)], [(0, 1, 2)], [1.0, 2.0]])
def test_intervals_that_are_none_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        union_length(wrong)
    with pytest.raises(ConfigurationError):
        total_length(wrong)


@pytest.mark.parametrize(
    ("times", "ratio"),
    [
        ((10, 10, 10), 2.0),  # both bottlenecks at once: the most there is
        ((10, 20, 15), 2.0),  # tools decide
        ((10, 20, 5), 3.0),  # decoding decides
        ((10, 20, 5, 0.5), 2.0),  # ... and waiting costs half as many turns again
        ((10, 20, 15, 0.5), 2.0),  # the border of the two branches
        ((10, 20, 16, 0.5), 30 / 16),
        ((10, 0, 0), 1.0),
        ((0, 10, 10), 1.0),
        ((10, 2, 2, 1.0), 0.6),  # extra turns can cost more than overlap returns
        ((0, 0, 0), 1.0),
    ],
)
def test_the_bound_has_two_branches(times, ratio):
    assert bound(*times) == pytest.approx(ratio)


@given(st.floats(0.01, 1e3), st.floats(0.01, 1e3), st.floats(0, 1))
def test_the_ideal_bound_lies_between_one_and_what_the_shorter_part_allows(t_llm, t_tool, share):
    ratio = bound(t_llm, t_tool, share * t_tool)
    assert 1 - 1e-9 <= ratio <= (t_llm + t_tool) / t_llm + 1e-9


@pytest.mark.parametrize("times", [(-1, 1, 1), (1, math.inf, 1), (1, 1, math.nan), (1, 1, 1, -0.1), (1, 1, 2)])
def test_times_that_cannot_be_are_refused(times):
    with pytest.raises(ConfigurationError):
        bound(*times)


@st.composite
def dags(draw):
    size = draw(st.integers(1, 6))
    names = [f"c{index}" for index in range(size)]
    durations = {name: draw(st.integers(0, 9)) for name in names}
    pairs = [(a, b) for index, a in enumerate(names) for b in names[index + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return durations, edges


def longest_by_trying(durations, edges):
    """Every order of every subset that is a path."""
    return max(
        sum(durations[call] for call in path)
        for length in range(1, len(durations) + 1)
        for path in permutations(durations, length)
        if all(pair in edges for pair in pairwise(path))
    )


@given(dags())
def test_the_critical_path_is_the_longest_of_all_paths(dag):
    durations, edges = dag
    assert critical_path(durations, edges) == longest_by_trying(durations, set(edges))


def test_the_critical_path_of_nothing_is_zero():
    assert critical_path({}, []) == 0


def test_a_cycle_is_named():
    durations = dict.fromkeys("abcde", 1.0)
    with pytest.raises(ConfigurationError, match="b → c → d → b"):
        critical_path(durations, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "e")])
    with pytest.raises(ConfigurationError, match="a → a"):
        critical_path({"a": 1}, [("a", "a")])


def test_unknown_calls_and_impossible_durations_are_refused():
    with pytest.raises(ConfigurationError, match="'b', which has no duration"):
        critical_path({"a": 1}, [("a", "b")])
    with pytest.raises(ConfigurationError, match="'a'"):
        critical_path({"a": -1}, [])


def test_the_table_shows_every_trace_with_its_terms():
    found = overlap(spans_of("model", [(0, 4)]) + spans_of("tool", [(1, 5), (3, 5)]))
    view = overlap_table("Where the time went", {"FlashNode": found})
    shown = dict(zip((column.head for column in view.columns), view.rows[0], strict=True))
    assert shown["trace"] == "FlashNode"
    assert shown["saved [s]"] == "5.00"
    assert (shown["by D‖E [s]"], shown["by F‖F [s]"], shown["by M‖M [s]"]) == ("3.00", "2.00", "0")
