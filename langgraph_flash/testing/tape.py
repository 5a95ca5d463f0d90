"""Remembers what a scripted model was asked and how far it has come, for several threads at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

__all__ = ["Tape"]


@dataclass
class Tape:
    """What changes while a model is used. One lock guards it: graphs call models from several threads."""

    turns: int = 0
    """Turns taken so far."""

    numbers: int = 0
    """Tool call numbers given so far."""

    messages: list[list[BaseMessage]] = field(default_factory=list)
    """The input of each call."""

    tools: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    """The tools bound in each call, by name."""

    options: list[dict[str, Any]] = field(default_factory=list)
    """The other arguments of each call."""

    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the lock, which can be neither copied nor pickled."""
        return {key: value for key, value in self.__dict__.items() if key != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=Lock())

    def record(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> None:
        """Remember one call."""
        tools = _by_name(kwargs.get("tools") or ())
        options = {key: value for key, value in kwargs.items() if key != "tools"}
        if stop is not None:
            options["stop"] = stop
        with self.lock:
            # Copies, because a graph writes ids into the messages it keeps.
            self.messages.append([message.model_copy() for message in messages])
            self.tools.append(tools)
            self.options.append(options)

    def next_turn(self) -> int:
        """The index of the turn nobody has taken yet."""
        with self.lock:
            self.turns += 1
            return self.turns - 1

    def call_numbers(self) -> Iterator[int]:
        """Numbers for tool calls, each given once."""
        while True:
            with self.lock:
                self.numbers += 1
                number = self.numbers
            yield number


def _by_name(tools: Sequence[Any]) -> dict[str, dict[str, Any]]:
    definitions = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
    return {tool.get("function", tool).get("name", tool.get("type")): tool for tool in definitions}
