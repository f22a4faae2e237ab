"""Whose model a target is.

Told by the model object, and by a name only where there is nothing else.
"""

from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_mistralai import ChatMistralAI
from langchain_ollama import ChatOllama
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.providers import PROFILES, profile_named, profile_of

GATEWAY = "http://gateway.invalid/v1"
SEARCH = {"type": "web_search"}


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return city


class OwnModel(FakeListChatModel):
    """A class of the application's own, which does not tell its provider."""

    responses: list[str] = Field(default_factory=lambda: ["x"])
    model_name: str = ""


class ChatAnthropicVertex(OwnModel):
    """By the name of langchain-google-vertexai's class, which is not installed."""


class ChatBedrock(OwnModel):
    """By the name of langchain-aws's class, which is not installed."""

    model_id: str
    provider: str | None = None
    beta_use_converse_api: bool = False


class ChatBedrockConverse(OwnModel):
    """By the name of langchain-aws's class, which is not installed."""


class ChatOther(ChatOpenAI):
    """A class that tells another provider than the one that it is made of."""

    def _get_ls_params(self, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(**kwargs), "ls_provider": "deepseek"}


def openai(name: str, url: str | None = None, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=url, api_key="x", **options)


def azure(**options: Any) -> AzureChatOpenAI:
    where: dict[str, Any] = {
        "azure_endpoint": "https://gateway.invalid",
        "api_version": "2025-01-01",
        "api_key": "x",
    }
    return AzureChatOpenAI(azure_deployment="our-assistant", **where, **options)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (None, "unknown"),
        ("gpt-4o", "openai"),
        ("openai:our-tuned-model", "openai"),
        ("ft:gpt-4o:acme::1", "openai"),
        ("gemini-2.5-pro", "google"),
        ("mistral-large-latest", "mistral"),
        ("codestral-latest", "mistral"),
        ("ministral-8b-latest", "mistral"),
        ("magistral-medium-latest", "mistral"),
        ("pixtral-large-latest", "mistral"),
        ("open-mistral-nemo", "mistral"),
        ("claude-sonnet-4-5", "anthropic"),
        ("mistralai:our-tuned-model", "mistral"),
        ("our-tuned-model", "unknown"),
        (OwnModel(model_name="gpt-4o"), "openai"),
        (OwnModel(model_name="my-gpt"), "unknown"),
    ],
    ids=lambda value: getattr(value, "model_name", None) or str(value)[:40],
)
def test_a_name_tells_where_there_is_nothing_else(model: Any, name: str) -> None:
    assert profile_of(model).name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (openai("our-tuned-model"), "openai"),
        (openai("claude-3"), "openai"),
        (openai("gpt-4o", GATEWAY), "openai-compatible"),
        (openai("gemini-2.5-pro", GATEWAY), "openai-compatible"),
        (openai("gpt-4o", GATEWAY, use_responses_api=True), "openai-compatible-responses"),
        (ChatOther(model="gpt-4o", api_key="x"), "openai-compatible"),
        (azure(), "azure"),
        (azure(use_responses_api=True), "azure-responses"),
        (ChatAnthropic(model="gpt-4o", api_key="x"), "anthropic"),
        (ChatAnthropicVertex(), "anthropic-vertex"),
        (ChatBedrock(model_id="us.anthropic.claude-sonnet-4-5"), "bedrock"),
        (ChatBedrock(model_id="arn:aws:bedrock:x", provider="anthropic"), "bedrock"),
        (ChatBedrock(model_id="meta.llama3-1-8b"), "unknown"),
        (ChatBedrock(model_id="x", beta_use_converse_api=True), "bedrock-converse"),
        (ChatBedrockConverse(), "bedrock-converse"),
        (ChatGoogleGenerativeAI(model="gemini-2.5-pro", api_key="x"), "google"),
        (ChatMistralAI(model="gpt-4o", api_key="x"), "mistral"),
        (ChatOllama(model="gpt-4o"), "ollama"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_model_object_tells_whose_it_is(model: Any, name: str) -> None:
    assert profile_of(model).name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (openai("gpt-4o"), "openai"),
        (openai("gpt-4o", use_responses_api=True), "openai-responses"),
        (openai("gpt-4o", output_version="responses/v1"), "openai-responses"),
        (openai("o4-mini", reasoning={"effort": "low"}), "openai-responses"),
        (openai("gpt-5-codex"), "openai-responses"),
        (openai("gpt-4o").bind_tools([SEARCH]), "openai-responses"),
        (openai("gpt-4o").bind_tools([weather]), "openai"),
        (openai("gpt-4o").bind(previous_response_id="resp_1"), "openai-responses"),
        (openai("gpt-4o", use_responses_api=False).bind_tools([SEARCH]), "openai"),
    ],
)
def test_a_request_goes_where_its_class_sends_it(model: Any, name: str) -> None:
    assert profile_of(model).name == name


@pytest.mark.parametrize(
    ("name", "tools", "expected"),
    [
        ("gpt-4o", [SEARCH], "openai-responses"),
        ("gpt-4o", [weather], "openai"),
        ("gpt-6", [weather], "openai-responses"),
    ],
)
def test_the_tools_of_a_call_decide_where_it_goes(
    name: str, tools: list[Any], expected: str
) -> None:
    assert profile_of(openai(name), tools).name == expected


CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
MISTRAL = ChatMistralAI(model="mistral-large", api_key="x")
EITHER = ConfigurableField(id="which")


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        (azure().with_fallbacks([CLAUDE]), 40),
        (CLAUDE.with_fallbacks([azure()]), 40),
        (
            CLAUDE.with_fallbacks([openai("our-tuned-model").bind(temperature=0)]).with_config(
                tags=["x"]
            ),
            40,
        ),
        (CLAUDE.with_fallbacks([MISTRAL]), 9),
        (CLAUDE.with_fallbacks([CLAUDE]), None),
        (CLAUDE.configurable_alternatives(EITHER, default_key="claude", azure=azure()), 40),
        (CLAUDE.configurable_alternatives(EITHER, default_key="claude", other=CLAUDE), None),
    ],
)
def test_of_several_models_each_takes_the_ids(model: Any, longest: int | None) -> None:
    assert profile_of(model).call_ids.longest == longest


def test_ids_for_several_models_have_characters_that_each_takes() -> None:
    ids = profile_of(openai("gpt-4o").with_fallbacks([CLAUDE])).call_ids
    assert ids.accepted("functions.search:0").isidentifier()


@pytest.mark.parametrize("model", [openai("gpt-4o"), CLAUDE])
def test_a_fallback_that_wants_answers_behind_results_gets_them(model: Any) -> None:
    assert not profile_of(model).answers_follow_results
    assert profile_of(model.with_fallbacks([MISTRAL])).answers_follow_results


@pytest.mark.parametrize(("fallback", "taken"), [(openai("gpt-4o"), False), (CLAUDE, True)])
def test_server_tools_go_to_several_models_if_each_takes_them(fallback: Any, taken: bool) -> None:
    items = profile_of(CLAUDE.with_fallbacks([fallback])).items
    assert items is not None
    assert ("server_tool_use" in items.types) is taken
    assert "thinking" in items.types


def test_an_address_in_the_environment_is_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", GATEWAY)
    assert profile_of(openai("gpt-4o")).name == "openai-compatible"


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_goes_by_its_name(name: str) -> None:
    assert profile_named(name).name == name


@pytest.mark.parametrize(
    ("name", "expected"), [("mistralai", "mistral"), ("google_vertexai", "google-vertex")]
)
def test_a_profile_goes_by_what_langchain_calls_the_provider(name: str, expected: str) -> None:
    assert profile_named(name).name == expected


@pytest.mark.parametrize("provider", ["antropic", "", None, 3, ["openai"]])
def test_an_unknown_provider_is_an_error_that_names_the_known(provider: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="anthropic, anthropic-vertex, azure"):
        profile_named(provider)
