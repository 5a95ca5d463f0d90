"""The records every room shares: frozen values, JSON in and out, no behaviour.

Units: seconds, US dollars, tokens. A field that was not measured is `None`, never zero.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Record", "Span"]


class Record(BaseModel):
    """A frozen value that validates when it is read and refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Span(Record):
    """One measured execution of a model call, a tool call or a stage.

    `start` and `end` are seconds on one clock of the run; only differences have a meaning.
    """

    kind: Literal["model", "tool", "stage"]
    """What ran: a model decoding a message, a tool executing a call, or a graph node."""

    name: str
    """Model, tool or node name."""

    start: float
    """Seconds on the run's clock when the work began."""

    end: float
    """Seconds on the run's clock when the work ended."""

    outcome: Literal["ok", "failed", "cancelled"] = "ok"
    """How it ended."""

    call_id: str | None = None
    """The tool call id, for tools."""

    turn: int | None = None
    """Index of the model turn the span belongs to, counted from zero."""

    input_tokens: int | None = None
    """Prompt tokens, where the endpoint reports them."""

    output_tokens: int | None = None
    """Generated tokens, where the endpoint reports them."""

    detail: str | None = None
    """A short human-readable summary: the arguments of a call, the start of an answer."""

    @property
    def seconds(self) -> float:
        """Duration, in seconds."""
        return self.end - self.start
