"""Which names and numbers of a note stand in the messages that it names."""

from datetime import UTC, datetime

import pytest

from langchain_ctxbudget.knowledge.grounding import Ground, said_by_user
from langchain_ctxbudget.knowledge.records import ReadMessage

FRIDAY = datetime(2026, 5, 1, tzinfo=UTC)


def ground(text, at=FRIDAY, speaker="Ada"):
    return Ground([ReadMessage(id="m", digest="d", text=text, speaker=speaker, at=at)])


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("I live in Lisbon.", "Lives in Lisbon"),
        ("i live in lisbon", "Lives in Lisbon"),
        ("I live in Lisbon with my dog.", "Owns a dog"),
        ("I have three kids.", "Has 3 children"),
        ("Ich bin Krankenschwester.", "Works as a nurse"),
        ("Olen asunut Helsingissä kauan.", "Asuu kaupungissa Helsinki"),
        ("Я живу в Москве.", "Живёт в городе Москва"),
        ("Call me Zoe.", "Is called Zoë"),
        ("I am tall.", "Is called Ada"),
        ("I am tall.", "The User is tall"),
        ("We paid 12,000 euros.", "Paid 12000 euros"),
        ("My son is eight.", "Has a son aged 8"),
        ("I get up at 6:30.", "Gets up at 6"),
        ("我住在里斯本。", "住在里斯本"),
        ("My exam is on May 3rd.", "Has an exam on 2026-05-03"),
        ("I moved in yesterday.", "Moved in on 30 April 2026"),
        ("Wir sind gestern umgezogen.", "Umgezogen, 2026-04-30"),
        ("I moved in last year.", "Moved in during 2025"),
    ],
)
def test_what_stands_in_a_message_is_borne_by_it(said, noted):
    assert ground(said).bears(noted)


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ("I live in Lisbon.", "Lives in Madrid"),
        ("I live in Lisbon.", "Has a passport number 12345678"),
        ("My number is 123456789.", "Has a passport number 12345678"),
        ("I live in Lisbon with my dog.", "Allergic to penicillin"),
        ("I have two sisters.", "Owns two cats"),
        ("I work with Mark.", "Works with Maria"),
        ("I work with Ann.", "Works with Anna"),
        ("We run PostgreSQL.", "MongoDB is used"),
        ("I moved in yesterday.", "Born on 1 January 1990"),
        ("我住在里斯本。", "护照号码很长"),
    ],
)
def test_what_stands_in_no_message_is_not_borne(said, noted):
    assert not ground(said).bears(noted)


def test_a_date_near_no_message_must_stand_there():
    assert not ground("I moved in yesterday.", at=None).bears("Moved in on 2026-04-30")


LISBON = ReadMessage(id="a", digest="a", text="Do you mean Lisbon?", from_user=False)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Yes, that one.", ["a", "m"]),
        ("Ja, genau.", ["a", "m"]),
        ("对，就是那个。", ["a", "m"]),
        ("No, another one.", ["m"]),
        ("Yesterday.", ["m"]),
        ("Yes, and then tell me what the weather will be like there in May.", ["m"]),
    ],
)
def test_what_others_say_counts_where_the_user_says_yes(text, ids):
    answer = ReadMessage(id="m", digest="m", text=text)

    assert [message.id for message in said_by_user([LISBON, answer])] == ids
