"""How much each section measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MODES", "QUICK", "Mode", "Sizes"]


Mode = Literal["sync", "async"]
MODES: tuple[Mode, ...] = ("async", "sync")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    graphs: int = 200
    graph_repeats: int = 2
    """Runs of every call graph; the fastest counts, since noise only ever adds time."""
    calls: tuple[int, int] = (5, 40)
    durations: tuple[float, float] = (0.005, 0.050)
    per_message: tuple[int, ...] = (1, 4, 16)
    turns: int = 4
    overhead_repeats: int = 150
    few: int = 100
    many: int = 10_000
    scope_batch: int = 50
    pending_samples: int = 40
    memory_futures: int = 10_000
    seed: int = 1


QUICK = Sizes(
    graphs=2,
    graph_repeats=1,
    calls=(3, 6),
    durations=(0.001, 0.003),
    per_message=(1, 2),
    turns=1,
    overhead_repeats=2,
    few=5,
    many=20,
    scope_batch=5,
    pending_samples=3,
    memory_futures=50,
)
