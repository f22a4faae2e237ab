"""The words that `naming` reads names by: what stands around a name, and what only looks like one."""

from __future__ import annotations


def word_set(*lists: str) -> frozenset[str]:
    """The words of some texts."""
    return frozenset(" ".join(lists).split())


def phrases(text: str) -> frozenset[str]:
    """The phrases of a text, which commas part."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


ALSO_GIVEN = word_set(
    "april may june august jordan paris sydney chelsea austin georgia florence victoria charlotte india brooklyn",
    "carolina savannah israel sofia virginia alexa claude siri alice bob leonardo thor christian santiago phoenix",
    "jesus muhammad",
)
"""Words that are no names by themselves, but are where the text calls a person so."""
SHY = word_set(
    "will mark grace hope rose art bill jack chase jasmine joy faith dawn summer autumn ruby amber crystal pearl iris",
    "violet lily daisy heather ivy holly olive ginger sky angel frank grant drew chip rich rob pat sue max ray dean",
    "don gene guy hunter miles page penny robin sandy skip stone wade ward clay cliff dale dusty earnest forest glen",
    "harmony melody mercy misty patience reed river star sterling trinity tiffany porter cooper carter mason parker",
    "tyler taylor morgan jean lane dick victor major duke earl prince king storm flint basil rusty",
)
"""Given names that are words too: no evidence by themselves."""
GIVEN = word_set(
    "aaron abby abigail adam adrian agnes ahmed aisha alan albert alejandro alex alexander alexandra alexis alfred",
    "ali alicia alison allison alma alvaro amanda amelia amir amy ana anastasia andrea andreas andrei andrew andy",
    "angela anika anita anja anna anne annie anthony antonio antoine anya arjun arthur arun asha ashley astrid audrey",
    "ava barbara beatrice beatriz becky ben benjamin bernd bernard beth betty bianca birgit bjorn bob boris brad",
    "brandon brenda brian bruce bruno bryan camila camille carl carla carlos carmen carol caroline catherine cathy",
    "cecilia charles charlie chiara chloe chris christina christine christoph christopher cindy claire clara claudia",
    "colin connor craig cristina cynthia dan daniel daniela danielle danny dave david deborah deepak denise dennis",
    "derek diana diane diego dieter dimitri dmitri dominic donald donna doris dorothy doug douglas dylan ed eddie",
    "edith eduardo edward elaine elena eli elias elif elijah elisa elizabeth ella ellen ellie elsa emil emilia emily",
    "emma enrique eric erica erik erin ernest esther ethan eva evan eve evelyn fabian fabio farah fatima fatma felipe",
    "felix fernando fiona francesca francesco francis francisco franz fred freddie frederik friedrich gabriel",
    "gabriela gary gavin george gerald gerard gina giovanni giulia gloria gordon greg gregory greta guillermo gustav",
    "hannah hans harold harriet harry hassan heidi heinz helen helena helga henrik henry hiroshi hugo ian ibrahim",
    "ines ingrid irene irina isaac isabel isabella ivan jacob jake jakob james jamie jan jana jane janet janice jason",
    "javier jeff jeffrey jennifer jenny jeremy jerry jesse jessica jill jim jimmy joan joanna joe joel johan johannes",
    "john johnny jon jonas jonathan jorge jose joseph joshua juan juanita judith judy julia julian julie juliette jun",
    "jurgen jörg jürgen justin kai karen karim karin karl karla kate katerina katherine kathleen kathy katie katja",
    "katrin kavita keiko keith kelly ken kenji kenneth kevin khalid kim klara klaus kristen kristina kumar kurt kyle",
    "lara lars laura lauren laurent lea leah lee leila lena leo leon leonie leslie liam lin linda ling lisa liz",
    "lorenzo lotte lou louis louise luca lucas lucia lucy luis luisa luka lukas luke lydia maddie madison magnus",
    "mahmoud maja manuel marc marcel marco marcos marcus margaret maria marian marie marina mario marion marta martha",
    "martin martina mary mateo mathilde matt matteo matthew matthias maya megan mehmet mei melanie melissa mia",
    "michael michaela michelle miguel mikhail mila milena ming miranda miriam mohamed mohammed molly monica monika",
    "nadia nancy naomi natalia natalie nate nathan neha neil nicholas nick nicola nicolas nicole nikhil niko nikolai",
    "nils nina noah noor nora oksana oleg olga oliver olivia omar oscar otto pablo paolo patricia patrick paul paula",
    "pauline pavel pedro peggy pete peter petra phil philip philipp pierre piotr priya rachel rafael rahul raj rajesh",
    "ralf ramon raphael rashid raul raymond rebecca renate rene ricardo richard rick rita robert roberto rodrigo",
    "roger roman ron ronald rosa rosie roy ruth ryan sabine sally salma sam samantha samir samuel sandra sanjay sara",
    "sarah sasha scott sean sebastian selma mike josh tyler ann serena sergei sofia charlotte sergio sergey shannon",
    "sharon sheila shreya silvia simon simone sofía sonia sophia sophie stan stefan stefanie stella stephanie stephen",
    "steve steven stuart sunita susan susanne suzanne sven svetlana tamara tanja tanya tara tatiana ted teresa terry",
    "theo theresa thomas tim timo tina tobias toby todd tom tomas tommy tony tracy ulrich ulrike ursula valentina",
    "valeria vanessa vera veronica vicky vikram vincent vladimir walter wei wendy werner wilhelm william wolfgang",
    "xavier yan yasmin yolanda youssef yuki yuri yusuf yvonne zach zack zara zoe",
)
STARTERS = word_set(
    "a about actually add after again all alright also although always am an and another any anything anyway are as",
    "ask at avoid based be because been before being best between both bring btw build but buy by call called can",
    "cancel cc change check choose come compare contact continue convert could create currently day delete describe",
    "design did do does doing don't draft dear during each earlier either email even ever every everything explain",
    "extract figure final finally find finish first fix for forget format forward found from generally generate get",
    "getting give given go going good got great had happy has have having he hello help her here here's hey hi him",
    "his hope hopefully how however i if imagine in instead invite is isn't it it's its just keep last lately later",
    "learn leave less let let's like list look looking lunch dinner breakfast make making many maybe me meet meeting",
    "met might mine more most move much must my near need never new next nice no none not nothing now of off often oh",
    "on once one only open or order other our out over part pay perhaps ping plan planning play please prefer",
    "probably provide put quick quite rather re read reading really recently remember remind reply review rewrite",
    "right run same saw say schedule see send set several she should show similarly simply since so some something",
    "sometimes soon sorry spoke start still stop suggest summarize summarise suppose sure switch take talk talked",
    "tell text than thank thanks that that's the their them then there there's therefore these they they're thing",
    "things think this those though through thus to today tomorrow tonight too translate try turn two three under",
    "unfortunately unless until up update us use used using very via visit wait walk want was watch we we're we've",
    "weren't well went were what what's when where where's which while who who's whose why will with without wonder",
    "work working works would write writing wrote yes yesterday yet you you're your yours fwiw imo apparently",
    "obviously basically honestly besides otherwise meanwhile overall kind guess wish welcome congrats heard coffee",
    "drinks interview party trip flight visiting asked told emailed texted introduce assign hire share note reminder",
    "question status birthday merry someone nobody everyone anyone everybody people mom mum dad gotta gonna wanna",
    "deploy install configure debug test refactor implement migrate upgrade rename replace remove according regarding",
    "concerning despite unlike except per inside outside across around against toward within sounds looks seems feels",
    "makes feel love hate enjoy miss loved hated enjoyed missed bought sold booked ordered paid cook bake join joined",
    "left started finished moved live lived born raised married engaged thats whats id ill customers clients users",
    "students teachers parents kids children friends engineers colleagues managers employees developers doctors",
    "scientists researchers experts critics folks guys",
)
"""Words that are capitalised because a sentence begins with them."""
TITLES = word_set("dr mr mrs ms mx prof professor doctor sir dame frau herr señor señora")
KIN_TITLES = {"aunt": "aunt", "auntie": "aunt", "aunty": "aunt", "uncle": "uncle", "grandma": "grandmother",
              "grandpa": "grandfather", "granny": "grandmother", "nana": "grandmother", "coach": "coach",
              "cousin": "cousin"}  # fmt: skip
RELATIONSHIPS = word_set(
    "sister brother mother father mom mum dad mama papa parent son daughter child kid wife husband spouse partner",
    "fiancé fiancée fiance fiancee girlfriend boyfriend ex ex-wife ex-husband ex-girlfriend ex-boyfriend aunt uncle",
    "cousin niece nephew grandmother grandfather grandma grandpa granny grandson granddaughter grandchild godmother",
    "godfather godson goddaughter stepmother stepfather stepdad stepmom stepson stepdaughter stepbrother stepsister",
    "half-sister half-brother sister-in-law brother-in-law mother-in-law father-in-law son-in-law daughter-in-law",
    "sibling twin baby toddler hire guest friend bestie buddy mate pal acquaintance flatmate roommate housemate",
    "neighbour neighbor landlord landlady tenant manager boss supervisor lead colleague coworker co-worker teammate",
    "cofounder co-founder mentor mentee intern trainee report assistant client customer investor advisor adviser",
    "contractor freelancer recruiter accountant lawyer attorney doctor dentist gp therapist psychologist physio",
    "physiotherapist nurse midwife vet trainer coach tutor teacher professor student pupil classmate babysitter nanny",
    "cleaner gardener plumber electrician mechanic hairdresser agent realtor stylist barber pastor priest rabbi",
    "bandmate drummer bassist singer guitarist conductor captain dungeon-master cat dog puppy kitten rabbit bunny",
    "hamster parrot horse pony goldfish tortoise turtle snake lizard ferret budgie guinea-pig canary labrador",
    "retriever poodle beagle terrier corgi dachshund spaniel collie husky goat donkey hen pet counselor counsellor",
    "carer caregiver pediatrician paediatrician cardiologist dermatologist surgeon oncologist",
)
JOBS = word_set(
    "ceo cto cfo coo cmo cpo vp director head engineer developer programmer designer architect analyst scientist",
    "researcher consultant accountant lawyer attorney doctor nurse teacher professor lecturer librarian journalist",
    "editor writer photographer illustrator animator producer marketer salesperson recruiter administrator secretary",
    "receptionist assistant manager lead supervisor founder cofounder co-founder owner chef cook baker barista waiter",
    "electrician plumber carpenter mechanic pilot firefighter dentist surgeon vet pharmacist therapist psychologist",
    "coach trainer tutor intern student freelancer contractor maintainer tester sysadmin admin dba sre pm po",
    "president chairman chairwoman chair treasurer principal headmaster dean bookkeeper controller translator",
    "musician painter paramedic biologist chemist physicist economist geologist statistician builder realtor",
    "physiotherapist paralegal solicitor barrister judge politician mayor midwife cardiologist dermatologist",
    "radiologist pediatrician historian author poet novelist florist curator composer sculptor actor actress dancer",
    "pianist violinist cellist podcaster blogger farmer beekeeper potter tailor",
)
"""What a person does; also read as titles."""
PEOPLE = word_set("guy man woman girl boy person someone somebody lady kid baby gentleman dude bloke")
PLURALS = {
    "kids": "child", "children": "child", "parents": "parent", "twins": "child", "wives": "wife", "babies": "baby",
    "puppies": "puppy", "bosses": "boss", "coworkers": "coworker", "sons": "son", "daughters": "daughter",
    "sisters": "sister", "brothers": "brother", "siblings": "sibling", "friends": "friend", "cousins": "cousin",
    "cats": "cat", "dogs": "dog", "colleagues": "colleague", "teammates": "teammate", "cofounders": "cofounder",
    "co-founders": "co-founder", "managers": "manager", "roommates": "roommate", "flatmates": "flatmate",
    "housemates": "housemate", "neighbours": "neighbour", "neighbors": "neighbor", "clients": "client",
    "students": "student", "nephews": "nephew", "nieces": "niece", "grandkids": "grandchild", "boys": "son",
    "girls": "daughter", "grandchildren": "grandchild", "interns": "intern", "reports": "report", "mentors": "mentor",
    "buddies": "buddy", "mates": "mate", "uncles": "uncle", "aunts": "aunt", "grandparents": "grandparent",
    "designers": "designer", "developers": "developer", "engineers": "engineer", "rabbits": "rabbit", "hens": "hen",
    "classmates": "classmate", "bandmates": "bandmate", "investors": "investor", "partners": "partner",
}  # fmt: skip
MODIFIERS = word_set(
    "internal",
    "older younger elder eldest oldest youngest big little best good close old dear new former late ex current direct",
    "lead senior junior chief team project product account engineering marketing sales design technical first second",
    "great twin baby adopted step previous other only first-born childhood college university school work gym lovely",
    "wonderful amazing beloved long-time longtime german english french spanish backend frontend front-end back-end",
    "data software dance piano guitar violin math maths yoga family personal real estate executive general rescue",
    "golden border bernese black white tabby siamese orange fat tiny 'small next-door upstairs downstairs head fellow",
    "trusted fiance ux ui web mobile staff principal qa devops security platform study chess running climbing tennis",
    "business physical speech department regional potential main biggest largest key future soon-to-be teenage own",
    "side hobby newborn pet freelance swim swimming driving music thesis phd academic newest operations finance hr",
    "legal",
)
ORGANISATION_NOUNS = word_set(
    "company startup start-up firm agency employer client customer vendor supplier competitor bank university college",
    "school nonprofit non-profit charity ngo studio consultancy brand organisation organization publisher retailer",
    "manufacturer provider club gym church hospital clinic band lab institute shop store bakery restaurant café cafe",
    "business partner contractor distributor bookstore brewery foundation cooperative bootcamp accelerator incubator",
    "roastery distillery salon farm pub creamery dairy gallery hostel guesthouse insurance insurer joinery newspaper",
    "magazine choir orchestra team league union association theatre theater society carrier dealer garage council",
    "federation winery vineyard nursery hotel airline caterer printer workshop co-op",
)
CALLED_NOUNS_ONLY = word_set("band shop store bakery restaurant café cafe school club gym church brewery")
"""Organisations only when the text says "called"; "my gym Monday" says nothing."""
PROJECT_NOUNS = word_set(
    "project app game website site product library repo repository platform tool bot plugin newsletter podcast blog",
    "side-project prototype initiative codebase service package extension framework programme program saas chatbot",
    "cli crm script dashboard api course zine mvp engine portal channel",
)
TOOL_NOUNS = word_set(
    "tool library framework plugin editor database app software package extension program ide language service",
    "platform website site",
)
"""With "a" before them and nobody who makes them, a tool of others."""
ORGANISATION_ENDS = word_set(
    "inc ltd llc gmbh corp corporation ag plc llp limited sarl s.a se kg bv nv oy ab oü pty co sa srl spa",
    "incorporated",
)
ORGANISATION_WORDS = word_set(
    "university college bank institute hospital school labs laboratories foundation group company systems",
    "technologies ministry club airlines airways partners agency studios consulting solutions ventures holdings",
    "industries academy clinic insurance pharmaceuticals motors logistics robotics analytics software media press",
    "museum council association society federation department commission authority trust charity energy bakery",
    "brewery universität universidad université polytechnic church network dynamics enterprises associates bookstore",
)
ORGANISATION_HEADS = word_set(
    "university college bank institute school ministry department museum academy church hospital"
)
ORGANISATIONS = phrases(
    "google, microsoft, amazon, apple, meta, facebook, netflix, ibm, siemens, bmw, sap, oracle, intel, nvidia, amd, "
    "tesla, spacex, nasa, samsung, sony, nintendo, toyota, volkswagen, bosch, philips, nokia, ericsson, spotify, "
    "uber, airbnb, stripe, shopify, paypal, mit, stanford, harvard, yale, cern, openai, anthropic, deloitte, "
    "accenture, mckinsey, pwc, kpmg, goldman sachs, jp morgan, deutsche bank, barclays, hsbc, ikea, nike, adidas, "
    "pfizer, novartis, roche, bayer, basf, lufthansa, ryanair, boeing, airbus, zalando, booking.com, twitter, "
    "linkedin, walmart, target, costco, starbucks, mcdonald's, unicef, eth, ucla, nhs, bbc, vodafone, unilever, "
    "nestle, nestlé, dhl, fedex, ups, at&t, y combinator, red hat, ey, cisco, dell, hp, lenovo, twilio, palantir, "
    "databricks"
)
"""Accepted with weak evidence; most may be tools or brands elsewhere."""
MEETING = word_set(
    "hiking skiing climbing camping cooking running swimming vacation holiday studying relationship engaged talk",
    "talked talking talks speak spoke speaking spoken chat chatted chatting lunch dinner breakfast coffee drinks",
    "drink meeting met meet call date appointment trip argue argued arguing argument fight fought sync interview pair",
    "paired pairing discuss discussed discussing conversation 1:1 one-on-one catch caught catching hang hung hanging",
    "break broke breaking live living lives agree agreed disagree disagreed weekend brunch walk session staying stay",
    "travel travelling traveling play playing played share sharing shared married flat catch-up hike gym movies went",
    "check checked checking up moving",
)
"""Before "with" and a name, these say that it is a person."""
SPEAKING = word_set(
    "talk talked talking talks speak spoke speaking spoken said write wrote writing reply replied replying married",
    "engaged explain explained explaining show showed forward forwarded sent send sending mention mentioned introduce",
    "introduced report reports reported reporting apologize apologise apologized apologised gave lent listen listened",
    "listening complain complained proposed present presented pitch pitched hand handed email emailed message",
    "assigned assign delegate delegated lied text texted promised promise sold gift next close related thanks reach",
)
"""Before "to" and a name, these say that it is a person."""
ADDRESSING = word_set(
    "met told tell asked ask text texted email emailed thank thanked invite invited dating dated miss pinged ping",
    "remind reminded cc meet marry hug babysit hired fired mentor mentored mentoring congratulate congratulated",
    "introduced phoned messaged interviewed convince convinced persuade persuaded married babysitting texting",
    "emailing asking telling meeting inviting interviewing notify let help helped helping owe owes owed",
)
"""Before a name, these say that it is a person."""
GIVING = word_set("gift present party card cake presents flowers toast speech birthday shower surprise cooking babysit")
DONE_BY = word_set(
    "reviewed recommended sent approved assigned led managed designed suggested proposed reported done made"
)
HUMAN_VERBS = word_set(
    "told lives loves hates texted emailed phoned thinks feels cried married says said asked wants promised mentioned",
    "suggested complained forgot agreed believes prefers insists insisted thought wrote replied knows refuses refused",
    "recommended hopes plays cooks cooked turned speaks sings studies majored graduated retired teaches taught quit",
    "snores barks meows resigned drives babysits invited apologised apologized joked broke hurt fell worries turns",
    "goes sleeps ate eats drank wears dreams disagrees disagreed reckons swears manages reports sits took leads works",
)
"""After a name, these say that it is a person."""
VERBS = HUMAN_VERBS | word_set(
    "is was has had will would can can't could should does did doesn't didn't isn't wasn't won't needs need keeps",
    "likes liked loved wanted got gets came comes left leaves joined moved started starts went gave gives made makes",
    "called calls sent sends showed found runs ran owns helped helps just also always never still really recently",
    "usually works worked lived lead led handles handled joins are were have used uses bought sold met became becomes",
    "offered founded built raised hired acquired announced writes reads owes died passed",
)
BELONGINGS = word_set(
    "birthday wedding house mom mum dad parents kids wife husband party place flat apartment feedback opinion funeral",
    "surgery boyfriend girlfriend desk sister brother mother father son daughter dog cat email number calendar boss",
    "manager advice idea suggestion recipe laptop phone car room school baby baptism graduation anniversary team",
)
WORK = word_set(
    "work works worked working job jobs intern interning interned internship position role employed offer engineer",
    "manager developer designer study studies studied studying student degree phd master masters bachelor teach",
    "teaches taught lecturer professor interview interviewing interviewed career gig started start starting",
    "researcher consultant analyst director colleague colleagues boss team ceo cto cfo coo vp accountant scientist",
    "nurse hired postdoc postdoctoral lead head employee friend contact contacts years recruiter rep people someone",
    "guys architect consulting freelancing volunteer volunteering volunteered freelance consult founder associate",
    "teacher doctor lawyer sales marketing engineering account shift",
)
"""Some words before "at" and a name, these say that it is an organisation."""
WORK_FOR = word_set(
    "volunteer volunteering",
    "work works worked working consult consulting consulted freelance freelancing freelanced contracting",
)
LEADS = word_set(
    "ceo cto cfo coo founder cofounder co-founder owner president director employee employees customer ceos head",
)
EMPLOYING = phrases(
    "hired by, employed by, acquired by, bought by, funded by, sponsored by, rejected by, laid off by, laid off from, "
    "offer from, fired from, resigned from, graduated from, degree from, phd from, retired from, quit, co-founded, "
    "cofounded, founded, interned at, invoice from, invoice for, contract with, deal with, contract from, partnership "
    "with, interviewing with, invested in, acquire, acquired, offers from, transferred from, graduate of, client of, "
    "alumni of, partnering with, partnered with, bank with, donate to, donated to"
)
"""Just before a name, these say that it is an organisation."""
ORGANISATION_VERBS = word_set("acquired announced hired acquires hires ipo raised rejected")
ORGANISATION_OWN = word_set(
    "ceo cto office offices hr headquarters hq customers stock shares shareholders board recruiter"
)
ORGANISATION_AFTER = word_set("account contract deal invoice pitch offer recruiter rfp employees headquarters office")
USING = word_set(
    "use uses using used install installed installing learning adopt adopted adopting evaluating configure configured",
    "configuring uninstall uninstalled",
)
"""Before a name, these say that it is a tool."""
USING_WITH = phrases(
    "switch to, switched to, switching to, migrate to, migrated to, migrating to, migrate from, migrated from, "
    "migrating from, built with, build with, built on, written in, deploy with, deploy it with, deploy to, deployed "
    "on, deployed with, deployed to, running on, runs on, switch from, switched from, switching from, powered by, "
    "hosted on, host on, hosting on, deploy on, automate with, automated with, managed with, fan of using, based on, "
    "tracked in, track in, monitor with, test with, tests with, testing with, coding in, code in, program in, "
    "deploying to, upgrade to, upgraded to, upgrading to, deploying with, made with, designed in, edit in, prototype "
    "in, wrote it in"
)
TOOL_AFTER = word_set(
    "dashboard dashboards cluster plugin extension pipeline server database spreadsheet board workspace channel",
    "script module template integration query queries container containers cli sdk instance backend frontend notebook",
    "plugins library repo config operator job jobs file files scripts codebase app",
)
PROJECT_AFTER = word_set(
    "migration rollout release launch codebase roadmap milestone repo sprint prototype beta mvp backlog",
)
BUILDING = word_set(
    "build building built launch launching launched create creating created making develop developing developed",
    "working made founded started starting writing wrote ship shipping shipped release releasing released maintain",
    "maintaining designing coded coding my our",
)
TITLE_NOUNS = word_set(
    "book books movie film song album episode novel show series read reading watch watched watching listen listened",
    "play opera musical poem painting comic manga anime character trilogy author writer director actor actress singer",
    "played playing bingeing binging rewatched rewatching reread rereading paint hero heroine villain protagonist",
    "documentary video",
)
"""Before a name, these say that it is a title or somebody in one."""
CONNECTORS = word_set("van von de der den da di del della la le bin al ten ter dos el du")
