"""Moving from `ConversationSummaryBufferMemory`.

The chain before and after, side by side on one conversation.

The old memory has a limit for the newest messages. What it takes from them goes into a summary that
its model writes anew after most turns, while the user waits; the limit is not for the summary, and
the messages themselves are gone. So a model that keeps everything makes the prompt grow, and one
that keeps its summary short forgets. The new memory has a limit for the whole prompt, calls no
model for it, keeps every message and looks up what the question is about.

Runs offline with two scripted models, one for each habit; with OPENAI_API_KEY set it calls the real
one, which writes some hundred summaries. LangChain has deprecated chains with a memory: for new
code, see graph_agent.py.

    python examples/from_summary_buffer_memory.py
"""

from __future__ import annotations

import os
import re
from typing import Any

from langchain_classic.chains import LLMChain
from langchain_classic.memory import ConversationSummaryBufferMemory
from langchain_core._api import suppress_langchain_deprecation_warning
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.memory import BudgetedMemory

LIMIT_TOKENS = 2_000
SHOWN_TURNS = (5, 10, 20, 40, 60, 80, 100, 120, 139)
FACTS = ("Etch & Field", "38p", "16 October")
"""What the question asks for; said in the turns 8 to 10, and never again."""


class ScriptedModel(BaseChatModel):
    """Sums up by the longest sentence of every message, and answers from what it is sent."""

    sentences: int
    """How many sentences its summary has at most, the newest ones."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def get_num_tokens_from_messages(
        self,
        messages: list[BaseMessage],
        *_args: Any,
        **_kwargs: Any,
    ) -> int:
        """Count exactly, without fetching a tokenizer."""
        return TiktokenCounter().count_messages(messages)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - as the base class has it
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> ChatResult:
        text = "\n".join(message.text for message in messages)
        answer = (
            self._summary(text)
            if text.startswith("Progressively summarize")
            else self._answer(text)
        )
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])

    def _summary(self, prompt: str) -> str:
        _, _, given = prompt.rpartition("Current summary:\n")
        summary, _, rest = given.partition("\n\nNew lines of conversation:\n")
        lines = rest.removesuffix("\n\nNew summary:").splitlines()
        new = [max(re.split(r"(?<=[.?!]) ", line.partition(": ")[2]), key=len) for line in lines]
        return "\n".join([*summary.splitlines(), *filter(None, new)][-self.sentences :])

    @staticmethod
    def _answer(prompt: str) -> str:
        found = [fact for fact in FACTS if fact in prompt]
        return ", ".join(found) if found else "I do not know."


def make_models() -> dict[str, BaseChatModel]:
    """The real model where there is a key, else two that keep more and less in their summaries."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return {"gpt-4o-mini": ChatOpenAI(model="gpt-4o-mini", temperature=0)}
    return {
        "long summary": ScriptedModel(sentences=1_000),
        "short summary": ScriptedModel(sentences=20),
    }


def before(model: BaseChatModel) -> LLMChain:
    """A chain as it was."""
    memory = ConversationSummaryBufferMemory(
        llm=model, max_token_limit=LIMIT_TOKENS, return_messages=True
    )
    prompt = ChatPromptTemplate(
        [("system", DEMO_SYSTEM_PROMPT), MessagesPlaceholder("history"), ("human", "{input}")]
    )
    return LLMChain(llm=model, prompt=prompt, memory=memory)


def after(model: BaseChatModel, pipeline: ContextPipeline) -> LLMChain:
    """The same chain with a budget: the memory fills its whole prompt."""
    memory = BudgetedMemory(
        pipeline=pipeline, user_id="maya", conversation_id="tools", whole_prompt=True
    )
    return LLMChain(
        llm=model, prompt=ChatPromptTemplate([MessagesPlaceholder("history")]), memory=memory
    )


def sent(chain: LLMChain, question: str) -> list[BaseMessage]:
    """What the chain would send to its model for a question."""
    prompts, _ = chain.prep_prompts([chain.prep_inputs({"input": question})])
    messages: list[BaseMessage] = prompts[0].to_messages()
    return messages


def main() -> None:
    """Have the same conversation with every chain, and ask all of them for what was said at its beginning."""
    models = make_models()
    # What was said long ago matters more here than a provider's cache of prompts.
    settings = {"max_context_tokens": LIMIT_TOKENS, "emphasis": "recall"}
    with (
        ContextPipeline(settings, system_prompt=DEMO_SYSTEM_PROMPT) as pipeline,
        suppress_langchain_deprecation_warning(),
    ):
        chains = {f"before, {name}": before(model) for name, model in models.items()}
        chains["after"] = after(next(iter(models.values())), pipeline)
        said = demo_messages()
        print(
            f"limit: {LIMIT_TOKENS:,} tokens; in the prompt of a question for three facts of turns 8 to 10:"
        )
        print("turn" + "".join(f"{name:>25}" for name in chains))
        print("    " + "".join(f"{'tokens':>18}{'facts':>7}" for _ in chains))
        for turn, (human, ai) in enumerate(zip(said[::2], said[1::2], strict=True), 1):
            for chain in chains.values():
                chain.memory.save_context({"input": human.text}, {"output": ai.text})
            if turn in SHOWN_TURNS:
                print(
                    f"{turn:>4}"
                    + "".join(
                        account(sent(chain, DEMO_QUESTION), pipeline) for chain in chains.values()
                    )
                )
        print(f"\n{DEMO_QUESTION}")
        for name, chain in chains.items():
            print(f"{name + ':':<23} {chain.invoke({'input': DEMO_QUESTION})['text']}")


def account(prompt: list[BaseMessage], pipeline: ContextPipeline) -> str:
    """The tokens of a prompt, and how many of the facts stand in it."""
    text = "\n".join(message.text for message in prompt)
    return f"{pipeline.token_counter.count_messages(prompt):>18,}{sum(fact in text for fact in FACTS):>5}/3"


if __name__ == "__main__":
    main()
