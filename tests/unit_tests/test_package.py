"""The shape of the package: what it exports, which room may import which, and what an import costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import langgraph_flash

PACKAGE = Path(langgraph_flash.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# room -> the rooms it may import, besides itself. A room is a folder or a file directly in the package; a new one
# is entered here together with the decision where it stands.
DIRECTIONS: dict[str, set[str]] = {
    "errors": set(),
    "records": {"errors"},
    "spans": {"errors", "records"},
    "futures": {"errors", "records", "spans"},
    "nodes": {"errors", "records", "spans", "futures"},
    "report": {"errors", "records"},
    "models": {"errors"},
    "testing": {"errors"},
}
DIRECTIONS["__init__"] = set(DIRECTIONS) - {"testing"}
DIRECTIONS["demo"] = set(DIRECTIONS)
DIRECTIONS["cli"] = set(DIRECTIONS) - {"testing"}
DIRECTIONS["__main__"] = {"cli"}

# The only file that may touch what LangGraph does not promise to keep.
PRIVATE_ALLOWED = "nodes/host.py"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield every module, and every name of a module, that a file imports anywhere, type checking included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def imported(path: Path) -> set[str]:
    return set(imports(ast.parse(path.read_text(encoding="utf-8"))))


def rooms_of(modules: set[str]) -> set[str]:
    """Return the rooms behind the imported names; a name exported by the package itself counts as `__init__`."""
    found = set()
    for name in modules:
        head, _, rest = name.partition(".")
        if head == PACKAGE.name and rest:
            first = rest.split(".")[0]
            is_room = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file()
            found.add(first if is_room else "__init__")
    return found


def export_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by name: the order of imported names."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def is_private(name: str) -> bool:
    return name.startswith(("langgraph._internal", "langgraph.pregel._"))


by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


@by_file
def test_exports_are_sorted_and_there(path: Path):
    module = importlib.import_module(module_name(path))
    exported = getattr(module, "__all__", None)
    assert exported is not None, "give the module an `__all__`"
    assert list(exported) == sorted(set(exported), key=export_order)
    for name in exported:
        assert hasattr(module, name), name


@by_file
def test_imports_go_one_way(path: Path):
    here = room(path)
    assert here in DIRECTIONS, f"enter the room {here!r} in DIRECTIONS"
    assert rooms_of(imported(path)) - DIRECTIONS[here] - {here} == set()


@by_file
def test_only_one_file_touches_private_parts(path: Path):
    if path.relative_to(PACKAGE).as_posix() != PRIVATE_ALLOWED:
        assert [name for name in sorted(imported(path)) if is_private(name)] == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "futures").rglob("*.py")), ids=lambda path: path.name)
def test_futures_know_no_framework(path: Path):
    assert [name for name in sorted(imported(path)) if name.startswith(("langgraph.", "langchain"))] == []
    assert "langgraph" not in imported(path)


def test_what_the_scan_sees():
    tree = ast.parse(
        "import langgraph.pregel._loop\n"
        "from langgraph._internal import _config\n"
        "from langgraph.pregel import _algo, Pregel\n"
        "def f():\n"
        "    from langgraph_flash import errors, FlashNode\n"
        "    import langgraph_flash.futures.uses\n"
    )
    names = set(imports(tree))
    assert {name for name in names if is_private(name)} == {
        "langgraph.pregel._loop",
        "langgraph._internal",
        "langgraph._internal._config",
        "langgraph.pregel._algo",
    }
    assert rooms_of(names) == {"errors", "futures", "__init__"}


@pytest.mark.parametrize("heavy", ["openai", "rich", "xllamacpp"])
def test_importing_the_package_is_light(heavy: str):
    code = f"import sys, langgraph_flash; print({heavy!r} in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert (result.stdout, result.stderr) == ("False\n", "")
