"""The command line: every subcommand is documented, errors become messages, and nothing heavy is loaded early."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from langgraph_flash import cli
from langgraph_flash.errors import LocalServerError, MissingDependencyError

ROOT = Path(__file__).resolve().parents[2]
NAMES = [command.name for command in cli.COMMANDS]


def test_the_subcommands_are_sorted():
    assert sorted(NAMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_subcommand_is_in_the_readme(name: str):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"langgraph-flash {re.escape(name)}(?![\w-])", readme), f"document `langgraph-flash {name}`"


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    output = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert command.name in output


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["serve-model", "--port", "many"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "usage: langgraph-flash" in capsys.readouterr().err


def test_serve_model_passes_its_options_on(monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[object, dict[str, object]]] = []
    monkeypatch.setattr("langgraph_flash.models.local.serve", lambda model, **options: calls.append((model, options)))
    assert cli.main(["serve-model"]) == 0
    assert (
        cli.main(["serve-model", "--model=m.gguf", "--host=0.0.0.0", "--port=0", "--parallel=2", "--context=512"]) == 0
    )
    assert cli.main(["serve-model", "--threads=3", "--verbose"]) == 0
    defaults: dict[str, object] = {
        "host": "127.0.0.1",
        "port": 8080,
        "parallel": 4,
        "context": 2048,
        "threads": None,
        "verbose": False,
    }
    assert calls == [
        (None, defaults),
        ("m.gguf", defaults | {"host": "0.0.0.0", "port": 0, "parallel": 2, "context": 512}),
        (None, defaults | {"threads": 3, "verbose": True}),
    ]


@pytest.mark.parametrize(
    "error",
    [
        LocalServerError("Port 8080 on 127.0.0.1 is already in use."),
        MissingDependencyError("The local model server", "xllamacpp", "pip install 'langgraph-flash[local]'"),
    ],
)
def test_an_expected_error_is_a_message_and_exit_code_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("langgraph_flash.models.local.serve", fail)
    assert cli.main(["serve-model"]) == 2
    assert capsys.readouterr().err == f"langgraph-flash: {error}\n"


def test_an_unexpected_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("langgraph_flash.models.local.serve", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["serve-model"])


def test_the_demo_is_only_forwarded_to(monkeypatch: pytest.MonkeyPatch):
    demo = ModuleType("langgraph_flash.demo.command")
    seen: list[argparse.Namespace] = []

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--programs", type=int)

    def run(args: argparse.Namespace) -> int:
        seen.append(args)
        return 7

    monkeypatch.setattr(demo, "add_arguments", add_arguments, raising=False)
    monkeypatch.setattr(demo, "run", run, raising=False)
    monkeypatch.setitem(sys.modules, "langgraph_flash.demo.command", demo)
    assert cli.main(["demo", "--programs", "3"]) == 7
    assert seen[0].programs == 3


def test_the_overview_loads_no_room():
    code = (
        "import sys\n"
        "from langgraph_flash import cli\n"
        "before = set(sys.modules)\n"
        "cli.build_parser(['--help']).format_help()\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('langgraph_flash')))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout == "[]\n"


def test_the_package_runs_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "langgraph_flash", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "serve-model" in result.stdout
    assert result.stderr == ""
