"""`examples/server` under the real LangGraph Server, as `langgraph dev` starts it: without authentication.

The server is installed into an environment of its own, which sees the packages of this one. Where it cannot be, the
test is skipped, but fails where `CI` is set; a registry that does not carry it is no failure.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.allow_hosts(["127.0.0.1"])]

ROOT = Path(__file__).parents[2]
START_SECONDS = 90
NOT_CARRIED = re.compile(r"No matching distribution found|ResolutionImpossible")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`langgraph`, in an environment that has everything that this one has."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    bin_folder = folder / "bin"
    [packages] = (folder / "lib").glob("python*/site-packages")
    seen = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (packages / "outer.pth").write_text(seen, encoding="utf-8")
    done = subprocess.run(
        [bin_folder / "python", "-m", "pip", "install", "--progress-bar=off", "langgraph-cli[inmem]"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        unavailable(f"langgraph-cli[inmem] cannot be installed: {said[-500:]}", carried=not NOT_CARRIED.search(said))
    return bin_folder / "langgraph"


def unavailable(reason: str, *, carried: bool) -> NoReturn:
    if carried and os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def server(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of the server; it writes into its folder, so it gets a copy of the example."""
    folder = tmp_path_factory.mktemp("served") / "server"
    shutil.copytree(ROOT / "examples" / "server", folder)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_TRACING"))}
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [program, "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            wait_for(client, process, log)
            yield client
    finally:
        process.terminate()
        process.wait(30)


def wait_for(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with suppress(httpx.TransportError):
            if client.get("/ok").is_success:
                return
        time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text(encoding='utf-8')[-3_000:]}")


def thread(client: httpx.Client) -> str:
    return str(client.post("/threads", json={}).raise_for_status().json()["thread_id"])


def ask(client: httpx.Client, at: str, question: str) -> str:
    given = {"assistant_id": "agent", "input": {"messages": [{"role": "user", "content": question}]}}
    found = client.post(f"/threads/{at}/runs/wait", json=given).raise_for_status().json()
    assert "messages" in found, found
    return str(found["messages"][-1]["content"])


def test_the_example_runs_without_authentication_and_remembers_what_was_said_in_a_thread(server: httpx.Client) -> None:
    first, second = thread(server), thread(server)
    assert ask(server, first, "Hello, I am Ada.") == "You are Ada."
    assert ask(server, second, "Hello there.") == "Hello."
    assert ask(server, first, "What is my name?") == "You are Ada."
    assert ask(server, second, "Tell me about the weather, please.") == "Hello."
