"""Of like texts about things with numbers, only the one about the thing that a message asks for.

"Where is item 12?" wants the line about item 12, not those that say the same of 200 others.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import terms, vocabulary
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.search import Question, Scores

MOST_NUMBERS = 6
"""Numbers behind a word in a message about one thing; one with more quotes something."""
_NUMBER = re.compile(r"\d+")
_YEAR = re.compile(r"(19|20)\d\d")
_RELATIVE = re.compile(vocabulary("search")["relative"], re.IGNORECASE)
NumberedWord = tuple[str, str]
"""A term and the number behind it: "item 12"."""


def without_siblings(pool: Pool, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Leaves out texts that say of other numbers what one text says of the number asked for.

    "Items 12 to 20", "after item 12" and "20 items" want others, too. So one text has to have all
    numbers of the message, each behind the same word.

    Args:
        pool: All texts, and the question.
        numbers: The texts to choose from, by their numbers in the pool.
    """
    wanted = _numbered_words(pool.question)
    if not wanted:
        return numbers
    wanted_terms = {term for pair in wanted for term in pair}
    covered = _covered(pool, numbers, wanted_terms)
    has_any = covered > 0
    answers = [
        text
        for text in _texts_of(pool, numbers[covered == 1])
        if wanted.issubset(pairwise(terms(text)))
    ]
    is_like_answer = _has_words_of_any(pool, numbers, answers)
    counts_by_shape = Counter(map(_shape, _texts_of(pool, numbers[is_like_answer & has_any])))
    if all(counts_by_shape[_shape(text)] == 1 for text in answers):
        return numbers  # there are no siblings, and no other text is decoded
    near = numbers[has_any]
    is_sibling = _are_siblings(_texts_of(pool, near), wanted)
    return numbers[~np.isin(numbers, near[is_sibling])]


def _numbered_words(question: Question) -> set[NumberedWord]:
    """Returns the numbers that a message asks for, each with the word before it.

    None of a message that asks for other numbers as well, or quotes many.
    """
    found: set[NumberedWord] = set()
    for word, number in pairwise(question.terms):
        if _NUMBER.search(number) and not _YEAR.fullmatch(number):
            found.add((word, number))
    if len(found) > MOST_NUMBERS or _RELATIVE.search(question.text):
        return set()
    return found


def _covered(pool: Pool, numbers: NDArray[np.intp], words: Iterable[str]) -> Scores:
    """Returns the share of some terms that each text has, 0 to 1."""
    equally_rare = dict.fromkeys(words, 1.0)
    elsewhere = pool.index_elsewhere.covered(equally_rare)
    here = pool.searched.index.lexical.covered(equally_rare, pool.places)
    return np.concatenate((elsewhere, here))[numbers]


def _texts_of(pool: Pool, numbers: NDArray[np.intp]) -> list[str]:
    """Decodes some texts."""
    return [pool.text(number).text for number in numbers.tolist()]


def _has_words_of_any(
    pool: Pool, numbers: NDArray[np.intp], answers: Collection[str]
) -> NDArray[np.bool_]:
    """Returns which texts may have the words of an answer, but for its numbers.

    Texts from elsewhere always may: only the words of the question are known of them.
    """
    may_have = numbers < len(pool.others)
    plain_terms = {
        frozenset(term for term in terms(text) if not _NUMBER.search(term)) for text in answers
    }
    for words in plain_terms:
        if words:
            may_have |= _covered(pool, numbers, words) == 1
        else:
            may_have[:] = True
    return may_have


def _shape(text: str) -> str:
    """Returns a text with 0 for every number."""
    return _NUMBER.sub("0", text)


def _are_siblings(texts: Collection[str], wanted: set[NumberedWord]) -> NDArray[np.bool_]:
    """Returns which texts have none of the numbers, but the shape of a text that has one."""
    shapes = [_shape(text) for text in texts]
    has_number = [not wanted.isdisjoint(pairwise(terms(text))) for text in texts]
    answered = {shape for shape, has in zip(shapes, has_number, strict=True) if has}
    is_sibling = [
        shape in answered and not has for shape, has in zip(shapes, has_number, strict=True)
    ]
    return np.array(is_sibling, np.bool_)
