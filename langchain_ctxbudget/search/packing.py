"""Filling a budget with items: an item that does not fit is skipped, not the end of the list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from langchain_ctxbudget.messages.text import sentences

ELLIPSIS = " …"


def pack(order: Iterable[int], cost: Callable[[int], int], budget_tokens: int, smallest: int) -> list[int]:
    """Take items in order as long as they fit.

    Args:
        order: item numbers, best first.
        cost: what taking an item now costs, in tokens; asked once per item, when its turn comes, and free to
            remember what was taken (the first item under a heading pays for the heading).
        budget_tokens: what all may cost together.
        smallest: no item costs less; packing ends when not even that is left.

    Returns:
        the numbers taken, best first.
    """
    taken: list[int] = []
    left = budget_tokens
    for number in order:
        if left < smallest:
            break
        price = cost(number)
        if price <= left:
            taken.append(number)
            left -= price
    return taken


def shrink_to(text: str, count: Callable[[str], int], budget_tokens: int) -> str | None:
    """The first sentences of a text that fit a budget, or None where not even one does.

    Args:
        text: what to shrink.
        count: tokens of a text.
        budget_tokens: what the result, its ellipsis included, may cost.
    """
    if budget_tokens <= 0:
        return None  # nothing fits: not worth tokenizing
    if count(text) <= budget_tokens:
        return text
    parts = sentences(text)
    low, high = 0, len(parts)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_joined(parts[:middle])) <= budget_tokens:
            low = middle
        else:
            high = middle - 1
    return _joined(parts[:low]) if low else None


def _joined(parts: Sequence[str]) -> str:
    return " ".join(parts) + ELLIPSIS
