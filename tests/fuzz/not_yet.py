"""What prompts of random conversations may still get wrong: one list, which is to become empty.

Each kind has a name and a pattern of what is wrong, as `<api>: <problem>`.
"""

import re
from collections.abc import Iterable

NOT_YET: dict[str, str] = {}

_PATTERNS = {name: re.compile(pattern) for name, pattern in NOT_YET.items()}


def kind_of(problem: str) -> str:
    """The kind of what is wrong; empty if it is none of the list."""
    for name, pattern in _PATTERNS.items():
        if pattern.search(problem):
            return name
    return ""


def unexpected(problems: Iterable[str]) -> list[str]:
    """The problems that are of no kind of the list."""
    return [problem for problem in problems if not kind_of(problem)]
