"""The tools a model uses on futures themselves: `await_future` and, where offered, `cancel_future`."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from langgraph_flash.errors import FlashError

__all__ = ["AWAIT", "CANCEL", "AwaitRequest", "CancelRequest", "control_tools", "parse_request"]

AWAIT = "await_future"
CANCEL = "cancel_future"


class _FutureIds(BaseModel):
    model_config = ConfigDict(extra="forbid")

    futures: list[str] = Field(min_length=1, description="Ids of pending background calls, such as fut_0123456789.")

    @field_validator("futures", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("futures")
    @classmethod
    def _once_each(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))


class AwaitRequest(_FutureIds):
    """Arguments of `await_future`."""

    mode: Literal["all", "any"] = Field(
        "all", description="Wait for all of them, or until any one of them has a result."
    )
    timeout: float | None = Field(
        None, ge=0, description="Most seconds to wait; what is not ready then stays pending. No limit by default."
    )


class CancelRequest(_FutureIds):
    """Arguments of `cancel_future`."""


def _only_in_a_node(**_: Any) -> str:
    raise FlashError("await_future and cancel_future are answered by FlashNode itself; run them through the node.")


def control_tools(*, cancel: bool) -> list[BaseTool]:
    """The control tools, as a model is offered them."""
    tools: list[BaseTool] = [
        StructuredTool.from_function(
            func=_only_in_a_node,
            name=AWAIT,
            description=(
                "Wait for background calls and get their results now. Results also arrive by themselves in a later "
                "message, so use this only when you cannot go on without them. Do not poll."
            ),
            args_schema=AwaitRequest,
        )
    ]
    if cancel:
        tools.append(
            StructuredTool.from_function(
                func=_only_in_a_node,
                name=CANCEL,
                description="Stop background calls whose results are no longer needed, and calls that depend on them.",
                args_schema=CancelRequest,
            )
        )
    return tools


def parse_request(name: str, arguments: dict[str, Any]) -> AwaitRequest | CancelRequest | str:
    """The request in a control call, or the sentence that says what is wrong with it."""
    model = AwaitRequest if name == AWAIT else CancelRequest
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return f"{name} got {arguments!r}: {problems}. Pass futures as a list of ids of pending background calls."
