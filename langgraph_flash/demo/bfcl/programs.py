"""The multi-turn programs of the Berkeley Function Calling Leaderboard, as data: turns of literal calls.

An entry of the leaderboard is a conversation plus the ground-truth calls of each of its turns. The calls are
written as Python text; they are parsed, never evaluated, and positional arguments get the names the method
gives them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter

from langgraph_flash.demo.bfcl._package import backend_class, json_lines
from langgraph_flash.errors import ConfigurationError

__all__ = ["CATEGORIES", "Category", "Program", "ProgramCall", "Turn", "load_programs", "public_methods"]

Category = Literal["base", "miss_func", "miss_param", "long_context"]
"""The four kinds of multi-turn entries."""

CATEGORIES: tuple[Category, ...] = get_args(Category)
"""Every category, in the leaderboard's order."""


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One ground-truth call.

    Attributes:
        method: Method name; unique over the classes of an entry.
        cls: Name of the class that has the method.
        args: Arguments by name.
        source: The call as the leaderboard writes it.
    """

    method: str
    cls: str
    args: Mapping[str, Any]
    source: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says (possibly nothing) and the calls that answer it (possibly none)."""

    user: str
    calls: tuple[ProgramCall, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One entry of the leaderboard.

    Attributes:
        id: The entry's id.
        category: Which of the four files it comes from.
        turns: User turns in order.
        classes: Simulator classes the entry involves.
        initial_config: Starting state by class name; a class without one starts from its defaults.
        long_context: Whether the simulators pad their state and results.
    """

    id: str
    category: Category
    turns: tuple[Turn, ...]
    classes: tuple[str, ...]
    initial_config: Mapping[str, Any]
    long_context: bool


class _Message(BaseModel):
    role: str
    content: str


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    question: list[list[_Message]]
    initial_config: dict[str, dict[str, Any]]
    involved_classes: list[str]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    ground_truth: list[list[str]]


_ENTRIES = TypeAdapter(list[_Entry])
_ANSWERS = TypeAdapter(list[_Answer])


@cache
def public_methods(cls: str) -> Mapping[str, inspect.Signature]:
    """The methods of a simulator class that may be called, with their signatures (without `self`)."""
    found: dict[str, inspect.Signature] = {}
    for name, member in inspect.getmembers(backend_class(cls), inspect.isfunction):
        if not name.startswith("_"):
            signature = inspect.signature(member)
            found[name] = signature.replace(parameters=list(signature.parameters.values())[1:])
    return found


def _call(source: str, classes: Iterable[str]) -> ProgramCall:
    node = ast.parse(source.strip(), mode="eval").body
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise ConfigurationError(f"{source!r} is not a plain call of a named function.")
    method = node.func.id
    owners = [cls for cls in classes if method in public_methods(cls)]
    if len(owners) != 1:
        raise ConfigurationError(
            f"The method of {source!r} should belong to exactly one class; it belongs to {owners}."
        )
    positional = [ast.literal_eval(value) for value in node.args]
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    bound = public_methods(owners[0])[method].bind(*positional, **named)
    return ProgramCall(method, owners[0], dict(bound.arguments), source)


def _load(category: Category) -> list[Program]:
    name = f"BFCL_v4_multi_turn_{category}.json"
    answers = {
        answer.id: answer for answer in _ANSWERS.validate_python(json_lines("possible_answer", name), strict=True)
    }
    programs = []
    for entry in _ENTRIES.validate_python(json_lines(name), strict=True):
        users = ["\n".join(message.content for message in messages) for messages in entry.question]
        calls = [[_call(source, entry.involved_classes) for source in turn] for turn in answers[entry.id].ground_truth]
        programs.append(
            Program(
                id=entry.id,
                category=category,
                turns=tuple(Turn(user, tuple(each)) for user, each in zip(users, calls, strict=True)),
                classes=tuple(entry.involved_classes),
                initial_config=entry.initial_config,
                long_context=category == "long_context",
            )
        )
    return programs


def load_programs(categories: Iterable[Category] = CATEGORIES) -> list[Program]:
    """Load the programs of these categories, in the leaderboard's order.

    Args:
        categories: Which of the four kinds to load.

    Returns:
        200 programs a category.

    Raises:
        MissingDependencyError: If `bfcl_eval` or `mpmath` is not installed.
    """
    return [program for category in categories for program in _load(category)]
