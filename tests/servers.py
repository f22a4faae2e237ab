"""Real servers on this machine, one of each kind for the whole run.

Chroma, and PostgreSQL with pgvector.

Where one cannot be started its tests are skipped, but fail where `CI` is set.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from uuid import uuid4

import psycopg
import pytest

LOOPBACK = pytest.mark.allow_hosts(["127.0.0.1"])
"""What every test needs that talks to the Chroma server; Postgres is reached over its Unix
socket."""

START_SECONDS = 30


def in_memory() -> str | None:
    """A folder whose files are in memory, where this machine has room for them.

    Chroma waits for the disk at every write, ten times as long as for the rest. What is tested is
    what outlives a process; nothing here has to outlive a power cut.
    """
    folder = Path("/dev/shm")
    room = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 4 * 1024**3
    return str(folder) if room else None


@pytest.fixture(scope="session")
def chroma_server() -> Iterator[str]:
    """The address of a Chroma server."""
    program = Path(sys.executable).with_name("chroma")
    if not program.exists():
        _unavailable(f"{program} does not exist")
    with (
        TemporaryDirectory(prefix="chroma-", dir=in_memory()) as folder,
        socket.socket() as listener,
    ):
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
        listener.close()
        command = [
            str(program),
            "run",
            "--path",
            f"{folder}/data",
            "--host",
            "127.0.0.1",
            "--port",
            port,
        ]
        url = f"http://127.0.0.1:{port}"

        def answers() -> None:
            _request(f"{url}/api/v2/heartbeat")

        with running(command, Path(folder), answers):
            yield url


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A connection string for a PostgreSQL server with pgvector.

    Only the programs of `pgserver` are used: the package itself makes a system user, opens every
    folder above its data to everybody, and leaves files behind.
    """
    found = importlib.util.find_spec("pgserver")
    if found is None or found.origin is None:
        _unavailable(
            "pgserver is not installed; it has wheels for Python up to 3.12, "
            "on Linux for x86-64 only"
        )
    package = Path(found.origin).parent
    with TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        installed = package.parent
        user = None
        if os.geteuid() == 0:
            # PostgreSQL does not run as root, and nobody else may reach where the package is
            # installed.
            installed = folder
            user = "nobody"
            shutil.chown(folder, user)
            for part in ("pgserver/pginstall", "pgserver.libs"):
                if (package.parent / part).exists():
                    shutil.copytree(package.parent / part, folder / part, symlinks=True)
        programs = installed / "pgserver" / "pginstall" / "bin"
        options = [
            "--pgdata=data",
            "--username=postgres",
            "--auth=trust",
            "--encoding=utf8",
            "--locale=C",
            "--no-sync",
        ]
        made = subprocess.run(
            [programs / "initdb", *options],
            cwd=folder,
            user=user,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            _unavailable(f"initdb failed: {made.stderr}")
        # Over a Unix socket only, and without waiting for the disk: nothing here has to outlive a
        # power cut.
        options = [
            "-clisten_addresses=",
            "-cfsync=off",
            "-cfull_page_writes=off",
            "-cmax_connections=200",
        ]
        command = [str(programs / "postgres"), "-D", "data", "-k", name, *options]
        dsn = f"postgresql://postgres@/postgres?host={name}"

        def answers() -> None:
            psycopg.connect(dsn).close()

        # Interrupted, it does not wait for its clients to leave.
        with running(command, folder, answers, stop=signal.SIGINT, user=user):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(
                    "CREATE EXTENSION vector"
                )  # for all schemas: it is there once per database
            yield dsn


@contextmanager
def new_chroma_database(url: str) -> Iterator[str]:
    name = f"test-{uuid4().hex}"
    databases = f"{url}/api/v2/tenants/default_tenant/databases"
    headers = {"Content-Type": "application/json"}
    _request(databases, data=f'{{"name": "{name}"}}'.encode(), headers=headers, method="POST")
    yield name
    _request(f"{databases}/{name}", method="DELETE")


@contextmanager
def new_postgres_schema(dsn: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    # Deleting waits for whoever uses it: not without end.
    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=10s") as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{dsn}&options=-csearch_path%3D{name},public"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def _request(url: str, **arguments: Any) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(urllib.request.Request(url, **arguments), timeout=START_SECONDS).close()


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    answers: Callable[[], None],
    *,
    stop: signal.Signals = signal.SIGTERM,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = START_SECONDS,
) -> Iterator[None]:
    """A server in a process of its own, from when it answers to the end of the block."""
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=folder, user=user, stdout=output, stderr=output, env=environment
        )
    try:
        give_up = time.monotonic() + seconds
        while True:
            try:
                answers()
                break
            except (OSError, psycopg.OperationalError) as error:
                if server.poll() is not None or time.monotonic() > give_up:
                    _unavailable(f"{command[0]} does not answer: {error}\n{log.read_text()}")
                time.sleep(0.02)
        yield
    finally:
        server.send_signal(stop)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _unavailable(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
