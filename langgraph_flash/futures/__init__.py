"""AsyncFC without LangGraph: futures, resources, and the scheduler and runtime that run them."""

from __future__ import annotations

from langgraph_flash.futures.future import Future, State
from langgraph_flash.futures.references import Reference, future_id
from langgraph_flash.futures.resources import BARRIER, PURE, Access, Template, conflicts
from langgraph_flash.futures.runtime import FutureRuntime, RuntimeStatistics, default_runtime
from langgraph_flash.futures.scheduler import Scheduler, longest_first, program_order
from langgraph_flash.futures.scope import Scope
from langgraph_flash.futures.timeouts import Timeout, heartbeat
from langgraph_flash.futures.uses import Uses, declared, uses

__all__ = [
    "BARRIER",
    "PURE",
    "Access",
    "Future",
    "FutureRuntime",
    "Reference",
    "RuntimeStatistics",
    "Scheduler",
    "Scope",
    "State",
    "Template",
    "Timeout",
    "Uses",
    "conflicts",
    "declared",
    "default_runtime",
    "future_id",
    "heartbeat",
    "longest_first",
    "program_order",
    "uses",
]
