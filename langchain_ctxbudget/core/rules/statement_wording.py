"""How what a user says of himself reads in the third person, without its subject."""

from __future__ import annotations

import re

from langchain_ctxbudget.core.rules.statement_clauses import MAX_CHARACTERS, Clause, Tense
from langchain_ctxbudget.core.rules.statement_vocabulary import words

_POINTERS = words("that this it these those them above below one")
_AT_THE_END = re.compile(
    r"(?:\b(?:about|with|for|on|in|to|of|from|at|than) (?:that|this|it|these|those|them)|\b(?:above|below)"
    r"|^(?:eats?|likes?|loves?|hates?|has|uses?|plays?) (?:it|one|that|this))$",
    re.IGNORECASE,
)
_GIVEN = re.compile(
    r"\b(?:you|you've|you have) (?:gave|sent|wrote|made|suggested|showed|mentioned|provided|posted|said)\b"
    r"|\b(?:the following|(?:see|code|as|the|shown|mentioned|listed|described) (?:above|below)|here it is)\b",
    re.IGNORECASE,
)
_GIVEN_PARTS = ("you", "following", "above", "below", "here it is")


def leans(text: str) -> bool:
    """Whether a text cannot be understood without the rest of the conversation."""
    lowered = text.lower()
    if lowered.rpartition(" ")[2] in _POINTERS and _AT_THE_END.search(text):
        return True
    return any(part in lowered for part in _GIVEN_PARTS) and bool(_GIVEN.search(text))


def rendered(clause: Clause) -> str:
    """A clause in the third person, without its subject."""
    adverbs = f"{clause.adverbs} " if clause.adverbs else ""
    said = clause.said
    no_longer = "no longer " if clause.over else ""
    match clause.tense:
        case Tense.PRESENT if clause.negated:
            text = f"does not {adverbs}{said}"
        case Tense.PRESENT:
            text = f"{no_longer}{adverbs}{_inflected(clause.head)} {_both(clause.rest)}"
        case Tense.PROGRESSIVE:
            text = f"has been {adverbs}{said}" if clause.perfect else f"{no_longer}{adverbs}{said}"
        case Tense.PAST if clause.perfect:
            text = f"has {'not ' if clause.negated else no_longer}{adverbs}{said}"
        case Tense.PAST:
            text = f"{no_longer}{adverbs}{said}"
        case Tense.BE | Tense.WAS:
            being = "was" if clause.tense is Tense.WAS else "has been" if clause.perfect else "is"
            text = f"{being} {'not ' if clause.negated else no_longer}{adverbs}{said}"
        case Tense.CAN:
            text = f"{'cannot' if clause.negated else 'can no longer' if clause.over else 'can'} {adverbs}{said}"
        case _:
            helper = {Tense.WILL: "will", Tense.WOULD: "would"}.get(clause.tense, "might")
            text = f"{helper} {'not ' if clause.negated else no_longer}{adverbs}{said}"
    return f"{text} (with {clause.companion})" if clause.companion else text


_IRREGULAR = {"have": "has", "do": "does", "go": "goes", "has": "has"}


def _inflected(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if re.search(r"(?:s|x|z|ch|sh|o)$", verb):
        return verb + "es"
    return verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + "s"


_AND_VERB = re.compile(
    r"\b(and|but) (work|live|study|teach|love|like|hate|prefer|enjoy|speak|play|have|own|use|drive|write"
    r"|run)\b(?= (?:at|in|for|as|the|a|an|my|on|to|with)\b)"
)


def _both(rest: str) -> str:
    """The second verb of "work at Acme and live in Leeds", inflected."""
    return _AND_VERB.sub(lambda found: f"{found[1]} {_inflected(found[2])}", rest)


_THIRD = re.compile(
    r"\b(?:i am|we are|i was|we were|i have|i do|i've|i'm|my|our|mine|ours|myself|ourselves|i|me|we|us|am)\b(?!\.)",
    re.IGNORECASE,
)
_TO_THIRD = {
    "i am": "they are", "we are": "they are", "i was": "they were", "we were": "they were", "i have": "they have",
    "i do": "they do", "i've": "they have", "i'm": "they are", "my": "their", "our": "their", "mine": "theirs",
    "ours": "theirs", "myself": "themselves", "ourselves": "themselves", "i": "they", "me": "them", "we": "they",
    "us": "them", "am": "am",
}  # fmt: skip


def third(text: str) -> str:
    """A text with the third person for the first."""
    return _THIRD.sub(lambda found: found[0] if found[0] in {"US", "AM"} else _TO_THIRD[found[0].lower()], text)


def cut(text: str) -> str:
    """A text of at most `MAX_CHARACTERS`."""
    text = text.strip(" ,.;:!-")
    if len(text) <= MAX_CHARACTERS:
        return text
    short = text[: MAX_CHARACTERS - 1]
    return short[: max(short.rfind(" "), MAX_CHARACTERS // 2)].rstrip(" ,;:") + "…"
