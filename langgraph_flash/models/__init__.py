"""How a model is reached: the embedded OpenAI-compatible server in `local`."""

from __future__ import annotations

__all__: list[str] = []
