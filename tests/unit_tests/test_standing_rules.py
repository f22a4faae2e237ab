"""Which rules are in force, by what the user has said, and by hand."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.knowledge.records import BY_USER, RuleRecord
from langchain_ctxbudget.knowledge.standing_rules import (
    RULE_POLICY,
    RuleEvent,
    StandingRule,
    StandingRules,
    records_of,
    rules_of,
)
from langchain_ctxbudget.messages import forget_texts
from langchain_ctxbudget.sentences import Label, Said

NOW = datetime(2026, 11, 28, tzinfo=UTC)
NO_PUSH = "Never push to main without asking me first."
PUSH_AGAIN = "You can push to main again without asking."
BULLETS = "Answer in bullet points from now on."


def stated(
    text: str,
    position: int,
    *,
    everywhere: bool = False,
    lifting: float = 0.0,
    certainty: float = 0.9,
) -> RuleEvent:
    """A sentence that the reader takes for a rule."""
    label = Label.USER_RULE if everywhere else Label.RULE
    said = Said(label, 0, len(text), certainty, lifting)
    rule = StandingRule(
        id=f"rule/{position}",
        text=text,
        conversation_id="c1",
        message_id=f"m{position}",
        holds_everywhere=everywhere,
        certainty=certainty,
        position=position,
    )
    return RuleEvent(said=said, rule=rule)


def taken_back(text: str, position: int, lifting: float = 0.9, message_text: str = "") -> RuleEvent:
    """A sentence that the reader takes for a lifting, and the message in which it stands."""
    said = Said(Label.LIFTING, 0, len(text), lifting, lifting)
    rule = StandingRule(id=f"rule/{position}", text=text, position=position)
    return RuleEvent(said=said, rule=rule, message_text=message_text)


def texts_of(rules: StandingRules, until: int | None = None) -> list[str]:
    return [rule.text for rule in rules.in_force(until)]


def rules(*events: RuleEvent, records: tuple[RuleRecord, ...] = ()) -> StandingRules:
    return rules_of(events, records, "c1")


def record(text: str = NO_PUSH, **changes: object) -> RuleRecord:
    """A rule that holds everywhere, from another conversation."""
    values = {"id": "rule/9", "text": text, "conversation_id": "c2", "holds_everywhere": True}
    return RuleRecord.model_validate({**values, **changes})


def test_a_rule_is_in_force() -> None:
    assert texts_of(rules(stated(NO_PUSH, 1))) == [NO_PUSH]


def test_a_lifting_takes_back_the_rule_that_it_is_about() -> None:
    found = rules(stated(NO_PUSH, 1), stated(BULLETS, 3), taken_back(PUSH_AGAIN, 5))

    assert texts_of(found) == [BULLETS]


def test_another_sentence_of_its_message_tells_what_a_lifting_is_about() -> None:
    message_text = "I have pushed to main for a year now. No need to ask any more."
    lifting = taken_back("No need to ask any more.", 5, message_text=message_text)

    assert texts_of(rules(stated(NO_PUSH, 1), stated(BULLETS, 3), lifting)) == [BULLETS]


SUBJECTS = (
    "apples bridges candles doors engines flowers gardens hammers islands jackets kettles lamps "
    "mirrors needles oranges pianos quilts rivers stamps tunnels"
).split()


def many_doubtful_rules() -> list[RuleEvent]:
    """Twenty rules of which the reader is not sure, the later the surer."""
    return [
        stated(f"No {subject}.", number, certainty=0.4 + number / 100)
        for number, subject in enumerate(SUBJECTS, 1)
    ]


def test_of_many_doubtful_rules_the_most_certain_ones_count() -> None:
    counted = SUBJECTS[-RULE_POLICY.most_doubtful :]

    assert texts_of(rules(*many_doubtful_rules())) == [f"No {subject}." for subject in counted]


def test_a_sure_rule_counts_beside_many_doubtful_ones() -> None:
    found = rules(stated(NO_PUSH, 0), *many_doubtful_rules())

    assert texts_of(found)[0] == NO_PUSH


NO_EMOJI = "No emoji, please."
NO_EMOJI_ANYWHERE = "No emoji in any chat."
EMOJI_AGAIN = "You can use emoji again."


def test_a_lifting_takes_back_every_rule_that_says_the_same() -> None:
    found = rules(
        stated(NO_EMOJI, 1),
        stated(NO_EMOJI_ANYWHERE, 3, everywhere=True),
        taken_back(EMOJI_AGAIN, 5),
    )

    assert texts_of(found) == []


def test_a_lifting_takes_back_the_wider_rule_that_says_the_same() -> None:
    wide = record(text="From now on, in every chat: answer in French.")
    narrow = "Answer in French, please."
    found = rules(stated(narrow, 1), taken_back("No need to answer in French.", 3), records=(wide,))

    assert texts_of(found) == []


@pytest.mark.parametrize(
    ("lifted", "other", "lifting"),
    [
        (NO_PUSH, "Run the tests before you push to main.", PUSH_AGAIN),
        (NO_PUSH, "Never push.", PUSH_AGAIN),
        (NO_EMOJI_ANYWHERE, "No emoji in commit messages.", EMOJI_AGAIN),
    ],
    ids=["another rule of the same thing", "a rule of more", "a rule of a part"],
)
def test_a_lifting_leaves_rules_that_say_something_else(
    lifted: str, other: str, lifting: str
) -> None:
    found = rules(stated(other, 1), stated(lifted, 3), taken_back(lifting, 5))

    assert texts_of(found) == [other]


@pytest.mark.parametrize("lifting", ["I take that rule back.", "Diese Regel nehme ich zurück."])
def test_a_lifting_that_names_nothing_takes_back_the_last_rule(lifting: str) -> None:
    found = rules(stated(BULLETS, 1), stated(NO_PUSH, 3), taken_back(lifting, 5))

    assert texts_of(found) == [BULLETS]


def test_a_lifting_of_an_unknown_rule_takes_nothing_back() -> None:
    found = rules(stated(NO_PUSH, 1), taken_back("Drop this rule about the fonts.", 3, 0.9))

    assert texts_of(found) == [NO_PUSH]


def test_a_rule_laid_down_elsewhere_after_a_lifting_holds() -> None:
    events = (stated(NO_PUSH, 1), taken_back(PUSH_AGAIN, 3))
    kept = records_of(rules(*events), (), "c1", NOW)
    later = record(since=NOW + timedelta(minutes=1))

    assert texts_of(rules(*events, records=(*kept, later))) == [NO_PUSH]


def test_a_rule_laid_down_elsewhere_before_a_lifting_stays_lifted() -> None:
    earlier = record(since=NOW - timedelta(minutes=1))
    lifting = taken_back(PUSH_AGAIN, 1)
    kept = records_of(rules(lifting, records=(earlier,)), (earlier,), "c1", NOW)

    assert texts_of(rules(lifting, records=kept)) == []


def test_a_lifting_of_nothing_takes_nothing_back() -> None:
    found = rules(stated(NO_PUSH, 1), taken_back("You may use emojis again.", 3))

    assert texts_of(found) == [NO_PUSH]


@pytest.mark.parametrize(
    ("rule", "lifting"),
    [
        ("Always run the tests before you say you're done.", "Bullet lists are OK again."),
        ("No more marketing mails to me, ever.", "DHL is fine again, they changed the driver."),
        ("Please never use emoji when you write to me.", "You can use tables again."),
        (
            "Never book anything without asking me first.",
            "You may call me by my first name again.",
        ),
    ],
)
def test_a_lifting_leaves_a_rule_of_another_subject(rule: str, lifting: str) -> None:
    assert texts_of(rules(stated(rule, 1), taken_back(lifting, 3))) == [rule]


NO_BOOKING = "Never book anything without asking me first."


def test_a_lifting_said_again_takes_nothing_back() -> None:
    found = rules(
        stated(NO_PUSH, 1),
        stated(NO_BOOKING, 3),
        taken_back(PUSH_AGAIN, 5),
        taken_back("As I said, you can push to main without asking.", 7),
    )

    assert texts_of(found) == [NO_BOOKING]


def test_a_rule_that_came_in_place_of_another_can_be_taken_back() -> None:
    found = rules(
        stated(NO_PUSH, 1),
        taken_back(PUSH_AGAIN, 3),
        stated("Don't push to main without me.", 5),
        taken_back(PUSH_AGAIN, 7),
    )

    assert texts_of(found) == []


def test_a_rule_can_be_stated_again() -> None:
    found = rules(stated(NO_PUSH, 1), taken_back(PUSH_AGAIN, 3), stated(NO_PUSH, 5))

    assert [rule.position for rule in found.in_force()] == [5]


def test_a_rule_said_twice_is_one() -> None:
    found = rules(stated(NO_PUSH, 1), stated(NO_PUSH, 3))

    assert [rule.position for rule in found.in_force()] == [3]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("Answer in French.", "answer in French!"),
        ("No emoji", "No emoji, please."),
        ("Please answer in French.", "Answer in French"),
    ],
)
def test_a_rule_said_twice_in_nearly_the_same_words_is_one(first: str, again: str) -> None:
    assert texts_of(rules(stated(first, 1), stated(again, 3))) == [again]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Reply in French on Mondays.", "Reply in French on Fridays."),
        ("No calls before nine.", "No calls after nine."),
        ("Never push to main.", "Never push to release."),
    ],
)
def test_rules_that_differ_in_a_word_both_stand(first: str, second: str) -> None:
    assert texts_of(rules(stated(first, 1), stated(second, 3))) == [first, second]


def test_a_new_rule_replaces_the_one_that_it_takes_back() -> None:
    old = "Never spend more than 40 euros a night on hotels."
    new = "You can spend up to 60 euros a night on hotels now."
    found = rules(stated(old, 1), stated(new, 3, lifting=0.4))

    assert texts_of(found) == [new]


def test_a_further_rule_about_the_same_stands_beside_it() -> None:
    found = rules(
        stated("Commit messages are in English.", 1),
        stated("Commit messages have at most 60 characters.", 3),
    )

    assert len(found.in_force()) == 2


def test_rules_of_an_earlier_moment_can_be_asked_for() -> None:
    found = rules(stated(NO_PUSH, 1), taken_back(PUSH_AGAIN, 5))

    assert texts_of(found, until=5) == [NO_PUSH]


def test_a_rule_of_another_conversation_holds_if_it_holds_everywhere() -> None:
    assert texts_of(rules(records=(record(),))) == [NO_PUSH]


def test_a_rule_of_another_conversation_can_be_taken_back_here() -> None:
    found = rules(taken_back(PUSH_AGAIN, 1), records=(record(),))

    assert texts_of(found) == []
    assert found.taken_back_here == {"rule/9"}


@pytest.mark.parametrize(
    ("begin", "said_there"),
    [(0, []), (1, []), (2, [PUSH_AGAIN]), (6, [])],
    ids=["before both", "with the rule", "behind the rule", "behind the lifting"],
)
def test_a_lifting_is_told_of_where_its_rule_was_stated_before(
    begin: int, said_there: list[str]
) -> None:
    found = rules(stated(NO_PUSH, 1), taken_back(PUSH_AGAIN, 5))

    assert [sentence.text for sentence in found.said_between(begin, 9)] == said_there


def test_a_rule_by_hand_holds_in_its_conversation() -> None:
    here = record(conversation_id="c1", made_by=BY_USER, holds_everywhere=False)
    elsewhere = record(id="rule/8", made_by=BY_USER, holds_everywhere=False)

    assert [rule.id for rule in rules(records=(here, elsewhere)).in_force()] == ["rule/9"]


def test_a_rule_that_was_lifted_by_hand_does_not_hold() -> None:
    lifted = record(id="rule/1", conversation_id="c1", lifted_at=NOW)

    assert texts_of(rules(stated(NO_PUSH, 1), records=(lifted,))) == []


def test_rules_of_the_application_come_first_and_stay() -> None:
    found = rules_of(
        [stated(BULLETS, 1), taken_back("You may name prices again.", 3)],
        (),
        "c1",
        ["Never name a price."],
    )

    assert texts_of(found) == ["Never name a price.", BULLETS]


@pytest.mark.parametrize(("everywhere", "stored"), [(True, ["rule/1"]), (False, [])])
def test_rules_that_hold_everywhere_are_stored(everywhere: bool, stored: list[str]) -> None:
    found = rules(stated(BULLETS, 1, everywhere=everywhere))

    assert [one.id for one in records_of(found, (), "c1", NOW)] == stored


def test_of_a_rule_that_was_taken_back_where_it_was_said_the_lifting_is_stored() -> None:
    stored = record(id="rule/1", conversation_id="c1")
    found = rules(stated(NO_PUSH, 1, everywhere=True), taken_back(PUSH_AGAIN, 3), records=(stored,))

    assert [one.id for one in records_of(found, (stored,), "c1", NOW)] == ["rule/3"]


def test_a_rule_that_was_taken_back_elsewhere_is_lifted() -> None:
    found = rules(taken_back(PUSH_AGAIN, 1), records=(record(),))

    [rule, _] = records_of(found, (record(),), "c1", NOW)
    assert (rule.id, rule.lifted_at) == ("rule/9", NOW)


SENTENCES = st.lists(
    st.builds(
        lambda text, lifts: (text, lifts),
        st.sampled_from((NO_PUSH, BULLETS, PUSH_AGAIN, *SUBJECTS)),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(SENTENCES, st.lists(st.integers(1, 12), max_size=6))
@settings(max_examples=60, deadline=None)
def test_rules_read_bit_by_bit_are_those_read_at_once(
    sentences: list[tuple[str, bool]], lengths: list[int]
) -> None:
    events = [
        taken_back(text, position) if lifts else stated(text, position)
        for position, (text, lifts) in enumerate(sentences)
    ]
    forget_texts()
    bit_by_bit = [rules(*events[:length]).all_in_force for length in lengths]
    at_once = []
    for length in lengths:
        forget_texts()
        at_once.append(rules(*events[:length]).all_in_force)
    assert bit_by_bit == at_once


@given(st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=6), st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_taken_back_anywhere_is_in_force_nowhere(
    subjects: list[str], data: st.DataObject
) -> None:
    there = [
        stated(f"Never mention {subject}.", number, everywhere=True)
        for number, subject in enumerate(subjects)
    ]
    known = records_of(rules_of(there, (), "c1", ()), (), "c1", NOW)
    subject = data.draw(st.sampled_from(subjects))
    lifting = [taken_back(f"You may mention {subject} again.", 1)]
    here = rules_of(lifting, known, "c2")
    after = records_of(here, known, "c2", NOW + timedelta(minutes=1))

    for events, name in ((lifting, "c2"), (there, "c1"), ([], "c3")):
        in_force = texts_of(rules_of(events, after, name))
        assert [text for text in in_force if subject in text] == []
        assert {text.removeprefix("Never mention ")[:-1] for text in in_force} == {
            other for other in subjects if other != subject
        }
