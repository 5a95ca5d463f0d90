"""Reading results back out of a conversation: what a model can know about each call it made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage, get_notification_metadata

from langgraph_flash.nodes.ledger import SOURCE, Placeholder

__all__ = ["from_user", "placeholders_in", "results_in"]


def from_user(message: BaseMessage) -> bool:
    """Whether a person said it: a notification is a human message too, but nobody wrote it."""
    return isinstance(message, HumanMessage) and get_notification_metadata(message) is None


def placeholders_in(messages: Sequence[BaseMessage]) -> dict[str, Placeholder]:
    """The placeholders of a conversation, by the id of the call they answer."""
    found = {}
    for message in messages:
        if isinstance(message, ToolMessage) and isinstance(message.artifact, Mapping):
            record = message.artifact.get(SOURCE)
            if isinstance(record, Mapping) and "future" in record:
                found[message.tool_call_id] = Placeholder.model_validate(dict(record))
    return found


def results_in(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """The text of every result in a conversation, by tool call id, answered in place or delivered later."""
    placeholders = placeholders_in(messages)
    call_of = {record.future: call_id for call_id, record in placeholders.items()}
    found: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in placeholders:
                found[message.tool_call_id] = str(message.text)
        elif isinstance(message, HumanMessage):
            found.update((call_of[future], text) for future, text in _delivered(message))
    return found


def _delivered(message: HumanMessage) -> Iterator[tuple[str, str]]:
    """The futures a notification delivers, with their texts."""
    metadata = get_notification_metadata(message)
    if metadata is None or metadata["source"] != SOURCE:
        return
    data: Mapping[str, Any] = metadata["data"] or {}
    # Ids cannot be guessed, so a result cannot contain the heading of the next one; the last paragraph says what
    # is still pending.
    rest = str(message.text)
    rest = rest[: rest.rindex("\n\n")]
    for future in reversed(data["delivered"]):
        rest, _, part = rest.rpartition(f"\n\n[{future}] ")
        yield future, part.partition(":\n")[2]
