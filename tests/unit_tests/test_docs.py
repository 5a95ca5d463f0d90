"""The documents tell the truth: their Python runs, and the commands they name exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from langgraph_flash.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
NAMED = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS = [path for path in NAMED if path.exists()] + sorted((ROOT / "examples").glob("**/README.md"))

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.M | re.S)
# What may stand before a command's name: a separator, a prompt, variables, a folder or a runner.
START = r"(?:^|[;&|])[ \t]*(?:\$ )?(?:\w+=\S* )*(?:uv run |\S*/)?"
TARGET = re.compile(r"^([a-z][\w-]*):(?!=)", re.M)


class Block(NamedTuple):
    line: int
    """Lines of the document before the block's first line."""

    text: str


def blocks(path: Path, language: str) -> Iterator[Block]:
    document = path.read_text(encoding="utf-8")
    for fence in FENCE.finditer(document):
        if fence["language"] == language:
            indent = re.compile(rf"^{fence['indent']}", re.M)
            yield Block(document.count("\n", 0, fence.start("body")), indent.sub("", fence["body"]))


def of_language(language: str) -> pytest.MarkDecorator:
    with_blocks = [path for path in DOCUMENTS if any(blocks(path, language))]
    return pytest.mark.parametrize("path", with_blocks, ids=lambda path: str(path.relative_to(ROOT)))


@of_language("python")
def test_python_blocks_run(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    # A real module: type hints of the classes in a block are resolved through it.
    module = ModuleType("document")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.chdir(tmp_path)
    for block in blocks(path, "python"):
        # Padded, so that a traceback shows the document's own line numbers.
        code = compile("\n" * block.line + block.text, str(path), "exec", dont_inherit=True)
        exec(code, module.__dict__)


def missing_commands(text: str) -> list[str]:
    """Return what a shell block names and the project does not have."""
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    subcommands = {command.name for command in COMMANDS}
    text = re.sub(r"(^|\s)#.*", "", text)
    missing = []
    for words in re.findall(START + r"make ([^\n;&|]+)", text, re.M):
        # Options and variables are not targets.
        names = [word for word in words.split() if not word.startswith("-") and "=" not in word]
        missing += [f"make {name}" for name in names if name not in targets]
    for name in re.findall(START + r"langgraph-flash +([a-z][\w-]*)", text, re.M):
        if name not in subcommands:
            missing.append(f"langgraph-flash {name}")
    for name in re.findall(r"python3? -m (benchmarks\.[\w.]+)", text):
        if find_spec("benchmarks") is None or find_spec(name) is None:
            missing.append(f"python -m {name}")
    return missing


@of_language("bash")
def test_commands_exist(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    missing = [
        f"{path.name}:{block.line + 1}: {name}"
        for block in blocks(path, "bash")
        for name in missing_commands(block.text)
    ]
    assert missing == []


def test_a_wrong_command_would_be_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    text = (
        "git clone URL && make sett\n"
        "make test TEST=tests/unit_tests  # make nothing\n"
        "pip install langgraph-flash langgraph\n"
        "PORT=1 .venv/bin/langgraph-flash serve --port $PORT\n"
        "python -m benchmarks.nothing\n"
    )
    assert missing_commands(text) == ["make sett", "langgraph-flash serve", "python -m benchmarks.nothing"]
