"""What the model is shown: every argument also takes a future, and every value it took before is still fine."""

from __future__ import annotations

import copy
import json
import math
import re
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from node_lab import Lab, answer_to, fid, play
from pydantic import BaseModel, Field

from langgraph_flash import FlashNode, uses
from langgraph_flash.nodes.schemas import widened
from langgraph_flash.testing import ScriptedChatModel, call, says

REFERENCES = ["fut_0123456789", "fut_0123456789.items[0].id", 'fut_0123456789["odd key"]']


# A small checker of JSON schemas: the keywords that tools use ----------------------------------------------------


def valid(value: Any, schema: Any, root: Any = None) -> bool:
    root = schema if root is None else root
    if schema is True or schema == {}:
        return True
    if schema is False:
        return False
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        if not valid(value, target, root):
            return False
    kinds = schema.get("type")
    if kinds is not None:
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if not any(_is(value, kind) for kind in kinds):
            return False
    if "enum" in schema and not any(_same(value, option) for option in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if "anyOf" in schema and not any(valid(value, option, root) for option in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(valid(value, option, root) for option in schema["oneOf"]) != 1:
        return False
    if not all(valid(value, option, root) for option in schema.get("allOf", ())):
        return False
    if isinstance(value, str):
        if "pattern" in schema and re.search(schema["pattern"], value, re.DOTALL) is None:
            return False
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
            return False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf):
            return False
        if value <= schema.get("exclusiveMinimum", -math.inf):
            return False
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
            return False
        fixed = schema.get("prefixItems", [])
        if not all(valid(item, inner, root) for item, inner in zip(value, fixed, strict=False)):
            return False
        if not all(valid(item, schema.get("items", True), root) for item in value[len(fixed) :]):
            return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        if any(name not in value for name in schema.get("required", ())):
            return False
        for name, item in value.items():
            if not valid(item, properties.get(name, schema.get("additionalProperties", True)), root):
                return False
    return True


def _is(value: Any, kind: str) -> bool:
    return {
        "string": isinstance(value, str),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "boolean": isinstance(value, bool),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
        "null": value is None,
    }[kind]


def _same(left: Any, right: Any) -> bool:
    return json.dumps(left) == json.dumps(right)


def test_the_checker_knows_a_wrong_value_from_a_right_one() -> None:
    assert valid({"a": [1, None]}, {"properties": {"a": {"items": {"type": ["integer", "null"]}}}})
    assert not valid({"a": ["x"]}, {"properties": {"a": {"items": {"type": ["integer", "null"]}}}})
    assert not valid(True, {"type": "integer"})
    assert not valid({"a": 1}, {"type": "object", "additionalProperties": {"type": "string"}})
    assert not valid(1, {"oneOf": [{"type": "integer"}, {"type": "number"}]})


# Tools of every kind ---------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Somewhere."""

    city: str
    floor: int = 0
    open: bool | None = None


class Person(BaseModel):
    """Somebody."""

    name: str = Field(min_length=2)
    age: int = Field(ge=0, le=150)
    homes: list[Place] = []
    boss: Place | None = None


@tool
def scalars(count: int, ratio: float, flag: bool, name: str, note: str | None = None) -> str:
    """Take scalars."""
    return ""


@tool
def enums(colour: Colour, size: Literal["s", "m"], number: Literal[1, 2] = 1) -> str:
    """Take enums."""
    return ""


@tool
def lists(numbers: list[int], names: list[str], rows: list[list[float]], maybe: list[int] | None = None) -> str:
    """Take lists."""
    return ""


@tool
def tables(scores: dict[str, int], anything: dict[str, Any]) -> str:
    """Take tables."""
    return ""


@tool
def pairs(pair: tuple[int, bool]) -> str:
    """Take a pair."""
    return ""


@tool
def nested(person: Person, others: list[Person], place: Place | None = None) -> str:
    """Take nested objects."""
    return ""


@tool
def unions(value: int | list[int], either: Place | int, mixed: str | list[int]) -> str:
    """Take unions."""
    return ""


@tool
def limited(code: Annotated[str, Field(pattern="^[a-z]+$")], share: Annotated[float, Field(ge=0, le=1)]) -> str:
    """Take limited values."""
    return ""


@tool
def nothing() -> str:
    """Take nothing."""
    return ""


@tool
def free(value: Any) -> str:
    """Take anything."""
    return ""


MCP = StructuredTool(
    name="mcp",
    description="From a server.",
    func=lambda **_: "",
    args_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "depth": {"type": "integer", "minimum": 0, "default": 1},
            "maybe": {"type": ["string", "null"]},
            "many": {"type": ["integer", "null"]},
            "where": {"$ref": "#/$defs/Where"},
            "shape": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                        "required": ["kind"],
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "b"}, "y": {"type": "integer"}},
                        "required": ["kind"],
                    },
                ]
            },
            "filters": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["path"],
        "additionalProperties": False,
        "$defs": {
            "Where": {
                "type": "object",
                "properties": {"line": {"type": "integer"}, "inner": {"$ref": "#/$defs/Where"}},
                "required": ["line"],
            }
        },
    },
)

EMPTY_MCP = StructuredTool(
    name="empty", description="Nothing to say.", func=lambda **_: "", args_schema={"type": "object", "properties": {}}
)

TOOLS = [scalars, enums, lists, tables, pairs, nested, unions, limited, nothing, free, MCP, EMPTY_MCP]

place = st.fixed_dictionaries(
    {"city": st.text(max_size=3)}, optional={"floor": st.integers(), "open": st.none() | st.booleans()}
)
person = st.fixed_dictionaries(
    {"name": st.text("ab", min_size=2, max_size=4), "age": st.integers(0, 150)},
    optional={"homes": st.lists(place, max_size=2), "boss": st.none() | place},
)
numbers = st.lists(st.integers(), max_size=3)
floats = st.floats(allow_nan=False, allow_infinity=False)
where = st.recursive(
    st.fixed_dictionaries({"line": st.integers()}),
    lambda inner: st.fixed_dictionaries({"line": st.integers(), "inner": inner}),
    max_leaves=3,
)
ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "scalars": st.fixed_dictionaries(
        {"count": st.integers(), "ratio": floats, "flag": st.booleans(), "name": st.text(max_size=3)},
        optional={"note": st.none() | st.text(max_size=3)},
    ),
    "enums": st.fixed_dictionaries(
        {"colour": st.sampled_from(["red", "blue"]), "size": st.sampled_from("sm")},
        optional={"number": st.sampled_from([1, 2])},
    ),
    "lists": st.fixed_dictionaries(
        {
            "numbers": numbers,
            "names": st.lists(st.text(max_size=2)),
            "rows": st.lists(st.lists(floats, max_size=2), max_size=2),
        },
        optional={"maybe": st.none() | numbers},
    ),
    "tables": st.fixed_dictionaries(
        {
            "scores": st.dictionaries(st.text(max_size=2), st.integers(), max_size=3),
            "anything": st.dictionaries(st.text(max_size=2), st.none() | numbers, max_size=3),
        }
    ),
    "pairs": st.fixed_dictionaries({"pair": st.tuples(st.integers(), st.booleans()).map(list)}),
    "nested": st.fixed_dictionaries(
        {"person": person, "others": st.lists(person, max_size=2)}, optional={"place": st.none() | place}
    ),
    "unions": st.fixed_dictionaries(
        {"value": st.integers() | numbers, "either": place | st.integers(), "mixed": st.text(max_size=3) | numbers}
    ),
    "limited": st.fixed_dictionaries({"code": st.text("abc", min_size=1, max_size=3), "share": st.floats(0, 1)}),
    "nothing": st.just({}),
    "free": st.fixed_dictionaries({"value": st.none() | st.integers() | st.text(max_size=3) | numbers}),
    "mcp": st.fixed_dictionaries(
        {"path": st.text(max_size=3)},
        optional={
            "depth": st.integers(0),
            "maybe": st.none() | st.text(max_size=3),
            "many": st.none() | st.integers(),
            "where": where,
            "shape": st.fixed_dictionaries({"kind": st.just("a")}, optional={"x": st.integers()})
            | st.fixed_dictionaries({"kind": st.just("b")}, optional={"y": st.integers()}),
            "filters": st.dictionaries(st.text(max_size=2), floats, max_size=2),
        },
    ),
    "empty": st.just({}),
}


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a value where a reference could stand, the whole arguments excepted."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += places_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += places_in(item, (*path, index))
    return found


def replaced(arguments: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(arguments)
    target = changed
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return changed


def original(of: Any) -> Any:
    return convert_to_openai_tool(of)["function"].get("parameters", {"type": "object", "properties": {}})


def shown(of: Any) -> Any:
    return widened(of)["function"]["parameters"]


@pytest.mark.parametrize("which", TOOLS, ids=lambda made: made.name)
@given(data=st.data())
def test_a_value_that_was_valid_still_is(which: Any, data: st.DataObject) -> None:
    arguments = data.draw(ARGUMENTS[which.name])
    assert valid(arguments, original(which)), "the test's own value is not valid"
    assert valid(arguments, shown(which))


@pytest.mark.parametrize(
    "which", [made for made in TOOLS if made.name not in ("nothing", "empty")], ids=lambda made: made.name
)
@given(data=st.data())
def test_a_reference_is_valid_wherever_a_value_may_stand(which: Any, data: st.DataObject) -> None:
    arguments = data.draw(ARGUMENTS[which.name])
    spots = places_in(arguments)
    spot = data.draw(st.sampled_from(spots))
    reference = data.draw(st.sampled_from(REFERENCES))
    changed = replaced(arguments, spot, reference)
    assert valid(changed, shown(which)), f"{changed} has its reference at {spot}"


@pytest.mark.parametrize("which", TOOLS, ids=lambda made: made.name)
def test_widening_leaves_the_tool_and_its_own_schema_alone(which: Any) -> None:
    before = json.dumps(convert_to_openai_tool(which), sort_keys=True)
    widened(which)
    assert json.dumps(convert_to_openai_tool(which), sort_keys=True) == before
    json.dumps(widened(which))


@pytest.mark.parametrize(("which", "names"), [(scalars, ["name", "note"]), (MCP, ["path", "maybe"])])
def test_arguments_that_take_any_text_stay_as_they_are(which: Any, names: list[str]) -> None:
    for name in names:
        assert shown(which)["properties"][name] == original(which)["properties"][name]


def test_required_names_descriptions_and_defaults_are_kept() -> None:
    for which in TOOLS:
        assert shown(which).get("required") == original(which).get("required")
        assert list(shown(which)["properties"]) == list(original(which)["properties"])
    assert shown(MCP)["additionalProperties"] is False
    assert shown(MCP)["properties"]["depth"]["default"] == 1
    assert widened(scalars)["function"]["description"].startswith("Take scalars.")


def test_a_wrong_value_does_not_become_valid() -> None:
    assert not valid({"colour": "green", "size": "s"}, shown(enums))
    assert not valid({"numbers": ["x"], "names": [], "rows": []}, shown(lists))
    assert not valid({"code": "A1", "share": 0.5}, shown(limited))
    assert not valid({"code": "fut_0123", "share": 0.5}, shown(limited))
    assert not valid({"path": "a", "depth": "many"}, shown(MCP))


def test_injected_arguments_stay_hidden() -> None:
    @tool
    @uses(pure=True)
    def look(
        x: int,
        state: Annotated[dict[str, Any], InjectedState],
        runtime: ToolRuntime,
        tool_call_id: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Look."""
        return ""

    assert list(shown(look)["properties"]) == ["x"]


# Binding ---------------------------------------------------------------------------------------------------------


def test_a_bound_model_is_shown_the_wide_schemas_and_the_control_tools() -> None:
    model = ScriptedChatModel(["Hello."] * 2)
    node = FlashNode(Lab().tools(), cancellation=True)
    node.bind(model, tool_choice="any", parallel_tool_calls=False).invoke([HumanMessage("Hi.")])
    seen = model.bound_tools[0]
    assert set(seen) == set(node.tools_by_name)
    assert {"await_future", "cancel_future"} < set(seen)
    assert valid({"a": "fut_0123456789", "b": 3}, seen["add"]["function"]["parameters"])
    assert valid({"a": 1, "b": 3}, seen["add"]["function"]["parameters"])
    assert "future" not in json.dumps(seen["await_future"]["function"]["parameters"].get("$defs", {}))
    assert valid({"futures": ["fut_0123456789"]}, seen["await_future"]["function"]["parameters"])
    assert model.bound_options[0] == {"tool_choice": "any", "parallel_tool_calls": False}


@pytest.mark.parametrize("options", [{"grace": math.inf}, {"background": False}])
def test_where_there_are_no_futures_the_model_is_shown_the_stock_schemas(options: dict[str, Any]) -> None:
    tools = Lab().tools()
    model = ScriptedChatModel(["Hello."])
    FlashNode(tools, **options).bind(model).invoke([HumanMessage("Hi.")])
    assert model.bound_tools[0] == {made.name: convert_to_openai_tool(made) for made in tools}


def test_undeclared_tools_beside_declared_ones_take_references_too() -> None:
    @tool
    def plain(x: int) -> str:
        """Plain."""
        return ""

    model = ScriptedChatModel(["Hello."])
    FlashNode([*Lab().tools(), plain]).bind(model).invoke([HumanMessage("Hi.")])
    assert valid({"x": "fut_0123456789"}, model.bound_tools[0]["plain"]["function"]["parameters"])


def test_a_dict_schema_tool_may_be_declared_and_run_with_a_reference() -> None:
    seen: list[Any] = []
    mcp = uses(reads="disk/{path}")(
        StructuredTool(
            name="mcp",
            description="From a server.",
            func=lambda **arguments: seen.append(arguments) or "listed",
            args_schema=MCP.args_schema,
        )
    )
    done = play(
        [
            says("", call("number", id="c1", value=4, seconds=2)),
            lambda m: says("", call("mcp", id="c2", path="a", depth=fid(m, "c1"), filters={"x": fid(m, "c1")})),
            *["Done."] * 3,
        ],
        [mcp],
    )
    assert seen == [{"path": "a", "depth": 4, "filters": {"x": 4}}]
    assert answer_to(done.messages, "c2")
