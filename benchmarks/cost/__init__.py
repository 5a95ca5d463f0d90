"""The sections of `benchmarks.futures`: what `FlashNode` and its scheduler cost."""

from __future__ import annotations

__all__: list[str] = []
