"""Writes the stores of this folder, with the code of commit 962b675.

`records.jsonl.gz` is what an `InMemoryStore` held, an item a line; `folder.tar.xz` is the folder of
a `ChromaStore`. In a working tree of that commit:

    PYTHONPATH=. python write.py FOLDER
"""

import gzip
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline, KnowledgeBase

BEGINNING = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LOANS = 290
SETTINGS = {
    "max_context_tokens": 1_500,
    "segment_messages": 80,
    "keep_snapshots": 2,
}
TOOLS = ("drill", "sander", "ladder", "tile saw", "hedge trimmer", "jigsaw", "heat gun", "router")
NAMES = ("Priya", "Owen", "Lotte", "Dev", "Marta", "Hugo", "Ines", "Sam", "Yusuf", "Clara")
DAYS = ("Monday", "Tuesday", "Thursday", "Friday", "Saturday")
STATED = (
    ("My name is Maya and I live in Leeds.", "Nice to meet you, Maya."),
    ("Always ask me before you send anything to a member.", "I will ask you first."),
    ("I prefer short answers without lists.", "Short it is."),
    ("We decided to buy the labels from Brightfix for 84 pounds.", "Brightfix, 84 pounds. Noted."),
    ("The violet lantern hangs in the cellar behind the paint.", "In the cellar, then."),
)


class Words(Embeddings):
    """Vectors of 16 dimensions that count words."""

    model = "words-16"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * 16
        for word in text.lower().split():
            vector[sum(word.encode()) % 16] += 1.0
        return vector


class Summaries(BaseChatModel):
    """Says of every span what stood in it."""

    @property
    def _llm_type(self) -> str:
        return "summaries"

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        reply = {
            "summary": "Members borrowed tools and brought them back.",
            "key_decisions": ["Labels are bought from Brightfix."],
            "open_questions": ["Who repairs the tile saw?"],
            "code_artifacts": [],
        }
        message = AIMessage(json.dumps(reply))
        return ChatResult(generations=[ChatGeneration(message=message)])


def minutes() -> Callable[[], datetime]:
    """A clock that goes on by a second whenever somebody asks it."""
    passed = iter(range(10**9))
    return lambda: BEGINNING + timedelta(seconds=next(passed))


def loans() -> Iterator[BaseMessage]:
    """What was said about the loans of a year, with what Maya stated among it."""
    for number in range(LOANS):
        name = NAMES[number % len(NAMES)]
        tool = TOOLS[number % len(TOOLS)]
        day = DAYS[number % len(DAYS)]
        drawer = 100 + number
        said_at = {"created_at": (BEGINNING + timedelta(hours=number)).isoformat()}
        said = f"{name} borrows the {tool} on {day}, from drawer {drawer}."
        yield HumanMessage(said, id=f"loan-{number}", additional_kwargs=said_at)
        yield AIMessage(f"Noted, {tool} to {name}.", id=f"noted-{number}")
        if number % 60 == 3:
            statement, answer = STATED[number // 60]
            yield HumanMessage(statement, id=f"stated-{number}")
            yield AIMessage(answer, id=f"heard-{number}")


def repair() -> list[BaseMessage]:
    """What an agent did about the tile saw."""
    call = {"name": "find_part", "args": {"machine": "tile saw"}, "id": "call-1"}
    return [
        HumanMessage("Find a new blade for the tile saw.", id="repair-0"),
        AIMessage("", tool_calls=[call], id="repair-1"),
        ToolMessage("Blade TS-200, 31 pounds, two weeks.", tool_call_id="call-1", id="repair-2"),
        AIMessage("TS-200 fits; it costs 31 pounds.", id="repair-3"),
        HumanMessage("Order it after Easter.", id="repair-4"),
        AIMessage("After Easter, then.", id="repair-5"),
        HumanMessage("The door code is 4711.", id="repair-6"),
        AIMessage("I will not repeat that.", id="repair-7"),
    ]


def fill(store: BaseStore) -> None:
    """Writes two users with all that is kept of them."""
    maya: dict[str, Any] = {"user_id": "maya"}
    library: dict[str, Any] = {**maya, "conversation_id": "library"}
    workshop: dict[str, Any] = {**maya, "conversation_id": "workshop"}
    pipeline = ContextPipeline(
        SETTINGS,
        system_prompt="You help Maya with the tool library.",
        model="gpt-4o",
        store=store,
        embeddings=Words(),
        summary_model=Summaries(),
        writer_id="writer",
        clock=minutes(),
    )
    with pipeline:
        messages = list(loans())
        for first in range(0, len(messages), 60):
            pipeline.add_messages(messages[first : first + 60], **library)
            context = pipeline.assemble("Who has the ladder at the moment?", **library)
            usage = {"input_tokens": 1_200, "output_tokens": 40, "total_tokens": 1_240}
            pipeline.observe_usage(usage, report=context.report)  # type: ignore[arg-type]
            pipeline.flush(60)
        pipeline.pin(["stated-183"], **library)

        pipeline.add_messages(repair(), **workshop)
        pipeline.edit_message("repair-4", HumanMessage("Order it after Whitsun."), **workshop)
        pipeline.remove_messages(["repair-5"], **workshop)
        pipeline.remove_messages(["repair-6", "repair-7"], on_removal="forget", **workshop)
        pipeline.conversation("workshop", **maya).fork("workshop-again", until="repair-3")
        pipeline.add_messages(
            [HumanMessage("Tom here.", id="tom-0")], user_id="tom", conversation_id="library"
        )

        pipeline.knowledge.add_fact("Opens the library on Saturdays", category="identity", **maya)
        pipeline.knowledge.add_topic("Tool labels", **maya)
        pipeline.save_settings({"preferences": ["Prices in pounds."]}, **maya)
        pipeline.end_session(**workshop)
        pipeline.assemble("What did we decide about the labels?", **library)
        pipeline.flush(60)

    own = KnowledgeBase(store, user_id="maya", embeddings=Words())
    own.add("A loan lasts seven days. Late fees are 50 pence.", metadata={"source": "rules.txt"})
    shared = KnowledgeBase(store, shared=True, embeddings=Words())
    shared.add("The library opens at ten.", metadata={"source": "hours.txt"})


def items(store: BaseStore) -> list[dict[str, Any]]:
    """All items of a store as plain data."""
    found = store.search((), limit=100_000)
    lines = [{"namespace": item.namespace, "key": item.key, "value": item.value} for item in found]
    return sorted(lines, key=lambda line: (line["namespace"], line["key"]))


def main(folder: Path) -> None:
    memory = InMemoryStore()
    fill(memory)
    lines = [json.dumps(line, ensure_ascii=False) for line in items(memory)]
    data = gzip.compress("\n".join(lines).encode(), mtime=0)
    (folder / "records.jsonl.gz").write_bytes(data)

    with ChromaStore(folder / "folder") as store:
        fill(store)
    shutil.make_archive(str(folder / "folder"), "xztar", folder / "folder")
    shutil.rmtree(folder / "folder")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
