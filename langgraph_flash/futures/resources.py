"""What a call touches: resource paths, templates over its arguments, and when two calls conflict.

A resource is a slash path, `calendar/alice`. A path contains its descendants: whoever writes `calendar` may change
`calendar/alice`, so the two conflict; `calendar/alice` and `calendar/bob` do not. `*` is the root, which contains
everything. A template, `calendar/{user}`, becomes a path once the arguments of a call are known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from langgraph_flash.errors import ResourceError

__all__ = ["BARRIER", "PURE", "Access", "Path", "Template", "conflicts", "covers"]

Path = tuple[str, ...]
"""Segments from the root; the empty tuple is the root, written `*`."""

_FIELD = re.compile(r"\{([^{}]*)\}")


def covers(outer: Path, inner: Path) -> bool:
    """Whether `outer` is `inner` or one of its ancestors."""
    return inner[: len(outer)] == outer


@dataclass(frozen=True, slots=True)
class Access:
    """The paths one call reads and writes."""

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        if self == BARRIER:
            return "Access(barrier)"
        if self == PURE:
            return "Access(pure)"
        parts = [
            f"{kind}={['/'.join(path) or '*' for path in paths]}"
            for kind, paths in (("reads", self.reads), ("writes", self.writes))
            if paths
        ]
        return f"Access({', '.join(parts)})"


PURE: Final = Access()
"""Touches nothing: may overlap with anything, barriers included."""

BARRIER: Final = Access(reads=((),), writes=((),))
"""Touches everything: what an undeclared tool is taken for."""


def _meet(left: Iterable[Path], right: tuple[Path, ...]) -> bool:
    return any(covers(a, b) or covers(b, a) for a in left for b in right)


def conflicts(first: Access, second: Access) -> bool:
    """Whether two calls must keep their program order: one writes what the other reads or writes.

    This is the definition (W1 meets R2 or W2, or R1 meets W2, where paths meet when one contains the other). The
    scheduler finds conflicts through a tree instead, and is tested against this function.
    """
    return _meet(first.writes, second.writes) or _meet(first.writes, second.reads) or _meet(first.reads, second.writes)


@dataclass(frozen=True, slots=True)
class Template:
    """A resource path with `{argument}` fields, parsed and checked once."""

    text: str
    segments: tuple[str, ...]
    fields: frozenset[str]

    @classmethod
    def parse(cls, text: object) -> Template:
        """Parse a path such as `calendar/{user}`, `file/{path}` or `*`.

        Raises:
            ResourceError: It is not a string, is empty, holds an unmatched brace or an unnamed field, or a `*` that
                does not stand for a whole subtree (`calendar/*` is accepted and means `calendar`).
        """
        if not isinstance(text, str):
            raise ResourceError(text, "is not a string")
        if not text.replace("/", "").strip():
            raise ResourceError(text, "is empty")
        segments = [segment for part in text.split("/") if (segment := part.strip())]
        if segments[-1] == "*":
            segments.pop()
        fields: set[str] = set()
        for segment in segments:
            if "*" in segment:
                raise ResourceError(text, "has a '*' that is not the last segment")
            for name in _FIELD.findall(segment):
                if not name.isidentifier():
                    raise ResourceError(text, f"has a field {{{name}}} that does not name an argument")
                fields.add(name)
            if "{" in (rest := _FIELD.sub("", segment)) or "}" in rest:
                raise ResourceError(text, "has an unmatched brace")
            if segment in (".", ".."):
                raise ResourceError(text, f"has a segment {segment!r}")
        return cls(text=text, segments=tuple(segments), fields=frozenset(fields))

    def resolve(self, arguments: Mapping[str, object], unknown: frozenset[str] = frozenset()) -> Path:
        """The path for a call's arguments.

        A field whose value is not known yet (`unknown`: it is still a future), absent, or not a plain scalar widens
        the path to what stands before it: fewer calls overlap, never more. A value with slashes becomes several
        segments, so `file/{path}` is hierarchical.
        """
        if not self.fields:
            return self.segments
        path: list[str] = []
        for segment in self.segments:
            names = _FIELD.findall(segment)
            if not names:
                path.append(segment)
                continue
            values: dict[str, str] = {}
            for name in names:
                value = None if name in unknown else _scalar(arguments.get(name))
                if value is None:
                    return tuple(path)
                values[name] = value
            steps = [step for step in _filled(segment, values).split("/") if step not in ("", ".")]
            if not steps or ".." in steps:
                return tuple(path)
            path += steps
        return tuple(path)


def _filled(segment: str, values: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda match: values[match[1]], segment)


_TRUE = frozenset({"true", "yes", "on", "y", "t"})
_FALSE = frozenset({"false", "no", "off", "n", "f"})


def _scalar(value: object) -> str | None:
    """One spelling for everything that a tool's schema may coerce to the same value.

    `1`, `1.0`, `"01"` and `True` can all be the same argument, and a path must never tell apart what the tool does not.
    Where they are different after all, calls wait for each other that need not.
    """
    if isinstance(value, float):
        value = repr(float(value))
    elif isinstance(value, int):
        try:
            return str(int(value))
        except ValueError:  # longer than Python is willing to write
            return None
    if not isinstance(value, str) or "*" in value:
        return None
    text = value.strip()
    if text.lower() in _TRUE:
        return "1"
    if text.lower() in _FALSE:
        return "0"
    return (_number(text) or text) or None


def _number(text: str) -> str | None:
    """The canonical spelling of a number, or `None` if the text is not one."""
    try:
        return str(int(text))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return str(int(number)) if number.is_integer() else repr(number)
