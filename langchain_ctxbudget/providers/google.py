"""Google: Gemini, by its own API and through Vertex AI."""

from dataclasses import replace

from langchain_ctxbudget.providers.profile import OwnItems, Profile

# `langchain_google_genai` 4.4.3 reads these of an assistant's message (`_convert_to_parts`). Any id
# of a call is taken: calls and results are matched by name and order.
_ITEMS = frozenset(
    {
        "thinking",
        "reasoning",
        "executable_code",
        "code_execution_result",
        "function_call_signature",
        "server_tool_call",
        "server_tool_result",
    }
)

GOOGLE = Profile(
    name="google",
    items=OwnItems(authors=frozenset({"google"}), types=_ITEMS),
    reads_own_media=True,
)
GOOGLE_VERTEX = replace(GOOGLE, name="google-vertex")
