"""What clauses with "I" or "we" say that lasts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from langchain_ctxbudget.core.rules import statement_nouns as nouns
from langchain_ctxbudget.core.rules.statement_clauses import Clause, Tense
from langchain_ctxbudget.core.rules.statement_grammar import by_grammar
from langchain_ctxbudget.core.rules.statement_patterns import DATE, LONG_TERM, POINTS, RULES, Category, Rule
from langchain_ctxbudget.core.rules.statement_slots import HEDGED, PLAIN, Statement, dimension, liked
from langchain_ctxbudget.core.rules.statement_vocabulary import words
from langchain_ctxbudget.core.rules.statement_wording import leans, rendered

# Clauses with "I" or "we".


def of_clause(clause: Clause) -> Iterator[Statement]:
    """What a clause with "I" or "we" says."""
    if clause.tense in {Tense.BE, Tense.WAS} and clause.head not in RULES:
        yield from being(clause)
        return
    for rule in RULES.get(clause.head, ()):
        if clause.tense in rule.tenses and rule.rest.match(clause.rest):
            found = _by_rule(clause, rule)
            if found:
                yield found
                return
    if clause.tense in {Tense.BE, Tense.WAS}:
        yield from being(clause)
    elif found := by_grammar(clause):
        yield found


def _by_rule(clause: Clause, rule: Rule) -> Statement | None:
    slot, category, text = rule.slot, rule.category, ""
    ends = clause.over
    if slot.startswith("@"):
        special = _SPECIAL[slot](clause)
        if special is None:
            return None
        category, slot = special
        if slot == "!ends":
            ends, slot = True, "employer"
    if clause.negated and clause.tense in {Tense.WILL, Tense.PROGRESSIVE, Tense.PAST, Tense.MIGHT}:
        return None
    if clause.negated and slot in {"home", "job", "employer", "moving", "name", "age"}:
        slot = ""
    if slot == "{what}":
        slot = liked(clause.rest)
    if slot == "moving":
        slot = "next home"
    if clause.tense is Tense.WAS and slot != "birth":
        slot = ""
    text = text or rendered(clause)
    if leans(text):
        return None
    unsure = not rule.sure or clause.tense is Tense.MIGHT
    return Statement(
        text=text, category=category, slot=slot, ends=ends and bool(slot), confidence=HEDGED if unsure else PLAIN
    )


# Words that need a closer look at what follows.

_Special = tuple[Category, str] | None
_HAVE = re.compile(nouns.HAVE, re.IGNORECASE)
_HAVE_EVENT = re.compile(nouns.HAVE_EVENT, re.IGNORECASE)
_DAYS_OFF = re.compile(
    r"(?:every )?(?:mon|tues|wednes|thurs|fri|satur|sun|week)(?:days?|ends?) (?:\w+ )?(?:off"
    r"|free)\b",
    re.IGNORECASE,
)
_AT_A_PLACE = re.compile(r"an? .*\b(?:at|in|near|with) (?:the )?[A-Z]")
_NUMBER_OF = re.compile(
    r"(?:(?:about|around|over|nearly|almost|some|roughly) )?(?:\d[\d.,]*k?|two|three|four|five|six|seven|eight|nine"
    r"|ten|twelve|twenty"
    r"|no|a hundred) (?!(?:\w+ )?(?:questions?|problems?|issues?|errors?|ideas?|options?|choices?|minutes|hours|days"
    r"|more|clue|way)\b)\w+",
    re.IGNORECASE,
)
_CODE_NOUN = re.compile(
    r"\b(?:datasets?|data ?frames?|components?|class(?:es)? (?:that|which|called|named)|tables?|columns?|functions?"
    r"|scripts?|strings?"
    r"|json|csv|api|endpoints?|files?|arrays?|apples|objects?|variables?|models? (?:that|with)|to restart|spreadsheet"
    r"|loop)\b",
    re.IGNORECASE,
)
_BAD_LIKE = re.compile(
    rf"(?:{POINTS}|to (?:know|see|hear|ask|understand|thank|have|get|add|be able|bother|say|admit|be (?:a )?(?:bother"
    rf"|annoying)"
    r"|think|believe|point|do (?:this|that|it)|try|use (?:this|that)|make (?:this|that|it|sure)|change|start by"
    r"|discuss|share|talk about)\b"
    r"|(?:waiting|hearing|debugging|being told|losing|wasting|having to|getting (?:an?|this|these|errors))\b|your "
    r"|our |my (?:life|job when)"
    r"|(?:and|or|is|are|was|should|will|at|for|from|through|in|on|i|we|they|he|she|there|you)\b)",
    re.IGNORECASE,
)
# What was just seen, and is praised: "the blue vase", but not "the sea".
_SHOWN = re.compile(
    r"(?:the (?!(?:\w+ )?(?:seas?|ocean|beach|mountains?|outdoors|countryside|city|woods|forest|coast|alps|desert"
    r"|rain|snow|cold|heat"
    r"|sun|summer|winter|autumn|fall|spring|nineties|eighties|theat(?:re|er)|cinema|opera|gym|piano|guitar|violin"
    r"|cello|drums"
    r"|holidays|night|water|wild|stars|moon|internet|great outdoors|(?:smell|taste|sound|feel(?:ing)?) of"
    r"|(?-i:[A-Z])\w+)\b)"
    r"|(?:my|our|his|her|their) (?!(?:\w+ )?(?:job|work|wife|husband|partner|kids|children|family|dogs?|cats?|horse"
    r"|bike|car|city|town"
    r"|garden|neighbou?rhood|coffee|tea|steak|eggs|students|country|friends|morning|evening|quiet|freedom|sleep"
    r"|routine)\b))",
    re.IGNORECASE,
)
_FOR_ANSWERS = re.compile(
    r"(?:it|that)? ?when (?:you|your|answers?|replies|explanations|people)\b|(?:your|my|the) (?:answers?|repl\w+"
    r"|responses?|explanations?) (?:to be |short|brief|concise|long|in |with|without|as )|you to \b",
    re.IGNORECASE,
)
_AIM = r"to (?:eventually |one day |someday |really |also |finally |never )*"
_GOAL = re.compile(
    rf"{_AIM}(?:{LONG_TERM}|(?!(?:know|see|understand|make sure|ask|hear|check|try|get (?:this|that|it)|use|do (?:it"
    rf"|this|that))\b"
    rf"|\w+ {POINTS})\w+ .*(?:{DATE}|\b(?:(?:one|some) ?day|some time|eventually|next|again|in \w+ years"
    r"|before (?:i|we) (?:am|are)|for a (?:year|living)|by the time|at home|in the (?:long run|future))$))",
    re.IGNORECASE,
)


def _have(clause: Clause) -> _Special:
    rest = re.sub(r"^got (?!an? \w+ (?:error|message))", "", clause.rest)
    if (clause.negated and clause.tense is Tense.PAST) or _CODE_NOUN.search(rest):
        return None
    if clause.tense is Tense.PRESENT and _DAYS_OFF.match(rest):
        return "identity", ""
    if clause.plural and (_NUMBER_OF.match(rest) or _AT_A_PLACE.match(rest)):
        return "project", ""
    if _HAVE_EVENT.match(rest) or re.match(rf"to \w+ .*\bby (?:the )?{DATE}", rest, re.IGNORECASE):
        return "project", ""
    if clause.tense is Tense.PAST and clause.head == "had" and not re.match(r"an? (?:son|daughter|baby|stroke)", rest):
        return None
    return ("identity", "") if _HAVE.match(rest) else None


def _eat(clause: Clause) -> _Special:
    return "identity", "diet" if re.search(nouns.DIET, clause.rest, re.IGNORECASE) else ""


def _like(clause: Clause) -> _Special:
    rest = clause.rest
    if not rest or (
        clause.tense is Tense.PAST
        and clause.head not in {"loved", "hated", "liked"}
        and not clause.adverbs
        and not clause.perfect
    ):
        return None
    if clause.head in {"value", "appreciate", "fancy"} and not re.search(
        r"answers?|repl|explanation|honest|direct|feedback|short|concise", rest
    ):
        return None
    if _FOR_ANSWERS.match(rest):
        return "preference", dimension(rest)
    if _BAD_LIKE.match(rest) or (not clause.head.startswith("prefer") and not clause.adverbs and _SHOWN.match(rest)):
        return None
    return "preference", dimension(rest) or liked(rest, clause.head)


def _would(clause: Clause) -> _Special:
    rest = clause.rest
    answers = re.search(r"\b(?:answers?|repl(?:y|ies)|responses?|explanations?)\b", rest) and not re.match(
        _BAD_LIKE, rest
    )
    if clause.head == "rather":
        keeps = re.match(r"(?:not )?(?:\w+)", rest) and not re.search(rf"\b{POINTS}", rest)
        return (
            ("preference", "")
            if keeps and not re.match(r"(?:you|if you|we|use|do|see|start|keep|just)\b", rest)
            else None
        )
    if clause.head == "prefer" and re.match(
        r"(?:not )?to (?:keep|stay|live|work|travel|pay|write|avoid|wait|eat|sleep|drive|read|fly) (?!it|this|that"
        r"|these|those)",
        rest,
    ):
        return "preference", ""
    if clause.head in {"like", "love"}:
        if re.match(r"(?:to be called|you to (?:always|never|call me))", rest):
            return "preference", "called" if "call" in rest else dimension(rest)
        if answers and re.search(r"\b(?:\w+er|always|from now on|in (?:the )?future)\b", rest):
            return "preference", dimension(rest)
        return ("project", "") if _GOAL.match(rest) else None
    wants = re.match(
        r"(?:that |if )?you (?:to )?(?:always|never|not|call|keep|answer|use|write|explain|avoid|repl|spoke|called"
        r"|kept|wrote)\w*|to be called|not to ",
        rest,
    )
    return ("preference", "called" if "call" in rest else dimension(rest)) if answers or wants else None


def _want(clause: Clause) -> _Special:
    if re.match(
        r"you to (?:always|never)|(?:\w+ ){0,2}(?:answers|replies|responses|explanations)\b", clause.rest
    ) and not re.match(POINTS + "(?<!you)", clause.rest):
        return "preference", dimension(clause.rest)
    if clause.negated:
        if re.match(r"(?:any )?(?:kids|children|pets)\b", clause.rest):
            return "identity", ""
        return ("preference", dimension(clause.rest)) if re.match(r"any (?:more )?[\w -]+s\b", clause.rest) else None
    if re.match(r"(?:the |all |my )?[a-z]+s (?:without (?!the)|to be (?:short|brief|simple|in ))", clause.rest):
        return "preference", dimension(clause.rest)
    return ("project", "") if _GOAL.match(clause.rest) else None


def _use(clause: Clause) -> _Special:
    rest = (
        re.sub(r"^(?:over |back )?(?:from .{1,40}? )?to ", "", clause.rest)
        if clause.tense is Tense.PAST
        else clause.rest
    )
    lowered = re.match(
        r"(?:vim|neovim|emacs|zsh|fish|git|vscode|vs code|tabs|spaces|metric|imperial|dark mode|linux|windows|python"
        r"|rust|postgres\w*|docker|react|typescript|kubernetes|aws|notion|obsidian|celsius|fahrenheit|macos|figma"
        r"|public transport|they/them|she/her|he/him)\b",
        rest,
        re.IGNORECASE,
    )
    if not (lowered or re.match(r"[A-Z]", rest)) or re.search(r"\b(?:error|fails?|crash)", rest):
        return None
    slot = dimension(rest)
    if not slot and nouns.EDITORS.match(rest):
        slot = "editor"
    elif not slot and nouns.SYSTEMS.match(rest):
        slot = "operating system"
    return "project" if clause.plural or clause.tense is Tense.PROGRESSIVE else "preference", slot


def _start(clause: Clause) -> _Special:
    if clause.head == "quit":
        return _stop(clause)
    plan = clause.head in {"started", "began", "launched", "released", "shipped", "published"}
    job = re.match(r"(?:an?|my) new job|at [A-Z]", clause.rest)
    return ("identity" if job or not plan else "project", "employer" if job and clause.rest.startswith("at") else "")


def _stop(clause: Clause) -> _Special:
    slot = _stopped(clause)
    return _left(clause) if slot == "employer" else ("identity", slot)


def _left(clause: Clause) -> _Special:
    """A job that was left: long ago, it was not the one of today."""
    return "identity", "" if _LONG_AGO.search(clause.rest) else "!ends"


_LONG_AGO = re.compile(r"\b(?:years ago|last year|(?:19|20)\d\d)\b", re.IGNORECASE)


def _stopped(clause: Clause) -> str:
    rest = re.sub(r"^(?:up )?(?:smoking|drinking|eating|using|playing|taking|doing)? ?", "", clause.rest)
    if re.match(r"my (?:\w+ )?job|working", rest):
        return "employer"
    if nouns.EDITORS.match(rest):
        return "editor"
    return liked(rest) if rest else ""


def _been(clause: Clause) -> _Special:
    return (
        ("identity", "")
        if re.match(r"to (?!the (?:docs|page|site)|it|this)(?:[A-Z]|\w+ countries)", clause.rest)
        else None
    )


def _can(clause: Clause) -> _Special:
    if clause.negated or clause.over or clause.adverbs in {"barely", "hardly"}:
        return ("preference", liked(clause.rest)) if clause.head == "stand" else ("identity", "")
    return (
        ("identity", "")
        if clause.head in {"read", "cook", "speak", "swim", "drive", "sing", "dance"}
        and not re.match(r"(?:the|your|that|it|this)\b", clause.rest)
        else None
    )


def _going(clause: Clause) -> _Special:
    return (
        None
        if re.match(r"to (?:be|try|need|ask|use|do|see|have to)\b", clause.rest) and clause.head == "going"
        else ("project", "")
    )


_SPECIAL = {
    "@eat": _eat, "@have": _have, "@like": _like, "@would": _would, "@want": _want, "@use": _use, "@start": _start,
    "@stop": _stop, "@left": _left, "@been": _been, "@can": _can, "@going": _going,
}  # fmt: skip


def being(clause: Clause) -> Iterator[Statement]:
    """What "I am ..." says; several things where commas set them apart."""
    said: list[str] = []
    for piece in _ALSO.split(clause.said):
        if said and not _is(piece, clause, first=False):
            said[-1] = f"{said[-1]}, {piece}"
        else:
            said.append(piece)
    for place, piece in enumerate(said):
        found = _is(piece, clause, first=not place)
        if found and not leans(found.text):
            yield found


_ALSO = re.compile(
    r",\s*(?:and\s+)?|\s+and\s+(?=(?:an?|the|from|\d+)\s"
    r"|(?:married|divorced|single|vegan|vegetarian|allergic|based|retired)\b)"
)
_NAME = re.compile(
    r"((?:Dr\.? )?[A-Z][a-z'-]+(?: (?:van |de |von )?[A-Z][\w'-]+){0,2}|[A-Z][a-z]+)(?:$|\s(?=from\b|and\b|by\b|\())"
)
_NO_NAME = words(
    "ok okay sorry done back ready not sure here happy glad so just very an a the in on at also now trying using "
    "looking fine good great"
)
_BE = tuple((re.compile(pattern, re.IGNORECASE), kind, slot) for pattern, kind, slot in nouns.BE)


def _is(piece: str, clause: Clause, *, first: bool) -> Statement | None:
    piece = re.sub(r"^(?:also|now|actually|just|currently|originally(?! from)) ", "", piece)
    known = next((row for row in _BE if row[0].match(piece)), None)
    if not known:
        return _own_name(piece) if first and clause.tense is Tense.BE and not (clause.negated or clause.over) else None
    _, kind, slot = known
    if clause.negated and slot in {"age", "home", "name", "time zone", "height"}:
        return None
    if clause.tense is Tense.WAS and slot not in {"job", "", "origin"}:
        return None
    slot = liked(re.sub(r"^.*?\b(?:of|in|into|on|about|with|to) ", "", piece, count=1)) if slot == "{what}" else slot
    if clause.negated or clause.tense is Tense.WAS:
        slot = "" if not clause.over and not slot.startswith("prefers") else slot
    category: Category = "preference" if kind == "l" else "project" if kind == "p" else "identity"
    said = replace(clause, said=piece, adverbs=clause.adverbs if first else "")
    return Statement(text=rendered(said), category=category, slot=slot, ends=clause.over and bool(slot))


def _own_name(piece: str) -> Statement | None:
    name = _NAME.match(piece)
    if not name or name[1].split()[0].lower() in _NO_NAME:
        return None
    return Statement(text=f"Name is {name[1]}", category="identity", slot="name")
