"""Numbers are written one way everywhere."""

# ruff: noqa: RUF001  signs as a reader sees them

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from langgraph_flash.report import Column, TableView, format_count, format_percent, format_ratio, format_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0000004, "0.400 µs"),
        (0.00085, "850 µs"),
        (0.0123, "12.3 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1.00 s"),
        (1.236, "1.24 s"),
        (12.36, "12.4 s"),
        (99.97, "1 min 40 s"),
        (125, "2 min 05 s"),
        (3599.8, "1 h 00 min"),
        (3720, "1 h 02 min"),
        (-1.5, "−1.50 s"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "NaN"),
    ],
)
def test_seconds_choose_their_unit(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "unit", "text"),
    [(0.0123, "s", "0.0123"), (12.36, "s", "12.4"), (1234.5, "s", "1,234"), (0.0123, "ms", "12.3"), (None, "s", "–")],
)
def test_seconds_in_a_column_with_a_unit_are_bare(seconds, unit, text):
    assert format_seconds(seconds, unit=unit) == text


def test_ratios_shares_and_counts():
    assert [format_ratio(value) for value in (1.436, 1234.5, None, math.inf)] == ["1.44×", "1,234.50×", "–", "∞×"]
    assert [format_percent(value) for value in (0.123, -0.0331, -0.00001, None)] == ["12.3%", "−3.3%", "0.0%", "–"]
    assert [format_count(value) for value in (12345, 0, -3, None)] == ["12,345", "0", "−3", "–"]


@given(st.floats(1e-9, 1e9))
def test_three_digits_are_never_off_by_more_than_half_a_percent(value):
    shown = float(format_seconds(value, unit="s").replace(",", ""))
    assert shown == pytest.approx(value, rel=0.0051)


def test_a_column_names_its_unit():
    assert Column(name="time", unit="s").head == "time [s]"
    assert Column(name="node").head == "node"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValidationError, match="Row 1 of table 'T' has 1 cells, not 2"):
        TableView(title="T", columns=(Column(name="a"), Column(name="b")), rows=(("1", "2"), ("3",)))


def test_a_table_survives_json():
    view = TableView(title="T", columns=(Column(name="a", align="right"),), rows=(("1",),), note="n")
    assert TableView.model_validate_json(view.model_dump_json()) == view
