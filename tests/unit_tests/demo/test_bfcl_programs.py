"""The programs are the leaderboard's: counts, parsing, and what happens when the package is missing."""

from __future__ import annotations

import ast
import importlib
from collections import Counter

import pytest

from langgraph_flash.demo.bfcl import CATEGORIES, _package, load_programs
from langgraph_flash.demo.bfcl import programs as programs_module
from langgraph_flash.errors import ConfigurationError, MissingDependencyError

bfcl = pytest.mark.bfcl


@bfcl
def test_counts(programs):
    turns = [turn for program in programs for turn in program.turns]
    calls = [call for turn in turns for call in turn.calls]
    assert Counter(program.category for program in programs) == dict.fromkeys(CATEGORIES, 200)
    assert len({program.id for program in programs}) == 800
    assert len(turns) == 3336
    assert sum(not turn.calls for turn in turns) == 412
    assert sum(not turn.user for turn in turns) == 200
    assert len(calls) == 4625
    assert sum(len(turn.calls) > 1 for turn in turns) == 1024
    assert sum(len(turn.calls) for turn in turns if len(turn.calls) > 1) == 2725
    assert len({(call.cls, call.method) for call in calls}) == 81
    assert Counter(cls for program in programs for cls in program.classes) == {
        "GorillaFileSystem": 200,
        "VehicleControlAPI": 200,
        "TradingBot": 200,
        "TravelAPI": 200,
        "MessageAPI": 160,
        "TwitterAPI": 156,
        "TicketAPI": 124,
        "MathAPI": 100,
    }


@bfcl
def test_only_long_context_programs_are_long(programs):
    assert {program.category for program in programs if program.long_context} == {"long_context"}


@bfcl
def test_positional_arguments_get_their_names(programs):
    positional = [
        call
        for program in programs
        for turn in program.turns
        for call in turn.calls
        if ast.parse(call.source.strip(), mode="eval").body.args
    ]
    assert positional
    first = next(call for call in positional if call.source == "sort('final_report.pdf')")
    assert (first.cls, first.method, first.args) == (
        "GorillaFileSystem",
        "sort",
        {"file_name": "final_report.pdf"},
    )


@bfcl
def test_one_category_alone():
    assert [program.category for program in load_programs(["miss_param"])] == ["miss_param"] * 200


@bfcl
@pytest.mark.parametrize(
    "source", ["cd", "os.system('ls')", "unknown(1)", "cd(folder=__import__('os').name)", "cd(**{})"]
)
def test_anything_but_a_literal_call_is_refused(source):
    with pytest.raises((ConfigurationError, ValueError, TypeError)):
        programs_module._call(source, ["GorillaFileSystem"])


@pytest.mark.parametrize("missing", ["bfcl_eval", "mpmath"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, missing):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingDependencyError, match=r"pip install --no-deps bfcl-eval==2026\.3\.23 mpmath==1\.3\.0"):
        load_programs()


def test_another_missing_module_is_not_blamed_on_the_package(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError("No module named 'json'", name="json")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ModuleNotFoundError) as caught:
        _package.json_lines("x")
    assert not isinstance(caught.value, MissingDependencyError)
