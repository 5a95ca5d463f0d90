"""Lets `python -m langgraph_flash` do what the command `langgraph-flash` does."""

from __future__ import annotations

import sys

from langgraph_flash.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
