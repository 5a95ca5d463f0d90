"""The command `langgraph-flash`: one registered entry for each subcommand, which imports its room when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from langgraph_flash.errors import FlashError

__all__ = ["COMMANDS", "Command", "build_parser", "main"]


@dataclass(frozen=True)
class Command:
    """One subcommand."""

    name: str
    """What is typed after `langgraph-flash`."""

    summary: str
    """One line for the overview."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Declares the options; called only when this subcommand was asked for."""

    run: Callable[[argparse.Namespace], int]
    """Does the work and returns the exit code."""


def _in_module(name: str, summary: str, module: str) -> Command:
    """A subcommand whose `add_arguments` and `run` live in a module that is imported when it is needed."""
    return Command(
        name,
        summary,
        lambda parser: importlib.import_module(module).add_arguments(parser),
        lambda args: int(importlib.import_module(module).run(args)),
    )


def _serve_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="PATH", help="GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port, 0 for any free one (default: %(default)s)")
    parser.add_argument(
        "--parallel", type=int, default=4, metavar="N", help="requests decoded at the same time (default: %(default)s)"
    )
    parser.add_argument(
        "--context", type=int, default=2048, metavar="N", help="tokens of context per request (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="compute threads (default: all cores but one)")
    parser.add_argument("--verbose", action="store_true", help="show the server's own log")


def _serve_model(args: argparse.Namespace) -> int:
    from langgraph_flash.models.local import serve  # noqa: PLC0415 - other subcommands do without it

    serve(
        args.model,
        host=args.host,
        port=args.port,
        parallel=args.parallel,
        context=args.context,
        threads=args.threads,
        verbose=args.verbose,
    )
    return 0


COMMANDS: tuple[Command, ...] = (
    _in_module("demo", "run the demonstration against a real model", "langgraph_flash.demo.command"),
    Command(
        "serve-model",
        "serve a small real model behind an OpenAI-compatible address",
        _serve_model_arguments,
        _serve_model,
    ),
)
"""Every subcommand, sorted by name."""


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser for these arguments: every subcommand is listed, only the one asked for is loaded."""
    parser = argparse.ArgumentParser(
        prog="langgraph-flash", description="Make an existing LangGraph graph faster, cheaper and better."
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        subparser.set_defaults(run=command.run)
        if command.name in arguments:
            command.add_arguments(subparser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code; 2 stands for an error the caller can act on."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        args = build_parser(arguments).parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = args.run
        return run(args)
    except FlashError as error:
        print(f"langgraph-flash: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
