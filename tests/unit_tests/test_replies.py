"""How the classes of models are asked for a schema and for the longest reply."""

import json

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_mistralai import ChatMistralAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import Field

from langchain_ctxbudget.history.summarizing import SCHEMA as SUMMARY
from langchain_ctxbudget.knowledge.extraction import SCHEMA as LEARNED
from langchain_ctxbudget.llm import StructuredModel
from langchain_ctxbudget.providers import bound_to_schema, with_longest_reply
from langchain_ctxbudget.providers.replies import THOUGHT_TOKENS, longest_reply
from langchain_ctxbudget.tokens import Purpose
from tests.scripted_models import Scripted

GPT = ChatOpenAI(model="gpt-4o-mini", api_key="x")
CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
LLAMA = ChatOllama(model="llama3", temperature=0.5)


def strictly(model, schema=LEARNED):
    return bound_to_schema(model, schema, is_strict=True, reply_tokens=900)


@pytest.mark.parametrize("schema", [LEARNED, SUMMARY], ids=["learning", "summary"])
def test_openai_is_held_to_the_schema(schema):
    response_format = strictly(GPT, schema).kwargs["response_format"]

    assert response_format["json_schema"]["strict"] is True


def test_claude_is_held_to_the_schema():
    assert strictly(CLAUDE).kwargs["output_config"]["format"]["type"] == "json_schema"


def test_a_model_without_structured_output_cannot_be_bound():
    assert strictly(Scripted(script=[""])) is None


@pytest.mark.parametrize(
    ("model", "argument"),
    [
        pytest.param(GPT, "max_tokens", id="OpenAI"),
        pytest.param(CLAUDE, "max_tokens", id="Anthropic"),
        pytest.param(ChatMistralAI(model="m", api_key="x"), "max_tokens", id="Mistral"),
        pytest.param(
            ChatGoogleGenerativeAI(model="g", api_key="x"), "max_output_tokens", id="Google"
        ),
        pytest.param(GPT.bind(temperature=0), "max_tokens", id="bound"),
        pytest.param(GPT.with_fallbacks([CLAUDE]), "max_tokens", id="fallbacks"),
    ],
)
def test_the_limit_is_bound_under_the_name_that_the_class_knows(model, argument):
    assert with_longest_reply(model, model, 900).kwargs[argument] == 900


@pytest.mark.parametrize("model", [LLAMA, LLAMA.bind(stop=["x"])], ids=["plain", "bound"])
def test_ollama_gets_the_limit_beside_its_other_options(model):
    limited = with_longest_reply(model, model, 900)
    inner = getattr(limited, "bound", limited)

    assert (inner.num_predict, inner.temperature) == (900, 0.5)
    assert LLAMA.num_predict is None


def test_ollama_bound_to_a_schema_has_the_limit():
    assert strictly(LLAMA).bound.num_predict == 900


@pytest.mark.parametrize(
    ("model", "thoughts"),
    [
        pytest.param(GPT, 0, id="does not think"),
        pytest.param(CLAUDE, 0, id="is not asked to"),
        pytest.param(
            ChatAnthropic(
                model="claude-sonnet-4-5",
                api_key="x",
                thinking={"type": "enabled", "budget_tokens": 2_000},
            ),
            2_000,
            id="a budget",
        ),
        pytest.param(ChatOpenAI(model="gpt-5", api_key="x"), THOUGHT_TOKENS, id="thinks"),
        pytest.param(
            ChatGoogleGenerativeAI(model="gemini-2.5-flash", api_key="x", thinking_budget=0),
            0,
            id="a budget of none",
        ),
    ],
)
def test_thoughts_have_room_beside_the_reply(model, thoughts):
    assert longest_reply(model, 900) == 900 + thoughts


def test_the_limit_is_no_more_than_the_model_takes():
    assert longest_reply(Scripted(script=[""], profile={"max_output_tokens": 500}), 900) == 500


# Models that refuse an argument


class Refusing(BaseChatModel):
    """Refuses calls with an argument."""

    refused: str = "max_tokens"
    calls: list = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "refusing"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=tools)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.calls.append(sorted(kwargs))
        if self.refused in kwargs:
            raise TypeError(f"unexpected keyword argument {self.refused!r}")
        return ChatResult(generations=[ChatGeneration(message=AIMessage('{"answer": 1}'))])


def asked(model, times):
    structured = StructuredModel(
        model,
        SUMMARY,
        purpose=Purpose.SUMMARY,
        names=("run", "source"),
        quotes=True,
        reply_tokens=900,
    )
    for _ in range(times):
        structured.ask("Say it.", " As JSON.", "data", json.loads, failed="said nothing")
    return model.calls


def test_a_refused_limit_breaks_nothing_and_is_not_tried_again():
    calls = asked(Refusing(), times=3)

    assert calls == [["max_tokens", "tools"], [], ["tools"], ["tools"]]


def test_a_refused_schema_breaks_nothing_and_is_not_tried_again():
    calls = asked(Refusing(refused="tools"), times=4)

    assert calls == [["max_tokens", "tools"], [], ["tools"], [], [], []]


def limits_of(*script):
    """The limits of the calls of a model without structured output that answers by a script."""

    class Noting(Scripted):
        limits: list = Field(default_factory=list)

        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            self.limits.append(kwargs.get("max_tokens"))
            return super()._generate(messages, stop, run_manager)

    model = Noting(script=list(script))
    structured = StructuredModel(
        model,
        SUMMARY,
        purpose=Purpose.SUMMARY,
        names=("run", "source"),
        quotes=True,
        reply_tokens=900,
    )
    structured.ask("Say it.", " As JSON.", "data", json.loads, failed="said nothing")
    return model.limits


def test_a_reply_that_may_have_been_cut_off_is_asked_for_with_twice_the_limit():
    assert limits_of('{"answer": ', '{"answer": 1}') == [900, 1_800]
