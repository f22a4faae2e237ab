"""What is said of the user in other words than "I ...": "My ... is ...", "call me ...", "always answer ..."."""

from __future__ import annotations

import re

from langchain_ctxbudget.core.rules import statement_nouns as nouns
from langchain_ctxbudget.core.rules.statement_patterns import DATE, POINTS
from langchain_ctxbudget.core.rules.statement_slots import PARTNER, Statement
from langchain_ctxbudget.core.rules.statement_vocabulary import words
from langchain_ctxbudget.core.rules.statement_wording import leans
from langchain_ctxbudget.core.text import one_line

# "My ...", "our ...".

_MINE = re.compile(r"(?:(?:half|most|some|all|many|both|one|two) of )?(?P<whose>my|our)\s+(?P<rest>.+)", re.IGNORECASE)
_COPULA = re.compile(
    r"\s(?P<verb>is|are|will be|was|were|has|have|'s|:|=|starts|begins|ends|closes|opens|launches|runs on|falls on"
    r"|took|means|got (?:moved|pushed|postponed)|(?:has been|was|got) (?:moved|postponed|pushed)|uses|makes|sells"
    r"|builds|ships)(?=\s)",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    rf"(?:{POINTS}|not (?:working|sure|showing|loading|responding)|(?:working|failing|broken|slow|down|crashing|stuck"
    rf"|fine|good|great|ok(?:ay)?|ready|done|wrong|right|correct|below|above|attached|as follows|too|very|really|so"
    rf"|still)\b"
    r"|an? (?:mess|disaster|joke|nightmare|problem|pain|secret)\b|tight\b|(?:due|in) (?:soon|progress)\b|none of"
    r"|returning|throwing|giving|getting|showing|to (?:get|make this|fix|understand this|find)\b|\W*$|not\b)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"pass(?:word|phrase|code)|\bpin\b|api|token|secret|credit card|iban|ssn|social security", re.IGNORECASE
)


def of_mine(body: str) -> Statement | None:
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
    if _DEMANDED.fullmatch(body):
        return named_otherwise(body)
    if relative := nouns.RELATIVE.match(rest):
        found = _of_relative(rest, relative)
        if found:
            return found
    return _listed(rest, plan=plan) or _owned(rest, plan=plan)


def _listed(rest: str, *, plan: bool) -> Statement | None:
    """What is said of one of the things that are listed, whose values have slots."""
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
            rf"\d|{DATE}|\b(?:called|named)\b|(?-i:[A-Z])\w+|^(?:an?|to|about|on|in|at) ", said, re.IGNORECASE
        )
    ):
        return None
    if matched["goto"] and not re.search(
        r"(?:lang|editor|browser|os|drink|food|tool|stack|shell|database|laptop|sport|hobby|goal|job|project"
        r"|framework|coffee|order|unit|style|pronoun|name|breakfast|instrument|concern|subject|home|team|car|bike"
        r"|phone|computer|client|income|doctor|airline|format|restaurant|recipe|cloud|role|employer)",
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


_UNLIKELY = re.compile(
    r"class|(?:\w+ )*(?:code|function|scripts?|quer(?:y|ies)|questions?|guess|problems?|issues?|points?|ideas?"
    r"|answers?|internet"
    r"|wifi|errors?|tests?|files?|page|screen|loop|tables?|strings?|messages?|request|understanding|mind|head|bad"
    r"|fault|turn|apologies|mistakes?|opinion|impression|feeling|gut|heart|thoughts?|branch|outputs?|inputs?|results?"
    r"|prompt|session|goodness|god|assumption|reasoning|logic|suggestion|concern|meeting|analysis|approach|life|day)",
    re.IGNORECASE,
)
_SOME = (
    r"(?:\d|an? (?!(?:bit|little|lot|mess|joke|problem|pain|nightmare|good|great|bad|idiot|jerk|genius|angel|hero"
    r"|handful|question|point)\b)|one|two|three|four|five|six|no )"
)
_LASTING = (
    rf"(?:is|are) (?:(?:mainly|mostly|usually|always|primarily) \w|(?:(?:about|around|over|nearly|only|still) )*{_SOME}"
    r"|(?-i:[A-Z])\w|called|made of|based|located|near|behind|next to|outside|above|opposite|on the \w+ floor|from "
    r"|set in|(?:in|at) (?:the |an? )?(?:(?-i:[A-Z])\w|\w+ (?:fund|bank)\b)|closed|open (?:on|every|from|until)"
    r"|(?:under|over)active|high\b|low\b"
    r"|(?:on|every|at) .*day|due|usually|bad\b|shot|weak|ruined|damaged|worn|fused|artificial)"
    rf"|(?:has|have) (?:(?:about|around|over|nearly|only|always) )*{_SOME}"
    r"|(?:has|have) (?:been|had) .*\b(?:since|for (?:\w+ )?[\w-]+ (?:years|months)|all my life)\b"
    r"|comes? from|runs? (?:on|in|under|every|out|until)|expires?|takes? place|rotates?|sits? |lies? |stands? (?:in"
    r"|on|behind|near|next|by)"
    r"|consists? of|belongs? to|covers? |costs? |takes? (?:an?|about|\d|two|three) |goes (?:to|up to)|comes? out"
    r"|plays? |faces |meets? (?:on|every|in|at|once|twice)"
    r"|(?:sells?|makes?|serves?|publish(?:es)?|offers?|employs?|ships?|uses?|requires?|bans?|speaks?|owns?|lives?"
    r"|works?|pays? for|pays?"
    r"|stud(?:y|ies)|teach(?:es)?|grows?|produces?|supports?|does|handles?|manages?|keeps? (?!\w+ing)) (?:[\w'-]+)"
    r"|(?:closes?|opens?|starts?|begins?|ends?|goes|takes?) .*(?:\d|every|day)"
    r"|(?:wants?|plans?|hopes?|intends?) to (?!know|see|hear|talk|understand|ask|be\b)\w+|(?:does|do|can) not \w+ \w+"
)
# The thing is as short as it can be: "drawing tablet" before "is a".
_NOT_THERE = (
    r"(?!(?:and|or|that|which|who|i|we|you|he|she|it|they|to|is|are|was|were|can|could|will|would|should|has|have"
    r"|not)\b)"
)
_OWNED = re.compile(
    rf"(?P<thing>(?:{_NOT_THERE}[\w'&.-]+ ){{0,4}}?{_NOT_THERE}[\w'-]+) (?P<said>(?:{_LASTING}).*)", re.IGNORECASE
)
_LANGUAGE = re.compile(
    rf"(?P<thing>{nouns.NATION}) (?P<said>is (?:(?:still|only|pretty|quite|very|rather|not|a bit) )*"
    r"(?:basic|rusty|fluent|so-so|poor|good|bad|limited|terrible|decent|weak|ok(?:ay)?|intermediate|beginner)\b.*)",
    re.IGNORECASE,
)


def _owned(rest: str, *, plan: bool) -> Statement | None:
    """What is said of any other thing or person of the user's, in words that last."""
    found = _LANGUAGE.match(rest) or _OWNED.match(rest)
    if not found or _UNLIKELY.fullmatch(found["thing"]) or _PASSING.search(found["said"]) or leans(rest):
        return None
    said = re.sub(r"^(?:does|do|can) not |^\w+ ", "", found["said"])
    if _EMPTY.match(said) and found.re is not _LANGUAGE:
        return None
    return Statement(text=rest, category="project" if plan else "identity")


_PASSING = re.compile(
    r"\b(?:right now|at the moment|today|tonight|yesterday|again|currently|this (?:morning|one|error|code)|errors?"
    r"|exceptions?"
    r"|null|undefined|a bug|bugs|crash\w*|angry|annoying|driving me|asking|barking|crying)\b",
    re.IGNORECASE,
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
    "company team app book novel blog podcast website product game api database backend frontend house flat garden "
    "office computer laptop phone car bike project startup business plan title thesis hosting ci infrastructure stack "
    "course interview presentation exam trip flight move release launch demo baby home hair eyes hands skin vision "
    "background browser shell terminal keyboard editor diet shift contract lease visa job role email channel band"
)


def _of_relative(rest: str, relative: re.Match[str]) -> Statement | None:
    said = rest[relative.end() :].strip()
    if not said.strip(",. "):
        return None
    what = nouns.OF_RELATIVE.match(said)
    if not what or _PASSING.search(said):
        return None
    is_name = re.match(r"(?:is|are)(?: called| named)? [A-Z][\w'-]*(?:,? and [A-Z]\w+)?$", said)
    nation = re.match(rf"(?:is|are) {nouns.NATION}\b", said, re.IGNORECASE)
    is_named = is_name and not nation and not relative["name"]
    slot = "partner" if is_named and PARTNER.fullmatch(relative["kin"]) else ""
    who = one_line(rest[: relative.end()].replace(",", ""))
    if leans(said):
        return None
    return Statement(text=f"{who} {said}", category="identity", slot=slot)


# What names things in another order.

_CALLS = re.compile(
    r"(?:people|everyone|everybody|friends|my friends|most people|they all) (?:just )?calls? me (?P<name>[A-Z]\w+)",
    re.IGNORECASE,
)
_MINE_LAST = re.compile(
    rf"(?P<what>[\w' +#.-]{{2,40}}?) (?:is|are) (?:definitely |still |now |easily )?my (?P<thing>(?:all-time "
    rf"|absolute |least )?(?:favou?rite|fave?) [\w ]{{2,30}}|(?:first|native|main|second|mother) (?:language|tongue)"
    rf"|{nouns.KIN}|(?:boss|manager|co-?founder|(?:best )?friend|roommate|flatmate|mentor|go-to [\w ]+))$",
    re.IGNORECASE,
)
_THE = re.compile(
    rf"(?:the|this) (?P<thing>(?:project|app|book|startup|company|product|game|novel|(?:\w+ )?(?:deadline|launch"
    rf"|release|wedding|due date|kickoff|kick-off|exam|conference|move|go-live|demo|renovation"
    rf"|surgery))) (?P<said>(?:is|'s|was|got|will be)(?: now| due| scheduled| set| planned| moved| postponed"
    rf"| pushed)* (?:called |named |(?:on |in |for |by |at |to )?(?:the )?(?=.*{DATE})).+)",
    re.IGNORECASE,
)
# "The council wants a new fire exit before Christmas"
_DEMANDED = re.compile(
    r"(?!(?:i|we|you|he|she|it|they|this|that|what|who|which|users?|please|just|and|so)\b)(?P<who>(?:(?:the|my|our"
    r"|a) )?(?:[\w.'&-]+ ){0,4}?[\w.'-]+) "
    r"(?P<said>(?:wants?|expects?|requires?|needs?|demands?|insists? on|asked for|g[ai]ves? (?:me|us)) (?!to (?:know"
    r"|see|ask)|(?:this|that|it)\b).*"
    rf"\b(?:by|before|until|till|in|on|for) (?:the )?(?:{DATE}|(?:end|start|middle) of|(?-i:[A-Z])\w+"
    rf"|(?:mid-?)?(?:spring|summer|autumn|winter)).*)",
    re.IGNORECASE,
)
_STARTS = re.compile(
    rf"the (?P<thing>(?:[\w-]+ ){{0,2}}[\w-]+) (?P<said>(?:starts?|begins?|ends?|opens?|closes?|takes place"
    rf"|is due) .*{DATE}.*)",
    re.IGNORECASE,
)
# "The build runs on a Raspberry Pi in my shed"
_STANDS = re.compile(
    r"the (?P<thing>(?:[\w-]+ ){0,2}[\w-]+) (?P<said>(?:runs|sits|lives|stands|is) (?:on|in) .*\b(?:my|our) .*)",
    re.IGNORECASE,
)
_LETS = re.compile(
    r"(?i:let'?s|let us) (?:go with|use|stick with|settle on|choose) (?P<what>(?!(?:option|plan|version|the|that|this"
    r"|it|your|an?)\b)[A-Z].*)"
)
_DATED = re.compile(
    rf"(?P<thing>deadline|launch|release|wedding|birthday|exam|due date)(?: is)?:? (?P<said>(?:on |in "
    rf"|by )?(?:the )?(?={DATE}|\d).+)",
    re.IGNORECASE,
)
_BIRTHDAY = re.compile(
    rf"(?:it is|it's) my (?P<thing>(?:\d+(?:st|nd|rd|th) )?birthday|wedding anniversary"
    rf"|anniversary) (?P<when>.*{DATE}.*)",
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
    if demanded := _DEMANDED.fullmatch(body):
        who = re.sub(r"^(?:my|our) ", "", demanded["who"], flags=re.IGNORECASE)
        return Statement(text=f"{who} {demanded['said']}", category="project")
    if stated := _STARTS.fullmatch(body) or _STANDS.fullmatch(body):
        return None if _UNLIKELY.fullmatch(stated["thing"]) else Statement(text=body, category="project")
    if lets := _LETS.match(body):
        return Statement(text=f"Decided to go with {lets['what']}", category="project")
    if dated := _DATED.match(body):
        return Statement(text=f"{dated['thing']} is {dated['said']}", category="project", slot=dated["thing"].lower())
    if birthday := _BIRTHDAY.match(body):
        return Statement(text=f"{birthday['thing']} is {birthday['when']}", category="identity", slot="")
    return None
