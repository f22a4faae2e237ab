"""What prompts of random conversations may still get wrong: one list, which is to become empty.

Each kind has a name and a pattern of what is wrong, as `<api>: <problem>`.
"""

import re
from collections.abc import Iterable

NOT_YET = {
    "pictures in results, for Chat Completions": r"^chat: .*'image_url'",
    "pictures as text": r"a picture is sent as text",
    "forms of media": (
        r"Block of type|file URLs|source type|mime_type|'(file|input_audio|video|audio|document)'"
        r"|part type: (input_audio|document|file|image|video|audio|media|text-plain)"
        r"|Data content block|could not process image|without an address|'(input_file|image)'"
        r"|invalid base64|'media'"
    ),
    "blocks in results": r"'(json|search_result)'|part type: (search_result|json)",
    "calls behind an answer, for Gemini": r"^gemini: .*call turn must come after a user turn",
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
    "broken arguments of Responses": r"^responses.*arguments .* are not the text of a JSON object",
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
