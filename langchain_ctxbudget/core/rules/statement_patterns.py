"""Which clauses say something lasting about a person: verbs, what must follow them, and what it is a value of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from langchain_ctxbudget.core.rules.statement_clauses import Tense

Category = Literal["project", "preference", "identity"]
_ID: Category = "identity"
_LIKES: Category = "preference"
_PLAN: Category = "project"

MONTHS = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|march|april|june|july|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?"
    r"|dec(?:ember)?)"
)
DATE = (
    rf"\b(?:{MONTHS}\b|may\b(?! be)|(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|tomorrow|(?:19|20)\d\d\b|q[1-4]\b"
    r"|next (?:week|month|year|spring|summer|autumn|fall|winter|quarter|semester)|this (?:month|year|spring|summer"
    r"|autumn"
    r"|fall|winter|weekend|quarter|semester)|(?:in|within) (?:\w+ )?\w+ (?:days|weeks?|months?|years?)\b"
    r"|(?:in (?:the )?|over the )(?:spring|summer|autumn|fall|winter)|(?:end|start|beginning|middle) of|christmas"
    r"|easter"
    r"|thanksgiving|\d{1,2}(?:st|nd|rd|th)\b|\d{1,2}[./]\d{1,2}\b|\d+ (?:days|weeks|months) from now)"
)
# What stands for something said before, or is only about the conversation.
POINTS = (
    r"(?:it|this|that|these|those|them|him|her|you|your|yours|one|ones|both|either|neither|none|something|anything"
    r"|everything|nothing|some|all|any|such|here|there|each|the (?:\w+ )?(?:one|ones|first|second|third|last|latter"
    r"|former"
    r"|other|others|next|previous|above|following|below|same|new|idea|way|answer|answers|approach|solution|version"
    r"|option"
    r"|suggestions?|look|sound|result|results|code|example|examples|format|structure|design|direction|plan|explanation"
    r"|summary|tone|title|draft|text|wording|name|part|fact|fix|list|table|output|response|line|change|changes|concept"
    r"|function|script|command|file|error|question|problem|issue|thing)|options? \w+|number \w+|how|what|where|why"
    r"|whether"
    r"|who|when|if|which|my (?:answer|question)|our (?:chat|conversation))\b"
)
_REAL = rf"(?!{POINTS})(?!\W*$)"
_ARTICLE = r"(?:an?|the|my|our|their|his|her|two|three|four|five|six|several|some|many|new)"
_SMALL = (
    r"(?!(?:the|a|an|this|that|it|there|here|now|my|your|our|his|her|their|what|where|using|next|step|version|another"
    r"|one|some"
    r"|all|home|work|bed|each|every|scratch|then|beginning|time|experience|fear|hope|peace|denial|sales|top|front|case"
    r"|order|general|fact|mind|charge|love|doubt|trouble|touch|control|shape|need|between|back|left|right)\b)[a-z]{3,}"
)
PLACE = (
    rf"(?:the (?:uk|us|usa|u\.s\.?|states|netherlands|philippines|bay area|countryside|suburbs|city|coast|mountains"
    rf"|south"
    rf"|north|east|west|middle east|midwest|emirates|bahamas|caribbean|alps|highlands|outskirts|centre|center|middle)\b"
    rf"|an? (?:\w+ ){{0,3}}(?:town|village|city|flat|house|apartment|farm|island|studio|suburb|place|country|dorm|van"
    rf"|houseboat|boat|ranch|cabin|cottage|commune|trailer|region|county|island|bungalow|loft)\b"
    rf"|(?-i:[A-Z])[\w'.-]+|(?:central|northern|southern|eastern|western|north|south|east|west|rural|downtown)\b"
    rf"|my (?:\w+ )?hometown|{_SMALL}(?=$|,| (?:now|with|since|for|in|and|because|near|but|last|next|this|on|at"
    rf"|germany|city)\b))"
)
LONG_TERM = (
    r"(?:learn|lose|quit|save|stop|get (?:better|into|fit|pregnant|married|healthier|in shape|a (?:job|dog|cat|visa"
    r"|promotion"
    r"|degree))|eat (?:less|more|health)|improve my|cut (?:down|back|out)|run (?:a|my|the|an) (?:\w+ )?(?:marathon|half"
    r"|ultra|race|10k|5k)|finish my|grow|launch|reduce my|become|move|retire|publish|open an?|found|start (?:an?|my)"
    r"|buy an?"
    r"|visit (?!the (?:page|site|url|link)|a (?:page|site))|travel|study|apply|adopt|climb|build an?|sell my|migrate"
    r"|switch|go (?:vegan|back to|freelance|part-time)"
    r"|write an? (?:book|novel|memoir|thesis|blog|cookbook)|read (?:\d+|more)|release|ship|expand|raise|hire|hit|reach"
    r"|work (?:abroad|as|in|for|from)|renovate|have (?:kids|children|an?other)|spend (?:more|less)|speak|master|marry"
    r"|pass|graduate|be able to|be(?:come)? an?|hike|drive|teach|stay (?:in|at|with|on|single|sober)|live|remain"
    r"|get rid|take over|rent out|perform|compete|keep (?:my|our|working|doing|playing)"
    r"|go (?:to|into) (?-i:[A-Z])\w+|sleep|wake|exercise|drink (?:less|more)|turn|rewrite|replace"
    r"|take (?:a year|a sabbatical|up|the|part))\b(?! (?:how|about|more|it|this|that|the following|why|what)\b)"
)
_MADE = (
    r"(?:(?:\w+[ -]){0,4}?(?:app|application|apps|game|website|site|tool|library|framework|platform|startup|company"
    r"|product|"
    r"novel|book|thesis|dissertation|paper|cli|bot|chatbot|plugin|extension|service|dashboard|package|compiler|engine|"
    r"house|shed|deck|robot|drone|album|film|documentary|podcast|blog|course|newsletter|prototype|mvp|model|system|api|"
    r"backend|frontend|pipeline|server|database|language|editor|memoir|musical|screenplay|report|proposal|synthesizer|"
    r"marketplace|portfolio|simulator|parser|crawler|scraper|project|treehouse|pc|keyboard|script|integration|"
    r"cookbook|garden|greenhouse|boat|guitar|bookshelf|shelf|curriculum|workshop|poem collection|series|"
    r"recommender|tracker|planner|assistant|agent|store|shop|agency|business|brand|network|site generator|wiki))\b"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What must follow a verb, and in which tenses, for a clause to be a statement."""

    tenses: frozenset[Tense]
    rest: re.Pattern[str]
    category: Category
    slot: str = ""
    """A name, or `{what}` for the object of the verb."""
    sure: bool = True


_LETTERS = {
    "p": Tense.PRESENT, "i": Tense.PROGRESSIVE, "d": Tense.PAST, "b": Tense.BE, "x": Tense.WAS, "w": Tense.WILL,
    "o": Tense.WOULD, "c": Tense.CAN, "m": Tense.MIGHT,
}  # fmt: skip
_WHEN = rf".*{DATE}"

# Verbs; tenses by their letters; what follows; category; slot.
_TABLE: tuple[tuple[str, str, str, Category, str], ...] = (
    # Where.
    ("live living lived reside residing", "p i", (rf"(?:(?:right |just )?(?:in|near|outside|close to|around|between"
        rf"|on) {PLACE}|in (?!an? (?:world|bubble)|the (?:past|moment)|fear|hope|it|this|that)|abroad|off[- ]grid)"),
        _ID, "home"),
    ("live living", "p i", (r"(?:alone|(?:together )?with (?:my|our|three|two|four|an? |(?-i:[A-Z]))|at home|by myself"
        r"|apart)"), _ID, "household"),
    ("lived", "d", rf"(?:in|near|abroad|on|with) {_REAL}", _ID, ""),
    ("moved relocated", "d", rf"(?:back |here |over |up |down )*(?:to|into|from {PLACE} to) {PLACE}", _ID, "home"),
    ("moved", "d", r"(?:in with|house|here (?:from|in)|out)", _ID, ""),
    ("moving move relocating relocate emigrating", "i w m p", (rf"(?:back |over )*(?:(?:to|from {PLACE} to) {PLACE}"
        rf"|house\b|in with|out\b|abroad|into an? )"), _PLAN, "moving"),
    ("grew grow raised", "d", r"up (?:in|on|near|with|speaking|bilingual|as|poor|without)\b", _ID, "childhood home"),
    ("born raised", "x", r"(?:and raised )?(?:in|on|near|at|with|\d) ?", _ID, "birth"),
    ("commute commuting", "p i", r"(?:to|by|from|an?|about|two|\w+ (?:minutes|hours)) ", _ID, ""),
    # Work and study.
    ("work working worked", "p i", (r"(?:as (?:an?|the|head|lead|chief|director)|part-time as an?|full-time as an?"
        r"|freelance) ?"), _ID, "job"),
    ("work working", "p i", (r"(?:mostly |remotely |part-time |full-time |remote |from home )*(?:at"
        r"|for) (?!the (?:moment|same|best|next|first|last)|me|it|you|least|this|that|all|now)"), _ID, "employer"),
    ("work", "p", (r"(?:mostly |remotely |part-time |full-time )*(?:in|with) (?!this|that|it|the (?:same|file|folder"
        r"|code|above|background|following|terminal)|your|them|you|these|those|progress)"), _ID, ""),
    ("working", "i", (r"in (?:an? |the )?(?:\w+ )?(?:\w+ing\b|sales|finance|hr|tech|healthcare|education|academia"
        r"|design|law|media|hospital|school|bank|bakery|restaurant|lab|government|industry|logistics|retail|insurance"
        r"|research|hospitality|construction)"), _ID, ""),
    ("work working", "p i", (r"(?:from home|remotely|remote|part[- ]time|full[- ]time|night shifts|nights|weekends"
        r"|freelance|shifts|\w+ (?:hours|days) (?:a|per)|(?:mon|tues|wednes|thurs|fri)days|four days|on (?:week|mon"
        r"|satur|sun))\b"), _ID, ""),
    ("worked", "d", (r"(?:as an?|at|for|in) (?!it|this|that|me|you|all|first|the (?:past|end|same)|\w+ (?:before"
        r"|yesterday))"), _ID, ""),
    ("working", "i", (r"(?:on|towards?) (?!it\b|this\b|that\b|(?:the|an?) (?:problem|issue|bug|error|question"
        r"|following|same)\b|them|something\b|homework|these|an? (?:function|regex|query))"), _PLAN, ""),
    ("left", "d", (r"(?:my (?:\w+ )?job\b|(?-i:[A-Z])|the (?:army|navy|company|police)\b"
        r"|an? (?:\w+ ){0,2}(?:startup|company|firm|agency|job)\b)"), _ID, "@left"),
    ("joined founded co-founded cofounded", "d", (rf"(?:the (?:army|navy|company|police|board|air force|\w+ (?:team"
        rf"|department|committee|club|union))\b|an? (?:\w+ ){0,3}(?:startup|company|firm|band|choir|club|gym|agency"
        rf"|nonprofit|team|lab|book club|gym)\b|my (?:job|company)\b|(?-i:[A-Z]))"), _ID, "employer"),
    ("joining leaving", "i w",
        r"(?:(?-i:[A-Z])|my (?:job|company)|a (?:new|startup)|the (?:company|army|navy))", _PLAN, ""),
    ("study studying", "p i", rf"(?:for (?:my|the|an?) |at |in |to (?:be|become) )?{_REAL}(?!for$)", _ID, "studies"),
    ("studied majored graduated majoring minored", "d x i", rf"(?:at|in|from|with|as|last|\w+ at)? ?{_REAL}", _ID, ""),
    ("teach teaching taught", "p i d", rf"(?!you|me|it|this|that|us|them|her|him|myself how){_REAL}", _ID, ""),
    ("run running manage managing lead leading own head coach coaching", "p i", (rf"(?:{_ARTICLE} (?!\w+ (?:command"
        rf"|script|code|query|test|tests|file|function|program)\b)(?:[\w'-]+ ){{0,3}}(?:bakery|business|company|shop"
        rf"|store|team|agency|startup|restaurant|café|cafe|club|group|practice|blog|podcast|channel|farm|studio"
        rf"|department|school|gym|hotel|newsletter|server|homelab|nonprofit|charity|band|choir|meetup|project"
        rf"|engineers|developers|people|designers|community|book club|campaign|lab|firm|salon|bar|clinic|division"
        rf"|league|class|house|flat|apartment|condo|car|van|boat|bike|motorbike|motorcycle|piano|guitar|dog|cat|horse"
        rf"|tesla|truck|land|garden|telescope|camera|wheelchair|company|franchise|food truck)s?\b|(?:a"
        rf"|the) (?:\w+ )?team of)"), _ID, ""),
    ("own drive ride owned driving", "p", (rf"(?:{_ARTICLE} (?!(?:\w+ )?(?:code|data|server|file|repo|project"
        rf"|copyright|rights|domain)\b)|(?-i:[A-Z]))\w+"), _ID, ""),
    ("drink smoke gamble", "p", r"$", _ID, ""),
    ("swim drive cook dance sing whistle", "c", r"$", _ID, ""),
    ("need", "p", r"(?:glasses|hearing aids|a wheelchair|insulin|reading glasses|\w+ hours of sleep)\b", _ID, ""),
    ("code program", "p", r"(?:mostly |mainly |only )?in (?-i:[A-Z])", _LIKES, ""),
    ("reading", "i", r"(?!The |This |Section |Chapter )(?-i:[A-Z][a-z])\w+", _ID, ""),
    ("run", "p", (r"(?:marathons?|half[- ]marathons|ultras?|every|\d+ ?k|about \d|(?:\w+ ){0,3}(?:a|per|each"
        r"|every) (?:day|week|morning)|(?:\w+ )?(?:linux|windows|macos|ubuntu|arch|fedora|debian|nixos|postgres"
        r"|kubernetes))\b"), _ID, ""),
    ("running", "i", (r"(?:(?:a|the|my|an) (?:\w+ ){0,3}(?:marathon|half|10k|5k|race|ultra)\b|(?:marathons|linux"
        r"|windows|macos|ubuntu|arch|fedora|debian|nixos)\b|for (?:mayor|office|the board))"), _PLAN, ""),
    ("speak", "p c", (r"(?:\w+,? )?(?:fluent |native |some |a (?:bit|little) (?:of )?|decent |basic |good |only |no "
        r"|both |little )?(?:and )?(?-i:[A-Z])|(?:spanish|english|german|french|italian|portuguese|japanese|mandarin"
        r"|chinese|dutch|arabic|hindi|polish|swedish|two|three|four|five)\b"), _ID, ""),
    ("play played playing", "p i d c", (r"(?!ever\b|together|one\b|for (?:a |the past |\w+ )?(?:while|month|year|week"
        r"|some)|some time|mostly|sometimes)(?:the |in an? |for (?:the|an?) |some |a lot of )?(?!around|with (?:it"
        r"|the|this|that)|it|this|that|role|along|back|devil|dumb|safe|the (?:video|file|audio|role|game)|a (?:trick"
        r"|role|part))\w+"), _ID, ""),
    ("volunteer volunteering", "p i", r"(?:at|for|with|as|in|on|every|once|weekly) ", _ID, ""),
    ("earn make get", "p", (r"(?:about |around |roughly |only )?[$€£]?\d[\d.,]*k?(?: ?(?:euros|dollars|pounds|eur|usd"
        r"|gbp|[€$£]))?(?: \w+)? (?:a|per|an|each) (?:year|month|hour|week|annum)\b"), _ID, "income"),
    # Body, family, things.
    ("have own has got owning", "p d", r"", _ID, "@have"),
    ("eat drink smoke cook bake fast", "p",
        r"(?!$|it\b|this\b|that\b|something|nothing yet|the (?:rest|food))", _LIKES, "@eat"),
    ("eating drinking smoking", "i", (r"(?:vegan|vegetarian|keto|paleo|kosher|halal|gluten|low[- ]carb|less|more|no"
        r"|only|plant|healthier)\b"), _LIKES, "@eat"),
    (("bend kneel lift swallow chew walk climb squat carry taste eat have drink stand tolerate digest swim drive read "
        "cook speak sing dance hear see smell sleep"), "c", (r"(?!$|it\b|this\b|that\b|the (?:error|file|output|button"
            r"|problem|table|code|menu|option|difference|result|image|link|page|screen)\b|any|you|more than one|him"
            r"|them|to |why|how|what|where|now|more|one\b|today|anymore)"), _ID, "@can"),
    ("avoid avoiding", "p i", rf"{_REAL}(?!using|doing|writing|the |these|conflicts|errors|problems)", _LIKES,
        "{what}"),
    ("take", "p", (r"(?:my (?:coffee|tea|meds|medication|insulin)|(?:\w+ )?(?:medication|insulin|antidepressants"
        r"|metformin|ibuprofen|supplements|vitamins|lessons|classes|the (?:bus|train|tube|metro|subway|tram)"
        r"|piano lessons)|(?:\w+ ){0,2}(?:lessons|classes)|blood thinners|statins|beta blockers)\b"), _ID, ""),
    ("taking", "i", (r"(?:an? (?:\w+ ){0,3}(?:course|class|sabbatical|gap year|break from|year off)"
        r"|(?:\w+ ){0,2}(?:medication|insulin|antidepressants|metformin|lessons|classes|paternity leave"
        r"|maternity leave|parental leave|statins|blood thinners)|the (?:bar|gre|gmat|lsat|ielts|toefl)"
        r"|(?:\w+ ){0,4}off\b)"), _ID, ""),
    ("breastfeeding fasting dieting detoxing commuting freelancing", "i", r"", _ID, ""),
    ("get", "p", (r"(?:very |really )?(?:dizzy|(?:\w+)?sick|anxious|nervous|cold|cramps|hives|rashes|nosebleeds"
        r"|sunburn\w*|heartburn|panic attacks) (?:on|in|at|from|when|after|easily|every|before|during)\b"), _ID, ""),
    ("recovering dating", "i", r"(?:from (?!this|that)|an? |somebody |someone |(?-i:[A-Z]))\w", _ID, ""),
    ("seeing", "i",
        r"(?:an? (?:\w+ )?(?:therapist|psycholog\w+|physio\w*|counsell?or|specialist)|someone|somebody)\b", _ID, ""),
    ("suffer suffering suffered", "p i d", r"(?:from|with) ", _ID, ""),
    ("diagnosed", "x b", r"(?:as |with )", _ID, ""),
    ("weigh wear measure", "p", rf"(?!in\b|the (?:options|pros)|this|that|it){_REAL}", _ID, ""),
    (("walk swim jog cycle bike hike climb ski surf train meditate exercise knit sew paint draw garden bowl row dance "
        "sing paint sculpt fish hunt camp skate lift sail dive journal"), "p", (r"(?!(?:in|on)?to (?:the|a|my)\b"
            r"|towards?|over|up|out|down|in the|through|back|away|the (?:line|attention|conclusion|box)|a (?:blank"
            r"|line|conclusion)|it|this|that|a model|the model|models? on)(?:$|\w+)"), _ID, ""),
    ("wake get go", "p", (r"(?:up (?:at|around|before|early|late|every)|to the gym|to bed|to church|to mass"
        r"|to (?:\w+ )?(?:school|university|college|therapy|yoga)|(?:running|hiking|swimming|climbing|cycling|fishing"
        r"|camping|skiing|surfing|sailing|bouldering|jogging|dancing)\b|by (?:he|she|they|the name)|migraines?"
        r"|\w+sick\b|seasick|carsick|cold easily|hives|(?:bad |terrible )?(?:migraines|headaches) (?:from|when|after"
        r"|often))"), _ID, ""),
    ("go", "p", r"by (?-i:[A-Z])\w+", _LIKES, "called"),
    ("do practise practice", "p i", (r"(?!it|this|that|so|the same|something|not|these|things|my best|n't|everything"
        r"|all)(?:\w+ )?(?:yoga|pilates|karate|judo|crossfit|ballet|boxing|jiu|bjj|martial|taekwondo|meditation|law"
        r"|medicine|triathlons?|woodworking|pottery|ceramics|photography|calligraphy|origami|freelance|consulting"
        r"|stand-?up|improv|weightlifting|gymnastics|buddhism|islam|violin|piano|guitar|volunteer|climbing"
        r"|intermittent)\b"), _ID, ""),
    ("doing", "i", (r"(?:an?|my|our) (?:\w+ ){0,3}(?:phd|master'?s?|bachelor'?s?|degree|internship|apprenticeship"
        r"|residency|mba|bootcamp|thesis|postdoc|course|course in|msc|bsc|ma|ba)\b"), _ID, "studies"),
    ("collect collecting restore brew breed raise grow keep", "p i", (rf"(?!getting|seeing|having|running|trying"
        rf"|forgetting|asking|hearing|it|this|that|track|in mind|the (?:data|results?)|data|an? (?:eye|copy|list|log)"
        rf"|my (?:code|notes|files)){_REAL}(?=\w)"), _ID, ""),
    ("married divorced", "d", r"", _ID, "marital status"),
    ("got", "d", r"(?:married|engaged|divorced|remarried|separated)\b", _ID, "marital status"),
    ("broke split", "d", r"up\b", _ID, "partner"),
    ("adopted bought got", "d", (r"(?:an?|two|three|our|my|my first|some) (?:(?!\w+ (?:error|message|warning|result"
        r"|response|question|idea|feeling|email|reply|answer)s?\b)[\w'-]+ ){0,4}?(?:dog|puppy|cat|kitten|rabbit|bunny"
        r"|hamster|parrot|horse|bird|house|flat|apartment|condo|car|bike|bicycle|motorbike|van|boat|piano|guitar"
        r"|violin|laptop|macbook|ipad|iphone|phone|pixel|camera|tesla|telescope|printer|job|promotion|scholarship"
        r"|visa|green card|offer|degree|phd|daughter|son|baby|girl|boy|kittens|dogs|cats|chickens|cottage|cabin|synth"
        r"|drone|tent|monitor|keyboard|tablet|watch|kindle|drum kit|loom|kiln|greyhound|labrador|corgi|poodle|beagle"
        r"|retriever|terrier|husky|tattoo|diagnosis)s?\b"), _ID, ""),
    ("got", "d", (r"(?:promoted|laid off|fired|accepted|hired|into (?!the|an? |trouble|this|it)|my (?:degree|phd"
        r"|licen[cs]e|driver|visa|citizenship|promotion|black belt|diploma|first))"), _ID, ""),
    ("turned turning turn", "d i w p", r"(?:\d\d\b|twenty|thirty|forty|fifty|sixty|seventy|eighteen)", _ID, "age"),
    ("lost broke sprained tore had", "d", (r"(?:my (?:\w+ ){1,2}(?:out|removed|replaced|fused)\b|my (?:job|wife"
        r"|husband|father|mother|dad|mum|mom|leg|arm|ankle|wrist|knee|shoulder|acl|licen[cs]e|dog|cat|son|daughter"
        r"|brother|sister|hip)|\d+ ?(?:kg|kilos|pounds|lbs)|an? (?:baby|stroke|heart attack|miscarriage|knee|hip"
        r"|c-section|(?:\w+ )?surgery|(?:\w+ )?operation|concussion|transplant)|surgery|(?:breast |skin "
        r"|lung )?cancer|covid)"), _ID, ""),
    # Likes.
    (("like love hate enjoy loved hated liked enjoyed disliked adored dislike adore prefer loathe detest despise "
        "favour favor fancy appreciate value"), "p d", r"", _LIKES, "@like"),
    ("loving enjoying", "i", rf"{_REAL}(?:my|our|(?-i:[A-Z])\w+|\w+ing\b)", _LIKES, "{what}"),
    ("prefer rather like", "o", r"", _LIKES, "@would"),
    ("mind care", "p", rf"(?:(?:about|for) )?{_REAL}(?!if|about (?:it|that|this))(?!for it)\w+", _LIKES, ""),
    ("want", "p", r"", _PLAN, "@want"),
    ("want need", "p", (r"(?:you|your (?:answers|replies|responses|explanations)) (?:to |not to )?.*\b(?:always|never"
        r"|from now on|in (?:the )?future|every time|whenever)\b"), _LIKES, ""),
    ("use using", "p i", (r"(?!(?:the|this|that|these|those|it|an?|your|them|to|some|any|for|which|what|both|one|two"
        r"|following|similar|different)\b)\S+"), _LIKES, "@use"),
    ("use using", "p i", (r"an? (?:\w+ ){0,2}(?:mac|macbook|pc|thinkpad|chromebook|wheelchair|hearing aid|cane|walker"
        r"|standing desk|iphone|ipad|pixel|android|kindle|screen reader|cpap|pacemaker|fountain pen|monorepo|dvorak"
        r"|colemak|mechanical keyboard|vpn|insulin pump|bullet journal|stick shift|split keyboard|trackball|samsung"
        r"|fairphone|linux \w+|windows \w+)\b"), _ID, ""),
    ("switched migrated converted upgraded", "d", (r"(?:over |back |our \w+ |everything "
        r"|from [\w .+#-]{1,30} )*to (?!the|a\b|an|this|that|using|it|your|another|different)\S+"), _LIKES, "@use"),
    ("listen watch read follow support", "p", (rf"(?:to )?(?!the (?:e?mails?|letters?|book|news\b|docs?|documentation"
        rf"|article|manual|file|error|code|instructions|steps|tutorial|readme|message|output|post|above|guide|data"
        rf"|csv|log)|through|your|up on|along|about (?:it|this|that)|in the|on the|from (?:the|a|an)|that|a (?:file"
        rf"|tutorial)){_REAL}\w+"), _LIKES, ""),
    ("reading watching", "i", (r"(?-i:[A-Z]\w+ ?)(?:(?-i:[A-Z])|by |by$|again)|an? (?:\w+ )?(?:book|novel|biography"
        r"|series)"), _ID, ""),
    # Plans.
    ("building developing designing creating making coding programming prototyping", "i", (rf"(?!sure|sense"
        rf"|(?:\w+ )?progress|an? (?:mistake|error|decision|point|list|request|change)|it\b|this|that|them|something"
        rf"|dinner|lunch|breakfast|coffee|tea|up\b|on\b|the (?:following|same)){_REAL}(?:an?|my|our|the|new|some"
        rf"|two)? ?{_MADE}"), _PLAN, ""),
    ("building developing designing", "i", rf"{_REAL}(?:an?|my|our|new|(?-i:[A-Z])\w+)\b", _PLAN, ""),
    ("build develop make design write maintain", "p", (rf"(?:{_ARTICLE} )?(?!(?:a|the|this|my) (?:mistake|file|list"
        rf"|function|request|call|query)|sure|it|sense|use of|this|that){_MADE}"), _PLAN, ""),
    ("writing", "i", (rf"(?!to\b|it\b|this\b|that\b|about (?:it|this|that)|in\b|the (?:following|same)|(?:an? "
        rf"|the )?(?:function|query|regex|for loop|line|loop|test for|email|e-mail|letter|message|reply)\b){_REAL}\w+"),
        _PLAN, ""),
    ("write", "p", (r"(?:an? |my |mostly |mainly |our )?(?:\w+ )?(?:blog|newsletter|novels?|poetry|poems|fiction"
        r"|fantasy|sci-fi|thrillers|songs|music|short stories|books|romance|column|software|articles|typescript"
        r"|python|rust|go|java|kotlin|haskell|c\+\+|scala|elixir|ruby|swift|most of|everything in|all (?:my|our))\b"),
        _ID, ""),
    ("learning relearning", "i", (rf"(?!(?:a lot|so much|from|about (?:it|this|that)|much|more|things|the basics$|this"
        rf"|that|it|how it|as)\b){_REAL}?\w+"), _PLAN, ""),
    ("training practising practicing preparing studying saving", "i", (r"(?:up )?(?:for|to|towards?) (?!it\b|this\b"
        r"|that\b|you|me\b|the following|an? model)"), _PLAN, ""),
    ("preparing planning organising organizing", "i", (rf"(?!on it|it\b|this\b|that\b|to (?:ask|use|do (?:it|this"
        rf"|that)|add|fix|test)\b|ahead|them|on (?:using|doing)){_REAL}\w+"), _PLAN, ""),
    ("plan intend hope aim planning hoping aiming", "p i d", (rf"(?:on |to )(?!(?:it|use|do|hear|see|understand|ask"
        rf"|find|get (?:an|some)|this|that|fix|add|test|know|you|using|doing)\b)\w+(?:$| (?!{POINTS}|to see|that))"),
        _PLAN, ""),
    ("decided chosen chose opted settled agreed picked voted resolved", "d", (rf"(?:to (?!(?:ask|try|do|check|use|see"
        rf"|test|give|look)\b(?! .*\b(?-i:[A-Z]))|go with (?:it|that|this|option|the|your))|(?:to go with|to use|on"
        rf"|against|for|that|not to|we|i) |to ){_REAL}(?!(?:option|go with (?:it|that|option|the (?:first|second"
        rf"|third|last|latter|former|other))|do (?:it|that|this)|try (?:it|that|this)|use (?:it|that|this|your)"
        rf"|ask)\b)\w+"), _PLAN, ""),
    ("chose picked chosen selected", "d",
        rf"{_REAL}(?!the wrong)(?:(?-i:[A-Z])|.* (?:for|over|as|because|instead)\b)", _PLAN, ""),
    ("go going stick sticking", "i w", (rf"with (?!{POINTS}|you|the (?:first|second|third|flow)|(?:my|your) (?:gut|mom"
        rf"|dad|friends?)\b)\w.*"), _PLAN, ""),
    ("go use take pick choose stick", "w", (r"(?:with )?(?!.*\b(?:that|this|it)$)(?!(?:it|that|this|option|your|the"
        r"|a\b|an\b|try|check|ahead|look|for|and|to|back|through|over|them|those|both|one|some|care"
        r"|from)\b)(?-i:[A-Z])"), _PLAN, ""),
    ("starting beginning finishing quitting", "i w", (rf"(?:an?|my|our|at|school|university|college|kindergarten|a new"
        rf"|med(?:ical)? school|law school|therapy|work at|grad school) .*(?:job|degree|business|company|course|blog"
        rf"|podcast|internship|family|phd|master|thesis|channel|project|position|role|startup|band|program|school"
        rf"|university|college|diet|studies|residency|{DATE})|(?:university|college|medical school|law school"
        rf"|grad school|therapy)\b"), _PLAN, ""),
    ("started began founded launched opened finished completed published released shipped", "d", (rf"(?:{_ARTICLE} "
        rf"|(?-i:[A-Z])|at |learning |going to |taking |running |lifting |training |playing |doing |eating "
        rf"|med(?:ical)? school|therapy|university|college|smoking|drinking|teaching|writing)(?!(?:new )?(?:server"
        rf"|terminal|session|chat|script|file|app|program|process|conversation|tab|container|command|thread|docker"
        rf"|over|with the)\b)(?!.*\b(?:error|crash))\w*"), _ID, "@start"),
    ("quit quitting", "p d i", (r"(?:my job|smoking|drinking|(?-i:[A-Z])|school|university|college|social media|sugar"
        r"|coffee|alcohol|the (?:band|team)|teaching|playing)"), _ID, "@stop"),
    (("launching releasing shipping opening closing presenting graduating retiring submitting defending publishing "
        "hiring hosting"), "i w", (rf"(?!it\b|this|that|the file|a file|the (?:editor|door)|tabs?).*(?:{DATE}|\b(?:an?"
            rf"|our|my|two|three|new) )"), _PLAN, ""),
    (("launch release ship open graduate retire present submit defend publish start leave fly arrive return deploy "
        "move finish close marry travel deliver meet demo renew sign head visit go host celebrate"), "p w", _WHEN,
        _PLAN,
            ""),
    ("flying travelling traveling visiting heading going driving leaving", "i", (rf"(?:back |on (?:holiday|vacation"
        rf"|a \w+) )?(?:(?:to|in|for|from|around|through) )?(?:(?!I\b)(?-i:[A-Z])[\w'-]+|on (?:holiday|vacation"
        rf"|maternity|paternity|parental|a (?:trip|cruise|honeymoon|hike|road))|to (?:the (?:wedding|us|uk|dentist"
        rf"|conference)|visit|a (?:wedding|conference|concert|festival))|my (?:parents|sister|brother|grand\w+|mother"
        rf"|mom|mum|in-laws|family)).*|{_WHEN}"), _PLAN, "@going"),
    ("going", "i", (rf"to (?:{LONG_TERM}|(?!(?:try|need|ask|be (?:honest|using)|do|use|check|test|say|want|look"
        rf"|make sure|give|go|take a look|bed|sleep|assume|fix|paste|send|share|show|have to|see)\b)\w+ .*{DATE})"),
        _PLAN, ""),
    ("getting", "i", (r"(?:married|divorced|engaged|remarried|an? (?:\w+ )?(?:puppy|dog|cat|kitten|degree|phd|master"
        r"|mba|tattoo|promotion|divorce|new (?:car|job|bike|laptop)|certification)|back into|into (?!an? |the |it"
        r"|this|trouble)|my (?:degree|phd|licen[cs]e|master|visa|pilot|braces|black belt)|ready for (?:my|our|the|a)"
        r"|surgery|laser)\b"), _PLAN, ""),
    ("expecting having", "i", (r"(?:an?|our|twins|my)(?! (?:list|look|\w+ (?:list|error))) (?=\w)(?:\w+ )?(?:baby"
        r"|child|boy|girl|son|daughter|twins?|kid|surgery|operation|wedding|party .*|c-section|(?:knee|hip|eye"
        r"|heart) \w+)?\b(?<!an)(?<!a)(?<!our)(?<!my)"), _PLAN, ""),
    (("renovating remodeling remodelling restoring redecorating migrating redesigning recruiting transitioning "
        "investing teaching"), "i", (rf"(?!this|that|it|the (?:function|code|file|class|method)|them|these|those"
            rf"|a (?:function|string)){_REAL}?\w+"), _PLAN, ""),
    ("switching", "i", r"(?:jobs|careers|to (?-i:[A-Z])|(?:over )?from |majors|schools)", _PLAN, ""),
    ("rewriting refactoring researching selling training applying interviewing", "i", (r"(?:our|my (?!self)|for (?:an?"
        r"|jobs|the|(?-i:[A-Z]))|to (?:be|become|(?-i:[A-Z]))|with (?-i:[A-Z])|at (?-i:[A-Z])|(?-i:[A-Z])\w+)(?!self)"),
        _PLAN, ""),
    ("looking searching hunting", "i", (r"(?:for|to (?:buy|rent|hire|move|adopt|change|switch)) (?:an?|my|our|new"
        r"|another|to|two)? ?(?:[\w-]+ ){0,3}(?:job|jobs|apartment|flat|house|place|home|internship|work|cofounder"
        r"|co-founder|position|role|school|nanny|car|puppy|dog|career|careers|developer|designer|investors|funding"
        r"|roommate|flatmate|condo|studio|phd|kindergarten|daycare)\b"), _PLAN, ""),
    ("looking", "i", (rf"forward to (?:(?!(?:my|our|the) (?:answer|result|reply|next (?:reply|message)))(?:my|our|the"
        rf"|an?|(?-i:[A-Z])\w+) ?\w+|\w+ing .*(?:{DATE}|(?-i:[A-Z])))"), _LIKES, ""),
    ("trying", "i", (rf"(?:to )(?:{LONG_TERM}(?! (?:the|this|that|it|from|between|an? (?:function|regex|query|table"
        rf"|string|script|list))\b)|conceive|for an?)"), _PLAN, ""),
    ("thinking considering contemplating", "i", (rf"(?:of|about)? ?(?:{_REAL}(?:moving|buying|quitting|switching"
        rf"|getting an?|starting|changing (?:jobs|careers)|going (?:back|vegan|to)|adopting|becoming|learning|leaving"
        rf"|applying|studying|selling|retiring|taking (?:a|up)|having (?:a|kids)|opening|doing an? (?:phd|master|mba)"
        rf"|renting|relocating|migrating)|an? (?:career|phd|master|move|divorce))\b"), _PLAN, "?"),
    ("move buy switch quit adopt start leave retire change", "m", (rf"(?!it|this|that|from the|the |a (?:new )?(?:file"
        rf"|line|function|server|session)){_REAL}\w+"), _PLAN, "?"),
    ("need have", "p", (rf"(?!to (?:know|ask|understand|see)\b)\w+ .*\b(?:by|before|until|on) (?:the )?(?:{DATE}|\d"
        rf"|(?:mid-?)?(?:spring|summer|autumn|fall|winter)|.* in {MONTHS})"), _PLAN, ""),
    ("booked signed enrolled registered applied accepted submitted", "d", (r"(?:up (?:for|to)|in|for|an?|our|my|two"
        r"|the|tickets?|flights?|to) (?!it|this|that|the form|form)\w+"), _PLAN, ""),
    ("been", "d b", r"", _ID, "@been"),
    ("visited travelled traveled toured", "d", r"(?:to |around |through )?(?:(?-i:[A-Z])|\d+ countries|over)", _ID, ""),
    ("served fought competed performed coached retired emigrated immigrated", "d", r"", _ID, ""),
    ("met", "d", r"my (?:wife|husband|partner|girlfriend|boyfriend|fiancée?)\b", _ID, ""),
    ("stopped gave", "d", (rf"(?:up )?(?!on\b|it\b|this|that|the (?:server|script|process|container)|working"
        rf"|trying){_REAL}(?:smoking|drinking|eating|using|playing|taking|going|being|buying|driving|watching|running"
        rf"|my|our|coffee|alcohol|sugar|meat|gluten|dairy|cigarettes|facebook|caffeine|social|twitter|instagram"
        rf"|the (?:band|team|gym|piano)|\w+ing)\b"), _ID, "@stop"),
    ("used", "d x", r"to (?!(?:it|this|that|the|use (?:this|that|it)|get (?:this|that|it|an error))\b)\w+", _ID, ""),
)  # fmt: skip


def _by_verb() -> dict[str, tuple[Rule, ...]]:
    found: dict[str, list[Rule]] = {}
    for verbs, tenses, rest, category, slot in _TABLE:
        rule = Rule(
            frozenset(_LETTERS[letter] for letter in tenses.split()),
            re.compile(rest, re.IGNORECASE),
            category,
            slot.removesuffix("?"),
            sure=not slot.endswith("?"),
        )
        for verb in verbs.split():
            found.setdefault(verb, []).append(rule)
    return {verb: tuple(rules) for verb, rules in found.items()}


RULES = _by_verb()
