"""Open questions: found, kept once, closed by an answer and by nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.history import Line
from langchain_ctxbudget.history.extractive import Kind
from langchain_ctxbudget.history.open_questions import MOST_QUESTIONS, OpenQuestions, answers, same_matter
from langchain_ctxbudget.messages import date_of, plain_text, speaker

ANSWERED = [
    ("[OPEN] Which venue do we book for the meetup?", "We booked the Kulturbrauerei as the venue for the meetup."),
    ("Which database should the billing service use?", "We decided on Postgres for the billing service."),
    ("Open question: which database?", "Fine, decided: SQLite is the database."),
    ("When is the release?", "The release is on 3 May."),
    ("When is the release?", "Hello. My bike is blue. The release is on 3 May. See you."),
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
STORIES: dict[str, tuple[list[str], list[str]]] = {
    "a plain question is not open": (["Which database?", "No idea."], []),
    "a later answer": (["[OPEN] Which database?", "My bike is blue.", "The database: we decided on Redis."], []),
    "an earlier answer": (
        ["We decided on Redis as the database.", "[OPEN] Which database?"],
        ["[OPEN] Which database?"],
    ),
    "another matter": (["[OPEN] Which database?", "Hm.", "Decided: green for the logo."], ["[OPEN] Which database?"]),
    "a direct reply": (["[OPEN] Which database?", "Let's go with Redis."], []),
    "a reply to one of two": (
        ["[OPEN] Which database? [OPEN] Which logo?", "Let's go with green for the logo."],
        ["[OPEN] Which database?"],
    ),
    "put off": (["[OPEN] Which database?", "We decided to postpone that until May."], ["[OPEN] Which database?"]),
    "the one that shares most": (
        [
            "[OPEN] Which database for billing?",
            "[OPEN] Which cache for billing?",
            "Hm.",
            "Decided: billing cache: Redis.",
        ],
        ["[OPEN] Which database for billing?"],
    ),
    "asked again": (
        ["[OPEN] Which database?", "Hm.", "Open question: which database?"],
        ["Open question: which database?"],
    ),
    "two questions": (
        ["[OPEN] Which database?", "[OPEN] Which colour?"],
        ["[OPEN] Which database?", "[OPEN] Which colour?"],
    ),
    "the question before": (
        ["Should we open on Sundays as well?", "Not yet.", "It's an open question, then."],
        ["Should we open on Sundays as well?"],
    ),
    "no question before": (["My bike is blue.", "Noted as open."], []),
    "under a heading": (
        ["Open questions:\n- the venue of the party\n- the colour of the logo\nThat is all."],
        ["the venue of the party", "the colour of the logo"],
    ),
    "that closes it": (
        [
            "Open question: there is an R. Dunne with nine tools out since 2019.",
            "Hm.",
            "R. Dunne exists, she moved in 2019 with nine tools.",
            "That closes the open question.",
        ],
        [],
    ),
    "a mark": (["[OPEN] Which database?", "Hm.", "[ANSWERED] database: Redis"], []),
}


def read(*texts, speakers="ab"):
    lines = (Line(i, speakers[i % len(speakers)], None, text, from_user=False) for i, text in enumerate(texts))
    return OpenQuestions().read(lines)


def alive(*texts, speakers="ab"):
    return [question.text for question in read(*texts, speakers=speakers).alive()]


def test_a_question_is_answered_by_its_answer_and_by_nothing_else():
    assert [pair for pair in ANSWERED if not answers(*pair)] == []
    assert [pair for pair in NOT_ANSWERED if answers(*pair)] == []
    assert same_matter("Which cat?", "[OPEN] Which cat?")
    assert not same_matter("Which cat?", "Which dog?")


def test_what_a_conversation_leaves_open():
    assert {name: alive(*texts) for name, (texts, _) in STORIES.items()} == {
        n: left for n, (_, left) in STORIES.items()
    }
    assert len(alive("[OPEN] Which database?", "Let's go with pizza.", speakers="a")) == 1  # nobody has replied
    texts = [f"[OPEN] Who feeds animal{i} at place{i}?" for i in range(MOST_QUESTIONS + 5)]
    assert alive(*texts) == texts[5:]


def test_an_open_question_says_where_it_comes_from_and_is_read_once():
    line = Line(7, "ada", "2024-05-01", "Well. [OPEN] Which database?", from_user=True)
    found = OpenQuestions().read([line])
    [asked] = found.alive()
    assert (asked.position, asked.speaker, asked.date, asked.kind) == (7, "ada", "2024-05-01", Kind.OPEN)
    settled = found.read([Line(8, "b", None, "We settled on Redis as the database.", from_user=False)])
    assert (settled.read([line]).alive(), settled.read_until) == ((), 9)
    assert len(found.alive()) == 1


TEXTS = st.lists(st.sampled_from([text for pair in ANSWERED + NOT_ANSWERED for text in pair]) | st.text(max_size=40))


@settings(deadline=None)
@given(TEXTS, st.integers(0, 10))
def test_reading_in_parts_is_reading_at_once(texts, cut):
    lines = [Line(i, "ab"[i % 2], None, text, from_user=False) for i, text in enumerate(texts)]
    assert OpenQuestions().read(lines[:cut]).read(lines[cut:]) == read(*texts)


def test_the_demo_leaves_open_what_nobody_answered():
    lines = (Line(i, speaker(m), date_of(m), plain_text(m), m.type == "human") for i, m in enumerate(demo_messages()))
    said = " ".join(question.text for question in OpenQuestions().read(lines).alive())
    assert [word in said for word in ("Christmas closure", "Sundays", "consumables", "Dunne")] == [
        True,
        True,
        False,
        False,
    ]
