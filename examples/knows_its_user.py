"""An assistant that knows its user.

Three sessions on three days, and one of them changes what was said before.

What the user says about themselves is learned in the background when a session ends, and stands in
the prompts of the next ones. The example shows what is known after each day, asks where a fact
comes from, and has one deleted.

Runs offline, where the user's own sentences are learned; with OPENAI_API_KEY set the real model
answers and learns.

    python examples/knows_its_user.py
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import ContextPipeline

USER = "ada"
DAYS = {
    "monday": [
        "Hello! I live in Lisbon with my two cats.",
        "I work as a nurse at the children's hospital. But only on weekdays.",
        "My sister Clara lives in Porto.",
    ],
    "tuesday": ["Clara found me a flat. I live in Porto now with my two cats."],
    "wednesday": ["From where does my train leave on Saturday, and can I take it?"],
}
TODAY = datetime(2026, 3, 2, 18, tzinfo=UTC)


def make_model() -> BaseChatModel:
    """The real model where there is a key, else one that says its lines."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini", temperature=0)
    lines = [
        "Hello Ada!",
        "Noted.",
        "How nice.",
        "Congratulations!",
    ]
    return FakeListChatModel(responses=[*lines, "From Porto, and you do not work on Saturdays."])


def main() -> None:
    """Talk on three days, and look at what is known."""
    model = make_model()
    clock = Clock()
    writer = model if os.environ.get("OPENAI_API_KEY") else None
    settings = {
        "max_context_tokens": 4_000,
        "sources": (),
    }  # without the other conversations: what it knows must do
    with ContextPipeline(
        settings, system_prompt="You book trips.", summary_model=writer, clock=clock
    ) as pipeline:
        for day, said in DAYS.items():
            print(f"{day}, {clock().date()}")
            for text in said:
                context = pipeline.assemble(text, user_id=USER, conversation_id=day)
                answer = model.invoke(context.messages)
                question = HumanMessage(text, additional_kwargs={"created_at": clock().isoformat()})
                pipeline.add_messages([question, answer], user_id=USER, conversation_id=day)
                print(f"  user:      {text}\n  assistant: {answer.text}")
            if day == "wednesday":
                print("  its prompt says about the user:")
                print(
                    "".join(f"    {line}\n" for line in known_in(context.messages[0].text)), end=""
                )
            pipeline.end_session(user_id=USER, conversation_id=day)
            pipeline.flush()  # the next day begins long after this
            clock.next_day()
        look(pipeline)


def look(pipeline: ContextPipeline) -> None:
    """Everything that was ever known, where one thing comes from, and how it is forgotten."""
    facts = pipeline.knowledge.list_facts(user_id=USER, include_ended=True)
    print("\nwhat is known, and what was")
    for fact in facts:
        print(f"  {fact.ended or 'current':<11}{fact.category:<11}{fact.text}")

    home = next(
        fact
        for fact in facts
        if fact.is_current and "Porto" in fact.text and "Clara" not in fact.text
    )
    print(f"\nwhy do you know this? {home.text}")
    for source in pipeline.knowledge.why(home.id, user_id=USER):
        if source.message:
            print(f"  {source.conversation_id}: {source.message.text}")

    pipeline.knowledge.delete(home.id, user_id=USER)
    prompt = (
        pipeline.assemble("Where do I live?", user_id=USER, conversation_id="thursday")
        .messages[0]
        .text
    )
    print(
        f"\nafter it was deleted, a prompt says: {'; '.join(line[2:] for line in known_in(prompt) if line[0] == '-')}"
    )


def known_in(prompt: str) -> list[str]:
    """The lines of a prompt that tell about the user."""
    _, _, known = prompt.partition("## What you know about this user\n")
    return known.partition("\n</user_preferences>")[0].splitlines()


class Clock:
    """Tells the time of the story."""

    def __init__(self) -> None:
        self.now = TODAY

    def __call__(self) -> datetime:
        """What time it is."""
        return self.now

    def next_day(self) -> None:
        """Go on to the next day."""
        self.now += timedelta(days=1)


if __name__ == "__main__":
    main()
