"""Says whether a list of messages is a history that chat providers accept, and if not, where it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_flash.errors import FlashError

__all__ = ["HistoryRule", "InvalidHistory", "check_history"]

HistoryRule = Literal[
    "empty history",
    "unknown message",
    "invalid content",
    "late system message",
    "no user message first",
    "missing call id",
    "repeated call id",
    "unanswered call",
    "repeated answer",
    "answer without call",
]
"""The rules `check_history` knows, by the short name an `InvalidHistory` carries."""


class InvalidHistory(FlashError, ValueError):
    """A provider would refuse this list of messages."""

    index: int
    """Position of the message that breaks the rule, counted from zero."""

    rule: HistoryRule
    """The short name of the rule, to assert on."""

    def __init__(self, index: int, rule: HistoryRule, problem: str, remedy: str) -> None:
        self.index = index
        self.rule = rule
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"Message {index} ({rule}): {problem}. {remedy}")

    def __reduce__(self) -> tuple[type[InvalidHistory], tuple[int, HistoryRule, str, str]]:
        """Pickle by the facts: an exception is otherwise rebuilt from its sentence alone."""
        return type(self), (self.index, self.rule, self.problem, self.remedy)


def check_history(messages: Sequence[BaseMessage]) -> None:
    """Check `messages` as the input of a chat model, by the strictest reading of the large providers.

    - There is at least one message, and each is a system, human, AI or tool message (or a subclass).
    - Content is text or a list of texts and blocks; it is never `None`.
    - System messages come first, and the first message after them is the user's.
    - The tool calls of one AI message have non-empty ids, each of them different. Invalid tool calls count:
      they are sent back like the valid ones.
    - An AI message with calls is followed at once by one tool message per call, in any order. There is no
      other tool message anywhere.

    A history that ends in an unanswered call is invalid: it cannot be sent to a model.

    Args:
        messages: The messages in the order the model would receive them.

    Raises:
        InvalidHistory: With the index of the first offending message, the rule it breaks and a remedy.
    """
    if not messages:
        raise InvalidHistory(0, "empty history", "there are no messages", "Send at least one user message.")
    waiting: dict[str, int] = {}
    answered: set[str] = set()
    conversation_started = False
    for index, message in enumerate(messages):
        _check_form(index, message)
        if isinstance(message, ToolMessage) and conversation_started:
            _check_answer(index, message.tool_call_id, waiting, answered)
            continue
        if waiting:
            raise _unanswered(index, waiting, f"a {type(message).__name__} comes before the answer")
        if isinstance(message, SystemMessage):
            if conversation_started:
                raise InvalidHistory(
                    index,
                    "late system message",
                    "a SystemMessage follows the conversation it should introduce",
                    "Put every system message at the start, or send this one as a HumanMessage.",
                )
            continue
        if not conversation_started and not isinstance(message, HumanMessage):
            raise InvalidHistory(
                index,
                "no user message first",
                f"the conversation starts with a {type(message).__name__}",
                "Start with a HumanMessage; when trimming a history, cut in front of one.",
            )
        conversation_started = True
        answered = set()
        if isinstance(message, AIMessage):
            waiting = _calls_of(index, message)
    if waiting:
        raise _unanswered(len(messages) - 1, waiting, "the history ends before the answer")


def _check_form(index: int, message: object) -> None:
    if not isinstance(message, SystemMessage | HumanMessage | AIMessage | ToolMessage):
        raise InvalidHistory(
            index,
            "unknown message",
            f"a {type(message).__name__} is not something a provider knows",
            "Send system, human, AI and tool messages only; convert_to_messages() makes them from other forms.",
        )
    # Validation forbids most of this, but `model_construct`, assignment and unpickling go around it.
    content: object = message.content
    if not isinstance(content, str) and not (
        isinstance(content, list) and all(isinstance(part, str | dict) for part in content)
    ):
        raise InvalidHistory(
            index,
            "invalid content",
            f"the content of this {type(message).__name__} is {content!r}",
            "Content is a str or a list of str and dict blocks; use '' for nothing.",
        )


def _calls_of(index: int, message: AIMessage) -> dict[str, int]:
    """The ids a message's calls wait under, each with the index of that message."""
    waiting: dict[str, int] = {}
    for made in [*message.tool_calls, *message.invalid_tool_calls]:
        call_id = made["id"]
        if not call_id:
            raise InvalidHistory(
                index,
                "missing call id",
                f"the call of tool {made['name']!r} has the id {call_id!r}",
                "Give every tool call a non-empty id.",
            )
        if call_id in waiting:
            raise InvalidHistory(
                index,
                "repeated call id",
                f"two calls of this message have the id {call_id!r}",
                "Give every tool call of a message its own id.",
            )
        waiting[call_id] = index
    return waiting


def _check_answer(index: int, call_id: str, waiting: dict[str, int], answered: set[str]) -> None:
    """Take one answer off the waiting calls."""
    if call_id in waiting:
        del waiting[call_id]
        answered.add(call_id)
        return
    if call_id in answered:
        raise InvalidHistory(
            index,
            "repeated answer",
            f"the call {call_id!r} was already answered",
            "Keep one ToolMessage per call; give a correction the id of the message it replaces.",
        )
    raise InvalidHistory(
        index,
        "answer without call",
        f"this ToolMessage answers {call_id!r}, which the AIMessage in front of it did not call",
        "Drop it, or keep the AIMessage that made the call directly in front of its answers.",
    )


def _unanswered(index: int, waiting: dict[str, int], problem: str) -> InvalidHistory:
    ids = ", ".join(repr(call_id) for call_id in waiting)
    asked = next(iter(waiting.values()))
    return InvalidHistory(
        index,
        "unanswered call",
        f"{problem} to {ids}, called in message {asked}",
        "Add one ToolMessage per call directly after the AIMessage, also for calls that failed or still run.",
    )
