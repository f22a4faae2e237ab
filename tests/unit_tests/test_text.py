"""How texts are read: words, sentences, names and dates, in any script."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.messages import fold, mentions, sentences, terms, word_count


@pytest.mark.parametrize("mark", ["'", "\u2019"])
def test_terms_leave_out_what_a_contraction_adds(mark):
    text = "It's the bike I've sold, Ann's; they'll say I'm mad, you're not, he'd ride, we can't."
    assert terms(text.replace("'", mark)) == ["bike", "sold", "ann", "say", "mad", "ride"]


@pytest.mark.parametrize("script", ["中文", "かな", "カナ", "한국", "ไทย", "ខ្មែរ", "ລາວ", "မြန်"])
def test_scripts_without_spaces_are_read_in_pairs(script):
    text = script * 2
    assert terms(text) == [text[i : i + 2] for i in range(len(text) - 1)]


@settings(deadline=None)
@given(st.text(st.characters(codec="ascii")) | st.from_regex(r"([A-Za-z0-9_'.-]+[ \n\x1c]){1,9}", fullmatch=True))
def test_ascii_is_read_as_any_other_text_is(text):
    other = f"{text} …"  # which is no word, and not ASCII
    assert (terms(text), word_count(text)) == (terms(other), word_count(other))


@settings(deadline=None)
@given(st.text(alphabet="ab.!?。！」\"') \n"))
def test_sentences_lose_nothing_but_white_space(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("Billing, billing and BILLING", "Billing", 3),
        ("prebilling billings", "billing", 0),
        ("We use C++.", "C++", 1),
        ("a.c abc", "a.c", 1),
        ("(x|y)* or x", "(x|y)*", 1),
        ("new\n york", "New York", 1),
        ("billing", "  Billing ", 1),
        ("李子和小李", "李", 2),
        ("用Redis吧", "redis", 0),
        ("اجتماع المشروع غدا", "المشروع", 1),
        ("المشروعات", "المشروع", 0),
        ("रामी", "राम", 0),
        ("राम आया", "राम", 1),
        ("CAFÉ", "cafe\u0301", 1),
        ("Große STRASSE", "straße", 1),
        ("🚀 launch", "🚀", 1),
        ("", "x", 0),
    ],
)
def test_a_name_is_found_as_whole_words(text, name, count):
    assert mentions(fold(text), [name]) == count
