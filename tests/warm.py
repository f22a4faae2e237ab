"""Runs programs in forks of a process that has imported what they need.

Offline, every warning an error.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RUNNER = """
import importlib, io, json, os, runpy, sys, traceback, warnings

import langchain_ctxbudget

for name in langchain_ctxbudget.__all__:
    getattr(langchain_ctxbudget, name)
for name in ("chromadb", "langchain.agents", "langchain_openai"):
    importlib.import_module(name)
langchain_ctxbudget.LocalEmbeddings().embed_query("")  # wordllama itself would set up logging
for path, folder, out, err in json.load(sys.stdin):
    with warnings.catch_warnings():
        # of a fork beside threads, of which an import has started some
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
        code = 1
        try:
            os.chdir(folder)
            sys.argv = [path]
            sys.path[0] = os.path.dirname(path)
            runpy.run_path(path, run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ran(NamedTuple):
    """What became of a program."""

    code: int
    out: str
    err: str


class Job(NamedTuple):
    """A program to run, the folder it runs in, and the files of its output."""

    path: str
    folder: str
    out: str
    err: str


def run_all(programs: Sequence[Path | str]) -> list[Ran]:
    """Runs files, or texts as files in folders of their own, one after the other."""
    with tempfile.TemporaryDirectory() as directory:
        jobs = []
        for number, program in enumerate(programs):
            folder = Path(directory) / str(number)
            folder.mkdir()
            jobs.append(_job(program, folder))
        codes = _exit_codes(jobs)
        return [
            Ran(code, _text(job.out), _text(job.err)) for code, job in zip(codes, jobs, strict=True)
        ]


def _job(program: Path | str, folder: Path) -> Job:
    path = program
    if isinstance(program, str):
        path = folder / "program.py"
        path.write_text(program, encoding="utf-8")
    return Job(str(path), str(folder), f"{folder}.out", f"{folder}.err")


def _exit_codes(jobs: Sequence[Job]) -> list[int]:
    """Runs jobs in forks of one process, which has no keys of providers."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    runner = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert runner.returncode == 0, runner.stderr
    return [int(code) for code in runner.stdout.split()]


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
