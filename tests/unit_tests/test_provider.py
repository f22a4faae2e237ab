"""Whose model a target is.

Told by the model object, and by a name only where there is nothing else.
"""

from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import ConfigurableField
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from langchain_ctxbudget.providers import profile_of

OF_OPENAI = 40


class OwnModel(FakeListChatModel):
    """A class of the application's own, which does not tell its provider."""

    responses: list[str] = Field(default_factory=lambda: ["x"])
    model_name: str = ""


def openai(name: str, url: str | None = None) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=url, api_key="x")


def azure() -> AzureChatOpenAI:
    where: dict[str, Any] = {
        "azure_endpoint": "https://gateway.invalid",
        "api_version": "2025-01-01",
        "api_key": "x",
    }
    return AzureChatOpenAI(azure_deployment="our-assistant", **where)


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        ("gpt-4o", OF_OPENAI),
        ("openai:our-tuned-model", OF_OPENAI),
        ("ft:gpt-4o:acme::1", OF_OPENAI),
        ("gemini-2.5-pro", None),
        ("claude-sonnet-4-5", None),
        (None, None),
        (openai("our-tuned-model"), OF_OPENAI),
        (openai("our-tuned-model").bind(temperature=0), OF_OPENAI),
        (azure(), OF_OPENAI),
        (openai("gpt-4o", "http://gateway.invalid/v1"), OF_OPENAI),
        (openai("gemini-2.5-pro", "http://gateway.invalid/v1"), None),
        (ChatAnthropic(model="claude-sonnet-4-5", api_key="x"), None),
        (OwnModel(model_name="gpt-4o"), OF_OPENAI),
        (OwnModel(model_name="my-gpt"), None),
    ],
    ids=lambda value: getattr(value, "model_name", None) or str(value)[:40],
)
def test_openai_and_azure_limit_ids_of_calls_and_others_do_not(
    model: Any, longest: int | None
) -> None:
    assert profile_of(model).call_ids.longest == longest


CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
EITHER = ConfigurableField(id="which")


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        (azure().with_fallbacks([CLAUDE]), OF_OPENAI),
        (CLAUDE.with_fallbacks([azure()]), OF_OPENAI),
        (
            CLAUDE.with_fallbacks([openai("our-tuned-model").bind(temperature=0)]).with_config(
                tags=["x"]
            ),
            OF_OPENAI,
        ),
        (CLAUDE.with_fallbacks([CLAUDE]), None),
        (CLAUDE.configurable_alternatives(EITHER, default_key="claude", azure=azure()), OF_OPENAI),
        (CLAUDE.configurable_alternatives(EITHER, default_key="claude", other=CLAUDE), None),
    ],
)
def test_one_of_openai_among_several_is_enough(model: Any, longest: int | None) -> None:
    assert profile_of(model).call_ids.longest == longest


def test_an_address_in_the_environment_is_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.invalid/v1")
    assert profile_of(openai("gemini-2.5-pro")).call_ids.longest is None
