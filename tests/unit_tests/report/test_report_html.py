"""One page, nothing outside it, everything escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Span
from langgraph_flash.report import (
    Column,
    Figure,
    Heading,
    TableView,
    report_html,
    timeline_svg,
    timeline_view,
)

HOSTILE = """<script>alert("1")</script>&'"""
VOID = {"meta", "path", "rect", "line"}


class Page(HTMLParser):
    """Collects the elements and the text of a page, and checks that every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def drawing(title="run", name="tool", detail="x"):
    return timeline_svg(timeline_view(title, [Span(kind="tool", name=name, start=0, end=2, detail=detail)]))


def test_sections_appear_in_order():
    table = TableView(
        title="Numbers", columns=(Column(name="time", unit="s", align="right"),), rows=(("17.25",),), note="Measured."
    )
    text = report_html("Report", ["First.", Heading(text="Then"), table, Figure(svg=drawing(), caption="A picture.")])
    shown = " ".join(Page(text).words)
    places = [shown.index(part) for part in ("First.", "Then", "Numbers", "17.25", "Measured.", "A picture.")]
    assert places == sorted(places)
    assert '<th scope="col" class="right">time <span>[s]</span></th>' in text


def test_hostile_text_stays_text():
    table = TableView(title=HOSTILE, columns=(Column(name=HOSTILE, unit=HOSTILE),), rows=((HOSTILE,),), note=HOSTILE)
    figure = Figure(svg=drawing(HOSTILE, HOSTILE, HOSTILE), caption=HOSTILE)
    page = Page(report_html(HOSTILE, [HOSTILE, Heading(text=HOSTILE), table, figure]))
    assert [tag for tag, _ in page.elements].count("script") == 1, "only the page's own"
    assert not [attribute for _, attributes in page.elements for attribute in attributes if attribute.startswith("on")]
    assert page.words.count(HOSTILE) >= 7


@given(st.text(), st.text())
def test_any_text_makes_a_page(title, paragraph):
    text = report_html(title, [paragraph])
    Page(text)
    text.encode()


def test_the_page_needs_nothing_from_outside():
    text = report_html("Report", [Figure(svg=drawing())] * 4)
    assert re.findall(r"(?:https?:)?//[\w.]+[^\s\"]*", text) == ["http://www.w3.org/2000/svg"] * 4
    assert not re.findall(r"\b(?:src|href)=|url\(|@import", text)
    assert "default-src 'none'" in text
    assert len(text.encode()) < 100_000


def test_a_title_that_is_an_address_is_no_reference():
    Figure(svg=drawing("https://example.org", "https://example.org", "https://example.org"))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<script>alert(1)</script>", "script"),
        ("<SCRIPT>alert(1)</SCRIPT>", "SCRIPT"),
        ('<rect onclick="alert(1)"/>', "onclick"),
        ('<image href="https://example.org/x.png"/>', "image"),
        ('<rect fill="url(https://example.org/x)"/>', "fill"),
        ("<style>@import 'x.css'</style>", "style"),
        ("<style>.a{background:url(//example.org/x)}</style>", "style"),
        ("<foreignObject/>", "foreignObject"),
        ('<p xmlns="http://www.w3.org/1999/xhtml"/>', "xhtml"),
        ("<!-- -->", "comment"),
        ("<g>", "well-formed"),
    ],
)
def test_a_drawing_that_could_do_more_than_draw_is_refused(inside, problem):
    with pytest.raises(ValidationError, match=problem):
        Figure(svg=f'<svg xmlns="http://www.w3.org/2000/svg">{inside}</svg>')


def test_a_drawing_that_is_no_svg_is_refused():
    with pytest.raises(ValidationError, match="element"):
        Figure(svg="<b/>")


def test_an_unknown_section_is_refused_with_the_way_out():
    with pytest.raises(ConfigurationError, match="timeline_svg"):
        report_html("Report", [timeline_view("run", [])])
