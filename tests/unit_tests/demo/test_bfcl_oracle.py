"""The oracle agrees with the leaderboard's own executor and checkers, is deterministic, and sees small things."""

from __future__ import annotations

import json

import pytest

from langgraph_flash.demo.bfcl import (
    ProgramResult,
    canonical,
    difference,
    execute,
    fresh_instances,
    run_sequential,
)
from langgraph_flash.demo.bfcl.backends import result_text

pytestmark = pytest.mark.bfcl


@pytest.fixture
def clean_executor():
    """The leaderboard's executor keeps its instances in its module; put the module back as it was."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    before = set(vars(multi_turn_utils))
    yield multi_turn_utils.execute_multi_turn_func_call
    for name in set(vars(multi_turn_utils)) - before:
        delattr(multi_turn_utils, name)


def test_the_leaderboards_executor_and_checkers_agree_on_all_programs(programs, reference, clean_executor):
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

    for program in programs:
        ours = fresh_instances(program)
        for index, turn in enumerate(program.turns):
            texts = [execute(ours[call.cls], call.method, call.args) for call in turn.calls]
            theirs, instances = clean_executor(
                [call.source for call in turn.calls],
                program.initial_config,
                list(program.classes),
                "reference",
                program.id,
                program.long_context,
            )
            assert texts == theirs == list(reference[program.id].results[index])
            assert state_checker(ours, instances)["valid"]
            assert response_checker(texts, theirs, index)["valid"]
        assert {name: canonical(each) for name, each in instances.items()} == reference[program.id].states


def test_no_ground_truth_call_fails(reference):
    texts = [text for result in reference.values() for turn in result.results for text in turn]
    assert not [text for text in texts if text.startswith("Error during execution")]
    parsed = [json.loads(text) for text in texts if text.startswith("{") and '"error"' in text]
    assert not [value for value in parsed if "error" in value]


def test_running_twice_is_the_same(programs, reference):
    assert [p.id for p in programs if difference(reference[p.id], run_sequential(p))] == []


def test_states_are_json(reference):
    for result in reference.values():
        json.dumps(result.states)


def test_runs_do_not_share_what_the_simulators_share(by_id):
    program = by_id["multi_turn_long_context_150"]  # its cards come from a dictionary of the simulator's module
    before = canonical(fresh_instances(program)["TravelAPI"])
    instance = fresh_instances(program)["TravelAPI"]
    for card in instance.credit_card_list.values():
        card["balance"] = -1
    assert canonical(fresh_instances(program)["TravelAPI"]) == before


def test_a_default_list_is_not_shared_between_runs(programs):
    program = next(p for p in programs if "TwitterAPI" in p.classes)
    for _ in range(2):
        twitter = fresh_instances(program)["TwitterAPI"]
        twitter.authenticated = True
        tweet = json.loads(execute(twitter, "post_tweet", {"content": "hello"}))
        execute(twitter, "mention", {"tweet_id": tweet["id"], "mentioned_usernames": ["@someone"]})
        assert tweet["mentions"] == []


def test_arguments_are_not_changed_by_the_call(programs):
    program = next(p for p in programs if "TwitterAPI" in p.classes)
    twitter = fresh_instances(program)["TwitterAPI"]
    twitter.authenticated = True
    mentions = ["@a"]
    tweet = json.loads(execute(twitter, "post_tweet", {"content": "hello", "mentions": mentions}))
    execute(twitter, "mention", {"tweet_id": tweet["id"], "mentioned_usernames": ["@b"]})
    assert mentions == ["@a"]


def test_a_raised_exception_is_a_result(programs):
    program = next(p for p in programs if "TravelAPI" in p.classes)
    travel = fresh_instances(program)["TravelAPI"]
    args = {"base_currency": "USD", "target_currency": "XXX", "value": 1.0}
    assert execute(travel, "compute_exchange_rate", args) == (
        "Error during execution: No available exchange rate for the given currencies."
    )
    assert execute(travel, "cancel_booking", {}).startswith("Error during execution: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [({"a": 1.0}, '{"a": 1.0}'), (["a"], "['a']"), ("x", "x"), (None, "None"), ({"a": {1}}, "{'a': {1}}")],
)
def test_results_are_printed_as_the_leaderboard_prints_them(value, text):
    assert result_text(value) == text


@pytest.fixture
def files(programs):
    return fresh_instances(next(p for p in programs if p.id == "multi_turn_base_0"))["GorillaFileSystem"]


def states(instance):
    return ProgramResult((), {type(instance).__name__: canonical(instance)})


def test_the_current_directory_counts(files):
    before = states(files)
    execute(files, "cd", {"folder": "document"})
    assert "_current_dir" in difference(before, states(files))


def test_file_times_do_not_count(files):
    execute(files, "cd", {"folder": "document"})
    text = json.loads(execute(files, "cat", {"file_name": "final_report.pdf"}))["file_content"]
    before = states(files)
    execute(files, "echo", {"content": text, "file_name": "final_report.pdf"})
    assert difference(before, states(files)) is None
    execute(files, "echo", {"content": text + ".", "file_name": "final_report.pdf"})
    assert "content" in difference(before, states(files))


def test_one_draw_of_the_random_generator_counts(programs):
    vehicle = fresh_instances(next(p for p in programs if "VehicleControlAPI" in p.classes))["VehicleControlAPI"]
    before = states(vehicle)
    execute(vehicle, "get_outside_temperature_from_google", {})
    assert difference(before, states(vehicle)).startswith("state.VehicleControlAPI._random.random is ")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (((),), ((), ()), "there are 1 turns in the first and 2 in the second"),
        ((("a",),), (("a", "b"),), "turn 0 has 1 results in the first and 2 in the second"),
        ((("a", "b"),), (("a", "c"),), "the result of turn 0, call 1 is 'b' in the first and 'c' in the second"),
    ],
)
def test_the_first_difference_of_results_is_named(first, second, said):
    assert difference(ProgramResult(first, {}), ProgramResult(second, {})) == said


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"a": 1}, {"a": 1.0}, "state.a is 1 in the first and 1.0 in the second"),
        ({"a": True}, {"a": 1}, "state.a is True in the first and 1 in the second"),
        ({"a": [1]}, {"a": [1, 2]}, "state.a has 1 items in the first and 2 in the second"),
        ({"a": 1}, {}, "state.a exists only in the first"),
        ({}, {"b": 1}, "state.b exists only in the second"),
        ({"a": float("nan")}, {"a": float("nan")}, None),
    ],
)
def test_the_first_difference_of_states_is_named(first, second, said):
    assert difference(ProgramResult((), first), ProgramResult((), second)) == said


def test_holding_one_object_twice_is_not_holding_two_equal_ones():
    class Holder:
        def __init__(self, a, b):
            self.a, self.b = a, b

    shared = []
    assert canonical(Holder(shared, shared)) == {"a": [], "b": {"same as": "Holder.a"}}
    assert canonical(Holder([], [])) == {"a": [], "b": []}


def test_an_object_without_a_canonical_form_is_refused():
    class Holder:
        def __init__(self):
            self.value = object()

    with pytest.raises(TypeError, match=r"Holder\.value holds a object"):
        canonical(Holder())
