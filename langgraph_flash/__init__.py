"""Make an existing LangGraph graph faster, cheaper and better without rewriting it."""

from __future__ import annotations

from langgraph_flash.futures import FutureRuntime, Timeout, heartbeat, uses
from langgraph_flash.nodes import FlashNode, flash_condition

__all__ = ["FlashNode", "FutureRuntime", "Timeout", "flash_condition", "heartbeat", "uses"]
