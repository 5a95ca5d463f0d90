"""What a benchmark ran on, in words that say nothing about whose machine it was."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["describe_machine"]

_PACKAGES = ("langgraph-flash", "langgraph", "langgraph-prebuilt", "langchain-core", "pydantic", "numpy")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, Python and the versions of the packages that matter; no host names and no paths."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "switch_interval": sys.getswitchinterval(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
