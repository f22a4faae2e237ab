"""Renews everything that is printed or drawn in pages and notebooks.

Run it after behaviour has changed.

    python scripts/renew.py            # about three minutes

Look at the diff before you commit it: what changed there is what users will see change.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
END_OF_TABLE = "\n\n"
sys.path.insert(0, str(ROOT))

from tests.integration_tests.test_readme import BLOCKS, DOCS, END_OF_BLOCK, outcome  # noqa: E402


def run(*command: str) -> str:
    """Runs a script or a module, and returns what it prints."""
    made = [sys.executable, *command]
    return subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own


def renew_pages() -> None:
    """Puts what the code of a page prints now below it."""
    for name, blocks in BLOCKS.items():
        done = outcome(name)
        if done.code:
            raise SystemExit(f"{name}: {done.err}")
        path = DOCS / f"{name}.md"
        page = path.read_text(encoding="utf-8")
        for block, found in zip(blocks, done.out.split(f"{END_OF_BLOCK}\n"), strict=False):
            if block.printed is not None and block.printed != found:
                said = f"{block.code}```\n\n```text\n"
                page = page.replace(f"{said}{block.printed}```", f"{said}{found}```")
        path.write_text(page, encoding="utf-8")


def renew_benchmark() -> None:
    """Draws the figure of README and benchmark, and puts what was measured into the table."""
    told = run("benchmarks/readme_figure.py", "--plot", "docs/figures/peers.svg")
    path = DOCS / "explanation" / "benchmark.md"
    before, _, rest = path.read_text(encoding="utf-8").partition("| | budget |")
    path.write_text(f"{before}{told}\n{rest.partition(END_OF_TABLE)[2]}", encoding="utf-8")


def renew_dashboard() -> None:
    """Takes the picture of the demo's dashboard, in few colours.

    Where there is no Chromium, the old one stays.
    """
    program = shutil.which("chromium")
    path = DOCS / "figures" / "dashboard.png"
    if program is None:
        sys.stderr.write("There is no chromium: the picture of the dashboard is not renewed\n")
        return
    command = [
        sys.executable,
        "-m",
        "langchain_ctxbudget.cli",
        "dashboard",
        "--demo",
        "--port",
        "0",
    ]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server,  # noqa: S603 - our own
        sync_playwright() as playwright,
    ):
        address = str(server.stdout and server.stdout.readline()).split()[-1]
        browser = playwright.chromium.launch(
            executable_path=program, args=[] if os.geteuid() else ["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1240, "height": 1420}, color_scheme="light")
        page.goto(address)
        page.locator("#why.open").wait_for()
        page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
        page.wait_for_timeout(500)
        page.screenshot(path=path)
        browser.close()
        server.terminate()
    with Image.open(path) as taken:
        few = taken.convert("RGB").quantize(200, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def renew_notebooks() -> None:
    """Runs them, and keeps their ids and metadata, so that the diff shows outputs alone."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    before = {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    run("-m", "pytest", "-q", "--nbmake", "--nbmake-timeout=120", "--overwrite", "notebooks")
    for path, old in before.items():
        new = json.loads(path.read_text(encoding="utf-8"))
        cells: Sequence[dict[str, Any]] = new["cells"]
        for cell, kept in zip(cells, old["cells"], strict=True):
            cell |= {key: kept[key] for key in ("id", "metadata") if key in kept}
        kept_parts = {key: old[key] for key in ("metadata", "nbformat", "nbformat_minor")}
        path.write_text(
            json.dumps(new | kept_parts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def main() -> None:
    """Renews everything."""
    renew_pages()
    renew_benchmark()
    renew_dashboard()
    renew_notebooks()


if __name__ == "__main__":
    main()
