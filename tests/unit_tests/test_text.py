"""How texts are read: words, sentences, names and dates, in any script."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.text import fold, iso_date, mentions, one_line, sentences, terms, word_count


def test_terms_are_stems():
    assert terms("running bikes") == ["run", "bike"]


def test_terms_leave_out_stop_words():
    assert terms("What is the colour of my bike?") == ["colour", "bike"]


def test_terms_ignore_case_beyond_ascii():
    assert terms("STRASSE ΟΔΟΣ") == terms("straße οδος")


def test_terms_of_a_composed_and_a_decomposed_spelling_are_the_same():
    assert terms("cafe\u0301") == terms("café")


def test_terms_of_full_width_letters_are_those_of_plain_ones():
    assert terms("ＢＩＫＥ") == ["bike"]


def test_an_underscore_separates_terms():
    assert terms("blue_bike") == ["blue", "bike"]


@pytest.mark.parametrize("script", ["中文", "かな", "カナ", "한국", "ไทย", "ខ្មែរ", "ລາວ", "မြန်"])
def test_scripts_without_spaces_are_read_in_pairs(script):
    text = script * 2
    assert terms(text) == [text[i : i + 2] for i in range(len(text) - 1)]


def test_a_single_han_character_is_a_term():
    assert terms("李") == ["李"]


def test_latin_letters_next_to_han_are_a_word_of_their_own():
    assert terms("用bike去") == ["用", "bike", "去"]


@pytest.mark.parametrize("word", ["हिन्दी", "தமிழ்", "বাংলা", "సమాచారం", "שָׁלוֹם", "مُحَمَّد", "москва", "ἀλήθεια"])
def test_a_word_with_marks_is_one_term(word):
    assert len(terms(word)) == 1


def test_punctuation_and_emoji_are_no_terms():
    assert terms("?! … 🙂 \ud800") == []


@settings(deadline=None)
@given(st.text())
def test_every_text_has_terms_that_are_not_empty(text):
    assert all(terms(text))


@settings(deadline=None)
@given(st.text(), st.text())
def test_terms_of_two_lines_are_those_of_each(first, second):
    assert terms(f"{first} \n {second}") == terms(first) + terms(second)


@settings(deadline=None)
@given(st.text(st.characters(codec="ascii")) | st.from_regex(r"([A-Za-z0-9_'.-]+[ \n\x1c]){1,9}", fullmatch=True))
def test_ascii_is_read_as_any_other_text_is(text):
    other = f"{text} …"  # which is no word, and not ASCII
    assert (terms(text), word_count(text)) == (terms(other), word_count(other))


def test_word_count_counts_words_of_a_spaced_script():
    assert word_count("Let's go with Redis, ok?") == 6


def test_word_count_counts_two_han_characters_as_a_word():
    assert word_count("我住在柏林。") == 3


def test_sentences_end_at_their_marks():
    assert sentences("One. Two! Three? Four… Five") == ["One.", "Two!", "Three?", "Four…", "Five"]


def test_sentences_end_at_line_breaks():
    assert sentences("one\n\ntwo\nthree") == ["one", "two", "three"]


def test_a_number_does_not_end_a_sentence():
    assert sentences("It costs 3.50 euros. Fine.") == ["It costs 3.50 euros.", "Fine."]


def test_a_closing_quotation_mark_stays_with_its_sentence():
    assert sentences('He said "stop." Then (he left.) Gone.') == ['He said "stop."', "Then (he left.)", "Gone."]


def test_full_width_marks_end_a_sentence():
    assert sentences("我住在柏林。你呢？好！！") == ["我住在柏林。", "你呢？", "好！！"]


def test_a_closing_corner_bracket_stays_with_its_sentence():
    assert sentences("「行こう。」と言った。") == ["「行こう。」", "と言った。"]


@pytest.mark.parametrize("mark", ["؟", "۔", "।"])
def test_marks_of_other_scripts_end_a_sentence(mark):
    assert sentences(f"एक{mark} दो{mark}") == [f"एक{mark}", f"दो{mark}"]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t \n"])
def test_a_blank_text_has_no_sentences(text):
    assert sentences(text) == []


@settings(deadline=None)
@given(st.text(alphabet="ab.!?。！」\"') \n"))
def test_sentences_lose_nothing_but_white_space(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("text", [".", "'", '."', "a", "a-", "a/b", "\n", " ", "。", "मा", "\u0301", "`", "_", "!\n"])
def test_a_long_run_is_read_in_one_pass(text):
    long = text * (400_000 // len(text))
    assert sum(map(len, terms(long))) <= 2 * len(long)
    assert sum(map(len, sentences(long))) <= len(long)


@pytest.mark.parametrize(
    ("created_at", "date"),
    [
        ("2024-05-01T10:00:00+02:00", "2024-05-01"),
        ("2024-05-01", "2024-05-01"),
        ("May 1st", None),
        ("٢٠٢٤-٠٥-٠١", None),
        ("", None),
        (None, None),
        (1_714_550_400, None),
        (["2024-05-01"], None),
    ],
)
def test_the_date_of_an_iso_time(created_at, date):
    assert iso_date(created_at) == date


def test_one_line_makes_every_white_space_a_space():
    assert one_line(" a\n\tb\u2028c  d ") == "a b c d"


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


def test_all_names_of_a_thing_count():
    assert mentions("a bill, an invoice", ["bill", "invoice"]) == 2


@settings(deadline=None)
@given(st.text(), st.text().filter(str.strip))
def test_any_text_can_be_a_name(text, name):
    assert mentions(fold(f"{text} {name} {text}"), [name]) >= 1
