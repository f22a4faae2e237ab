"""A reader of sentences that takes every plain sentence about the speaker for a statement.

Tests of learning do not hang on what the trained reader thinks of one sentence.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from langchain_ctxbudget.history import readings
from langchain_ctxbudget.messages import prose_spans
from langchain_ctxbudget.sentences import Label, Said

BEGINNINGS = ("I ", "I'm ", "My ", "Sorry, my ")
"""How a sentence begins that is taken for a statement."""


def read_plainly(texts: Iterable[str]) -> list[tuple[Said, ...]]:
    said = []
    for text in texts:
        spans = [span for span in prose_spans(text) if text[slice(*span)].startswith(BEGINNINGS)]
        said.append(tuple(Said(Label.STATEMENT, *span, 0.9) for span in spans))
    return said


@contextmanager
def reading_plainly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readings, "read", read_plainly)
        yield
