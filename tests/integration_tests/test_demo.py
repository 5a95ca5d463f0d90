"""The demonstration as a user runs it: tables on the terminal, one self-contained page, honest exit codes."""

from __future__ import annotations

import argparse
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from langgraph_flash.cli import main
from langgraph_flash.demo import command, live, showcase
from langgraph_flash.demo.command import add_arguments, run
from langgraph_flash.errors import ConfigurationError, MissingDependencyError

PRESENT = find_spec("bfcl_eval") is not None and find_spec("mpmath") is not None


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(showcase, "DECODE_SECONDS", 0.02)
    monkeypatch.setattr(showcase, "CALL_SECONDS", (0.02, 0.1))
    monkeypatch.setenv("COLUMNS", "80")


def arguments(*options):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(options)


def words(text):
    return " ".join(text.split())


@pytest.fixture
def example():
    if not PRESENT:
        pytest.skip("needs bfcl-eval and mpmath")


def test_one_program_gives_tables_and_a_page(tmp_path, capsys, example):
    report = tmp_path / "deep" / "demo.html"
    assert run(arguments("--programs", "1", "--no-live", "--report", str(report))) == 0
    out = capsys.readouterr().out
    for expected in ("ToolNode, one call a message, and FlashNode", "Control: ToolNode given all calls", "speed-up"):
        assert expected in words(out)
    assert str(report) in out
    assert max(map(len, out.splitlines())) <= max(80, len(f"Report: {report}"))
    html = report.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert html.count('class="flash-timeline"') == 1
    assert "What the numbers mean" in html
    assert "Every result and every final state was the same." in html
    # Nothing in it points anywhere else.
    assert not re.search(r"(?:src|href)\s*=|@import|url\((?!#)", html)
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) <= {"http://www.w3.org/2000/svg"}


def test_a_different_end_is_exit_code_1(tmp_path, capsys, example, monkeypatch):
    monkeypatch.setattr(showcase, "difference", lambda first, second: "state.X is 1 in the first and 2 in the second")
    report = tmp_path / "demo.html"
    assert run(arguments("--programs", "1", "--no-live", "--report", str(report))) == 1
    assert "NO" in capsys.readouterr().out
    assert "NOT every run ended in the same state" in report.read_text(encoding="utf-8")


def test_programs_are_chosen_by_the_rule_and_the_seed(example):
    from langgraph_flash.demo.bfcl import freed_calls, load_programs

    programs = load_programs(["base"])
    chosen = showcase.choose(programs, 8, seed=1)
    assert len(chosen) == len({program.id for program in chosen}) == 8
    assert chosen == showcase.choose(programs, 8, seed=1) != showcase.choose(programs, 8, seed=2)
    for program in chosen:
        assert sum(len(turn.calls) for turn in program.turns) in range(4, 7)
        assert any(freed_calls(turn, "attribute") for turn in program.turns)
    assert len({name for program in chosen[:4] for name in program.classes} & set(showcase._DOMAINS)) == 4


@pytest.mark.local_model
def test_the_embedded_model_answers(tmp_path, capsys, local_model):
    report = tmp_path / "demo.html"
    options = ("--base-url", local_model.base_url, "--model", local_model.model)
    assert run(arguments("--programs", "0", "--report", str(report), *options)) == 0
    out = words(capsys.readouterr().out)
    assert "The sub-agents' answers are real" in out
    assert "coordinator's messages are replayed" in out
    html = report.read_text(encoding="utf-8")
    assert html.count('class="flash-timeline"') == 1
    assert "Why is the sky blue?" in html


def test_missing_packages_are_named_and_the_rest_goes_on(tmp_path, capsys, example, monkeypatch):
    def missing(*args, **kwargs):
        raise MissingDependencyError("The local model server", "xllamacpp", "pip install something")

    monkeypatch.setattr(live, "LocalServer", missing)
    report = tmp_path / "demo.html"
    assert run(arguments("--programs", "1", "--report", str(report))) == 0
    out = words(capsys.readouterr().out)
    assert "The live part is left out. The local model server needs the package 'xllamacpp'" in out
    assert "Run: pip install something" in out
    assert report.exists()


def test_nothing_to_run_because_packages_are_missing_is_an_error(tmp_path, monkeypatch, capsys):
    def missing(*args, **kwargs):
        raise MissingDependencyError("The demo", "bfcl-eval", "pip install something")

    monkeypatch.setattr(command, "load_programs", missing)
    report = tmp_path / "demo.html"
    assert main(["demo", "--no-live", "--report", str(report)]) == 2
    assert "Run: pip install something" in capsys.readouterr().err
    assert not report.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--programs", "-1"], "give 0 or more"),
        (["--programs", "0", "--no-live"], "nothing to show"),
        (["--programs", "0", "--live-tools"], "--live-tools needs --base-url"),
        (["--programs", "0", "--base-url", "http://127.0.0.1:9/v1"], "belong together"),
        (["--programs", "0", "--model", "m"], "belong together"),
        (
            ["--programs", "0", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--api-key-env", "NO_SUCH_KEY"],
            "NO_SUCH_KEY",
        ),
    ],
)
def test_options_that_cannot_work(tmp_path, options, reason):
    with pytest.raises(ConfigurationError, match=reason):
        run(arguments(*options, "--report", str(tmp_path / "demo.html")))


def test_an_endpoint_that_is_not_there(tmp_path, capsys):
    options = ["--programs", "0", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"]
    assert main(["demo", *options, "--report", str(tmp_path / "demo.html")]) == 2
    assert "The model at http://127.0.0.1:9/v1 failed" in capsys.readouterr().err


def test_the_key_is_read_from_the_variable_that_is_named(monkeypatch):
    monkeypatch.setenv("DEMO_KEY", "s3cret")
    with live.endpoint("http://127.0.0.1:9/v1", "m", "DEMO_KEY") as target:
        assert target.api_key.get_secret_value() == "s3cret"
        assert "s3cret" not in repr(target)
        assert target.chat().openai_api_key.get_secret_value() == "s3cret"


@pytest.mark.parametrize(("place", "reason"), [("", "is a folder"), ("a file/report.html", "which is a file")])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, reason: str
) -> None:
    (tmp_path / "a file").touch()
    assert main(["demo", "--no-live", "--report", str(tmp_path / place)]) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert "Replaying" not in said.out
