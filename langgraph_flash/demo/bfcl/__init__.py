"""The 800 multi-turn programs of the Berkeley Function Calling Leaderboard: tools, scripts, an oracle.

Needs the optional package `bfcl-eval` and its `mpmath`; importing this package does not.
"""

from __future__ import annotations

from langgraph_flash.demo.bfcl.backends import execute, fresh_instances
from langgraph_flash.demo.bfcl.footprints import Footprint, Level, footprint
from langgraph_flash.demo.bfcl.oracle import (
    ProgramResult,
    canonical,
    difference,
    run_in_order,
    run_sequential,
)
from langgraph_flash.demo.bfcl.orders import (
    adversarial_orders,
    freed_calls,
    latest_first,
    merge_turns,
    order_edges,
)
from langgraph_flash.demo.bfcl.programs import CATEGORIES, Program, ProgramCall, Turn, load_programs
from langgraph_flash.demo.bfcl.projections import Projection, fill, projections_of, resolve, value_at, with_projections
from langgraph_flash.demo.bfcl.tools import make_tools

__all__ = [
    "CATEGORIES",
    "Footprint",
    "Level",
    "Program",
    "ProgramCall",
    "ProgramResult",
    "Projection",
    "Turn",
    "adversarial_orders",
    "canonical",
    "difference",
    "execute",
    "fill",
    "footprint",
    "freed_calls",
    "fresh_instances",
    "latest_first",
    "load_programs",
    "make_tools",
    "merge_turns",
    "order_edges",
    "projections_of",
    "resolve",
    "run_in_order",
    "run_sequential",
    "value_at",
    "with_projections",
]
