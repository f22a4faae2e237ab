"""Messages of a user's other conversations as candidates.

On every store, with an index and without.
"""

from collections.abc import Iterator, Sequence

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore, IndexConfig
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline
from langchain_ctxbudget.demo import DEMO_EVIDENCE_IDS, DEMO_QUESTION, demo_messages
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import OtherConversations, Query
from langchain_ctxbudget.retrieval import Other
from tests import log_contract
from tests.conversations import BagOfWords
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_isolation import CONVERSATIONS, USERS, mark
from tests.log_contract import Counting, said
from tests.stores import blocking_stores, embed

SETTINGS = {"learn": False}
INDEX: IndexConfig = {"dims": 64, "embed": embed}
QUERY = "violet lantern harbour"
SLOW = pytest.mark.slow
STORES = ("memory", pytest.param("chroma-folder", marks=SLOW), "postgres")
"""One of each kind; Chroma's is for the long suite."""


@pytest.fixture(autouse=True)
def _wrapped_stores_tell_of_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    told = property(lambda wrapped: getattr(wrapped.store, "index_config", None))
    monkeypatch.setattr(log_contract.Elsewhere, "index_config", told, raising=False)


def find(
    store: BaseStore,
    *,
    user: str = "ada",
    without: str = "open",
    cache: OtherConversations | None = None,
) -> list[Other]:
    found = drive(
        (cache or OtherConversations()).read(
            store, user, Query(QUERY), without_conversation=without
        )
    )
    return [*found.candidates]


@pytest.fixture(params=["indexed", "plain"])
def index(request: pytest.FixtureRequest) -> IndexConfig | None:
    return INDEX if request.param == "indexed" else None


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, index: IndexConfig | None) -> Iterator[BaseStore]:
    with blocking_stores(request.param, request) as new:
        yield new(index)


def at(conversation: str, user: str = "ada") -> dict[str, str]:
    return {"user_id": user, "conversation_id": conversation}


def texts(found: Sequence[Other]) -> list[str]:
    return [candidate.text for candidate in found]


def test_what_was_taken_out_or_is_not_to_be_quoted_is_no_candidate(
    store: BaseStore, call: Call
) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    given = said(
        *(f"{QUERY} {word}" for word in ("kept", "archived", "forgotten", "dropped", "pinned"))
    )
    given += [
        HumanMessage(f"{QUERY} {how}", id=how, additional_kwargs={"ctxbudget": how})
        for how in ("drop", "summarize")
    ]
    call(pipeline, "add_messages", given, **at("c1"))
    assert len(find(store)) == 5
    call(pipeline, "remove_messages", f"{QUERY} archived", **at("c1"))
    call(pipeline, "remove_messages", f"{QUERY} forgotten", on_removal="forget", **at("c1"))
    quiet = HumanMessage(f"{QUERY} dropped", additional_kwargs={"ctxbudget": "drop"})
    call(pipeline, "edit_message", f"{QUERY} dropped", quiet, **at("c1"))
    call(pipeline, "pin", f"{QUERY} pinned", preservation="summarize", **at("c1"))
    assert texts(find(store)) == [f"{QUERY} kept"]


def test_no_user_finds_what_another_has_said(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    for user in USERS:
        given = [HumanMessage(f"{QUERY} {mark(user)}", id="m")]
        for thread in CONVERSATIONS[:2]:
            call(pipeline, "add_messages", given, **at(thread, user))
    for user in USERS:
        found = find(store, user=user, without=CONVERSATIONS[0])
        assert [(one.title, one.text) for one in found] == [
            (CONVERSATIONS[1], f"{QUERY} {mark(user)}")
        ]
    for other in ("zoe", "zoexa3", "zoexa.", "z%"):
        assert not find(store, user=other)


# -- read once


def test_what_was_read_is_not_read_again(store: BaseStore, call: Call) -> None:
    counting = Counting(store)
    cache = OtherConversations()
    pipeline = ContextPipeline(SETTINGS, store=store)
    for thread in ("c1", "c2"):
        given = said(*(f"{thread} {number} lantern" for number in range(300)))
        call(pipeline, "add_messages", given, **at(thread))
    find(counting, cache=cache)
    assert counting.records_read >= 600
    counting.reset()
    find(counting, cache=cache)
    assert counting.records_read <= 10
    call(pipeline, "add_messages", said("violet"), **at("c2"))
    counting.reset()
    assert "violet" in texts(find(counting, cache=cache))
    assert counting.records_read <= 20


@pytest.mark.parametrize("change", ["another conversation", "a pin", "a removal", "a clear"])
def test_without_an_index_every_change_elsewhere_is_seen(change: str) -> None:
    store = InMemoryStore()
    cache = OtherConversations()
    pipeline = ContextPipeline(SETTINGS, store=store)
    pipeline.add_messages(said("lantern", "harbour"), **at("c1"))
    assert sorted(texts(find(store, cache=cache))) == ["harbour", "lantern"]
    match change:
        case "another conversation":
            pipeline.add_messages(said("violet"), **at("c2"))
            assert sorted(texts(find(store, cache=cache))) == ["harbour", "lantern", "violet"]
        case "a pin":
            pipeline.pin(["lantern"], preservation="drop", **at("c1"))
            assert texts(find(store, cache=cache)) == ["harbour"]
        case "a removal":
            pipeline.remove_messages(["lantern"], **at("c1"))
            assert texts(find(store, cache=cache)) == ["harbour"]
        case "a clear":
            pipeline.clear(**at("c1"))
            assert texts(find(store, cache=cache)) == []


def test_a_message_is_embedded_once_however_many_conversations_look_at_it() -> None:
    embeddings = BagOfWords()
    pipeline = ContextPipeline(SETTINGS, embeddings=embeddings)
    for number in range(6):
        context = pipeline.assemble(f"{QUERY} {number}", **at(f"c{number}"))
        pipeline.add_messages(
            [*context.turn, AIMessage(f"The lantern {number} is lit.")], **at(f"c{number}")
        )
    retriever = BudgetedRetriever(pipeline=pipeline, user_id="ada")
    assert retriever.invoke(QUERY) == retriever.invoke(QUERY)
    assert len(embeddings.asked) == len({*embeddings.asked}) == 12


def test_what_the_prompt_says_already_speaks_for_nothing_of_another_conversation() -> None:
    pipeline = ContextPipeline(SETTINGS)
    pipeline.add_messages(demo_messages()[:150], **at("tools"))
    asked = [
        f"Stage {n} of the bike tour: how far is it from Ghent, and where do I sleep?"
        for n in range(30)
    ]
    answers = [
        f"It is {60 + n} km. Hotel De Brug has a room for {70 + n} euros." for n in range(30)
    ]
    turns = zip(map(HumanMessage, asked), map(AIMessage, answers), strict=True)
    pipeline.add_messages([message for turn in turns for message in turn], **at("tour"))
    assert pipeline.assemble(asked[7], **at("tour")).report.layer("L5").used_tokens == 0
    about_labels = pipeline.assemble(DEMO_QUESTION, **at("tour")).report.layer("L5")
    assert set(DEMO_EVIDENCE_IDS) <= {item.id.rpartition("/")[2] for item in about_labels.items}
