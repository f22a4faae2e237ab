"""What is said of the user in other words than "I ...": "My ... is ...", "call me ...", "always answer ..."."""

# ruff: noqa: E501 - a pattern stands on one line
from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_ctxbudget.core import statement_nouns as nouns
from langchain_ctxbudget.core.statement_patterns import DATE, POINTS
from langchain_ctxbudget.core.statement_slots import PARTNER, Statement, dimension
from langchain_ctxbudget.core.statement_vocabulary import words
from langchain_ctxbudget.core.statement_wording import LEANS
from langchain_ctxbudget.core.text import one_line

# "My ...", "our ...".

_MINE = re.compile(r"(?P<whose>my|our)\s+(?P<rest>.+)", re.IGNORECASE)
_COPULA = re.compile(
    r"\s(?P<verb>is|are|will be|was|were|has|have|'s|:|=|starts|begins|ends|closes|opens|launches|runs on|falls on|took|means|got (?:moved|pushed|postponed)|(?:has been|was|got) (?:moved|postponed|pushed)|uses|makes|sells|builds|ships)(?=\s)",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    rf"(?:{POINTS}|not (?:working|sure|showing|loading|responding)|(?:working|failing|broken|slow|down|crashing|stuck|fine|good|great|ok(?:ay)?|ready|done|wrong|right|correct|below|above|attached|as follows|too|very|really|so|still)\b"
    r"|an? (?:mess|disaster|joke|nightmare|problem|pain|secret)\b|tight\b|(?:due|in) (?:soon|progress)\b|none of"
    r"|returning|throwing|giving|getting|showing|to (?:get|make this|fix|understand this|find)\b|\W*$|not\b)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"pass(?:word|phrase|code)|\bpin\b|api|token|secret|credit card|iban|ssn|social security", re.IGNORECASE
)


def of_mine(body: str) -> Statement | None:  # noqa: PLR0911 - a case each
    """What "my ..." and "our ..." say."""
    mine = _MINE.match(body)
    if not mine or re.match(r"[\w-]+(?: [A-Z]\w+)? and (?:i|me)\b", mine["rest"], re.IGNORECASE):
        return None
    rest = mine["rest"]
    if _SECRET.match(rest):
        return None
    plan = mine["whose"].lower() == "our"
    named = re.match(r"(?P<kin>[\w ]{2,24})'s? name(?:s)? (?:is|are) (?P<name>[A-Za-z].*)", rest, re.IGNORECASE)
    if named:
        slot = "partner" if PARTNER.fullmatch(named["kin"]) else ""
        return Statement(text=f"{named['kin']}'s name is {named['name']}", category="identity", slot=slot)
    if relative := nouns.RELATIVE.match(rest):
        found = _of_relative(rest, relative)
        if found:
            return found
    copula = _COPULA.search(f" {rest}")
    if not copula:
        return None
    thing, said = rest[: max(copula.start() - 1, 0)].strip(), f" {rest}"[copula.end() :].strip()
    matched = nouns.THINGS.fullmatch(re.sub(r" (?:to|with|for|at|in|of|on|from) [\w' -]{2,40}$", "", thing))
    if not matched or _EMPTY.match(said):
        return None
    return _of_thing(matched, thing, copula["verb"], said, plan=plan)


def _of_thing(matched: re.Match[str], thing: str, verb: str, said: str, *, plan: bool) -> Statement | None:
    verb = verb.lower()
    if verb in {"uses", "makes", "sells", "builds", "ships"} and thing.lower() not in _ACTORS:
        return None
    if verb in {"was", "were", "took"} and not matched["favourite"]:
        return None
    if verb.lower() in {"has", "have"} and not re.match(
        r"(?:\d+|an?|two|three|four|five|six|seven|eight|nine|ten|about|around|over) ", said
    ):
        return None
    low = thing.lower()
    if (
        matched["slot"]
        and low in _VAGUE
        and not re.search(
            rf"\d|{DATE}|\b(?:called|named)\b|(?-i:[A-Z])\w+|^(?:an?|to|about|on|in) ", said, re.IGNORECASE
        )
    ):
        return None
    if matched["goto"] and not re.search(
        r"(?:lang|editor|browser|os|drink|food|tool|stack|shell|database|laptop|sport|hobby|goal|job|project|framework|coffee|order|unit|style|pronoun|name|breakfast|instrument|concern|subject|home|team|car|bike|phone|computer|client|income|doctor|airline|format|restaurant|recipe|cloud|role|employer)",
        low,
    ):
        return None
    preference = low in _TOOLS or bool(
        matched["favourite"] or (matched["goto"] and re.match(r"go-to|preferred|favou?rite|usual", low))
    )
    planned = low in _PLANNED or plan
    text = f"{thing} {'is' if verb in {':', '=', chr(39) + 's'} else verb} {said}"
    slot = (
        low
        if verb.lower() not in {"has", "have"}
        and not (planned and low in _VAGUE and not re.search(DATE, said, re.IGNORECASE))
        else ""
    )
    if low in {"hobby", "hobbies", "interests", "project", "goal", "dream", "plan", "app", "book"}:
        slot = "" if low not in {"goal", "dream"} else low
    return Statement(
        text=text, category="preference" if preference else "project" if planned else "identity", slot=slot
    )


_PLANNED = words(
    "budget deadline,due date,start date,wedding,exam,flight,trip,surgery,goal,plan,stack,tech stack,project,"
    "side project,app,book,novel,launch,release,go-live,release date,launch date,database,backend,frontend,"
    "infrastructure,api,hosting,ci,interview,presentation,demo,conference,defense,viva,marathon,race,move,"
    "target date,thesis,dissertation,thesis topic,website,product,game,startup,start-up,pet project,"
    "ultimate goal,long-term goal,next goal,main goal,budget,dream",
    ",",
)
_ACTORS = words("company startup start-up team business app website product project family band")
_TOOLS = words("editor ide browser shell terminal keyboard")
_VAGUE = words(
    "company team app book novel blog podcast website product game api database backend frontend house flat "
    "garden office computer laptop phone car bike project startup business plan title thesis hosting ci "
    "infrastructure stack course interview presentation exam trip flight move release launch demo baby home "
    "hair eyes hands skin vision background browser shell terminal keyboard editor diet shift contract lease "
    "visa job role email channel band"
)


def _of_relative(rest: str, relative: re.Match[str]) -> Statement | None:
    said = rest[relative.end() :].strip()
    if not said.strip(",. "):
        return None
    what = nouns.OF_RELATIVE.match(said)
    if not what or re.search(
        r"\b(?:right now|at the moment|today|angry|annoying|driving me|asking|barking|crying)\b", said, re.IGNORECASE
    ):
        return None
    is_name = re.match(r"(?:is|are)(?: called| named)? [A-Z][\w'-]*(?:,? and [A-Z]\w+)?$", said)
    nation = re.match(rf"(?:is|are) {nouns.NATION}\b", said, re.IGNORECASE)
    is_named = is_name and not nation and not relative["name"]
    slot = "partner" if is_named and PARTNER.fullmatch(relative["kin"]) else ""
    who = one_line(rest[: relative.end()].replace(",", ""))
    if LEANS.search(said):
        return None
    return Statement(text=f"{who} {said}", category="identity", slot=slot)


# What names things in another order.

_CALLS = re.compile(
    r"(?:people|everyone|everybody|friends|my friends|most people|they all) (?:just )?calls? me (?P<name>[A-Z]\w+)",
    re.IGNORECASE,
)
_MINE_LAST = re.compile(
    rf"(?P<what>[\w' +#.-]{{2,40}}?) (?:is|are) (?:definitely |still |now |easily )?my (?P<thing>(?:all-time |absolute |least )?(?:favou?rite|fave?) [\w ]{{2,30}}|(?:first|native|main|second|mother) (?:language|tongue)|{nouns.KIN}|(?:boss|manager|co-?founder|(?:best )?friend|roommate|flatmate|mentor|go-to [\w ]+))$",
    re.IGNORECASE,
)
_THE = re.compile(
    rf"(?:the|this) (?P<thing>(?:project|app|book|startup|company|product|game|novel|(?:\w+ )?(?:deadline|launch|release|wedding|due date|kickoff|kick-off|exam|conference|move|go-live|demo|renovation|surgery))) (?P<said>(?:is|'s|was|got|will be)(?: now| due| scheduled| set| planned| moved| postponed| pushed)* (?:called |named |(?:on |in |for |by |at |to )?(?:the )?(?=.*{DATE})).+)",
    re.IGNORECASE,
)
_LETS = re.compile(
    r"(?i:let'?s|let us) (?:go with|use|stick with|settle on|choose) (?P<what>(?!(?:option|plan|version|the|that|this|it|your|an?)\b)[A-Z].*)"
)
_DATED = re.compile(
    rf"(?P<thing>deadline|launch|release|wedding|birthday|exam|due date)(?: is)?:? (?P<said>(?:on |in |by )?(?:the )?(?={DATE}|\d).+)",
    re.IGNORECASE,
)
_BIRTHDAY = re.compile(
    rf"(?:it is|it's) my (?P<thing>(?:\d+(?:st|nd|rd|th) )?birthday|wedding anniversary|anniversary) (?P<when>.*{DATE}.*)",
    re.IGNORECASE,
)


def named_otherwise(body: str) -> Statement | None:  # noqa: PLR0911 - a case each
    """What is said in another order: "Green is my favourite colour", "The deadline is Friday"."""
    if called := _CALLS.match(body):
        return Statement(text=f"Is called {called['name']}", category="identity", slot="called")
    if mine := _MINE_LAST.match(body):
        thing = mine["thing"].lower()
        if re.match(POINTS, mine["what"], re.IGNORECASE) or re.match(
            r"(?:i|we|he|she|they|which|here|his|her)\b", mine["what"], re.IGNORECASE
        ):
            return None
        favourite = re.search(r"fav|go-to", thing)
        slot = (
            thing
            if favourite or "language" in thing or "tongue" in thing
            else "partner"
            if PARTNER.fullmatch(thing)
            else ""
        )
        verb = "are" if re.search(r"[^s]s$", thing) and " are " in body else "is"
        return Statement(
            text=f"{mine['thing']} {verb} {mine['what']}", category="preference" if favourite else "identity", slot=slot
        )
    if the := _THE.match(body):
        return Statement(
            text=f"The {the['thing']} {the['said']}",
            category="project",
            slot=the["thing"].lower() if re.search(DATE, the["said"], re.IGNORECASE) else "",
        )
    if lets := _LETS.match(body):
        return Statement(text=f"Decided to go with {lets['what']}", category="project")
    if dated := _DATED.match(body):
        return Statement(text=f"{dated['thing']} is {dated['said']}", category="project", slot=dated["thing"].lower())
    if birthday := _BIRTHDAY.match(body):
        return Statement(text=f"{birthday['thing']} is {birthday['when']}", category="identity", slot="")
    return None


# How the user wants to be answered.

_CALL_ME = re.compile(
    r"(?i:please |just |you can |you may |feel free to )*(?i:call me) (?P<name>[A-Z][\w'-]*(?: [A-Z]\w+)?|[a-z]{2,12}$)"
)
_STANDING = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|going forward|every time|whenever|by default|in all (?:your )?(?:answers|replies|responses))\b",
    re.IGNORECASE,
)
_ANSWERS = re.compile(
    r"\b(?:your |the |all |my |future )?(?:answers|replies|responses|explanations|code examples|code samples|summaries|emoji|emojis|jargon|apologi[sz]\w*|preamble|disclaimers?|small talk|bullet points|exclamation marks)\b",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"(?:(?:please|kindly|pls|plz|from now on|in (?:the )?future|going forward|when(?:ever)? (?:you|i) [\w' ]{2,40}?|for (?:code|coding|recipes|dates)[\w ]{0,20}),? *)*(?P<do>(?:always |never |do not |don'?t |no (?=emoji|jargon|preamble|small|disclaim|bullet|exclam|apolog)|avoid |stop |only )?"
    r"(?:answer|reply|respond|use|using|write|give|keep|explain|include|add|format|show|speak|talk|address|refer|call|be|start|begin|end|ask|cite|assume|skip|avoid|prefer|make|put|sugar-?coat|repeat|apologi[sz]\w*|translate|provide|stick|sign|tell|suggest|recommend|remind|check|emoji\w*|jargon|preamble|small talk|disclaimers?|bullet points|exclamation marks)\b.*)",
    re.IGNORECASE,
)  # fmt: skip


_LOCAL = re.compile(
    r"\b(?:return value|before you use|when it|the (?:value|result|input|output|error)|on error)\b", re.IGNORECASE
)


def instruction(body: str) -> Iterator[Statement]:
    """How the user wants to be addressed and answered, where it is meant to last."""
    if called := _CALL_ME.match(body):
        if called["name"].lower() not in {
            "crazy",
            "back",
            "later",
            "stupid",
            "old",
            "when",
            "if",
            "lazy",
            "tomorrow",
            "maybe",
            "now",
            "today",
            "soon",
            "anything",
            "whatever",
            "anytime",
            "paranoid",
        }:
            yield Statement(text=f"Wants to be called {called['name']}", category="preference", slot="called")
        return
    found = _IMPERATIVE.match(body)
    if not found:
        return
    do = found["do"]
    lasting = _STANDING.search(body) and not _LOCAL.search(do)
    negative = re.match(r"(?:do not|don'?t|no|avoid|stop|skip) ", do, re.IGNORECASE)
    about_answers = (
        _ANSWERS.search(do)
        and (
            negative
            or (
                re.search(r"\byour\b", do)
                and re.match(r"(?:keep|make|give|use|write|include|format) ", do, re.IGNORECASE)
            )
        )
        and not re.search(r"\b(?:this|that|it|these|following|below|above)\b", do)
    )
    if not (lasting or about_answers) or re.search(
        r"\b(?:function|loop|method|class|returns|this (?:file|text|code)|the (?:file|text|email|essay|letter|poem|story|script|button|user))\b",
        do,
    ):
        return
    do = re.sub(r",? (?:from now on|in (?:the )?future|going forward)$", "", do, flags=re.IGNORECASE).strip(" ,")
    do = re.sub(r"\byour\b", "its", re.sub(r"\byou\b", "it", do))
    verbless = re.match(r"no (\w.*)", do, re.IGNORECASE)
    if verbless:
        text = f"Wants no {verbless[1]}"
    elif re.match(r"(?:do not|don'?t) ", do, re.IGNORECASE):
        text = "Wants the assistant not to " + re.sub(r"^(?:do not|don'?t) ", "", do, flags=re.IGNORECASE)
    elif re.match(r"only ", do, re.IGNORECASE) or not re.match(r"(?:using|bullet|emoji|exclam)", do, re.IGNORECASE):
        text = f"Wants the assistant to {do[0].lower()}{do[1:]}"
    else:
        text = f"Wants {do}"
    yield Statement(text=text, category="preference", slot=dimension(do))
