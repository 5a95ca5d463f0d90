"""Make an existing LangGraph graph faster, cheaper and better without rewriting it."""

from __future__ import annotations

__all__: list[str] = []
