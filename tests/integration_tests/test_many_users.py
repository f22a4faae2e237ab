"""The page on many users: its blocks and commands run on a PostgreSQL, as does its benchmark."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from tests.integration_tests.test_readme import PAGES, ROOT, blocks_of, commands_of

PAGE = PAGES["how-to/many-users"]
pytestmark = pytest.mark.slow


@pytest.fixture
def database(postgres: str) -> str:
    """The address of a database that nobody else uses."""
    name = "many_users"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")


def environment(database: str) -> dict[str, str]:
    """The variables that the page takes as set; the programs are those of the server."""
    found = find_spec("pgserver")
    assert found is not None
    assert found.origin is not None
    programs = Path(found.origin).parent / "pginstall" / "bin"
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    return {**os.environ, "DATABASE_URL": database, "PATH": path}


def test_its_code_and_commands_run(database: str, tmp_path: Path) -> None:
    [code] = blocks_of(PAGE, "py")
    [printed] = blocks_of(PAGE, "text")
    variables = environment(database)

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == printed
    shell = shutil.which("sh")
    assert shell is not None
    for command in commands_of(PAGE):
        if not command.startswith("python"):
            subprocess.run([shell, "-ec", command], cwd=tmp_path, env=variables, check=True)


def test_the_benchmark_measures_what_it_wrote(database: str, tmp_path: Path) -> None:
    found = tmp_path / "load.json"
    sizes = ["--users", "4", "--conversations", "5", "--messages", "4", "--visits", "2"]
    command = ["benchmarks/load.py", *sizes, "--processes", "2", "--uri", database]

    subprocess.run(
        [sys.executable, *command, "--json", str(found)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )

    stages = json.loads(found.read_text())["stages"]
    written_in_visits = [2 * 3 * 2 * number for number in (1, 2, 3)]
    loaded = [8, 40, 80]
    expected = [one + other for one, other in zip(loaded, written_in_visits, strict=True)]
    assert [stage["size"]["messages"] for stage in stages] == expected
