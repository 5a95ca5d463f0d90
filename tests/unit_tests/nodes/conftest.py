"""Makes `node_lab`, the helpers of this folder, importable, and gives tests a runtime of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_flash import FutureRuntime

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture
def runtime() -> Iterator[FutureRuntime]:
    """A runtime with a thread of its own, closed afterwards."""
    made = FutureRuntime()
    yield made
    made.close()
