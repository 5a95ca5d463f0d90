"""One self-contained page: text, tables and figures in a single HTML file that opens without a network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Self
from xml.etree import ElementTree

from pydantic import model_validator

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.records import Record
from langgraph_flash.report.markup import markup_text
from langgraph_flash.report.table import TableView

__all__ = ["Figure", "Heading", "Section", "report_html"]

_SVG = "{http://www.w3.org/2000/svg}"
# Shapes, text and paint; nothing that runs, loads or links.
_ALLOWED = re.compile(
    "svg|g|defs|title|desc|style|path|rect|circle|ellipse|line|polyline|polygon|text|tspan|"
    "linearGradient|radialGradient|stop|pattern|clipPath|mask|marker"
)
_OUTSIDE = re.compile(r"@import|url\s*\(\s*['\"]?(?!#)|javascript:|https?://", re.IGNORECASE)

_STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#18202c;--muted:#5b6573;--line:#e3e7ed;
--head:#f4f6f9;--tip:#18202c;--tip-ink:#fff}
@media (prefers-color-scheme:dark){:root{--page:#0b0f14;--card:#12171e;--ink:#e8ebf0;--muted:#98a3b3;
--line:#29313c;--head:#1a212a;--tip:#e8ebf0;--tip-ink:#12171e}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1008px;margin:0 auto;padding:44px 24px 64px}
h1{font-size:27px;line-height:1.25;letter-spacing:-.015em;margin:0 0 20px}
h2{font-size:18px;line-height:1.35;margin:40px 0 10px}
p{max-width:72ch;margin:0 0 14px;white-space:pre-line}
figure{margin:22px 0}
figure svg{display:block;max-width:100%;height:auto}
figcaption{color:var(--muted);font-size:13px;line-height:1.5;max-width:90ch;margin-top:9px}
.table{background:var(--card);border:1px solid var(--line);border-radius:12px;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:650;padding:13px 14px 11px}
th,td{padding:8px 14px;text-align:left;border-top:1px solid var(--line);white-space:nowrap}
th{background:var(--head);color:var(--muted);font-size:12.5px;font-weight:600}
th span{font-weight:400}
.right{text-align:right}
tbody tr:hover{background:var(--head)}
#tip{position:fixed;left:0;top:0;z-index:9;pointer-events:none;max-width:380px;padding:8px 11px;
border-radius:7px;background:var(--tip);color:var(--tip-ink);font-size:12.5px;line-height:1.45;white-space:pre-line;opacity:0;
overflow-wrap:anywhere;transition:opacity .1s}
#tip.on{opacity:1}
#tip::first-line{font-weight:650}
@media print{body{background:#fff}.table{break-inside:avoid}figure{break-inside:avoid}}
""".strip()

# The SVG's own <title> tooltips are slow to appear and unstyled; without this script they still work.
_SCRIPT = """
(() => {
  const tip = document.getElementById("tip");
  const show = (bar, x, y) => {
    tip.textContent = bar.dataset.tip;
    tip.classList.add("on");
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
  };
  const hide = () => tip.classList.remove("on");
  for (const bar of document.querySelectorAll("figure g.bar")) {
    const title = bar.querySelector("title");
    if (!title) continue;
    bar.dataset.tip = title.textContent;
    bar.setAttribute("aria-label", title.textContent);
    bar.setAttribute("tabindex", "0");
    title.remove();
    bar.addEventListener("mousemove", event => show(bar, event.clientX, event.clientY));
    bar.addEventListener("mouseleave", hide);
    bar.addEventListener("focus", () => {
      const box = bar.getBoundingClientRect();
      show(bar, box.left, box.bottom - 12);
    });
    bar.addEventListener("blur", hide);
  }
})();
""".strip()

# Should anything in the page ever point outside, the browser refuses to follow.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


class Heading(Record):
    """A heading between sections."""

    text: str
    """One line."""


class Figure(Record):
    """A drawing with a caption.

    Markup cannot be escaped, so it is checked instead: one well-formed SVG, made of shapes and text only, without
    scripts, event handlers, links or anything that is loaded from elsewhere.

    Raises:
        pydantic.ValidationError: The drawing is not such an SVG.
    """

    svg: str
    """An `<svg>` element, such as `timeline_svg` returns."""

    caption: str | None = None
    """What the figure shows."""

    @model_validator(mode="after")
    def _harmless(self) -> Self:
        problem = _problem(self.svg)
        if problem:
            raise ConfigurationError(f"The drawing {problem}. A figure is one self-contained <svg> element.")
        return self


Section = str | Heading | TableView | Figure
"""What a page is made of; a string is a paragraph, its line breaks kept."""


def report_html(title: str, sections: Iterable[Section]) -> str:
    """Build the page.

    Everything is inline: the style, the drawings, and a few lines of script for tooltips, without which the
    page loses nothing else. It follows the reader's light or dark mode and prints.

    Args:
        title: The page's title and first heading.
        sections: What follows, top to bottom.

    Returns:
        A complete HTML document; write it as UTF-8.

    Raises:
        ConfigurationError: A section is of no known kind.
    """
    head = markup_text(title)
    body = "\n".join(_section(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{head}</title>
<style>
{_STYLE}
</style>
</head>
<body>
<main>
<h1>{head}</h1>
{body}
</main>
<div id="tip" role="presentation"></div>
<script>
{_SCRIPT}
</script>
</body>
</html>
"""


def _section(section: Section) -> str:
    match section:
        case str():
            return f"<p>{markup_text(section)}</p>"
        case Heading():
            return f"<h2>{markup_text(section.text)}</h2>"
        case TableView():
            return _table(section)
        case Figure():
            return f"<figure>\n{section.svg}\n{_caption(section.caption)}</figure>"
    raise ConfigurationError(
        f"A section is a str, Heading, TableView or Figure, not {type(section).__name__}. "
        "Draw a TimelineView with Figure(svg=timeline_svg(view))."
    )


def _table(view: TableView) -> str:
    right = [' class="right"' if column.align == "right" else "" for column in view.columns]
    heads = "".join(
        f'<th scope="col"{place}>{markup_text(column.name)}'
        + (f" <span>[{markup_text(column.unit)}]</span>" if column.unit else "")
        + "</th>"
        for column, place in zip(view.columns, right, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(f"<td{place}>{markup_text(cell)}</td>" for cell, place in zip(row, right, strict=True))
        + "</tr>"
        for row in view.rows
    )
    return (
        f'<figure>\n<div class="table"><table>\n<caption>{markup_text(view.title)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n"
        f"{_caption(view.note)}</figure>"
    )


def _caption(text: str | None) -> str:
    return f"<figcaption>{markup_text(text)}</figcaption>\n" if text else ""


def _problem(svg: str) -> str | None:
    """Why a drawing may not go into the page, or `None`."""
    # Refusing declarations leaves the parser no entity to expand.
    if "<!" in svg or "<?" in svg:
        return "contains a declaration, comment or processing instruction"
    try:
        root = ElementTree.fromstring(svg)  # noqa: S314
    except ElementTree.ParseError as error:
        return f"is not well-formed XML ({error})"
    if root.tag != f"{_SVG}svg":
        return f"is a {root.tag!r} element"
    for element in root.iter():
        name = str(element.tag).removeprefix(_SVG)
        if not _ALLOWED.fullmatch(name):
            return f"contains the element {name!r}"
        if name == "style" and _OUTSIDE.search(element.text or ""):
            return "has a style that refers to something outside"
        for attribute, value in element.attrib.items():
            spoken = attribute.startswith("aria-")
            outside = attribute.endswith("href") or (_OUTSIDE.search(value) and not spoken)
            if attribute.lower().startswith("on") or outside:
                return f"has the attribute {attribute!r} on {name!r}"
    return None
