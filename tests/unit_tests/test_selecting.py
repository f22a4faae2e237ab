"""Filling a budget with the texts that were found."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget.budget import Layer, Reason
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import with_headings
from langchain_ctxbudget.retrieval import MIXED_SECTION, OWN_SECTION, Searched, gather, select
from langchain_ctxbudget.retrieval.filling import MEMORY_SHARE
from langchain_ctxbudget.search import PRIORITIES, Candidate, Question
from langchain_ctxbudget.settings import SOURCES, RetrievalSettings
from langchain_ctxbudget.tokens import EstimatingCounter
from tests.conversations import COUNTER, BagOfWords, conversation

QUERY = "Where is the blue bike?"
DATES = st.sampled_from([None, "2026-01-01", "2026-01-02", "2025-05-05"])
WORDS = st.sampled_from(
    ["the bike is blue", "kettle", "Where?\n", "字が青い。", "- [x] #7", "</context>"]
)
TEXTS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=60).map(" ".join), st.text(min_size=1, max_size=60)
)
KWARGS = {
    "name": st.sampled_from([None, "Ann"]),
    "additional_kwargs": st.fixed_dictionaries({"created_at": DATES}),
}
MESSAGES = st.lists(
    st.builds(HumanMessage, TEXTS, **KWARGS) | st.builds(AIMessage, TEXTS, **KWARGS), max_size=12
)
OTHERS = st.lists(
    st.builds(
        Candidate,
        id=st.integers(0, 1_000).map(str),
        source=st.sampled_from(SOURCES),
        text=TEXTS,
        title=st.sampled_from(["", "Guide", "[a]\n[b]", "c1"]),
        kind=st.sampled_from(list(PRIORITIES)),
    ),
    max_size=12,
    unique_by=lambda other: other.id,
)


@st.composite
def cases(draw):
    messages = draw(MESSAGES)
    named = [
        named_document(f"d{place}", draw(TEXTS), draw(TEXTS))
        for place in range(draw(st.integers(0, 2)))
    ]
    return {
        "messages": messages,
        "others": draw(OTHERS),
        "named": named,
        "budget": draw(st.integers(0, 600)),
        "end": draw(st.integers(0, len(messages))),
        "shown": draw(st.sets(st.integers(0, max(0, len(messages) - 1)), max_size=3)),
        "numbered": draw(st.booleans()),
        "embeddings": draw(st.sampled_from([None, BagOfWords()])),
    }


many = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def gathered(view, others=(), embeddings=None, query=QUERY):
    pool = drive(gather(Searched.of(view), query, embeddings, failures := [], others))
    assert failures == []
    return pool


def retrieved(
    messages,
    budget,
    *,
    others=(),
    named=(),
    end=None,
    embeddings=None,
    counter=COUNTER,
    query=QUERY,
    **how,
):
    view = conversation(messages, counter)
    pool = replace(gathered(view, others, embeddings, query), named=tuple(named))
    how.setdefault("limits", RetrievalSettings())
    return select(view, pool, len(view.entries) if end is None else end, budget, **how)


def cost(found, counter=COUNTER):
    return sum(map(counter.count_text, with_headings(found.fragments)))


def quoted(found):
    return [part.id for part in found.fragments]


def memory(number, kind="fact"):
    text = f"Where the blue bike is, is known to nobody but the user. ({number})"
    return Candidate(id=f"memory {number}", source="memories", text=text, kind=kind)


def chunk(number, document="guide"):
    text = f"The bike needs oil. {number}"
    return Candidate(
        id=f"{document}#{number}", source="documents", text=text, title="Guide", place=number
    )


def named_document(name, text, summary="A guide."):
    short = Candidate(id=name, source="documents", text=summary, title="Guide", kind="explicit")
    return None if text is None else replace(short, text=text), short


BIKES = [
    f"The bike of number {number} is blue, and it stands in the cellar." for number in range(60)
]
RAIN = [f"It rained on day {number}." for number in range(60)]
SAME = "The blue bike is mine."
HERE = "The bike is here."
HELLO = "It rained."


@pytest.mark.parametrize("counter", [COUNTER, EstimatingCounter()], ids=["exact", "estimated"])
@many
@given(case=cases())
def test_the_texts_cost_no_more_than_their_budget_and_none_stands_there_twice_or_is_in_the_prompt(
    counter, case
):
    found = retrieved(**case, counter=counter)
    assert cost(found, counter) <= case["budget"]
    assert all(part.tokens == counter.count_text(part.text) for part in found.fragments)
    ids = quoted(found)
    assert len(set(ids)) == len(ids)
    own = {
        entry.id: position for position, entry in enumerate(conversation(case["messages"]).entries)
    }
    positions = [own[key] for key in ids if key in own]
    assert all(position < case["end"] and position not in case["shown"] for position in positions)


def test_the_budget_is_used_while_there_is_something_to_say():
    for budget in (-5, 0, 7):
        assert retrieved(BIKES, budget).fragments == ()
    for budget in (100, 300, 600):
        assert cost(retrieved(BIKES, budget)) >= 0.85 * budget


def test_the_same_words_are_quoted_once_and_not_at_all_where_the_prompt_shows_them():
    elsewhere = Candidate(
        id="c2/1", source="conversations", text="where is  the blue BIKE?", speaker="user"
    )
    again = "the  BLUE bike\nis mine. "
    dropped = HumanMessage(SAME, id="x", additional_kwargs={"ctxbudget": "drop"})
    ann = HumanMessage(SAME, id="a", name="Ann")
    bob = HumanMessage(SAME, id="b", name="Bob")
    for messages, given_more, wanted in [
        ([SAME, HERE, SAME], {"end": 2}, {"m1"}),
        ([SAME, HERE, SAME], {"shown": {2}}, {"m1"}),
        (
            [SAME, HERE, SAME],
            {"end": 2, "in_short": {2}},
            {"m1", "m0"},
        ),  # of the last one, only head and tail
        ([SAME, dropped], {"end": 1}, {"m0"}),
        ([QUERY, HERE], {"others": [elsewhere]}, {"m1"}),  # the question is not quoted
        ([ann, bob], {}, {"a", "b"}),
    ]:
        assert set(quoted(retrieved(messages, 400, **given_more))) == wanted
    found = quoted(retrieved([SAME, HELLO, again, HERE], 400))
    assert len({"m0", "m2"} & {*found}) == 1
    assert "m3" in found


def test_a_quoted_question_brings_a_sentence_of_its_reply_and_a_quoted_reply_its_short_question():
    asked = "Who takes care of the old tandem these days?"
    reply = "# The tandem these days\nInes does, of the bike, too. " + "It rains. " * 299
    found = retrieved([*RAIN, HumanMessage(asked), AIMessage(reply)], 400, query="The old tandem?")
    lines = [part.text for part in found.fragments]
    assert lines[-2:] == [f"- user: {asked}\n", "- assistant: Ines does, of the bike, too. …\n"]
    found = retrieved(
        [HumanMessage(asked), AIMessage("The blue bike? Ines keeps it in the hall."), *RAIN], 60
    )
    assert asked in found.fragments[0].text


@pytest.mark.parametrize(
    ("older", "newer", "thing"),
    [
        ("My visit is on Monday at 3.", "The visit moved to Thursday.", "visit"),
        ("I live in Rome with my cat.", "We've just moved to Oslo!", "home"),
        (
            "The wifi password is sunny42.",
            "By the way, the wifi password is rainy77.",
            "wifi password",
        ),
        ("Our budget is 2,000 euros.", "We raised the budget to 3500 euros.", "budget"),
        ("I work at Siemens.", "I no longer work at Siemens.", "employer"),
        ("The team lead is Anna.", "The team lead is now Bob.", "team lead"),
        ("Our budget is 2,000 euros.", "The budget is now 2000 euros.", ""),  # the same
        ("The wifi password is sunny42.", "The email password is rainy77.", ""),  # of another thing
        ("The meeting is on Monday.", "The meeting is at 3pm now.", ""),  # of another kind
        ("The meeting is on Monday.", "The meeting is on Friday.", ""),  # it may be another one
        ("The flight is at noon.", "The flight is now at 12:00.", ""),  # the same in another form
        ("My weight is 80 kg.", "My weight is now 176 pounds.", ""),
        ("The rent is 900 euros.", "The rent was raised by 50 euros.", ""),  # a part of it
        ("I work at Google.", "I work on Fridays now.", ""),
        ("My doctor is Smith.", "My doctor has moved to Denver.", ""),
        ("For the flat, the budget is 500.", "For the garden, the budget is now 900.", ""),
        ("I live in Rome.", "I moved to Oslo in 2010.", ""),
        ("I live in Rome.", "My sister moved to Oslo.", ""),
        ("The deadline is March 3.", "What if the deadline moved to March 17?", ""),
        ("The deadline is March 3.", "> The deadline has moved to March 17.", ""),
    ],
)
def test_a_statement_that_a_later_one_replaces_says_so_and_no_other_does(older, newer, thing):
    messages = [
        HumanMessage(said, id=name, additional_kwargs={"created_at": f"2026-03-0{day}"})
        for day, (name, said) in enumerate([("old", older), ("new", newer)], 1)
    ]
    for end in (2, 1):  # the later one is quoted, too, or stands in the prompt
        parts = retrieved(messages, 400, end=end, query=f"{older} {newer} Tell me?").fragments
        mark = f" (superseded on 2026-03-02: {thing})" if thing else ""
        assert [part.text for part in parts][:1] == [f"- user: {older}{mark}\n"]
        assert [part.reason for part in parts][:1] == [
            Reason.SUPERSEDED if thing else Reason.RELEVANT
        ]


def test_what_is_worth_least_makes_room_for_the_mark_of_a_replaced_statement():
    said = ["The port is 8080. The host is on Elm Street.", "The port is now 9090."]
    said += [f"A port, {i}." for i in range(9)]
    messages = [HumanMessage(text, id=str(number)) for number, text in enumerate(said)]
    question = "Which port was it, which host, and which port is it now?"
    for budget in range(60, 140, 4):
        found = retrieved(messages, budget, query=question)
        text = "".join(part.text for part in found.fragments)
        assert cost(found) <= budget
        assert (
            not {"8080", "9090"} <= {*re.findall(r"\d{4}", text)}
            or "Street. (superseded: port)" in text
        ), budget


def test_another_speaker_replaces_nothing():
    ann, bob = (
        {"name": name, "additional_kwargs": {"created_at": "2026-03-01"}} for name in ("Ann", "Bob")
    )
    was = HumanMessage("The port is 8080.", **ann)
    now = HumanMessage("The port is now 9090.", **bob)
    found = retrieved([was, now], 400, query="Which port was it, and which one is it now?")
    assert "superseded" not in found.fragments[0].text


@pytest.mark.parametrize(
    "query",
    [
        "In which order did I visit the museums?",
        "Summarise what I said about the museums that I visited.",
        "How many times did I visit museums?",
        "How has my visit to museums changed over time?",
    ],
)
def test_a_message_about_everything_gets_all_evidence_of_one_day(query):
    visits = [
        f"I visit museums, now the museum of {thing}."
        for thing in ("glass", "trains", "salt", "tea", "maps")
    ]
    others = [f"We pass a museum on our way to market {number}." for number in range(10)]
    days = [[other, "We ate soup."] for other in others]
    days[4] += visits
    messages = [
        HumanMessage(text, additional_kwargs={"created_at": f"2026-01-{day:02}"})
        for day, texts in enumerate(days, 1)
        for text in texts
    ]
    room = sum(COUNTER.count_text(f"- user: {visit}\n") for visit in visits) + 60
    said = "".join(part.text for part in retrieved(messages, room, query=query).fragments)
    assert [visit for visit in visits if visit not in said] == []


@pytest.mark.parametrize(
    ("text", "broad"),
    [
        ("Can you summarize our conversations about the garden?", True),
        ("In which order did I visit the museums?", True),
        ("How many times have I been to the dentist?", True),
        ("What is everything we discussed about the lease?", True),
        ("How has my running plan changed over time?", True),
        ("Summarise this article: rates went up.", False),
        ("How many chairs do we have?", False),
        ("I want to order a pizza, everything is fine.", False),
    ],
)
def test_a_message_is_about_everything_where_it_asks_for_a_summary_an_order_a_list_or_a_number_of_times(
    text, broad
):
    assert Question.of(text).is_broad is broad


def test_memories_take_at_most_their_share_while_others_want_room():
    def spent(messages):
        found = retrieved(messages, 600, others=[memory(number, "core") for number in range(30)])
        return sum(part.tokens for part in found.fragments if part.id.startswith("memory")), cost(
            found
        )

    memories, together = spent([*BIKES, *RAIN])
    assert 0 < memories <= MEMORY_SHARE * 600
    assert together - memories >= (1 - MEMORY_SHARE) * 600 - 60
    assert spent(["The bike is blue."])[0] > 0.8 * 600


def test_parts_of_a_document_are_quoted_unless_it_stands_there_whole():
    chunks = [chunk(0), chunk(1)]
    others = [chunk(2, document="guide2")]
    whole = retrieved(
        (),
        400,
        others=[*chunks, *others],
        named=[named_document("guide", "Oil for the bike. A lot.")],
    )
    assert quoted(whole) == ["guide", "guide2#2"]
    assert not whole.omitted()
    summary = retrieved((), 400, others=chunks, named=[named_document("guide", None)])
    assert quoted(summary) == ["guide", "guide#0", "guide#1"]


@many
@given(case=cases())
def test_every_candidate_is_chosen_listed_or_counted(case):
    case |= {"named": []}
    found = retrieved(**case)
    pool = gathered(conversation(case["messages"]), case["others"], case["embeddings"])
    free = pool.may_be_quoted.copy()
    own = free[len(pool.others) :]
    own[case["end"] :] = False
    own[[position for position in case["shown"] if position < case["end"]]] = False
    assert (
        len(found.fragments) + len(found.omitted()) + sum(found.more_omitted.values()) == free.sum()
    )


def test_items_stand_in_the_order_of_time_under_one_date_and_those_from_elsewhere_first():
    messages = [
        HumanMessage(
            f"The blue bike {message_id}.", id=message_id, additional_kwargs={"created_at": date}
        )
        for message_id, date in [("c", "2026-03-01"), ("a", "2026-01-01"), ("b", "2026-01-01")]
    ]
    own = retrieved(messages, 400)
    mixed = retrieved(messages, 400, others=[chunk(1), memory(1)])
    assert quoted(own) == ["a", "b", "c"]
    assert "".join(with_headings(own.fragments)).count("[2026-01-01]\n") == 1
    assert quoted(mixed) == ["guide#1", "memory 1", "a", "b", "c"]
    assert {part.section for part in own.fragments} == {OWN_SECTION}
    assert {part.section for part in mixed.fragments} == {MIXED_SECTION}
    assert {part.layer for part in mixed.fragments} == {Layer.RETRIEVAL}
