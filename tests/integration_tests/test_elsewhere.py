"""Messages of a user's other conversations are candidates; what is taken out, or others', is none.

On every kind of store, with an index and without.
"""

from collections.abc import Iterator, Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, IndexConfig
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline
from langchain_ctxbudget.demo import DEMO_EVIDENCE_IDS, DEMO_QUESTION, demo_messages
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import Libraries, OtherConversations, Query
from langchain_ctxbudget.retrieval import Other
from tests import log_contract
from tests.conversations import BagOfWords
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_isolation import USERS, mark
from tests.log_contract import Counting, said
from tests.stores import blocking_stores, embed

pytestmark = pytest.mark.slow

SETTINGS = {"learn": False}
INDEX: IndexConfig = {"dims": 64, "embed": embed}
QUERY = "violet lantern harbour"
SLOW = pytest.mark.slow
STORES = ("memory", pytest.param("chroma-folder", marks=SLOW), "postgres")
"""One of each kind; Chroma's is for the long suite."""


@pytest.fixture(autouse=True)
def _wrapped_stores_tell_of_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    index_config = property(lambda wrapped: getattr(wrapped.store, "index_config", None))
    monkeypatch.setattr(log_contract.Elsewhere, "index_config", index_config, raising=False)


def find(
    store: BaseStore,
    *,
    user: str = "ada",
    without: str = "open",
    cache: OtherConversations | None = None,
) -> list[Other]:
    """Returns the candidates for the query, of all conversations of a user but one."""
    others = cache or OtherConversations()
    reading = others.read(store, user, Query(QUERY), without_conversation=without)
    return list(drive(reading).candidates)


@pytest.fixture(params=["indexed", "plain"])
def index(request: pytest.FixtureRequest) -> IndexConfig | None:
    return {"indexed": INDEX, "plain": None}[request.param]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, index: IndexConfig | None) -> Iterator[BaseStore]:
    with blocking_stores(request.param, request) as new:
        yield new(index)


def at(conversation: str, user: str = "ada") -> dict[str, str]:
    return {"user_id": user, "conversation_id": conversation}


def texts(candidates: Sequence[Other]) -> list[str]:
    return [candidate.text for candidate in candidates]


def marked(text: str, preservation: str) -> HumanMessage:
    """Returns a message that says itself how it is to be preserved."""
    return HumanMessage(text, id=text, additional_kwargs={"ctxbudget": preservation})


def test_what_says_it_is_not_to_be_quoted_is_no_candidate(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    messages: list[BaseMessage] = [
        HumanMessage("violet lantern harbour kept", id="kept"),
        marked("violet lantern harbour drop", "drop"),
        marked("violet lantern harbour summarize", "summarize"),
    ]
    call(pipeline, "add_messages", messages, **at("c1"))
    assert texts(find(store)) == ["violet lantern harbour kept"]


def test_what_was_taken_out_is_no_candidate(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    fates = ["kept", "archived", "forgotten", "dropped", "pinned"]
    call(pipeline, "add_messages", said(*[f"{QUERY} {fate}" for fate in fates]), **at("c1"))
    assert len(find(store)) == 5

    dropped = HumanMessage(f"{QUERY} dropped", additional_kwargs={"ctxbudget": "drop"})
    call(pipeline, "remove_messages", f"{QUERY} archived", **at("c1"))
    call(pipeline, "remove_messages", f"{QUERY} forgotten", on_removal="forget", **at("c1"))
    call(pipeline, "edit_message", f"{QUERY} dropped", dropped, **at("c1"))
    call(pipeline, "pin", f"{QUERY} pinned", preservation="summarize", **at("c1"))

    assert texts(find(store)) == ["violet lantern harbour kept"]


def test_no_user_finds_what_another_has_said(store: BaseStore, call: Call) -> None:
    pipeline = ContextPipeline(SETTINGS, store=store)
    own = {}
    for user in USERS:
        text = f"{QUERY} {mark(user)}"
        own[user] = [("c.1", text)]
        for conversation in ("c1", "c.1"):
            message = HumanMessage(text, id="m")
            call(pipeline, "add_messages", [message], **at(conversation, user))

    found = {}
    for user in USERS:
        others = find(store, user=user, without="c1")
        found[user] = [(candidate.title, candidate.text) for candidate in others]
    strangers = ["zoe", "zoexa3", "zoexa.", "z%"]

    assert found == own
    assert {name: find(store, user=name) for name in strangers} == {
        "zoe": [],
        "zoexa3": [],
        "zoexa.": [],
        "z%": [],
    }


# -- Read once


def test_what_was_read_is_not_read_again(store: BaseStore, call: Call) -> None:
    counting = Counting(store)
    cache = OtherConversations()
    pipeline = ContextPipeline(SETTINGS, store=store)
    for conversation in ("c1", "c2"):
        messages = said(*[f"{conversation} {number} lantern" for number in range(300)])
        call(pipeline, "add_messages", messages, **at(conversation))
    find(counting, cache=cache)
    assert counting.records_read >= 600

    counting.reset()
    find(counting, cache=cache)
    assert counting.records_read <= 10

    call(pipeline, "add_messages", said("violet"), **at("c2"))
    counting.reset()
    assert "violet" in texts(find(counting, cache=cache))
    assert counting.records_read <= 20


class Remembered:
    """Two messages of one conversation, which were read once and are remembered."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.cache = OtherConversations()
        self.pipeline = ContextPipeline(SETTINGS, store=self.store)
        self.pipeline.add_messages(said("lantern", "harbour"), **at("c1"))
        assert self.texts() == ["harbour", "lantern"]

    def texts(self) -> list[str]:
        return sorted(texts(find(self.store, cache=self.cache)))


@pytest.fixture
def remembered() -> Remembered:
    return Remembered()


@pytest.mark.parametrize(("conversations", "stays"), [(1, True), (4, False)])
def test_short_conversations_of_many_users_leave_memory(conversations: int, stays: bool) -> None:
    store = InMemoryStore()
    libraries = Libraries(most_in_memory=300)
    with ContextPipeline(SETTINGS, store=store) as pipeline:
        for user in USERS[:2]:
            for number in range(conversations):
                pipeline.add_messages(said(QUERY), **at(f"c{number}", user))
    first = libraries.of(USERS[0])
    for user in USERS[:2]:
        find(store, user=user, cache=libraries.of(user))
    libraries.of("somebody else")
    assert (libraries.of(USERS[0]) is first) is stays


def test_without_an_index_another_conversation_is_seen(remembered: Remembered) -> None:
    remembered.pipeline.add_messages(said("violet"), **at("c2"))
    assert remembered.texts() == ["harbour", "lantern", "violet"]


def test_without_an_index_a_pin_elsewhere_is_seen(remembered: Remembered) -> None:
    remembered.pipeline.pin(["lantern"], preservation="drop", **at("c1"))
    assert remembered.texts() == ["harbour"]


def test_without_an_index_a_removal_elsewhere_is_seen(remembered: Remembered) -> None:
    remembered.pipeline.remove_messages(["lantern"], **at("c1"))
    assert remembered.texts() == ["harbour"]


def test_without_an_index_a_cleared_conversation_is_seen(remembered: Remembered) -> None:
    remembered.pipeline.clear(**at("c1"))
    assert remembered.texts() == []


def test_a_message_is_embedded_once_whoever_looks_at_it() -> None:
    embeddings = BagOfWords()
    pipeline = ContextPipeline(SETTINGS, embeddings=embeddings)
    for number in range(6):
        context = pipeline.assemble(f"{QUERY} {number}", **at(f"c{number}"))
        answer = AIMessage(f"The lantern {number} is lit.")
        pipeline.add_messages([*context.turn, answer], **at(f"c{number}"))
    retriever = BudgetedRetriever(pipeline=pipeline, user_id="ada")

    first = retriever.invoke(QUERY)
    second = retriever.invoke(QUERY)

    assert second == first
    assert len(embeddings.asked) == 12
    assert len(set(embeddings.asked)) == 12


# -- Beside what the prompt says already

STAGES = [
    f"Stage {number} of the bike tour: how far is it from Ghent, and where do I sleep?"
    for number in range(30)
]


@pytest.fixture(scope="module")
def two_subjects() -> ContextPipeline:
    """A user who speaks of a tool library in one conversation, and of a bike tour in another."""
    pipeline = ContextPipeline(SETTINGS)
    pipeline.add_messages(demo_messages()[:150], **at("tools"))
    tour: list[BaseMessage] = []
    for number, question in enumerate(STAGES):
        tour.append(HumanMessage(question))
        tour.append(
            AIMessage(f"It is {60 + number} km. Hotel De Brug has a room for {70 + number} euros.")
        )
    pipeline.add_messages(tour, **at("tour"))
    return pipeline


def test_what_the_prompt_says_already_is_not_looked_for_elsewhere(
    two_subjects: ContextPipeline,
) -> None:
    report = two_subjects.assemble(STAGES[7], **at("tour")).report
    assert report.layer("L5").used_tokens == 0


def test_what_the_prompt_does_not_say_is_found_elsewhere(two_subjects: ContextPipeline) -> None:
    report = two_subjects.assemble(DEMO_QUESTION, **at("tour")).report
    ids = {item.id.rpartition("/")[2] for item in report.layer("L5").items}
    assert ids >= set(DEMO_EVIDENCE_IDS)
