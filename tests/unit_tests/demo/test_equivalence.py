"""All 800 programs, every result and every state, with the latest call that may run always run first."""

from __future__ import annotations

import pytest

from langgraph_flash.demo.bfcl import CATEGORIES, Footprint, adversarial_orders, difference
from langgraph_flash.demo.bfcl.latency import halving, uniform
from langgraph_flash.demo.equivalence import check_program
from langgraph_flash.demo.executors import (
    FLASH_SERIAL,
    FLASH_USES,
    TOOLNODE_SEQUENTIAL,
    in_adversarial_order,
    without_grace,
)
from langgraph_flash.demo.replay import call_id, replay
from langgraph_flash.testing import run_virtual

pytestmark = pytest.mark.bfcl


# By category, so that several processes share the work.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("category", CATEGORIES)
def test_flash_node_ends_as_sequential_execution_does(programs, category):
    wrong = {"flash_serial": {}, "flash_uses": {}, "toolnode_parallel": {}}
    wrong_projected = {"flash_serial": {}, "flash_uses": {}}
    projections, references = 0, {"flash_serial": 0, "flash_uses": 0}
    chosen = [program for program in programs if program.category == category]
    assert len(chosen) == 200
    for program in chosen:
        verdict = check_program(program, random=False)
        for found, differences in ((wrong, verdict.adversarial), (wrong_projected, verdict.projected)):
            for name, what in differences.items():
                if what is not None:
                    found[name][program.id] = what
        projections += verdict.projections
        for name, count in verdict.references.items():
            references[name] += count
    assert wrong["flash_serial"] == {}
    assert wrong["flash_uses"] == {}
    # Over 400 of 800 in all: the order is hostile enough to break whatever does not keep it.
    assert len(wrong["toolnode_parallel"]) > 100
    assert wrong_projected == {"flash_serial": {}, "flash_uses": {}}
    # Every argument that can be a reference was one: nothing had arrived by then.
    assert projections > 50
    assert references == {"flash_serial": projections, "flash_uses": projections}


def test_random_latencies_change_nothing(programs):
    for program in programs[::40]:
        verdict = check_program(program, adversarial=False, projected=False, seed=7)
        assert (verdict.random["flash_serial"], verdict.random["flash_uses"]) == (None, None)
        assert not verdict.adversarial
        assert not verdict.projected


@pytest.mark.parametrize("level", ["none", "class", "attribute"])
def test_the_adversarial_order_is_the_latest_first_one(programs, level):
    for program in programs[::50]:
        run = run_virtual(replay(program, in_adversarial_order(level)))
        orders = adversarial_orders(program, level)
        if level == "none":  # for the node, a tool that declares nothing comes strictly in its turn
            orders = [range(len(turn.calls)) for turn in program.turns]
        assert run.executed == tuple(call_id(program, turn, call) for turn, each in enumerate(orders) for call in each)


def test_halving_latencies_give_the_same_order_without_a_limit(programs):
    for program in programs[::50]:
        orders = adversarial_orders(program, "attribute")
        run = run_virtual(replay(program, without_grace("attribute"), latency=halving(1e-9)))
        expected = [call_id(program, turn, call) for turn, each in enumerate(orders) for call in each]
        # Equal calls of a turn share their latencies in the order they start, which may swap their places.
        if len({call.source for turn in program.turns for call in turn.calls}) == len(expected):
            assert run.executed == tuple(expected)


def test_a_missing_declaration_is_noticed(programs, reference, monkeypatch):
    """With everything declared pure, the same order finds what stock nodes do wrong."""
    monkeypatch.setattr("langgraph_flash.demo.bfcl.tools.footprint", lambda *_: Footprint())
    wrong = sum(
        difference(reference[program.id], run_virtual(replay(program, in_adversarial_order("attribute"))).outcome)
        is not None
        for program in programs[::20]
    )
    assert wrong > len(programs[::20]) // 3


@pytest.mark.parametrize("executor", [TOOLNODE_SEQUENTIAL, FLASH_SERIAL, FLASH_USES], ids=lambda each: each.label)
def test_with_latencies_and_decoding(programs, reference, executor):
    for program in programs[3::100]:
        run = run_virtual(replay(program, executor, latency=uniform(0.0, 2.0), first_token_seconds=0.3))
        assert difference(reference[program.id], run.outcome) is None
