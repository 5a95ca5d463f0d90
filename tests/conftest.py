"""What every test shares: quiet tracing, Hypothesis profiles, the embedded model and the outcome tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from langgraph_flash.errors import MissingDependencyError
from langgraph_flash.models.local import LocalServer

# Set before anything imports LangSmith, which reads them once: a test run must not send anything anywhere.
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["LANGCHAIN_TRACING_V2"] = "false"

# A busy machine is not a failure, so no example has a deadline; in CI the examples are the same each time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def local_model() -> Iterator[LocalServer]:
    """The embedded real model behind an OpenAI-compatible address, one server for the session."""
    try:
        server = LocalServer()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def flash_data() -> Path:
    """The folder with the outcome tables, which are not part of the repository."""
    folder = Path(os.environ.get("FLASH_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"The outcome tables are not at {folder}; set FLASH_DATA to the folder that holds them.")
    return folder
