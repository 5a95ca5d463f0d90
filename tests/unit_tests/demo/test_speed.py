"""The comparison with the sequential run and with the bound."""

from __future__ import annotations

import pytest

from langgraph_flash.demo.bfcl.latency import constant, uniform
from langgraph_flash.demo.executors import FLASH_SERIAL, FLASH_USES, TOOLNODE_SEQUENTIAL
from langgraph_flash.demo.replay import replay
from langgraph_flash.demo.speed import Total, compare
from langgraph_flash.testing import run_virtual

pytestmark = pytest.mark.bfcl


def runs(program, executor, latency):
    options = {"latency": latency, "first_token_seconds": 0.2, "seconds_per_token": 0.02}
    return [run_virtual(replay(program, each, **options)) for each in (TOOLNODE_SEQUENTIAL, executor)]


def test_the_sequential_run_beside_itself(by_id):
    program = by_id["multi_turn_base_0"]
    stock, same = runs(program, TOOLNODE_SEQUENTIAL, constant(1.0))
    found = compare(program, stock, same, "none")
    assert found.speedup == pytest.approx(1.0)
    assert found.bound == pytest.approx(found.bound_with_turns)
    assert (found.overlap.saving_de, found.overlap.saving_ff) == pytest.approx((0.0, 0.0))


@pytest.mark.parametrize("executor", [FLASH_SERIAL, FLASH_USES], ids=lambda each: each.label)
@pytest.mark.parametrize("seconds", [0.05, 0.5, 3.0])
def test_no_run_beats_the_bound(programs, executor, seconds):
    found = []
    for program in programs[5::200]:
        stock, flash = runs(program, executor, uniform(0.5 * seconds, 1.5 * seconds))
        found.append(compare(program, stock, flash, executor.footprints))
    for each in found:
        assert each.speedup <= each.bound_with_turns * (1 + 1e-9) <= each.bound * (1 + 1e-9)
    total = Total(found)
    assert total.speedup <= total.bound_with_turns <= total.bound
    assert total.seconds == pytest.approx(sum(each.seconds for each in found))


def test_declarations_raise_the_bound_and_the_gain(programs):
    serial, declared = [], []
    for program in programs[5::200]:
        latency = constant(3.0)
        stock, flash = runs(program, FLASH_USES, latency)
        serial.append(compare(program, stock, runs(program, FLASH_SERIAL, latency)[1], "none"))
        declared.append(compare(program, stock, flash, "attribute"))
    assert Total(declared).bound > Total(serial).bound
    assert Total(declared).speedup > Total(serial).speedup > 1.0
    assert Total(serial).saved_ff == pytest.approx(0.0)
    assert Total(declared).saved_ff > 0


def test_nothing_compared_is_no_gain():
    total = Total([])
    assert (total.speedup, total.bound, total.bound_with_turns, total.seconds) == (1.0, 1.0, 1.0, 0)
