"""The values that a text names: in several scripts, with digits and units of several kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.messages import (
    ValueKind,
    capitals_tell_names,
    stands_alone,
    values_in,
)


def found(text: str, *, with_names: bool = False) -> list[tuple[str, str]]:
    return [(value.text, value.kind.value) for value in values_in(text, with_names=with_names)]


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("It costs 1,200.50 EUR a year", "1,200.50 EUR", "amount"),
        ("take 20 mg twice", "20 mg", "amount"),
        ("about $3.5 million", "$3.5 million", "amount"),
        ("费用3500元。", "3500元", "amount"),
        ("الرقم ٤٥٠٠ هنا", "٤٥٠٠", "amount"),
        ("платит 25 000 руб за квартиру", "25 000 руб", "amount"),
        ("on 12 May 2024 at noon", "12 May 2024", "date"),
        ("am 17. Oktober", "17. Oktober", "date"),
        ("since 2024-05-12", "2024-05-12", "date"),
        ("会议定于2024年5月12日举行", "2024年5月12日", "date"),
        ("at 14:30 sharp", "14:30", "time"),
        ("call me at 5pm", "5pm", "time"),
        ("we use v1.2.3 now", "v1.2.3", "version"),
        ("order ORD-12345 is late", "ORD-12345", "id"),
        ("see #412 for that", "#412", "id"),
        ("commit 3f2a9bc broke it", "3f2a9bc", "hash"),
        ("look into src/app/main.py first", "src/app/main.py", "path"),
        ("it is in /etc/hosts already", "/etc/hosts", "path"),
        ("read https://example.org/a?b=1.", "https://example.org/a?b=1", "url"),
        ("write to ada@example.org soon", "ada@example.org", "email"),
    ],
)
def test_a_value_is_found(text: str, value: str, kind: str) -> None:
    assert found(text) == [(value, kind)]


@pytest.mark.parametrize(
    "text", ["2 of 15 came", "he/she and/or they", "the 3rd try", "e.g. this one", "", "人很多。"]
)
def test_a_text_without_values_has_none(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("then I told Anna about it", "Anna"),
        ("we met Peter Smith there", "Peter Smith"),
        ("потом он уехал в Новосибирск", "Новосибирск"),
    ],
)
def test_a_name_is_found_where_capitals_tell_names(text: str, name: str) -> None:
    assert found(text, with_names=True) == [(name, "name")]


@pytest.mark.parametrize(
    ("text", "tell"),
    [
        ("We went with Anna to the lake and back again by the evening train", True),
        ("Ich habe die Wohnung in Berlin für die Familie im Herbst gemietet", False),
    ],
)
def test_capitals_of_nouns_tell_no_names(text: str, *, tell: bool) -> None:
    assert capitals_tell_names([text]) is tell


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,200 EUR", "1200 euros"),
        ("٤٥٠٠", "4500"),
        ("8 GB", "8GB"),
        ("ORD-1234", "ord-1234"),
        ("25 000 km", "25,000 km"),
    ],
)
def test_one_value_written_in_two_ways_has_one_key(one: str, other: str) -> None:
    keys = {value.key for text in (one, other) for value in values_in(text, with_names=False)}

    assert len(keys) == 1


@given(st.text(max_size=200))
def test_a_value_stands_in_its_text(text: str) -> None:
    for value in values_in(text, with_names=True):
        assert value.kind in ValueKind
        assert value.text in " ".join(text.split()) or value.text in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("$50", "It is $500 now."),
        ("$50", "It is $50.25 now."),
        ("ORD-12", "See ORD-123."),
        ("300", "The code is A300."),
    ],
)
def test_a_part_of_a_longer_value_does_not_stand_alone(value: str, text: str) -> None:
    assert not stands_alone(value, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("$50", "It is $500, and was $50."),
        ("ORD-12", "(ORD-12), as told"),
        ("2031年5月12日", "会议定于2031年5月12日举行。"),
        ("3500元", "费用3500元。"),
    ],
)
def test_a_value_beside_other_marks_stands_alone(value: str, text: str) -> None:
    assert stands_alone(value, text)
