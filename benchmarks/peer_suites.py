"""The suites of the packages we stand in for, run with ours: `python -m benchmarks.peer_suites [--json]`.

Downloads the published source distributions of langgraph-prebuilt and langchain at the versions installed here, and
runs their own tests three times: as they are; with `ToolNode` replaced by `FlashNode`; and with every call of every
such node in the background, with a grace that waits for all of them. The bar is that the same tests pass. Tests that
fail with ours and pass with the stock node are named, so that a count can be read.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.machine import describe_machine
from langgraph_flash.errors import ConfigurationError
from langgraph_flash.report import Column, TableView, terminal_table

__all__ = ["SUITES", "Outcome", "Suite", "main", "run_suite"]

MODES = ("stock", "default", "background")

# What the suites import and our own environment lacks; they get an environment of their own.
_REQUIRED = (
    "pytest",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-timeout",
    "pytest-socket",
    "pytest-benchmark",
    "pytest-xdist",
    "syrupy>=5,<6",
    "blockbuster",
    "langchain-tests",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "psycopg[binary]",
    "redis",
    "vcrpy",
    "toml",
    "hatchling",
)


@dataclass(frozen=True, slots=True)
class Suite:
    """A published test suite."""

    name: str
    distribution: str
    tests: str
    """The part of its `tests` folder that is run."""
    settings: str
    """Its `pytest.ini` outside the source tree, where its own copy of the package would shadow the installed one."""


_SETTINGS = "[pytest]\nasyncio_mode = auto\naddopts = --strict-markers --strict-config\n"

SUITES = (
    Suite("prebuilt", "langgraph-prebuilt", "tests", _SETTINGS),
    Suite(
        "langchain_agents",
        "langchain",
        "tests/unit_tests/agents",
        f"{_SETTINGS}markers =\n  requires: x\n  scheduled: x\n  compile: x\n  benchmark: x\n",
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a suite."""

    passed: int
    failed: tuple[str, ...]
    """The tests that did not pass."""
    nodes: int
    """Nodes that were built through the replaced class: zero would mean that the replacement did not bite."""


def prepare(folder: Path, console: Console) -> Path:
    """Make the environment for the suites and return its interpreter."""
    python = folder / "venv" / "bin" / "python"
    console.print("Making an environment for the suites …")
    _run(sys.executable, "-m", "venv", str(folder / "venv"))
    _run(str(python), "-m", "pip", "install", "--quiet", "uv")
    here = Path(__file__).resolve().parents[1]
    pins = [f"{name}=={importlib.metadata.version(name)}" for name in ("langgraph", "langgraph-prebuilt", "langchain")]
    uv = (str(folder / "venv" / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(python))
    _run(*uv, *pins, *_REQUIRED, str(here))
    return python


def fetch(suite: Suite, python: Path, folder: Path) -> Path:
    """Download a suite's source distribution and lay its tests out; returns the folder to run them in."""
    version = importlib.metadata.version(suite.distribution)
    downloads = folder / "sdists"
    _run(
        *(str(python), "-m", "pip", "download", "--quiet", f"{suite.distribution}=={version}"),
        *("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(downloads)),
    )
    stem = f"{suite.distribution.replace('-', '_')}-{version}"
    archive = next(downloads.glob(f"{stem}.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(downloads, filter="data")
    place = folder / suite.name
    place.mkdir()
    shutil.copytree(downloads / stem / "tests", place / "tests")
    (place / "pytest.ini").write_text(suite.settings)
    return place


def run_suite(suite: Suite, mode: str, python: Path, place: Path) -> Outcome:
    """Run a suite once.

    Args:
        suite: The suite.
        mode: `"stock"`, `"default"` or `"background"`.
        python: The interpreter of its environment.
        place: Where its tests are.
    """
    plugin = Path(__file__).resolve().parent
    env = {
        **os.environ,
        "LANGGRAPH_TEST_FAST": "1",
        "LANGSMITH_TRACING": "false",
        "FLASH_MODE": mode,
        "PYTHONPATH": str(plugin),
    }
    swap = [] if mode == "stock" else ["-p", "peer_plugin"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *swap, suite.tests, "-p", "no:cacheprovider", "-q", "--timeout", "120", "-rfE"],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    summary = re.findall(r"(\d+) passed", done.stdout)
    if not summary:
        raise ConfigurationError(f"The suite {suite.name} did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    failed = tuple(sorted(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)))
    nodes = re.search(r"flash nodes built: (\d+)", done.stdout)
    return Outcome(int(summary[-1]), failed, int(nodes[1]) if nodes else 0)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites and print what passed; the exit code says whether only known differences are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=[suite.name for suite in SUITES], help="run one suite")
    options = parser.parse_args(arguments)
    console = Console(stderr=options.json)
    report: dict[str, dict[str, int]] = {}
    differ: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory(prefix="peer-suites-") as temporary:
        folder = Path(temporary)
        python = prepare(folder, console)
        for suite in SUITES:
            if options.only not in (None, suite.name):
                continue
            place = fetch(suite, python, folder)
            outcomes: dict[str, Outcome] = {}
            for mode in MODES:
                outcomes[mode] = run_suite(suite, mode, python, place)
                console.print(f"{suite.name}, {mode}: {outcomes[mode].passed} passed")
            report[suite.name] = {mode: outcome.passed for mode, outcome in outcomes.items()}
            stock = set(outcomes["stock"].failed)
            differ[suite.name] = {mode: sorted(set(outcomes[mode].failed) - stock) for mode in MODES[1:]}
            report[suite.name]["nodes_built"] = outcomes["default"].nodes
    if options.json:
        print(json.dumps({**report, "fail_only_with_ours": differ, "machine": describe_machine()}))
    else:
        rows = tuple((name, *(str(counts[mode]) for mode in MODES)) for name, counts in report.items())
        columns = (Column(name="suite"), *(Column(name=mode, align="right") for mode in MODES))
        console.print(terminal_table(TableView(title="Tests passed", columns=columns, rows=rows)))
        for suite_name, modes in differ.items():
            for mode, names in modes.items():
                for name in names:
                    console.print(f"{suite_name}, {mode}: {name} fails only with FlashNode")
    return 0


if __name__ == "__main__":
    sys.exit(main())
