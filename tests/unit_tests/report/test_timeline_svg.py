"""The picture is valid, self-contained XML that says what the view says."""

# ruff: noqa: RUF001  signs as a reader sees them

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Span
from langgraph_flash.report import markup_text, timeline_svg, timeline_view

NS = "{http://www.w3.org/2000/svg}"


def span(kind, name, start, end, **more):
    return Span(kind=kind, name=name, start=start, end=end, **more)


SLOW = timeline_view("ToolNode", [span("model", "m", 0, 2), span("tool", "search", 2, 6), span("model", "m", 6, 8)])
FAST = timeline_view("FlashNode", [span("model", "m", 0, 2), span("tool", "search", 1, 5), span("model", "m", 2, 5)])


def words(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{NS}text")]


def bars(svg):
    """The rectangle and the tooltip of every bar."""
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{NS}g"):
        if group.get("class", "").startswith("bar "):
            box = group.find(f"{NS}rect")
            found.append((group.get("class"), float(box.get("x")), float(box.get("width")), group[0].text))
    return found


def test_two_timelines_share_one_axis():
    svg = timeline_svg([SLOW, FAST])
    scale = {round(width + 1, 1): tip for _, _, width, tip in bars(svg) if "4.00 s" in tip}
    assert len(scale) == 1, "four seconds are as wide above as below"
    assert {"ToolNode", "FlashNode", "8.00 s", "5.00 s", "1.60× faster", "3.00 s less"} <= set(words(svg))
    assert {"model decoding", "tool running"} <= set(words(svg))
    assert "failed" not in words(svg), "the legend shows what occurs"


def test_a_bar_lies_where_its_call_ran():
    (first, second, third) = bars(timeline_svg(SLOW))
    per_second = second[1] - first[1]
    assert third[1] - first[1] == pytest.approx((per_second / 6) * 2, abs=0.1)
    assert third[2] + 1 == pytest.approx((per_second / 6) * 4, abs=0.1)
    assert third[3].splitlines() == ["search", "tool, ok, 4.00 s", "from 2.00 s to 6.00 s"]


def test_outcomes_differ_in_more_than_colour():
    view = timeline_view(
        "run", [span("tool", "broken", 0, 5, outcome="failed"), span("tool", "dropped", 5, 9, outcome="cancelled")]
    )
    svg = timeline_svg(view)
    assert [look for look, *_ in bars(svg)] == ["bar failed", "bar cancelled"]
    assert any(text.startswith("× broken") for text in words(svg))
    assert 'class="stripes"' in svg
    assert "stroke-dasharray" in svg


def test_a_label_too_long_for_its_bar_stands_beside_it_or_is_cut():
    name = "a_tool_with_a_long_name"
    beside = timeline_svg(timeline_view("run", [span("tool", name, 0, 1), span("tool", "x", 9, 10)]))
    assert name in words(beside)
    cut = timeline_svg(timeline_view("run", [span("tool", name, 0, 1), span("tool", "x", 1, 10)]))
    assert name not in words(cut)
    assert name in cut, "the tooltip keeps it whole"
    assert any(text.endswith("…") and name.startswith(text[:-1]) for text in words(cut))


@given(st.text(), st.text(), st.text())
def test_any_text_is_escaped(title, name, detail):
    view = timeline_view(title, [span("tool", name, 0, 1, detail=detail), span("tool", name, 0, 0.001)])
    ElementTree.fromstring(timeline_svg(view))


@given(st.text())
def test_escaping_keeps_what_xml_can_hold(text):
    held = ElementTree.fromstring(f'<a b="{markup_text(text)}"/>').get("b")
    # A parser reads line breaks and tabs in an attribute as spaces, CR LF as one.
    for given_char, held_char in zip(text.replace("\r\n", "\n"), held, strict=True):
        assert held_char in (given_char, " ", "\ufffd")


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)), max_size=8), st.integers(360, 2000))
def test_any_run_can_be_drawn(pairs, width):
    view = timeline_view("run", [span("tool", "t", start, start + length) for start, length in pairs])
    root = ElementTree.fromstring(timeline_svg([view, SLOW], width=width))
    for rect in root.iter(f"{NS}rect"):
        assert float(rect.get("x")) >= 0
        assert float(rect.get("width")) >= 0
        assert float(rect.get("x")) + float(rect.get("width")) <= width + 2


def test_runs_without_length_can_be_drawn():
    empty, instant = timeline_view("empty", []), timeline_view("instant", [span("tool", "t", 3, 3)])
    assert "0 s" in words(timeline_svg([empty, instant]))
    assert "∞× faster" in words(timeline_svg([SLOW, instant]))


def test_a_short_run_is_measured_in_milliseconds():
    assert any(text.endswith(" ms") for text in words(timeline_svg(timeline_view("run", [span("tool", "t", 0, 0.04)]))))


def test_a_saving_too_small_for_an_arrow_is_told_in_the_title_line():
    close = timeline_view("FlashNode", [span("model", "m", 0, 7.9)])
    svg = timeline_svg([SLOW, close])
    same = timeline_view("FlashNode", [span("model", "m", 0, 7.9999)])
    assert "faster" not in timeline_svg([SLOW, same])
    assert "FlashNode1.01× faster" in words(svg), "as one text, so that a wide font cannot make them collide"
    assert 'class="gain"' not in svg


def test_nothing_comes_from_outside_and_nothing_has_an_id():
    svg = timeline_svg([SLOW, FAST])
    assert not re.findall(r"url\(|href|@import|<script|\bid=", svg)
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in svg


def test_a_picture_of_no_view_or_of_no_width_is_refused():
    with pytest.raises(ConfigurationError, match="no timeline"):
        timeline_svg([])
    with pytest.raises(ConfigurationError, match="360"):
        timeline_svg(SLOW, width=100)
