"""What is added to a graph."""

from __future__ import annotations

from langgraph_flash.nodes.condition import flash_condition
from langgraph_flash.nodes.flash_node import FlashNode

__all__ = ["FlashNode", "flash_condition"]
