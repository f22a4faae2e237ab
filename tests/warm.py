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
        for name, number in ((out, 1), (err, 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
        code = 1
        try:
            os.chdir(folder)
            sys.argv, sys.path[0] = [path], os.path.dirname(path)
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


def run_all(programs: Sequence[Path | str]) -> list[Ran]:
    """Runs files, or texts as files in folders of their own, one after the other."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    with tempfile.TemporaryDirectory() as made:
        jobs = []
        for number, program in enumerate(programs):
            folder = Path(made) / str(number)
            folder.mkdir()
            path = folder / "program.py" if isinstance(program, str) else program
            if isinstance(program, str):
                path.write_text(program, encoding="utf-8")
            jobs.append([str(one) for one in (path, folder, f"{folder}.out", f"{folder}.err")])
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUNNER],
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        codes = map(int, done.stdout.split())
        return [
            Ran(code, Path(out).read_text(encoding="utf-8"), Path(err).read_text(encoding="utf-8"))
            for code, (*_, out, err) in zip(codes, jobs, strict=True)
        ]
