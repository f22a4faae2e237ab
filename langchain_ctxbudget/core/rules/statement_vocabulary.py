"""How the rules for statements write down sets of words."""

from __future__ import annotations


def words(text: str, separator: str = " ") -> frozenset[str]:
    """The words of a list that is written as one string."""
    return frozenset(text.split(separator))
