"""The word lists of `phrases`: ordinary English words that say nothing, or too little, about what a text is about."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_ctxbudget.core.text import STOP_WORDS


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as a text."""
    return frozenset(text.split())


_FUNCTION_WORDS = (
    "abeg able above abroad across additionally afterwards ahead almost along alongside although always amid amidst "
    "among anybody anyone anything anyway anywhere apart aren around aside away back based behind below beside "
    "besides beyond cant consequently couldn despite didn doesn don done dont due either else enough etc even ever "
    "everybody everyday everyone everything everywhere except fam far fave faves forth forward furthermore got hadn "
    "hasn haven hence herself himself however huh indoors inside instead isn itself kinda less like likely ll many "
    "may meantime meanwhile might mine moreover much must myself near neither never nevertheless nobody none "
    "nonetheless nor nothing now nowhere offline ok okay one ones online onto ooh others otherwise ourselves "
    "outdoors outside past per perhaps phew plus quite rather re regardless round several shall shouldn since "
    "somebody somehow someone something somewhere soon sorta straight themselves therefore though throughout thus "
    "till today together towards unless unlike unto upfront upon upside ve versus via wasn well wells weren "
    "whatever whenever whereas wherever whether whichever whoever within won wouldn yes yet yourself"
)
"""Beside the stop words."""
_CHAT_WORDS = (
    "aha alas alright apologies apology asap awesome aww bless bravo bro btw bye cheers congrats congratulations "
    "damn dear dude folks fyi gee goodbye goodnight gosh greeting greetings guy guys haha hehe hello hey hiya hmm "
    "hooray idk imho imo kudos lmao lol mate nah nope omg oops ouch pls plz regard regards righto sir sorry sure "
    "tbh thank thanks thx tysm ugh uhh umm voila wahoo wait welcome whoa woah wow yay yeah yep yikes yum yup"
)
"""Greetings, thanks, exclamations."""
_TIME_WORDS = (
    "afternoon ages ago apr april aug august autumn century daily date dates day days daytime deadline deadlines "
    "dec decade decades december earlier early evening evenings feb february first fortnight fri friday fridays "
    "future hour hours jan january jul july jun june last late lately later latest lifetime mar march midnight "
    "midweek minute minutes moment moments mon monday mondays month monthly months morning mornings next night "
    "nights noon nov november nowadays oct october overnight period present previous quarter sat saturday saturdays "
    "season seasons second seconds sep sept september spring summer sun sunday sundays term thu thursday thursdays "
    "time times timing today tomorrow tonight tue tuesday tuesdays twice wed wednesday wednesdays week weekday "
    "weekdays weekend weekends weekly weeks winter year yearly years yesterday"
)
"""Times and dates."""
_QUANTITIES = (
    "amount amounts average bit bits bucks bunch cent cents couple dollar dollars dozen eight eleven eur euro euros "
    "fifteen fifth fifty five four fourth gbp gram grams half handful hundred hundreds inch inches kgs kilo kilos "
    "kms least lot lots majority max meter meters metre metres mile miles million millions min nine number numbers "
    "pair percent percentage piece pieces plenty pound pounds quantity rest seven seventh six sixth size sum ten "
    "third thirty thousand thousands three ton tons total twelve twenty two usd whole zero"
)
"""Numbers and measures."""
_EMPTY_NOUNS = (
    "ability act advantage advice alternative amount analogy answer appreciation approach area aspect assistant "
    "attempt attention attitude aunt auntie bang basics beginning benefit blank blast bonus boss bot bottom boy "
    "boyfriend break brother buck buddy bullet bummer call capture care case category challenge champ chance change "
    "chat chatgpt cheer choice chore chunk clarification cofounder colleague column comfort comparison concept "
    "condition confidence confirmation cons context conversation copy core corner count courage cousin coworker crunch "
    "curiosity dad daughter decision description detail determination difference direction disadvantage discussion "
    "dispatch display document doubt downside drain drama dump effect effort element encouragement end entry error "
    "example excitement excuse experience explanation eye face fact factor failure false fan father fault favorite "
    "fear feedback feeling feet fella fiance fiancee figure file flame flatmate float flow focus foot form format "
    "forth friend front fun fundamental fuss gain gap gentleman girl girlfriend gist glimpse goal god goodness gpt "
    "grandfather grandma grandmother grandpa granny gratitude grind grip group guess guy halt halves hand happiness "
    "hassle hate head headache heading heap help hint honor honour hope hubby hurry husband idea image impact "
    "importance improvement indeed influence info information inspiration instruction interest issue item joint joke "
    "joy keyword kind kindness knock lack lady lapse legend level life lifesaver limit line list load look love "
    "lowdown luck man mark master mate matter meaning meantime member men mention mess message middle mind missus "
    "mistake mob mom moment mood mother motivation mum nail name nature need neighbor neighbour nephew niece nonsense "
    "note nothing notion number opinion opportunity option order outset overview page paragraph parent part partner "
    "pass passion peace people person perspective photo phrase pic picture piece place play playing pleasure point "
    "position positivity possibility pride problem progress prompt pronto proof pros pump purpose question quote range "
    "reason recommendation region regret relief remainder reminder rep reply request resilience respect response rest "
    "result roommate row sake scope screenshot sec section self sense sentence set shake shame shocker shout side sigh "
    "sight sign sister situation solution son sort specifics speech spot stage standby start state statement status "
    "step stop strength stress stuff subject success suggestion summary support surprise swap synthesis table tad "
    "takeaway text thing thought thrill tip title top topic trouble try turn type uncle update use user value version "
    "vibe view volume way weakness while wife wish witness woman women wonder word wording world worry yarn"
)
"""Nouns that name nothing; in no phrase."""
_WEAK_NOUNS = (
    "acceptance access account achievement action activity ad addition address adjustment adult adventure "
    "advertisement advisor advocacy age agency agenda agent aggregation agreement air airbnb airline airport album "
    "alert algorithm allocation american analysis anchor android angle animal ankle anniversary annotation "
    "announcement annual apartment api app application appointment approval approver aquarium architect architecture "
    "area arm army array arrival art article artist ascent assessment asset assignment assistant atmosphere attic "
    "attorney attraction attribute audience audio author authors autonomy availability average award awareness baby "
    "backend background backlog backup bag baggage bake bakery balance balcony ball band bank banner bar base basement "
    "batch bath bathroom battery beach bean beat beauty bed bedroom beginner behavior behavioral behaviour bench bike "
    "bill bird birthday block blog blogger blueprint blur body bond book booking bookshelf border bottle bottleneck "
    "boutique bowl box brain brainstorming brake branch brand breach bread breakdown breakfast breeder brew bridge "
    "briefing brochure browser brush bucket budget buffer bug build builder building burden bureaucratic bus business "
    "butter button cable cache cafe cage calculation calendar callback calorie camera camp campaign campground "
    "campsite candidate candy canvas capability capital car card career cart cash cat celebration cell center centre "
    "ceo cert certificate cfo chain chair champion championship channel chaos chapter character charge charity chart "
    "check checklist checkout checkup cheese chest chicken child children chord chorus christmas church cinema circle "
    "circuit citizen city claim class classmate clause cli client climb clinic clock clothes club cluster coach code "
    "coin cold collaboration collection college color colour comment commercial commission commit commitment "
    "communication community commute company compassion competition completion compliance component computer "
    "concentration concern concert concierge conditioner conference config configuration connection contact container "
    "content contest contract contractor control conversational correction correlation cost couch country course court "
    "coverage cpu crafter crash creativity creator credit crew crisis criteria critical critique crown crumb crust csv "
    "cto culture cup curve customer customs cycle damage dark dashboard data database day daycare deadlock deal debt "
    "dedication defect definition degree delay deliverable delivery demand demo dentist department departure "
    "dependency dependent deploy deployment deposit design desk developer development device diagnosis diagram "
    "dialogue digital diligence dining dinner directive disaster discount discrepancy disease dish disk dispute "
    "distance dive diversity division diy doc doctor dog domain door dose dough downtime draft dream drink drive "
    "driving drug drummer duty dynamics ear earth economy ecosystem edge edition editor education effectiveness "
    "efficiency egg electric email embassy emergency emotion emotional employee employer endpoint energy engagement "
    "engine engineer enjoyment enthusiasm entropy environment episode equality equation equipment escape essay essence "
    "european event evidence exam exercise exhibition expectation expense expert exposure factory faith family faq "
    "fashion feature fee feeder field film financial finger fire fish fix flag flashcard flat flavor flavour "
    "flexibility flight floor flour flower flyer folder food forecast forest fork formula foundation frame framework "
    "freedom friction fridge friendship front frontend frozen fruit fuel function fund fundraiser gallery game garage "
    "garden gate gear generation generator genre gift gig glass goal goods government grade graph graphics grocery "
    "ground group growth guest gui guide guideline guitarist gym habit hair hall handler hardware header health heart "
    "heat height helmet hike hill hip historical history hobby hole holiday home homeowner hometown homework hook "
    "horse hospital host hostel hotel house hr html http https human humans hustle hustler ice icon id ide identity "
    "idiom image implementation implication incident income increment individual industry inflation infrastructure "
    "ingredient initiative injury inn input inquiry insight instance instant institution instruction instructor "
    "integration interaction interface internet interval interview introduction inventory investor invoice ios island "
    "itinerary jar jargon jersey job journey json judge key kid kindergarten kit kitten knee knife knowledge kpi lab "
    "label lake lamp land landlord language laptop latency launch law lawyer layout layover leader leadership leaf "
    "league lease leash lecture leg legal length lesson letter leverage liability library license lid lifestyle light "
    "limitation line link lip listener litter loaf loan location lodge log logging login logistics logo loop loss "
    "luggage lunch lyric lyrics machine magnet mail maintenance management manager map market match material matrix "
    "meal meat mechanism medal media medication medicine meeting melody membership memory mental mentor menu metal "
    "method metric migration mileage milestone milk mirror mobile mode model modes module momentum money monitoring "
    "moon motor mountain mouth move movement movie muscle museum mvp narrator neck negotiation neighborhood "
    "neighbourhood nest net network news newsletter night node noise nose notebook notification nurse nutrient object "
    "objective ocean offer office official oil online operation opponent organisation organization organizer outage "
    "outline output oven overall oversight overtime owner pace package pain paint pairing pal palette pan pantry paper "
    "paperwork parade parameter park participant party passenger passport password patch path patience patient pattern "
    "payment pdf peak peer performance permission persona personnel pet phase phone photographer physician pill "
    "pipeline pitch plan planner planning plant plastic plate platform player playground playlist plot pod police "
    "policy pool population port portfolio post poster pot pound power practice precision premium prep preparation "
    "prescription president pressure price principle print printer priority privacy prize pro probe procedural "
    "procedure process procurement product production professor profile profit program project projection property "
    "proposal protagonist protein protocol provider proxy pub public publisher pup pupil puppy purchase qa quality "
    "query queue quiz race rain rate reader realist reality receipt recipe record recovery redesign refactoring "
    "reference refund region register regulation rehearsal relationship release religion relocation remote rent rental "
    "repo report repository request requirement research resident residential resolution resort resource "
    "responsibility restaurant retail retrieval retry return revenue review revision rice ride rights risk river road "
    "roadmap robust roi role rollback rollout roof room route routine rule run runner saddle safety salary sale salt "
    "sample sand sauce saving scale scam scan scenario scene schedule schema school score scoring screen script sdk "
    "sea seat security selection semester seminar series server service session setback setting setup shape share "
    "shelf shelter shirt shoe shop shortlist shoulder show sibling sightseeing signal signature silence singer site "
    "sketch skill skin sky slide smoke snack sneaker snow social society soda sofa software solar song soul source "
    "space speaker spec specialist specification speed spoon sport spreadsheet sprint sql square stack staff stage "
    "staging stakeholder standard standup star starter startup state station stock stomach stone stop store storm "
    "story stove strategic strategy stream street stretch string structure student studio study style subscription "
    "subtopic suburb sugar suitcase sun support surf surface surgeon surgery switch syllabus symbolism symptom sync "
    "system tab tag talent tank target task taste tasting tax teacher team teammate tech technical technician "
    "technique technology temperature template tempo tenant terminal terms test testing textbook theater theatre theme "
    "theory therapist thesis thread throughput ticket timeline timeout tin tire tldr toe toilet token tone tool tooth "
    "touch tour tourist tournament tower town track tracking tradition traffic trail train training transaction "
    "transfer transition transport travel traveler traveller tray treadmill treat treatment tree trick trip trophy "
    "tune tutor tutorial tyre ui unit university upload urgency url utility uuid ux vacation variable varietal variety "
    "veggie vehicle vendor venue verse version vet video viewer village visa visit visitor vitamin voice volunteer "
    "vote walk wall war warmth warning waste water wave weather webapp website wedding weekend weight wheel width wind "
    "window winner wisdom wood work worker workload workout workshop writer xml yard yeast youth zone"
)
"""Nouns, and adjectives that name a field, which are no topic by themselves but in company: "tax return"."""
_VERBS = (
    "accept achieve activate adapt add adjust admit afford agree aim align allow analyse analyze annotate announce "
    "apologise apologize appear apply appreciate approve argue arrange arrive ask assign assist assume attach attend "
    "avoid bake base beat become begin believe belong bend bet bite blow borrow bother bounce brainstorm breathe brew "
    "bring browse bump burn buy calculate calm can cancel care carry catch categorize cease celebrate chase check "
    "chill choose chuck claim clarify clean click close collect combine come commit communicate compare complain "
    "complete concentrate conclude confirm confuse connect consider contain continue contribute convert convince cook "
    "coordinate cope correct cover crack crash create cry cut deal decide deepen define delete deliver denoise deny "
    "depend describe deserve destroy determine develop differ dig disagree disappear discover discuss disengage dive "
    "do double download draw drink drop earn ease eat elaborate embrace empower encourage engage enhance enjoy ensure "
    "enter establish examine excite exhaust exist expand expect explain explore expose express extend extract face "
    "fail fall fancy fascinate feed feel fetch fight figure fill filter finalise finalize find finish fit fix fly "
    "follow force forget forgive format fulfill gather generate get give go grab grow guess handle hang happen hate "
    "have hear help hesitate hide highlight hire hit hold hope humble identify ignore imagine implement impress "
    "improve include increase indicate inform initiate insist inspire install integrate intend introduce invest invite "
    "involve join jot juggle jump keep kick kill know lack land last laugh lay lead learn leave lend let leverage lie "
    "lift like list listen live load lock look lose love maintain make manage mark match mean meet mention mind miss "
    "mix modify motivate move muck narrow navigate need notice obtain occur offer open operate organise organize "
    "overcome overwhelm own pack parse participate pay perform permit persuade pick place plug point postpone pour "
    "prefer prepare present press pretend prevent print prioritise prioritize proceed produce promise promote "
    "pronounce propose protect prove provide publish pull push put qualify quit quote raise reach react read realise "
    "realize rebook recall recap receive reckon recognise recognize recommend recover rectify redo reduce refer refine "
    "reflect refresh refuse regret reject relate relax release rely remain remember remind remove rename renew "
    "reorganize repair repeat replace reply represent request require reschedule reserve reset resolve respect respond "
    "restore result rethink retrieve return reveal review revise rewrite rid ring rise roll rush satisfy save say "
    "scare scrape search see seek seem select send separate serve settle share shift shorten shout show shut sign sit "
    "skip sleep slip slow smell smile smooth snap solve sort sound speak specify spend split spread squash squeeze "
    "squiz stand start stay steal step stick streamline stress stretch strike struggle submit succeed suffer suggest "
    "summarise summarize support suppose survive suspect switch synthesise synthesize tackle tag tailor take talk "
    "taste teach tell tend think thrive throw tidy tie tighten top touch transform translate treat trigger trust try "
    "turn tweak understand update upgrade uplift upload urge use used validate vary verify view visit volunteer vote "
    "wait wake walk wander want warn wash watch wear weigh welcome win wipe wish witness wonder work worry wow wrap "
    "write yell zoom"
)
"""Their base, -s and -ed forms are in no phrase; their -ing forms may be ("cooking")."""
_PLAIN_VERBS = (
    "add aim allow amaze ask assume attend avoid base be become begin being believe bet bother brainstorm bring build "
    "buy call calm capture carry catch cause celebrate challenge change check chill choose click come compare complete "
    "confirm connect consider continue cover crack create cut deal decide depend describe dig discuss do drop eat end "
    "enjoy ensure excit excite expect experience explain explore face fail fall feel figure fill find finish fit fix "
    "flow focus follow gain get give go grow handle hang happen hate have head hear help hit hold hope humble hurt "
    "imagine improve include inspire interest involve join keep know lack lay lead learn leave let lie like listen "
    "live living look lose love maintain make manage mean meet mention mind miss move muck nail need notice offer open "
    "overwhelm own parse pay pick place play point prefer prepare present process produce provide pull push put reach "
    "read reflect regard rely remain remember remind remove replace reply require respond result return review rise "
    "run save say search see seem select send set share show sit sleep solve sort sound spend stand start stay step "
    "stick stop struggle suggest suit support survive take talk tell thank think thrive track treat trust try turn "
    "understand update use vary view visit wait wake want warn watch wear win wish wonder work worry wrap write"
)
"""Verbs whose -ing form is in no phrase either ("going")."""
_IRREGULAR_FORMS = (
    "ate became been been's began begun bent bitten blew bought bred broke broken brought built burnt calls came "
    "caught chose chosen costs dealt did done drank drawn dreamt drew driven drove drunk eaten fallen fed fell felt "
    "flew flown forgave forgot forgotten fought found gave given gone got gotten grew grown had heard held helps hid "
    "hidden hurt kept knew known laid lain learnt led left lent lost made makes means meant met needs overcame "
    "overtook paid quit ran rang read ridden risen rode rose runs said sang sat saw seen sent shook shot showed shown "
    "shut slept slid smelt sold sought sounds spelt spent spoke spun stole stolen stood struck stuck sung swam swept "
    "swore swum taken takes taught thought threw thrown told took torn understood wants went withdrawn withdrew woke "
    "woken won wore works worn wound written wrote"
)
"""Of verbs, and forms that are verbs although their base may be a noun."""
_ADJECTIVES = (
    "absolute accurate active actual additional advanced afraid aggressive alive alone amazed amazing american angry "
    "annoyed annoying anxious apparent appealing appropriate authentic automatic available aware awful bad basic "
    "beautiful beloved best better big bigger biggest bitter black bloody blue bored boring brave breathtaking brief "
    "bright brilliant broad broader brown busy calming capable careful cathartic certain challenging cheap cheaper "
    "clear clever closer cold comfortable comfy common comparative complex complicated comprehensive concise concrete "
    "confident conflicting confusing consistent constant convenient cool cracking crazy creative crispy crucial cruisy "
    "crunchy curious current cute daunting dead decent deep deeper definite definitive delicious dense detailed "
    "different difficult dinkum direct dirty distinct dodgy dope dry dull each eager easier easiest easy efficient "
    "elegant elite embarrassing empty engaging entire epic equal essential ethical european everyday exact excellent "
    "excited exciting exclusive execute existing expensive explicit external extra extraordinary extreme fair faithful "
    "familiar famous fantastic far fast faster favorite favourite few fewer final fine firm fixed flat flexible fluffy "
    "foolproof formal former free freeing frequent fresh friendly frustrated frustrating fulfilling full fun funny "
    "furry future general generic gentle genuine glad global good gorgeous grand granular grateful gray great greater "
    "green grey gross grouse guilty handy happy hard harder healthy heartwarming heavy helpful hidden high higher "
    "highest holistic homemade honest hot huge humbling hungry ideal illustrative immediate immense immersive "
    "important impossible impressive inclusive incoming incompetent incredible independent individual informative "
    "infuriating initial inner innovative inspired inspiring intense interactive interested interesting internal "
    "invaluable invisible joyful juicy keen key kindly large larger largest lazy lighter limited lit little local "
    "logical logistical lonely long longer loose lost loud lovely low lower lowest lucky mad magic magical main major "
    "mandatory massive maximum meaningful memorable messy mild minimal minimum minor mock modern monthly more most "
    "motivating multiple nasty natural near nearby neat necessary negative nervous neutral new newer newest nice nicer "
    "noisy nonsense normal numerous obvious occupational odd offshore okay old older oldest ongoing only optimal "
    "optional orange ordinary organic original other outer outstanding overall overwhelming paramount particular "
    "passionate past patient peaceful perfect permanent personal physical pink piss plain pleasant pleased polite poor "
    "popular positive possible potential powerful practical precious precise pregnant preliminary pretty previous "
    "primary prior private proactive probable productive professional profound proper proud public pure purple "
    "qualitative quick quicker quiet rad random rare raw ready real realistic reasonable recent red refreshing regular "
    "regulatory related relative relaxed relaxing relevant reliable remaining responsible restorative rewarding rich "
    "right ripper rough round rude rustic sad safe safer salty same satisfied scared scary scenic scientific secondary "
    "secret secure sensitive sensory serious severe shaky sharp short shorter shy sick significant silly similar "
    "simple simpler single slight slower small smaller smallest smart soft sole solid solo sorry sour special specific "
    "spectacular spicy stable standard static statutory steady stellar straightforward strange strategic stressed "
    "stressful strict strong stronger stunning stupid successful such sudden suitable super supportive sure surprising "
    "suspicious suss sweet talented tall tasty temporary tentative terrible terrific thankful theoretical thick thin "
    "thoughtful thrilled tight tiny tired tough toxic traditional tranquil true typical ugly ultimate unable "
    "uncomfortable underlying unexpected unfortunate unhappy unique universal unknown unsatisfactory unusual upcoming "
    "uplifting upset urgent useful useless usual vague valid valuable various vast vegan viable vibrant visible vital "
    "warm weak weird welcoming wet white wide wild willing wise wonderful wooden worse worst worth worthwhile worthy "
    "wrong yellow young younger yummy"
)
"""In no phrase."""
_PURSUITS = (
    "accounting acting angling archery backpacking baking beekeeping birding birdwatching blogging bookbinding "
    "bouldering bowling boxing brewing budgeting calligraphy camping canning canoeing carpentry climbing coding "
    "composting cooking counseling counselling crocheting cycling dancing decluttering dieting diving drawing "
    "embroidering engineering farming fasting fencing fermenting fishing foraging fundraising gaming gardening "
    "golfing hiking homebrewing homeschooling hunting investing jogging journaling journalling kayaking kitesurfing "
    "knitting landscaping licensing marketing mentoring networking painting parenting pickling podcasting potting "
    "powerlifting programming quilting rafting reading recycling roasting rowing running sailing scrapbooking "
    "scripting sculpting sewing sightseeing singing skateboarding skating skiing snorkeling snowboarding "
    "songwriting spinning stargazing storytelling streaming surfing swimming tailoring thrifting tutoring "
    "volunteering weaving weightlifting welding whittling windsurfing woodworking worldbuilding wrestling writing"
)
"""The -ing forms that are a topic by themselves."""

DETERMINERS = words(
    "a an the my your our their his her its this that these those some any no every each another which whose"
)
OBJECTS = words("a an the my your our their his her me us it them him myself yourself ourselves themselves")
"""What stands behind a verb."""
BEFORE_VERBS = words(
    "i you we they he she it who can could will would shall should must might may cannot do does did don't doesn't "
    "didn't can't couldn't won't wouldn't shouldn't let's please gonna wanna gotta i've we've they've you've i'd we'd "
    "they'd you'd he'd she'd i'll we'll they'll you'll he'll she'll not never help helps"
)
INVERTED = words("can could will would shall should must might may do does did")
"""At the beginning of a question these stand before its subject."""
OF_PEOPLE = words(
    "says said thinks thought told tells asked asks wants wanted likes liked loves loved hates called suggested agreed "
    "lives lived works worked joined helped sent wrote and , 's"
)
"""What stands behind the name of a person at the beginning of a sentence."""
BE = words("am is are was were be been being i'm we're you're they're he's she's it's isn't aren't wasn't weren't im")
PREPOSITIONS = words(
    "of in on at for with about from by into to over under after before during between through without within against "
    "near than like via per towards toward regarding"
)
BEFORE_NOUNS = DETERMINERS | PREPOSITIONS
SKIPPED = words(
    "always also already just really often sometimes usually still even only ever actually probably maybe finally "
    "simply definitely totally basically honestly mostly mainly currently recently"
)
"""Adverbs that stand between a subject and its verb."""

_NOUNS = (
    "assembly anomaly butterfly jelly supply lily belly monopoly seaweed newsfeed vegetable timetable serverless "
    "wireless carrier courier frontier barrier atelier terrier soldier radish goldfish catfish jellyfish varnish "
    "starfish relish bible chandelier fitness wellness electricity cybersecurity insurance finance dance science "
    "freelance inheritance investment retirement immigration meditation nutrition adoption animation automation "
    "fermentation authentication vaccination fiction renovation citizenship scholarship internship entrepreneurship "
    "journalism tourism minimalism veganism journal festival cereal coral music logic ceramic mosaic climate chocolate "
    "karate furniture agriculture literature acupuncture insulation irrigation divorce pension mortgage marathon"
)
"""Nouns that are subjects, though they end as adjectives and abstract nouns do."""
LANGUAGES = words(
    "spanish french german italian japanese portuguese chinese mandarin korean arabic russian dutch latin greek hebrew "
    "hindi turkish swedish norwegian danish finnish polish czech hungarian thai vietnamese indonesian swahili"
)
"""Written with a capital, but no names."""


def _forms(bases: str) -> Iterable[str]:
    """The base, -s and -ed forms of verbs."""
    for base in bases.split():
        ends_hissing = base.endswith(("s", "sh", "ch", "x", "z", "o"))
        turns = base.endswith("y") and base[-2] not in "aeiou"
        root = base[:-1] + "i" if turns else base
        yield from (base, root + ("es" if ends_hissing or turns else "s"), root.removesuffix("e") + "ed")


def _plurals(nouns: str) -> Iterable[str]:
    for noun in nouns.split():
        turns = noun.endswith("y") and noun[-2:-1] not in "aeiou"
        yield noun
        yield noun[:-1] + "ies" if turns else noun + ("es" if noun.endswith(("s", "sh", "ch", "x")) else "s")


def _gerunds(bases: str) -> Iterable[str]:
    for base in bases.split():
        root = base.removesuffix("e") if not base.endswith("ee") else base
        yield from (root + "ing", root + root[-1] + "ing", base[:-2] + "ying" if base.endswith("ie") else base + "ing")


BREAKING = frozenset(
    {
        *STOP_WORDS, *DETERMINERS, *OBJECTS, *BEFORE_VERBS, *BE, *PREPOSITIONS, *SKIPPED,
        *_FUNCTION_WORDS.split(), *_CHAT_WORDS.split(), *_TIME_WORDS.split(), *_QUANTITIES.split(),
        *_plurals(_EMPTY_NOUNS), *_forms(_VERBS), *_forms(_PLAIN_VERBS), *_gerunds(_PLAIN_VERBS),
        *_ADJECTIVES.split(),
    } - frozenset(_plurals(_WEAK_NOUNS)) | words(_IRREGULAR_FORMS)
)  # fmt: skip
VERB_FORMS = frozenset({*_forms(_VERBS), *_forms(_PLAIN_VERBS)})
WEAK = frozenset(_plurals(_WEAK_NOUNS))
NOUNS = words(_NOUNS) | LANGUAGES | words(_PURSUITS)
