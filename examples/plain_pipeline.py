"""A chat loop around the plain object: assemble, call the model, add what was said.

Runs offline with a scripted model; with OPENAI_API_KEY set it calls the real one.

    python examples/plain_pipeline.py
"""

from __future__ import annotations

import os

from langchain_core.language_models import BaseChatModel, FakeListChatModel

from langchain_ctxbudget import ContextPipeline, ContextSettings

QUESTIONS = [
    "My locker at the climbing hall is number 214, code 7391. Please remember that.",
    *(f"Tell me one thing about mountain number {number}, please." for number in range(1, 40)),
    "What was the number of my locker?",
]


def make_model() -> BaseChatModel:
    """The real model where there is a key, else one that says its lines."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini")
    remarks = [f"Mountain number {number} is worth a long day out." for number in range(1, 40)]
    return FakeListChatModel(responses=["Noted.", *remarks, "It stands in the context above."])


def main() -> None:
    """Talk until the first message no longer fits, and ask for it."""
    model = make_model()
    pipeline = ContextPipeline(
        ContextSettings(max_context_tokens=700, preferences=("Answer in one sentence.",)),
        system_prompt="You are a friendly assistant.",
    )
    chat = pipeline.conversation("climbing", user_id="ada")
    for question in QUESTIONS:
        context = chat.assemble(question)
        answer = model.invoke(context.messages)
        chat.add(context.turn, answer)
    print(context.messages[-1].text)
    print()
    print(f"assistant: {answer.text}")
    print()
    print(context.report)
    pipeline.close()


if __name__ == "__main__":
    main()
