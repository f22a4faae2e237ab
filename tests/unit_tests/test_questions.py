"""Open questions: found, kept once, closed by an answer and by nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.extractive import keep_sentences
from langchain_ctxbudget.core.importance import Kind
from langchain_ctxbudget.core.messages import date_of, plain_text, speaker
from langchain_ctxbudget.core.questions import MOST_QUESTIONS, OpenQuestions, answers, same_matter
from langchain_ctxbudget.demo import demo_messages

ANSWERED = [
    ("[OPEN] Which venue do we book for the meetup?", "We booked the Kulturbrauerei as the venue for the meetup."),
    ("Which database should the billing service use?", "We decided on Postgres for the billing service."),
    ("Open question: which database?", "Fine, decided: SQLite is the database."),
    ("When is the release?", "The release is on 3 May."),
    ("Still to be decided: the launch date.", "New launch date: Saturday 17 October."),
    ("What is the budget for the offsite?", "The budget for the offsite is 4,000 EUR."),
    ("We still need to decide on the name of the cat.", "The cat is called Miso, that's the name."),
    ("TBD: who pays for the catering?", "It's settled, Nadia pays for the catering."),
    ("How we charge for consumables is still open.", "She had an answer to the consumables thing that we parked."),
    ("[OPEN] Owen to confirm the Christmas closure.", "Owen confirmed the Christmas closure: 21 December."),
    ("Unclear whether the API needs authentication.", "[RESOLVED] API authentication via tokens."),
    ("Open: colour of the logo", "We went with green for the logo."),
    ("Should refunds use the old rounding?", "Mrs Okafor answered: refunds keep the old rounding."),
    ("[OPEN] 会议的地点是哪里？", "会议的地点在柏林。"),
    ("How many seats does the bus have?", "The bus has 48 seats."),
    ("[OPEN] Who speaks first?", "[CLOSED] Ada speaks."),
]
NOT_ANSWERED = [
    ("[OPEN] Which venue do we book for the meetup?", "I talked to Ada about the venue for the meetup."),
    ("Which database should the billing service use?", "We decided to rename the billing service."),
    ("Open question: which database?", "Is the database Redis?"),
    ("When is the release?", "The release depends on the translators."),
    ("Still to be decided: the launch date.", "The launch date is still open."),
    ("What is the budget for the offsite?", "We need a budget for the offsite."),
    ("What is the budget for the offsite?", "The budget for the offsite is with Nadia."),
    ("We still need to decide on the name of the cat.", "The cat slept on the sofa."),
    ("TBD: who pays for the catering?", "Maybe Nadia pays for the catering."),
    ("Which colour does the kiosk get?", "We decided on Postgres."),
    ("[OPEN] Owen to confirm the Christmas closure.", "Owen has not confirmed the Christmas closure."),
    ("Which colour does the kiosk get?", "The colour of the kiosk should be decided by Friday."),
    ("Open: venue for the party", "The date of the party is 3 May."),
    ("Open question: how long do we keep backups?", "We keep backups on the computer under the desk."),
    ("Which lawyer checks the contract?", "I asked the lawyer about the contract."),
    ("[OPEN] Which database?", "[OPEN] Which database?"),
    ("Open question.", "We decided on it."),
]


@pytest.mark.parametrize(("question", "text"), ANSWERED)
def test_a_question_is_answered(question, text):
    assert answers(question, text)


@pytest.mark.parametrize(("question", "text"), NOT_ANSWERED)
def test_a_question_is_not_answered(question, text):
    assert not answers(question, text)


def test_a_sentence_is_answered_as_its_text_is():
    [asked] = keep_sentences([Line(0, "ada", None, "Open question: which database?", from_user=True)])
    assert answers(asked, "We settled on Redis as the database.")


def test_one_sentence_of_many_answers():
    assert answers("When is the release?", "Hello. My bike is blue. The release is on 3 May. See you.")


def read(*texts, speakers="ab"):
    ledger = OpenQuestions()
    ledger.read(Line(i, speakers[i % len(speakers)], None, text, from_user=False) for i, text in enumerate(texts))
    return ledger


def alive(*texts, speakers="ab"):
    return [question.text for question in read(*texts, speakers=speakers).alive()]


def test_an_open_question_says_where_it_comes_from():
    ledger = OpenQuestions()
    ledger.read([Line(7, "ada", "2024-05-01", "Well. [OPEN] Which database?", from_user=True)])
    [asked] = ledger.alive()
    assert (asked.position, asked.speaker, asked.date, asked.kind) == (7, "ada", "2024-05-01", Kind.OPEN)


def test_an_open_question_is_the_sentence_that_a_digest_keeps():
    line = Line(0, "ada", None, "We met. It was late. [OPEN] Which database, then? It matters.", from_user=True)
    ledger = OpenQuestions()
    ledger.read([line])
    assert ledger.alive()
    assert set(ledger.alive()) <= {
        replace(s, score=asked.score) for s in keep_sentences([line]) for asked in ledger.alive()
    }


def test_a_plain_question_is_not_open():
    assert alive("Which database?", "No idea.") == []


def test_a_later_answer_closes_a_question():
    assert alive("[OPEN] Which database?", "My bike is blue.", "The database: we decided on Redis.") == []


def test_an_earlier_answer_closes_nothing():
    assert alive("We decided on Redis as the database.", "[OPEN] Which database?") == ["[OPEN] Which database?"]


def test_a_decision_about_something_else_closes_nothing():
    assert len(alive("[OPEN] Which database?", "Hm.", "We decided on green for the logo.")) == 1


def test_the_direct_reply_of_another_closes_a_question():
    assert alive("[OPEN] Which database?", "Let's go with Redis.") == []


def test_the_same_speakers_next_decision_closes_nothing():
    assert len(alive("[OPEN] Which database?", "Let's go with pizza.", speakers="a")) == 1


def test_a_direct_reply_to_several_questions_closes_only_what_it_names():
    left = alive("[OPEN] Which database? [OPEN] Which logo?", "Let's go with green for the logo.")
    assert left == ["[OPEN] Which database?"]


def test_a_direct_reply_that_puts_it_off_closes_nothing():
    assert len(alive("[OPEN] Which database?", "We decided to postpone that until May.")) == 1


def test_of_two_questions_the_one_that_shares_most_is_closed():
    left = alive(
        "[OPEN] Which database for billing?",
        "[OPEN] Which cache for billing?",
        "Hm.",
        "ok",
        "Decided: the billing cache is Redis.",
    )
    assert left == ["[OPEN] Which database for billing?"]


def test_the_same_question_is_one():
    assert alive("[OPEN] Which database?", "Hm.", "Open question: which database?") == [
        "Open question: which database?"
    ]


def test_two_questions_are_two():
    assert len(alive("[OPEN] Which database?", "[OPEN] Which colour for the logo?")) == 2


def test_a_mark_without_matter_means_the_question_before_it():
    assert alive("Should we open on Sundays as well?", "Not yet.", "It's an open question, then.") == [
        "Should we open on Sundays as well?"
    ]


def test_a_mark_without_matter_and_without_a_question_is_none():
    assert alive("My bike is blue.", "Noted as open.") == []


def test_the_items_under_a_heading_are_open():
    assert alive("Open questions:\n- the venue of the party\n- the colour of the logo\nThat is all.") == [
        "the venue of the party",
        "the colour of the logo",
    ]


def test_that_closes_it_means_what_the_message_before_was_about():
    asked = "Open question: there is an R. Dunne with nine tools out since 2019."
    assert (
        alive(asked, "Hm.", "R. Dunne exists, she moved in 2019 with nine tools.", "That closes the open question.")
        == []
    )


@pytest.mark.parametrize("mark", ["[CLOSED]", "[ANSWERED]", "[RESOLVED]"])
def test_a_mark_closes(mark):
    assert alive("[OPEN] Which database?", "Hm.", f"{mark} database: Redis") == []


def test_only_so_many_are_kept_and_the_oldest_go():
    texts = [f"[OPEN] Who feeds animal{i} at place{i}?" for i in range(MOST_QUESTIONS + 5)]
    left = alive(*texts)
    assert left == texts[5:]


def test_a_message_is_read_once():
    ledger = read("[OPEN] Which database?", "We settled on Redis as the database.")
    ledger.read([Line(0, "a", None, "[OPEN] Which database?", from_user=False)])
    assert (ledger.alive(), ledger.read_until) == ((), 2)


TEXTS = st.lists(
    st.sampled_from([question for question, _ in ANSWERED] + [text for _, text in ANSWERED + NOT_ANSWERED])
)


@settings(deadline=None)
@given(TEXTS, st.integers(0, 10))
def test_reading_in_parts_is_reading_at_once(texts, cut):
    lines = [Line(i, "ab"[i % 2], None, text, from_user=False) for i, text in enumerate(texts)]
    ledger = OpenQuestions()
    ledger.read(lines[:cut])
    ledger = ledger.copy()
    ledger.read(lines[cut:])
    assert ledger.alive() == read(*texts).alive()
    assert ledger.read_until == len(texts)


def test_a_copy_goes_on_by_itself():
    ledger = read("[OPEN] Which database?")
    twin = ledger.copy()
    twin.read([Line(1, "b", None, "Let's go with Redis.", from_user=False)])
    assert (len(ledger.alive()), len(twin.alive())) == (1, 0)


@settings(deadline=None)
@given(st.lists(st.text(), max_size=5))
def test_any_text_is_read(texts):
    assert len(alive(*texts)) <= sum(map(len, texts))


@pytest.mark.parametrize(
    ("one", "other", "same"), [("Which cat?", "[OPEN] Which cat?", True), ("Which cat?", "Which dog?", False)]
)
def test_questions_on_the_same_matter_are_the_same(one, other, same):
    assert same_matter(one, other) is same


def test_the_demo_leaves_open_what_nobody_answered():
    ledger = OpenQuestions()
    ledger.read(
        Line(i, speaker(m), date_of(m), plain_text(m), m.type == "human") for i, m in enumerate(demo_messages())
    )
    said = " ".join(question.text for question in ledger.alive())
    assert "Christmas closure" in said
    assert "Sundays" in said
    assert "consumables" not in said
    assert "Dunne" not in said
