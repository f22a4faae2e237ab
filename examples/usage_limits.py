"""A chat that runs low.

The less is left of its limit, the smaller its prompts, and no call is refused.

The limit is one of tokens per conversation; of cost, or of a user's month, it works the same. For
every turn the table shows what was left, which tier that is, the budget and what was sent of it,
how many earlier messages were in it verbatim and how many in short, and what it cost. Then the same
chat without a limit, for what the tiers have saved.

Runs offline with a scripted model that reports usage; with OPENAI_API_KEY set it calls the real
one.

    python examples/usage_limits.py
"""

from __future__ import annotations

import os
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.integrations.callbacks import ContextUsageHandler
from langchain_ctxbudget.tokens import Usage

MODEL = "gpt-4o-mini"
LIMITS = {"session_tokens": 25_000}
SETTINGS = {"max_context_tokens": 2_000, "learn": False}
EARLIER = range(25)
NOW = range(25, 45)
"""The mountains that were spoken of before there was a limit, and those that are asked for now."""


def question(number: int) -> str:
    """What the user asks."""
    return f"Tell me about mountain {number}: how high is it, and who was up there first?"


def story(number: int) -> str:
    """What the scripted model knows."""
    return (
        f"Mountain {number} is {2_000 + 37 * number:,} metres high. A party of {number + 2} from the valley was first "
        f"on its top, in {1850 + number}, by the {('north', 'south', 'west')[number % 3]} ridge and in rain. They "
        f"left {number + 3} coins under a stone, which were found {number + 40} years later, and the diary of their "
        f"guide, which is in the museum, room {number % 7 + 1}, beside his rope and his boots."
    )


class ScriptedModel(BaseChatModel):
    """Says something about a mountain, and what that used."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - as the base class has it
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> ChatResult:
        asked = messages[-1].text.rpartition("</context>")[2].strip()
        text = story(next(number for number in NOW if question(number) == asked))
        counter = TiktokenCounter()
        read = counter.count_messages(messages)
        said = counter.count_text(text)
        usage = UsageMetadata(input_tokens=read, output_tokens=said, total_tokens=read + said)
        answer = AIMessage(text, usage_metadata=usage, response_metadata={"model_name": MODEL})
        return ChatResult(generations=[ChatGeneration(message=answer)])


def make_model() -> BaseChatModel:
    """The real model where there is a key, else the scripted one."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model=MODEL)
    return ScriptedModel()


def talk(limits: dict[str, int] | None, *, tell: bool) -> Usage:
    """Go on with a chat; what that used.

    Args:
        limits: of usage; None: none.
        tell: whether to print a line per turn.
    """
    model = make_model()
    settings = SETTINGS | {"usage_limits": limits}
    scope = {"user_id": "ada", "conversation_id": "mountains"}
    with ContextPipeline(settings, system_prompt="You know mountains.", model=MODEL) as pipeline:
        handler = ContextUsageHandler(pipeline)
        for number in EARLIER:
            pipeline.add_messages(
                [HumanMessage(question(number)), AIMessage(story(number))], **scope
            )
        for turn, number in enumerate(NOW, 1):
            context = pipeline.assemble(
                question(number), user_id=scope["user_id"], conversation_id=scope["conversation_id"]
            )
            before = pipeline.usage.of_session(**scope)
            answer = model.invoke(context.messages, {"callbacks": [handler]})
            used = pipeline.usage.of_session(**scope)
            pipeline.add_messages([HumanMessage(question(number)), answer], **scope)
            report = context.report
            if tell and report.usage:
                left = report.usage.left
                tier = report.usage.tier
                shown = report.coverage_counts()
                verbatim = shown["verbatim"]
                in_short = shown["summarized"] + shown["retrieved"]
                print(
                    f"{turn:>4}{left:>7.0%}  {tier:<10}{report.budget_tokens:>7,}{report.total_tokens:>7,}"
                    f"{verbatim:>10}{in_short:>10}   ${used.cost - before.cost:.6f}"
                )
        return pipeline.usage.of_session(**scope)


def main() -> None:
    """The same chat with and without a limit."""
    print("turn   left  tier       budget   sent  verbatim  in short        cost")
    limited = talk(LIMITS, tell=True)
    full = talk(None, tell=False)
    print()
    for name, used in (("with the limit", limited), ("without", full)):
        print(
            f"{name:<16}{used.calls} calls, {used.input_tokens:>6,} tokens sent, ${used.cost:.4f}"
        )
    print(f"saved           {1 - limited.input_tokens / full.input_tokens:.0%} of the tokens sent")


if __name__ == "__main__":
    main()
