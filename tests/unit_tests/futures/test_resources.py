"""Resource paths: what a template refuses, how it widens, and what it means for two calls to conflict."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_flash.errors import ConfigurationError, ResourceError
from langgraph_flash.futures.resources import BARRIER, PURE, Access, Path, Template, conflicts, covers

NAMES = ("a", "b", "c")


@pytest.mark.parametrize("text", ["", " ", "/", "//", " / ", "/ /", "\t", "\n", "/\n/", "\u00a0"])
def test_a_template_of_nothing_but_space_and_slashes_is_refused(text: str) -> None:
    with pytest.raises(ResourceError, match="is empty"):
        Template.parse(text)


@pytest.mark.parametrize("given", [None, 1, 1.5, b"a", ["a"], ("a",), object()])
def test_a_template_that_is_not_a_string_is_refused(given: object) -> None:
    with pytest.raises(ResourceError, match="is not a string"):
        Template.parse(given)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "unmatched brace"),
        ("}", "unmatched brace"),
        ("a/{b", "unmatched brace"),
        ("a/b}", "unmatched brace"),
        ("a/{b/c}", "unmatched brace"),
        ("a/{{b}}", "unmatched brace"),
        ("a/}b{", "unmatched brace"),
        ("a/{}", "does not name an argument"),
        ("a/{ b }", "does not name an argument"),
        ("a/{b.c}", "does not name an argument"),
        ("a/{0}", "does not name an argument"),
        ("a/{b!r}", "does not name an argument"),
        ("a/{b:d}", "does not name an argument"),
        ("*/a", "not the last segment"),
        ("a/*/b", "not the last segment"),
        ("a*", "'*'"),
        ("a/b*", "'*'"),
        ("**", "'*'"),
        ("a/**", "'*'"),
        ("*/*", "'*'"),
        ("a/{b}*", "'*'"),
        ("..", "segment '..'"),
        ("a/../b", "segment '..'"),
        (".", r"segment '\.'"),
        ("./a", r"segment '\.'"),
    ],
)
def test_a_malformed_template_is_refused_and_says_why(text: str, problem: str) -> None:
    with pytest.raises(ResourceError, match=problem) as caught:
        Template.parse(text)
    assert caught.value.given == text
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("*", ()),
        ("/*", ()),
        (" * ", ()),
        ("a", ("a",)),
        ("a/*", ("a",)),
        ("/a/b/", ("a", "b")),
        ("a//b", ("a", "b")),
        ("  a/b  ", ("a", "b")),
        ("...", ("...",)),
        ("a.b/c-d", ("a.b", "c-d")),
    ],
)
def test_a_template_without_fields_is_its_path(text: str, path: Path) -> None:
    template = Template.parse(text)
    assert template.fields == frozenset()
    assert template.resolve({}) == path
    assert template.resolve({"a": 1}, frozenset({"a"})) == path


def test_space_around_the_segments_of_a_template_does_not_make_another_resource() -> None:
    assert Template.parse("calendar / alice").resolve({}) == Template.parse("calendar/alice").resolve({})


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        ["a"],
        {},
        {"a": 1},
        ("a",),
        b"a",
        object(),
        Colour.RED,
        "",
        "   ",
        "*",
        "a*",
        "a/*/b",
        "..",
        "../a",
        "a/..",
        "a/../../b",
        ".",
        "./",
        "/",
        "//",
        "/./",
    ],
)
def test_a_value_that_names_no_place_widens_to_what_stands_before_it(value: object) -> None:
    template = Template.parse("files/{path}/lock/{name}")
    assert template.resolve({"path": value, "name": "n"}) == ("files",)
    assert template.resolve({"path": "p", "name": value}) == ("files", "p", "lock")


def test_an_unknown_or_absent_field_widens_to_what_stands_before_it() -> None:
    template = Template.parse("files/{path}/{a}-{b}/end")
    assert template.resolve({}) == ("files",)
    assert template.resolve({"path": "x"}) == ("files", "x")
    assert template.resolve({"path": "x", "a": "1"}) == ("files", "x")
    assert template.resolve({"path": "x", "b": "1"}) == ("files", "x")
    known: dict[str, object] = {"path": "x", "a": "1", "b": "2"}
    assert template.resolve(known) == ("files", "x", "1-2", "end")
    for name in known:
        assert template.resolve(known, frozenset({name})) == (("files",) if name == "path" else ("files", "x"))
    assert Template.parse("{path}").resolve({}) == ()


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ("a/b", ("a", "b")),
        ("/a/b", ("a", "b")),
        ("a//b/", ("a", "b")),
        ("./a/./b", ("a", "b")),
        (" a ", ("a",)),
        ("{name}", ("{name}",)),
        (r"\1\g<0>", (r"\1\g<0>",)),
        ("...", ("...",)),
        ("a..b", ("a..b",)),
    ],
)
def test_slashes_in_a_value_make_segments_and_nothing_in_it_is_read_as_a_template(
    value: str, steps: tuple[str, ...]
) -> None:
    assert Template.parse("files/{path}/x").resolve({"path": value, "name": "no"}) == ("files", *steps, "x")


def test_dots_that_two_fields_make_together_still_widen() -> None:
    assert Template.parse("a/{x}{y}/b").resolve({"x": ".", "y": "."}) == ("a",)
    assert Template.parse("a/{x}.{y}").resolve({"x": "1", "y": "2"}) == ("a", "1.2")


@pytest.mark.parametrize(
    "spellings",
    [
        (1, 1.0, "1", " 1 "),
        (0, 0.0, -0.0, "0"),
        (-3, -3.0, "-3"),
        (2.5, "2.5"),
        (1, Number.ONE),
        (1.5, np.float64(1.5)),
        (10**16, 1e16, str(10**16)),
        (True, "true"),
        (False, "false"),
        ("alice", " alice", "alice\n"),
        ("a/b", "/a/b", "a/b/", "a//b"),
    ],
    ids=repr,
)
def test_spellings_of_one_value_give_one_path(spellings: tuple[object, ...]) -> None:
    paths = {Template.parse("x/{v}").resolve({"v": spelling}) for spelling in spellings}
    assert len(paths) == 1, paths
    assert paths != {("x",)}


@pytest.mark.parametrize(
    "spellings",
    [
        (True, "True"),
        (True, "TRUE"),
        (False, "False"),
        (1, "1.0"),
        (1, "+1"),
        (7, "007"),
        (2.5, "2.50"),
        (True, 1),
        (False, 0),
    ],
    ids=repr,
)
def test_spellings_that_a_tools_schema_coerces_to_one_value_conflict(spellings: tuple[object, object]) -> None:
    # Pydantic, which validates a tool's arguments in lax mode, gives the tool the same value for both.
    first, second = (Template.parse("x/{v}").resolve({"v": spelling}) for spelling in spellings)
    assert conflicts(Access(writes=(first,)), Access(writes=(second,))), (first, second)


def test_a_number_too_long_to_be_written_is_no_error() -> None:
    assert covers(("x",), Template.parse("x/{v}").resolve({"v": 10**5000}))
    assert covers(("x",), Template.parse("x/{v}").resolve({"v": "9" * 5000}))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e300, 5e-324])
def test_an_unusual_float_is_a_segment_like_any_other(value: float) -> None:
    path = Template.parse("x/{v}").resolve({"v": value})
    assert len(path) == 2
    assert covers(("x",), path)


# What conflicts means ---------------------------------------------------------------------------------------

paths = st.lists(st.sampled_from(NAMES), max_size=3).map(tuple)
accesses = st.builds(
    Access, reads=st.lists(paths, max_size=3).map(tuple), writes=st.lists(paths, max_size=3).map(tuple)
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(),
    st.text("ab./* {}", max_size=5),
    st.lists(st.text(max_size=2), max_size=2),
)


def places(path: Path) -> Iterable[Path]:
    """Every leaf of a finite tree (alphabet NAMES, depth 4) that a path stands for."""
    for rest in itertools.product(NAMES, repeat=4 - len(path)):
        yield (*path, *rest)


def touched(paths_: Iterable[Path]) -> set[Path]:
    return {leaf for path in paths_ for leaf in places(path)}


@settings(max_examples=200)
@given(accesses, accesses)
def test_conflict_is_what_the_sets_of_touched_leaves_say_and_symmetric(first: Access, second: Access) -> None:
    written, other = touched(first.writes), touched(second.writes)
    expected = bool(written & other or written & touched(second.reads) or touched(first.reads) & other)
    assert conflicts(first, second) is expected
    assert conflicts(second, first) is expected


@given(accesses)
def test_nothing_conflicts_with_pure_and_whatever_touches_anything_with_a_barrier(access: Access) -> None:
    assert not conflicts(PURE, access)
    assert not conflicts(access, PURE)
    assert conflicts(BARRIER, access) is bool(access.reads or access.writes)
    assert conflicts(BARRIER, BARRIER)


segments = st.lists(
    st.one_of(
        st.sampled_from(["a", "b", "x.y"]),
        st.sampled_from(["{p}", "{q}", "{r}", "{p}{q}", "{p}-{r}", "{q}.x", ".{p}", "n{r}"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300)
@given(
    segments.map("/".join).map(Template.parse),
    st.fixed_dictionaries({}, optional=dict.fromkeys("pqr", values)),
    st.frozensets(st.sampled_from("pqr")),
    st.frozensets(st.sampled_from("pqr")),
    accesses,
)
def test_a_path_with_unknown_fields_covers_the_path_once_they_are_known(
    template: Template,
    arguments: dict[str, object],
    unknown: frozenset[str],
    absent: frozenset[str],
    other: Access,
) -> None:
    known = template.resolve(arguments)
    early = template.resolve(arguments, unknown)
    assert covers(early, known)
    assert covers(template.resolve({k: v for k, v in arguments.items() if k not in absent}), known)
    assert not {"", ".", "..", "*"} & set(known)
    for writes in (True, False):
        exact = Access(writes=(known,)) if writes else Access(reads=(known,))
        wide = Access(writes=(early,)) if writes else Access(reads=(early,))
        assert conflicts(wide, other) or not conflicts(exact, other)


def test_an_access_reads_well() -> None:
    assert repr(BARRIER) == "Access(barrier)"
    assert repr(PURE) == "Access(pure)"
    assert repr(Access(reads=((), ("a", "b")))) == "Access(reads=['*', 'a/b'])"
    assert repr(Access(writes=(("a",),))) == "Access(writes=['a'])"
