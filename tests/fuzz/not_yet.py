"""What prompts of random conversations may still get wrong: one list, which is to become empty.

Each kind has a name and a pattern of what is wrong, as `<api>: <problem>`.
"""

import re
from collections.abc import Iterable

NOT_YET = {
    "answers at the beginning, for Claude": r"first message must use the 'user' role",
    "long messages with many pictures": r"the newest message is not whole",
    "reasoning of others": (
        r"thinking: a list|'(reasoning|thinking|reasoning_content|redacted_thinking)'"
    ),
    "server tools of others": (
        r"collapsed|'(server_tool_(use|call|result)|\w+_tool_result|non_standard|mcp_\w+)'"
        r"|\w+_(search|interpreter|generation)_call|executable_code|code_execution_result"
        r"|\['query'\]|tool_call_id|image_generation|container|output: a list is not permitted"
    ),
    "citations of others": r"'output_text'|citation|annotations",
    "computer use, patches, custom calls": (
        r"(computer|apply_patch|custom_tool|shell)_call|one initialized field"
    ),
    "compaction of others": r"'compaction'",
    "cache marks": r"cache_control",
    "limits of media": r"too many images|exceeds|exceed",
}

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
