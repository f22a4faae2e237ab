"""The word lists of `phrases`: ordinary English words that say nothing, or too little, about what a text is about."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_ctxbudget.core.text import STOP_WORDS


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as a text."""
    return frozenset(text.split())


_FUNCTION_WORDS = (
    "abeg able above abroad across additionally afterwards ahead almost along alongside although always amid amidst "
    "among anybody anyone anything anyway anywhere apart aren around aside away back based behind below beside besides "
    "beyond cant consequently couldn despite didn doesn don done dont due either else enough etc even ever everybody "
    "everyday everyone everything everywhere except fam far fave faves forth forward furthermore got hadn hasn haven "
    "hence herself himself however huh indoors inside instead isn itself kinda less like likely ll many may meantime "
    "meanwhile might mine moreover much must myself near neither never nevertheless nobody none nonetheless nor "
    "nothing now nowhere offline ok okay one ones online onto ooh others otherwise ourselves outdoors outside past per "
    "perhaps phew plus quite rather re regardless round several shall shouldn since somebody somehow someone something "
    "somewhere soon sorta straight themselves therefore though throughout thus till today together towards unless "
    "unlike unto upfront upon upside ve versus via wasn well wells weren whatever whenever whereas wherever whether "
    "whichever whoever within won wouldn yes yet yourself"
)
"""Beside the stop words."""
_CHAT_WORDS = (
    "abeg abi adios aha alas alright apologies apology arre asap awesome aww bah bingo bless blimey bonjour boo bravo "
    "bro btw bye chai cheers ciao congrats congratulations crikey damn danke dear dey dude duh eek ehen folks fyi gee "
    "golly goodbye goodnight gosh gracias grazie greeting greetings guy guys haba haha heck hehe hello hey hiya hmm "
    "hola hooray hurrah hurray idk imho imo innit jeez kudos lah leh lmao lol mate meh merci nah namaste nope oga omg "
    "omo oof oops ouch oya phew pls plz prego regard regards righto salut sef sha sir sorry sure tbh thank thanks thx "
    "tysm ugh uhh umm voila wahoo wait welcome wetin whoa woah woohoo wow wowza yaar yay yeah yep yikes yippee yum yup"
)
"""Greetings, thanks, exclamations."""
_TIME_WORDS = (
    "afternoon ages ago apr april aug august autumn century daily date dates day days daytime deadline deadlines dec "
    "decade decades december earlier early evening evenings feb february first fortnight fri friday fridays future "
    "hour hours jan january jul july jun june last late lately later latest lifetime mar march midnight midweek minute "
    "minutes moment moments mon monday mondays month monthly months morning mornings next night nights noon nov "
    "november nowadays oct october overnight period present previous quarter sat saturday saturdays season seasons "
    "second seconds sep sept september spring summer sun sunday sundays term thu thursday thursdays time times timing "
    "today tomorrow tonight tue tuesday tuesdays twice wed wednesday wednesdays week weekday weekdays weekend weekends "
    "weekly weeks winter year yearly years yesterday"
)
"""Times and dates."""
_QUANTITIES = (
    "amount amounts average bit bits bucks bunch cent cents couple dollar dollars dozen eight eleven eur euro euros "
    "fifteen fifth fifty five four fourth gbp gram grams half handful hundred hundreds inch inches kgs kilo kilos kms "
    "least lot lots majority max meter meters metre metres mile miles million millions min nine number numbers pair "
    "percent percentage piece pieces plenty pound pounds quantity rest seven seventh six sixth size sum ten third "
    "thirty thousand thousands three ton tons total twelve twenty two usd whole zero"
)
"""Numbers and measures."""
_EMPTY_NOUNS = (
    "ability act advantage advice alternative amount analogy answer appreciation approach area aspect assistant "
    "attempt attention attitude aunt auntie bang basics beginning benefit blank blast bonus boss bot bottom boy "
    "boyfriend break brother buck buddy bullet bummer call capture care case category challenge champ chance change "
    "chat chatgpt cheer choice chore chunk clarification cofounder colleague comfort comparison concept condition "
    "confidence confirmation cons context conversation copy core corner count courage cousin coworker crunch curiosity "
    "dad daughter decision description detail determination difference direction disadvantage discussion dispatch "
    "display doubt downside drain drama dump effect effort element encouragement end entry error example excitement "
    "excuse experience explanation eye face fact factor failure false fan father fault favorite fear feedback feeling "
    "feet fella fiance fiancee figure file flame flatmate float flow focus foot format forth friend front fun "
    "fundamental fuss gain gap gentleman girl girlfriend gist glimpse goal god goodness gpt grandfather grandma "
    "grandmother grandpa granny gratitude grind grip group guess guy halt halves hand happiness hassle hate head "
    "headache heading heap help hint honor honour hope hubby hurry husband idea image impact importance improvement "
    "indeed influence info information inspiration instruction interest issue item joint joke joy keyword kind "
    "kindness knock lack lady lapse legend level life lifesaver limit line load look love lowdown luck man mark master "
    "mate matter meaning meantime member men mention mess message middle mind missus mistake mob mom moment mood "
    "mother motivation mum nail name nature need neighbor neighbour nephew niece nonsense note nothing notion number "
    "opinion opportunity option outset overview paragraph parent part partner pass passion peace people person "
    "perspective phrase pic piece place play playing pleasure point position positivity possibility pride problem "
    "progress prompt pronto proof pros pump purpose question quote range reason recommendation region regret relief "
    "remainder reminder rep reply request resilience respect response rest result roommate row sake scope screenshot "
    "sec section self sense sentence set shake shame shocker shout side sigh sight sign sister situation solution son "
    "sort specifics spot stage standby start state status step stop strength stress stuff subject success suggestion "
    "summary support surprise swap synthesis table tad takeaway text thing thought thrill tip title top topic trouble "
    "try turn type uncle update use user value version vibe view volume way weakness while wife wish witness woman "
    "women wonder word wording world worry yarn"
)
"""Nouns that name nothing; in no phrase."""
_WEAK_NOUNS = (
    "acceptance access account achievement action activity ad addition address adjustment adult adventure advisor "
    "advocacy age agency agenda agent aggregation agreement air airbnb alert allocation american analysis anchor "
    "android angle animal anniversary annotation announcement annual api app appliance application appointment "
    "approval approver architect area arm army array arrival art article artist ascent assessment asset assignment "
    "assistant atmosphere attraction attribute audience audio author authors autonomy availability average award "
    "awareness backend background bag baggage bake balance ball band bank banner bar base batch bath beat beauty bed "
    "beginner behavior behavioral behaviour bench bill birthday block blogger blueprint blur body bond book booking "
    "border bottle bottleneck boutique bowl box brain brainstorming branch brand breach breakdown breakfast breeder "
    "brew briefing browser brush bucket buffer builder building burden bureaucratic bus business butter button cable "
    "cafe cage calculation callback camp campaign campground candidate candy canvas capability capital card cash "
    "celebration cell center centre ceo cert cfo chain chair champion championship channel chaos character charge "
    "chart check checklist checkout checkup child children chord chorus christmas circle citizen city claim class "
    "classmate clause cli client climb clock clothes coach code coin cold collaboration collection college color "
    "colour column comment commercial commission commit commitment communication community company compassion "
    "competition completion compliance component computer concentration concern concierge conditioner config "
    "configuration connection contact container content contest contractor control conversational correction "
    "correlation cost couch country course court coverage cpu crafter creativity creator credit crew crisis criteria "
    "critical critique crown crumb crust csv cto culture cup curve cycle damage dark data day deal dedication defect "
    "definition degree delay deliverable delivery demand department departure dependent deploy design desk developer "
    "development device diagram dialogue digital diligence dining directive disaster discount discrepancy disease disk "
    "dispute distance dive diversity division diy doc document domain door dose draft dream drink drive driving drug "
    "duty dynamics ear earth ecosystem edge edition education effectiveness efficiency electric email emergency "
    "emotion emotional employer energy engagement engine engineer enjoyment enthusiasm entropy environment equality "
    "equation equipment escape essence european event evidence exercise expectation expense expert exposure factory "
    "faith family faq fashion feature fee feeder field financial finger fire fix flag flat flavor flavour flexibility "
    "floor flyer folder food forecast fork form formula foundation frame framework freedom friction friendship front "
    "frontend frozen fruit function fund game gate gear gender generation generator genre gift gig glass goal goods "
    "government grade graph graphics ground group growth gui guide guideline habit hall hardware header health heart "
    "heat height hill hip historical history hobby hole home homeowner hometown hook host hostel hr html http https "
    "human humans hustle hustler ice icon id ide identity idiom image implementation implication incident income "
    "increment individual industry infrastructure initiative inn input inquiry insight instance instant institution "
    "instruction instructor integration interaction interface internet interval interview introduction ios island jar "
    "jargon job journey json judge key kit knowledge kpi label lake land language launch law layout layover leader "
    "leadership leaf league legal length letter leverage liability lid lifestyle light limitation line link lip list "
    "listener loaf location lodge logging login logistics loop loss lunch lyric machine magnet mail maintenance "
    "management manager map match material matrix meat mechanism media meeting membership memory mental mentor metal "
    "method metric mileage milestone milk mobile mode model modes module momentum money monitoring mountain mouth move "
    "movement narrator neighborhood neighbourhood nest net network news night node nose notebook notification nutrient "
    "object objective offer office official online operation opponent order organisation organization organizer "
    "outline output overall oversight owner pace package page pain pairing pal palette pan paper paperwork parameter "
    "participant party passenger path patience patient pattern pdf peak peer performance permission persona personnel "
    "phase phone photo photographer physician picture pill plan planner planning plastic plate platform player "
    "playground pod police policy population port post pound power practice precision premium prep preparation "
    "president pressure price principle print priority privacy prize pro probe procedural procedure process product "
    "production professor profile profit program project projection property protagonist protocol provider proxy "
    "public publisher pup purchase qa quality query queue rate reader realist reality receipt record recovery "
    "reference region register regulation relationship release religion remote repo report repository request "
    "requirement research resident residential resolution resort resource responsibility restaurant retail retrieval "
    "retry return review revision ride rights risk road robust roi role room route routine rule run safety sale salt "
    "sample sand saving scale scam scan scenario scene schedule school score scoring sea security selection semester "
    "series service session setback setting setup shape share sheet shift shortlist show sibling sightseeing signal "
    "signature silence site sketch skill sky slide sneaker social society soda software solar soul source space "
    "speaker spec specialist specification speed sport sprint sql square stack staff stage stakeholder standard star "
    "starter startup state statement station stock stone stop store storm story strategic strategy stream street "
    "stretch string structure student studio study style subtopic sun support surf surface switch symbolism symptom "
    "sync system tab tag talent target task taste tasting team teammate tech technical technician technique technology "
    "temperature template tempo terminal terms test testing textbook theme theory thread throughput timeline timeout "
    "tin tldr toe token tone tool touch tour tourist tower town track tracking tradition traffic training transaction "
    "transfer transition transport travel traveler traveller tray treat treatment trick trip tune tutor ui unit upload "
    "urgency url utility uuid ux variable varietal variety verse version video viewer visit visitor voice volunteer "
    "vote walk war warmth warning waste wave website weekend weight width wind window wisdom work worker workload "
    "writer xml youth zone"
)
"""Nouns, and adjectives that name a field, which are no topic by themselves but in company: "tax return"."""
_CONCRETE_NOUNS = (
    "advertisement airline airport album algorithm ankle apartment aquarium architecture attic attorney baby backlog "
    "backup bakery balcony basement bathroom bathtub battery beach bean bedroom bike bird blanket blog bookshelf brake "
    "bread bridge brochure budget bug build cache calendar calorie camera campsite car career cart cat certificate "
    "chapter charity cheese chest chicken church cinema circuit clinic club cluster commute concert conference "
    "contract crash customer customs dashboard database daycare deadlock debt demo dentist dependency deployment "
    "deposit diagnosis dinner dish doctor dog dough downtime drummer economy editor egg embassy employee endpoint "
    "episode essay exam exhibition film fish flashcard flight flour flower font forest fridge fuel fundraiser gallery "
    "garage garden glossary grocery guest guitarist gym hair handler heating helmet hike hive holiday homework horse "
    "hospital hotel house inflation ingredient injury inventory investor invoice itinerary jersey kernel keyboard kid "
    "kindergarten kitten knee knife lab lamp landlord laptop latency lawyer lease leash lecture leg lesson library "
    "license lighting litter loan log logo luggage lyrics magazine market meal medal medication medicine melody menu "
    "migration mirror moon motor movie muscle museum mvp neck newsletter noise nurse ocean oil outage oven overtime "
    "paint pantry parade park parser passport password patch payment pet piano pipeline pitch plant playlist plot pool "
    "portfolio poster pot prescription printer procurement proposal protein pub pupil puppy quiz race rain recipe "
    "redesign refactoring refund rehearsal relocation rent rental revenue rice river roadmap rollback rollout roof "
    "runner saddle salary sauce schema screen script sdk seat seminar sensor server shelf shelter shirt shoe shop "
    "shoulder singer skin smoke snack snow sofa song speech spoon spreadsheet staging standup stomach stove stroke "
    "subscription suburb sugar suitcase supplier surgeon surgery syllabus tank tax teacher telescope tenant tent "
    "theater theatre therapist thesis ticket tire toilet tooth tournament trail train treadmill tree trophy truck "
    "tutorial tyre uniform university vacation veggie vehicle vendor venue vet veteran village violin visa vitamin "
    "wall wardrobe water weather webapp webhook wedding wheel winner wood workout workshop yard yeast"
)
"""Nouns that may be a topic by themselves, and may be verbs or stand beside the subject: only in a noun's place."""
_VERBS = (
    "accept achieve activate adapt adjust admit afford agree align analyse analyze annotate announce apologise "
    "apologize appear apply appreciate approve argue arrange arrive assign assist attach bake beat belong bend bite "
    "blow borrow bounce breathe brew browse bump burn calculate can cancel care categorize cease chase chuck claim "
    "clarify clean close collect combine commit communicate complain concentrate conclude confuse contain contribute "
    "convert convince cook coordinate cope correct crash cry deepen define delete deliver denoise deny deserve destroy "
    "determine develop differ disagree disappear discover disengage dive double download draw drink earn ease "
    "elaborate embrace empower encourage engage enhance enter establish examine exhaust exist expand expose express "
    "extend extract fancy fascinate feed fetch fight filter finalise finalize fly force forget forgive format fulfill "
    "gather generate grab guess hesitate hide highlight hire identify ignore implement impress increase indicate "
    "inform initiate insist install integrate intend introduce invest invite jot juggle jump kick kill land last laugh "
    "lend leverage lift list load lock mark match mix modify motivate narrow navigate obtain occur operate organise "
    "organize overcome pack participate perform permit persuade plug postpone pour press pretend prevent print "
    "prioritise prioritize proceed promise promote pronounce propose protect prove publish qualify quit quote raise "
    "react realise realize rebook recall recap receive reckon recognise recognize recommend recover rectify redo "
    "reduce refer refine refresh refuse regret reject relate relax release rename renew reorganize repair repeat "
    "represent request reschedule reserve reset resolve respect restore rethink retrieve reveal revise rewrite rid "
    "ring roll rush satisfy scare scrape seek separate serve settle shift shorten shout shut sign skip slip slow smell "
    "smile smooth snap speak specify split spread squash squeeze squiz steal streamline stress stretch strike submit "
    "succeed suffer summarise summarize suppose suspect switch synthesise synthesize tackle tag tailor taste teach "
    "tend throw tidy tie tighten top touch transform translate trigger tweak upgrade uplift upload urge used validate "
    "verify volunteer vote walk wander wash weigh welcome wipe witness wow yell zoom"
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
    "bright brilliant broad broader broken brown busy calming capable careful cathartic certain challenging cheap "
    "cheaper clear clever closer cold comfortable comfy common comparative complex complicated comprehensive concise "
    "concrete confident conflicting confusing consistent constant convenient cool cracking crazy creative crispy "
    "crucial cruisy crunchy curious current custom cute daunting dead decent deep deeper definite definitive delicious "
    "dense detailed different difficult dinkum direct dirty distinct dodgy domestic dope dry dull each eager easier "
    "easiest easy efficient elderly elegant elite embarrassing empty engaging entire epic equal essential ethical "
    "european everyday exact excellent excited exciting exclusive execute existing expensive explicit external extra "
    "extraordinary extreme fair faithful familiar famous fantastic far fast faster favorite favourite few fewer final "
    "fine firm fixed flat flexible fluffy foolproof formal former free freeing frequent fresh friendly frustrated "
    "frustrating fulfilling full fun funny furry future general generic gentle genuine glad global good gorgeous grand "
    "granular grateful gray great greater green grey gross grouse guilty handy happy hard harder healthy heartwarming "
    "heavy helpful hidden high higher highest holistic homemade honest hot huge humbling hungry ideal illustrative "
    "immediate immense immersive important impossible impressive inclusive incoming incompetent incredible independent "
    "individual informative infuriating initial inner innovative inspired inspiring intense interactive interested "
    "interesting internal invaluable invisible joyful juicy keen key kindly large larger largest lazy leaky lighter "
    "limited lit little local logical logistical lonely long longer loose lost loud lovely low lower lowest lucky mad "
    "magic magical main major mandatory massive maximum meaningful memorable messy mild minimal minimum minor mock "
    "modern monthly more most motivating multiple nasty natural near nearby neat necessary negative nervous neutral "
    "new newborn newer newest nice nicer noisy nonsense normal numerous obvious occupational odd offshore okay old "
    "older oldest ongoing only optimal optional orange ordinary organic original other outer outstanding overall "
    "overdue overwhelming paramount particular passionate past patient peaceful perfect permanent personal physical "
    "pink piss plain pleasant pleased polite poor popular positive possible potential powerful practical precious "
    "precise pregnant preliminary pretty previous primary prior private proactive probable productive professional "
    "profound proper proud public pure purple qualitative quick quicker quiet rad random rare raw ready real realistic "
    "reasonable recent red refreshing regular regulatory related relative relaxed relaxing relevant reliable remaining "
    "responsible restorative rewarding rich right ripper rough round rude rustic sad safe safer salty same satisfied "
    "scared scary scenic scientific secondary secret secure sensitive sensory serious severe shaky sharp short shorter "
    "shy sick significant silly similar simple simpler single slight slower small smaller smallest smart soft sole "
    "solid solo sorry sour special specific spectacular spicy stable standard static statutory steady stellar "
    "straightforward strange strategic stressed stressful strict strong stronger stunning stupid successful such "
    "sudden suitable super supportive sure surprising suspicious suss sweet talented tall tasty temporary tentative "
    "terrible terrific thankful theoretical thick thin thoughtful thrilled tight tiny tired tough toxic traditional "
    "tranquil trans true typical ugly ultimate unable uncomfortable underlying unexpected unfortunate unhappy unique "
    "universal unknown unpaid unsatisfactory unusual upcoming uplifting upset urgent useful useless usual vague valid "
    "valuable various vast vegan viable vibrant visible vital warm weak weird welcoming wet white wide wild willing "
    "wise wonderful wooden worse worst worth worthwhile worthy wrong yellow young younger yummy"
)
"""In no phrase."""
_ALSO_VERBS = (
    "bike blog book budget bug camp cart coach cycle draft dream drum film fish flower fund garden hike host house "
    "invoice judge leash medal menu park patch plant plot pool poster race rain rent resume review rocket roof script "
    "shelter shop crash log ski skin smoke snack snow soap stage stream surf tank tax train tutor volunteer water "
    "wheel wood"
)
"""Nouns that are verbs as well, beside those in the lists of verbs."""
_PURSUITS = (
    "accounting acting angling archery backpacking baking beekeeping birding birdwatching blogging bookbinding "
    "bouldering bowling boxing brewing budgeting calligraphy camping canning canoeing carpentry climbing coding "
    "composting cooking counseling counselling crocheting cycling dancing decluttering dieting diving drawing "
    "embroidering engineering farming fasting fencing fermenting fishing foraging fundraising gaming gardening golfing "
    "hiking homebrewing homeschooling hunting investing jogging journaling journalling kayaking kitesurfing knitting "
    "landscaping licensing marketing mentoring networking painting parenting pickling podcasting potting powerlifting "
    "programming quilting rafting reading recycling roasting rowing running sailing scrapbooking scripting sculpting "
    "sewing sightseeing singing skateboarding skating skiing snorkeling snowboarding songwriting spinning stargazing "
    "storytelling streaming surfing swimming tailoring thrifting tutoring volunteering weaving weightlifting welding "
    "whittling windsurfing woodworking worldbuilding wrestling writing"
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
    "acupuncture adoption agriculture allotment ambulance animation anomaly apprenticeship archive arithmetic arrival "
    "assembly atelier auction authentication autism automation barrier bedding belly bible billing branding brewery "
    "butterfly caching canal canary candle carrier catering catfish cathedral ceiling ceramic cereal chandelier "
    "chocolate citizenship climate clothing cooperative coral courier crystal cybersecurity dance depression detective "
    "detergent diary dictionary digestion dissertation divorce documentary documentation earring electricity elephant "
    "encryption entrepreneurship estate expedition experiment fabric fence fermentation fertility festival fiction "
    "finance fitness flooring freelance frontier frosting funeral furniture garlic garment goldfish graduation gravity "
    "hosting housing hypertension illness illustration immigration infection inflammation inheritance installation "
    "instrument insulation insurance internship investment irrigation jelly jellyfish journal journalism karate lily "
    "literature localization logic manual marathon mechanic meditation merchant mineral minimalism monopoly mortgage "
    "mosaic music negotiation newsfeed novel nutrition onboarding ornament packaging pagination parking parliament "
    "pension petition picnic pigment plumbing portal presentation pricing pronunciation pudding radish referral relish "
    "renewal renovation reservation residence retirement scholarship science seaweed sediment sequence serverless "
    "shipment shipping sibling simulation soldier starfish string supplement supply television terrier tiling "
    "timetable tourism translation trial vaccination varnish veganism vegetable ventilation vocabulary wellness "
    "wilderness wireless wiring"
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


WEAK = frozenset(_plurals(_WEAK_NOUNS))
CONCRETE = frozenset(_plurals(_CONCRETE_NOUNS))
ONLY_IN_COMPANY = words(
    "back break call check cover cut dive drop entry feed file files flow front group guide head image item level line "
    "match note notes play point press pump reading record records release run running set shed side sleep speaking "
    "split step swimming table tag talk text top track version walk wash watch writing"
)
"""Verbs, and nouns that name nothing, that are part of a name all the same: "cover letter", "reading list"."""
PARTS_OF_DAY = words("day night morning evening weekend summer winter")
"""They say what kind of thing follows: "night shift"."""
BREAKING = frozenset(
    {
        *STOP_WORDS, *DETERMINERS, *OBJECTS, *BEFORE_VERBS, *BE, *PREPOSITIONS, *SKIPPED,
        *_FUNCTION_WORDS.split(), *_CHAT_WORDS.split(), *_TIME_WORDS.split(), *_QUANTITIES.split(),
        *_plurals(_EMPTY_NOUNS), *_forms(_VERBS), *_forms(_PLAIN_VERBS), *_gerunds(_PLAIN_VERBS),
        *_ADJECTIVES.split(),
    } - WEAK - CONCRETE - PARTS_OF_DAY | words(_IRREGULAR_FORMS)
)  # fmt: skip
VERB_FORMS = frozenset({*_forms(_VERBS), *_forms(_PLAIN_VERBS)})
ALSO_VERBS = (VERB_FORMS | frozenset(_forms(_ALSO_VERBS))) & (CONCRETE | WEAK)
"""Nouns only in a noun's place."""
ORDINARY = BREAKING | WEAK | CONCRETE
ADJECTIVES = words(_ADJECTIVES)
NOUNS = words(_NOUNS) | LANGUAGES | words(_PURSUITS) | CONCRETE
