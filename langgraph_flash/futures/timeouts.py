"""How long a tool may run: a total limit, and a limit on silence that progress extends."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

from langgraph_flash.errors import ConfigurationError

__all__ = ["Timeout", "heartbeat"]

PULSE: ContextVar[Callable[[], None] | None] = ContextVar("langgraph_flash_pulse", default=None)
"""Inside a running call: what a sign of life touches."""


def heartbeat() -> None:
    """Tell the runtime that the tool calling this is alive, which restarts its idle limit.

    Writing to the stream (`ToolRuntime.stream_writer`, `ToolRuntime.emit_output_delta`) does the same. Outside a
    running call, and for a call without an idle limit, it does nothing.
    """
    if (touch := PULSE.get()) is not None:
        touch()


@dataclass(frozen=True, slots=True, repr=False)
class Timeout:
    """Limits for one call, in seconds from the moment its tool starts; waiting for its turn does not count.

    Examples:
        ```python
        from langgraph_flash import Timeout

        Timeout(30)                   # at most 30 s in all
        Timeout(idle=10)              # at most 10 s without a sign of life
        Timeout(600, idle=30)         # both
        Timeout()                     # no limit
        ```
    """

    total: float | None = None
    """Most seconds from start to end; `None` for no limit."""

    idle: float | None = None
    """Most seconds without a heartbeat or stream output; `None` for no limit."""

    def __post_init__(self) -> None:
        for name in ("total", "idle"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value <= 0:
                raise ConfigurationError(
                    f"Timeout {name}={value!r} is not a positive number of seconds. Use None for no limit."
                )

    @classmethod
    def coerce(cls, value: Timeout | float | timedelta | None) -> Timeout:
        """A `Timeout` from itself, a number of seconds, a `timedelta`, or `None` for no limit.

        Raises:
            ConfigurationError: The value is none of these, or not positive.
        """
        if isinstance(value, Timeout):
            return value
        if isinstance(value, timedelta):
            return cls(value.total_seconds())
        return cls(value)

    def __repr__(self) -> str:
        parts = [] if self.total is None else [f"{self.total:g}"]
        if self.idle is not None:
            parts.append(f"idle={self.idle:g}")
        return f"Timeout({', '.join(parts)})"
