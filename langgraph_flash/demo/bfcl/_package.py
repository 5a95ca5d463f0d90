"""The only door to the optional `bfcl_eval` package: its classes and data files, imported when needed."""

from __future__ import annotations

import importlib
import json
from functools import cache
from importlib import resources
from typing import Any

from langgraph_flash.errors import MissingDependencyError

__all__ = ["backend_class", "documentation", "is_stateless", "json_lines"]

_INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 mpmath==1.3.0"
_CONFIG = "bfcl_eval.constants.executable_backend_config"


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in {"bfcl_eval", "mpmath"}:
            raise
        raise MissingDependencyError(
            "The function calling leaderboard demo", package.replace("_", "-"), _INSTALL
        ) from error


@cache
def backend_class(name: str) -> type[Any]:
    """The simulator class of this name, such as `TradingBot`."""
    module = _module(_module(_CONFIG).CLASS_FILE_PATH_MAPPING[name])
    found: type[Any] = getattr(module, name)
    return found


def is_stateless(name: str) -> bool:
    """Whether the class takes no initial configuration."""
    return name in _module(_CONFIG).STATELESS_CLASSES


def json_lines(*path: str) -> list[Any]:
    """The values of one of the package's data files, which hold one JSON value a line."""
    _module("bfcl_eval")  # so that a missing package is reported as such, not as a missing resource
    text = resources.files("bfcl_eval").joinpath("data", *path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@cache
def documentation(name: str) -> tuple[Any, ...]:
    """The function documents of one class, as the leaderboard shows them to a model."""
    file = _module(_CONFIG).MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
    return tuple(json_lines("multi_turn_func_doc", file))
