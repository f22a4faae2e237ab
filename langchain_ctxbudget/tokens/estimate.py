"""Estimates for models whose tokenizer is not known: the exact count of o200k_base with a margin.

Other tokenizers have smaller vocabularies. On Latin script, code and JSON they make up to two fifths more tokens; other
scripts they split further, so every character of one adds a quarter of a token.
"""

from __future__ import annotations

import re

from langchain_ctxbudget.tokens import vocab

_BORDER = re.compile(r"\n(?=[-\[#<])")
_OTHER_SCRIPT = re.compile("[^\x00-\u024f]+")
_FIFTHS = 7


def text_pieces(text: str) -> list[str]:
    """Cuts a text before every line that begins with one of `-`, `[`, `#`, `<`, as the lines of a fence do.

    No tokenizer of the tiktoken family joins tokens across such a border, so what is counted by the piece adds up.
    """
    pieces = _BORDER.split(text)
    return [*(piece + "\n" for piece in pieces[:-1]), pieces[-1]]


def estimate_tokens(text: str) -> int:
    """Estimates the tokens of a text; never below the exact count of o200k_base."""
    return sum(map(_piece_tokens, text_pieces(text))) if text else 0


def _piece_tokens(piece: str) -> int:
    twentieths = vocab.count_tokens(vocab.encoding(), piece) * _FIFTHS * 4
    if not piece.isascii():
        twentieths += 5 * sum(map(len, _OTHER_SCRIPT.findall(piece)))
    return -(-twentieths // 20)
