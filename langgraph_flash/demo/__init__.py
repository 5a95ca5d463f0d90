"""Demonstrations: ready-made workloads to run the nodes on."""
