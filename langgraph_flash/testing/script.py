"""The vocabulary a script is written in: what a turn is, how to write one, and how the script can run out."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, message_chunk_to_message

from langgraph_flash.errors import ConfigurationError, FlashError

__all__ = ["ScriptExhausted", "Turn", "call", "check_script", "play_turn", "says"]

Turn = AIMessage | str | Callable[[list[BaseMessage]], AIMessage | str]
"""One answer of the model: a message, its text, or a function that reads the history and returns either.

A function is called once per answer, also in asynchronous code, so it must not block. What it raises comes
out of the model: that is how a script plays an endpoint that fails. The turn is used up nevertheless.
"""


# A LookupError, because LangGraph's default retry policy would ask the model again after a plain Exception.
class ScriptExhausted(FlashError, LookupError):
    """The model was asked for more turns than its script has."""

    turns: int
    """How many turns the script has."""

    messages: list[BaseMessage]
    """What the model was asked."""

    def __init__(self, turns: int, messages: list[BaseMessage]) -> None:
        self.turns = turns
        self.messages = messages
        super().__init__(
            f"The script has {turns} turn{'' if turns == 1 else 's'} and the model was asked for another. "
            f"The last message it saw was {_glimpse(messages)}. Add a turn to the script, or pass loop=True to "
            "start it again."
        )

    def __reduce__(self) -> tuple[type[ScriptExhausted], tuple[int, list[BaseMessage]]]:
        """Pickle by the facts: an exception is otherwise rebuilt from its sentence alone."""
        return type(self), (self.turns, self.messages)


def call(name: str, /, id: str | None = None, **args: Any) -> ToolCall:
    """Write one tool call of a turn.

    Args:
        name: The tool to call.
        id: The call's id. `None` lets the model number it: `call_1`, `call_2` and so on.
        **args: The arguments of the call. They must be expressible as JSON. For an argument that is itself
            named `id`, write `{**call("tool"), "args": {"id": ...}}`.

    Returns:
        The call, for `says` or the `tool_calls` of an `AIMessage`.

    Raises:
        ConfigurationError: `name` is empty, or an argument is not JSON.
    """
    if not name:
        raise ConfigurationError(f"A tool call needs the name of a tool, not {name!r}. Pass a non-empty str.")
    return ToolCall(name=name, args=_through_json(name, args), id=id, type="tool_call")


def says(text: str = "", *calls: ToolCall) -> AIMessage:
    """Write one turn: what the model says and the tools it calls.

    Args:
        text: The text of the message; empty for calls alone.
        *calls: Tool calls made with `call`.

    Returns:
        A message to put in a script.

    Raises:
        ConfigurationError: `text` is not a str, or a call is not a tool call.
    """
    given: tuple[object, ...] = (text, *calls)
    if not isinstance(given[0], str):
        raise ConfigurationError(f"says() takes the text first, not {text!r}; for calls alone it is ''.")
    for made in given[1:]:
        if not isinstance(made, dict) or not {"name", "args", "id"} <= made.keys():
            raise ConfigurationError(f"says() takes tool calls after the text, not {made!r}; see call().")
    return AIMessage(content=text, tool_calls=list(calls))


def check_script(script: Sequence[Turn], loop: bool) -> None:
    """Check what can be known of a script before it is played.

    Raises:
        ConfigurationError: It is not a sequence of turns, or is empty and should loop.
    """
    given: object = script
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigurationError(f"The script is {script!r}; give a list of turns, such as ['Hello.'].")
    for index, turn in enumerate(script):
        if not isinstance(turn, AIMessage | str) and not callable(turn):
            raise ConfigurationError(
                f"Turn {index} of the script is {turn!r}; a turn is an AIMessage, a str, or a function from "
                "the messages to one of them. Write it with says() and call()."
            )
    if loop and not script:
        raise ConfigurationError("An empty script cannot loop; add a turn, or leave loop=False.")


def play_turn(turn: Turn, index: int, messages: list[BaseMessage]) -> AIMessage:
    """Turn number `index` of a script as a message of its own, its arguments as they come back from JSON.

    Raises:
        ConfigurationError: A function returned something else than a message or a str, or arguments are not
            JSON.
    """
    said: object = turn if isinstance(turn, AIMessage | str) else turn(list(messages))
    if isinstance(said, str):
        return AIMessage(content=said)
    if isinstance(said, AIMessageChunk):
        said = message_chunk_to_message(said)
    if not isinstance(said, AIMessage):
        if inspect.iscoroutine(said):
            said.close()
        raise ConfigurationError(
            f"Turn {index} of the script returned {said!r}. A turn returns an AIMessage or a str, at once: it "
            "cannot be a coroutine function."
        )
    # A copy, because LangChain writes ids and metadata into what a model returns, and the script may loop.
    message = said.model_copy(deep=True)
    for made in message.tool_calls:
        made["args"] = _through_json(made["name"], made["args"])
    return message


def _glimpse(messages: list[BaseMessage]) -> str:
    if not messages:
        return "none"
    text = str(messages[-1].content)
    return f"{type(messages[-1]).__name__} {text[:200]!r}{' ...' if len(text) > 200 else ''}"


def _through_json(tool: str, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments after a trip through JSON, which is how they come back from a stream."""
    try:
        parsed: dict[str, Any] = json.loads(json.dumps(args, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The arguments of tool {tool!r} are {args!r}, which JSON cannot express ({error}). A model writes "
            "its arguments as JSON: use dicts, lists, strings, finite numbers, booleans and None."
        ) from error
    return parsed
