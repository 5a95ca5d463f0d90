"""What a conversation says about its futures: the placeholders it holds and what was delivered since.

The truth about futures is in the messages. A placeholder's `artifact` records its future, a notification's metadata
records which futures it delivers and which are still pending; both survive checkpoints and neither reaches a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage, get_notification_metadata
from pydantic import BaseModel, ConfigDict, ValidationError

from langgraph_flash.futures.uses import OnEnd

__all__ = ["SOURCE", "Delivery", "Ledger", "Placeholder", "read_ledger", "was_delivered"]

SOURCE = "langgraph_flash"
"""The key of our records in artifacts, and the source of our notifications."""


class Placeholder(BaseModel):
    """The record in a placeholder's artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    future: str
    tool: str
    label: str
    call: str
    """The tool call id that the placeholder answers."""
    on_end: OnEnd = "drain"


class Delivery(BaseModel):
    """The record in a notification's metadata, or in the artifact of an `await_future` answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delivered: tuple[str, ...]
    pending: tuple[Placeholder, ...] | None = None
    """Every future still pending at that point, so that nothing before it need be read again; `None` if not known."""


@dataclass(slots=True)
class Ledger:
    """The futures of a conversation, as far back as needed."""

    pending: dict[str, Placeholder] = field(default_factory=dict)
    """Not delivered yet, in the order of their calls."""
    delivered: set[str] = field(default_factory=set)
    """Delivered since the last message that restated what was pending."""


def read_ledger(messages: Sequence[BaseMessage]) -> Ledger:
    """Read a conversation backwards until a notification restates everything that was pending.

    Records that do not validate are ignored: whoever can write messages can write anything into them.
    """
    ledger = Ledger()
    found: list[Placeholder] = []
    for record in _records(reversed(messages)):
        if isinstance(record, Placeholder):
            found.append(record)
            continue
        ledger.delivered.update(record.delivered)
        if record.pending is not None:
            found.extend(reversed(record.pending))
            break
    for placeholder in reversed(found):
        if placeholder.future not in ledger.delivered:
            ledger.pending.setdefault(placeholder.future, placeholder)
    return ledger


def was_delivered(messages: Sequence[BaseMessage], future_id: str) -> bool:
    """Whether any message of the conversation delivered this future."""
    return any(
        isinstance(record, Delivery) and future_id in record.delivered for record in _records(reversed(messages))
    )


def _records(messages: Iterator[BaseMessage]) -> Iterator[Placeholder | Delivery]:
    for message in messages:
        data: Any = None
        if isinstance(message, ToolMessage):
            if isinstance(message.artifact, Mapping):
                data = message.artifact.get(SOURCE)
        elif isinstance(message, HumanMessage) and message.additional_kwargs:
            metadata = get_notification_metadata(message)
            if metadata is not None and metadata["source"] == SOURCE:
                data = metadata.get("data")
        if not isinstance(data, Mapping):
            continue
        data = {key: value for key, value in data.items() if key != "artifacts"}
        try:
            yield Delivery.model_validate(data) if "delivered" in data else Placeholder.model_validate(data)
        except ValidationError:
            continue
