"""A real chat model that replays a script: it streams, calls tools, takes its time, remembers its input."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr, SkipValidation

from langgraph_flash.errors import ConfigurationError
from langgraph_flash.testing.history import check_history
from langgraph_flash.testing.script import ScriptExhausted, Turn, check_script, play_turn
from langgraph_flash.testing.tape import Tape
from langgraph_flash.testing.tokens import count_tokens, stream_chunks

__all__ = ["ScriptedChatModel"]

_POSITIONS = ("calls", "history")
# What real chat models take, so that a test can build the double from the same arguments.
_IGNORED = frozenset({"api_key", "base_url", "max_retries", "max_tokens", "stop", "temperature", "timeout"})


class ScriptedChatModel(BaseChatModel):
    """A chat model whose answers are written down beforehand.

        model = ScriptedChatModel([says("Let me look.", call("search", query="tea")), "Found it."])

    It is a complete chat model: `invoke`, `stream`, their asynchronous forms, `bind_tools` and
    `with_structured_output` work, and a streamed answer adds up to the invoked one. The script decides what
    is said; bound tools, `tool_choice` and `stop` are recorded and otherwise ignored. To answer a
    `with_structured_output`, the turn calls a tool named like the schema.

    A message of n tokens takes `first_token_seconds + n * seconds_per_token` seconds: slept with `time.sleep`
    in synchronous calls and with `asyncio.sleep` in asynchronous ones, so that `virtual_time` makes them
    free. Tokens are counted by `count_tokens`, and every message without usage of its own reports them in
    `usage_metadata`.

    Tool calls without an id get `call_1`, `call_2`, ...: the first number free in the history, counted over
    the model's life or, with `position="history"`, over the calls in the history.

    Args:
        script: The turns, in order; see `Turn`. An empty script is a model that must never be called.
        loop: Start the script again after its last turn.
        position: How the model knows its turn. "calls": it counts the calls it has received, from anyone.
            "history": the turn is the number of AI messages in the input. It keeps nothing between calls, so
            it gives the same answer when a graph is replayed, forked, or resumed in another process, and to
            several conversations at once.
        strict: Check the input of every call with `check_history`, before it uses up a turn.
        model: The name the model reports.
        seconds_per_token: Seconds to decode each token.
        first_token_seconds: Seconds before the first token is decoded: network, queue and prompt.
        **options: The fields of `BaseChatModel`, such as `disable_streaming`, and the usual arguments of real
            models, such as `temperature`, which have no effect.

    Raises:
        ConfigurationError: An argument can never work.
        InvalidHistory: From a call: a provider would refuse its input, and the model is `strict`.
        ScriptExhausted: From a call: the script has no turn for it.
    """

    # Checked in __init__; pydantic would try to make a message of a str.
    script: SkipValidation[tuple[Turn, ...]] = ()
    loop: bool = False
    position: Literal["calls", "history"] = "calls"
    strict: bool = True
    model: str = "scripted"
    seconds_per_token: float = 0.0
    first_token_seconds: float = 0.0
    streaming: bool = False
    """Whether `invoke` streams internally, as on the chat models of providers."""

    _tape: Tape = PrivateAttr(default_factory=Tape)

    def __init__(
        self,
        script: Sequence[Turn] = (),
        *,
        loop: bool = False,
        position: Literal["calls", "history"] = "calls",
        strict: bool = True,
        model: str = "scripted",
        seconds_per_token: float = 0.0,
        first_token_seconds: float = 0.0,
        **options: Any,
    ) -> None:
        check_script(script, loop)
        if position not in _POSITIONS:
            raise ConfigurationError(f"position is {position!r}; use one of {', '.join(map(repr, _POSITIONS))}.")
        delays: dict[str, object] = {
            "seconds_per_token": seconds_per_token,
            "first_token_seconds": first_token_seconds,
        }
        for name, seconds in delays.items():
            if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds < 0:
                raise ConfigurationError(f"{name} is {seconds!r}; give a finite number of seconds, 0 or more.")
        if unknown := options.keys() - type(self).model_fields.keys() - _IGNORED:
            raise ConfigurationError(
                f"{type(self).__name__} has no argument {', '.join(sorted(unknown))}. "
                f"It takes {', '.join(sorted(type(self).model_fields))}."
            )
        fields: dict[str, Any] = {
            "script": tuple(script),
            "loop": loop,
            "position": position,
            "strict": strict,
            "model": model,
            "seconds_per_token": seconds_per_token,
            "first_token_seconds": first_token_seconds,
        }
        super().__init__(**fields, **{key: value for key, value in options.items() if key not in _IGNORED})

    @property
    def calls(self) -> list[list[BaseMessage]]:
        """The messages of each call, oldest call first. Calls that failed are here too."""
        with self._tape.lock:
            return list(self._tape.messages)

    @property
    def bound_tools(self) -> list[dict[str, dict[str, Any]]]:
        """The tools bound in each call, as OpenAI tool definitions by name, in step with `calls`."""
        with self._tape.lock:
            return list(self._tape.tools)

    @property
    def bound_options(self) -> list[dict[str, Any]]:
        """The other arguments of each call, such as `tool_choice` and `stop`, in step with `calls`."""
        with self._tape.lock:
            return list(self._tape.options)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools; each call then records them in `bound_tools`.

        Args:
            tools: Tools in any form LangChain can convert.
            tool_choice: Recorded in `bound_options`; the script decides which tool is called.
            **kwargs: Recorded in `bound_options`.

        Returns:
            The model with the tools bound.
        """
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = "scripted"
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._play(messages, stop, kwargs)
        _sleep(self._seconds(message))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._play(messages, stop, kwargs)
        await asyncio.sleep(self._seconds(message))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._play(messages, stop, kwargs)
        _sleep(self.first_token_seconds)
        for chunk, tokens in stream_chunks(message):
            _sleep(tokens * self.seconds_per_token)
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        message = self._play(messages, stop, kwargs)
        await asyncio.sleep(self.first_token_seconds)
        for chunk, tokens in stream_chunks(message):
            # Also for zero seconds: other tasks run between the chunks of a real stream.
            await asyncio.sleep(tokens * self.seconds_per_token)
            yield ChatGenerationChunk(message=chunk)

    def _seconds(self, message: AIMessage) -> float:
        return self.first_token_seconds + count_tokens(message) * self.seconds_per_token

    def _play(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        """Record one call, take its turn and complete it as a provider would."""
        self._tape.record(messages, stop, kwargs)
        if self.strict:
            check_history(messages)
        index = self._take_turn(messages)
        message = self._number_calls(play_turn(self.script[index], index, messages), messages)
        prompt, answer = sum(map(count_tokens, messages)), count_tokens(message)
        message.usage_metadata = message.usage_metadata or {
            "input_tokens": prompt,
            "output_tokens": answer,
            "total_tokens": prompt + answer,
        }
        message.response_metadata = {
            "model_name": self.model,
            "finish_reason": "tool_calls" if message.tool_calls else "stop",
            **message.response_metadata,
        }
        return message

    def _take_turn(self, messages: list[BaseMessage]) -> int:
        if self.position == "history":
            turn = sum(isinstance(message, AIMessage) for message in messages)
        else:
            turn = self._tape.next_turn()
        if turn < len(self.script):
            return turn
        if not self.loop:
            raise ScriptExhausted(len(self.script), messages)
        return turn % len(self.script)

    def _number_calls(self, message: AIMessage, messages: list[BaseMessage]) -> AIMessage:
        """Give every call without an id the next number nobody in the conversation uses."""
        earlier = [made for said in messages if isinstance(said, AIMessage) for made in said.tool_calls]
        taken = {made["id"] for made in [*earlier, *message.tool_calls]}
        numbers = itertools.count(len(earlier) + 1) if self.position == "history" else self._tape.call_numbers()
        for made in message.tool_calls:
            if made["id"] is None:
                made["id"] = next(name for name in (f"call_{n}" for n in numbers) if name not in taken)
        return message


def _sleep(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)
