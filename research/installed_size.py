"""What installing costs: the size of every dependency in the environment that runs this, as rows of a table.

    python -m venv /tmp/sizes && /tmp/sizes/bin/pip install -q --no-compile .
    /tmp/sizes/bin/python research/installed_size.py

Columns, in MB: the package itself; with all that it needs; and of that, what no other dependency needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

OURS = "langchain-ctxbudget"
MEGABYTE = 1_000_000


def normalized(name: str) -> str:
    return name.lower().replace("_", "-")


def main() -> None:
    sizes: dict[str, float] = {}
    needs: dict[str, list[str]] = {}
    for found in distributions():
        name = normalized(found.metadata["Name"])
        paths = [found.locate_file(file) for file in found.files or ()]
        sizes[name] = (
            sum(path.stat().st_size for path in map(Path, map(str, paths)) if path.is_file())
            / MEGABYTE
        )
        required = [line for line in found.requires or () if "extra ==" not in line]
        needs[name] = [
            normalized(match[0]) for line in required if (match := re.match(r"[\w.-]+", line))
        ]
    direct = [name for name in needs[OURS] if name in sizes]
    print("| dependency | itself | with its own | for it alone |\n|---|--:|--:|--:|")
    for name in direct:
        whole = needed(name, needs)
        alone = whole.difference(*(needed(other, needs) for other in direct if other != name))
        row = (sizes[name], *(sum(sizes.get(one, 0) for one in names) for names in (whole, alone)))
        print(f"| `{name}` | {' | '.join(f'{size:.1f}' for size in row)} |")
    everything = needed(OURS, needs)
    print(f"| all, with the package | | {sum(sizes.get(one, 0) for one in everything):.1f} | |")


def needed(name: str, needs: Mapping[str, Sequence[str]]) -> set[str]:
    """The package and all that it needs."""
    found, waiting = set[str](), [name]
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting += needs.get(one, ())
    return found


if __name__ == "__main__":
    main()
