"""Demonstrations: ready-made workloads to run the nodes on."""

from __future__ import annotations

__all__: list[str] = []
