"""Summaries made of the conversation's own sentences."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.extractive import (
    CHARACTERS_PER_NODE,
    KEPT_PER_NODE,
    KEPT_PER_SEGMENT,
    MAX_SENTENCE_CHARACTERS,
    POOL,
    choose,
    digest_messages,
    keep_sentences,
    key_messages,
    merge,
)
from langchain_ctxbudget.core.importance import Kind
from langchain_ctxbudget.core.messages import date_of, plain_text, speaker
from langchain_ctxbudget.demo import demo_messages

WORDS = st.sampled_from("bike blue decided Redis 42 open question Berlin main.py the of error".split())
TEXTS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=5).map(". ".join)


def line(text, position=0, *, from_user=False):
    return Line(position=position, speaker="ada", date="2024-05-01", text=text, from_user=from_user)


LINES = st.lists(st.tuples(TEXTS, st.booleans()), max_size=25).map(
    lambda texts: [line(text, i, from_user=user) for i, (text, user) in enumerate(texts)]
)


def test_a_sentence_says_where_it_comes_from():
    [_, second] = keep_sentences([line("Nothing to see here."), line("We decided on Redis.", 7)])
    assert (second.position, second.order, second.speaker, second.date, second.text, second.kind) == (
        7,
        0,
        "ada",
        "2024-05-01",
        "We decided on Redis.",
        Kind.DECISION,
    )


def test_a_sentence_of_two_words_is_not_kept():
    assert keep_sentences([line("Thanks! Sounds good. All right then.")])[0].text == "All right then."


def test_a_sentence_without_spaces_is_kept():
    [kept] = keep_sentences([line("谢谢！我住在柏林的一个小房子里。")])
    assert kept.text == "我住在柏林的一个小房子里。"


def test_the_most_important_sentences_are_kept():
    texts = [line(f"well then so {i}", i) for i in range(40)]
    texts[20] = line("We decided on Redis 7 for the cache.", 20)
    assert 20 in [sentence.position for sentence in keep_sentences(texts, limit=3)]


def test_a_long_sentence_ends_in_an_ellipsis():
    [kept] = keep_sentences([line("word " * 1000)])
    assert len(kept.text) <= MAX_SENTENCE_CHARACTERS
    assert kept.text.endswith("…")


def test_what_was_cut_off_a_sentence_does_not_make_it_important():
    long, cut = "word " * 1000 + "decided " * 500, "word " * 1000
    [first], [second] = keep_sentences([line(long)]), keep_sentences([line(cut)])
    assert first.score == second.score


def test_a_segment_of_one_huge_message_keeps_only_so_many():
    huge = " ".join(f"I like number {i} best." for i in range(20_000))
    assert len(keep_sentences([line(huge)])) == KEPT_PER_SEGMENT


def test_a_sentence_that_is_repeated_is_kept_once():
    [kept] = keep_sentences([line("I like this word. " * 20_000), line("I like this word.", 1)])
    assert kept.position == 0


@pytest.mark.parametrize(
    "said", ["Hello there, my friend!", "Thank you so much!", "Let me know if there is anything else."]
)
def test_a_greeting_is_not_kept(said):
    assert [kept.text for kept in keep_sentences([line(f"{said} My bike is blue.")])] == ["My bike is blue."]


def test_a_short_decision_is_kept():
    [kept] = keep_sentences([line("Agreed: Friday.")])
    assert kept.kind is Kind.DECISION


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (line("We decided on the blue bike."), line("We rode on the blue bike.")),
        (line("[OPEN] Which of the bikes do we take?"), line("Where of the bikes do we take?")),
        (line("The bike is blue as ever."), line("It is blue as ever, the bike.")),
        (line("The bike is blue."), replace(line("The bike is blue."), speaker="tool paint")),
        (line("The bikes: blue, red."), line('{"bikes": "blue, red"}')),
    ],
)
def test_what_reads_well_and_matters_weighs_more(more, less):
    [first], [second] = keep_sentences([more]), keep_sentences([less])
    assert first.score > second.score


def test_a_digest_is_of_its_span():
    digest = digest_messages([line("We decided on Redis.", 40), line("See `main.py`, all of it.", 41)], 40, 42)
    assert (digest.first, digest.end, digest.level, digest.made_by) == (40, 42, 1, "extraction")
    assert [sentence.position for sentence in digest.sentences] == [40, 41]
    assert digest.artifacts == ("main.py",)


def test_a_digest_of_no_messages_is_empty():
    digest = digest_messages([], 3, 3)
    assert (digest.sentences, digest.artifacts) == ((), ())


def digests(texts, size=5, level=1):
    lines = [line(text, i) for i, text in enumerate(texts)]
    made = [digest_messages(lines[i : i + size], i, i + size) for i in range(0, len(lines), size)]
    return made if level == 1 else [merge(made[i : i + 5]) for i in range(0, len(made), 5)]


def test_a_merged_digest_is_of_all_its_spans():
    merged = merge(digests([f"My bike number {i} is blue." for i in range(25)]))
    assert (merged.first, merged.end, merged.level) == (0, 25, 2)


def test_merging_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one digest"):
        merge([])


@settings(deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6))
def test_a_merged_digest_is_bounded_in_order_and_of_its_children(segments):
    children = [digest_messages(lines, i, i + 1) for i, lines in enumerate(segments)]
    children = [
        replace(child, sentences=tuple(replace(s, position=i) for s in child.sentences))
        for i, child in enumerate(children)
    ]
    merged = merge(children)
    pool = [sentence for child in children for sentence in child.sentences]
    assert len(merged.sentences) <= KEPT_PER_NODE
    assert sum(len(sentence.text) for sentence in merged.sentences) <= CHARACTERS_PER_NODE
    assert list(merged.sentences) == sorted((s for s in pool if s in merged.sentences), key=pool.index)


def test_a_digest_is_no_larger_at_any_level():
    texts = [
        f"The {word}{i} of street {i} costs {i} pounds in {word}{i + 1} town." for i in range(625) for word in ["oak"]
    ]
    second = digests(texts, level=2)
    fourth = merge([merge(second[i : i + 5]) for i in range(0, len(second), 5)])
    assert len(fourth.sentences) <= KEPT_PER_NODE
    assert fourth.level == 4


def test_a_decision_survives_merging():
    texts = [f"My grey bicycle number {i} stood in the rain near Oxford, street {i}." for i in range(100)]
    texts[33] = "We decided on Redis."
    merged = merge(digests(texts, size=20))
    assert "We decided on Redis." in [sentence.text for sentence in merged.sentences]


def test_the_artifacts_that_most_children_name_come_first():
    parts = digests(["Read a.py and b.py.", "Read b.py and c.py.", "Read b.py again, please."], size=1)
    assert merge(parts).artifacts[0] == "b.py"


def test_what_a_model_wrote_last_is_taken_over():
    parts = digests(["My bike is blue.", "My car is red."], size=1)
    written = replace(parts[1], made_by="model", narrative="Ada buys things.", open_questions=("Which car?",))
    merged = merge([parts[0], written])
    assert (merged.narrative, merged.open_questions) == ("Ada buys things.", ("Which car?",))


def test_a_models_sentences_are_merged_as_they_are():
    [part] = digests(["The bike of Ada is blue."])
    said = replace(part.sentences[0], speaker="")
    assert merge([replace(part, sentences=(said,), made_by="model")]).sentences == (said,)


def messages(*texts):
    return [line(text, i) for i, text in enumerate(texts)]


def test_key_messages_are_the_most_important_ones_in_order():
    lines = messages("ok then", "We decided on Redis 7.", "fine then", "Which port? We agreed on 6379.", "well", "ok")
    assert key_messages(lines, [10] * 6, 20, 100) == [1, 3]


def test_a_key_message_that_does_not_fit_is_skipped():
    lines = messages("ok then", "We decided on Redis 7, finally agreed.", "My bike is blue.")
    assert key_messages(lines, [10, 50, 10], 20, 100) == [0, 2]


@pytest.mark.parametrize("position", [0, 99])
def test_the_ends_of_a_conversation_are_key(position):
    lines = [line("My bike is blue.", position), line("My bike is blue.", 50)]
    assert key_messages(lines, [1, 1], 1, 100) == [0]


def test_of_equal_messages_the_newer_is_key():
    assert key_messages([line("My bike is blue.", 20), line("My bike is blue.", 60)], [1, 1], 1, 100) == [1]


@given(LINES, st.integers(-5, 100), st.integers(0, 30))
def test_key_messages_are_within_their_budget(lines, budget, cost):
    costs = [cost + i % 3 for i in range(len(lines))]
    chosen = key_messages(lines, costs, budget, len(lines))
    assert sum(costs[i] for i in chosen) <= max(0, budget)
    assert chosen == sorted(set(chosen))


def test_the_demo_in_300_tokens_says_what_was_decided():
    lines = [Line(i, speaker(m), date_of(m), plain_text(m), m.type == "human") for i, m in enumerate(demo_messages())]
    kept = [s for i in range(0, len(lines), 20) for s in digest_messages(lines[i : i + 20], i, i + 20).sentences]
    text = " ".join(kept[i].text for i in choose(kept, [len(s.text) // 4 + 4 for s in kept], 300))
    facts = ["Etch & Field, at 38p", "no late fees", "Raspberry Pi, not the tablet", "17 October", "four digits"]
    assert [fact for fact in facts if fact not in text] == []


@settings(deadline=None)
@given(LINES, st.integers(0, 10))
def test_kept_sentences_are_few_and_in_order(lines, limit):
    kept = keep_sentences(lines, limit)
    assert len(kept) <= limit
    assert all((a.position, a.order) < (b.position, b.order) for a, b in pairwise(kept))


@settings(deadline=None)
@given(LINES)
def test_kept_sentences_are_the_messages_own(lines):
    assert all(sentence.text in " ".join(lines[sentence.position].text.split()) for sentence in keep_sentences(lines))


@settings(deadline=None)
@given(LINES)
def test_no_sentence_left_out_scores_higher_than_one_kept(lines):
    everything, kept = keep_sentences(lines, 10_000), keep_sentences(lines, 5)
    left_out = [s for s in everything if s not in kept]
    assert not kept or not left_out or max(s.score for s in left_out) <= min(s.score for s in kept)


@st.composite
def priced(draw):
    kept = keep_sentences(draw(LINES), 10_000)
    costs = draw(st.lists(st.integers(0, 30), min_size=len(kept), max_size=len(kept)))
    return kept, costs


@settings(deadline=None)
@given(priced(), st.integers(-5, 200))
def test_a_choice_is_within_its_budget(sentences, budget):
    kept, costs = sentences
    assert sum(costs[i] for i in choose(kept, costs, budget)) <= max(0, budget)


@settings(deadline=None)
@given(priced(), st.integers(0, 200))
def test_a_choice_is_in_order_and_has_nothing_twice(sentences, budget):
    chosen = choose(*sentences, budget)
    assert chosen == sorted(set(chosen))


@settings(deadline=None)
@given(priced(), st.integers(0, 200))
def test_a_choice_is_the_same_every_time(sentences, budget):
    assert choose(*sentences, budget) == choose(*sentences, budget)


@settings(deadline=None)
@given(priced())
def test_with_room_for_all_every_term_is_covered(sentences):
    kept, costs = sentences
    chosen = choose(kept, costs, sum(costs))
    assert {t for i in chosen for t in kept[i].terms} == {t for s in kept for t in s.terms}


def test_a_sentence_that_says_nothing_new_is_not_chosen():
    kept = keep_sentences([line("My bike is blue."), line("My bike is blue.", 1)])
    assert choose(kept, [5, 5], 100) == [0]


def test_a_sentence_that_does_not_fit_leaves_room_for_others():
    kept = keep_sentences([line("We decided on Redis 7 in main.py."), line("My bike is blue.", 1)])
    assert choose(kept, [50, 5], 10) == [1]


def test_of_more_sentences_than_the_pool_the_most_important_are_chosen_from():
    kept = keep_sentences(
        [line(f"token{i} is here", i) for i in range(POOL)] + [line("We decided on Redis.", POOL)], 10**6
    )
    assert POOL in choose(kept, [1] * len(kept), 5)


SCRIPT = """
from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.extractive import choose, keep_sentences
words = [f"w{i * 7919 % 997}x" for i in range(4000)]
lines = [Line(i, "a", None, " ".join(words[i * 9 % 3000 : i * 9 % 3000 + 12]), False) for i in range(300)]
kept = keep_sentences(lines, 10_000)
print(choose(kept, [1 + i % 3 for i in range(len(kept))], 150))
"""


def test_a_choice_does_not_depend_on_the_order_of_sets():
    answers = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1
