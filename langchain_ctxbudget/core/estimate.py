"""Estimating tokens without a tokenizer, so that the estimate is not below the exact count of o200k_base.

Each class of characters has its rule:

- Words of ASCII letters cost 1, and what their pairs of letters cost to be joined: a table in tenths of a token, one
  for small letters and one for capitals. A table is the solution of a linear program: the cheapest one on the words
  that the vocabulary ranks first, at a price for every token by which it is below the exact count of a word of random
  letters. So English costs little more than a token per word, and "xqzvk" costs nearly one per letter.
- Digits are read in threes. Punctuation and white space cost 1, and runs of the same character what they merge to.
- Any other character costs 1 where it is a token by itself, else its UTF-8 bytes, which no byte-level tokenizer
  exceeds. Russian, Arabic and Hindi, whose letters are tokens but are mostly merged, cost a share of that where their
  commonest words show that the text is language.

On top comes one token per text that does not end with a line break. A single word of 5 to 12 random letters is
estimated too low once in about 5,000 times, by one token or two; so is a phrase of four words with a rare name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from math import ceil
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from langchain_ctxbudget.core import vocab
from langchain_ctxbudget.core.text import STOP_WORDS

_BORDER = re.compile(r"\n(?=[-\[#<])")
_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")
_DIGITS = re.compile(r"[0-9]+")
# A single space in front of a word or a mark belongs to its token, and so does the apostrophe of a contraction; one in
# front of a digit stands alone.
_RUN = re.compile(r"(?! [!-/:-~])(?!(?<=[a-z])'(?:[dmst]|ll|re|ve)(?![a-z]))([\x00-/:-@\[-`{-\x7f])(?:(?! [0-9])\1)*")
_FIRST_WORD = re.compile(r"[\n0-9][A-Za-z]{4}")
"""A longer word without a space in front: more often than not it is a token more, which costs one."""
_BEGINNING = re.compile(r"[A-Za-z]{5}")
_BEGINNING_TOKENS = 0.5
"""The same at the beginning of a text, which has a token to spare."""
_OTHER = re.compile(r"[^\x00-\x7f]+")
_CAPITAL_PAIR_TOKENS = 0.75
"""In front of small letters, as in `JSONDecoder`."""
_NAME_TOKENS = 0.25
"""Of a capital letter in front: names are rarer than words."""
_KNOWN = STOP_WORDS - {"further", "hers", "him", "whom", "yours"}
"""A token each, with a capital letter too."""
_LONG_LETTERS = 14
_LONG_LETTER_TOKENS = 0.8
"""Of every letter beyond the fourteenth, as few tokens are longer: "ererererer" has cheap pairs only."""
_RULERS = frozenset("#*-./=_")
_FOURS = frozenset("!\"$%'()+,:;<>?@\\^|~")
_TWOS = frozenset("\r\0&[]`{}")

_PAIRS = """
    a000aa0a0a0000a0a00031aa0a
    0aaa0aaa07a0aa0aa08a0aaa8a
    0aaa0aa00a00aa0aa0a00aaa5a
    0aaa0aaa0aaaaa2aaaaa29aa3a
    0900a50aaaa000a2a000a0a08a
    0aaa05aa0aa5aa0aa5aa2aaa4a
    0aaa0aa11aa8aa0aa1aa0aaaaa
    0aaa0aaa0aaaaa0aaaa78aaa6a
    9a00060aaa900006a000a0aaaa
    3aaa0aaaaaaaaa7aaaaa3aaaaa
    2aaa0aaa2aaaa96aaaaa5aaaaa
    0aa80aaa0aa4aa0aaa755aaa0a
    02aa0aaa0aaaaa00aaaa2aaaaa
    0a00040a0a8aaa0aaa0035aa1a
    a440a91aaa3000a0a000001a9a
    0aaa0aa22aa0aa09a0a22aaa4a
    aaaaaaaaaaaaaaaaaaaa0aaaaa
    0aa10a9a0a4a070aaa0059aa0a
    0a1a0aa00a6aaa00aa500aaa4a
    0aaa0aa00aaaaa0aa05a0a7a0a
    86684a8a8aa100a8a000aaaaaa
    0aaa0aaa0aaaaa0aaaaaaaaaaa
    0aaa0aa10aaaaa0aaa9aaaaaaa
    aaaaaaaaaaaaaaa3aaa6aaaaaa
    aaaa8aaaaaaaaaaaaaaaaaaaaa
    aaaa1aaaaaaaaa8aaaaaaaaa9a
"""
_CAPITAL_PAIRS = """
    a623a72a7a7060a6a010849938
    49aa0aaa74a4aa5aa46a5aaa5a
    2aaa0aa04a34aa0aa5a15aaa5a
    6aa90aaa2aaaaa6aaa9a9aaaaa
    6a72a89aaaa560aaa005a9a5aa
    7aa445aa3aa8aa4aa6aa8aa85a
    4aa90aaa7aaaaa4aa49a6aaaaa
    3aaa2aaa5aaaaa3aa9a8aaaa8a
    9635575aaa734059a522a6a8a6
    aaaa8aaaa87aaa8aaaaa8aaaaa
    8aaa3a7a8aaaaa8aaa8a8aaa8a
    6aa70aaa2aa7aa4aaa987aaa3a
    16aa09aa4a9aaa41aa6a8aaa9a
    8a60360a89aaaa5aaa0078aa9a
    a787a79aaa8510a7a046474a8a
    0aa70aa59aa1aa29a0946aaaaa
    aaaaaaaaaaaaaaaa7aaa4aaaaa
    4a750a8a5a9a7a4aaa46a9aa8a
    8a9a2aa75aaaaa64aa706aaaaa
    5aaa0aa32aaaaa5aa38a9aa98a
    a7675a7a6a7662a9a133aaa9aa
    4aaa0aa95aa8aa6aaaaaaaaaaa
    5aaa17a36aa6aa58a6aaaaa73a
    aaaaaaaaaaaa8a77aa98aaaa6a
    9aaaaaaaaaaa9aa8aa9aaaaaaa
    aaaa8aaaaaaaaaaaaaaaaaaaaa
"""


def _pair_tokens(table: str, letters: str) -> dict[tuple[str, str], float]:
    """Row: first letter, column: second letter, a to z; a hexadecimal digit is tenths of a token."""
    return {
        (first, second): int(tenths, 16) / 10
        for first, row in zip(letters, table.split(), strict=True)
        for second, tenths in zip(letters, row, strict=True)
    }


_PAIR_TOKENS = _pair_tokens(_PAIRS, ascii_lowercase) | _pair_tokens(_CAPITAL_PAIRS, ascii_uppercase)


class _Script(NamedTuple):
    """Letters of which each is a token, and the words by which a text in them is known to be language."""

    runs: re.Pattern[str]
    known: re.Pattern[str]
    letter_tokens: float


def _script(letters: str, words: str, letter_tokens: float) -> _Script:
    known = "|".join(words.split())
    return _Script(re.compile(f"(?<= )[{letters}]+"), re.compile(rf"(?<!\S)(?:{known})(?!\S)"), letter_tokens)


_SCRIPTS = (
    _script("\u0400-\u04ff", "и в во не на что по как это но я он она мы вы из за к для от до бы же", 0.25),
    _script("\u0600-\u06ff", "في من على أن إلى عن مع هذا هذه التي الذي ما لا كان قد ثم أو كل", 0.35),
    _script("\u0900-\u097f", "है हैं के का की में से को और पर यह वह ने एक नहीं भी था थी तो कि", 0.35),
)
_FIRST_LETTER_TOKENS = 0.6
"""Of every word, on top of its letters."""
_FEWEST_WORDS = 2
_LETTERS_PER_WORD = 60


def text_pieces(text: str) -> list[str]:
    """A text cut in front of every line that begins with one of `-`, `[`, `#`, `<`, as the lines of a fence do.

    What is counted by the piece adds up: such lines together cost what they cost one by one.
    """
    pieces = _BORDER.split(text)
    return [*(piece + "\n" for piece in pieces[:-1]), pieces[-1]]


def estimate_tokens(text: str) -> int:
    """An estimate of the tokens of a text that is not empty: the sum of those of its pieces."""
    return sum(map(_piece_tokens, text_pieces(text)))


def _piece_tokens(piece: str) -> int:
    tokens = (piece[-1] != "\n") + _BEGINNING_TOKENS * bool(_BEGINNING.match(piece)) + len(_FIRST_WORD.findall(piece))
    tokens += sum(map(_word_tokens, _WORD.findall(piece)))
    tokens += sum(ceil(len(digits) / 3) for digits in _DIGITS.findall(piece))
    tokens += sum(_run_tokens(run.group()) for run in _RUN.finditer(piece))
    if not piece.isascii():
        tokens += _other_tokens(piece)
    return ceil(tokens)


@lru_cache(maxsize=8_192)
def _word_tokens(word: str) -> float:
    if word in _KNOWN or (word.istitle() and word.lower() in _KNOWN):
        return 1
    tokens = 1 + _LONG_LETTER_TOKENS * max(0, len(word) - _LONG_LETTERS)
    if not word.isupper():
        tokens += _NAME_TOKENS * word[0].isupper()
        capitals = max(0, sum(map(str.isupper, word)) - 1)
        tokens += _CAPITAL_PAIR_TOKENS * capitals
        word = word[capitals:].lower()
    return tokens + sum(map(_PAIR_TOKENS.__getitem__, pairwise(word)))


def _run_tokens(run: str) -> int:
    length = len(run)
    if run[0] == " ":
        return 1 + length // 16
    if run[0] in "\t\n":
        return 1 + length // 8
    if run[0] in _RULERS:
        return 1 + (length > 1) + length // 16
    if run[0] in _FOURS:
        return 1 + (length > 1) + length // 4
    return 1 + length // 2 if run[0] in _TWOS else length


def _other_tokens(text: str) -> float:
    other = "".join(_OTHER.findall(text))
    tokens: float = len(other.translate(vocab.single_characters()).encode("utf-8", "surrogatepass"))
    for script in _SCRIPTS:
        words = script.runs.findall(text)
        letters = sum(map(len, words))
        known = len(script.known.findall(text)) if words else 0
        if known >= _FEWEST_WORDS and known * _LETTERS_PER_WORD >= letters:
            tokens -= letters * (1 - script.letter_tokens) - len(words) * _FIRST_LETTER_TOKENS
    return tokens
