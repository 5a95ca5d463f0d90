"""The live half of the demonstration: a real model answers, behind ToolNode and behind FlashNode."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import OpenAIError
from pydantic import SecretStr

from langgraph_flash.demo.thinking import QUESTIONS, Answers, coordinator, flash_tools, stock_tools, think
from langgraph_flash.errors import ConfigurationError, FlashError
from langgraph_flash.models.local import LocalServer
from langgraph_flash.report import Column, TableView, format_count, format_ratio, format_seconds

__all__ = ["Endpoint", "EndpointFailed", "Thinking", "answer_table", "endpoint", "run_thinking", "time_table"]

_COORDINATOR_SECONDS = 0.15
_ANSWER_TOKENS = 48


class EndpointFailed(FlashError):
    """The model endpoint did not answer as it should."""

    def __init__(self, base_url: str, reason: str) -> None:
        super().__init__(f"The model at {base_url} failed: {reason}. Check --base-url, --model and --api-key-env.")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a real model is."""

    base_url: str
    model: str
    api_key: SecretStr
    embedded: bool
    """Whether it is the model that comes with the package's extra."""

    def chat(self, max_tokens: int = _ANSWER_TOKENS) -> ChatOpenAI:
        """The model as LangChain's client for it, without retries, which would blur the measurement."""
        return ChatOpenAI(
            base_url=self.base_url,
            model=self.model,
            api_key=self.api_key,
            temperature=0,
            max_completion_tokens=max_tokens,
            max_retries=0,
            timeout=120,
        )


@dataclass(frozen=True, slots=True)
class Thinking:
    """The same questions through both nodes."""

    endpoint: Endpoint = field(repr=False)
    stock: Answers
    flash: Answers
    live_tools: bool
    """Whether the coordinator was the real model as well."""


@contextlib.contextmanager
def endpoint(base_url: str | None, model: str | None, api_key_env: str | None) -> Iterator[Endpoint]:
    """The endpoint that was asked for, or the embedded server for as long as the context lasts.

    Raises:
        ConfigurationError: The options do not fit together, or the variable is not set.
        MissingDependencyError: The embedded server is needed and not installed.
    """
    if (base_url is None) != (model is None):
        raise ConfigurationError("--base-url and --model belong together: give both, or neither for the embedded one.")
    if base_url is None or model is None:
        with LocalServer(parallel=len(QUESTIONS)) as server:
            yield Endpoint(server.base_url, server.model, SecretStr("unused"), embedded=True)
        return
    key = "unused"
    if api_key_env is not None:
        if not os.environ.get(api_key_env):
            raise ConfigurationError(f"--api-key-env names {api_key_env!r}, but no such environment variable is set.")
        key = os.environ[api_key_env]
    yield Endpoint(base_url, model, SecretStr(key), embedded=False)


async def run_thinking(target: Endpoint, *, live_tools: bool) -> Thinking:
    """Have the questions answered once through each node.

    Args:
        target: The real model.
        live_tools: Let it be the coordinator too, instead of replaying one.

    Raises:
        EndpointFailed: It did not answer.
    """
    model = target.chat()
    try:
        # Both runs then meet a server that has seen every prompt once, whatever it caches.
        brief = target.chat(max_tokens=2)
        await asyncio.gather(*(brief.ainvoke([HumanMessage(question)]) for question in QUESTIONS))
        stock_node, flash_node = stock_tools(model), flash_tools(model)
        if live_tools:
            stock = await think(target.chat(512).bind_tools(list(stock_node.tools_by_name.values())), stock_node)
            flash = await think(flash_node.bind(target.chat(512)), flash_node)
        else:
            stock = await think(coordinator(QUESTIONS, decode_seconds=_COORDINATOR_SECONDS), stock_node)
            flash = await think(coordinator(QUESTIONS, decode_seconds=_COORDINATOR_SECONDS), flash_node)
    except OpenAIError as error:
        raise EndpointFailed(target.base_url, str(error)) from error
    return Thinking(target, stock, flash, live_tools)


def time_table(thinking: Thinking) -> TableView:
    """The time of both runs."""
    rows = (("ToolNode", thinking.stock), ("FlashNode", thinking.flash))
    return TableView(
        title=f"{len(thinking.flash.answers)} questions to {thinking.endpoint.model}",
        columns=(
            Column(name="node"),
            Column(name="answers", align="right"),
            Column(name="time", unit="s", align="right"),
            Column(name="speed-up", align="right"),
        ),
        rows=tuple(
            (
                name,
                format_count(len(run.answers)),
                format_seconds(run.seconds, unit="s"),
                format_ratio(thinking.stock.seconds / run.seconds),
            )
            for name, run in rows
        ),
        note="How much answering at the same time helps depends on the endpoint: requests share its compute, "
        "of which a few processor cores have little to spare.",
    )


def answer_table(thinking: Thinking, limit: int = 90) -> TableView:
    """What the sub-agents said behind FlashNode."""
    return TableView(
        title="What the sub-agents answered",
        columns=(Column(name="question"), Column(name="answer")),
        rows=tuple(
            (question, text if len(text) <= limit else f"{text[: limit - 1]}…")
            for question, text in thinking.flash.answers.items()
        ),
    )
