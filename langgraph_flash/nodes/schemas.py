"""Tool schemas as the model sees them: every argument also takes a future's id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langgraph_flash.futures.references import ID_PATTERN

__all__ = ["accepts_text", "widened"]

_REFERENCE_SCHEMA = {
    "type": "string",
    "pattern": f"^{ID_PATTERN}.*$",
    "description": "The id of a pending background call, optionally with a part of its result: ID.field[0].name",
}

_HINT = (
    "Any argument may also be the id of a pending background call, such as fut_0123456789, or a part of its result, "
    "such as fut_0123456789.items[0].id."
)


def widened(tool: BaseTool) -> dict[str, Any]:
    """A tool's schema in OpenAI form, in which each value may also be a reference to a future.

    Only what the model sees changes: the tool's own schema still validates the arguments once references have been
    replaced by values. Arguments that take any string already take ids, and stay as they are.
    """
    converted = convert_to_openai_tool(tool)
    function = converted["function"]
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        **converted,
        "function": {
            **function,
            "description": f"{function.get('description', '')}\n\n{_HINT}".strip(),
            "parameters": _inside(parameters),
        },
    }


def _value(schema: Any) -> Any:
    """A schema for one value, or for a reference to one."""
    if not isinstance(schema, dict):
        return schema
    inner = _inside(schema)
    if _takes_any_string(schema):
        return inner
    kept = {key: inner[key] for key in ("description", "default") if key in inner}
    rest = {key: value for key, value in inner.items() if key not in ("description", "default", "title")}
    if set(rest) in ({"anyOf"}, {"oneOf"}):
        # "one of" would refuse a reference that happens to match two options.
        (options,) = rest.values()
        return {**kept, "anyOf": [*options, _REFERENCE_SCHEMA]}
    return {**kept, "anyOf": [rest, _REFERENCE_SCHEMA]}


def _inside(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose properties and items accept references; the value itself is left alone."""
    changed = dict(schema)
    for keyword in ("properties", "patternProperties"):
        if isinstance(properties := schema.get(keyword), dict):
            changed[keyword] = {name: _value(inner) for name, inner in properties.items()}
    for keyword in ("items", "additionalProperties", "additionalItems", "unevaluatedProperties"):
        if isinstance(inner := schema.get(keyword), dict):
            changed[keyword] = _value(inner)
    if isinstance(positions := schema.get("prefixItems"), list):
        changed["prefixItems"] = [_value(inner) for inner in positions]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(keyword), list):
            changed[keyword] = [_inside(option) if isinstance(option, dict) else option for option in options]
    for keyword in ("$defs", "definitions"):
        if isinstance(definitions := schema.get(keyword), dict):
            changed[keyword] = {
                name: _inside(inner) if isinstance(inner, dict) else inner for name, inner in definitions.items()
            }
    return changed


_RESTRICTIONS = frozenset({"enum", "const", "pattern", "format", "maxLength", "minLength"})


def _takes_any_string(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    stringy = kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    if stringy and not _RESTRICTIONS & set(schema):
        return True
    options: Iterable[Any] = schema.get("anyOf") or schema.get("oneOf") or ()
    return any(isinstance(option, dict) and _takes_any_string(option) for option in options)


def accepts_text(tool: BaseTool) -> frozenset[str]:
    """Names of a tool's arguments that take a string."""
    try:
        properties = tool.args
    except (AttributeError, TypeError, ValueError):
        return frozenset()

    def takes(schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        kinds = schema.get("type")
        if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
            return True
        return any(takes(option) for option in schema.get("anyOf", ()) or schema.get("oneOf", ()))

    return frozenset(name for name, schema in properties.items() if takes(schema))
