"""The futures benchmark runs, says what it promises and says it as one JSON object; how fast it is, is not tested."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEADLINES = (
    "makespan_ratio",
    "call_overhead_ratio",
    "pending_10k_ratio",
    "pending_10k_same_conversation_ratio",
    "bytes_per_future",
)

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks" / "futures.py").is_file(), reason="benchmarks are not here")


def run(*arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.futures", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    return json.loads(run("--quick", "--json"))


@pytest.mark.parametrize("name", HEADLINES)
def test_a_headline_is_a_positive_number(quick: dict[str, Any], name: str) -> None:
    assert math.isfinite(quick[name])
    assert quick[name] > 0


def test_every_number_in_the_sections_is_finite(quick: dict[str, Any]) -> None:
    def check(value: Any, place: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                check(inner, f"{place}.{key}")
        elif isinstance(value, list):
            for inner in value:
                check(inner, place)
        elif isinstance(value, float):
            assert math.isfinite(value), place

    for section in ("makespan", "overhead", "pending", "memory"):
        check(quick[section], section)


def test_each_mode_and_variant_is_there(quick: dict[str, Any]) -> None:
    for mode in ("sync", "async"):
        assert {"ratio", "median", "worst", "calls_only", "plain"} <= set(quick["makespan"][mode])
        for name in ("default", "futures"):
            assert {"ratio", "graph_ratio", "cpu_ratio", "by_size"} == set(quick["overhead"][mode][name])
    assert set(quick["pending"]) == {
        *("scope_running", "scope_behind_writer", "scope_chain"),
        *("node_one_each", "node_elsewhere", "node_same"),
    }
    assert quick["bars"].keys() <= quick.keys()


def test_the_machine_is_described_without_names_or_paths(quick: dict[str, Any]) -> None:
    machine = quick["machine"]
    assert {"cpu", "cores", "python", "packages"} <= set(machine)
    assert machine["packages"]["langgraph"]
    assert str(Path.home()) not in json.dumps(machine)
    assert str(ROOT) not in json.dumps(machine)


def test_without_json_it_prints_tables() -> None:
    printed = run("--quick", "--only", "makespan")
    assert "makespan_ratio" in printed
    assert "critical path" in printed


def test_programs_are_the_same_for_the_same_seed_and_name_earlier_calls_only() -> None:
    from benchmarks.cost.makespan import random_program
    from benchmarks.cost.sizes import Sizes

    sizes = replace(Sizes(), calls=(5, 40))
    for seed in range(50):
        program = random_program(random.Random(seed), sizes)
        assert program == random_program(random.Random(seed), sizes)
        assert 5 <= len(program) <= 40
        assert [call.number for call in program] == list(range(len(program)))
        for call in program:
            assert all(program[number].message < call.message for number in call.inputs)


def test_the_critical_path_of_known_programs() -> None:
    from benchmarks.cost.makespan import PlannedCall, critical_path_seconds

    think = [PlannedCall(number, 0, "think", 1.0 + number) for number in range(3)]
    assert critical_path_seconds(think) == 3.0
    writes = [PlannedCall(number, 0, "change", 1.0, target="a") for number in range(3)]
    assert critical_path_seconds(writes) == 3.0
    apart = [PlannedCall(0, 0, "change", 1.0, target="a/x"), PlannedCall(1, 0, "change", 2.0, target="a/y")]
    assert critical_path_seconds(apart) == 2.0
    above = [*apart, PlannedCall(2, 0, "look", 1.0, source="a")]
    assert critical_path_seconds(above) == 3.0
    barrier = [think[2], PlannedCall(1, 0, "everything", 1.0), PlannedCall(2, 0, "look", 1.0, source="a")]
    assert critical_path_seconds([replace(call, number=i) for i, call in enumerate(barrier)]) == 3.0
    fed = [PlannedCall(0, 0, "think", 1.0), PlannedCall(1, 1, "think", 2.0, inputs=(0,))]
    assert critical_path_seconds(fed) == 3.0
