"""The small pieces every drawing is made of: escaped text, SVG elements, coordinates, and room for words."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

__all__ = ["coordinate", "element", "fit", "markup_text", "text_element", "text_width"]

# What XML 1.0 cannot contain, not even escaped.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def markup_text(text: str) -> str:
    """Escape text for XML and HTML, as content or inside quotes; characters XML forbids become U+FFFD."""
    return escape(_ILLEGAL.sub("\ufffd", text), {'"': "&quot;", "'": "&#39;"})


def element(name: str, look: str | None = None, **attributes: float | str) -> str:
    """An empty element; numbers become coordinates."""
    pairs = {"class": look} if look else {}
    pairs |= {key: value if isinstance(value, str) else coordinate(value) for key, value in attributes.items()}
    return f"<{name} " + " ".join(f'{key}="{markup_text(value)}"' for key, value in pairs.items()) + "/>"


def text_element(look: str, words: str, x: float, y: float, anchor: str = "start") -> str:
    """A `<text>` of the class `look`; `anchor` says which part of the words stands at x."""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{look}" x="{coordinate(x)}" y="{coordinate(y)}"{place}>{markup_text(words)}</text>'


def text_width(words: str, size: float) -> float:
    """A cautious estimate of a text's width in pixels: fonts differ, and nothing here can measure one."""
    narrow = sum(char in "iIjl.,:;'|!()[] " for char in words)
    wide = sum(char in "mwMW@%…" or char == "\N{MULTIPLICATION SIGN}" or ord(char) > 0x2E80 for char in words)
    return size * (0.36 * narrow + 0.98 * wide + 0.6 * (len(words) - narrow - wide))


def fit(words: str, room: float, size: float) -> str:
    """The text, shortened with an ellipsis to fit, or nothing where not even three letters do."""
    if text_width(words, size) <= room:
        return words
    shown = words[: max(int(room / (0.36 * size)), 0)]
    while shown and text_width(shown + "…", size) > room:
        shown = shown[:-1]
    return shown.rstrip() + "…" if len(shown) >= 3 else ""


def coordinate(value: float) -> str:
    """A coordinate: two decimals are finer than any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
