"""Which messages are about what is known, counted once each, however often a conversation is learned from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge.engagement import LOOK_BACK, Links, counted
from langchain_ctxbudget.knowledge.records import EntityProfile, ProgressRecord, TopicConversation, TopicProfile
from langchain_ctxbudget.knowledge.taking import Work
from tests.unit_tests.test_taking import SCOPE, conversation

BEER = TopicProfile(id="topic/beer", slug="beer", label="Beer", aliases=("ale",))
SARAH = EntityProfile(id="entity/person/sarah", name="Sarah", type="person")


def work(whole: Conversation, first: int, end: int | None = None, *, changed: bool = False) -> Work:
    entries = whole.entries[:end]
    there = {entry.id: entry.fingerprint for entry in whole.entries} if changed else None
    return Work(scope=SCOPE, entries=entries, first=first, progress=ProgressRecord(), there=there, epoch=0)


def count(links: Links, of: Work, *new: str) -> dict[tuple[str, str], TopicConversation]:
    return counted(links, [BEER], [SARAH], of, new)[0]


def messages(links: Links, name: str = BEER.id) -> int:
    link = links.get((name, "c1"))
    return link.messages if link else 0


TEXTS = ("I like beer.", "Nothing.", "Ale with Sarah!", "Sarah.", "Beer and beer and ale.", "No.")


def test_a_message_counts_once_however_often_it_names_something() -> None:
    links = count({}, work(conversation(*TEXTS), 0))
    assert (messages(links), messages(links, SARAH.id)) == (3, 2)


def test_the_share_of_the_conversation_is_its_relevance() -> None:
    links = count({}, work(conversation(*TEXTS), 0))
    assert links[BEER.id, "c1"].relevance_score == 0.5


def test_what_is_not_named_has_no_link() -> None:
    assert count({}, work(conversation("Nothing."), 0)) == {}


def test_counting_again_changes_nothing() -> None:
    of = work(conversation(*TEXTS), 0)
    links = count({}, of)
    assert count(links, of) == links


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_counting_in_parts_is_counting_at_once(sizes: Sequence[int]) -> None:
    whole = conversation(*(TEXTS[number % len(TEXTS)] for number in range(sum(sizes))))
    links: Links = {}
    first = 0
    for size in sizes:
        links = count(links, work(whole, first, first + size))
        first += size
    at_once = count({}, work(whole, 0))
    shown = {"messages", "exchanges", "tokens", "sentiment"}
    assert {key: link.model_dump(include=shown) for key, link in links.items()} == {
        key: link.model_dump(include=shown) for key, link in at_once.items()
    }


def test_of_what_is_new_older_messages_count_too() -> None:
    whole = conversation(*TEXTS)
    assert messages(count({}, work(whole, 4), BEER.id)) == 3


def test_of_what_is_named_for_the_first_time_older_messages_count_too() -> None:
    """Whoever was killed after a topic was written finds it known, and counts the same."""
    assert messages(count({}, work(conversation(*TEXTS), 4))) == 3


def test_of_what_was_counted_older_messages_do_not_count_again() -> None:
    whole = conversation(*TEXTS)
    links = count({}, work(whole, 0, 4))
    assert messages(count(links, work(whole, 4), BEER.id)) == 3


def test_it_is_not_looked_for_at_any_distance() -> None:
    whole = conversation("Beer.", *(["Nothing."] * LOOK_BACK), "Beer.", "Beer.")
    assert messages(count({}, work(whole, LOOK_BACK + 2), BEER.id)) == 2


def test_after_a_change_the_whole_conversation_is_counted_again() -> None:
    links = count({}, work(conversation(*TEXTS), 0))
    links = {**links, (BEER.id, "c2"): TopicConversation(topic_id=BEER.id, conversation_id="c2", messages=7)}
    after, touched = counted(links, [BEER], [SARAH], work(conversation("Beer.", "No."), 1, changed=True), ())
    assert {key: link.messages for key, link in after.items()} == {(BEER.id, "c1"): 1, (BEER.id, "c2"): 7}
    assert touched == {BEER.id, SARAH.id}


def test_only_what_has_changed_is_touched() -> None:
    whole = conversation(*TEXTS)
    links = count({}, work(whole, 0, 3))
    assert counted(links, [BEER], [SARAH], work(whole, 3, 4), ())[1] == {SARAH.id}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (HumanMessage("Beer."), (1, 1)),
        (AIMessage("Beer."), (1, 0)),
        (ToolMessage("Beer.", tool_call_id="1"), (0, 0)),
    ],
)
def test_what_tools_give_does_not_count_and_answers_begin_no_exchange(message: object, expected: object) -> None:
    link = count({}, work(conversation(message), 0)).get((BEER.id, "c1"))  # type: ignore[arg-type]
    assert ((link.messages, link.exchanges) if link else (0, 0)) == expected


def test_tokens_are_those_of_the_messages() -> None:
    whole = conversation(*TEXTS)
    link = count({}, work(whole, 0))[BEER.id, "c1"]
    assert link.tokens == sum(whole.costs[position] for position in (0, 2, 4))


def test_what_was_given_is_not_changed() -> None:
    links: dict[tuple[str, str], TopicConversation] = {}
    count(links, work(conversation(*TEXTS), 0))
    assert links == {}
