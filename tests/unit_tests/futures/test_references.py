"""References: what is one, what is merely text, and which part of a value it names."""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_flash.errors import ProjectionError
from langgraph_flash.futures.references import (
    ID_PATTERN,
    Reference,
    find_references,
    future_id,
    project,
    substitute,
)

ID = "fut_0123456789"
OTHER = "fut_abcdefghjk"


def reference(text: str) -> Reference:
    found = Reference.parse(text)
    assert found is not None
    return found


# Parsing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        ".",
        "..a",
        ".a.",
        ".0",
        ".0a",
        ".a b",
        ".a-b",
        ". a",
        "[",
        "[]",
        "[a]",
        "[0",
        "[0]]",
        "[0]a",
        "[1.5]",
        "[--1]",
        "[+1]",
        "[ 0 ]",
        "[0:1]",
        "[*]",
        ".*",
        "['a]",
        "['a'",
        "['a\"]",
        '["a]',
        '["a\\"]',
        '["a\\x"]',
        '["a\nb"]',
        "['a'']",
        ".a\n",
        ".a, then",
        "[0] ",
        ". That was the id.",
        "[" + "9" * 5000 + "]",
    ],
)
def test_a_malformed_projection_is_an_error_that_names_the_place(rest: str) -> None:
    with pytest.raises(ProjectionError, match="is malformed at") as caught:
        Reference.parse(ID + rest)
    assert caught.value.future_id == ID
    assert caught.value.reference == ID + rest


@pytest.mark.parametrize(
    "value",
    [
        "",
        "fut_",
        "fut_012345678",
        "fut_01234567890",
        "fut_0123456789a",
        "fut_012345678i",
        "fut_012345678L",
        "FUT_0123456789",
        "fut-0123456789",
        " " + ID,
        ID + " ",
        ID + "\n",
        ID + ",",
        ID + "/a",
        ID + ":a",
        "see " + ID,
        "{" + ID + "}",
        f"{ID} and {OTHER}",
        "fut_012345678\uff19",
        None,
        1,
        1.5,
        True,
        b"fut_0123456789",
        [ID],
        {"a": ID},
        object(),
    ],
)
def test_what_only_looks_like_an_id_is_an_ordinary_value(value: object) -> None:
    assert Reference.parse(value) is None


@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("", ()),
        (".a", ("a",)),
        ("._a1", ("_a1",)),
        (".größe", ("größe",)),
        ("[0]", (0,)),
        ("[-1]", (-1,)),
        ("[007]", (7,)),
        (".items[0].id", ("items", 0, "id")),
        ("['a b']", ("a b",)),
        ('["a b"]', ("a b",)),
        ('["a]b"]', ("a]b",)),
        ('["a\\"b"]', ('a"b',)),
        ('["\\u00e9\\\\"]', ("é\\",)),
        ("['a\"]b']", ('a"]b',)),
        ('[""]', ("",)),
        ("['']", ("",)),
        ("['0'][0]", ("0", 0)),
        ("['a\nb']", ("a\nb",)),
    ],
)
def test_a_projection_is_read_step_by_step(rest: str, path: tuple[str | int, ...]) -> None:
    assert reference(ID + rest) == Reference(text=ID + rest, future_id=ID, path=path)


keys = st.text(max_size=6).filter(lambda key: not any("\ud800" <= c <= "\udfff" for c in key))
steps = st.one_of(keys, st.integers(-5, 5))


@given(st.lists(steps, max_size=5))
def test_every_path_can_be_written_and_is_read_back(path: list[str | int]) -> None:
    text = ID + "".join(f"[{json.dumps(step)}]" for step in path)
    assert reference(text).path == tuple(path)


@given(st.text(st.sampled_from("fut_0123456789.[]'\"ab\\ -\n"), max_size=30), st.booleans())
def test_no_text_makes_parsing_raise_anything_else(text: str, prefixed: bool) -> None:
    given_ = ID + text if prefixed else text
    try:
        found = Reference.parse(given_)
    except ProjectionError:
        assert re.match(ID_PATTERN + r"[.\[]", given_)
    else:
        assert found is None or found.text == given_


# Finding and substituting ------------------------------------------------------------------------------------


def test_a_malformed_reference_deep_inside_is_an_error() -> None:
    with pytest.raises(ProjectionError):
        list(find_references({"a": [{"b": ID + ".."}]}))
    with pytest.raises(ProjectionError):
        substitute({"a": [{"b": ID + ".."}]}, lambda r, n: None)


def test_references_are_found_in_order_with_their_places_and_never_in_keys_or_bytes() -> None:
    arguments = {
        "a": ID,
        "b": ["x", [OTHER + "[0]", {"c": ID + ".c", ID: "key"}], (OTHER,)],
        "d": b"fut_0123456789",
        "e": bytearray(b"fut_0123456789"),
        "f": MappingProxyType({"g": ID}),
        "h": f"the id {ID}",
        "i": None,
    }
    assert [(place, found.text) for place, found in find_references(arguments)] == [
        (("a",), ID),
        (("b", 1, 0), OTHER + "[0]"),
        (("b", 1, 1, "c"), ID + ".c"),
        (("b", 2, 0), OTHER),
        (("f", "g"), ID),
    ]
    assert list(find_references({})) == []
    assert [place for place, _ in find_references(ID)] == [()]


def test_substitution_replaces_every_reference_and_copies_what_it_returns() -> None:
    inner = {"c": ID + ".c", "keep": [1, None, "text", f"in {ID}"]}
    arguments = {"a": ID, "b": [OTHER, inner], "n": 5}
    asked: list[tuple[str, str]] = []

    def resolve(found: Reference, name: str) -> object:
        asked.append((found.text, name))
        return {"value": found.text}

    replaced = substitute(arguments, resolve)
    assert replaced == {
        "a": {"value": ID},
        "b": [{"value": OTHER}, {"c": {"value": ID + ".c"}, "keep": [1, None, "text", f"in {ID}"]}],
        "n": 5,
    }
    assert asked == [(ID, "a"), (OTHER, "b"), (ID + ".c", "b")]
    assert arguments == {"a": ID, "b": [OTHER, {"c": ID + ".c", "keep": [1, None, "text", f"in {ID}"]}], "n": 5}
    replaced["b"][1]["keep"].append("changed")  # type: ignore[index]
    assert inner["keep"] == [1, None, "text", f"in {ID}"]


def test_a_value_that_itself_looks_like_a_reference_is_not_replaced_again() -> None:
    assert substitute({"a": [ID]}, lambda found, name: OTHER) == {"a": [OTHER]}


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.just(ID),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abc"), json_values))
def test_substitution_asks_for_exactly_what_is_found_and_changes_nothing_else(arguments: dict[str, Any]) -> None:
    found = list(find_references(arguments))
    asked: list[str] = []

    def resolve(reference_: Reference, name: str) -> object:
        asked.append(name)
        return reference_.text

    assert substitute(arguments, resolve) == arguments
    assert asked == [place[0] for place, _ in found]
    for place, reference_ in found:
        value: Any = arguments
        for step in place:
            value = value[step]
        assert value == reference_.text


# Projecting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "value", "what"),
    [
        (".a", {}, r"no key 'a' in the result \(keys: none\)"),
        (".a", {"b": 1, "c": 2}, r"no key 'a' in the result \(keys: 'b', 'c'\)"),
        (".a.b", {"a": {"c": 1}}, r"no key 'b' in \['a'\] \(keys: 'c'\)"),
        ("[0]", [], r"no index 0 in the result \(0 items\)"),
        ("[2]", [1, 2], r"no index 2 in the result \(2 items\)"),
        ("[-3]", [1, 2], r"no index -3 in the result \(2 items\)"),
        (".a[1][0]", {"a": [1]}, r"no index 1 in \['a'\] \(1 items\)"),
        (".a", [1], "asks for 'a' in the result, which is a list"),
        ("[0]", {"0": 1}, "asks for 0 in the result, which is an object"),
        (".a", None, "which is a NoneType"),
        (".a", 5, "which is an? int"),
        (".a", "plain text", "which is a str"),
        ("[0]", "plain text", "which is a str"),
        (".a", "{broken", "which is a str"),
        (".a", "", "which is a str"),
        (".a.b", {"a": "text"}, r"asks for 'b' in \['a'\], which is a str"),
        ("[0]", {1, 2}, "which is a set"),
    ],
)
def test_a_projection_that_finds_nothing_says_what_is_there_instead(rest: str, value: object, what: str) -> None:
    with pytest.raises(ProjectionError, match=what) as caught:
        project(reference(ID + rest), value)
    assert caught.value.reference == ID + rest
    assert caught.value.future_id == ID


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_text_too_deep_to_be_read_as_json_stays_text(text: str) -> None:
    assert project(reference(ID), text) == text
    with pytest.raises(ProjectionError):
        project(reference(ID + "[0]"), text)


def test_a_number_too_long_to_be_read_as_json_stays_text() -> None:
    assert project(reference(ID), "1" * 10_000) == "1" * 10_000


@pytest.mark.parametrize(
    ("value", "as_value"),
    [
        ("5", 5),
        ("-5", -5),
        ('"quoted"', "quoted"),
        ("true", True),
        ("null", None),
        (' {"a": [1]} ', {"a": [1]}),
        ("[1, 2", "[1, 2"),
        ("text", "text"),
        ("five", "five"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("nan", "nan"),
        ("", ""),
        ("  ", "  "),
        ("2024-01-01", "2024-01-01"),
        ("1 2", "1 2"),
        (5, 5),
        (["[1]"], ["[1]"]),
        (None, None),
    ],
)
def test_a_whole_result_that_is_json_text_is_read_unless_text_is_wanted(value: object, as_value: object) -> None:
    assert project(reference(ID), value) == as_value
    assert type(project(reference(ID), value)) is type(as_value)
    assert project(reference(ID), value, as_text=True) == value


def test_json_inside_json_is_read_on_the_way_but_not_at_the_end() -> None:
    value = json.dumps({"a": json.dumps({"b": json.dumps([1])})})
    assert project(reference(ID + ".a.b"), value) == "[1]"
    assert project(reference(ID + ".a.b[0]"), value) == 1
    assert project(reference(ID + ".a.b[0]"), value, as_text=True) == 1
    assert project(reference(ID + "[-1]"), (1, 2)) == 2


def plainly(value: Any, path: list[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


@st.composite
def values_and_paths(draw: st.DrawFn) -> tuple[Any, list[str | int]]:
    value = draw(json_values)
    current, path = value, []
    while isinstance(current, (dict, list)) and current and draw(st.booleans()):
        if isinstance(current, dict):
            step: str | int = draw(st.sampled_from(sorted(current)))
        else:
            step = draw(st.integers(-len(current), len(current) - 1))
        path.append(step)
        current = current[step]
    return value, path


@settings(max_examples=200)
@given(values_and_paths(), st.booleans())
def test_a_right_path_finds_what_plain_indexing_finds(
    value_and_path: tuple[Any, list[str | int]], encoded: bool
) -> None:
    value, path = value_and_path
    expected = plainly(value, path)
    text = ID + "".join(f"[{json.dumps(step)}]" for step in path)
    if not path and isinstance(value, str) and not encoded:
        return  # a bare string may itself be JSON; its rule has a table of its own
    given_ = json.dumps(value) if encoded else value
    found = project(reference(text), given_)
    assert found == expected
    assert type(found) is type(expected)


@given(values_and_paths(), st.one_of(keys, st.integers(-5, 5)))
def test_one_wrong_step_is_a_projection_error_and_a_right_one_is_not(
    value_and_path: tuple[Any, list[str | int]], step: str | int
) -> None:
    value, path = value_and_path
    here = plainly(value, path)
    if isinstance(here, str):
        return
    right = (isinstance(here, dict) and step in here) or (
        isinstance(here, list) and isinstance(step, int) and -len(here) <= step < len(here)
    )
    found = Reference(ID, ID, (*path, step))
    if right:
        assert project(found, value) == here[step]
    else:
        with pytest.raises(ProjectionError):
            project(found, value)


# Ids ---------------------------------------------------------------------------------------------------------


def test_ids_are_stable_distinct_and_of_the_right_shape() -> None:
    ids = {future_id(scope, f"call {n}") for scope in ("s", "t") for n in range(2000)}
    assert len(ids) == 4000
    assert all(re.fullmatch(ID_PATTERN, found) for found in ids)
    # Written down: an id in a checkpoint must mean the same after an upgrade.
    assert future_id("thread", "call_1") == "fut_j829xt69en"
    assert future_id("thread", "call_1") != future_id("thread2", "call_1")
    assert len({found[4 + i] for found in ids for i in range(10)}) == 32


@given(st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_ids_differ_as_soon_as_the_scope_or_the_call_does(scope: str, call: str, scope2: str, call2: str) -> None:
    same = (scope, call) == (scope2, call2)
    assert (future_id(scope, call) == future_id(scope2, call2)) is same
    assert reference(future_id(scope, call)).path == ()
