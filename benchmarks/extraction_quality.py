"""What the deterministic extraction finds in ordinary chats, beside what a careful reader would note.

    python benchmarks/extraction_quality.py [--mistakes [dev|held]] [--json] [--data FILE.jsonl]

Chats are read as in production: five messages at a time, the user's and the assistant's, phrases
carried along. Names are learned by a model alone, so none is found here.

A line of the data is a chat: `{"id", "part", "messages", "topics", "allowed_topics"}`. A user's
message has sentences, each with the `facts` and `entities` that it should yield, and those that are
`allowed`: right to find, and right to leave out. Names are noted wherever they stand, topics once
per chat where at least three user messages have them.

A fact is right when its text has all words of one of the label's alternatives, each at the
beginning of a word, when it names the label's message among its sources, and when it negates what
the label negates. An entity is right by its name or an alias, once per chat. A topic is right by
its words and at most one more. A label is used once: what is found twice is wrong the second time.
Categories, types and relationships are measured beside, of what is right.

Columns:
    labelled   what there is to find
    found      what was found, without the allowed
    right      found and labelled
    precision  right of found, %
    recall     right of labelled, %
    kind       right ones with a right category (facts) or type (entities), %
    relation   right people with the labelled relationship to the user, %
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from langchain_ctxbudget.knowledge.own_statements import statements_in
from langchain_ctxbudget.knowledge.records import Learned, LearnedFact, PhraseRecord, ReadMessage
from langchain_ctxbudget.knowledge.recurring_phrases import recurring
from langchain_ctxbudget.messages import fold, terms
from langchain_ctxbudget.sentences import read as read_sentences

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "extraction.jsonl"
BATCH = 5
"""Messages that are learned from at once, as in production."""
KINDS = ("facts", "entities", "topics")
PARTS = ("dev", "held")
_NEGATION = re.compile(
    r"n't\b|\b(no|not|never|cannot|without|avoid\w*|dislik\w*|hate\w*|detest\w*)\b"
)


class Label(NamedTuple):
    """What is to be found, or may be."""

    names: tuple[str, ...]
    """Alternatives: words of a fact or a topic, names of an entity."""
    kinds: tuple[str, ...] = ()
    """Categories or types that are right."""
    relationships: tuple[str, ...] = ()
    negated: bool = False
    message: str = ""
    sentence: str = ""


class Found(NamedTuple):
    """What was found."""

    text: str
    kinds: frozenset[str] = frozenset()
    relationships: frozenset[str] = frozenset()
    messages: frozenset[str] = frozenset()


class Chat(NamedTuple):
    """A chat, and what there is to find in it."""

    id: str
    part: str
    said: tuple[ReadMessage, ...]
    sentences: Mapping[str, tuple[str, ...]]
    """Of each of the user's messages."""
    labels: Mapping[str, tuple[Label, ...]]
    allowed: Mapping[str, tuple[Label, ...]]
    rich: int
    """Sentences that must yield something."""
    empty: int
    """Sentences that must yield nothing."""


class Counts(NamedTuple):
    """What one row of the table is computed from; rows add up."""

    labelled: int = 0
    found: int = 0
    right: int = 0
    kinds_right: int = 0
    kinds_of: int = 0
    relations_right: int = 0
    relations_of: int = 0

    @property
    def precision(self) -> float:
        """Share of what was found that is right; 0 where nothing was found."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of what there is that was found."""
        return self.right / self.labelled if self.labelled else 0.0


class Mistake(NamedTuple):
    """Something that was wrong or missed."""

    chat: str
    part: str
    what: str
    """facts, entities or topics."""
    wrong: bool
    """False: missed."""
    text: str
    sentence: str


class Quality(NamedTuple):
    """All figures."""

    counts: Mapping[tuple[str, str], Counts]
    """By part and by what: facts, entities, topics."""
    mistakes: Sequence[Mistake]
    milliseconds: float
    """Median per message."""

    def total(self, parts: Iterable[str] = PARTS, kinds: Iterable[str] = KINDS) -> Counts:
        """The sum over parts and kinds."""
        rows = [self.counts[part, kind] for part in parts for kind in kinds]
        return Counts(*map(sum, zip(*rows, strict=True)))


def read(path: Path = DATA) -> list[Chat]:
    """The labelled chats of a file."""
    return [_chat(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _chat(data: dict[str, Any]) -> Chat:
    said: list[ReadMessage] = []
    sentences: dict[str, tuple[str, ...]] = {}
    facts: list[Label] = []
    entities: dict[str, Label] = {}
    allowed: dict[str, list[Label]] = {"facts": [], "entities": []}
    rich = empty = 0
    for number, message in enumerate(data["messages"]):
        key = f"{data['id']}/{number}"
        parts: list[dict[str, Any]] = message.get("sentences", [])
        text = message.get("text") or " ".join(part["text"] for part in parts)
        said.append(ReadMessage(id=key, digest=key, text=text, from_user=message["role"] == "user"))
        if parts:
            sentences[key] = tuple(part["text"] for part in parts)
        for part in parts:
            at = key, part["text"]
            facts += [_fact(label, at) for label in part.get("facts", [])]
            for label in part.get("entities", []):
                entities.setdefault(label["name"], _entity(label, at))
            may = part.get("allowed", {})
            allowed["facts"] += [_fact(label, at) for label in may.get("facts", [])]
            allowed["entities"] += [_entity(label, at) for label in may.get("entities", [])]
            rich += bool(part.get("facts") or part.get("entities"))
            empty += not (part.get("facts") or part.get("entities") or may)
    topics = [Label(tuple(label["words"])) for label in data["topics"]]
    may_topics = [Label(tuple(label["words"])) for label in data["allowed_topics"]]
    return Chat(
        id=data["id"],
        part=data["part"],
        said=tuple(said),
        sentences=sentences,
        labels={
            "facts": tuple(facts),
            "entities": tuple(entities.values()),
            "topics": tuple(topics),
        },
        allowed={
            **{kind: tuple(labels) for kind, labels in allowed.items()},
            "topics": tuple(may_topics),
        },
        rich=rich,
        empty=empty,
    )


def _fact(label: dict[str, Any], at: tuple[str, str]) -> Label:
    kinds = tuple(label.get("category", ()))
    return Label(tuple(label["words"]), kinds, (), label.get("negated", False), *at)


def _entity(label: dict[str, Any], at: tuple[str, str]) -> Label:
    names = (label["name"], *label.get("aliases", ()))
    return Label(
        names, tuple(label.get("type", ())), tuple(label.get("relationship", ())), False, *at
    )


def stated(batch: Sequence[ReadMessage]) -> tuple[LearnedFact, ...]:
    """What the user says of themselves in some messages."""
    own = [message for message in batch if message.from_user]
    said = read_sentences(message.text for message in own)
    facts: list[LearnedFact] = []
    for message, sentences in zip(own, said, strict=True):
        facts += statements_in(message.id, message.text, sentences)
    return tuple(facts)


def extracted(chat: Chat, milliseconds: list[float]) -> dict[str, list[Found]]:
    """What is found in a chat, and the time that each message took."""
    everything: list[Learned] = []
    phrases: Sequence[PhraseRecord] = ()
    for first in range(0, len(chat.said), BATCH):
        batch = chat.said[first : first + BATCH]
        began = time.perf_counter()
        recurs = recurring(batch, phrases, chat.id)
        phrases = recurs.phrases
        learned = Learned(facts=stated(batch), topics=recurs.topics)
        milliseconds.append((time.perf_counter() - began) * 1000 / len(batch))
        everything.append(learned)
    entities: dict[str, Found] = {}
    topics: dict[tuple[str, ...], Found] = {}
    for learned in everything:
        for entity in learned.entities:
            relationship = {entity.relationship} if entity.relationship else set()
            new = Found(
                entity.name,
                frozenset({entity.type}),
                frozenset(relationship),
                frozenset(entity.message_ids),
            )
            key = fold(entity.name)
            entities[key] = _together(entities.get(key, new), new)
        for topic in learned.topics:
            new = Found(topic.label, messages=frozenset(topic.message_ids))
            words = tuple(terms(topic.label))
            topics[words] = _together(topics.get(words, new), new)
    facts = [
        Found(fact.text, frozenset({fact.category}), messages=frozenset(fact.message_ids))
        for learned in everything
        for fact in learned.facts
    ]
    return {"facts": facts, "entities": list(entities.values()), "topics": list(topics.values())}


def _together(one: Found, other: Found) -> Found:
    """The same entity or topic, found in two batches."""
    return Found(
        one.text,
        one.kinds | other.kinds,
        one.relationships | other.relationships,
        one.messages | other.messages,
    )


def _has(text: str, words: str) -> bool:
    folded = fold(text)
    return all(re.search(rf"(?<!\w){re.escape(fold(word))}", folded) for word in words.split())


def fits_fact(label: Label, found: Found) -> bool:
    """Whether a fact is what was labelled."""
    return (
        label.message in found.messages
        and any(_has(found.text, words) for words in label.names)
        and (not label.negated or bool(_NEGATION.search(fold(found.text))))
    )


def fits_entity(label: Label, found: Found) -> bool:
    """Whether an entity is what was labelled."""
    return fold(found.text) in map(fold, label.names)


def fits_topic(label: Label, found: Found) -> bool:
    """Whether a topic is what was labelled, with at most one word more."""
    return any(
        _has(found.text, words) and len(terms(found.text)) <= len(terms(words)) + 1
        for words in label.names
    )


FITS: Mapping[str, Callable[[Label, Found], bool]] = {
    "facts": fits_fact,
    "entities": fits_entity,
    "topics": fits_topic,
}


def matched(
    labels: Sequence[Label], found: Sequence[Found], fits: Callable[[Label, Found], bool]
) -> dict[int, int]:
    """The label of each thing found, by their numbers.

    As many pairs as there can be, none used twice.
    """
    owner: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for index, label in enumerate(labels):
            if index not in tried and fits(label, found[number]):
                tried.add(index)
                if index not in owner or place(owner[index], tried):
                    owner[index] = number
                    return True
        return False

    for number in range(len(found)):
        place(number, set())
    return {number: index for index, number in owner.items()}


def compared(chat: Chat, kind: str, found: Sequence[Found]) -> tuple[Counts, list[Mistake]]:
    """The counts of one kind in one chat, and its mistakes."""
    labels = chat.labels[kind]
    fits = FITS[kind]
    pairs = matched(labels, found, fits)
    wrong = [
        item
        for number, item in enumerate(found)
        if number not in pairs and not any(fits(label, item) for label in chat.allowed[kind])
    ]
    missed = [label for index, label in enumerate(labels) if index not in pairs.values()]
    right = [(labels[index], found[number]) for number, index in pairs.items()]
    with_kinds = [(label, item) for label, item in right if label.kinds]
    related = [(label, item) for label, item in right if label.relationships]
    counts = Counts(
        labelled=len(labels),
        found=len(right) + len(wrong),
        right=len(right),
        kinds_right=sum(item.kinds <= set(label.kinds) for label, item in with_kinds),
        kinds_of=len(with_kinds),
        relations_right=sum(
            bool(item.relationships & set(label.relationships)) for label, item in related
        ),
        relations_of=len(related),
    )
    mistakes = [
        Mistake(chat.id, chat.part, kind, True, item.text, _sentence(chat, item)) for item in wrong
    ]
    mistakes += [
        Mistake(chat.id, chat.part, kind, False, label.names[0], label.sentence) for label in missed
    ]
    return counts, mistakes


def _sentence(chat: Chat, item: Found) -> str:
    """The sentence that something probably comes from: the one that shares most words with it."""
    words = set(terms(item.text))
    choice = [
        sentence
        for key, group in chat.sentences.items()
        if key in item.messages
        for sentence in group
    ]
    return max(
        choice,
        key=lambda sentence: (len(words & set(terms(sentence))), fold(item.text) in fold(sentence)),
        default="(not from the user)",
    )


def measure(chats: Sequence[Chat]) -> Quality:
    """All figures over these chats."""
    counts = {(part, kind): Counts() for part in PARTS for kind in KINDS}
    mistakes: list[Mistake] = []
    milliseconds: list[float] = []
    for chat in chats:
        found = extracted(chat, milliseconds)
        for kind in KINDS:
            new, more = compared(chat, kind, found[kind])
            counts[chat.part, kind] = Counts(
                *map(sum, zip(counts[chat.part, kind], new, strict=True))
            )
            mistakes += more
    return Quality(counts, mistakes, statistics.median(milliseconds))


def rows(quality: Quality) -> list[dict[str, str | int | float | None]]:
    """The table as data: shares in %, None where there is nothing to take a share of."""
    drawn: list[dict[str, str | int | float | None]] = []
    for name, parts in (*((part, (part,)) for part in PARTS), ("both", PARTS)):
        for what, kinds in (*((kind, (kind,)) for kind in KINDS), ("all", KINDS)):
            total = quality.total(parts, kinds)
            drawn.append(
                {
                    "part": name,
                    "what": what,
                    "labelled": total.labelled,
                    "found": total.found,
                    "right": total.right,
                    "precision": _percent(total.right, total.found),
                    "recall": _percent(total.right, total.labelled),
                    "kind": _percent(total.kinds_right, total.kinds_of),
                    "relation": _percent(total.relations_right, total.relations_of),
                }
            )
    return drawn


def _percent(share: int, of: int) -> float | None:
    return round(100 * share / of, 1) if of else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure deterministic extraction on the labelled chats."
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--mistakes", nargs="?", const="both", choices=[*PARTS, "both"], help="show each mistake"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    chats = read(options.data)
    quality = measure(chats)
    shown = [m for m in quality.mistakes if options.mistakes in {m.part, "both"}]
    if options.json:
        data = {
            "rows": rows(quality),
            "milliseconds": quality.milliseconds,
            "mistakes": [m._asdict() for m in shown],
        }
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    console = Console(width=140)
    title = f"{len(chats)} chats, {sum(c.rich for c in chats)} sentences with labels, {sum(c.empty for c in chats)} without"
    table = Table(title=title)
    for row in rows(quality):
        if not table.columns:
            for heading in row:
                table.add_column(
                    heading, justify="left" if heading in {"part", "what"} else "right"
                )
        table.add_row(
            *("" if cell is None else str(cell) for cell in row.values()),
            end_section=row["what"] == "all",
        )
    console.print(table)
    console.print(f"{quality.milliseconds:.2f} ms per message (median)")
    for mistake in shown:
        verdict = "wrong " if mistake.wrong else "missed"
        line = f"{mistake.part} {mistake.chat:<12} {mistake.what:<8} {verdict} {mistake.text!r} in {mistake.sentence!r}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
