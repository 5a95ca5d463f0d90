"""Projections point to the literal they replaced, and to nothing later than the call that holds them."""

from __future__ import annotations

import json

import pytest

from langgraph_flash.demo.bfcl import (
    Program,
    ProgramCall,
    ProgramResult,
    Projection,
    Turn,
    projections_of,
    resolve,
    with_projections,
)

bfcl = pytest.mark.bfcl


@bfcl
@pytest.mark.parametrize(("scope", "count", "calls"), [("turn", 396, 320), ("program", 1210, 1041)])
def test_projections_of_all_programs(programs, reference, scope, count, calls):
    held = []
    for program in programs:
        results = reference[program.id].results
        projected = with_projections(program, reference[program.id], scope=scope)
        for turn, (before, after) in enumerate(zip(program.turns, projected.turns, strict=True)):
            for index, (literal, call) in enumerate(zip(before.calls, after.calls, strict=True)):
                found = projections_of(call.args)
                held.append(len(found))
                assert all((each.turn, each.call) < (turn, index) for each in found)
                assert scope == "program" or all(each.turn == turn for each in found)
                restored = resolve(call.args, lambda t, c, texts=results: texts[t][c])
                # Compared as text: equal to the type, not merely in value.
                assert json.dumps(restored) == json.dumps(dict(literal.args))
    assert sum(held) == count
    assert sum(each > 0 for each in held) == calls


def program_of(*turns):
    return Program(
        "made_up",
        "base",
        tuple(Turn("", tuple(ProgramCall("f", "C", args, "f()") for args in calls)) for calls in turns),
        ("C",),
        {},
        False,
    )


def args_of(program, turn, call):
    return program.turns[turn].calls[call].args


def test_paths_address_the_parsed_json():
    text = json.dumps({"items": [{"id": "one"}, {"MA(5)": 227.11}], "day-name": "Monday", 'a"b': [["deep"]]})
    program = program_of([{}, {"a": "one", "b": 227.11, "c": "Monday", "d": "deep"}])
    args = args_of(with_projections(program, ProgramResult(((text, ""),), {})), 0, 1)
    assert {name: each.path for name, each in args.items()} == {
        "a": "items[0].id",
        "b": 'items[1]["MA(5)"]',
        "c": '["day-name"]',
        "d": '["a\\"b"][0][0]',
    }
    assert resolve(args, lambda turn, call: text) == {"a": "one", "b": 227.11, "c": "Monday", "d": "deep"}
    assert args["a"].reference("fut_1") == "fut_1.items[0].id"
    assert args["c"].reference("fut_1") == 'fut_1["day-name"]'


def test_small_numbers_booleans_and_empty_strings_stay_literals():
    given = {"a": 9, "b": -9.5, "c": True, "d": "", "e": None, "f": 10, "g": -10.5}
    program = program_of([{}, given])
    args = args_of(with_projections(program, ProgramResult(((json.dumps(given), ""),), {})), 0, 1)
    assert {name for name, each in args.items() if isinstance(each, Projection)} == {"f", "g"}


def test_types_must_agree():
    program = program_of([{}, {"a": 200, "b": "200"}])
    assert projections_of(args_of(with_projections(program, ProgramResult((('{"x": 200.0}', ""),), {})), 0, 1)) == []


def test_values_inside_lists_and_objects_are_projected():
    program = program_of([{}, {"a": ["keep", {"k": "found"}]}])
    args = args_of(with_projections(program, ProgramResult((('{"x": "found"}', ""),), {})), 0, 1)
    assert args == {"a": ["keep", {"k": Projection(0, 0, "x")}]}


def test_the_latest_earlier_result_is_taken_and_scope_limits_how_far_back():
    program = program_of([{}, {}], [{"a": "v"}, {"a": "v"}])
    result = ProgramResult((('{"x": "v"}', '{"y": "v"}'), ('{"z": "v"}', "")), {})
    near = with_projections(program, result)
    far = with_projections(program, result, scope="program")
    assert args_of(near, 1, 0) == {"a": "v"}
    assert args_of(far, 1, 0) == {"a": Projection(0, 1, "y")}
    assert args_of(near, 1, 1) == args_of(far, 1, 1) == {"a": Projection(1, 0, "z")}


@pytest.mark.parametrize("text", ["v", "None", "['v']", '"v"', ""])
def test_results_that_are_not_objects_offer_nothing(text):
    program = program_of([{}, {"a": "v"}])
    assert args_of(with_projections(program, ProgramResult(((text, ""),), {})), 0, 1) == {"a": "v"}
