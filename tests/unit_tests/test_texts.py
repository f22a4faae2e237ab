"""How texts are read in any script, in words, sentences and artifacts; and fences, which hold."""

from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget import EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.messages import (
    MAX_SENTENCE_CHARACTERS,
    artifacts,
    each_cached_until_forgotten,
    ends_as_statement,
    fences,
    forget_texts,
    sentences,
    terms,
    units,
    word_count,
)

# Words


@pytest.mark.parametrize(
    "text",
    [
        "It's the bike I've sold, Ann's; they'll say I'm mad, you're not, he'd ride, we can't.",
        "It’s the bike I’ve sold, Ann’s; they’ll say I’m mad, you’re not, he’d ride, we can’t.",
    ],
    ids=["straight", "curly"],
)
def test_terms_leave_out_what_a_contraction_adds(text):
    assert terms(text) == ["bike", "sold", "ann", "say", "mad", "ride"]


@pytest.mark.parametrize("script", ["中文", "かな", "カナ", "한국", "ไทย", "ខ្មែរ", "ລາວ", "မြန်"])
def test_scripts_without_spaces_are_read_in_pairs(script):
    text = script * 2

    assert terms(text) == [text[place : place + 2] for place in range(len(text) - 1)]


@given(
    st.text(st.characters(codec="ascii"))
    | st.from_regex(r"([A-Za-z0-9_'.-]+[ \n\x1c]){1,9}", fullmatch=True)
)
def test_ascii_is_read_as_any_other_text_is(text):
    other = f"{text} …"  # which is no word, and not ASCII

    assert terms(text) == terms(other)
    assert word_count(text) == word_count(other)


# Sentences


@given(st.text(alphabet="ab.!?。！」\"') \n"))
def test_sentences_lose_nothing_but_white_space(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


LOAN = "```python\nclass Loan:\n    pass\n\ndef due_on(day):\n    return day + 7\n```"
CALLED = '[called read_file({"path": "src/a.py"})]'


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("We met. Ada came late.", ["We met.", "Ada came late."]),
        ("Es war am 17. Oktober. Ada kam.", ["Es war am 17. Oktober.", "Ada kam."]),
        (
            "- first point\n* second point\n3. third point",
            ["first point", "second point", "third point"],
        ),
        ("## Plan\n\n-----\n=====\nBuy oil.", ["Plan", "Buy oil."]),
        (
            "There is an R. Dunne here. Mrs. Abernathy came.",
            ["There is an R. Dunne here.", "Mrs. Abernathy came."],
        ),
        ("谢谢！我住在柏林。", ["谢谢！", "我住在柏林。"]),
        (" \n \n", []),
        (
            "The label is aluminium. It survives oil.",
            ["The label is aluminium. It survives oil."],
        ),
        (f"Look:\n{LOAN}\nThat is all.", ["Look:", "That is all."]),
        ("So:\n| tool | price |\n|---|---|\n| drill | 3 |\n| saw | 4 |", ["So:"]),
        ('{"deep": {"er": {"id": 7}}, "status": "open", "none": null}', []),
        (f"Hm.\n{CALLED}\ntotal = add(1)", ["Hm.", CALLED]),
    ],
    ids=[
        "sentences",
        "a German date",
        "a list",
        "headings and rules",
        "abbreviations",
        "Chinese",
        "white space",
        "one that leans on the first",
        "code",
        "a table",
        "JSON",
        "a call",
    ],
)
def test_prose_is_read_in_sentences_and_what_is_none_is_left_out(text, prose):
    assert units(text) == prose


PRODUCTION = """Please look at the parser first. And never deploy anything to the
production cluster on a Friday or before a holiday, unless I or Maria from
the other team have said so."""


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("Never deploy on Fridays\nunless I say so.", ["Never deploy on Fridays unless I say so."]),
        ("if you deploy on fridays,\nask me first", ["if you deploy on fridays, ask me first"]),
        (
            PRODUCTION,
            [
                "Please look at the parser first.",
                " ".join(PRODUCTION.split()).removeprefix("Please look at the parser first. "),
            ],
        ),
        ("- no emojis\n  unless I ask\n- no jokes", ["no emojis unless I ask", "no jokes"]),
    ],
    ids=["two lines", "a comma", "a width", "an item"],
)
def test_a_sentence_goes_on_behind_the_break_of_a_wrapped_line(text, prose):
    assert units(text) == prose


@pytest.mark.parametrize(
    "text",
    [
        "- never push\n- no emojis",
        "Shopping\nmilk\neggs",
        "# Rules for the whole project\nnever push",
        "Roses are red,\nViolets are blue,\nSugar is sweet,\nAnd so are you.",
        "never push to main\nthe tests for the parser are red",
        "> Never deploy on Fridays\nunless I say so.",
        "Here is what I want:\nno emojis",
        "Never push to main.\nnow fix the parser",
    ],
    ids=["list", "title", "heading", "poem", "lines", "quotation", "colon", "full stop"],
)
def test_any_other_line_break_ends_a_sentence(text):
    assert len(units(text)) == len(text.split("\n"))


@pytest.mark.parametrize(
    "text",
    [
        "Sign with just 'R.' and no 'Kind regards' at the end.",
        "Sign as 'R. Dunne' or “Dr. Dunne” here.",
        "Call me at 5 p.m. on Fridays.",
        'He said "Stop!" and left.',
    ],
    ids=["quoted initial", "quoted name", "initials", "quotation"],
)
def test_a_sentence_goes_on_behind_what_is_quoted_in_it(text):
    assert units(text) == [text]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Der Ofen ist aus!", "Ada kam."),
        ("वह आया।", "यह ठीक है।"),
        ("یہ ٹھیک ہے۔", "وہ آیا۔"),
        ("እሺ።", "ሰላም ነው።"),
        ("Այո։", "Նա եկավ։"),
    ],
    ids=["Latin", "Hindi", "Urdu", "Ethiopic", "Armenian"],
)
def test_a_sentence_ends_at_the_mark_of_its_script(first, second):
    assert sentences(f"{first} {second}") == [first, second]
    assert ends_as_statement(first)


@given(st.text())
def test_every_unit_is_one_line_of_bounded_length(text):
    for unit in units(text):
        assert unit
        assert unit == " ".join(unit.split())
        assert len(unit) <= MAX_SENTENCE_CHARACTERS


# Artifacts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("See src/app/index.ts and ./main.py.", {"src/app/index.ts", "main.py"}),
        ("Call fetch_user() or store.save(item) now.", {"fetch_user()", "store.save()"}),
        (
            "```python\nclass Ladder:\ndef add(a):\n    return sqlite3.connect(a)\n```",
            {"Ladder", "add()"},
        ),
        ("e.g. word(s), https://a.b/c.html, 3.5 and `ok`", set()),
    ],
    ids=["files", "functions", "classes", "none of them"],
)
def test_artifacts_are_files_functions_and_classes(text, names):
    assert set(artifacts([text])) == names


HOSTILE = [
    "a",
    "a-",
    "\n ",
    "`",
    "` ",
    "(",
    "A a",
    "{",
    "[{",
    "def ",
    "a.py",
    "a()",
    "```",
    '"',
    "a, ",
    "A. ",
    "[called a(",
    "It. ",
    "if ",
    "a=",
    "a.\n",
    "a_-/",
    "|a",
    "| ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_run_is_read_in_one_pass(piece):
    text = piece * (200_000 // len(piece))  # quadratic time would take hours here

    assert units(text) is not None
    assert len(artifacts([text])) <= 1


# Fences


NAMES = (fences.CONTEXT, fences.SUMMARY, fences.ARC, fences.PREFERENCES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "form", ["<{}>", "</{}>", "< / {} >", "<{} x='1'>", "<\n/\t{}\n>", "<{}/>", "</{}"]
)
def test_an_imitation_of_a_fence_is_no_fence(name, form):
    imitation = form.format(name)

    assert fences.as_data(imitation) == "‹" + imitation[1:]


def spaced(name):
    return " ".join(name)


def in_bold_letters(name):
    """A name in the bold letters that mathematics has for each from a to z."""
    bold = {ord(letter): chr(0x1D41A + place) for place, letter in enumerate(ascii_lowercase)}
    return name.translate(bold)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("<\u200b/{}>", str),
        ("< / {} >", spaced),
        ("<\\/{}>", str),
        ("\uff1c\uff0f{}\uff1e", str),
        ("<{}\U000e0041>", str),
        ("</{}>", in_bold_letters),
    ],
    ids=["no width", "spaces", "backslash", "wide", "invisible", "bold"],
)
def test_what_only_looks_like_a_fence_is_none(name, form, written):
    lookalike = form.format(written(name))

    assert fences.as_data(lookalike) == "‹" + lookalike[1:]


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "<contextual>",
        "<b>context</b>",
        "List<Context2>",
        "&lt;context>",
        "\uff1ctext\uff1e",
    ],
)
def test_other_text_stays_as_it_is(text):
    assert fences.as_data(text) == text


# Items


@given(
    st.lists(
        st.sampled_from(
            ["- a", "[b]", "## c", "<d>", "e ", "\t", "\n", "\r", "\v", "\x1d", "\x85", "\u2028"]
        )
    )
)
def test_the_words_of_an_item_stay_and_further_lines_are_indented(parts):
    text = "".join(parts)

    item = fences.as_item(text)

    assert item.split() == text.split()
    lines = item.splitlines() or [""]
    assert item.count("\n") == len(lines) - 1 + item.endswith("\n"), "there are no other breaks"
    for line in lines[1:]:
        assert not line or (line[0] == " " and line.strip())


@pytest.mark.parametrize(
    "counter", [TiktokenCounter(), EstimatingCounter()], ids=["exact", "estimated"]
)
@given(st.lists(st.text(alphabet="ab \n\t-[#<./\r\u2028\u3000é京\ud83d", min_size=1), max_size=4))
def test_items_cost_together_what_they_cost_one_by_one(counter, texts):
    lines = [f"- {fences.as_item(text)}\n" for text in texts]
    lines.append(fences.closing("context"))

    assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))


# What is kept of texts that were read at once


def test_texts_read_at_once_are_read_once_until_forgotten():
    asked = []

    @each_cached_until_forgotten(3)
    def lengths(texts):
        asked.append(list(texts))
        return [len(text) for text in texts]

    assert lengths(["a", "bb", "a"]) == [1, 2, 1]
    assert lengths(["bb", "ccc"]) == [2, 3]
    forget_texts()
    assert lengths(["ccc"]) == [3]
    assert asked == [["a", "bb"], ["ccc"], ["ccc"]]


def test_more_texts_than_are_kept_are_still_read():
    @each_cached_until_forgotten(1)
    def lengths(texts):
        return [len(text) for text in texts]

    assert lengths(["a", "bb"]) == [1, 2]
    assert lengths(["a", "bb"]) == [1, 2]
