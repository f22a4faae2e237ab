"""Filling a budget with the texts that were found."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.budget import Layer, Reason
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import with_headings
from langchain_ctxbudget.retrieval import (
    MIXED_SECTION,
    OWN_SECTION,
    NamedDocument,
    Searched,
    gather,
    select,
)
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


@dataclass
class Case:
    """What may be quoted, and within which limits."""

    messages: list[BaseMessage]
    others: list[Candidate]
    named: list[NamedDocument]
    budget: int
    end: int
    shown: set[int]
    numbered: bool
    embeddings: Embeddings | None


@st.composite
def cases(draw):
    messages = draw(MESSAGES)
    named = [
        named_document(f"d{place}", draw(TEXTS), draw(TEXTS))
        for place in range(draw(st.integers(0, 2)))
    ]
    return Case(
        messages=messages,
        others=draw(OTHERS),
        named=named,
        budget=draw(st.integers(0, 600)),
        end=draw(st.integers(0, len(messages))),
        shown=draw(st.sets(st.integers(0, max(0, len(messages) - 1)), max_size=3)),
        numbered=draw(st.booleans()),
        embeddings=draw(st.sampled_from([None, BagOfWords()])),
    )


many = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])


def gathered(view, others=(), embeddings=None, query=QUERY):
    failures = []
    pool = drive(gather(Searched.of(view), query, embeddings, failures, others))
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
    most_items=None,
    **how,
):
    """Returns what is quoted; without an `end`, all messages may be."""
    view = conversation(messages, counter)
    pool = replace(gathered(view, others, embeddings, query), named_documents=tuple(named))
    if end is None:
        end = len(view.entries)
    return select(view, pool, end, budget, limits=RetrievalSettings(most_items=most_items), **how)


def retrieved_in(case, counter=COUNTER, named=()):
    return retrieved(
        case.messages,
        case.budget,
        others=case.others,
        named=named,
        end=case.end,
        shown=case.shown,
        is_numbered=case.numbered,
        embeddings=case.embeddings,
        counter=counter,
    )


def cost(found, counter=COUNTER):
    return sum(map(counter.count_text, with_headings(found.fragments)))


def quoted(found):
    return [fragment.id for fragment in found.fragments]


def text_of(found):
    return "".join(fragment.text for fragment in found.fragments)


def dated(text, date, message_id=None):
    return HumanMessage(text, id=message_id, additional_kwargs={"created_at": date})


def memory(number, kind="fact"):
    text = f"Where the blue bike is, is known to nobody but the user. ({number})"
    return Candidate(id=f"memory {number}", source="memories", text=text, kind=kind)


def chunk(number, document="guide"):
    text = f"The bike needs oil. {number}"
    return Candidate(
        id=f"{document}#{number}", source="documents", text=text, title="Guide", place=number
    )


def summary_of(name, text="A guide."):
    return Candidate(id=name, source="documents", text=text, title="Guide", kind="explicit")


def named_document(name, text, summary="A guide."):
    """A document that the user names, whole and in short."""
    short = summary_of(name, summary)
    return replace(short, text=text), short


BIKES = [
    f"The bike of number {number} is blue, and it stands in the cellar." for number in range(60)
]
RAIN = [f"It rained on day {number}." for number in range(60)]


# The budget


@pytest.mark.slow
@pytest.mark.parametrize("counter", [COUNTER, EstimatingCounter()], ids=["exact", "estimated"])
@many
@given(case=cases())
def test_texts_fit_their_budget_and_none_stands_there_twice(counter, case):
    found = retrieved_in(case, counter, case.named)

    assert cost(found, counter) <= case.budget
    for fragment in found.fragments:
        assert fragment.tokens == counter.count_text(fragment.text)

    ids = quoted(found)
    assert len(set(ids)) == len(ids)

    entries = conversation(case.messages).entries
    positions = {entry.id: position for position, entry in enumerate(entries)}
    for message_id in positions.keys() & set(ids):
        assert positions[message_id] < case.end
        assert positions[message_id] not in case.shown


@pytest.mark.slow
@many
@given(case=cases())
def test_every_candidate_is_chosen_listed_or_counted(case):
    found = retrieved_in(case)

    pool = gathered(conversation(case.messages), case.others, case.embeddings)
    candidates = pool.may_be_quoted.copy()
    messages = candidates[len(pool.others) :]
    messages[case.end :] = False
    messages[[position for position in case.shown if position < case.end]] = False
    counted = sum(found.more_omitted.values())
    assert len(found.fragments) + len(found.omitted()) + counted == candidates.sum()


@pytest.mark.parametrize("budget", [-5, 0, 7])
def test_nothing_is_quoted_without_room(budget):
    assert retrieved(BIKES, budget).fragments == ()


@pytest.mark.parametrize(("budget", "least"), [(100, 85), (300, 255), (600, 510)])
def test_the_budget_is_used_while_there_is_something_to_say(budget, least):
    assert cost(retrieved(BIKES, budget)) >= least


# The same words


MINE = "The blue bike is mine."
HERE = "The bike is here."


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [
        ({"end": 2}, {"m1"}),
        ({"shown": {2}}, {"m1"}),
        ({"end": 2, "in_short": {2}}, {"m1", "m0"}),
    ],
    ids=["behind the cut", "in the prompt", "in the prompt with head and tail alone"],
)
def test_words_that_the_prompt_shows_are_not_quoted(limits, wanted):
    assert set(quoted(retrieved([MINE, HERE, MINE], 400, **limits))) == wanted


def test_words_of_a_dropped_message_are_quoted_from_another():
    dropped = HumanMessage(MINE, id="x", additional_kwargs={"ctxbudget": "drop"})

    assert quoted(retrieved([MINE, dropped], 400, end=1)) == ["m0"]


def test_the_question_is_not_quoted():
    elsewhere = Candidate(
        id="c2/1", source="conversations", text="where is  the blue BIKE?", speaker="user"
    )

    assert quoted(retrieved([QUERY, HERE], 400, others=[elsewhere])) == ["m1"]


def test_the_same_words_of_two_speakers_are_both_quoted():
    ann = HumanMessage(MINE, id="a", name="Ann")
    bob = HumanMessage(MINE, id="b", name="Bob")

    assert set(quoted(retrieved([ann, bob], 400))) == {"a", "b"}


def test_the_same_words_are_quoted_once_though_spaces_and_case_differ():
    again = "the  BLUE bike\nis mine. "

    found = quoted(retrieved([MINE, "It rained.", again, HERE], 400))

    assert len({"m0", "m2"}.intersection(found)) == 1
    assert "m3" in found


# Exchanges


TANDEM = "Who takes care of the old tandem these days?"
ANSWER = "Ines oils the old tandem every week."


FILLER = "It rains. " * 299


@pytest.mark.parametrize(
    "beginning",
    [
        "# The old tandem these days\n",
        "That's a great question about the old tandem! ",
        "Do you mean the old tandem? ",
        "Here is who takes care of the old tandem:\n- ",
    ],
    ids=["heading", "courtesy", "question back", "announcement"],
)
def test_a_quoted_question_brings_the_sentence_that_answers(beginning):
    messages = [*RAIN, HumanMessage(TANDEM), AIMessage(f"{beginning}{ANSWER} {FILLER}")]

    found = retrieved(messages, 400, query="The old tandem?")

    assert [fragment.text for fragment in found.fragments[-2:]] == [
        f"- user: {TANDEM}\n",
        f"- assistant: {ANSWER} …\n",
    ]


MORE = "Nobody else has the time for that. She does it in the shed behind the house. "


@pytest.mark.parametrize(
    ("beginning", "is_quoted"), [("", False), ("Yes, Ines. ", True)], ids=["first", "second"]
)
def test_the_first_sentence_of_a_longer_reply_repeats_the_question(beginning, is_quoted):
    messages = [*RAIN, HumanMessage(TANDEM), AIMessage(f"{beginning}{ANSWER} {MORE}{FILLER}")]

    found = retrieved(messages, 400, query="The old tandem?")

    assert (ANSWER in found.fragments[-1].text) is is_quoted


def test_a_reply_that_shares_nothing_with_the_message_is_not_quoted():
    messages = [*RAIN, HumanMessage(TANDEM), AIMessage("That's a great question! " + FILLER)]

    found = retrieved(messages, 400, query="The old tandem?")

    assert found.fragments[-1].text == f"- user: {TANDEM}\n"


def test_a_quoted_reply_brings_its_short_question():
    reply = AIMessage("The blue bike? Ines keeps it in the hall.")

    found = retrieved([HumanMessage(TANDEM), reply, *RAIN], 60)

    assert TANDEM in found.fragments[0].text


# Statements that a later one replaces


QUOTED_OR_SHOWN = pytest.mark.parametrize(
    "end", [2, 1], ids=["the later one is quoted", "the later one is in the prompt"]
)


def first_of_two_statements(older, newer, end):
    messages = [dated(older, "2026-03-01", "old"), dated(newer, "2026-03-02", "new")]
    return retrieved(messages, 400, end=end, query=f"{older} {newer} Tell me?").fragments[0]


@QUOTED_OR_SHOWN
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
    ],
    ids=lambda value: value if " " not in str(value) else None,
)
def test_a_statement_that_a_later_one_replaces_says_so(older, newer, thing, end):
    first = first_of_two_statements(older, newer, end)

    assert first.text == f"- user: {older} (superseded on 2026-03-02: {thing})\n"
    assert first.reason is Reason.SUPERSEDED


@QUOTED_OR_SHOWN
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Our budget is 2,000 euros.", "The budget is now 2000 euros."),
        ("The wifi password is sunny42.", "The email password is rainy77."),
        ("The meeting is on Monday.", "The meeting is at 3pm now."),
        ("The meeting is on Monday.", "The meeting is on Friday."),
        ("The flight is at noon.", "The flight is now at 12:00."),
        ("My weight is 80 kg.", "My weight is now 176 pounds."),
        ("The rent is 900 euros.", "The rent was raised by 50 euros."),
        ("I work at Google.", "I work on Fridays now."),
        ("My doctor is Smith.", "My doctor has moved to Denver."),
        ("For the flat, the budget is 500.", "For the garden, the budget is now 900."),
        ("I live in Rome.", "I moved to Oslo in 2010."),
        ("I live in Rome.", "My sister moved to Oslo."),
        ("The deadline is March 3.", "What if the deadline moved to March 17?"),
        ("The deadline is March 3.", "> The deadline has moved to March 17."),
    ],
    ids=[
        "the same",
        "of another thing",
        "of another kind",
        "it may be another meeting",
        "the same in another form",
        "in another unit",
        "a part of it",
        "not an employer",
        "the doctor's home",
        "of another budget",
        "long before",
        "somebody else's home",
        "a question",
        "a quotation",
    ],
)
def test_a_statement_that_no_later_one_replaces_stays_as_it_is(older, newer, end):
    first = first_of_two_statements(older, newer, end)

    assert first.text == f"- user: {older}\n"
    assert first.reason is Reason.RELEVANT


PORTS = ["The port is 8080. The host is on Elm Street.", "The port is now 9090."]
PORTS += [f"A port, {number}." for number in range(9)]


@pytest.fixture(scope="module")
def ports():
    return [HumanMessage(text, id=str(number)) for number, text in enumerate(PORTS)]


@pytest.mark.parametrize("budget", range(60, 140, 4))
def test_the_least_worthy_makes_room_for_the_mark_of_a_replacement(ports, budget):
    question = "Which port was it, which host, and which port is it now?"

    found = retrieved(ports, budget, query=question)

    assert cost(found) <= budget
    text = text_of(found)
    if "8080" in text and "9090" in text:
        assert "Street. (superseded: port)" in text


def test_another_speaker_replaces_nothing():
    date = {"created_at": "2026-03-01"}
    older = HumanMessage("The port is 8080.", name="Ann", additional_kwargs=date)
    newer = HumanMessage("The port is now 9090.", name="Bob", additional_kwargs=date)

    found = retrieved([older, newer], 400, query="Which port was it, and which one is it now?")

    assert "superseded" not in found.fragments[0].text


# Messages about everything


VISITS = [
    "I visit museums, now the museum of glass.",
    "I visit museums, now the museum of trains.",
    "I visit museums, now the museum of salt.",
    "I visit museums, now the museum of tea.",
    "I visit museums, now the museum of maps.",
]


def ten_days_with_the_visits_on_the_fifth():
    messages = []
    for day in range(1, 11):
        texts = [f"We pass a museum on our way to market {day - 1}.", "We ate soup."]
        if day == 5:
            texts += VISITS
        messages += [dated(text, f"2026-01-{day:02}") for text in texts]
    return messages


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
    room = 60 + sum(COUNTER.count_text(f"- user: {visit}\n") for visit in VISITS)

    text = text_of(retrieved(ten_days_with_the_visits_on_the_fifth(), room, query=query))

    assert [visit for visit in VISITS if visit not in text] == []


WEATHER = "The weather was fine this week and we had a lot of time. "
GARDEN = [
    message
    for number in range(40)
    for message in (
        HumanMessage(f"{WEATHER * 3}In the garden we planted bed {number} with beans."),
        AIMessage(f"{WEATHER * 3}For bed {number} of the garden you could put up a net."),
    )
]


def lines_of(query):
    return [part.text for part in retrieved(GARDEN, 700, query=query).fragments]


def test_a_message_about_everything_gets_an_index_of_short_lines():
    lines = lines_of("Summarise what we planted in the garden.")

    short = [line for line in lines if line.endswith("…\n")]
    assert len(short) > 15
    assert all("planted bed" in line for line in short if line.startswith("- user"))
    assert all(COUNTER.count_text(line) <= 26 for line in short)


def test_an_index_of_an_order_has_what_the_user_said():
    lines = lines_of("In which order did we plant the beds of the garden?")

    assert len(lines) > 15
    assert {line.partition(":")[0] for line in lines if line.endswith("…\n")} == {"- user"}


def talks(*parts):
    """Twenty long messages of both speakers about beds of the garden, with parts in front.

    In a part, `{}` stands for the number of the bed.
    """
    return [
        kind("\n\n".join(parts).format(number) + f"\n\n{WEATHER * 3}Bed {number} got beans.")
        for number in range(20)
        for kind in (HumanMessage, AIMessage)
    ]


ABOUT_GARDEN = "Summarise our talks about the garden."


def short_lines(messages, query):
    parts = retrieved(messages, 600, query=query).fragments
    return [part.text for part in parts if part.text.endswith("…\n")]


@pytest.mark.parametrize(
    "empty",
    [
        "# What we planted in the garden",
        "**What we planted in the garden**",
        "Plan for Beans in the Garden",
        "What we planted in the garden:",
        "Sure, here is what we planted in the garden.",
        "What was planted in the garden last year?",
        "**When was the garden planted?** (a month will do)",
        "I am glad that you planted the garden!",
        "The garden!",
    ],
)
def test_a_line_of_an_index_says_something(empty):
    lines = short_lines(talks(empty), "Summarise what we planted in the garden.")

    assert len(lines) > 10
    assert all("got beans" in line for line in lines)


def test_a_text_that_says_nothing_has_no_line_in_an_index():
    asking = [HumanMessage("What about the garden?"), AIMessage("Which garden do you mean?")]
    messages = [*asking * 5, *talks("In the garden all is well.")]

    lines = retrieved(messages, 400, query=ABOUT_GARDEN, most_items=8).fragments

    assert [line.text for line in lines if "?" in line.text] == []


def test_an_index_of_an_order_has_questions_of_the_user():
    messages = talks("May I put up net number {} over the garden?")

    lines = short_lines(messages, "In which order did I ask about a net for the garden?")

    assert len(lines) > 10
    assert all("net number" in line for line in lines)


def test_of_like_sentences_the_one_that_carries_most_is_in_the_index():
    messages = talks("We did a thing or two in the garden.", "In the garden Ada sold pot {}.")

    lines = short_lines(messages, ABOUT_GARDEN)

    assert len(lines) > 10
    assert all("Ada sold" in line for line in lines)


def test_a_line_stands_once_in_an_index():
    said = HumanMessage(f"{WEATHER * 50}We sold the whole garden to Ada.")
    messages = [said, *talks("In the garden all is well."), said]

    lines = short_lines(messages, "Summarise whom we sold the garden.")

    assert len([line for line in lines if "to Ada" in line]) == 1


def test_an_index_of_all_is_spread_over_all_times():
    messages = [HumanMessage(f"{WEATHER * 4}The hut is number {day}.") for day in range(100)]

    lines = short_lines(messages, "Summarise our talks.")

    tenths = {int(line.rpartition("number ")[2].rstrip(". …\n")) // 10 for line in lines}
    assert tenths == set(range(10))


def test_who_only_asks_for_a_summary_names_no_matter():
    assert Question.of("Summarise our conversations in order.").names_matter is False
    assert Question.of("Summarise our talks about bees.").matter == ["bee"]


@pytest.mark.parametrize(
    "text",
    [
        "Can you summarize our conversations about the garden?",
        "In which order did I visit the museums?",
        "How many times have I been to the dentist?",
        "What is everything we discussed about the lease?",
        "How has my running plan changed over time?",
    ],
)
def test_who_asks_for_a_summary_an_order_or_a_number_asks_about_all(text):
    assert Question.of(text).is_broad


@pytest.mark.parametrize(
    "text",
    [
        "Summarise this article: rates went up.",
        "How many chairs do we have?",
        "I want to order a pizza, everything is fine.",
    ],
)
def test_who_asks_for_something_else_does_not_ask_about_all(text):
    assert not Question.of(text).is_broad


# Texts from elsewhere


def with_memories(messages):
    return retrieved(messages, 600, others=[memory(number, "core") for number in range(30)])


def tokens_of_memories(found):
    memories = [fragment for fragment in found.fragments if fragment.id.startswith("memory")]
    return sum(fragment.tokens for fragment in memories)


def test_memories_take_at_most_their_share_while_others_want_room():
    found = with_memories([*BIKES, *RAIN])

    assert 0 < tokens_of_memories(found) <= 240  # 40 % of 600
    assert cost(found) - tokens_of_memories(found) >= 300


def test_memories_take_what_nobody_else_wants():
    assert tokens_of_memories(with_memories(["The bike is blue."])) > 480


def test_parts_of_a_document_are_not_quoted_where_it_stands_whole():
    others = [chunk(0), chunk(1), chunk(2, document="guide2")]
    named = [named_document("guide", "Oil for the bike. A lot.")]

    found = retrieved((), 400, others=others, named=named)

    assert quoted(found) == ["guide", "guide2#2"]
    assert not found.omitted()


def test_parts_of_a_document_are_quoted_where_it_stands_in_short():
    named = [(None, summary_of("guide"))]

    found = retrieved((), 400, others=[chunk(0), chunk(1)], named=named)

    assert quoted(found) == ["guide", "guide#0 + guide#1"]


# The order of items


THREE_DATED = [
    dated("The blue bike c.", "2026-03-01", "c"),
    dated("The blue bike a.", "2026-01-01", "a"),
    dated("The blue bike b.", "2026-01-01", "b"),
]


def test_items_stand_in_the_order_of_time_under_one_date():
    found = retrieved(THREE_DATED, 400)

    assert quoted(found) == ["a", "b", "c"]
    assert "".join(with_headings(found.fragments)).count("[2026-01-01]\n") == 1
    assert {fragment.section for fragment in found.fragments} == {OWN_SECTION}


ALIKE = [
    HumanMessage(
        f"The blue bike {'is old and ' * (number % 7)}has number {number}.", id=f"m{number:02}"
    )
    for number in range(60)
]


def test_items_that_are_sent_once_are_the_last_ones_in_time():
    found = retrieved(ALIKE, 400, transient_tokens=200)

    assert quoted(found) == sorted(quoted(found))
    flags = [fragment.transient for fragment in found.fragments]
    assert flags == sorted(flags)
    lasting = [fragment for fragment in found.fragments if not fragment.transient]
    assert 150 <= sum(fragment.tokens for fragment in lasting) <= 250


def test_items_from_elsewhere_stand_first():
    found = retrieved(THREE_DATED, 400, others=[chunk(1), memory(1)])

    assert quoted(found) == ["guide#1", "memory 1", "a", "b", "c"]
    assert {fragment.section for fragment in found.fragments} == {MIXED_SECTION}
    assert {fragment.layer for fragment in found.fragments} == {Layer.RETRIEVAL}
