"""Which facts about the user no longer hold, although a prompt states them.

The stable zone shows the same facts until the next rebuild, and backgrounds quote others. Once the
user has said something that takes the place of such a fact, the background of the next turn tells
it once, so that the prompt only grows.
"""

from collections.abc import Sequence

from langchain_ctxbudget.budget import Fragment, Layer, Reason
from langchain_ctxbudget.knowledge import Fact, facts
from langchain_ctxbudget.layers.base import View
from langchain_ctxbudget.layers.preferences import FACT, remembered_facts
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.report import JOINED

MARK = "replaced"
"""Begins the ids of the lines; behind it stand the id of the fact that was stated, and that of the
fact which holds now."""
NONE = "none"
"""Stands for the id of the fact which holds now, where there is none."""
VALUE = 900.0
"""The value of a line: it gives way after all quotes, and before what rules say."""


def replaced_facts(view: View) -> tuple[Fragment, ...]:
    """Returns lines that tell which of the stated facts were replaced, and by what.

    What an earlier background of the prompt tells is not told again.
    """
    known = view.known.knowledge
    by_id = {fact.id: fact for fact in (*known.ended_facts, *known.facts)}
    told = _told_before(view)
    lines: dict[str, Fragment] = {}
    for fact_id in _stated_ids(view):
        stated = by_id.get(fact_id)
        if stated is None:
            continue
        last_told = by_id.get(_last_told_id(fact_id, told))
        line = _line(last_told, facts.in_place_of(stated, by_id), view)
        if line is not None:
            lines[line.id] = line
    return tuple(lines.values())


def _stated_ids(view: View) -> list[str]:
    """Returns the ids of the facts that the prompt states, in its order."""
    shown = [fact.id for fact in remembered_facts(view).shown_facts]
    quoted: list[str] = []
    for part in view.earlier_fragments:
        quoted += [part_id for part_id in part.id.split(JOINED) if part_id.startswith(FACT)]
    return [*shown, *quoted]


def _told_before(view: View) -> list[tuple[str, str]]:
    """Returns what earlier backgrounds tell: the ids of a stated fact and of the one that holds."""
    told: list[tuple[str, str]] = []
    for part in view.earlier_fragments:
        if part.id.startswith(f"{MARK} "):
            _, stated_id, holding_id = part.id.split()
            told.append((stated_id, holding_id))
    return told


def _last_told_id(fact_id: str, told: Sequence[tuple[str, str]]) -> str:
    """Returns the id of the fact that was told last in place of another one, or of that.

    Args:
        fact_id: The id of the fact that is stated.
        told: The ids of what was told in place of what, in order of time.
    """
    last_told = fact_id
    for stated_id, holding_id in told:
        if stated_id == last_told:
            last_told = holding_id
    return last_told


def _line(stated: Fact | None, holding: Fact | None, view: View) -> Fragment | None:
    """Returns the line that tells that a fact no longer holds; None if that need not be told.

    Args:
        stated: The fact that the prompt states last; None if it states none, or it is erased.
        holding: The fact which holds now; None if there is none.
        view: What a layer may look at.
    """
    if stated is None and holding is None:
        return None
    if stated is not None and holding is not None and stated.text == holding.text:
        return None
    parts = []
    if stated is not None:
        parts.append(f"No longer so: {stated.shown}")
    if holding is not None:
        parts.append(f"The user says now: {holding.shown}")
    text = f"- {fences.as_item(' '.join(parts))}\n"
    stated_id = NONE if stated is None else stated.id
    holding_id = NONE if holding is None else holding.id
    return Fragment(
        layer=Layer.RETRIEVAL,
        id=f"{MARK} {stated_id} {holding_id}",
        text=text,
        tokens=view.counter.count_text(text),
        reason=Reason.REMEMBERED,
        value=VALUE,
    )
