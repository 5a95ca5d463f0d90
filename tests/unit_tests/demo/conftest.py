"""Shared programs and reference runs; everything that needs the package is skipped without it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

PRESENT = find_spec("bfcl_eval") is not None and find_spec("mpmath") is not None


def pytest_collection_modifyitems(items):
    if not PRESENT:
        skip = pytest.mark.skip(reason="needs bfcl-eval and mpmath, which are not installed")
        for item in items:
            if item.get_closest_marker("bfcl"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def programs():
    from langgraph_flash.demo.bfcl import load_programs

    return load_programs()


@pytest.fixture(scope="session")
def by_id(programs):
    return {program.id: program for program in programs}


@pytest.fixture(scope="session")
def reference(programs):
    from langgraph_flash.demo.bfcl import run_sequential

    return {program.id: run_sequential(program) for program in programs}
