"""Estimating tokens without a tokenizer, so that the estimate is not below the exact count of o200k_base.

Each class of characters has its rule:

- Words of ASCII letters cost 1, and what their pairs of letters cost to be joined: a table in tenths of a token. The
  table is the cheapest one, on the words that the vocabulary ranks first, that stays above the exact count on words of
  random letters; so English costs little more than a token per word, and "xqzvk" costs nearly one per letter.
- Digits are read in threes. Punctuation and white space cost 1, and runs of the same character what they merge to.
- Any other character costs 1 where it is a token by itself, else its UTF-8 bytes, which no byte-level tokenizer
  exceeds. Russian, Arabic and Hindi, whose letters are tokens but are mostly merged, cost a share of that where their
  commonest words show that the text is language.

On top comes one token per text. For a single word of random letters the result is too low once in about 10,000.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from math import ceil
from string import ascii_lowercase
from typing import NamedTuple

from langchain_ctxbudget.core import vocab
from langchain_ctxbudget.core.text import STOP_WORDS

_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
_DIGITS = re.compile(r"[0-9]+")
# A single space in front of a word or a mark belongs to its token, and so does the apostrophe of a contraction.
_RUN = re.compile(r"(?! [!-/:-~])(?!(?<=[a-z])'(?:[dmst]|ll|re|ve)(?![a-z]))([\x00-/:-@\[-`{-\x7f])\1*")
_OTHER = re.compile(r"[^\x00-\x7f]+")
_CAPITAL_PAIR_TOKENS = 0.75
_RULERS = frozenset("#*-./=_")
_MERGED_RUNS = frozenset("\r\0!\"$%&'()+,:;<>?@[\\]^`{|}~")

# Row: first letter, column: second letter, a to z.
_PAIR_TENTHS = """
    93009809294000929000959949
    19990999459299199499299789
    09990990292599099491299979
    29990999099999299969299999
    09002769899000959001969199
    29991299299999199899799899
    49990963599999699299889989
    09990999199999099998899979
    66001419999010079200929997
    49994999989999999999899989
    99992999699999699999899999
    09960999099199099996399919
    03990999199979119999398999
    19100809066995199900469969
    96539979999200839013037989
    09990995899099049097399979
    99999999999999996999098999
    09930979098953099510889949
    19290993099999119910199999
    09990991099999099025199939
    68444979497140999010999999
    29990999199999299999999999
    29992994399998299999999999
    99999999999999949997999999
    99998999999999999989999999
    99994999999999999999999998
"""
_PAIR_TOKENS = {
    (first, second): int(tenths) / 10
    for first, row in zip(ascii_lowercase, _PAIR_TENTHS.split(), strict=True)
    for second, tenths in zip(ascii_lowercase, row, strict=True)
}


class _Script(NamedTuple):
    """Letters of which each is a token, and the words by which a text in them is known to be language."""

    letters: re.Pattern[str]
    words: re.Pattern[str]
    letter_tokens: float


def _script(letters: str, words: str, letter_tokens: float) -> _Script:
    known = "|".join(words.split())
    return _Script(re.compile(f"[{letters}]"), re.compile(rf"(?<!\S)(?:{known})(?!\S)"), letter_tokens)


_SCRIPTS = (
    _script("\u0400-\u04ff", "и в во не на что по как это но я он она мы вы из за к для от до бы же", 0.35),
    _script("\u0600-\u06ff", "في من على أن إلى عن مع هذا هذه التي الذي ما لا كان قد ثم أو كل", 0.45),
    _script("\u0900-\u097f", "है हैं के का की में से को और पर यह वह ने एक नहीं भी था थी तो कि", 0.45),
)
_FEWEST_WORDS = 2
_LETTERS_PER_WORD = 60


def estimate_tokens(text: str) -> int:
    """An estimate of the tokens of a text that is not empty."""
    tokens = 1.0
    tokens += sum(map(_word_tokens, _WORD.findall(text)))
    tokens += sum(ceil(len(digits) / 3) for digits in _DIGITS.findall(text))
    tokens += sum(_run_tokens(run.group()) for run in _RUN.finditer(text))
    if not text.isascii():
        tokens += _other_tokens(text)
    return ceil(tokens)


@lru_cache(maxsize=8_192)
def _word_tokens(word: str) -> float:
    if len(word) > 1 and word.isupper():
        return 1 + _CAPITAL_PAIR_TOKENS * (len(word) - 1)
    letters = word.lower()
    if letters in STOP_WORDS:
        return 1
    capitals = sum(map(str.isupper, word))
    joined = letters[max(0, capitals - 1) :]
    return 1 + _CAPITAL_PAIR_TOKENS * max(0, capitals - 1) + sum(map(_PAIR_TOKENS.__getitem__, pairwise(joined)))


def _run_tokens(run: str) -> int:
    length = len(run)
    if run[0] == " ":
        return 1 + length // 16
    if run[0] in "\t\n":
        return 1 + length // 8
    if run[0] in _RULERS:
        return 1 + (length > 1) + length // 16
    return 1 + length // 2 if run[0] in _MERGED_RUNS else length


def _other_tokens(text: str) -> float:
    other = "".join(_OTHER.findall(text))
    tokens: float = len(other.translate(vocab.single_characters()).encode("utf-8", "surrogatepass"))
    for script in _SCRIPTS:
        letters = len(script.letters.findall(other))
        words = len(script.words.findall(text)) if letters else 0
        if words >= _FEWEST_WORDS and words * _LETTERS_PER_WORD >= letters:
            tokens -= letters * (1 - script.letter_tokens)
    return tokens
