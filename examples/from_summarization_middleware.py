"""Moving from `SummarizationMiddleware`.

The agent before and after, side by side on one conversation.

The stock middleware rewrites the agent's state: when it has grown to a limit, a model sums up all
but the newest messages while the user waits, and the messages themselves are deleted. So what the
summary leaves out is gone, and what it keeps takes up room for ever. The new middleware leaves the
state alone and chooses for every call what fits; it calls no model for that, and looks up what the
question is about.

Runs offline with two scripted models, one that writes long summaries and one that writes short
ones; with OPENAI_API_KEY set it calls the real one, some 300 times.

    python examples/from_summarization_middleware.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from uuid import UUID

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    convert_to_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxbudget import TiktokenCounter
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.middleware import ContextBudgetMiddleware

LIMIT_TOKENS = 2_000
SHOWN_TURNS = (5, 10, 20, 40, 60, 80, 100, 120, 139)
FACTS = ("Etch & Field", "38p", "16 October")
"""What the question asks for; said in the turns 8 to 10, and never again."""

counter = TiktokenCounter()


def count_tokens(messages: Iterable[MessageLikeRepresentation]) -> int:
    """Count exactly; the stock middleware estimates."""
    return counter.count_messages(convert_to_messages(messages))


def before(model: BaseChatModel) -> Any:
    """An agent as it was."""
    return create_agent(
        model,
        system_prompt=DEMO_SYSTEM_PROMPT,
        middleware=[
            SummarizationMiddleware(
                model,
                trigger=("tokens", LIMIT_TOKENS),
                keep=("tokens", LIMIT_TOKENS // 2),
                token_counter=count_tokens,
                trim_tokens_to_summarize=None,  # by default it reads the newest 4,000 tokens only
            )
        ],
        checkpointer=InMemorySaver(),
    )


def after(model: BaseChatModel) -> Any:
    """The same agent with a budget; a real one has the recall tool, too."""
    return create_agent(
        model,
        system_prompt=DEMO_SYSTEM_PROMPT,
        middleware=[
            ContextBudgetMiddleware(
                {"max_context_tokens": LIMIT_TOKENS}, default_user="maya", recall_tool=False
            )
        ],
        checkpointer=InMemorySaver(),
    )


class ScriptedModel(BaseChatModel):
    """Says its lines, sums up by the longest sentence of every message, and answers the question from its prompt."""

    sentences: int
    """How many sentences its summary has at most, the newest ones."""
    lines: dict[str, str]
    """What it answers to a message."""

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
        text = "\n".join(message.text for message in messages)
        _, asks_for_summary, given = text.partition("Messages to summarize:")
        answer = self._summary(given) if asks_for_summary else self._answer(text, messages[-1].text)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])

    def _summary(self, given: str) -> str:
        kept: list[str] = []
        for message in map(
            unescape, re.findall(r'<message type="\w+">(.*?)</message>', given, re.DOTALL)
        ):
            _, is_summary, earlier = message.partition(
                "Here is a summary of the conversation to date:\n\n"
            )
            kept += (
                earlier.splitlines()
                if is_summary
                else [max(re.split(r"(?<=[.?!])\s", message), key=len)]
            )
        return "\n".join(kept[-self.sentences :])

    def _answer(self, prompt: str, last: str) -> str:
        asked = last.rpartition("</context>\n\n")[
            2
        ]  # what was retrieved for the user's words stands before them
        found = [fact for fact in FACTS if fact in prompt]
        return self.lines.get(asked) or (", ".join(found) if found else "I do not know.")


@dataclass(eq=False)
class Calls(BaseCallbackHandler):
    """What a model was called for."""

    sent: list[BaseMessage] = field(default_factory=list)
    """The newest prompt of the agent."""
    summaries: int = 0
    summary_tokens: int = 0
    """Of the prompts of all summaries."""

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - as the base class has it
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,  # noqa: ARG002
        metadata: dict[str, Any] | None = None,
        **_kwargs: Any,
    ) -> None:
        """Tell summaries from answers by what LangChain says of the call."""
        if (metadata or {}).get("lc_source") == "summarization":
            self.summaries += 1
            self.summary_tokens += counter.count_messages(messages[0])
        else:
            self.sent = messages[0]


def make_models(lines: dict[str, str]) -> dict[str, BaseChatModel]:
    """The real model where there is a key, else two that keep more and less in their summaries."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return {"gpt-4o-mini": ChatOpenAI(model="gpt-4o-mini", temperature=0)}
    return {
        "long summary": ScriptedModel(sentences=1_000, lines=lines),
        "short summary": ScriptedModel(sentences=20, lines=lines),
    }


def main() -> None:
    """Have the same conversation with every agent, and ask all of them for what was said at its beginning."""
    said = [message.text for message in demo_messages()]
    models = make_models(dict(zip(said[::2], said[1::2], strict=True)))
    agents = {f"before, {name}": before(model) for name, model in models.items()}
    agents["after"] = after(next(iter(models.values())))
    calls = {name: Calls() for name in agents}
    states: dict[str, Any] = {}
    print(
        f"limit: {LIMIT_TOKENS:,} tokens; messages in the state, tokens of the prompt, summaries so far:"
    )
    print("turn" + "".join(f"{name:>26}" for name in agents))
    print("    " + "".join(f"{'state':>10}{'sent':>8}{'written':>8}" for _ in agents))
    for turn, question in enumerate([*said[::2], DEMO_QUESTION], 1):
        for name, agent in agents.items():
            config = {"configurable": {"thread_id": "tools"}, "callbacks": [calls[name]]}
            states[name] = agent.invoke({"messages": [HumanMessage(question)]}, config)["messages"]
        if turn in SHOWN_TURNS:
            row = (
                f"{len(states[name]):>10}{counter.count_messages(calls[name].sent):>8,}{calls[name].summaries:>8}"
                for name in agents
            )
            print(f"{turn:>4}" + "".join(row))
    print(f"\n{DEMO_QUESTION}")
    for name in agents:
        text = "\n".join(message.text for message in calls[name].sent)
        sent = sum(fact in text for fact in FACTS)
        print(
            f"{name + ':':<23} {states[name][-1].text} ({sent} of {len(FACTS)} facts sent; "
            f"{calls[name].summary_tokens:,} tokens read for summaries)"
        )


if __name__ == "__main__":
    main()
