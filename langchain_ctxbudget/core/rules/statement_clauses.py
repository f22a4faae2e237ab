"""Clauses in which users speak of themselves: their verb, its tense, and what follows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from langchain_ctxbudget.core.rules.statement_vocabulary import words

MAX_CHARACTERS = 160


class Tense(StrEnum):
    """The verb group of a clause."""

    PRESENT = "present"
    PROGRESSIVE = "progressive"
    """"am building", "have been building"."""
    PAST = "past"
    """"built", "have built"."""
    BE = "be"
    """"am a nurse", "have been a nurse"."""
    WAS = "was"
    WILL = "will"
    WOULD = "would"
    CAN = "can"
    MIGHT = "might"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """What a user says with "I" or "we" as its subject."""

    tense: Tense
    head: str
    """The verb as it stands there; of `BE`, the first word after it. Lower case."""
    rest: str
    """What follows the head."""
    said: str
    """Head and rest, as written."""
    adverbs: str = ""
    negated: bool = False
    over: bool = False
    """It is said to have ended: "no longer", "any more"."""
    perfect: bool = False
    plural: bool = False
    companion: str = ""
    """Who else is meant: "my wife" of "my wife and I"."""


_AUXILIARIES = words("am are was were have had do did will would can could might may been 'm")
_ADVERBS = words(
    "currently now usually normally typically generally often sometimes rarely seldom hardly always never mostly "
    "mainly recently lately already still really absolutely strongly definitely only even finally officially "
    "originally actually also just basically personally honestly literally simply obviously pretty quite both kinda "
    "probably possibly maybe primarily particularly especially truly totally genuinely regularly occasionally today "
    "once eventually either all ever long soon strictly severely very so too quickly slowly last even again instead "
    "maybe almost nearly however therefore"
)
_NO_ADVERBS = words("rely apply reply supply fly comply multiply imply bully rally tally")
_OUGHT = words("should shall gotta ought must better")
_DROPPED = words(
    "actually also just basically honestly literally simply obviously kinda both currently all however therefore last"
)
_IRREGULAR = words(
    "been got gotten had done gone made taken chosen written bought built taught found left lost met grown come "
    "become begun quit read run seen sold spent started moved decided lived known kept given eaten drunk driven led "
    "put set told won worn broken held sat fought caught heard stood paid fallen flown slept sung swum ridden risen "
    "thrown hung dug drawn stuck hidden shaken torn stolen bitten blown forgotten spoken felt slid sent lent bent "
    "dealt hurt cut hit shut fed fled bred thought brought sought split spread beaten woken learnt burnt dreamt"
)
_PAST = _IRREGULAR | words(
    "grew went began came chose took wrote gave ate became broke drove saw spoke fell flew sang swam rode rose threw "
    "wore drew hid shook tore stole bit blew woke swore froze forgot rang sank shrank drank knew did ran overcame "
    "withdrew"
)
_NOT_PAST = words("need read put set run come become cut hit hurt shut spread feed breed")
_BE = words("am are was were")
_NOT_PROGRESSIVE = frozenset(["king", "interesting", "boring"])
_START = re.compile(
    r"(?:(?P<with>(?:my|our) [\w-]+(?: [A-Z][\w-]+)?) and i|(?:me and|i and) (?P<and>my [\w-]+(?: [A-Z][\w-]+)?)"
    r"|(?P<plural>we)(?: all| both)?|i)\s+",
    re.IGNORECASE,
)
_ANY_MORE = re.compile(r",?\s+(?:any ?more|any longer)\b", re.IGNORECASE)


def read(text: str) -> Clause | None:
    """The clause that a piece of text is, where its subject is the speaker."""
    start = _START.match(text)
    if not start:
        return None
    body = text[start.end() :]
    over = bool(_ANY_MORE.search(body))
    spoken = (_ANY_MORE.sub("", body) if over else body).split()
    helpers: list[str] = []
    adverbs: list[str] = []
    negated = False
    place = 0
    for place, word in enumerate(spoken):
        low = word.lower().rstrip(",")
        if low == "no" and spoken[place + 1 : place + 2] == ["longer"]:
            over = True
        elif low == "longer" and place and spoken[place - 1].lower() == "no":
            continue
        elif low == "not":
            negated = True
        elif _is_adverb(low) and not (low in {"pretty", "quite", "so", "very", "too", "all"} and not helpers):
            if low not in _DROPPED:
                adverbs.append(low)
        elif low in _AUXILIARIES and not _is_main(spoken, place):
            helpers.append(low)
        elif low in _OUGHT:
            return None
        else:
            break
    else:
        return None
    head = spoken[place].lower().strip(",.")
    said = " ".join(spoken[place:])
    return Clause(
        tense=_tense(helpers, head),
        head=head,
        rest=" ".join(spoken[place + 1 :]),
        said=said,
        adverbs=" ".join(adverbs),
        negated=negated and not over,
        over=over,
        perfect="have" in helpers or "had" in helpers,
        plural=bool(start["plural"] or start["with"] or start["and"]),
        companion=start["with"] or start["and"] or "",
    )


_DETERMINERS = words("a an the my our some two three most all both it this that everything nothing")
# "I do like it"
_STRESSED = words(
    "not like love hate want need have prefer enjoy feel believe hope agree use eat drink live work get go know see "
    "remember support think mean understand appreciate wonder worry care plan speak own try wish realise realize mind "
    "recommend"
)


def _is_adverb(low: str) -> bool:
    return low in _ADVERBS or (low.endswith("ly") and low not in _NO_ADVERBS)


def _is_main(spoken: list[str], place: int) -> bool:
    """Whether "have" or "do" stands there as a verb of its own."""
    low = spoken[place].lower()
    following = next((word.lower() for word in spoken[place + 1 :] if word.lower() not in _ADVERBS), "")
    if low in {"have", "had"}:
        return not (following in _IRREGULAR or following.endswith("ed") or following == "not")
    if low == "did":
        return following in _DETERMINERS
    return low == "do" and following not in _STRESSED


def _tense(helpers: list[str], head: str) -> Tense:
    last = helpers[-1] if helpers else ""
    modal = {"will": Tense.WILL, "would": Tense.WOULD, "can": Tense.CAN}
    if helpers and helpers[0] in modal:
        return modal[helpers[0]]
    if helpers and helpers[0] in {"could", "might", "may"}:
        return Tense.MIGHT
    if last in _BE or last == "been":
        if head.endswith("ing") and head not in _NOT_PROGRESSIVE:
            return Tense.PROGRESSIVE if last not in {"was", "were"} else Tense.WAS
        return Tense.WAS if last in {"was", "were"} else Tense.BE
    if last in {"have", "had", "did"}:
        return Tense.PAST
    is_past = (head.endswith("ed") or head in _PAST) and head not in _NOT_PAST
    return Tense.PAST if is_past and last != "do" else Tense.PRESENT
