"""How futures appear in a conversation: placeholders, notifications and answers, in words a model understands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage, add_notification_metadata

from langgraph_flash.futures.future import Future, State
from langgraph_flash.nodes.ledger import SOURCE, Delivery, Placeholder

__all__ = ["Part", "answer", "describe", "error_message", "notification", "part_of", "placeholder"]

_LABEL_LENGTH = 80
_LISTED = 20
"""How many pending calls a notification names; its record holds all of them."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)

Blocks = list[str | dict[str, Any]]


def describe(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call in one short line: `search(query="rivers", limit=3)`."""
    inside = ", ".join([f"{name}={_ENCODER.encode(value)}" for name, value in arguments.items()])
    text = f"{tool}({inside})"
    return text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 2] + "…)"


def placeholder(record: Placeholder) -> ToolMessage:
    """What answers a call whose result is not there yet."""
    return ToolMessage(
        content=(
            f"{record.label} is running in the background as {record.future}. Its result will arrive in a later "
            f"message. Go on with other work; where you need its value, pass {record.future} (or a part of it, such "
            f"as {record.future}.items[0].id) as an argument of another call, or call await_future."
        ),
        name=record.tool,
        tool_call_id=record.call,
        artifact={SOURCE: record.model_dump(mode="json", exclude_defaults=True)},
    )


def error_message(tool: str, call_id: str | None, text: str) -> ToolMessage:
    """What answers a call that cannot be run."""
    return ToolMessage(content=f"Error: {text}", name=tool, tool_call_id=call_id or "", status="error")


class Part:
    """One future's outcome, ready to be put into a message."""

    __slots__ = ("artifact", "content", "failed", "future_id", "label")

    def __init__(
        self, future_id: str, label: str, content: str | Blocks, *, failed: bool = False, artifact: Any = None
    ) -> None:
        self.future_id = future_id
        self.label = label
        self.content = content
        self.failed = failed
        self.artifact = artifact

    def heading(self) -> str:
        """The line above the content."""
        return f"[{self.future_id}] {self.label} {'failed' if self.failed else 'returned'}:"


def part_of(call: Future, message: ToolMessage | None) -> Part:
    """The outcome of a settled call; `message` is the `ToolMessage` its tool ended with, if it got that far."""
    if call.state is State.CANCELLED:
        return Part(call.id, call.label, f"Cancelled: {call.reason}.", failed=True)
    failed = call.state is State.FAILED
    if message is None:
        return Part(call.id, call.label, call.reason or "no result", failed=failed)
    return Part(call.id, call.label, message.content, failed=failed, artifact=message.artifact)


def notification(parts: Sequence[Part], pending: Sequence[Placeholder], *, complete: bool) -> HumanMessage:
    """The message that delivers results at a turn boundary and restates what is still pending.

    Its id depends only on what it delivers, so that delivering again replaces it.

    Args:
        parts: What it delivers, in the order of the calls.
        pending: What is still pending.
        complete: Whether `pending` is everything, so that readers need not look further back.
    """
    blocks: Blocks = []
    text = "Results of background tool calls:"
    for part in parts:
        text += f"\n\n{part.heading()}\n"
        if isinstance(part.content, str):
            text += part.content
            continue
        blocks.append({"type": "text", "text": text})
        text = ""
        blocks += part.content
    text += "\n\n"
    if any(part.failed for part in parts):
        text += "Decide how to go on without what failed: repeat a call only if that makes sense. "
    text += _pending_line(pending)
    content: str | Blocks = [*blocks, {"type": "text", "text": text.lstrip("\n")}] if blocks else text
    record = Delivery(delivered=tuple(part.future_id for part in parts), pending=tuple(pending) if complete else None)
    digest = hashlib.blake2b("\0".join(record.delivered).encode(), digest_size=12).hexdigest()
    return add_notification_metadata(
        HumanMessage(content=content, id=f"flash-{digest}"), source=SOURCE, data=_with_artifacts(record, parts)
    )


def answer(
    tool: str, call_id: str | None, parts: Sequence[Part], waiting: Iterable[Future], again: Sequence[str]
) -> ToolMessage:
    """What `await_future` answers.

    Args:
        tool: The tool's name.
        call_id: The call it answers.
        parts: Results it hands over.
        waiting: What was asked for and is still pending.
        again: What was asked for and is handed over by another answer of the same step.
    """
    lines = [f"{future_id} is in another answer of this step." for future_id in again]
    if names := ", ".join(f"{call.id} {call.label}" for call in waiting):
        lines.append(f"Still pending: {names}. Do other work and ask again later.")
    content: str | Blocks
    if len(parts) == 1 and not lines:
        only = parts[0]
        content = f"{only.heading()}\n{only.content}" if only.failed else only.content
    else:
        blocks: Blocks = []
        for part in parts:
            blocks.append({"type": "text", "text": part.heading()})
            blocks += [{"type": "text", "text": part.content}] if isinstance(part.content, str) else part.content
        blocks += [{"type": "text", "text": line} for line in lines]
        plain = [block["text"] for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        content = "\n".join(plain) if len(plain) == len(blocks) else blocks
    record = Delivery(delivered=tuple(part.future_id for part in parts))
    return ToolMessage(
        content=content,
        name=tool,
        tool_call_id=call_id or "",
        status="error" if parts and all(part.failed for part in parts) else "success",
        artifact={SOURCE: _with_artifacts(record, parts)},
    )


def _pending_line(pending: Sequence[Placeholder]) -> str:
    if not pending:
        return "No background call is pending."
    calls = "; ".join(f"{record.future} {record.label}" for record in pending[:_LISTED])
    more = f"; and {len(pending) - _LISTED} more" if len(pending) > _LISTED else ""
    return f"Still pending (do not issue these calls again): {calls}{more}."


def _with_artifacts(record: Delivery, parts: Sequence[Part]) -> dict[str, Any]:
    data = record.model_dump(mode="json", exclude_none=True)
    if artifacts := {part.future_id: part.artifact for part in parts if part.artifact is not None}:
        data["artifacts"] = artifacts
    return data
