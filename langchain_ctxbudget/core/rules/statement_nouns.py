"""What a person is and has: kin, animals, occupations, traits, possessions, and what "my ..." may be about."""

from __future__ import annotations

import re

from langchain_ctxbudget.core.rules.statement_patterns import DATE, PLACE

KIN = (
    r"(?:wife|husband|spouse|partner|girlfriend|boyfriend|fianc[ée]e?|sons?|daughters?|kids?|child(?:ren)?|toddlers?"
    r"|baby|twins?"
    r"|mother|mum|mom|mummy|father|dad|parents?|brothers?|sisters?|siblings?|(?:grand|god|step|half[- ]|foster )-?"
    r"(?:mother|father|ma|pa|mum|mom|dad|parents?|sons?|daughters?|child(?:ren)?|kids?|brothers?|sisters?)|grann?y"
    r"|nana|nephews?"
    r"|nieces?|cousins?|uncles?|aunts?|auntie|(?:mother|father|brother|sister)s?-in-law|in-laws|family|little one"
    r"|\w+-year-old|youngest|eldest|oldest|firstborn|ex(?:-(?:wife|husband"
    r"|girlfriend|boyfriend))?|son-in-law|daughter-in-law)"
)
_OTHERS = (
    r"(?:friends?|buddy|boss|managers?|supervisor|advis[oe]r|mentor|coach|tutor|teacher|professor|colleagues?"
    r"|co-?workers?"
    r"|co-?founders?|business partner|assistant|roommates?|flatmates?|housemates?|neighbou?rs?|landlord|landlady"
    r"|doctor|gp"
    r"|therapist|dentist|trainer|client|lawyer|accountant|nanny|publisher|agent|team ?lead|cto|ceo|employee|intern)"
)
ANIMALS = (
    r"(?:dogs?|pupp(?:y|ies)|cats?|kittens?|horses?|pony|rabbits?|bunny|bunnies|hamsters?|guinea pigs?|parrots?"
    r"|budgies?"
    r"|birds?|chickens?|hens|turtles?|tortoises?|goldfish|fish|snakes?|geckos?|lizards?|ferrets?|goats?|sheep|cows?"
    r"|ducks?"
    r"|pets?|bees|beehives?|hives|rats?|labrador|lab|corgi|beagle|poodle|greyhound|terrier|(?:golden )?retriever|husky"
    r"|shepherd|dachshund|collie|pug|bulldog|alpacas?|donkeys?|donkey|llamas?|spaniel|mutt|tabby|whippet)"
)
_RELATIVE = rf"(?:{KIN}|{_OTHERS}|{ANIMALS})"
OCCUPATION = (
    r"(?:[\w-]*(?:engineer|developer|programmer|designer|teacher|manager|analyst|scientist|consultant|architect|nurse"
    r"|doctor"
    r"|lawyer|writer|editor|artist|musician|accountant|chef|cook|baker|barista|electrician|plumber|carpenter|mechanic"
    r"|driver"
    r"|pilot|farmer|student|researcher|professor|lecturer|librarian|physicist|chemist|biologist|psychologist|therapist"
    r"|dentist|vet|veterinarian|pharmacist|paramedic|firefighter|police ?(?:man|officer|woman)|officer|soldier|veteran"
    r"|journalist|photographer|translator|interpreter|freelancer|contractor|founder|co-founder|cofounder|ceo|cto|cfo"
    r"|coo"
    r"|director|president|owner|entrepreneur|intern|apprentice|trainee|secretary|assistant|administrator|sysadmin|admin"
    r"|technician|salesperson|salesman|marketer|recruiter|economist|historian|philosopher|mathematician|statistician"
    r"|surgeon|midwife|radiologist|cardiologist|paediatrician|pediatrician|physiotherapist|optician|hairdresser|barber"
    r"|tailor|waiter|waitress|bartender|cashier|clerk|postdoc|undergrad|graduate|grad|freshman|sophomore|dba|devops"
    r"|sre|qa"
    r"|tester|copywriter|producer|filmmaker|actor|actress|singer|dancer|composer|guitarist|pianist|drummer|violinist"
    r"|landlord|realtor|broker|banker|trader|investor|attorney|paralegal|judge|notary|priest|pastor|nun|monk|diplomat"
    r"|politician|mayor|social worker|caregiver|carer|nanny|housewife|homemaker|beekeeper|gardener|florist|brewer"
    r"|potter"
    r"|blacksmith|jeweller|illustrator|animator|tutor|coach|trainer|instructor|personal trainer|lead|head|partner"
    r"|associate"
    r"|maintainer|podcaster|streamer|youtuber|blogger|novelist|poet|author|captain|sailor|fisherman|geologist|botanist"
    r"|astronomer|meteorologist|archaeologist|anthropologist|sociologist|linguist|oncologist|neurologist|hygienist"
    r"|dietitian|nutritionist|masseuse|counsell?or|headteacher|principal|dean|supervisor|foreman|builder|welder|roofer"
    r"|machinist|operator|logistician|dispatcher|courier|postman|flight attendant|steward(?:ess)?|guide|ranger|butcher"
    r"|grocer|sommelier|barrister|solicitor|surveyor|planner|buyer|auditor|actuary|underwriter|strategist|pm|po))\b"
)
DIET = (
    r"(?:vegan|vegetarian|veggie|pescatarian|pescetarian|keto|paleo|kosher|halal|flexitarian|gluten[- ]free"
    r"|plant[- ]based|dairy[- ]free)"
)
NATION = (
    r"(?:american|british|english|scottish|welsh|irish|german|austrian|swiss|french|italian|spanish|portuguese|dutch"
    r"|belgian"
    r"|danish|swedish|norwegian|finnish|polish|czech|slovak|hungarian|romanian|bulgarian|greek|turkish|russian"
    r"|ukrainian"
    r"|chinese|taiwanese|japanese|korean|vietnamese|thai|indian|pakistani|bangladeshi|indonesian|filipino|filipina"
    r"|malaysian"
    r"|australian|canadian|mexican|brazilian|argentinian|colombian|chilean|peruvian|nigerian|kenyan|ghanaian|egyptian"
    r"|moroccan|iranian|persian|iraqi|israeli|lebanese|syrian|saudi|african|european|asian|latino|latina|croatian"
    r"|serbian"
    r"|slovenian|estonian|latvian|lithuanian|icelandic|ethiopian|cuban|venezuelan)"
)
_FAITH = (
    r"(?:christian|catholic|protestant|muslim|jewish|hindu|buddhist|atheist|agnostic|mormon|sikh|orthodox|quaker"
    r"|religious)"
)
_PARTNER = (
    r"(?:married|single|divorced|widowed|engaged|separated|a widow(?:er)?|in a (?:long[- ]distance "
    r"|long[- ]term )?relationship)"
)
_STATE = r"(?:retired|unemployed|self[- ]employed|freelanc\w+|semi-retired|between jobs|jobless|out of work|tenured)"
_TRAIT = (
    rf"(?:{_FAITH}|left[- ]handed|right[- ]handed|ambidextrous|colou?r[- ]?blind|blind|deaf|hard of hearing|dyslexic"
    rf"|dyscalculic"
    r"|autistic|neurodivergent|diabetic|type [12] diabetic|asthmatic|anaemic|anemic|epileptic|celiac|coeliac|bipolar"
    r"|(?:\w+ )?(?:lactose|gluten|fructose|histamine)[- ]intolerant|allergic to .+|intolerant (?:to|of) .+|pregnant"
    r"|(?:\w+ )*(?:weeks|months) pregnant"
    r"|bilingual|trilingual|introverted|extroverted|shy|gay|lesbian|bisexual|trans(?:gender)?|non-?binary|queer"
    r"|asexual|vegan"
    r"|teetotal|sober|nearsighted|short-sighted|far-sighted|insulin[- ]dependent|hypertensive|immunocompromised"
    r"|disabled|paraplegic"
    r"|tone[- ]deaf|claustrophobic|arachnophobic|an only child|night-blind|double-jointed|homeschooled)"
)
_NOT_A = (
    r"(?!an? (?:bit|little|lot|few|tad|mess|idiot|fool|step|huge fan of (?:your|this|that|it)|fan of (?:your|this"
    r"|that|it)|sec|second"
    r"|moment|minute|while|bad mood|hurry|rush|couple|loss|dummy|noob here|good|great|better|user of your|bot"
    r"|human being|robot|genius"
    r"|wreck|day|week|month|believer in that|kind of|sort of|\w+ (?:bit|late|early|confused|lost|behind|tired|stuck"
    r"|worried|unsure)|wizard,?"
    r"|king|queen|knight|dragon|pirate|ghost|tree|cloud|river|star)\b)"
)
# "I am ...": each pattern, its category ("p" project, "l" preference, else identity) and what it is a value of.
BE: tuple[tuple[str, str, str], ...] = (
    (rf"(?:an? )?{DIET}\b(?! (?:recipe|option|restaurant|meal))", "", "diet"),
    (rf"(?:(?:happily|newly|recently) )?{_PARTNER}\b(?! (?:threaded|page|core))", "", "marital status"),
    (rf"{_STATE}\b", "", "job"),
    ((r"(?:(?:about|almost|nearly|around|only|just) )?(?:[1-9]\d|\d\d|(?:twenty|thirty|forty|fifty|sixty|seventy"
        r"|eighty)(?:[- ]\w+)?|(?:thir|four|fif|six|seven|eigh|nine)teen)"
     r"(?:$|,? years? (?:old|young)|,? years?,? old| ?y/?o\b| now$| this year|,? and\b)"), "", "age"),
    (
        (r"in my (?:early |mid |late |mid-)*(?:teens|twenties|thirties|forties|fifties|sixties|seventies|eighties"
        r"|\d0'?s)"), "", "age"),
    (r"off (?:gluten|sugar|dairy|meat|alcohol|caffeine|coffee|nicotine|sick)\b", "", ""),
    ((rf"(?:(?:pretty|very|quite|almost|nearly|practically|much|half|severely|partially|highly|also) )*{_TRAIT}(?:$"
        rf"|\W)"), "", ""),
    ((rf"(?:half[- ]|originally |part )?(?:\w+-)?{NATION}(?:$|,|\W(?:and|but|by|citizen|with|living|based|on"
        rf"|national)\b)"), "", "nationality"),
    (r"(?:originally )?from an? (?:\w+ ){0,3}(?:town|village|city|family|farm|island|suburb)\b", "", "origin"),
    (r"with (?-i:[A-Z])\w+", "", "employer"),
    (r"more of an? \w+ \w+", "l", ""),
    (r"(?:an? )?(?:\w+ ){0,3}(?-i:[A-Z])\w+ (?:fan|lover|supporter|nerd|geek|addict)\b", "l", ""),
    ((rf"(?:originally )?from (?!the (?:future|beginning|start|same|last|first|above)|here|there|now|it|this|that|a\b"
        rf"|an\b|my|your|scratch|what|where){PLACE}"), "", "origin"),
    (r"(?:now |currently )?(?:based|located|situated|domiciled) (?:in|near|out of|outside|on) ", "", "home"),
    ((r"in (?:the )?(?:(?:\w+ )?time ?zone|(?-i:UTC|GMT|CET|CEST|EST|PST|EDT|PDT|MST|BST|IST|JST|AEST)\b"
        r"|(?:central european|eastern|pacific|mountain|central) (?:standard |daylight )?time"
        r"|(?:\S+ ){1,3}time ?zone)"), "", "time zone"),
    ((r"on (?-i:UTC|GMT|CET|CEST|EST|PST|EDT|PDT|BST|IST|JST|(?:central european|eastern|pacific|mountain"
        r"|central) time)\b"), "", "time zone"),
    (r"(?:in|at) (?:my|the) (?:\w+ ){1,2}(?:year|semester|trimester|grade)\b", "", ""),
    ((r"in (?:marketing|sales|finance|hr|tech|it\b(?! )|healthcare|education|academia|insurance|real estate|logistics"
        r"|retail|construction|med(?:ical)? school|law school|high school|college|grad(?:uate)? school|recovery"
        r"|remission|an? (?:band|choir|wheelchair|book club|orchestra|improv))\b"), "", ""),
    (r"in (?-i:[A-Z])[\w' -]+$(?<! now)(?<!today)(?<!week)(?<!weekend)", "", "home"),
    ((r"on (?:an? |the )?(?:\w+[ -]){0,2}(?:diet|medication|meds|insulin|antidepressants|blood thinners|metformin"
        r"|(?:parental|maternity|paternity|sick) leave|sabbatical|gap year|beta blockers|statins|hrt|the pill"
        r"|dialysis)\b"), "", ""),
    ((r"on (?:windows|macos|mac os|linux|ubuntu|debian|fedora|arch|nixos|android|ios|an? (?:mac|macbook|iphone|pixel"
        r"|thinkpad|chromebook))\b"), "", "operating system"),
    ((rf"(?:an?|the|also an?)?\s?(?!(?:\w+ ){{0,2}}(?:one|same) )(?:(?:[\w'-]+"
        rf"|&) ){{0,5}}?{OCCUPATION}(?! (?:of (?:this|that|it|your)|error|at heart|mode))"), "", "job"),
    (r"(?:head|chief|vp|chair|co-?chair|treasurer|director|dean) (?:of|for) (?!this|that|it)\w+", "", "job"),
    (r"(?:in charge of|responsible for) (?!this|that|it)\w+", "", ""),
    ((r"the (?:oldest|youngest|eldest|middle|only|first|father|mother|mum|mom|dad|son|daughter|captain|goalkeeper"
        r"|chair\w*|treasurer|breadwinner)(?: child)? (?:of|in|at|to|on|child|one of)"), "", ""),
    ((r"an? (?:(?:huge|big|massive|lifelong|long-?time|avid|die-hard|great|real|keen|total) )*(?:fan|lover|supporter"
        r"|follower|collector|reader|admirer) of (?!it|this|that|your|how|the (?:way|idea|look|answer|new|first"
        r"|second))\w+"), "l", "{what}"),
    ((r"an? (?:\w+ )?(?:morning|evening|night|dog|cat|people|coffee|tea|foodie|early) ?(?:person|owl|bird|lover"
        r"|drinker|addict)"), "l", ""),
    (_NOT_A + r"an? (?:\w+ ){0,4}?(?:mum|mom|dad|father|mother|parent|widow|grandmother|grandfather|grandma|grandpa"
        r"|twin|introvert|extrovert|beginner|newbie|novice|expert|native|citizen|resident|immigrant|expat|refugee"
        r"|member|runner|cyclist|climber|swimmer|hiker|gamer|reader|skier|surfer|sailor|smoker|drinker|homeowner"
        r"|renter|believer|feminist|perfectionist|foodie|collector|amateur|hobbyist|type [12]|survivor|donor"
        r"|volunteer|speaker|learner|woman|man|guy|girl|teenager|teen|adult|christian|catholic|muslim|jew|hindu"
        r"|buddhist|atheist|vegetarian|vegan|pescatarian|night owl|celiac|diabetic|morning person|geek|nerd|bookworm"
        r"|minimalist|pacifist|\w+(?:ian|ist)|\d+[- ]year[- ]old|shift worker|worker|\w+ player|player|user|commuter"
        r"|enthusiast|lefty|quaker|dane|brit|swede|pole|turk|scot|finn|spaniard|californian|texan|new yorker|londoner"
        r"|berliner|parisian|dubliner|brummie|cat owner|dog owner|single (?:mum|mom|dad|parent|mother|father))\b",
            "", ""),
    ((r"(?:\w+ )?(?:good|great|bad|terrible|awful|decent|excellent|hopeless|skilled) at (?!it|this|that|the moment"
        r"|explaining this|these|least)\w+"), "", ""),
    ((r"(?:(?:relatively|fairly|completely|totally|brand|very|pretty|quite|rather|really) )?new to (?!it\b|this|that"
        r"|here|me|the (?:chat|forum|site|app$)|you|all)\w+"), "", ""),
    ((r"(?:\w+ )?(?:fluent|proficient|experienced|fluently|comfortable|conversational|certified|qualified|trained"
        r"|licensed) (?:in|with|as|at) (?!it|this|that|the (?:code|idea|approach|answer)|these|your|you)\w+"), "", ""),
    ((r"(?:\w+ )?(?:interested in|into|fond of|keen on|passionate about|obsessed with|addicted to|crazy about"
        r"|hooked on|big on|enthusiastic about) (?!it\b|this|that|the (?:idea|answer|second|first|details?"
        r"|differences?|following|topic)|hearing|knowing|learning (?:more|about|how)|your|you|what|how|any|these"
        r"|those|them|using this|seeing|more|both|getting|finding)\w+"), "l", "{what}"),
    ((r"(?:\w+ )?(?:afraid|scared|terrified|frightened) of (?!it|this|that|the (?:results?|answer|code)|breaking"
        r"|losing|what|how|these|messing)\w+"), "", ""),
    (r"(?:colour|color) ?blind|(?:\d+ ?(?:cm|feet|foot|ft|'|kg|lbs?|pounds)|\d[.,]\d+ ?m(?:eters|etres)?)\b.*",
        "", "height"),
    (r"due (?:on|in) .*", "p", "due date"),
    (rf"(?:scheduled|booked|set) (?:to|for) .*{DATE}", "p", ""),
    ((r"an? (?:\w+ )?(?:team|group|couple|band|family|company|start-?up|agency|duo|trio) of |(?:\d+|two|three|four"
        r"|five|six|seven|eight|nine|ten) (?:people|of us)\b"), "p", ""),
    (r"(?:\w+ ){0,2}(?:trained|raised|educated|brought up) (?:in|at|as|by|on) (?!it|this|that)", "", ""),
    (r".*\b(?:\w+ days|once|twice|\w+ times) an? (?:week|month|year)\b", "", ""),
    (rf"(?:off|away|back|out) (?:to|in|for|from) .*{DATE}|off to (?-i:[A-Z])|(?:on|off) .* leave\b", "p", ""),
    ((r"an? (?:\w+ )?\w+ (?:at (?:school|university|college)|as a child|in my (?:youth|twenties|thirties)"
        r"|for \w+ years)$"), "", ""),
    ((r"(?:\w+ )?(?:sensitive|prone|susceptible|immune|addicted|accustomed|intolerant) to (?!it|this|that|these"
        r"|the\b)\w"), "", ""),
    (r"(?:\w+ )*(?:short|long|near|far)-?sighted|(?:\w+ )?deaf in|(?:\w+ )?colou?r-?blind", "", ""),
    (_NOT_A + r"an? (?!(?:\w+ )?(?:problem|question|issue|error|pain|waste|shame|pity|try|long|short|nightmare"
        r"|mistake|joke|big one|fan|kid|child|hobby|listening ear)\b)(?:[\w'-]+ ){0,3}?[\w'-]+(?:$| (?:at|in|from|for"
        r"|by|with|and|who|of (?!this|that|your)))", "", ""),
    (r"named after ", "", ""),
    (r"(?:called|named) (?-i:[A-Z])\w+$", "", "name"),
    (r"religious|vaccinated|homeschooled|adopted$|a? ?twins?$|dating |allergic|estranged", "", ""),
)  # fmt: skip
HAVE = (
    rf"(?:(?:an?|the|one|two|three|four|five|six|seven|eight|nine|\d+|no|some|several|many|any|another|our|my|both"
    rf"|lots? of|quite a few|a couple of) )?(?!(?:\w+ ){{0,2}}(?:question|problem|issue|error|idea"
    rf"|doubt)s?\b)(?:[\w'-]+,? ){{0,4}}?"
    rf"(?:{KIN}|{ANIMALS}|{DIET} diet|allerg(?:y|ies)|asthma|dementia|alzheimer'?s|parkinson'?s|cancer"
    rf"|multiple sclerosis|diabetes|adhd|add|autism|ocd|ptsd|epilepsy|arthritis|migraines?|anxiety|depression"
    rf"|dyslexia|insomnia"
    r"|celiac(?: disease)?|coeliac(?: disease)?|crohn'?s(?: disease)?|ibs|hypertension|high blood pressure|scoliosis"
    r"|tinnitus|(?:bad|weak) (?:knees?|back|eyesight|memory|shoulder|hip)|pacemaker|hearing aids?|eczema|psoriasis"
    r"|hypothyroidism|endometriosis"
    r"|(?:lactose |gluten |nut |peanut |food )(?:intolerance|allergy)|intolerance|insulin resistance|phobia"
    r"|fear of \w+|hand|leg|arm|eye|lung|kidney|sweet tooth|soft spot for|thing for|weakness for|phd|degree"
    r"|master'?s(?: degree)?|bachelor'?s(?: degree)?|mba|diploma"
    r"|certificate|certification|licen[cs]e|black belt|(?:years?|months?|decades?)(?:'"
    r"|'s)? (?:of )?(?:\w+ )?experience|background in|experience (?:in|with)|dual citizenship|citizenship|passport"
    r"|visa|green card"
    r"|pupils?|students?|listeners|readers|subscribers|followers|kitchen|oven|studio|workshop|attic|basement"
    r"|room to myself|terrace|house|flat|apartment|condo|cottage|cabin|garden|balcony|backyard|allotment|farm"
    r"|greenhouse|garage|car|bike|bicycle|motorbike|motorcycle|van|truck|boat|tesla|toyota|honda|volvo|bmw|ford|vw"
    r"|piano|guitar|violin|cello|ukulele|drum kit|synth"
    r"|macbook(?: \w+)*|laptop|imac|thinkpad|ipad|iphone(?: \w+)*|android phone|pixel(?: \w+)*|kindle|raspberry pi"
    r"|homelab|nas|3d printer|telescope|camera|gpu|rtx \d+|blog|podcast|startup|company|business|shop|youtube channel"
    r"|newsletter"
    r"|side project|(?:red|blond|blonde|brown|black|curly|grey|gray|blue|green) (?:hair|eyes)|tattoos?|braces|glasses"
    r"|(?:roommate|flatmate|housemate|boss|mentor|cofounder|co-founder|employee|developer|engineer|customer|client"
    r"|tenant|student)s?"
    r"|day job|part-time job|mortgage|nut allergy|anaemia|anemia|vertigo|lupus|fibromyalgia|long covid|cancer|gout"
    r"|hay ?fever|pollen allergy|perfect pitch|subscription|people on (?:our|my|the) team|budget of|mining rig"
    r"|air fryer|wood stove|sourdough starter)\b"
    r"(?! (?:script|file|function|table|class|error|question|problem|object|list|array|column|element|component|page"
    r"|app\b|node|variable|model|string|tag|id\b|names?\b(?! )|in (?:my|the) (?:database|table|code|list|data)))"
)  # fmt: skip
HAVE_EVENT = (
    rf"(?:an?|my|our|the|two|three|another) (?!(?:\w+ )?(?:question|problem|idea|bug))(?:[\w'-]+ ){{0,4}}?(?:exam"
    rf"|exams|interview|interviews|deadline|appointment|wedding|trip|flight|marathon|race|presentation|surgery"
    rf"|operation|conference|talk|recital|concert|meeting|release|launch|demo|test|defense|defence|viva|party"
    rf"|tournament|gig|hearing|checkup|check-up|holiday|vacation|reunion|anniversary|final|finals|midterm|scan"
    rf"|audition|exhibition|workshop|review|call|date|visit|match|game)\b.*{DATE}"
)
# What "my ..." may be about, with the slot that it fills.
THINGS = re.compile(
    r"(?:(?P<favourite>(?:(?:all-time|absolute|least|current) )*(?:favou?rite|fave?) .{2,40})|(?P<goto>(?:go-to"
    r"|preferred|usual|default|main|primary|first|second|native|current|daily) [\w -]{2,30})|(?P<slot>name|full name"
    r"|first name|last name|surname|nickname|age|birthday|birth ?date|date of birth|job|job title|profession"
    r"|occupation|role|employer|company|title|home ?town|home|time ?zone|native language|mother tongue|first language"
    r"|pronouns"
    r"|nationality|citizenship|religion|blood type|height|weight|shoe size|dress size|star sign|zodiac sign|mbti"
    r"|editor|ide|operating system|os|phone|shell|terminal|browser|car|bike|laptop|computer|keyboard|gpu|camera"
    r"|guitar|diet|hobby"
    r"|major|minor|degree|thesis|dissertation|thesis topic|university|school|salary|income|budget|rent|deadline"
    r"|due date|start date|wedding|anniversary|exam|flight|trip|surgery|dream|goal|new year'?s resolution|plan|stack"
    r"|tech stack|project"
    r"|side project|pet project|startup|business|start-up|app|book|novel|blog|podcast|channel|band|team|website"
    r"|product|game|launch|release|go-live|release date|launch date|database|backend|frontend|infrastructure|api"
    r"|hosting|ci|cloud provider"
    r"|house|flat|apartment|garden|office|commute|landlord|account manager|main (?:customer|client|competitor)"
    r"|biggest (?:customer|client|fear|dream|weakness|strength|competitor)|target audience|target date|course"
    r"|team size|mission|heritage"
    r"|background|ancestry|family name|maiden name|email|e-mail address|handle|username|github|twitter handle"
    r"|working hours|office hours|hours|interview|presentation|demo|conference|defense|viva|marathon|race|move|baby"
    r"|due date|favourites?"
    r"|hobbies|interests|hands|eyes|hair|vision|sister site|skin|cholesterol|blood pressure|parents' house"
    r"|commute time|ultimate goal|long-term goal|next goal|main goal|monthly budget|workplace|shift|lease|visa"
    r"|contract|probation|internship))",
    re.IGNORECASE,
)  # fmt: skip
RELATIVE = re.compile(
    rf"(?P<kin>(?:(?!name\b)[a-z0-9'-]+ ){{0,2}}?{_RELATIVE})(?:,? (?P<name>(?-i:[A-Z])[\w'-]+(?: "
    rf"(?-i:[A-Z])[\w'-]+)?),?)?",
    re.IGNORECASE,
)
# What is said of a relative, and lasts.
OF_RELATIVE = re.compile(
    rf"(?:(?:is|are|was|were|will be|'s) (?:(?:also|now|currently|only|just|both|almost|about|already|all|named"
    rf"|called|nicknamed) )*"
    rf"(?:(?-i:[A-Z])[\w'-]+|an? (?!(?:bit|little|lot|pain|mess|nightmare|great|good|bad|idiot|jerk|handful|genius"
    rf"|angel|saint|moron)\b)\w+|the (?:\w+ )?(?:{OCCUPATION}|same age)|(?:\d+|two|three|four|five|six|seven|eight"
    rf"|nine|ten|eleven|twelve|\w+teen"
    rf"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-\w+)?)\b(?! (?:minutes|hours|late|times|pages))|from |born"
    rf"|based|living|working (?:as|at|for)|studying|learning|turning|getting (?:married|divorced)|retiring"
    rf"|leaving .*{DATE}|pregnant|graduating|expecting|{_TRAIT}|{DIET}|{_PARTNER}|{_STATE}|{NATION}\b"
    rf"|moving|coming .*{DATE}|visiting .*{DATE}|due|(?:originally|mostly) |starting|teething|adopted"
    rf"|in (?:(?:\w+ ){{0,2}}grade|kindergarten|college|preschool|high school|university|(?-i:[A-Z]))"
    rf"|on (?:the spectrum|insulin)|afraid of|scared of|fluent|terminally|into \w+|good at|obsessed with|diagnosed"
    rf"|allergic|named after|\w+ (?:years?|months?|weeks?) old)"
    rf"|(?:has|have|had) (?:{HAVE}|(?:just |recently )?(?:started|moved|been (?:diagnosed|accepted)|turned|graduated"
    rf"|retired|died|passed))"
    rf"|(?:lives?|works?|stud(?:y|ies)|teach(?:es)?|speaks?|plays?|owns?|runs?|goes? to (?!bed|sleep)|attends?|eats?"
    rf"|drinks?|moved|grew up|retired|graduated|turned|turns|died|passed away|loves?|likes?|hates?|enjoys?|prefers?"
    rf"|collects?|was (?:born|diagnosed)|starts? .*(?:{DATE}|school|job|kindergarten|university)"
    rf"|does not (?:eat|like|drink|speak|drive|have)|ca(?:n not|nnot|n't) (?:eat|have|drink|swim|walk|see|hear|kneel"
    rf"|lift|climb|drive|read|work|bend|stand|sleep|fly|speak|sing|cook|tolerate)|practi[cs]es|gets? married|suffers?"
    rf"|used to|wants to (?:become|be an?|study)|just (?:turned|started|moved|had a)|started|got (?:married|engaged|a"
    rf"|into)|handles|manages|leads|cooks|paints|writes|coaches|volunteers|arrives? .*{DATE}|visits? .*{DATE}"
    rf"|comes? .*{DATE}) ?(?! ?(?:it|this|that|your|them)\b))",
    re.IGNORECASE,
)  # fmt: skip
NAMED = re.compile(
    rf"\b(?:my|our) (?P<kin>(?:[a-z]+ (?!and))?{_RELATIVE}),? (?P<name>(?!(?:I|I'm|Is|And)\b)[A-Z][a-z][\w'-]*)(?!')",
    re.ASCII,
)
EDITORS = re.compile(
    r"(?:neo)?vim\b|nvim|emacs|vs ?code|visual studio|pycharm|intellij|sublime|cursor\b|zed\b|helix|nano\b|jetbrains"
    r"|webstorm|xcode|notepad\+\+|rstudio|goland|kate\b",
    re.IGNORECASE,
)
SYSTEMS = re.compile(r"windows|macos|mac\b|linux|ubuntu|debian|fedora|arch\b|nixos|mint\b", re.IGNORECASE)
