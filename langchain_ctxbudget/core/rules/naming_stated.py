"""What a text itself says that a name is: "my sister Ana", "Ana is our designer", "an app called Moss"."""

from __future__ import annotations

from langchain_ctxbudget.core.rules import naming_words as words
from langchain_ctxbudget.core.rules.naming_reading import CALLED, NAME, Mention, Sentence
from langchain_ctxbudget.core.rules.naming_words import word_set
from langchain_ctxbudget.core.text import STOP_WORDS

STRONG, FAIR, WEAK = 0.95, 0.8, 0.65
"""How sure a rule is."""
NEAR = 12
_MINE = frozenset({"my", "our"})
_OTHERS = frozenset({"his", "her", "their", "the", "your", "this", "that", "another", "some", "its"})
_ARTICLES = frozenset({"a", "an", "one"})
_IS = frozenset({"is", "was", "are", "were", "'s", "be"})
_PAUSES = frozenset(",(:-–—")  # noqa: RUF001
_QUOTES = frozenset("\"'“”‘’*")  # noqa: RUF001
PRONOUNS = frozenset({"he", "she", "he's", "she's", "him", "hers", "himself", "herself"})
SPEAKERS = word_set("i we i'm we're i've we've i'd i'll we'll my our us me")
_OF_THE_USER = word_set("new old former current ex late dear good best own lovely wonderful amazing first")
_ONLY_TO_THE_USER = word_set(
    "manager supervisor lead assistant cofounder co-founder intern student coach tutor trainer owner"
)
DEPARTMENTS = word_set(
    "sales marketing engineering finance product operations hr design people research it accounting legal support"
    " procurement security payroll billing work school church"
)
_KINDS_OF_PROJECT = word_set("open-source web mobile own hobby ios android client school research ai")
_NUMBERS = word_set("two three four five six both some")


def put(mention: Mention, kind: str, confidence: float) -> None:
    """Say what kind of thing a mention is."""
    mention.kind, mention.confidence = kind, confidence


def before(sentence: Sentence, at: int) -> int:
    """The place of the word before a mention, over a quotation mark."""
    return at - 2 if sentence.word(at - 1) in _QUOTES and at else at - 1


def stated_of_person(sentence: Sentence, mention: Mention) -> bool:  # noqa: C901
    """Read "my sister Ana", "my manager is called Tom", "Ana, my sister," and "Ana is my sister"."""
    word, raw = sentence.word, sentence.raw
    i = before(sentence, mention.at)
    named = word(i) in CALLED
    if named:
        i -= 1
    linked = False
    if word(i) in _IS and i > 0:
        linked, i = True, i - 1
    elif word(i) in _PAUSES and i > 0:
        i -= 1
    if word(i) == "years" and word(i - 2) == "of":
        i -= 3
    if word(i) == "name's":
        named, linked, i = True, True, i - 1
    elif word(i) == "name" and linked:
        named, i = True, i - 1
        if word(i) in {"her", "his"}:
            i = _antecedent(sentence, i)
    if word(i) in {"mine", "ours"} and word(i - 1) == "of":
        i -= 2
    if word(i) == NAME and word(i - 1) in {"at", "from", "in", "of"}:
        i -= 2
    noun = word(i).removesuffix("'s") if named and linked else word(i)
    if _noun(sentence, mention, i, noun, named=named, linked=linked):
        return True
    if mention.weak and not set(mention.words) & (words.ALSO_GIVEN | words.SHY):
        return False
    return _apposed(sentence, mention, raw)


def _antecedent(sentence: Sentence, at: int) -> int:
    """The place of the relationship that "her" stands for in "my manager ..., her name is"; else the same place."""
    for i in range(at - 1, max(0, at - 2 * NEAR), -1):
        if sentence.low[i] in words.RELATIONSHIPS:
            return i
    return at


def _noun(sentence: Sentence, mention: Mention, i: int, noun: str, *, named: bool, linked: bool) -> bool:  # noqa: C901, PLR0911, PLR0912
    """Read the noun before a name: what it is to whom."""
    word = sentence.word
    if noun in words.PEOPLE and named:
        return _person(mention, STRONG)
    plural = words.PLURALS.get(noun)
    relation = plural or noun
    if noun == "lead" and word(i - 1) in words.MODIFIERS:
        relation = f"{word(i - 1)} lead"
    is_job = noun.removeprefix("co-") in words.JOBS
    is_kin = bool(plural) or noun in words.RELATIONSHIPS
    is_org = noun in words.ORGANISATION_NOUNS
    head = i
    if word(i - 1) == "of" and word(i - 2) in words.JOBS and not is_kin and noun not in _OTHERS | _ARTICLES:
        head, is_job = i - 2, True
        relation = " ".join(sentence.raw[i - 2 : i + 1])
    elif not (is_job or is_kin or is_org):
        return False
    k = _determiner(sentence, head)
    determiner = word(k)
    owner = determiner.removesuffix("'s") if determiner.endswith("'s") else ""
    mine = determiner in _MINE or (owner != "" and word(k - 1) in _MINE)
    if mention.acronym and is_org and not (mine or named):
        return False
    mine = mine or (bool(plural) and determiner in _NUMBERS and not SPEAKERS.isdisjoint(sentence.low[:k]))
    if (
        not mine
        and determiner not in _OTHERS
        and determiner not in _ARTICLES
        and not owner
        and not (k < 0 or word(k) in {",", "and", "."})
    ):
        return False
    if mention.weak and not (set(mention.words) <= words.ALSO_GIVEN | words.SHY and (mine or named)):
        return False
    if linked and not named and not mine:
        return False
    if (is_org and not is_kin) or (is_org and _is_client(sentence, mention, noun, mine=determiner == "my")):
        if noun in words.CALLED_NOUNS_ONLY and not named:
            return False
        put(mention, "organization", STRONG if mine or named else FAIR)
        if mine and noun in {"client", "customer", "employer", "supplier", "vendor", "competitor", "partner", "company",
                             "startup"}:  # fmt: skip
            mention.relationship = noun
        return True
    if mention.tool and mention.certain:
        return False
    if determiner in _ARTICLES and not named and word(before(sentence, mention.at)) != ",":
        return False
    if not mine and determiner not in _OTHERS and not owner and not named and not mention.given:
        return False
    mention.kind, mention.confidence = "person", STRONG if mine or named else FAIR
    said = " ".join(part for part in sentence.raw[k + 1 : i + 1] if not part.endswith("-old")).removesuffix("'s")
    if mine:
        if owner:
            mention.relationship = f"{owner}'s {relation}"
        else:
            mention.relationship = relation if plural or head != i or noun == "lead" else _cased(sentence.raw[i])
            if not plural:
                mention.aliases.append(f"{determiner} {said}")
    elif determiner in _ARTICLES and is_kin and not is_job:
        mention.relationship = relation
    if is_job and not plural:
        _add_title(mention, sentence.raw[head : i + 1], sentence.raw[k + 1 : head])
    for part in sentence.low[k + 1 : i]:
        if part.endswith("-year-old"):
            mention.attributes.append(("age", part.removesuffix("-year-old")))
    return True


def _determiner(sentence: Sentence, head: int) -> int:
    """The place of "my" in "my former flatmate and co-writer Eszter", or of what else determines the noun."""
    word, k = sentence.word, head - 1
    while head - k <= 3 and (word(k) in words.MODIFIERS or word(k).endswith("-old")):  # noqa: PLR2004
        k -= 1
    if word(k) == "and" and word(k - 1) in words.RELATIONSHIPS | words.JOBS:
        k -= 2
        return k - (word(k) in words.MODIFIERS)
    for steps in (1, 2):  # Any other word may stand between: "our hosting company".
        between = sentence.low[max(0, k - steps + 1) : k + 1]
        if word(k - steps) in _MINE and all(part.isalpha() and part not in STOP_WORDS for part in between):
            return k - steps
    return k


def _add_title(mention: Mention, noun: list[str], modifiers: list[str]) -> None:
    """Put a job to a person; what somebody is only to the user is no job."""
    said = [part for part in modifiers if part.lower() not in _OF_THE_USER and not part.endswith("-old")]
    title = " ".join([*said, *noun]).removesuffix("'s")
    if title.lower() not in _ONLY_TO_THE_USER:
        mention.attributes.append(("title", title))


def _cased(noun: str) -> str:
    return (noun if noun.isupper() else noun.lower()).removesuffix("'s")


def _person(mention: Mention, confidence: float) -> bool:
    put(mention, "person", confidence)
    return True


def _is_client(sentence: Sentence, mention: Mention, noun: str, *, mine: bool) -> bool:
    """Whether a client or partner is an organisation and not a person."""
    if mention.given or mention.titled or (noun == "partner" and mine):
        return False
    after = sentence.low[mention.at + 1 : mention.at + NEAR]
    return PRONOUNS.isdisjoint(after) and sentence.word(mention.at + 1) not in words.HUMAN_VERBS - {"wants", "asked"}


def _apposed(sentence: Sentence, mention: Mention, raw: list[str]) -> bool:  # noqa: C901, PLR0911, PLR0912
    """Read what a name is said to be after it: ", my sister", "is the CTO", "(our designer)"."""
    word, i = sentence.word, mention.at + 1
    linked = False
    if word(i) == "(" and word(i + 2) == ")":
        i += 3
    if word(i) in _PAUSES:
        i += 1
    if word(i) == "who" and word(i + 1) in _IS:
        i += 2
    elif word(i) in {"who's", "is", "was", "became"} or (word(i) == "are" and word(i + 1) in _MINE):
        linked, i = True, i + 1
    elif mention.possessive and word(i) in _MINE:
        linked = True
    elif word(i - 1) not in _PAUSES:
        return False
    determiner, k = word(i), i
    if determiner in _MINE | _ARTICLES | {"the", "also"}:
        k += 1
        if determiner == "also":
            determiner, k = word(k), k + 1
    elif linked or word(i) not in words.JOBS:
        return False
    steps = k
    while k - steps < 3 and word(k) in words.MODIFIERS and word(k + 1) not in {",", ".", ")", ""}:  # noqa: PLR2004
        k += 1
    noun = words.PLURALS.get(word(k), word(k)) if word(mention.at + 1) == "are" else word(k)
    mine = determiner in _MINE or (word(k + 1), word(k + 2)) == ("of", "mine")
    if noun in words.PROJECT_NOUNS and mine and not mention.given and not mention.tool:
        put(mention, "project", STRONG)
        return True
    if noun in words.ORGANISATION_NOUNS and (
        noun not in words.RELATIONSHIPS or _is_client(sentence, mention, noun, mine=determiner == "my")
    ):
        if (mine or linked or determiner in _ARTICLES) and not mention.given:
            put(mention, "organization", STRONG)
            return True
        return False
    is_job = noun in words.JOBS
    if not is_job and not (noun in words.RELATIONSHIPS and mine):
        return False
    if (mention.tool and mention.certain) or (
        not mine and mention.initial and not mention.given and len(mention.words) < 2  # noqa: PLR2004
    ):
        return False
    put(mention, "person", STRONG)
    if mine:
        mention.relationship = noun if noun != word(k) else _cased(raw[k])
        mention.aliases.append(f"{determiner if determiner in _MINE else 'my'} {_cased(raw[k])}")
    if is_job:
        until = k + 1
        of = raw[until + 1].lower() if until + 1 < len(raw) else ""
        if word(until) == "of" and (of in DEPARTMENTS or word(until + 1) not in {NAME, "the", "our", "mine", "a"}):
            until += 2
        _add_title(mention, raw[k:until], raw[steps:k])
    return True


def stated_called(sentence: Sentence, mention: Mention) -> bool:  # noqa: C901, PLR0911
    """Read "an app called Moss", "project Atlas", "a startup named Lumio", "the project is called Atlas"."""
    word = sentence.word
    i = before(sentence, mention.at)
    named = word(i) in CALLED
    if named:
        i -= 1
    if word(i) in _IS or (word(i) in {",", ":", "("} and not named):
        i -= 1
    if word(i) == "name" or word(i) == "it":
        return False
    noun = word(i).removesuffix("'s")
    k = i - 1
    while i - k <= 3 and (word(k) in words.MODIFIERS or word(k) in _KINDS_OF_PROJECT):  # fmt: skip  # noqa: PLR2004
        k -= 1
    mine = word(k) in _MINE or word(k).endswith("'s")
    direct = i == mention.at - 1
    if mention.tool and mention.certain and noun not in {"project", "codename"}:
        return False
    if mention.weak and not named:
        return False
    if noun == "codename" or (noun in {"project", "projects"} and (direct or named or mine)):
        if mention.tool and mention.certain:
            return False
        if direct:
            mention.aliases.append(f"Project {mention.text}")
        put(mention, "project", STRONG)
        return True
    if noun in words.PROJECT_NOUNS and (named or mine):
        earlier = sentence.low[max(0, k - 6) : k + 1]
        made = mine or not words.BUILDING.isdisjoint(earlier)
        used = not words.USING.isdisjoint(earlier) or "tried" in earlier or "found" in earlier
        kind = "tool" if not made and (used or noun in words.TOOL_NOUNS - {"app", "website", "site"}) else "project"
        put(mention, kind, STRONG if made else FAIR)
        return True
    if noun in words.ORGANISATION_NOUNS and named:
        put(mention, "organization", STRONG)
        return True
    return False
