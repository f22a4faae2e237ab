"""The command that installs this package, or an extra of it, from where it was installed."""

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

NAME = "langchain-ctxbudget"
ORIGIN_FILE = "direct_url.json"
"""The file in which pip and uv note where they took a package from; there is none where they took
it from an index (specification "Recording the Direct URL Origin of installed distributions" of the
Python Packaging Authority, read in November 2026)."""


def install_command(extra: str = "") -> str:
    """Returns the command that installs an extra, or the package alone.

    It takes the package from where this one came from: a folder, a repository, a wheel, or else the
    package index.
    """
    try:
        noted = distribution(NAME).read_text(ORIGIN_FILE)
    except PackageNotFoundError:  # the code runs from a folder that was not installed
        noted = None
    return command_for(noted, extra)


def command_for(noted: str | None, extra: str = "") -> str:
    """Returns the command for a noted origin, the text of `direct_url.json`; None: an index."""
    wanted = f"[{extra}]" if extra else ""
    origin = json.loads(noted) if noted else {}
    address = origin.get("url", "")
    if "dir_info" in origin:
        option = "-e " if origin["dir_info"].get("editable") else ""
        folder = Path(url2pathname(urlsplit(address).path))
        return f"pip install {option}{shlex.quote(f'{folder}{wanted}')}"
    if "vcs_info" in origin:
        version = origin["vcs_info"]
        address = f"{version['vcs']}+{address}@{version['commit_id']}"
    source = f" @ {address}" if address else ""
    return f"pip install {shlex.quote(f'{NAME}{wanted}{source}')}"
