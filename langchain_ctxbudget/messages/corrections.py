"""Whether a later sentence of a speaker contradicts or corrects an earlier one of theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_ctxbudget.messages.claims import gives_another_value, says_the_opposite
from langchain_ctxbudget.messages.text import (
    ENGLISH,
    cached_until_forgotten,
    fold,
    is_unspaced,
    words_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePolicy:
    """When two sentences give different values to the same thing ("Ich wohne in ...")."""

    fewest_words_before: int = 2
    """Words that both begin with."""
    sure_words_before: int = 3
    """So many words tell by themselves what the value is of."""
    short_word: int = 3
    """Characters of a word such as "in", "is" or "a", behind which a value stands."""
    most_words_of_value: int = 4


FRAME_POLICY = FramePolicy()


def replaces(later: str, earlier: str) -> bool:
    """Tells if a later sentence of a speaker cannot be true together with an earlier one of theirs.

    Clauses are compared: "Sorry, my name is Ada" with "My name is Eva". The later one negates the
    earlier one, gives another value to the same thing, or differs in a name where it says that
    this is new or that the earlier one was wrong. In scripts without capitals nothing is known to
    be a name, so that only what was wrong is replaced.
    """
    if says_the_opposite(earlier, later) or gives_another_value(earlier, later):
        return True
    if ENGLISH.unsure.search(later):
        return False
    is_correction = ENGLISH.correction.search(later) is not None
    is_news = is_correction or ENGLISH.newly.search(later) is not None
    for clause in clauses(later):
        for other in clauses(earlier):
            if says_the_opposite(other, clause) or gives_another_value(other, clause):
                return True
            if is_news and _differ_in_a_name(other, clause, is_correction=is_correction):
                return True
    return False


@cached_until_forgotten(4_096)
def clauses(sentence: str) -> tuple[str, ...]:
    """Returns the clauses of a sentence, without words that say that something is new or wrong."""
    plain = ENGLISH.correction.sub(" ", ENGLISH.newly.sub(" ", sentence))
    parts = [" ".join(part.split()) for part in ENGLISH.clause_break.split(plain)]
    return tuple(part for part in parts if len(words_of(part)) > 1)


def _differ_in_a_name(earlier: str, later: str, *, is_correction: bool) -> bool:
    """Tells if two clauses begin with the same words, and different names follow.

    Args:
        earlier: The earlier clause.
        later: The later one.
        is_correction: Whether the later one says that the earlier one was wrong.
    """
    words = words_of(earlier)
    later_words = words_of(later)
    before = _shared(words, later_words)
    if before < FRAME_POLICY.fewest_words_before:
        return False
    is_sure = is_correction or before >= FRAME_POLICY.sure_words_before
    if not is_sure and len(words[before - 1]) > FRAME_POLICY.short_word:
        return False
    behind = _shared(words[:before:-1], later_words[:before:-1])
    value = words[before : len(words) - behind]
    later_value = later_words[before : len(later_words) - behind]
    return _are_other_names(value, later_value, is_correction=is_correction)


def _are_other_names(
    value: Sequence[str], later_value: Sequence[str], *, is_correction: bool
) -> bool:
    """Tells if two values are short, begin with names, and have no word in common."""
    if not value or not later_value:
        return False
    if max(len(value), len(later_value)) > FRAME_POLICY.most_words_of_value:
        return False
    if not {fold(word) for word in value}.isdisjoint(fold(word) for word in later_value):
        return False
    return _begins_as_name(value[0], is_correction=is_correction) and _begins_as_name(
        later_value[0], is_correction=is_correction
    )


def _begins_as_name(word: str, *, is_correction: bool) -> bool:
    """Tells if a word may be a name or a number; one without capitals only in a correction."""
    if is_unspaced(word):
        return is_correction
    return word[0].isupper() or word[0].isdigit()


def _shared(words: Sequence[str], others: Sequence[str]) -> int:
    """Returns how many words both begin with, whatever their case."""
    count = 0
    for word, other in zip(words, others, strict=False):
        if fold(word) != fold(other):
            break
        count += 1
    return count
