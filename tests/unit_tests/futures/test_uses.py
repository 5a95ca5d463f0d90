"""`@uses`: contradictions are refused where they are written, and a declaration survives the way to the node."""

from __future__ import annotations

import functools
import json
import math
from datetime import timedelta
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, tool

from langgraph_flash.errors import ConfigurationError, DeclarationError, ResourceError
from langgraph_flash.futures.resources import BARRIER, PURE, Access
from langgraph_flash.futures.timeouts import Timeout
from langgraph_flash.futures.uses import UNDECLARED, Uses, declared, uses

BAD_SECONDS = [0, 0.0, -1, -0.5, math.nan, -math.inf, True, False, "5", [], timedelta(0), timedelta(seconds=-1)]


def lookup(user: str) -> str:
    """Look a user up."""
    return user


# What is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_",
    [
        {"pure": True, "barrier": True},
        {"pure": True, "reads": "a"},
        {"pure": True, "writes": "a"},
        {"pure": True, "reads": []},
        {"barrier": True, "reads": "a"},
        {"barrier": True, "writes": ["a"]},
        {"barrier": True, "reads": [], "writes": []},
    ],
)
def test_contradictions_are_refused_when_the_decorator_is_written(given_: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="=True says"):
        uses(**given_)


@pytest.mark.parametrize("kind", ["reads", "writes"])
@pytest.mark.parametrize(
    "bad", [5, 1.5, object(), [5], [None], b"a", [["a"]], "", [""], ["a", ".."], "a/{", ["a", "*/b"]]
)
def test_malformed_paths_are_refused_when_the_decorator_is_written(kind: str, bad: object) -> None:
    with pytest.raises(ConfigurationError):
        uses(**{kind: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", BAD_SECONDS, ids=repr)
def test_a_timeout_that_is_no_positive_number_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="not a positive number"):
        uses(pure=True, timeout=bad)


@pytest.mark.parametrize("bad", [-1, -0.1, math.nan, -math.inf, "5", [], True])
def test_seconds_that_are_no_duration_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="seconds"):
        uses(pure=True, seconds=bad)


@pytest.mark.parametrize("bad", ["no", 1, 0, []])
def test_background_that_is_no_truth_value_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="background"):
        uses(pure=True, background=bad)(tool(lookup))


def test_a_template_over_an_argument_the_function_does_not_have_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match=r"'who'.*own arguments: 'user'") as caught:
        uses(reads="users/{who}")(lookup)
    assert caught.value.tool == "lookup"
    with pytest.raises(DeclarationError, match="'who'"):
        uses(writes=["users/{user}", "log/{who}"])(tool(lookup))

    def nothing() -> str:
        """Nothing."""
        return ""

    with pytest.raises(DeclarationError, match="it has none"):
        uses(reads="{a}")(nothing)


def test_a_template_over_an_injected_argument_of_a_tool_object_is_refused() -> None:
    def find(user: str, secret: Annotated[str, InjectedToolArg]) -> str:
        """Find."""
        return user

    with pytest.raises(DeclarationError, match="'secret'"):
        uses(reads="x/{secret}")(tool(find))


@pytest.mark.parametrize("bad", [5, "text", None, [lookup]])
def test_what_is_neither_a_function_nor_a_tool_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="decorates a function or a tool"):
        uses(pure=True)(bad)


class Service:
    def fetch(self, user: str) -> str:
        """Fetch."""
        return user


@pytest.mark.parametrize("target", [Service().fetch, len], ids=["bound method", "builtin"])
def test_a_callable_that_cannot_carry_a_declaration_is_refused_with_a_reason(target: Any) -> None:
    with pytest.raises(ConfigurationError):
        uses(pure=True)(target)


def test_a_bound_method_that_was_made_a_tool_can_be_declared() -> None:
    made = StructuredTool.from_function(Service().fetch)
    found = declared(uses(reads="users/{user}")(made))
    assert found is not None
    assert found.access({"user": "a"}) == Access(reads=(("users", "a"),))


def with_metadata(junk: Any) -> BaseTool:
    return StructuredTool.from_function(lookup, metadata={"flash": junk})


@pytest.mark.parametrize(
    "junk",
    [
        None,
        [],
        "pure",
        5,
        {"read": ["a"]},
        {"reads": "a"},
        {"reads": [5]},
        {"reads": [None]},
        {"reads": ["a/{"]},
        {"reads": [""]},
        {"writes": ["*/a"]},
        {"writes": {"a": 1}},
        {"background": "yes"},
        {"background": 1},
        {"timeout": "5"},
        {"timeout": True},
        {"timeout": -1},
        {"timeout": 0},
        {"timeout": math.nan},
        {"idle": -1.0},
        {"seconds": "5"},
        {"seconds": -1.0},
        {"seconds": math.nan},
        {"reads": [], "extra": 1},
    ],
    ids=repr,
)
def test_junk_in_the_metadata_of_a_tool_is_a_declaration_error_that_names_the_tool(junk: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(with_metadata(junk))
    assert caught.value.tool == "lookup"


# What is kept ------------------------------------------------------------------------------------------------


def test_an_undeclared_tool_has_no_declaration_and_counts_as_a_barrier() -> None:
    assert declared(lookup) is None
    assert declared(tool(lookup)) is None
    assert declared(StructuredTool.from_function(lookup, metadata={"other": 1})) is None
    assert declared(object()) is None
    assert declared(None) is None
    assert UNDECLARED.barrier
    assert UNDECLARED.access({"user": "a"}) == BARRIER
    assert UNDECLARED.fields == frozenset()


@pytest.mark.parametrize(
    ("given_", "access"),
    [
        ({}, BARRIER),
        ({"barrier": True}, BARRIER),
        ({"timeout": 5}, BARRIER),
        ({"background": False}, BARRIER),
        ({"pure": True}, PURE),
        ({"reads": []}, PURE),
        ({"writes": ()}, PURE),
        ({"reads": "users/{user}"}, Access(reads=(("users", "a"),))),
        ({"writes": ["users/{user}", "*"]}, Access(writes=(("users", "a"), ()))),
        ({"reads": iter(["a", "b"])}, Access(reads=(("a",), ("b",)))),
    ],
)
def test_a_declaration_says_what_a_call_touches(given_: dict[str, Any], access: Access) -> None:
    found = declared(uses(**given_)(tool(lookup)))
    assert found is not None
    assert found.access({"user": "a"}) == access
    assert found.barrier is (access == BARRIER)


def test_an_argument_that_is_still_a_future_widens_what_a_call_touches() -> None:
    found = Uses(reads=(), writes=())
    assert found.access({}, frozenset({"user"})) == PURE

    @uses(writes="users/{user}/mail")
    def send(user: str) -> None: ...

    sent = declared(send)
    assert sent is not None
    assert sent.access({"user": "a"}, frozenset({"user"})) == Access(writes=(("users",),))
    assert sent.fields == frozenset({"user"})


everything = {
    "reads": ["users/{user}", "*"],
    "writes": "log",
    "background": True,
    "timeout": Timeout(5, idle=2),
    "seconds": 3,
}


def test_above_and_below_the_tool_decorator_say_the_same() -> None:
    def above(user: str) -> str:
        """Look up."""
        return user

    first = uses(**everything)(tool(above))  # type: ignore[arg-type]

    @tool
    @uses(**everything)  # type: ignore[arg-type]
    def below(user: str) -> str:
        """Look up."""
        return user

    @tool
    @uses(**everything)  # type: ignore[arg-type]
    async def coroutine(user: str) -> str:
        """Look up."""
        return user

    assert declared(first) == declared(below) == declared(coroutine)
    assert first.invoke({"user": "a"}) == below.invoke({"user": "a"}) == "a"
    assert first.name == "above"


def test_declaring_a_tool_object_leaves_the_original_and_its_metadata_alone() -> None:
    original = StructuredTool.from_function(lookup, metadata={"other": 1})
    first = uses(pure=True)(original)
    assert declared(original) is None
    assert original.metadata == {"other": 1}
    assert first.metadata == {"other": 1, "flash": {"reads": [], "writes": []}}
    second = uses(reads="a")(first)
    assert declared(second) != declared(first) == Uses(reads=(), writes=())


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "reads": st.lists(st.sampled_from(["a", "*", "a/{user}", "{user}/b"]), max_size=2),
            "writes": st.lists(st.sampled_from(["a", "*", "a/{user}", "{user}/b"]), max_size=2),
            "background": st.booleans(),
            "timeout": st.one_of(
                st.integers(1, 9),
                st.floats(0.1, 9),
                st.builds(Timeout, st.none() | st.floats(0.1, 9), idle=st.none() | st.integers(1, 9)),
            ),
            "seconds": st.floats(0, 9) | st.integers(0, 9),
        },
    )
)
def test_a_declaration_survives_the_metadata_and_the_metadata_survives_json(given_: dict[str, Any]) -> None:
    def plain(user: str) -> str:
        """Look up."""
        return user

    made = uses(**given_)(tool(plain))
    on_function = declared(uses(**given_)(plain))
    assert on_function is not None
    if on_function.timeout == Timeout():
        assert declared(made) == Uses(**{**{f: getattr(on_function, f) for f in Uses.__slots__}, "timeout": None})
    else:
        assert declared(made) == on_function
    assert made.metadata is not None
    copied = StructuredTool.from_function(plain, metadata=json.loads(json.dumps(made.metadata)))
    assert declared(copied) == declared(made)


def test_a_function_with_any_keyword_takes_any_template() -> None:
    @uses(reads="x/{whatever}")
    def anything(**kwargs: Any) -> None: ...

    found = declared(anything)
    assert found is not None
    assert found.access({"whatever": 1}) == Access(reads=(("x", "1"),))


def test_a_wrapped_function_keeps_its_declaration() -> None:
    @uses(pure=True)
    def inner(user: str) -> str:
        """Look up."""
        return user

    @functools.wraps(inner)
    def outer(user: str) -> str:
        return inner(user)

    assert declared(outer) == declared(tool(outer)) == Uses(reads=(), writes=())


def test_a_malformed_template_is_the_resource_error_of_that_template() -> None:
    with pytest.raises(ResourceError, match="unmatched brace"):
        uses(reads=["fine", "a/{user"])
