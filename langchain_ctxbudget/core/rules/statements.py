"""What a user's message says about the user: rules for ordinary English chat, no model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from langchain_ctxbudget.core.rules import statement_nouns as nouns
from langchain_ctxbudget.core.rules.statement_clauses import read
from langchain_ctxbudget.core.rules.statement_parts import Part, parts
from langchain_ctxbudget.core.rules.statement_patterns import Category
from langchain_ctxbudget.core.rules.statement_requests import instruction
from langchain_ctxbudget.core.rules.statement_slots import ASKED, HEDGED, PARTNER, PLAIN, Statement, slot_name
from langchain_ctxbudget.core.rules.statement_things import named_otherwise, of_mine
from langchain_ctxbudget.core.rules.statement_verbs import being, of_clause
from langchain_ctxbudget.core.rules.statement_wording import cut, third
from langchain_ctxbudget.core.text import fold, one_line

__all__ = ["Category", "Statement", "statements"]


def statements(text: str) -> list[Statement]:
    """What a user's message says about the user, in its order; nothing that it only asks, quotes or supposes.

    Args:
        text: the message, as the user wrote it.
    """
    found: dict[str, Statement] = {}
    for part in parts(text):
        for statement in _of_part(part):
            found.setdefault(fold(statement.text), statement)
    return list(found.values())


def _of_part(part: Part) -> Iterator[Statement]:
    body = part.text
    confidence = ASKED if part.asked else HEDGED if part.hedged else PLAIN
    found = [*_said(body)] if _SUBJECT.match(body) else [*instruction(body), *_said(body)]
    for statement in found:
        yield _finished(statement, confidence)
    if named := nouns.NAMED.search(body):
        statement = Statement(
            text=f"{named['kin'].capitalize()} is {named['name']}",
            category="identity",
            slot="partner" if PARTNER.fullmatch(named["kin"]) else "",
        )
        known = any(named["name"] in other.text and not other.text.startswith(_VERBAL) for other in found)
        if found and not known:
            yield _finished(statement, confidence)


_I = re.compile(r"(?:i|we)\b", re.IGNORECASE)
_SUBJECT = re.compile(r"(?:i|we|my|our)\b", re.IGNORECASE)
_VERBAL = ("Lives", "Has", "Moved", "Moving", "Works")


def _finished(statement: Statement, confidence: float) -> Statement:
    text = cut(third(one_line(statement.text)))
    sure = statement.confidence if statement.confidence < PLAIN else confidence
    return replace(statement, text=text[:1].upper() + text[1:], confidence=sure, slot=slot_name(statement.slot))


def _said(body: str) -> Iterator[Statement]:
    if not _I.match(body) and (found := of_mine(body) or named_otherwise(body)):
        yield found
    elif clause := read(body):
        yield from of_clause(clause)
    elif role := _AS_A.fullmatch(body):
        clause = read(f"I am {role[1]}")
        if clause:
            yield from being(clause)
    elif (bare := _BARE.match(body)) and not _AS_SUBJECT.search(body):
        clause = read(f"I {'am ' if bare['being'] else ''}{body}")
        if clause:
            yield from of_clause(clause)


_AS_A = re.compile(r"as (an? [\w -]{2,40})", re.IGNORECASE)
# Chat without its subject: "Moved to Oslo last month", "allergic to nuts btw".
_BARE = re.compile(
    r"(?P<being>allergic to |vegan\b|vegetarian\b|married (?:to|with)|working (?:on an?|as an?|at|for) |based in "
    r"|living in |building an? |learning [A-Z]|originally from |from [A-Z]\w+$)|(?:just )?moved to |grew up in "
    r"|(?:just )?adopted an? |got (?:married|engaged|divorced) |left (?:my job|(?-i:[A-Z])\w+)|used to (?:live|work) "
    r"|(?:love|prefer|hate) (?!(?:and|or|is|in|at|for)\b)",
    re.IGNORECASE,
)
# "Building a community is really cool" is no chat about oneself.
_AS_SUBJECT = re.compile(
    r"\b(?:is|are|was|can be|takes|fascinates|requires|helps|makes|seems|should|will)\b", re.IGNORECASE
)
