"""What kind of thing a name stands for, by the words around it."""

from __future__ import annotations

from itertools import pairwise

from langchain_ctxbudget.core.rules import naming_capitals as capitals
from langchain_ctxbudget.core.rules import naming_words as words
from langchain_ctxbudget.core.rules.naming_reading import NAME, Mention, Sentence
from langchain_ctxbudget.core.rules.naming_stated import (
    DEPARTMENTS,
    FAIR,
    NEAR,
    PRONOUNS,
    SPEAKERS,
    STRONG,
    WEAK,
    before,
    put,
    stated_called,
    stated_of_person,
)
from langchain_ctxbudget.core.rules.naming_words import word_set

_LISTED = frozenset({",", "and", "or", "&", "/", "vs", "over", "than"})
_SEPARATORS = _LISTED | {"to", "with", "for", "of", "plus"}
_PLACING = frozenset(
    {"in", "at", "on", "of", "to", "using", "via", "into", "through", "like", "near", "the", "a", "an"}
)
_USERS = SPEAKERS | word_set("they team company he she who everyone client office")
_DEALS = word_set(
    "renewal contract pricing deal proposal partnership demo vendor client account integration rfp invoice sale"
)
_LANGUAGES = word_set("go rust swift r c julia lua dart elm")
_SOCIAL = word_set("twitter facebook instagram linkedin pinterest slack discord zoom")
_HANDING = word_set("gave give lent sent showed handed bought owe paid give")
_DOING = word_set("is has keeps crashes crashed won't doesn't and tells says shows")
_SWITCHING = frozenset({"switched", "migrated", "switching", "migrating"})
_STARS = word_set("zodiac sign horoscope astrology ascendant rising")
_MOVING = word_set("move moved moving port ported porting migrate migrated migrating rewrite rewriting rewrote switch")
_MEMBERS = word_set("member members chair chairman chairwoman captain president treasurer secretary founder alumni")
_BUYING = word_set("order ordered ordering bought buy buying purchased purchase rented rent leased lease invoice quote")
_RECORDING = word_set(
    "log logged logging track tracked tracking draw draws drew edit edits edited sketch drawing editing"
)
_PUBLISHING = word_set(
    "host hosts hosted hosting publish published publishing sell sells sold selling stream streaming"
)
_BETWEEN = word_set("choose choosing decide fight argument conflict tension trouble seat sit sat sits talk mediate")
_TO_PEOPLE = {
    "with": (words.MEETING, 6),
    "to": (words.SPEAKING, 4),
    "for": (words.GIVING, 6),
    "by": (words.DONE_BY, 2),
    "between": (_BETWEEN, 6),
}
"""What says, so many words before, that a person follows."""
_WORKS = word_set("book books recipe recipes novels essays poems writings teachings paintings songs lectures")
_TELLING = frozenset({"told", "tell", "asked", "ask", "texted", "emailed", "email", "remind"})
_CODING = word_set(
    "written write writing code coding program programming wrote rewrite rewriting rewrote built build implement doc"
    " spreadsheet implemented service backend programs prototype app crate compiler developer dev developers project"
    " scripts codebase macro formula formulas channel"
)


def classify(sentence: Sentence) -> list[Mention]:
    """The mentions of a sentence that are names, with their kinds."""
    for mention in sentence.mentions:
        _classify(sentence, mention)
    _moved(sentence)
    _spread(sentence)
    return [mention for mention in sentence.mentions if mention.kind]


def _classify(sentence: Sentence, mention: Mention) -> None:  # noqa: C901, PLR0911, PLR0912
    word, at = sentence.word, mention.at
    left = before(sentence, at)
    near, two = (word(left), f"{word(left - 1)} {word(left)}")
    if _is_oneself(sentence, at):
        return
    if stated_of_person(sentence, mention) or stated_called(sentence, mention):
        return
    if mention.small or mention.doubtful or _is_sign(sentence, mention):
        return
    if mention.weak and not mention.tool:
        if mention.words[0] in words.ALSO_GIVEN and (
            (word(at + 1), word(at + 2)) == ("and", "i")
            or word(at + 1) in {"said", "told", "thinks"}
            or near in _TELLING
            or (near == "with" and not words.MEETING.isdisjoint(sentence.low[max(0, at - 5) : at]))
        ):
            put(mention, "person", WEAK)
        return
    if mention.tool and _employs(sentence, mention, near, two):
        mention.tool = ""
        put(mention, "organization", FAIR)
        return
    if mention.tool and not mention.certain and not _is_tool(sentence, mention, near, two):
        if not mention.given and " ".join(mention.words) not in words.ORGANISATIONS:
            return
        mention.tool, mention.weak = "", False
    if mention.tool:
        put(mention, "tool", STRONG if mention.certain else FAIR)
    elif mention.handle or mention.titled:
        put(mention, "person", STRONG)
    elif mention.words[-1] in words.ORGANISATION_ENDS and len(mention.words) > 1:
        put(mention, "organization", STRONG)
    elif _is_project(sentence, mention, near):
        put(mention, "project", FAIR)
    elif _is_organisation(sentence, mention, near, two):
        put(mention, "organization", FAIR)
    elif near in words.TITLE_NOUNS or mention.acronym or sentence.low[0] in {"who", "whose"}:
        return
    elif _is_person(sentence, mention, near, two):
        put(mention, "person", FAIR if mention.given else WEAK)
    elif not mention.possessive and not mention.given and not mention.initial and (
        (near in words.USING - {"learning", "adopt", "adopted"} and not _USERS.isdisjoint(sentence.low[:at]))
        or two in words.USING_WITH
        or word(at + 1) in words.TOOL_AFTER
        or (near in {"to", "from"} and not _SWITCHING.isdisjoint(sentence.low[:at]))
        or (near == "in" and not _RECORDING.isdisjoint(sentence.low[max(0, at - 6) : at]) and not mention.acronym)
        or (near in {"through", "via"} and not (_PUBLISHING | _RECORDING).isdisjoint(sentence.low[:at]))
        or (near == "on" and not _PUBLISHING.isdisjoint(sentence.low[max(0, at - 5) : at]) and not mention.acronym
            and not _USERS.isdisjoint(sentence.low[:at]))
        or (near in {"with", "via", "using"} and mention.text[1:] != mention.text[1:].lower()
            and len(mention.words) == 1 and not _USERS.isdisjoint(sentence.low[:at]))
    ) and len(mention.words) < 4:  # fmt: skip  # noqa: PLR2004
        put(mention, "tool", WEAK)


def _is_sign(sentence: Sentence, mention: Mention) -> bool:
    """Whether it is a sign of the zodiac."""
    return mention.words[0] in capitals.ZODIAC and not _STARS.isdisjoint(sentence.low)


def _is_oneself(sentence: Sentence, at: int) -> bool:
    """Whether a name is the user's own, or whom the message speaks to."""
    two = f"{sentence.word(at - 2)} {sentence.word(at - 1)}"
    own = sentence.word(at - 1) in {
        "i'm",
        "im",
        "hi",
        "hello",
        "hey",
        "thanks",
        "dear",
        "cheers",
        "sincerely",
        "regards",
    }
    return (
        (own and sentence.word(at + 1) != "'s")
        or two in {"i am", "call me", "name's", "this is", "thank you", "thanks ,", "cheers ,", "regards ,", "best ,"}
        or (two == "name is" and sentence.word(at - 3) == "my")
        or (sentence.word(at + 1) == "here" and at == 0)
    )


def _is_project(sentence: Sentence, mention: Mention, near: str) -> bool:
    word, at = sentence.word, mention.at
    if mention.given or mention.acronym or mention.possessive or len(mention.words) > 3:  # noqa: PLR2004
        return False
    following = word(at + 1)
    if near in {"the", "our", "my", "on"} and following in {"project", "initiative"}:
        mention.aliases.append(f"Project {mention.text}")
        return True
    if near in words.BUILDING - {"founded"} and following == "," and word(at + 2) in {"a", "an", "my", "our"}:
        return True
    if near in {"the", "our", "my"} and following in words.PROJECT_AFTER:
        return True
    if (
        near == "on"
        and word(at - 2) in {"working", "work", "worked", "works"}
        and " ".join(mention.words) not in words.ORGANISATIONS
    ):
        return True
    return near in {"shipping", "shipped", "launching", "launched", "launch"} and not mention.initial


def _employs(sentence: Sentence, mention: Mention, near: str, two: str) -> bool:
    """Whether people work for the name, study there, or deal with it as with a firm."""
    word, at = sentence.word, mention.at
    if mention.acronym and mention.initial:
        return False
    earlier = sentence.low[max(0, at - 7) : at]
    following = word(at + 1)
    place = at - 1
    if near == "the" and word(at - 2) in {"at", "for", "from", "of"}:
        near, place = word(at - 2), at - 2
    if (
        near == "with"
        and not words.MEETING.isdisjoint(earlier)
        and not mention.given
        and not _DEALS.isdisjoint(sentence.low)
    ):
        return True
    return (
        (near == "at" and not words.WORK.isdisjoint(earlier))
        or (near == "for" and not words.WORK_FOR.isdisjoint(earlier[-4:]))
        or (near in {"join", "joined", "joining"} and following not in {"us", "me"} and mention.words[0] not in _SOCIAL)
        or (near == "of" and word(place - 1) in words.LEADS and _is_personal(sentence, mention))
        or (near == "of" and word(place - 1) in _MEMBERS)
        or (near == "from" and not mention.tool and not mention.given and not _BUYING.isdisjoint(earlier))
        or two in words.EMPLOYING
        or near in words.EMPLOYING
        or (mention.possessive and following in words.ORGANISATION_OWN)
        or (
            not mention.initial and following in words.ORGANISATION_AFTER and word(at - 1) in {"the", "our", "an", "my"}
        )
        or (mention.tool != "" and near == "at")
        or (not mention.possessive and following in words.ORGANISATION_VERBS)
        or (near in {"from", "at"} and word(place - 1) == NAME and _person_before(sentence, place - 1))
        or (
            near == "from"
            and word(place - 1) in {"someone", "recruiter", "people", "guy", "team", "folks", "person", "rep"}
        )
    )


def _is_personal(sentence: Sentence, mention: Mention) -> bool:
    """Whether it is no household name, or the user is in the sentence."""
    return " ".join(mention.words) not in words.ORGANISATIONS or not SPEAKERS.isdisjoint(sentence.low)


def _is_organisation(sentence: Sentence, mention: Mention, near: str, two: str) -> bool:
    following = sentence.word(mention.at + 1)
    if mention.given and len(mention.words) < 3 and words.ORGANISATION_WORDS.isdisjoint(mention.words):  # noqa: PLR2004
        return False
    if _employs(sentence, mention, near, two):
        return True
    if sentence.low[0] in {"who", "what", "when", "where", "how"} and "i" not in sentence.low:
        return False
    joined = " ".join(mention.words)
    if not words.ORGANISATION_WORDS.isdisjoint(mention.words) and len(mention.words) > 1:
        return not (mention.initial and mention.words[-1] not in words.ORGANISATION_WORDS and len(mention.words) < 3)  # noqa: PLR2004
    if joined in words.ORGANISATIONS and not mention.tool:
        return near in {"with", "left", "leaving", "joined", "by", "against", "sued"} or following in {
            "offered", "sent", "wants", "recruiter", "interview", "offer"}  # fmt: skip
    return False


def _person_before(sentence: Sentence, at: int) -> bool:
    """Whether the mention at a place is a person, or may be one."""
    before = next((mention for mention in sentence.mentions if mention.at == at), None)
    return before is not None and (before.kind == "person" or before.given) and before.kind in {"", "person"}


def _is_person(sentence: Sentence, mention: Mention, near: str, two: str) -> bool:  # noqa: PLR0911
    """Whether the words around a name are those around a person."""
    word, at = sentence.word, mention.at
    if len(mention.words) > 4:  # noqa: PLR2004
        return False
    following, third = word(at + 1), word(at - 2)
    if mention.possessive and following in words.BELONGINGS:
        return True
    shy = mention.words[0] in words.SHY and len(mention.words) == 1
    if mention.given and not shy and not mention.initial:
        return near not in {"in", "the", "a", "an", "by"} or mention.possessive or third in words.DONE_BY
    if not mention.initial and _addressed(sentence, mention, near, two):
        return True
    if not mention.possessive and following in words.HUMAN_VERBS:
        return near not in _PLACING and (not mention.initial or not shy or following in {"said", "told", "thinks"})
    if (following, word(at + 2)) in {("and", "i"), (",", "who")}:
        return near not in _PLACING and following == "and"
    if mention.given and not shy:
        return bool(following)
    if following == "from" and (word(at + 2) in DEPARTMENTS or _comes_from(sentence, at + 2)):
        return True
    after = sentence.low[at + 1 : at + NEAR]
    return (
        not PRONOUNS.isdisjoint(after)
        and near not in _PLACING
        and near not in words.USING
        and not mention.possessive
        and len(mention.words) < 3  # noqa: PLR2004
        and len(sentence.mentions) < 3  # noqa: PLR2004
        and (not mention.initial or following in words.VERBS)
    )


def _comes_from(sentence: Sentence, at: int) -> bool:
    """Whether a name and what a person does follow "from"."""
    at += sentence.word(at) == "the"
    place = next((mention for mention in sentence.mentions if mention.at == at), None)
    return place is not None and sentence.word(at + 1) in words.HUMAN_VERBS | {"showed", "sent", "gave", "called"}


def _addressed(sentence: Sentence, mention: Mention, near: str, two: str) -> bool:
    """Whether somebody meets, tells or gives something to the name."""
    earlier = sentence.low[max(0, mention.at - 6) : mention.at - 1]
    if near in words.ADDRESSING or two in {"heard from", "according to", "help from", "asked by", "except for"}:
        return True
    if near in _HANDING and sentence.word(mention.at + 1) in {"the", "my", "a", "an", "some", "our", "his", "her"}:
        return True
    if near in {"put", "seat", "pair"}:
        return sentence.low[mention.at + 1 : mention.at + 3] == ["and", NAME]
    if near == ",":
        return sentence.word(mention.at - 2) in {"me", "myself"} and sentence.word(mention.at + 2) == NAME
    if near == "of":
        return sentence.word(mention.at - 2) in _WORKS and len(mention.words) > 1
    cues, reach = _TO_PEOPLE.get(near, (frozenset(), 0))
    return not cues.isdisjoint(earlier[-reach:])


def _is_tool(sentence: Sentence, mention: Mention, near: str, two: str) -> bool:
    """Whether the words around a known tool of a common name speak of a tool."""
    at = mention.at
    following = sentence.word(at + 1)
    earlier = sentence.low[max(0, at - 6) : at]
    if mention.lower and mention.words[0][-1].isdigit():
        known = any(other.tool for other in sentence.mentions if other is not mention)
        return known or not words.USING.isdisjoint(earlier)
    return (
        near in words.USING
        or (near == "to" and not _MOVING.isdisjoint(earlier))
        or (mention.words[0] in _LANGUAGES and (near in {"write", "writing", "know"} or two == "bit of"))
        or two in words.USING_WITH
        or following in words.TOOL_AFTER
        or following in _CODING
        or (near == "in" and not _CODING.isdisjoint(sentence.low[max(0, at - 6) : at]))
        or (mention.initial and following in _DOING
            and mention.words[0] not in {"go", "make", "word", "access", "express", "spring", "notes", "numbers"})
    )  # fmt: skip


def _moved(sentence: Sentence) -> None:
    """What something is moved from and to are both tools where one is known to be: "from Java to Fennel"."""
    if _MOVING.isdisjoint(sentence.low):
        return
    for one, other in pairwise(sentence.mentions):
        way = (sentence.word(one.at - 1), *sentence.low[one.at + 1 : other.at])
        if way in {("from", "to"), ("to", "from")} and (one.tool or other.tool) and not (one.weak or other.weak):
            for mention in (one, other):
                mention.kind, mention.confidence = "tool", mention.confidence or WEAK


def _spread(sentence: Sentence) -> None:  # noqa: C901
    """Members of a list are of one kind: "Tom, Priya and Ana", "from Java to Go"."""
    for ordered in (sentence.mentions, sentence.mentions[::-1]):
        for mention, other in pairwise(ordered):
            low, high = sorted((mention.at, other.at))
            between = sentence.low[low + 1 : high]
            listed = bool(between) and len(between) < 3 and all(part in _LISTED for part in between)  # noqa: PLR2004
            if listed and mention.relationship and other.kind in {"", "person"} and not other.relationship and (
                _is_plural(sentence, mention)
            ):  # fmt: skip
                other.relationship = mention.relationship
            if not mention.kind or mention.handle:
                continue
            if other.doubtful and other.at < mention.at and sentence.word(mention.at + 1) not in {"and", "&"}:
                continue
            of_tools = (
                mention.kind == "tool"
                and other.tool != ""
                and len(between) < 3  # noqa: PLR2004
                and all(p in _SEPARATORS for p in between)
            )  # noqa: PLR2004, RUF100
            if mention.kind == "organization" and other.kind == "tool" and between in (["and"], ["or"], [","]):
                other.kind, other.tool = "organization", ""
            if mention.kind == "tool" and other.kind == "person" and between == ["to"] and (
                sentence.word(mention.at - 1) == "from"
            ):  # fmt: skip
                other.kind, other.confidence = "tool", WEAK
            if not (listed or of_tools) or (other.weak and not other.tool):
                continue
            if other.kind or (other.tool and mention.kind != "tool"):
                continue
            if mention.kind == "tool" and (other.given or other.possessive or (other.initial and not other.tool)):
                continue
            if mention.kind == "organization" and (other.given or other.initial):
                continue
            if mention.kind == "project" and mention.confidence < STRONG:
                continue
            other.kind, other.confidence = mention.kind, WEAK


def _is_plural(sentence: Sentence, mention: Mention) -> bool:
    """Whether the noun before a name is a plural."""
    near = {sentence.word(mention.at + step) for step in (-3, -2, -1, 2, 3, 4)}
    return not near.isdisjoint(words.PLURALS)
