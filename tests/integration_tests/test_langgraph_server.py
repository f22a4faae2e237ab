"""The agent of `examples/server` on LangGraph Server, with a `ChromaStore` as the server's store.

They need `langgraph-cli[inmem]`, of the extra `recipes`, and are skipped where it is not installed.
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from langchain_ctxbudget import ChromaStore, ContextPipeline
from tests.servers import LOOPBACK, running

pytest.importorskip("langgraph_api", reason="langgraph-cli[inmem] is not installed")
pytestmark = [LOOPBACK, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "server"
SECONDS = 600
USER = "developer"


@contextmanager
def served(folder: Path, store: Path) -> Iterator[httpx.Client]:
    """The server over a folder with the example, and a client of it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    command += ["--host", "127.0.0.1", "--port", port]
    environment = {
        **os.environ,
        "CHROMA_FOLDER": str(store),
        "LANGSMITH_TRACING": "false",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    }
    environment.pop("OPENAI_API_KEY", None)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS, trust_env=False)

    def answers() -> None:
        try:
            client.get("/ok").raise_for_status()
        except httpx.HTTPError as error:
            raise OSError(str(error)) from error

    with client, running(command, folder, answers, environment=environment, seconds=SECONDS):
        yield client


def ask(client: httpx.Client, thread: str, question: str) -> list[dict[str, Any]]:
    """Returns the messages of a thread after a turn."""
    given = {"messages": [{"role": "user", "content": question}]}
    run = {"assistant_id": "agent", "input": given}
    answer = client.post(f"/threads/{thread}/runs/wait", json=run).raise_for_status().json()
    messages: list[dict[str, Any]] = answer["messages"]
    return messages


def new_thread(client: httpx.Client) -> str:
    return str(client.post("/threads", json={}).raise_for_status().json()["thread_id"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example, whose dependencies are installed."""
    copy = tmp_path / "server"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    config = json.loads((copy / "langgraph.json").read_text(encoding="utf-8"))
    config["dependencies"] = ["."]
    (copy / "langgraph.json").write_text(json.dumps(config), encoding="utf-8")
    return copy


def test_a_chroma_store_is_the_store_of_the_server(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with served(folder, store) as client:
        thread = new_thread(client)
        ask(client, thread, "Hello, I am Ada.")
        messages = ask(client, thread, "What is my name?")
        listed = client.post("/store/namespaces", json={"prefix": ["ctxbudget"]}).json()
    assert messages[-1]["content"] == "You are Ada."
    assert listed["namespaces"] != []

    with ChromaStore(store) as opened, ContextPipeline(store=opened) as pipeline:
        kept = pipeline.get_messages(user_id=USER, conversation_id=thread)
    assert kept[0].text == "Hello, I am Ada."


def test_a_store_in_a_folder_is_there_after_a_restart(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    threads = []
    for _ in range(2):
        with served(folder, store) as client:
            thread = new_thread(client)
            ask(client, thread, "Hello, I am Ada.")
            ask(client, thread, "Good morning.")  # the first turn is copied before the second one
            threads.append(thread)
    with ChromaStore(store) as opened, ContextPipeline(store=opened) as pipeline:
        assert pipeline.list_conversations(user_id=USER) == sorted(threads)


def test_without_a_store_of_its_own_the_agent_uses_that_of_the_server(
    folder: Path, tmp_path: Path
) -> None:
    config = json.loads((folder / "langgraph.json").read_text(encoding="utf-8"))
    del config["store"]
    (folder / "langgraph.json").write_text(json.dumps(config), encoding="utf-8")
    with served(folder, tmp_path / "store") as client:
        thread = new_thread(client)
        ask(client, thread, "Hello, I am Ada.")
        assert ask(client, thread, "What is my name?")[-1]["content"] == "You are Ada."
        listed = client.post("/store/namespaces", json={"prefix": ["ctxbudget"]}).json()
    assert listed["namespaces"] != []
    assert not (tmp_path / "store").exists()
