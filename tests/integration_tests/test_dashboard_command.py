"""The command `dashboard` serves until it is interrupted, or says why it does not begin."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.cli.__main__ import main
from langchain_ctxbudget.installing import install_command
from tests.integration_tests.dashboard import talk
from tests.servers import LOOPBACK

pytestmark = [pytest.mark.slow, LOOPBACK]

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs the command, which does not begin, and returns its errors."""

    def command(*arguments: object) -> str:
        code = main(["dashboard", *[str(argument) for argument in arguments]])
        assert code == 1
        return capsys.readouterr().err

    return command


def test_without_a_store_it_does_not_begin(refused: Refused) -> None:
    assert "--store FOLDER, or --demo" in refused()


def test_with_a_store_and_the_demo_it_does_not_begin(refused: Refused, tmp_path: Path) -> None:
    assert "--store FOLDER, or --demo" in refused("--demo", "--store", tmp_path)


def test_a_store_that_is_missing_is_not_made(refused: Refused, tmp_path: Path) -> None:
    assert "StoreError: There is no store" in refused("--store", tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_told(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "chroma.sqlite3").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "InvalidSettingsError: --port" in refused("--store", tmp_path, "--port", port)


def test_without_its_packages_it_says_what_to_install(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chroma.sqlite3").touch()
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert install_command("dashboard") in refused("--store", tmp_path)


@dataclass
class Server:
    """What a server said and answered, and how it ended when it was interrupted."""

    line: str
    status: httpx.Response
    page: httpx.Response
    exit_code: int
    errors: str


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = ["-W", "error", "-m", "langchain_ctxbudget.cli", "dashboard", "--port", "0"]
    server = subprocess.Popen(
        [sys.executable, *command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield server
    finally:
        if server.poll() is None:
            server.kill()
            server.communicate()


def answers_of(session: str, *arguments: str) -> Server:
    with running(*arguments) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address is not None, line
        with httpx.Client(base_url=address[0], timeout=60, trust_env=False) as client:
            status = client.get("api/context/status", params={"session_id": session})
            page = client.get("")
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
        return Server(line, status, page, server.returncode, errors)


@pytest.fixture(scope="module")
def of_store(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server over a store with one session, "trip"."""
    folder = tmp_path_factory.mktemp("store")
    trip = {"user_id": "me", "conversation_id": "trip"}
    with (
        ChromaStore(folder) as store,
        ContextPipeline({"keep_snapshots": 3}, store=store) as pipeline,
    ):
        pipeline.add_messages(talk("belem", 3), **trip)
        pipeline.assemble("Where to?", **trip)
        assert pipeline.flush(30)
    return answers_of("trip", "--store", str(folder))


@pytest.fixture(scope="module")
def of_demo() -> Server:
    return answers_of("tool-library", "--demo")


@pytest.fixture(params=["of_store", "of_demo"])
def server(request: pytest.FixtureRequest) -> Server:
    answers: Server = request.getfixturevalue(request.param)
    return answers


def test_the_address_of_the_demo_leads_to_its_question(of_demo: Server) -> None:
    assert "#session=tool-library&message=" in of_demo.line


def test_the_address_of_a_store_leads_to_no_session(of_store: Server) -> None:
    assert "#session=" not in of_store.line


def test_it_serves_the_status_of_a_session(server: Server) -> None:
    assert server.status.status_code == 200
    assert server.status.json()["source"] == "snapshot"


def test_it_serves_the_page(server: Server) -> None:
    assert "<!doctype html>" in server.page.text


def test_an_interrupt_ends_it_without_a_complaint(server: Server) -> None:
    assert server.exit_code == 0
    assert server.errors == ""
