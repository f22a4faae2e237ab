"""OpenAI's Responses API, to which `ChatOpenAI` talks where it is asked to, or has to."""

from dataclasses import replace

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.media_forms import IMAGE_TYPES, MediaForms, Readable
from langchain_ctxbudget.providers.openai import FILES_OF_OTHERS, OPENAI
from langchain_ctxbudget.providers.profile import CallIds, ItemAnswer, OwnItems

# What `langchain_openai` writes into a request (`_construct_responses_api_input`, 1.7.4); all
# others it leaves out.
_ITEMS = frozenset(
    {
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "tool_search_call",
        "tool_search_output",
        "server_tool_call",
        "server_tool_result",
    }
)

# What `langchain-openai` 1.7.4 writes into a request, of users and of results
# (`_construct_responses_api_input`, `_ensure_valid_tool_message_content`): one block of any other
# type in a result, and all of it becomes a text. A file by its id alone, it takes for a document.
_IMAGE = (Shape.STANDARD, Shape.EARLIER, Shape.CHAT, Shape.SOURCE, Shape.RESPONSES)
_FILE = (Shape.STANDARD, Shape.EARLIER, Shape.CHAT, Shape.RESPONSES)
MEDIA_FORMS = MediaForms(
    kinds={
        "image": Readable(
            with_bytes=_IMAGE,
            by_address=_IMAGE,
            by_file_id=(Shape.RESPONSES,),
            types=IMAGE_TYPES,
        ),
        # The package leaves sound out.
        "file": Readable(
            with_bytes=_FILE,
            by_address=(Shape.STANDARD, Shape.EARLIER, Shape.RESPONSES),
            by_file_id=_FILE,
            # "PDF", "text and code", "rich documents", "presentations", "spreadsheets" ("File
            # inputs", developers.openai.com/api/docs/guides/file-inputs, read in November 2026).
            types=r"application/(pdf|json|xml|rtf|javascript|msword|vnd\.ms-(excel|powerpoint)"
            r"|vnd\.openxmlformats-officedocument\..+|vnd\.oasis\.opendocument\.text)|text/.+",
        ),
    },
    # Those of its own that the package passes on.
    blocks=frozenset(
        {
            "input_text",
            "refusal",
            "tool_search_output",
            "mcp_approval_response",
            "configuration_update",
        }
    ),
    refused_file_ids=FILES_OF_OTHERS,
)

OPENAI_RESPONSES = replace(
    OPENAI,
    name="openai-responses",
    # "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64", as
    # AnswerDotAI/fastllm issue 45 and NousResearch/hermes-agent pull request 73538 have it (read in
    # November 2026).
    call_ids=CallIds(longest=64),
    items=OwnItems(authors=frozenset({"openai"}), types=_ITEMS),
    # `_construct_responses_api_input` of `langchain-openai` 1.7.4 passes no sound of an answer on.
    sends_sounds_by_id=False,
    media_forms=MEDIA_FORMS,
    # "You can drop items that came before the most recent compaction item": OpenAI's guide
    # "Compaction" (read in November 2026). Chat Completions has no such items.
    compactions="openai",
    # What `langchain-openai` 1.7.4 sends as items (`_construct_responses_api_input`, read November
    # 2026): a result of a computer's as `computer_call_output`, which is a picture by OpenAI's
    # reference; patches and approvals from the content of a user's message. It leaves out the items
    # of shells, and OpenAI refuses a result without its call: "No tool call found for function call
    # output with call_id ..." (continuedev/continue issue 10092).
    item_calls={
        "computer_call": ItemAnswer.SCREEN,
        "apply_patch_call": ItemAnswer.ITEM,
        "mcp_approval_request": ItemAnswer.ITEM,
    },
)
