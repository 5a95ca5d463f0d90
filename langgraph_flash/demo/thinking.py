"""Async thinking: a coordinator whose slow tools are sub-agents, each a small graph that asks a real model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel, Field

from langgraph_flash.demo.agent import Agent, build_agent
from langgraph_flash.demo.conversation import results_in
from langgraph_flash.futures import FutureRuntime, uses
from langgraph_flash.nodes import FlashNode
from langgraph_flash.records import Span
from langgraph_flash.spans import SpanRecorder
from langgraph_flash.testing import ScriptedChatModel, call, says

__all__ = ["QUESTIONS", "Answers", "coordinator", "flash_tools", "stock_tools", "sub_agent", "think"]

QUESTIONS = (
    "Why is the sky blue?",
    "What does a compiler do?",
    "Why do leaves change their colour in autumn?",
    "What is the difference between weather and climate?",
)
"""Small questions that have nothing to do with each other."""

_INSTRUCTIONS = "Answer in one short sentence."


_INSIDE = "sub-agent"
"""Marks the model calls of sub-agents."""


class _Coordinator(SpanRecorder):
    """Records a sub-agent as the tool it is to its caller, not the model call inside it as well."""

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        if _INSIDE not in (kwargs.get("tags") or ()):
            super().on_chat_model_start(serialized, messages, run_id=run_id, **kwargs)


class _Question(BaseModel):
    question: str = Field(description="A question that can be answered on its own.")


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run of the coordinator brought together."""

    answers: dict[str, str] = field(repr=False)
    """The sub-agents' answers, by question."""

    spans: tuple[Span, ...] = field(repr=False)
    """The coordinator's model calls and its sub-agents, without the model calls inside these."""

    seconds: float
    """From the first span to the end of the last."""

    last: str
    """The coordinator's final message."""


def sub_agent(model: Runnable[Any, Any]) -> Agent:
    """A graph of one node that puts a question to a model."""

    async def answer(state: MessagesState) -> dict[str, list[BaseMessage]]:
        asked = [SystemMessage(_INSTRUCTIONS), *state["messages"]]
        return {"messages": [await model.ainvoke(asked, {"tags": [_INSIDE]})]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile()


def _ask(model: Runnable[Any, Any]) -> BaseTool:
    agent = sub_agent(model)

    async def think(question: str) -> str:
        state = await agent.ainvoke({"messages": [HumanMessage(question)]})
        return str(state["messages"][-1].text)

    return StructuredTool.from_function(
        coroutine=think,
        name="think",
        description="Let a sub-agent think about one question. Ask independent questions separately.",
        args_schema=_Question,
    )


def stock_tools(model: Runnable[Any, Any]) -> ToolNode:
    """The sub-agents behind a stock `ToolNode`."""
    return ToolNode([_ask(model)])


def flash_tools(model: Runnable[Any, Any]) -> FlashNode:
    """The sub-agents behind a `FlashNode`; they touch nothing, so nothing keeps them from overlapping."""
    return FlashNode([uses(pure=True)(_ask(model))], runtime=FutureRuntime(loop="caller"))


def coordinator(questions: Sequence[str], *, decode_seconds: float) -> BaseChatModel:
    """A model that replays what a coordinator would write: one question a message, then an answer.

    Args:
        questions: What to ask.
        decode_seconds: How long each of its messages takes.
    """

    def turn(messages: list[BaseMessage]) -> AIMessage | str:
        asked = sum(len(message.tool_calls) for message in messages if isinstance(message, AIMessage))
        if asked < len(questions):
            return says("", call("think", id=f"think/{asked}", question=questions[asked]))
        known = len(results_in(messages))
        return f"{known} of {len(questions)} answers are in."

    return ScriptedChatModel([turn], loop=True, model="replayed coordinator", first_token_seconds=decode_seconds)


async def think(model: Runnable[Any, Any], tools: ToolNode, questions: Sequence[str] = QUESTIONS) -> Answers:
    """Let a coordinator have the questions answered.

    Args:
        model: The coordinator, with the tools bound if it is a real model.
        tools: The node with the sub-agents.
        questions: What to ask.
    """
    recorder = _Coordinator(asyncio.get_running_loop().time)
    request = "Have each of these questions answered by a sub-agent:\n" + "\n".join(f"- {each}" for each in questions)
    config: RunnableConfig = {"callbacks": [recorder], "configurable": {"thread_id": "thinking"}, "recursion_limit": 64}
    state = await build_agent(model, tools).ainvoke({"messages": [HumanMessage(request)]}, config)
    messages = state["messages"]
    asked = {
        made["id"]: str(made["args"].get("question", made["name"]))
        for message in messages
        if isinstance(message, AIMessage)
        for made in message.tool_calls
    }
    spans, known = recorder.spans, results_in(messages)
    return Answers(
        answers={question: " ".join(known[name].split()) for name, question in asked.items() if name in known},
        spans=spans,
        seconds=max(span.end for span in spans) - min(span.start for span in spans),
        last=str(messages[-1].text),
    )
