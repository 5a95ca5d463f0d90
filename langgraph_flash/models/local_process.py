"""The process behind `LocalServer`: run by its path, so that it starts without importing the rest of the package.

Usage: `python local_process.py SETTINGS`, a JSON object. Once it listens it writes its port as one line to standard
output; it ends when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any
from urllib.parse import urlsplit

__all__ = ["run"]


def run(settings: dict[str, Any]) -> None:
    """Serve one model, report the port, and end the process when the parent's pipe closes."""
    # Ctrl-C in a terminal reaches the whole process group; the parent decides when the server ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Only the port may reach the parent's pipe, which nobody reads afterwards; anything else goes to the log.
    report = os.dup(1)
    os.dup2(2, 1)
    import xllamacpp  # noqa: PLC0415 - after the redirection, and optional

    params = xllamacpp.CommonParams()
    params.model.path = settings["model_path"]
    params.model_alias = {settings["alias"]}
    params.hostnames = [settings["host"]]
    params.port = settings["port"]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["parallel"] * settings["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.endpoint_metrics = params.endpoint_slots = True
    params.ui = False
    # A second cache of past prompts may grow to 8 GB by default; the slots keep their own prefixes anyway.
    params.cache_ram_mib = 0
    params.verbosity = 3 if settings["verbose"] else 1
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    os.write(report, f"{urlsplit(server.listening_address).port}\n".encode())
    os.close(report)
    os.read(0, 1)
    # A regular exit would destroy the server, which waits for requests in progress.
    os._exit(0)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
