"""Counts the made-up tokens of scripted messages, and cuts a message into the chunks that stream them.

A token is a word of text with the space around it, a tool's name, or four characters of a call's arguments
written as JSON. The count is nothing like a real tokenizer's; it is small, the same everywhere, and adds up:
the tokens of a message are the tokens of its chunks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk

__all__ = ["count_tokens", "stream_chunks"]

_WORD = re.compile(r"\S+\s*|\s+")
_ARGUMENT_CHARACTERS = 4


def count_tokens(what: str | BaseMessage) -> int:
    """Count the tokens of a text or a message, as `usage_metadata` of a scripted model reports them.

    Args:
        what: A text, or a message, whose tool calls count as well as its content.

    Returns:
        The number of tokens: one per word, tool name and four characters of argument JSON. A content block
        that is not text, such as an image, counts as one.
    """
    if isinstance(what, str):
        return len(_WORD.findall(what))
    tokens = _content_tokens(what.content)
    if isinstance(what, AIMessage):
        tokens += sum(1 + len(_pieces(arguments)) for _, _, arguments in _calls(what))
    return tokens


def stream_chunks(message: AIMessage) -> Iterator[tuple[AIMessageChunk, int]]:
    """Cut a message into chunks whose sum is the message, each with the tokens it took.

    Text comes word by word, content that is a list of blocks in one chunk. Of a tool call, the name and id
    come first and the argument JSON follows in pieces. The last chunk has no content: it carries the usage
    and the response metadata.

    Args:
        message: A complete message with its usage. `name` is not streamed: chunks lose it when they are
        added.

    Yields:
        The chunk, and how many tokens were decoded to get it.
    """
    # Written out because blocks that carry an `index` merge with each other when they arrive apart.
    nothing: str | list[Any] = "" if isinstance(message.content, str) else []
    # LangChain reads a provider's raw calls out of additional_kwargs, except beside tool_call_chunks.
    calls = list(_calls(message))
    extra = dict(message.additional_kwargs)

    def chunk(content: str | list[Any] = nothing, **fields: Any) -> AIMessageChunk:
        nonlocal extra
        if extra and (not calls or fields.get("tool_call_chunks")):
            fields["additional_kwargs"], extra = extra, {}
        return AIMessageChunk(content=content, id=message.id, **fields)

    if isinstance(message.content, str):
        for word in _WORD.findall(message.content):
            yield chunk(word), 1
    elif message.content:
        yield chunk(message.content), _content_tokens(message.content)
    # Numbered after the blocks of the content: with output_version="v1" both are merged by one index.
    first = len(message.content) if isinstance(message.content, list) else bool(message.content)
    for index, (name, call_id, arguments) in enumerate(calls, first):
        yield chunk(tool_call_chunks=[tool_call_chunk(name=name, args="", id=call_id, index=index)]), 1
        for piece in _pieces(arguments):
            yield chunk(tool_call_chunks=[tool_call_chunk(args=piece, index=index)]), 1
    yield (
        chunk(
            usage_metadata=message.usage_metadata,
            response_metadata=message.response_metadata,
            chunk_position="last",
        ),
        0,
    )


def _content_tokens(content: str | list[str | dict[Any, Any]]) -> int:
    if isinstance(content, str):
        return count_tokens(content)
    return sum(_part_tokens(part) for part in content)


def _part_tokens(part: str | Mapping[Any, Any]) -> int:
    if isinstance(part, str):
        return count_tokens(part)
    text = part.get("text")
    return count_tokens(text) if isinstance(text, str) else 1


def _calls(message: AIMessage) -> Iterator[tuple[str | None, str | None, str]]:
    """Name, id and argument text of each call, the invalid ones last, as LangChain orders them."""
    for made in message.tool_calls:
        yield made["name"], made["id"], json.dumps(made["args"])
    for invalid in message.invalid_tool_calls:
        yield invalid["name"], invalid["id"], invalid["args"] or ""


def _pieces(arguments: str) -> list[str]:
    size = _ARGUMENT_CHARACTERS
    return [arguments[start : start + size] for start in range(0, len(arguments), size)]
