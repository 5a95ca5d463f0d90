"""Timelines as pictures: one self-contained SVG text, for a page, a README or a file.

The picture needs nothing from outside, has no ids (so several fit into one page) and follows the reader's
light or dark mode. Colours are of the Okabe-Ito palette, which colour-blind readers can tell apart, and never
carry a meaning alone: a failed bar is striped and crossed, a cancelled one dashed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.report.markup import coordinate as _n
from langgraph_flash.report.markup import element, fit, markup_text, text_element, text_width
from langgraph_flash.report.table import TIMES, format_ratio, format_seconds
from langgraph_flash.report.timeline import Bar, Lane, TimelineView, axis_ticks, views_of

__all__ = ["timeline_svg"]

_PAD = 24.0
_GUTTER = 56.0
_HEAD = 34.0
_BAR = 24.0
_GAP = 5.0
_KIND_GAP = 11.0
_INSET = 8.0
_PANEL_GAP = 22.0
_AXIS = 30.0
_LEGEND = 26.0
_FONT = 11.5
_MIN_WIDTH = 360

_LEGEND_TEXT = {
    "model": "model decoding",
    "tool": "tool running",
    "stage": "stage",
    "failed": "failed",
    "cancelled": "cancelled",
}

_STYLE = """
.flash-timeline{--surface:#fff;--ink:#18202c;--muted:#5b6573;--line:#e3e7ed;--track:#f4f6f9;
--gain:#00704f;--model:#0072b2;--on-model:#fff;--tool:#f0a818;--on-tool:#2a1c00;
--failed:#b3261e;--on-failed:#fff;--cancelled:#e3e7ed;--on-cancelled:#424b58;--stage:#8791a1;--on-stage:#fff;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:11.5px}
@media (prefers-color-scheme:dark){.flash-timeline{--surface:#12171e;--ink:#e8ebf0;--muted:#98a3b3;--line:#29313c;
--track:#1a212a;--gain:#4cc9a0;--model:#56b4e9;--on-model:#04202f;--tool:#e69f00;--on-tool:#261a00;
--failed:#f0705f;--on-failed:#2d0602;--cancelled:#29313c;--on-cancelled:#b7c0cd;--stage:#667184;--on-stage:#fff}}
.flash-timeline text{fill:var(--ink)}
.flash-timeline .surface{fill:var(--surface);stroke:var(--line)}
.flash-timeline .track{fill:var(--track)}
.flash-timeline .grid{stroke:var(--line)}
.flash-timeline .muted{fill:var(--muted)}
.flash-timeline .title{font-size:14px;font-weight:650}
.flash-timeline .end{stroke:var(--ink);stroke-width:1.5}
.flash-timeline .beyond{stroke:var(--muted);stroke-dasharray:2 3}
.flash-timeline .flag{fill:var(--ink)}
.flash-timeline .flag-text{fill:var(--surface);font-weight:650;font-size:12px}
.flash-timeline .gain{stroke:var(--gain);stroke-width:1.5;fill:none}
.flash-timeline .gain-text{fill:var(--gain);font-weight:650;font-size:15px}
.flash-timeline .gain-note{fill:var(--gain);font-size:11.5px}
.flash-timeline .bar text{font-weight:550}
.flash-timeline .bar .beside{fill:var(--ink);font-weight:400}
.flash-timeline .bar .time{font-weight:400;opacity:.78}
.flash-timeline .model rect{fill:var(--model)}.flash-timeline .model text{fill:var(--on-model)}
.flash-timeline .tool rect{fill:var(--tool)}.flash-timeline .tool text{fill:var(--on-tool)}
.flash-timeline .stage rect{fill:var(--stage)}.flash-timeline .stage text{fill:var(--on-stage)}
.flash-timeline .failed rect{fill:var(--failed)}.flash-timeline .failed text{fill:var(--on-failed)}
.flash-timeline .stripes{stroke:var(--on-failed);opacity:.22}
.flash-timeline .cancelled rect{fill:var(--cancelled);stroke:var(--on-cancelled);stroke-dasharray:4 3}
.flash-timeline .cancelled text{fill:var(--on-cancelled)}
.flash-timeline .bar:hover rect,.flash-timeline .bar:focus rect{stroke:var(--ink);stroke-width:1.5}
.flash-timeline .bar:focus{outline:none}
""".strip()


def timeline_svg(views: TimelineView | Sequence[TimelineView], width: int = 960) -> str:
    """Draw one timeline, or several above each other on one time axis.

    Each ends in a flag with its duration. A timeline shorter than the longest shows by how much and by which
    ratio, so that the picture of two ways to run one task answers the question it raises.

    Args:
        views: What to draw, top to bottom.
        width: Width in CSS pixels, at least 360; the height follows from the number of lanes.

    Returns:
        An `<svg>` element, well-formed XML without a declaration: embed it in HTML, or write it to a file.

    Raises:
        ConfigurationError: There is no view, or the width is too small for labels.
    """
    panels = views_of(views)
    if width < _MIN_WIDTH:
        raise ConfigurationError(f"A timeline is at least {_MIN_WIDTH} pixels wide, not {width}.")
    longest = max(view.seconds for view in panels)
    left, right, top = _PAD + _GUTTER, width - _PAD - 8, _PAD - 8
    # A picture of nothing still has an axis.
    scale = (right - left) / (longest or 1.0)
    floor = top + sum(map(_panel_height, panels)) + _PANEL_GAP * (len(panels) - 1)
    height = floor + _AXIS + _LEGEND + 10

    ticks = _ticks(longest, left, right)
    backs: list[str] = []
    bodies: list[str] = []
    y = top
    for view in panels:
        deep = _panel_height(view) - _HEAD
        backs.append(element("rect", "track", x=left, y=y + _HEAD, width=view.seconds * scale, height=deep, rx=3))
        backs += [element("line", "grid", x1=x, x2=x, y1=y + _HEAD, y2=y + _HEAD + deep) for x, _ in ticks]
        bodies += _panel(view, longest, left, y, scale)
        y += _panel_height(view) + _PANEL_GAP
    summary = "; ".join(f"{view.title}: {format_seconds(view.seconds)}" for view in panels)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="flash-timeline" role="img" width="{width}" '
            f'height="{_n(height)}" viewBox="0 0 {width} {_n(height)}" '
            f'aria-label="{markup_text("Timeline. " + summary)}">',
            f"<style>{_STYLE}</style>",
            element("rect", "surface", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=12),
            *backs,
            *(text_element("muted", label, x, floor + 18, "middle") for x, label in ticks),
            *bodies,
            *_legend(panels, left, floor + _AXIS + 12),
            "</svg>",
        )
    )


def _offsets(lanes: Sequence[Lane]) -> list[float]:
    """The top of each lane below the top of the first; a new kind of lane starts after a wider gap."""
    offsets: list[float] = []
    for index, lane in enumerate(lanes):
        same = index > 0 and lane.label == lanes[index - 1].label
        offsets.append(offsets[-1] + _BAR + (_GAP if same else _KIND_GAP) if offsets else 0.0)
    return offsets


def _panel_height(view: TimelineView) -> float:
    offsets = _offsets(view.lanes)
    return _HEAD + 2 * _INSET + (offsets[-1] + _BAR if offsets else 0.0)


def _ticks(longest: float, left: float, right: float) -> list[tuple[float, str]]:
    """The place and the label of each round time; one unit for the whole axis, named at its end."""
    ticks = axis_ticks(longest, target=int((right - left) / 80))
    factor, unit = (1.0, "s") if longest >= 1 else (1e3, "ms")
    step = (ticks[1] - ticks[0]) * factor if len(ticks) > 1 else 1.0
    decimals = next((digits for digits in range(6) if abs(round(step, digits) - step) < step * 1e-6), 6)
    labels = [f"{tick * factor:,.{decimals}f}" for tick in ticks]
    labels[-1] += f" {unit}"
    return [(left + tick * (right - left) / (longest or 1.0), label) for tick, label in zip(ticks, labels, strict=True)]


def _panel(view: TimelineView, longest: float, left: float, top: float, scale: float) -> Iterator[str]:
    """One timeline: title, lanes, the flag at its end and what it saves."""
    end, floor = left + view.seconds * scale, top + _panel_height(view)
    flag = format_seconds(view.seconds)
    flag_width = text_width(flag, 12) + 16
    flag_x = max(end - flag_width + 0.75, left)
    gain = _gain(view, longest, end, left + longest * scale, (top + _HEAD + floor) / 2)
    # Where too little is left over for the arrow, the title line says it.
    note = "" if gain else _faster(view, longest)
    room = flag_x - _PAD - 12
    tail = f'<tspan class="gain-note" dx="8">{note}</tspan>' if note and text_width(note, 12) < room / 2 else ""
    title = markup_text(fit(view.title, room - (text_width(note, 12) + 8 if tail else 0), 15))
    yield f'<text x="{_n(_PAD)}" y="{_n(top + 20)}"><tspan class="title">{title}</tspan>{tail}</text>'
    previous = None
    for lane, offset in zip(view.lanes, _offsets(view.lanes), strict=True):
        y = top + _HEAD + _INSET + offset
        if lane.label != previous:
            yield text_element("muted", fit(lane.label, _GUTTER - 8, _FONT), _PAD, y + _BAR / 2 + 4)
        previous = lane.label
        # Up to where a bar's label may run if the bar is too short for it.
        limits = [left + bar.start * scale for bar in lane.bars[1:]] + [end]
        for bar, limit in zip(lane.bars, limits, strict=True):
            yield _bar(bar, left + bar.start * scale, y, bar.seconds * scale, limit)
    yield element("line", "end", x1=end, x2=end, y1=top + 16, y2=floor)
    yield element("rect", "flag", x=flag_x, y=top + 5, width=flag_width, height=21, rx=5)
    yield text_element("flag-text", flag, flag_x + flag_width / 2, top + 20, "middle")
    yield from gain


def _faster(view: TimelineView, longest: float) -> str:
    """`1.81x faster`, or nothing where the two decimals shown would not tell them apart."""
    ratio = longest / view.seconds if view.seconds else math.inf
    return f"{format_ratio(ratio)} faster" if longest and ratio >= 1.005 else ""


def _gain(view: TimelineView, longest: float, start: float, end: float, middle: float) -> list[str]:
    """The arrow over the time a shorter run does not need; nothing where its words would not fit."""
    head, note = _faster(view, longest), f"{format_seconds(longest - view.seconds)} less"
    if not head or end - start < max(text_width(head, 15), text_width(note, _FONT)) + 14:
        return []
    centre, left, right, tip = (start + end) / 2, start + 7, end - 3, 5
    arrow = (
        f"M{_n(left)} {_n(middle)}H{_n(right)}M{_n(left + tip)} {_n(middle - tip)}l-{tip} {tip}l{tip} {tip}"
        f"M{_n(right - tip)} {_n(middle - tip)}l{tip} {tip}l-{tip} {tip}"
    )
    return [
        element("line", "beyond", x1=end, x2=end, y1=middle - 30, y2=middle + 30),
        element("path", "gain", d=arrow),
        text_element("gain-text", head, centre, middle - 11, "middle"),
        text_element("gain-note", note, centre, middle + 21, "middle"),
    ]


def _bar(bar: Bar, x: float, y: float, width: float, limit: float) -> str:
    """A bar with its label: inside and with the duration where there is room, else beside it, else cut short.

    A nested `<svg>` clips what a wide font would push over the edge; a clip path would need an id.
    """
    # One pixel of air keeps neighbours apart; a call too short to see is still two pixels wide.
    width = max(width - 1, 2.0)
    parts = [
        f"<title>{markup_text(_tooltip(bar))}</title>",
        element("rect", x=x, y=y, width=width, height=_BAR, rx=min(5.0, width / 2)),
    ]
    if bar.outcome == "failed" and width > 8:
        parts.append(_stripes(x, y, width, _BAR))
    name = f"{TIMES} {bar.label}" if bar.outcome == "failed" else bar.label
    label = fit(name, width - 12, _FONT)
    if label != name and text_width(name, _FONT) <= limit - x - width - 8:
        parts.append(text_element("beside", name, x + width + 5, y + _BAR / 2 + 4))
    elif label:
        time = format_seconds(bar.seconds)
        roomy = label == name and text_width(label + time, _FONT) + 7 <= width - 12
        tail = f'<tspan class="time" dx="6">{time}</tspan>' if roomy else ""
        parts.append(
            f'<svg x="{_n(x)}" y="{_n(y)}" width="{_n(width - 3)}" height="{_n(_BAR)}">'
            f'<text x="7" y="{_n(_BAR / 2 + 4)}">{markup_text(label)}{tail}</text></svg>'
        )
    return f'<g class="bar {_look(bar)}">{"".join(parts)}</g>'


def _look(bar: Bar) -> str:
    return bar.kind if bar.outcome == "ok" else bar.outcome


def _stripes(x: float, y: float, width: float, height: float) -> str:
    """Stripes without a pattern, which would need an id: one thick dashed line inside the corners."""
    y += height / 2
    return (
        f'<line class="stripes" x1="{_n(x + 3)}" x2="{_n(x + width - 2)}" y1="{_n(y)}" y2="{_n(y)}" '
        f'stroke-width="{_n(height)}" stroke-dasharray="2 5"/>'
    )


def _tooltip(bar: Bar) -> str:
    lines = [
        bar.label,
        f"{bar.kind}, {bar.outcome}, {format_seconds(bar.seconds)}",
        f"from {format_seconds(bar.start)} to {format_seconds(bar.end)}",
    ]
    return "\n".join([*lines, bar.detail] if bar.detail else lines)


def _legend(panels: Sequence[TimelineView], left: float, y: float) -> Iterator[str]:
    """The looks that occur, in a fixed order."""
    looks = {_look(bar) for view in panels for lane in view.lanes for bar in lane.bars}
    x = left
    for look, words in _LEGEND_TEXT.items():
        if look not in looks:
            continue
        stripes = _stripes(x, y - 6, 16, 12) if look == "failed" else ""
        yield f'<g class="{look}">{element("rect", x=x, y=y - 6, width=16, height=12, rx=3)}{stripes}</g>'
        yield text_element("muted", words, x + 22, y + 4)
        x += 22 + text_width(words, _FONT) + 18
