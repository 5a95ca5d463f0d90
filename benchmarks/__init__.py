"""Measurements of the package, each run with `python -m benchmarks.NAME`."""
