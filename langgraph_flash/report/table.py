"""Tables as data, and the one place that says how a number is written.

A `TableView` holds finished strings, so that terminal, HTML and tests show the same digits. The formatters:

    seconds   three digits, in the unit that fits      850 µs · 12.3 ms · 1.24 s · 12.4 s · 2 min 05 s · 1 h
    02 min ratios    two decimals and a cross                 1.44x shares    one decimal, given as a fraction
    0.123 → 12.3% counts    digits in groups of three                12,345

A value that was not measured is `None` and written as a dash, never as zero.
"""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import model_validator

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Record

__all__ = [
    "Column",
    "TableView",
    "format_count",
    "format_percent",
    "format_ratio",
    "format_seconds",
]

_MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
_UNITS = {"s": 1.0, "ms": 1e3, "µs": 1e6}


class Column(Record):
    """The head of one column."""

    name: str
    """What the column shows."""

    unit: str | None = None
    """The unit of its numbers, where the cells do not carry their own."""

    align: Literal["left", "right"] = "left"
    """Numbers read best on the right."""

    @property
    def head(self) -> str:
        """The name, with the unit in brackets."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


class TableView(Record):
    """A table ready to draw: every cell is already text.

    Raises:
        pydantic.ValidationError: A row has more or fewer cells than there are columns.
    """

    title: str
    """One line above the table."""

    columns: tuple[Column, ...]
    """The heads, left to right."""

    rows: tuple[tuple[str, ...], ...] = ()
    """The cells, top to bottom."""

    note: str | None = None
    """What a reader must know to read the numbers: conditions, sample size, source."""

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ConfigurationError(
                    f"Row {index} of table {self.title!r} has {len(row)} cells, not {len(self.columns)}."
                )
        return self


def format_seconds(value: float | None, unit: Literal["s", "ms", "µs"] | None = None) -> str:
    """Write a duration given in seconds with three significant digits.

    Args:
        value: Seconds, or `None` where it was not measured.
        unit: Write the bare number in this unit, for a column that names it; by default the unit that fits is
            chosen and written.
    """
    if value is None or not math.isfinite(value):
        return _not_finite(value)
    if unit is not None:
        return _three_digits(value * _UNITS[unit])
    if value < 0:
        return MINUS + format_seconds(-value)
    if value == 0:
        return "0 s"
    # Compared after rounding, so that 0.9999 s is "1.00 s" and not "1000 ms".
    for name in ("µs", "ms", "s"):
        scaled = float(f"{value * _UNITS[name]:.3g}")
        if scaled < (1000 if name != "s" else 100):
            return f"{_three_digits(value * _UNITS[name])} {name}"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours:,} h {minutes:02d} min"


def format_ratio(value: float | None) -> str:
    """Write how many times one quantity is another, such as a speed-up: 1.44x, with a true cross."""
    if value is None or not math.isfinite(value):
        return _not_finite(value, TIMES)
    return f"{_minus(f'{value:,.2f}')}{TIMES}"


def format_percent(value: float | None) -> str:
    """Write a fraction as a percentage with one decimal: 0.123 is `12.3%`."""
    if value is None or not math.isfinite(value):
        return _not_finite(value, "%")
    return f"{_minus(f'{100 * value:,.1f}')}%"


def format_count(value: float | None) -> str:
    """Write a number of things, rounded to a whole one, in groups of three digits: `12,345`."""
    if value is None or not math.isfinite(value):
        return _not_finite(value)
    return _minus(f"{round(value):,}")


def _three_digits(value: float) -> str:
    """At least three significant digits and no exponent: 0.123, 1.24, 12.4, 124, 1,240."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return _minus(f"{value:,.{min(decimals, 12)}f}")


def _minus(text: str) -> str:
    """A true minus sign; and -0.0 is 0.0."""
    if not text.startswith("-"):
        return text
    return MINUS + text[1:] if text.strip("-0.,") else text[1:]


def _not_finite(value: float | None, suffix: str = "") -> str:
    if value is None:
        return _MISSING
    if math.isnan(value):
        return "NaN"
    return ("∞" if value > 0 else MINUS + "∞") + suffix
