"""What is written with a capital and is no name by itself: days, peoples, places, celebrities, exclamations."""

from __future__ import annotations

from langchain_ctxbudget.core.rules.naming_words import phrases, word_set

CALENDAR = word_set(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august",
    "september october november december mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep",
    "sept oct nov dec christmas xmas easter thanksgiving halloween hanukkah ramadan eid diwali passover lent advent",
    "valentine valentines eve q1 q2 q3 q4 spring summer autumn winter fall am pm",
)
PEOPLES = word_set(
    "english spanish french german italian portuguese dutch russian chinese mandarin cantonese japanese korean arabic",
    "hindi urdu bengali turkish polish greek swedish norwegian danish finnish czech hungarian romanian ukrainian",
    "hebrew persian farsi thai vietnamese indonesian malay tagalog swahili latin catalan basque irish welsh scottish",
    "british american canadian mexican brazilian argentinian australian indian pakistani african asian european",
    "americans germans europeans italians christian christians muslim muslims jewish hindu buddhist catholic",
    "catholics protestant swiss austrian belgian egyptian israeli iranian iraqi syrian lebanese moroccan nigerian",
    "kenyan cuban colombian chilean peruvian filipino western eastern northern southern mediterranean victorian roman",
    "mexicans",
)
PLACES = word_set(
    "afghanistan albania algeria america argentina armenia australia austria bangladesh belgium bolivia bosnia brazil",
    "bulgaria cambodia cameroon canada chile china colombia croatia cuba cyprus czechia denmark ecuador egypt england",
    "estonia ethiopia europe finland france germany ghana greece hungary iceland india indonesia iran iraq ireland",
    "israel italy jamaica japan jordan kazakhstan kenya korea kuwait latvia lebanon lithuania luxembourg malaysia",
    "malta mexico morocco nepal netherlands nigeria norway pakistan palestine panama peru philippines poland portugal",
    "qatar romania russia scotland senegal serbia singapore slovakia slovenia spain sweden switzerland syria taiwan",
    "tanzania thailand tunisia turkey uganda ukraine uruguay venezuela vietnam wales yemen zambia zimbabwe africa",
    "asia antarctica amsterdam athens atlanta auckland austin baltimore bangkok barcelona basel beijing belfast",
    "belgrade berlin bern birmingham bogota bologna boston bremen brisbane bristol brooklyn brussels bucharest",
    "budapest cairo calgary cambridge cardiff chennai chicago cleveland cologne copenhagen dallas delhi denver",
    "detroit dortmund dresden dubai dublin durham edinburgh essen florence frankfurt geneva genoa ghent glasgow",
    "gothenburg granada graz hamburg hannover hanoi havana heidelberg helsinki honolulu houston istanbul jakarta",
    "jerusalem johannesburg karachi kiev kyiv krakow kyoto lagos leeds leipzig lima lisbon liverpool ljubljana london",
    "lyon madrid malaga manchester manhattan manila marrakech marseille melbourne memphis miami milan minneapolis",
    "montreal moscow mumbai munich nairobi naples nashville newcastle nice nottingham orlando osaka oslo ottawa",
    "oxford paris perth philadelphia phoenix pittsburgh porto portland prague quito reykjavik riga rome rotterdam",
    "salzburg santiago seattle seoul seville shanghai sheffield shenzhen stockholm stuttgart sydney tallinn tampa",
    "tehran tokyo toronto toulouse turin utrecht valencia vancouver venice vienna vilnius warsaw wellington zagreb",
    "zurich zürich bangalore hyderabad pune texas california florida oregon nevada arizona colorado georgia ohio",
    "virginia alaska hawaii utah illinois massachusetts michigan minnesota washington wisconsin tennessee ontario",
    "quebec bavaria tuscany catalonia andalusia sicily crete bali cornwall yorkshire brittany normandy provence alps",
    "pyrenees himalayas amazonia atlantic pacific earth moon mars venus jupiter saturn york zealand angeles francisco",
    "accra kampala lusaka harare dakar ibadan kano enugu lekki ikeja abuja kigali lome abidjan khartoum luanda maputo",
    "queenstown tekapo dunedin rotorua wanaka hobart darwin canberra cairns phuket kathmandu dhaka lahore islamabad",
    "dolomites diego jersey hampshire kong vegas rica arabia usa uk us eu uae nyc u.s u.k bay",
)
PLACE_PAIRS = phrases(
    "new york, new york city, new zealand, los angeles, san francisco, san diego, san jose, new jersey, hong kong, "
    "las vegas, costa rica, saudi arabia, south africa, south korea, north korea, united states, united kingdom, new "
    "orleans, new delhi, buenos aires, rio, rio de janeiro, sao paulo, são paulo, mexico city, cape town, tel aviv, "
    "sri lanka, puerto rico, north carolina, south carolina, new mexico, central park, times square, silicon valley, "
    "the hague, abu dhabi, kuala lumpur, ho chi minh, st louis, salt lake city, palo alto, mountain view, bay area, "
    "middle east, el salvador, czech republic, dominican republic, great britain, northern ireland, west coast"
)
FAMOUS = word_set(
    "shakespeare einstein newton darwin plato aristotle socrates kant nietzsche freud marx hegel napoleon caesar",
    "cleopatra hitler stalin lenin churchill lincoln obama trump biden putin musk bezos zuckerberg mozart bach",
    "beethoven chopin vivaldi picasso monet rembrandt leonardo michelangelo jesus god buddha muhammad allah hamlet",
    "macbeth sherlock gandalf frodo batman superman spiderman zeus odin thor hercules beyonce beyoncé bitcoin",
    "ethereum santa dostoevsky tolstoy hemingway orwell austen dickens tolkien rowling pythagoras euler gauss turing",
    "bayes fibonacci",
)
NOT_NAMES = word_set(
    "i i'm i've i'd i'll im ive ok okay hi hello hey thanks thank please yes no yeah yep nope sorry cheers dear",
    "regards internet web mom mum dad mommy mummy daddy grandma grandpa granny nana mother father boss sir madam ma'am",
    "todo note notes update edit question answer problem context example fyi tldr ps btw part step chapter section",
    "figure table page version option phase level day week month year api json team everyone everybody anyone somebody",
    "someone nobody people monday's ceo cto cfo coo hr it ui ux pr qa ai ml vat id covid bible quran wifi bluetooth",
    "black white red blue green first second third north south east west claude chatgpt gpt gemini siri alexa copilot",
    "assistant bot bard llama grok deepseek mistral world scrum kanban agile celsius fahrenheit markdown lego chess",
    "yoga pilates unicode ascii utf-8 oauth ssl traceback error warning exception docs documentation legend rumor",
    "rumour science weather apparently google's president sale support sales legal marketing engineering finance",
    "congress parliament operations procurement accounting management leadership compliance customer jeeves comic sans",
    "arial helvetica times foo bar baz qux acmeco aid m&a xyz abc alice bob doe lorem ipsum",
)
PLACEHOLDERS = phrases(
    "john doe, jane doe, john smith, jane smith, joe bloggs, foo, bar, baz, foo bar, john q public, max mustermann, "
    "erika mustermann, lorem ipsum, your name, first name, last name, company name, person a, person b, user a, user "
    "b, harry potter, taylor swift, elon musk, bill gates, steve jobs, tim cook, mark zuckerberg, sam altman, jeff "
    "bezos, social media, bench press, leg press, french press, mass media, seed funds, warren buffett, stephen king, "
    "stephen hawking, isaac newton, marie curie, ada lovelace, alan turing, martin luther king, nelson mandela, tom "
    "hanks, brad pitt, tom cruise, james bond, max weber, karl marx, roger federer, lionel messi, donald trump, joe "
    "biden, barack obama, angela merkel, jane austen, mark twain"
)
ASSISTANTS = word_set("claude chatgpt gpt gemini siri alexa copilot assistant bot bard grok llama gpt-4 gpt-4o gpt-5")
EXCLAMATIONS = word_set(
    "absolutely accepted actually admittedly aha ahem ahoy alas alright amazing amen argh awesome aw aww awww ay aye",
    "bah beautiful bingo blimey bonjour boo boom booyah bravo brilliant brr bummer bye certainly ciao clearly",
    "confirmed cool correct crap crikey damn dang darn deal definitely delicious delightful doh done duh eek eh ehh",
    "eureka ew eww exactly excellent exciting fab fabulous fair fantastic fascinating fine flawless frankly funny gah",
    "gee genius glorious golly goodbye goodness goodnight gorgeous gosh gotcha gracias gracious grand granted hah haha",
    "hahaha hallelujah hallo heh hehe hell hiya hm hmm hmmm hola holy honestly hooray howdy huh hurrah hurray huzzah",
    "impressive incredible indeed interesting jeez jeepers kudos legendary lol lovely magnificent man marvellous",
    "marvelous maybe meh merci mhm mmm nah namaste naturally neat noted nuts oh ok oof ooh oops ouch ow perfect",
    "perhaps phew phooey please pfft precisely pretty priceless probably prost psst ready really relax respect ",
    "sadly salut seriously sheesh shoot shucks sick skol smart solid sounds splendid spot-on stellar stunning super",
    "superb surely surprisingly sweet ta tada terrific thanks totally touché true truly tsk tut ugh uh uhh um umm",
    "understood unbelievable unreal voila voilà wahoo way well whatever whee whew whoa woah whoo whoop whoops wicked",
    "wonderful woo woohoo woot word wow wowza wowzers wunderbar yahoo yawn yay yeah yeehaw yep yes yikes yippee yo",
    "yolo yuck yum yummy yup zounds agree agreed approved adorable alrighty congratulations congrats crazy cute epic",
    "fun glad gross guilty helpful huge hush inspiring insane nicely obviously outstanding peace phenomenal proud rad",
    "resolved right-o rip sent settled shame solved sorted spectacular strange sure thrilling tough touche",
    "unfortunately weird wild wise worked yass yess yesss abi omo oga wahala chai haba ehen chale nawa ah ahh ahhh",
    "oi oy erm er mate dude bro sis buddy fam folks guys",
)
"""What is said by itself, with a capital: "Wow, ..."."""
ZODIAC = word_set("aries taurus gemini cancer leo virgo libra scorpio sagittarius capricorn aquarius pisces")
