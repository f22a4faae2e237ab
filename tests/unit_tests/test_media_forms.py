"""Media and blocks in a form that the package of a provider translates, and its API takes."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.providers import PROFILES, Profile
from tests.cases import few_are_quick
from tests.doubles.providers import APIS, PIXEL, Api
from tests.fuzz import samples
from tests.sending import sent_with

Block = dict[str, Any]

PNG = samples.picture(64, 48)
PDF = samples.document()
WAV = samples.sound()
MP4 = samples.film()
TEXT = b64encode(b"Rent is due on the first.").decode()
PNG_URL = f"data:image/png;base64,{PNG}"
PDF_URL = f"data:application/pdf;base64,{PDF}"
WEB_PNG = "https://example.org/a.png"
WEB_PDF = "https://example.org/a.pdf"

IMAGES: Mapping[str, Block] = {
    "LangChain's bytes": {"type": "image", "base64": PNG, "mime_type": "image/png"},
    "LangChain's address": {"type": "image", "url": WEB_PNG},
    "LangChain's data URL": {"type": "image", "url": PNG_URL},
    "bytes of no type": {"type": "image", "base64": PNG},
    "bytes in lines": {
        "type": "image",
        "base64": f"{PNG[:76]}\n{PNG[76:]}",
        "mime_type": "image/png",
    },
    "bytes for an address": {
        "type": "image",
        "base64": PNG.replace("+", "-").replace("/", "_").rstrip("="),
        "mime_type": "image/png",
    },
    "bytes of a wrong type": {"type": "image", "base64": PNG, "mime_type": "image/jpeg"},
    "earlier bytes": {
        "type": "image",
        "source_type": "base64",
        "data": PNG,
        "mime_type": "image/png",
    },
    "earlier address": {"type": "image", "source_type": "url", "url": WEB_PNG},
    "OpenAI's bytes": {"type": "image_url", "image_url": {"url": PNG_URL}},
    "OpenAI's address": {"type": "image_url", "image_url": {"url": WEB_PNG, "detail": "low"}},
    "an address alone": {"type": "image_url", "image_url": WEB_PNG},
    "Responses' bytes": {"type": "input_image", "image_url": PNG_URL},
    "Responses' address": {"type": "input_image", "image_url": WEB_PNG, "detail": "low"},
    "Anthropic's bytes": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    },
    "Anthropic's address": {"type": "image", "source": {"type": "url", "url": WEB_PNG}},
    "Google's bytes": {"type": "media", "data": PNG, "mime_type": "image/png"},
    "wrapped by LangChain": {
        "type": "non_standard",
        "value": {"type": "input_image", "image_url": PNG_URL},
    },
}
FILES: Mapping[str, Block] = {
    "LangChain's PDF": {"type": "file", "base64": PDF, "mime_type": "application/pdf"},
    "earlier PDF": {
        "type": "file",
        "source_type": "base64",
        "data": PDF,
        "mime_type": "application/pdf",
    },
    "OpenAI's PDF": {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
    "OpenAI's PDF of no name": {"type": "file", "file": {"file_data": PDF_URL}},
    "Responses' PDF": {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL},
    "Anthropic's PDF": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    },
    "Google's PDF": {"type": "media", "data": PDF, "mime_type": "application/pdf"},
}
NOT_EVERYWHERE: Mapping[str, Block] = {
    "a PDF's address": {"type": "file", "url": WEB_PDF},
    "Anthropic's PDF by its address": {
        "type": "document",
        "source": {"type": "url", "url": WEB_PDF},
    },
    "OpenAI's image id": {"type": "image", "file_id": "file-abc"},
    "Anthropic's image id": {"type": "image", "source": {"type": "file", "file_id": "file_011"}},
    "OpenAI's file id": {"type": "file", "file_id": "file-abc"},
    "earlier file id": {"type": "file", "source_type": "id", "id": "file-abc"},
    "Anthropic's file id": {
        "type": "document",
        "source": {"type": "file", "file_id": "file_011"},
    },
    "Google's file": {
        "type": "media",
        "file_uri": "https://generativelanguage.googleapis.com/v1beta/files/x",
        "mime_type": "application/pdf",
    },
    "a sound": {"type": "audio", "base64": WAV, "mime_type": "audio/x-wav"},
    "a sound of OpenAI": {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
    "a film": {"type": "video", "base64": MP4, "mime_type": "video/mp4"},
    "a film of vLLM": {
        "type": "video_url",
        "video_url": {"url": f"data:video/mp4;base64,{MP4}"},
    },
    "Google's film": {"type": "media", "data": MP4, "mime_type": "video/mp4"},
    "a drawing": {"type": "image", "base64": "PHN2Zy8+", "mime_type": "image/svg+xml"},
    "no medium at all": {"type": "image"},
}
TEXTS: Mapping[str, Block] = {
    "a search result": {
        "type": "search_result",
        "source": "https://example.org/rent",
        "title": "Rents",
        "content": [{"type": "text", "text": "Rent is due on the first."}],
    },
    "JSON": {"type": "json", "json": {"rent": "Rent is due on the first."}},
    "a document": {
        "type": "document",
        "title": "Rents",
        "source": {
            "type": "text",
            "media_type": "text/plain",
            "data": "Rent is due on the first.",
        },
    },
    "plain text": {"type": "text-plain", "text": "Rent is due on the first."},
    "a text file": {"type": "file", "base64": TEXT, "mime_type": "text/plain"},
    "a text of Responses": {"type": "input_text", "text": "Rent is due on the first."},
    "a block of the future": {"type": "hologram", "caption": "Rent is due on the first."},
}
MEDIA = {**IMAGES, **FILES, **NOT_EVERYWHERE}
BLOCKS = {**MEDIA, **TEXTS}
PLACES = ("user", "tool")


def conversation_with(block: Block, place: str) -> list[BaseMessage]:
    """A conversation with a block in a user's message, or in the result of a tool."""
    content = [{"type": "text", "text": "Look."}, block]
    if place == "user":
        return [HumanMessage(content, id="1")]
    call = {"name": "look", "args": {}, "id": "call_1"}
    return [
        HumanMessage("Look.", id="0"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(content, tool_call_id="call_1", id="1"),
    ]


def block_sent(block: Block, provider: str, place: str = "user") -> Any:
    """What a provider is sent in place of a block."""
    sent, _ = sent_with(conversation_with(block, place), PROFILES[provider])
    return sent[-1].content[-1]


def profile_of(api: Api) -> Profile:
    name = {"chat": "openai", "anthropic": "anthropic", "gemini": "google"}.get(api.name)
    return PROFILES[name or "openai-responses"]


# What the packages of LangChain translate, and the APIs take

QUICK = 24
"""Cases of every test that the quick suite has, of all kinds."""


def shuffled(names: Iterable[str]) -> list[Any]:
    cases = list(product(APIS, PLACES, names))
    return few_are_quick(Random(0).sample(cases, len(cases)), QUICK)


@pytest.mark.parametrize("case", shuffled(BLOCKS), ids=", ".join)
def test_nothing_is_refused(case: tuple[str, str, str]) -> None:
    api_name, place, name = case
    api = APIS[api_name]
    sent, _ = sent_with(conversation_with(BLOCKS[name], place), profile_of(api))
    assert api.problems(sent) == []


@pytest.mark.parametrize("case", shuffled(BLOCKS), ids=", ".join)
def test_what_is_changed_is_told(case: tuple[str, str, str]) -> None:
    api_name, place, name = case
    api = APIS[api_name]
    messages = conversation_with(BLOCKS[name], place)
    sent, repairs = sent_with(messages, profile_of(api))
    assert (sent[-1] is messages[-1]) == (not repairs)


@pytest.mark.parametrize("case", shuffled([*IMAGES, *FILES]), ids=", ".join)
def test_every_picture_and_pdf_is_seen_in_any_form(case: tuple[str, str, str]) -> None:
    api_name, place, name = case
    api = APIS[api_name]
    sent, _ = sent_with(conversation_with(BLOCKS[name], place), profile_of(api))
    body = str(api.body_of(sent)).replace("-", "+").replace("_", "/")
    fetched = b64encode(PIXEL).decode()  # what Google's package would fetch
    assert any(data in body for data in (PNG, PDF, WEB_PNG, fetched))


READ_AS_THEY_ARE = [
    ("openai", "LangChain's bytes"),
    ("openai", "earlier bytes"),
    ("openai", "OpenAI's address"),
    ("openai", "Anthropic's bytes"),
    ("openai", "OpenAI's PDF"),
    ("openai", "a sound of OpenAI"),
    ("openai-responses", "Responses' address"),
    ("openai-responses", "a PDF's address"),
    ("openai-responses", "a text of Responses"),
    ("anthropic", "OpenAI's bytes"),
    ("anthropic", "Anthropic's address"),
    ("anthropic", "Anthropic's file id"),
    ("anthropic", "a search result"),
    ("anthropic", "a document"),
    ("anthropic", "plain text"),
    ("google", "OpenAI's bytes"),
    ("google", "Google's film"),
    ("google", "a film"),
    ("mistral", "OpenAI's address"),
    ("ollama", "LangChain's bytes"),
    ("bedrock-converse", "JSON"),
    ("openai-compatible", "a film of vLLM"),
    ("unknown", "a block of the future"),
    ("unknown", "a film"),
]


@pytest.mark.parametrize(("provider", "name"), READ_AS_THEY_ARE)
def test_a_form_that_is_read_stays(provider: str, name: str) -> None:
    messages = conversation_with(BLOCKS[name], "user")
    sent, repairs = sent_with(messages, PROFILES[provider])
    assert sent[0] is messages[0]
    assert repairs == []


WRITTEN = [
    ("openai", "Responses' bytes", IMAGES["LangChain's bytes"]),
    ("openai", "Responses' address", IMAGES["OpenAI's address"]),
    ("openai", "Google's bytes", IMAGES["LangChain's bytes"]),
    ("openai", "bytes of a wrong type", IMAGES["LangChain's bytes"]),
    ("openai", "Anthropic's PDF", FILES["LangChain's PDF"]),
    ("openai", "a sound", {"type": "audio", "base64": WAV, "mime_type": "audio/wav"}),
    (
        "openai-responses",
        "OpenAI's image id",
        {"type": "input_image", "file_id": "file-abc"},
    ),
    ("anthropic", "an address alone", IMAGES["LangChain's address"]),
    ("anthropic", "Google's PDF", FILES["LangChain's PDF"]),
    ("google", "Anthropic's bytes", IMAGES["LangChain's bytes"]),
    ("google", "a sound of OpenAI", {"type": "audio", "base64": WAV, "mime_type": "audio/wav"}),
    ("mistral", "Anthropic's bytes", IMAGES["OpenAI's bytes"]),
    (
        "mistral",
        "LangChain's PDF",
        {"type": "document_url", "document_url": PDF_URL},
    ),
    ("ollama", "Anthropic's bytes", IMAGES["LangChain's bytes"]),
    ("bedrock", "LangChain's PDF", FILES["Anthropic's PDF"]),
    ("openai-compatible", "Responses' bytes", IMAGES["OpenAI's bytes"]),
]


@pytest.mark.parametrize(("provider", "name", "expected"), WRITTEN)
def test_another_form_is_written_in_one_that_is_read(
    provider: str, name: str, expected: Block
) -> None:
    assert block_sent(BLOCKS[name], provider) == expected


LINES = [
    ("openai", "a film", "video"),
    ("openai", "a PDF's address", "file"),
    ("openai", "Anthropic's file id", "file"),
    ("openai", "OpenAI's image id", "image"),
    ("openai-responses", "a sound of OpenAI", "audio"),
    ("anthropic", "a sound", "audio"),
    ("anthropic", "Google's film", "video"),
    ("anthropic", "OpenAI's file id", "file"),
    ("anthropic", "a drawing", "image"),
    ("google", "OpenAI's file id", "file"),
    ("ollama", "LangChain's address", "image"),
    ("ollama", "LangChain's PDF", "file"),
    ("bedrock", "LangChain's address", "image"),
]


@pytest.mark.parametrize(("provider", "name", "kind"), LINES)
def test_what_is_not_taken_becomes_a_line(provider: str, name: str, kind: str) -> None:
    assert block_sent(BLOCKS[name], provider)["text"].startswith(f"[{kind} left out")


@pytest.mark.parametrize(("provider", "name"), [line[:2] for line in LINES])
def test_what_is_not_taken_is_told(provider: str, name: str) -> None:
    _, repairs = sent_with(conversation_with(BLOCKS[name], "user"), PROFILES[provider])
    assert [(repair.kind, repair.message_id) for repair in repairs] == [("media", "1")]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("provider", ["openai", "mistral", "ollama", "openai-compatible"])
def test_the_words_of_a_block_are_sent_as_text(provider: str, name: str, place: str) -> None:
    sent = block_sent(TEXTS[name], provider, place)
    assert sent["type"] == "text"
    assert "Rent is due on the first." in sent["text"]


@pytest.mark.parametrize("name", ["a search result", "a document"])
def test_a_text_tells_the_title(name: str) -> None:
    assert "Rents" in block_sent(TEXTS[name], "google")["text"]


def test_a_search_result_tells_its_source() -> None:
    sent = block_sent(TEXTS["a search result"], "openai")
    assert "https://example.org/rent" in sent["text"]


def test_what_is_said_beside_a_document_stays() -> None:
    document = {**FILES["Anthropic's PDF"], "title": "Lease", "context": "Signed in May."}
    messages = conversation_with(document, "user")

    sent, _ = sent_with(messages, PROFILES["openai"])

    assert sent[0].text.endswith("Signed in May.")
    assert sent[0].content[-1]["filename"] == "Lease"


def test_pictures_within_a_document_are_seen() -> None:
    inner = [{"type": "text", "text": "Figure 1"}, IMAGES["Anthropic's bytes"]]
    document = {"type": "document", "source": {"type": "content", "content": inner}}

    sent, _ = sent_with(conversation_with(document, "user"), PROFILES["openai"])

    assert sent[0].content[1:] == [
        {"type": "text", "text": "[document]\nFigure 1"},
        IMAGES["LangChain's bytes"],
    ]


def test_an_application_may_say_what_its_model_reads() -> None:
    profile = replace(PROFILES["openai"], media_forms=None)
    messages = conversation_with(MEDIA["a film"], "tool")
    sent, repairs = sent_with(messages, profile)
    assert sent[-1] is messages[-1]
    assert repairs == []


# Of assistants


@pytest.mark.parametrize("provider", ["google", "anthropic", "mistral"])
def test_a_refusal_is_text_where_its_form_is_not_read(provider: str) -> None:
    refusal = {"type": "refusal", "refusal": "I cannot help with that."}
    messages = [HumanMessage("Help."), AIMessage([refusal])]
    sent, _ = sent_with(messages, PROFILES[provider])
    assert sent[1].content == [{"type": "text", "text": "I cannot help with that."}]


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
def test_a_picture_of_gemini_is_a_line_for_others(provider: str) -> None:
    drawn = AIMessage(
        [{"type": "text", "text": "Here."}, IMAGES["OpenAI's bytes"]],
        response_metadata={"model_provider": "google_genai"},
    )
    sent, _ = sent_with([HumanMessage("Draw."), drawn], PROFILES[provider])
    assert PNG not in str(sent[1].content)
    assert "[image left out: image/png" in sent[1].text


def test_a_picture_of_gemini_goes_back_to_it() -> None:
    drawn = AIMessage(
        [{"type": "text", "text": "Here."}, IMAGES["OpenAI's bytes"]],
        response_metadata={"model_provider": "google_genai"},
    )
    sent, _ = sent_with([HumanMessage("Draw."), drawn], PROFILES["google"])
    assert sent[1] is drawn


# Screens


def test_a_screen_of_a_wrong_type_stays_with_its_call() -> None:
    call = {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "wait"}}
    screen = ToolMessage(
        [{"type": "input_image", "image_url": f"data:image/jpeg;base64,{PNG}"}],
        tool_call_id="c1",
        additional_kwargs={"type": "computer_call_output"},
    )
    messages = [
        HumanMessage("Look."),
        AIMessage([call], response_metadata={"model_provider": "openai"}),
        screen,
    ]
    sent, _ = sent_with(messages, PROFILES["openai-responses"])
    assert sent[-1] is screen


# Blocks that lack something


def answered(block: Block, *, as_result: bool) -> list[BaseMessage]:
    content: Any = [{"type": "text", "text": "Rent is due."}, block]
    if not as_result:
        return [HumanMessage(content, id="h1")]
    call = {"name": "look", "args": {}, "id": "c1"}
    result = ToolMessage(content, tool_call_id="c1", id="t1")
    return [HumanMessage("Look.", id="h1"), AIMessage("", tool_calls=[call], id="a1"), result]


CITED = {
    "type": "web_search_result_location",
    "url": "https://example.org",
    "title": "Foxes",
    "cited_text": "Fox",
    "encrypted_index": "Eo8B",
}
LACKING: Mapping[str, Block] = {
    "no base64": {"type": "image", "base64": "!!", "mime_type": "image/png"},
    "a search result of nothing": {"type": "search_result"},
    "a search result without a title": {
        "type": "search_result",
        "source": "https://example.org",
        "content": [{"type": "text", "text": "Fox"}],
    },
    "a document of no type": {"type": "document", "source": {"type": "text", "data": "Fox"}},
    "a result of nothing": {"type": "tool_result", "tool_use_id": "c9"},
    "a result inside": {"type": "tool_result", "tool_use_id": "c9", "content": "Fox"},
    "a call of nothing": {"type": "tool_use"},
    "a screen's call": {"type": "computer_call", "call_id": "c9", "action": {"type": "wait"}},
    "an output without its call": {"type": "shell_call_output", "call_id": "c9", "output": "Fox"},
    "a failed compaction": {"type": "compaction", "content": None},
    "a citing text": {"type": "text", "text": "Fox", "citations": [CITED]},
    "extras of a text": {"type": "text", "text": "Fox", "extras": {"signature": "EqQB"}},
    "a mark in extras": {
        "type": "text",
        "text": "Fox",
        "extras": {"cache_control": {"type": "ephemeral"}, "more": 1},
    },
}


@pytest.mark.parametrize("name", LACKING)
@pytest.mark.parametrize("api", APIS.values(), ids=list(APIS))
@pytest.mark.parametrize("as_result", [True, False], ids=["result", "user"])
def test_a_block_that_lacks_something_is_not_refused(name: str, api: Api, as_result: bool) -> None:
    profile = profile_of(api)

    sent, _ = sent_with(answered(LACKING[name], as_result=as_result), profile)

    assert api.problems(sent) == []
    assert "Rent is due." in str(sent)
