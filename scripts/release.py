"""Makes a checkout ready to be built as a release.

The tag gives the version, and the address gives where links lead.

    python scripts/release.py v0.1.0 https://github.com/OWNER/REPOSITORY

The release workflow runs it. The repository itself names no address, and its version is that of a
development state; so a copy of it, under whatever address, says nothing that is not so.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")
VERSION = re.compile(r"^version = .*$", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+://|#)([^)\s]+)\)")
"""A link of Markdown to a file of the repository, a picture or not."""


def with_version(pyproject: str, version: str, address: str) -> str:
    """Returns the project's description with its version and its addresses."""
    urls = {
        "Homepage": address,
        "Documentation": f"{address}/tree/v{version}/docs",
        "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return VERSION.sub(f'version = "{version}"', pyproject, count=1) + f"\n[project.urls]\n{lines}"


def with_addresses(page: str, version: str, address: str) -> str:
    """Returns a page for other places: links lead to the repository, pip asks the index."""

    def whole(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({address}/{kind}/v{version}/{link[3]})"

    asks_index = page.replace("pip install '.[", "pip install 'langchain-ctxbudget[").replace(
        "`, in the clone.", "`."
    )
    return LINK.sub(whole, asks_index)


def main(tag: str, address: str) -> None:
    """Writes version, addresses and links into the checkout."""
    found = TAG.fullmatch(tag)
    if found is None:
        raise SystemExit(f"{tag!r} is no tag of a release, such as v0.1.0")
    news = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(found[1])}\b", news, re.MULTILINE):
        raise SystemExit(f"CHANGELOG.md does not say what is new in {found[1]}")
    for name, change in (("pyproject.toml", with_version), ("README.md", with_addresses)):
        path = ROOT / name
        path.write_text(
            change(path.read_text(encoding="utf-8"), found[1], address.rstrip("/")),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
