"""The agent every demonstration drives: a model, a tools node, and the loop between them."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from langgraph_flash.nodes import flash_condition

__all__ = ["Agent", "build_agent"]

Agent = CompiledStateGraph[Any, Any, Any, Any]
"""A compiled agent graph over messages."""


def build_agent(model: Runnable[Any, Any], tools: ToolNode) -> Agent:
    """Compile the usual agent loop; only the tools node differs between the runs that are compared.

    `flash_condition` does for a stock `ToolNode` what `tools_condition` does, so both get the same graph.

    Args:
        model: A chat model, with tools bound if it needs them.
        tools: The node under test.
    """

    async def agent(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    # LangGraph runs a plain function in a thread each time; a coroutine stays on the loop, where virtual time is exact.
    async def route(state: MessagesState) -> Literal["tools", "__end__"]:
        return flash_condition(state)

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", tools)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=InMemorySaver())
