"""Future ids inside arguments: their shape, how they are found, projected and replaced by values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langgraph_flash.errors import ProjectionError

__all__ = ["ID_PATTERN", "Reference", "find_references", "future_id", "project", "substitute"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 10
ID_PATTERN = f"fut_[{_ALPHABET}]{{{_LENGTH}}}"
"""What an id looks like, as a regular expression without anchors."""

_PAIRS = [low_digit + high_digit for high_digit in _ALPHABET for low_digit in _ALPHABET]
"""Two digits for each ten bits of a number, the lower one first."""

_INDEX_DIGITS = 18
_REFERENCE = re.compile(rf"({ID_PATTERN})(|[.\[].*)", re.DOTALL)
_STEP = re.compile(r"""\.([^\W\d]\w*)|\[(-?\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\[('[^']*')\]""")


def future_id(scope: str, call: str) -> str:
    """The id of a call: short, the same on every replay, and not guessable from another conversation.

    Fifty bits of a keyed hash: the scope (thread and namespace) is the key, the call's own identity the message.
    """
    number = int.from_bytes(hashlib.blake2b(call.encode(), key=_key(scope), digest_size=8).digest(), "big")
    return "fut_" + "".join([_PAIRS[(number >> shift) & 1023] for shift in range(0, 5 * _LENGTH, 10)])


@lru_cache(maxsize=1024)
def _key(scope: str) -> bytes:
    return hashlib.blake2b(scope.encode(), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Reference:
    """A future, or a part of its value, standing where an argument's value will be."""

    text: str
    """As it was written, such as `fut_0123456789.items[0].id`."""

    future_id: str

    path: tuple[str | int, ...] = ()
    """Keys and indices into the value, outermost first."""

    @classmethod
    def parse(cls, text: object) -> Reference | None:
        """The reference that `text` is, or `None` if it is an ordinary value.

        Only a whole string is a reference: an id within a sentence is text.

        Raises:
            ProjectionError: It starts with an id and `.` or `[`, but what follows is not a projection.
        """
        if not isinstance(text, str) or not text.startswith("fut_"):
            return None
        if (match := _REFERENCE.fullmatch(text)) is None:
            return None
        identity, rest = match.groups()
        path: list[str | int] = []
        position = 0
        while position < len(rest):
            step = _STEP.match(rest, position)
            if step is None:
                raise ProjectionError(text, identity, f"is malformed at {rest[position:]!r}")
            field, index, quoted, single = step.groups()
            if field is not None:
                path.append(field)
            elif index is not None:
                if len(index) > _INDEX_DIGITS:
                    raise ProjectionError(text, identity, f"is malformed at {rest[position:][:40]!r}")
                path.append(int(index))
            elif quoted is not None:
                try:
                    path.append(json.loads(quoted))
                except ValueError:
                    raise ProjectionError(text, identity, f"is malformed at {rest[position:]!r}") from None
            else:
                path.append(single[1:-1])
            position = step.end()
        return cls(text=text, future_id=identity, path=tuple(path))


_PLAIN = frozenset({int, float, bool, type(None)})


def find_references(arguments: object) -> Iterator[tuple[tuple[str | int, ...], Reference]]:
    """Every reference anywhere inside the arguments, with the place it stands at.

    Raises:
        ProjectionError: A reference is malformed.
    """
    stack: list[tuple[tuple[str | int, ...], object]] = [((), arguments)]
    while stack:
        place, value = stack.pop()
        inside: Iterable[tuple[Any, object]]
        if isinstance(value, str):
            if (reference := Reference.parse(value)) is not None:
                yield place, reference
            continue
        if isinstance(value, Mapping):
            inside = value.items()
        elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            inside = enumerate(value)
        else:
            continue
        # Most arguments are plain values: they are passed over here, where that costs least.
        held = [
            ((*place, key), item)
            for key, item in inside
            if (item.startswith("fut_") if isinstance(item, str) else type(item) not in _PLAIN)
        ]
        stack += reversed(held)


def substitute(
    arguments: Mapping[str, object],
    resolve: Callable[[Reference, str], object],
) -> dict[str, object]:
    """A copy of the arguments with every reference replaced by `resolve(reference, argument name)`."""

    def replaced(name: str, value: object) -> object:
        if isinstance(value, str):
            reference = Reference.parse(value)
            return value if reference is None else resolve(reference, name)
        if isinstance(value, Mapping):
            return {key: replaced(name, item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            return [replaced(name, item) for item in value]
        return value

    return {name: replaced(name, value) for name, value in arguments.items()}


def project(reference: Reference, value: object, *, as_text: bool = False) -> object:
    """The part of a value that a reference names.

    A tool's result reaches a conversation as text, so text that is JSON is read as JSON. A reference without a path
    stands for the whole result: with `as_text` (the argument wants a string) text stays text.

    Raises:
        ProjectionError: The path finds nothing; the message says what is there instead.
    """
    if not reference.path:
        return value if as_text else _decoded(value)
    current = value
    for depth, step in enumerate(reference.path):
        here = "".join(f"[{part!r}]" for part in reference.path[:depth]) or "the result"
        if isinstance(current, str):
            current = _decoded(current)
        if isinstance(step, str) and isinstance(current, Mapping):
            if step not in current:
                keys = ", ".join(sorted(map(repr, current))[:20]) or "none"
                raise ProjectionError(
                    reference.text, reference.future_id, f"finds no key {step!r} in {here} (keys: {keys})"
                )
            current = current[step]
        elif isinstance(step, int) and isinstance(current, Sequence) and not isinstance(current, str):
            if not -len(current) <= step < len(current):
                raise ProjectionError(
                    reference.text,
                    reference.future_id,
                    f"finds no index {step} in {here} ({len(current)} items)",
                )
            current = current[step]
        else:
            kind = "an object" if isinstance(current, Mapping) else f"a {type(current).__name__}"
            raise ProjectionError(reference.text, reference.future_id, f"asks for {step!r} in {here}, which is {kind}")
    return current


def _decoded(value: object) -> object:
    if not isinstance(value, str) or not value.strip() or value.strip()[0] not in '{["-0123456789tfn':
        return value
    try:
        return json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return value


def _refuse_constant(name: str) -> object:
    # Python's parser takes NaN and Infinity for JSON; they are words.
    raise ValueError(name)
