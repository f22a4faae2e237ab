"""Which people, projects, organisations and tools a user's message speaks of."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.rules.naming import Name, names


def found(text: str) -> dict[str, str]:
    return {name.name: name.kind for name in names(text)}


def only(text: str) -> Name:
    (name,) = names(text)
    return name


PEOPLE = [
    ("My manager Sarah leads the billing team.", ["Sarah"]),
    ("My sister, Ana, is visiting this weekend.", ["Ana"]),
    ("I talked to Tom yesterday about the budget.", ["Tom"]),
    ("I have an appointment with Dr. Weber on Monday.", ["Dr. Weber"]),
    ("Can you ask @sarah to review it?", ["Sarah"]),
    ("my cat Miso is 6", ["Miso"]),
    ("Our dog is called Biscuit and he barks a lot.", ["Biscuit"]),
    ("My best friend Oksana lives in Lisbon.", ["Oksana"]),
    ("My daughter's name is Mia, she turned 4 last week.", ["Mia"]),
    ("Sarah Chen (sarah.chen@acme.com) is our new designer.", ["Sarah Chen"]),
    ("My kids Leo and Mia start school in September.", ["Leo", "Mia"]),
    ("Priya said that the launch is delayed.", ["Priya"]),
    ("My cofounder Ben and I started Lumio last year.", ["Ben"]),
    ("lunch with Oksana tomorrow, she is moving to Berlin", ["Oksana"]),
    ("Tom is married to Julia.", ["Tom", "Julia"]),
    ("Uncle Bob is coming for dinner.", ["Bob"]),
    ("My mom's name is Helga and her birthday is on 3 March.", ["Helga"]),
    ("My landlord Mr. Okafor raised the rent.", ["Mr. Okafor"]),
    ("Our head of marketing, Lucía Gómez, asked for the figures.", ["Lucía Gómez"]),
    ("My brother-in-law Pete is an electrician.", ["Pete"]),
    ("my girlfriend is named Yuki", ["Yuki"]),
    ("Marta, my therapist, suggested journaling.", ["Marta"]),
    ("my 6-year-old son Theo loves dinosaurs", ["Theo"]),
    ("Tom is married to Julia.", ["Tom", "Julia"]),
    ("Sarah Chen (sarah.chen@acme.com) is our new designer.", ["Sarah Chen"]),
    ("My mom, Helga, turned 70 last week.", ["Helga"]),
    ("My sister is Ana. She lives in Porto with her husband Rui.", ["Ana", "Rui"]),
    ("I've been working with Marcus and Priya on the onboarding flow.", ["Marcus", "Priya"]),
    ("Had coffee with Ingrid today, she's thinking about quitting.", ["Ingrid"]),
    ("Our accountant, Mr. Bailey, says we can deduct it.", ["Mr. Bailey"]),
    ("Can you draft an email to Fatima about the invoice?", ["Fatima"]),
    ("Remind me to call Oksana tomorrow.", ["Oksana"]),
    ("I need a birthday present for my nephew Jonah.", ["Jonah"]),
    ("We hired Tomasz Kowalski as a backend engineer.", ["Tomasz Kowalski"]),
    ("Kenji from the Tokyo office will join the call.", ["Kenji"]),
    ("Dana, our product manager, is on leave until Monday.", ["Dana"]),
    ("My therapist Dr. Lindqvist suggested it.", ["Dr. Lindqvist"]),
    ("According to Viktor we should wait.", ["Viktor"]),
    ("I'm having lunch with Sam and Alexandra on Tuesday.", ["Sam", "Alexandra"]),
    ("My roommates are Chloe and Dev.", ["Chloe", "Dev"]),
    ("Tell Marcus that I'll be late.", ["Marcus"]),
    ("My dog Pepper has an ear infection.", ["Pepper"]),
    ("We adopted a kitten named Waffles.", ["Waffles"]),
    ("I bought the house with my partner, Jules.", ["Jules"]),
    ("Ravi's birthday is on 12 June.", ["Ravi"]),
    ("Please add Wei Zhang to the invite; she is the lead on Helios.", ["Wei Zhang"]),
    ("I report to Angela Martin, the VP of Sales.", ["Angela Martin"]),
    ("My neighbor Mrs. Petrov complains about the noise.", ["Mrs. Petrov"]),
    ("My brother Luke and his wife Hannah are visiting from Leeds.", ["Luke", "Hannah"]),
    ("My coach, Andreas, says I should rest.", ["Andreas"]),
    ("Sofia and I are getting married in June.", ["Sofia"]),
    ("Nadia thinks we should rewrite it.", ["Nadia"]),
    ("My son Max is allergic to peanuts.", ["Max"]),
    ("My new manager starts Monday, her name is Carmen Ortiz.", ["Carmen Ortiz"]),
    ("I have two cats, Milo and Otis.", ["Milo", "Otis"]),
    ("My cofounder is Ben. He handles sales and I write the code.", ["Ben"]),
    ("According to Viktor we should wait.", ["Viktor"]),
    ("I have two cats, Milo and Otis.", ["Milo", "Otis"]),
    ("Sofia and I are getting married in June.", ["Sofia"]),
    ("My new manager starts Monday, her name is Carmen Ortiz.", ["Carmen Ortiz"]),
    ("I bought the house with my partner, Jules.", ["Jules"]),
    ("I report to Angela Martin, the VP of Sales.", ["Angela Martin"]),
    ("my dog is called rex", ["Rex"]),
    ("my sister anna is visiting", ["Anna"]),
    ("im meeting jake and priya later", ["Jake", "Priya"]),
    ("Quick update: Sarah approved the budget and Tom is looping in legal.", ["Sarah", "Tom"]),
    ("Yesterday Bjorn told me he's leaving for Klarna.", ["Bjorn"]),
    ("So my boss (Greg) wants a report every Friday.", ["Greg"]),
    ("It's for my grandmother, Edith, who turns 90 in May.", ["Edith"]),
    ("My husband Ahmed is a chef at Noma.", ["Ahmed"]),
    ("Emma (my niece) loves horses.", ["Emma"]),
    ("Our CEO Margaret announced layoffs.", ["Margaret"]),
    ("Jamal from accounting needs the receipts.", ["Jamal"]),
    ("I promised Beth I'd help her move.", ["Beth"]),
    ("Kavya's wedding is in October.", ["Kavya"]),
    ("Jens, Katrin and I are hiking the Dolomites.", ["Jens", "Katrin"]),
    ("Could you write a short message to my landlord, Mr. Hughes, about the heating?", ["Mr. Hughes"]),
    ("I want to surprise my boyfriend Rafael for his 30th birthday.", ["Rafael"]),
    ("Oh and Miguel quit today.", ["Miguel"]),
    ("Ask Hiroshi about the deployment keys.", ["Hiroshi"]),
    ("I think Anneliese is the best person for the role because she knows the domain.", ["Anneliese"]),
    ("My son Oliver has a play date with Ethan on Saturday.", ["Oliver", "Ethan"]),
    ("My physio, a guy called Stefan, told me to stretch.", ["Stefan"]),
    ("My dad, Walter, is retired and lives in Arizona.", ["Walter"]),
    ("My horse is named Thunder.", ["Thunder"]),
    ("I'm planning a surprise party for Nkechi.", ["Nkechi"]),
    ("Ines sent me the slides this morning.", ["Ines"]),
    ("My mentor is Dr. Amara Obi.", ["Dr. Amara Obi"]),
    ("Aisha and Noor are my cousins.", ["Aisha", "Noor"]),
    ("Lars is my cofounder.", ["Lars"]),
    ("My lawyer, Eleanor Vance, will review the contract.", ["Eleanor Vance"]),
    ("Sarah Chen called. I told Sarah that you are busy.", ["Sarah Chen"]),
    ("My team lead Marek wants daily standups.", ["Marek"]),
    ("I share an office with Beatriz.", ["Beatriz"]),
    ("Our new hire, Femi, starts on Monday.", ["Femi"]),
    ("I am training my dog, Luna, to sit.", ["Luna"]),
    ("My mother-in-law Gisela is staying with us.", ["Gisela"]),
    ("I am writing to my professor, Dr. Hale.", ["Dr. Hale"]),
    ("My nephew's name is Otto and he is 3.", ["Otto"]),
    ("Please email my accountant Rosa at rosa@books.example about it.", ["Rosa"]),
    ("My ex, Damien, keeps texting me.", ["Damien"]),
    ("My grandfather Heinrich was a carpenter.", ["Heinrich"]),
    ("I'm going hiking with Anouk and Pim this weekend.", ["Anouk", "Pim"]),
    ("My husband's name's Farid.", ["Farid"]),
    ("It was Olga who found the bug.", ["Olga"]),
    ("Our QA engineer Bogdan found it.", ["Bogdan"]),
    ("I gave Tariq the keys.", ["Tariq"]),
    ("The bug was reported by Yara.", ["Yara"]),
    ("I'm seeing Dr. Patel about my knee.", ["Dr. Patel"]),
    ("My gym buddy Kofi moved to Accra.", ["Kofi"]),
    ("Amélie and Théo are our twins.", ["Amélie", "Théo"]),
    ("Our twins Amélie and Théo are five.", ["Amélie", "Théo"]),
    ("I'm in a long-distance relationship with Saoirse.", ["Saoirse"]),
    ("My colleague Jean-Luc Moreau is from Lyon.", ["Jean-Luc Moreau"]),
    ("I live with my girlfriend Mei and our cat Dumpling.", ["Mei", "Dumpling"]),
    ("I bought a horse named Clover.", ["Clover"]),
    ("Our cleaning lady, Mrs. Nowak, comes on Thursdays.", ["Mrs. Nowak"]),
    ("My business partner of ten years, Anselm, left.", ["Anselm"]),
    ("My former boss and co-author Eszter wrote to me.", ["Eszter"]),
    ("My salsa teacher Ludovica moved.", ["Ludovica"]),
    ("Our next guest will be Anneke Vos, a historian.", ["Anneke Vos"]),
    ("I had to choose between Thaddeus and Ottoline.", ["Thaddeus", "Ottoline"]),
    ("The flat is for me, Orsolya and Zsofia.", ["Orsolya", "Zsofia"]),
    ("I learned a lot from the books of Marcella Hazan.", ["Marcella Hazan"]),
    ("Wow, Caroline! She is great.", ["Caroline"]),
    ("Schwoop, Caroline! She is great.", ["Caroline"]),
]


@pytest.mark.parametrize(("text", "expected"), PEOPLE)
def test_a_person_is_told_by_the_words_around_the_name(text, expected):
    assert found(text) == dict.fromkeys(expected, "person")


MIXED = [
    ("I met Sarah from Acme at the conference.", {"Sarah": "person", "Acme": "organization"}),
    ("our CTO, Rajiv, wants us to move to postgres", {"Rajiv": "person", "PostgreSQL": "tool"}),
    ("A friend of mine, Jonas, works at Spotify.", {"Jonas": "person", "Spotify": "organization"}),
    ("A friend of mine, Jonas, works at Spotify.", {"Jonas": "person", "Spotify": "organization"}),
    (
        "My boss at Initech, Bill Lumbergh, wants the TPS reports.",
        {"Initech": "organization", "Bill Lumbergh": "person"},
    ),
    ("My wife Elena works for Deutsche Bank.", {"Elena": "person", "Deutsche Bank": "organization"}),
    ("Do you remember my friend Lena? She got the job at BioNTech!", {"Lena": "person", "BioNTech": "organization"}),
    ("Got off the phone with Lena, she's furious about the Acme contract.", {"Lena": "person", "Acme": "organization"}),
    (
        "I'm writing my thesis with Prof. Nakamura at TU Delft.",
        {"Prof. Nakamura": "person", "TU Delft": "organization"},
    ),
    (
        "I'm working on Project Lighthouse with Maria and Deepak.",
        {"Lighthouse": "project", "Maria": "person", "Deepak": "person"},
    ),
    ("Nia Thompson is the CTO of Greenleaf.", {"Nia Thompson": "person", "Greenleaf": "organization"}),
    (
        "Hey, quick one: my colleague Yusuf and I need to present at the Siemens office in Munich.",
        {"Yusuf": "person", "Siemens": "organization"},
    ),
    (
        "My daughter Clara just started at Montessori School Berlin.",
        {"Clara": "person", "Montessori School Berlin": "organization"},
    ),
    ("Pim works as a nurse at Charité.", {"Pim": "person", "Charité": "organization"}),
    ("Mr. Tanaka from Mitsubishi is visiting us.", {"Mr. Tanaka": "person", "Mitsubishi": "organization"}),
    ("my friend mike works at google", {"Mike": "person", "Google": "organization"}),
    ("My startup is called Loomly and my cofounder is Aisha.", {"Loomly": "organization", "Aisha": "person"}),
]


@pytest.mark.parametrize(("text", "expected"), MIXED)
def test_a_sentence_has_names_of_several_kinds(text, expected):
    assert found(text) == expected


ORGANISATIONS = [
    ("I work at Initech as a data analyst.", ["Initech"]),
    ("I invested in a startup named Lumio.", ["Lumio"]),
    ("I joined Siemens in March.", ["Siemens"]),
    ("I studied physics at the University of Leeds.", ["University of Leeds"]),
    ("We just signed Acme Inc. as a customer.", ["Acme Inc"]),
    ("My client Northwind wants a new website.", ["Northwind"]),
    ("I got an offer from Stripe!", ["Stripe"]),
    ("I have an interview at Hooli next week.", ["Hooli"]),
    ("I got an offer from Stripe!", ["Stripe"]),
    ("My company is called Brightside Analytics.", ["Brightside Analytics"]),
    ("I run a small bakery called Crumb & Co.", ["Crumb & Co"]),
    ("I'm a PhD student at ETH Zurich.", ["ETH Zurich"]),
    ("Our client Meridian Foods keeps changing the requirements.", ["Meridian Foods"]),
    ("I left Google two years ago to start my own company, Tessellate.", ["Google", "Tessellate"]),
    ("I play guitar in a band called The Loose Ends.", ["The Loose Ends"]),
    ("I'm the founder of Kestrel Robotics.", ["Kestrel Robotics"]),
    ("My daughter goes to Lincoln High School.", ["Lincoln High School"]),
    ("Met with the people from Vantage Capital about the seed round.", ["Vantage Capital"]),
    ("I work for the NHS.", ["NHS"]),
    ("I work for the NHS.", ["NHS"]),
    ("I left Google two years ago to start my own company, Tessellate.", ["Google", "Tessellate"]),
    ("We bank with Barclays.", ["Barclays"]),
    ("I'm interviewing at Datadog and Snowflake next week.", ["Datadog", "Snowflake"]),
    ("I studied at Stanford.", ["Stanford"]),
    ("I'm a nurse at St. Mary's Hospital.", ["St. Mary's Hospital"]),
    ("I teach maths at Hillview Academy.", ["Hillview Academy"]),
    ("Our vendor Globex missed the deadline.", ["Globex"]),
    ("I founded Brightpath, a tutoring startup, in 2021.", ["Brightpath"]),
    ("I have a meeting with Contoso tomorrow about the renewal.", ["Contoso"]),
    ("Our biggest customer is Vandelay Industries.", ["Vandelay Industries"]),
    ("He works at Pied Piper.", ["Pied Piper"]),
    ("We're partnering with Oxfam on this.", ["Oxfam"]),
    ("I've been with Zalando for three years, mostly on the checkout team.", ["Zalando"]),
    ("My previous employer was Nokia.", ["Nokia"]),
    ("Our startup, Fernweh, sells camper vans.", ["Fernweh"]),
    ("I'm the CTO of a startup called Verdant.", ["Verdant"]),
    ("We had a call with Accenture about the tender.", ["Accenture"]),
    ("I volunteer for Greenpeace.", ["Greenpeace"]),
    ("I used to work for Nestlé in Vevey.", ["Nestlé"]),
    ("My sister works for Bosch.", ["Bosch"]),
    ("Our landlord is a company named Vonovia.", ["Vonovia"]),
    ("He's a member of the Harbour Striders, same as me.", ["Harbour Striders"]),
    ("I'm the treasurer of the Elmsworth Rowing Club.", ["Elmsworth Rowing Club"]),
    ("We rented the van from Karvik Rentals.", ["Karvik Rentals"]),
    ("Our insurer, Belmond Mutual, won't pay.", ["Belmond Mutual"]),
    ("Our hosting company, Nordfrost, raised its prices.", ["Nordfrost"]),
    ("Feldspar, a joinery in our street, built the table.", ["Feldspar"]),
    ("The client is Hartmann & Söhne GmbH.", ["Hartmann & Söhne GmbH"]),
]


@pytest.mark.parametrize(("text", "expected"), ORGANISATIONS)
def test_an_organisation_is_told_by_the_words_around_the_name(text, expected):
    assert found(text) == dict.fromkeys(expected, "organization")


TOOLS = [
    ("We use Terraform and Grafana for everything.", ["Terraform", "Grafana"]),
    ("We deploy it with Argo CD.", ["Argo CD"]),
    ("I switched from Jira to Linear.", ["Jira", "Linear"]),
    ("I write Go and a bit of Rust at work.", ["Go", "Rust"]),
    ("I write Go and a bit of Rust at work.", ["Go", "Rust"]),
    ("My team uses Slack, Notion and Figma.", ["Slack", "Notion", "Figma"]),
    ("I track my spending in YNAB.", ["YNAB"]),
    ("I use Obsidian for notes and Zotero for references.", ["Obsidian", "Zotero"]),
    ("We host everything on Hetzner and use Caddy as a reverse proxy.", ["Hetzner", "Caddy"]),
    ("The backend is written in Rust and the frontend in Svelte.", ["Rust", "Svelte"]),
    ("I've switched from Evernote to Notion.", ["Evernote", "Notion"]),
    ("We moved our CI from Jenkins to GitHub Actions.", ["Jenkins", "GitHub Actions"]),
    ("I'm reading up on Kubernetes because we migrate next month.", ["Kubernetes"]),
    ("I'm using Ableton Live to produce my EP.", ["Ableton Live"]),
    ("I write Go and a bit of Rust at work.", ["Go", "Rust"]),
    ("i use vs code and postgres", ["VS Code", "PostgreSQL"]),
    ("At work we use Microsoft Teams, but I prefer Slack.", ["Microsoft Teams", "Slack"]),
    ("I run Ubuntu on my laptop and edit in Neovim.", ["Ubuntu", "Neovim"]),
    ("I do my taxes with TurboTax.", ["TurboTax"]),
    ("We keep our docs in Confluence and tickets in Jira.", ["Confluence", "Jira"]),
    ("The team is evaluating Temporal for workflows.", ["Temporal"]),
    ("We switched to Linear from Jira last month.", ["Linear", "Jira"]),
    ("Our data warehouse is Snowflake, and dbt runs the transformations.", ["Snowflake", "dbt"]),
    ("I've been learning Blender to make a short animation.", ["Blender"]),
    ("I switched my notes to Logseq.", ["Logseq"]),
    ("I just moved my blog from WordPress to Hugo.", ["WordPress", "Hugo"]),
    ("I'm learning Rust and building a CLI called tally.", ["Rust"]),
    ("We use AWS for hosting and Cloudflare for DNS.", ["AWS", "Cloudflare"]),
    ("Our stack is Django, Postgres and React.", ["Django", "PostgreSQL", "React"]),
    ("I code in Python and sometimes in Go.", ["Python", "Go"]),
    ("I have to move the service from Django to Go.", ["Django", "Go"]),
    ("We have to move it to Go before the summer.", ["Go"]),
    ("We moved the wiki from Confluence to Fennelbase.", ["Confluence", "Fennelbase"]),
    ("I use R for all the statistics, mostly lme4.", ["R", "lme4"]),
    ("Garmin tells me that I slept badly.", ["Garmin"]),
    ("I log my runs in Tracklet.", ["Tracklet"]),
    ("We host the sources on Codeberg.", ["Codeberg"]),
    ("We publish it through Soundrig.", ["Soundrig"]),
    ("I'd rather use Svelte than React.", ["Svelte", "React"]),
]


@pytest.mark.parametrize(("text", "expected"), TOOLS)
def test_a_tool_is_told_by_its_name_or_its_use(text, expected):
    assert found(text) == dict.fromkeys(expected, "tool")


PROJECTS = [
    ("Our project Atlas is late.", ["Atlas"]),
    ("The Atlas project is late.", ["Atlas"]),
    ("I'm leading Project Falcon this quarter.", ["Falcon"]),
    ("I'm building an app called Moss.", ["Moss"]),
    ("I'm working on Nightingale, a note-taking app.", ["Nightingale"]),
    ("Nightingale is my side project.", ["Nightingale"]),
    ("Nightingale is my side project.", ["Nightingale"]),
    ("The codename is Bluebird.", ["Bluebird"]),
    ("We're launching Bluebird in May.", ["Bluebird"]),
    ("My side project is a recipe app called Forkful.", ["Forkful"]),
    ("Project Nimbus got cancelled.", ["Nimbus"]),
    ("The Helios migration is blocked by Tomasz.", ["Helios"]),
    ('we\'re building an app called "moss" for plant owners', ["moss"]),
    ("Our open-source library, Pebble, got 1000 stars.", ["Pebble"]),
    ("My podcast is called Night Shift.", ["Night Shift"]),
    ("I started a newsletter named Slow Mornings.", ["Slow Mornings"]),
    ("We're calling the project Sunflower.", ["Sunflower"]),
    ("The project is named Sunflower.", ["Sunflower"]),
    ("I'm building Sunflower, a CRM for florists.", ["Sunflower"]),
]


@pytest.mark.parametrize(("text", "expected"), PROJECTS)
def test_a_project_is_told_by_the_words_around_the_name(text, expected):
    assert found(text) == dict.fromkeys(expected, "project")


NOTHING = [
    "Monday works for me.",
    "I speak Spanish and a little German.",
    "What is the capital of France?",
    "I'm flying to Lisbon in June.",
    "Just finished reading The Great Gatsby.",
    "Write a story about a knight called Roland.",
    "Hi Claude, can you help me?",
    "Thanks ChatGPT!",
    "I'M SO ANGRY ABOUT THIS WHOLE THING",
    "The API returns JSON and I need a PDF.",
    "Dear John Doe, your order has shipped.",
    "Who was Albert Einstein?",
    "Explain Newton's laws.",
    "Imagine a user called Alice who sends Bob a message.",
    "My name is Daniel and I'm from Madrid.",
    "Please fix main.py and UserService.",
    "Translate this: Juan vive en Madrid y trabaja en Acme.",
    "> Sarah wrote that she is leaving",
    "# Meeting with Sarah Chen",
    "Will it rain on Sunday?",
    "Mark the task as done.",
    "I watched Oppenheimer last night.",
    "May I ask you something?",
    "Christmas at home this year.",
    "Let me check the Statue of Liberty opening hours.",
    "How do I make a Caesar salad?",
    "I love Thai food.",
    "I'd like to visit Kyoto and Osaka.",
    "I need to go to the store.",
    "We had pizza on Friday.",
    "Should I visit Rome or Florence first?",
    "The Beatles are great.",
    "I love Harry Potter.",
    "What's the difference between TCP and UDP?",
    "Summarize the French Revolution for me.",
    "My flight to New York leaves on Friday.",
    "We celebrate Thanksgiving with turkey.",
    "I watched Breaking Bad and The Wire.",
    "I'm allergic to Penicillin.",
    "Happy Birthday to me!",
    "TODO: call the bank",
    "I drive a Toyota Corolla.",
    "I'm training for the Berlin Marathon.",
    "I have Type 2 Diabetes.",
    "My mom is visiting.",
    "I like Mondays.",
    "The UI team wants a new button.",
    "OK. Sounds good.",
    "Yes! Exactly what I wanted.",
    "Great job, thanks!",
    "How many people live in Tokyo?",
    "Who wrote Hamlet?",
    "Is God real?",
    "The Battle of Hastings was in 1066.",
    "I got my PhD in Physics.",
    "We follow Scrum.",
    "I need a Visa for India.",
    "Call me Ishmael.",
    "I am Groot.",
    "Regards,\nDaniel",
    "Set the variable Foo to Bar.",
    "The class OrderManager calls PaymentService.",
    "I play Minecraft and Zelda.",
    "Give me three names for a cat.",
    "Suggest a name for my startup.",
    "For example, John sends 5 dollars to Mary.",
    "If Alice has 3 apples and Bob has 2, how many do they have?",
    "My favourite book is Dune by Frank Herbert.",
    "Write a birthday message.",
    "Tell me about the Roman Empire.",
    "I was born in Ohio in May.",
    "Tesla stock went up today.",
    "Let's meet at Central Park.",
    "Next Tuesday I fly to Oslo.",
    "She said yes!",
    "What did Einstein say about time?",
    "Explain Bayes' theorem like I'm five.",
    "Generate a user profile for Jane Smith, age 34.",
    "I think Trump won.",
    "There's a sale at Target on Black Friday.",
    "Can you write a cover letter for a Data Scientist role?",
    "My English is bad.",
    "I'm a Senior Software Engineer.",
    "I want to learn Italian.",
    "Dear Hiring Manager,",
    "I'd like to go to Mount Fuji with my family.",
    "The Netflix show was boring.",
    "Use British spelling.",
    "Ask me questions one at a time.",
    "From now on, answer in German.",
    "Be concise. Avoid Markdown.",
    "Good morning! Hope you're well.",
    "Mix the Parmesan with Greek yogurt.",
    "I take Ibuprofen for my back.",
    "I live near Lake Constance.",
    "I prefer Chardonnay over Merlot.",
    "We're going to Disneyland with the kids.",
    "I'm driving a Volvo to Hamburg.",
    "I got a Labrador.",
    "She works in Marketing.",
    "Bitcoin crashed again.",
    "Black Friday is coming.",
    "I finished the Odyssey by Homer.",
    "Does Mercury have moons?",
    "Met the deadline. Finally.",
    "I'm meeting the Dean of Students.",
    "Thank God it's over.",
    "Bless you!",
    "Use Dijkstra to find the path.",
    "Learning Spanish is hard, learning Chess is harder.",
    "I've started doing Yoga and Pilates.",
    "Use Dijkstra to find the path.",
    "There's a sale at Target on Black Friday.",
    "I'm a Senior Software Engineer.",
    "What time is it in Sydney?",
    "Recommend a few books on Stoicism.",
    "Please use the Oxford comma.",
    "I use Celsius.",
    "Let's use Tuesday for planning.",
    "He called Tuesday.",
    "I met the President.",
    "Ask Me Anything sessions are fun.",
    "I live on Baker Street.",
    "I went to the Louvre and the Eiffel Tower.",
    "We're vegan. Any ideas for Christmas dinner?",
    "Do the Olympics start in July?",
    "I want to write like Hemingway.",
    "My star sign is Virgo.",
    "I told Mom already.",
    "Grandma is coming over.",
    "Is Amazon Prime worth it?",
    "How does Bitcoin mining work?",
    "Compare the iPhone 15 and the Pixel 8.",
    "I drink Earl Grey.",
    "I bought an IKEA desk.",
    "My cat is Persian.",
    "My teacher is German.",
    "My boss is British.",
    "My sister is in Paris.",
    "My friend lives in Boston.",
    "I speak fluent French, my wife speaks Polish.",
    "Can you make it sound more Shakespearean?",
    "I listen to Mozart and Miles Davis.",
    "I read about it on Reddit.",
    "I saw it on Instagram.",
    '"To be or not to be," as Hamlet says.',
    "Pretend you are a pirate named Blackbeard.",
    "You are Max, a helpful assistant.",
    "Act as a lawyer named Robert.",
    "Generate test data: Anna Smith, anna@example.com",
    "For instance, if Maria owes Peter 20 euros, who pays?",
    "Solve: A train leaves Chicago at 3 PM.",
    "Who is the main character in Moby Dick?",
    "What did Caesar say to Brutus?",
    "The function getUser calls UserRepository.findById.",
    "Error: Cannot read property 'map' of undefined",
    "Traceback says KeyError in Session.",
    "import React from 'react'",
    "| Name | Role |\n| --- | --- |\n| Sarah | CTO |",
    "Subject: Quarterly Review",
    "URGENT PLEASE READ",
    "LOL THAT IS SO FUNNY TOM",
    "Meeting Notes For Monday",
    "FYI the PDF is in the NASA folder.",
    "I have ADHD and use SSRIs.",
    "The WHO says so.",
    "My BMI is 24.",
    "Rome wasn't built in a day.",
    "Venus is visible tonight.",
    "Spring is my favourite season.",
    "Summer is too hot.",
    "Joy is what I need.",
    "Grace under pressure.",
    "Hope this helps!",
    "Will do.",
    "Bill me later.",
    "Drew a picture today.",
    "Frank feedback welcome.",
    "Sue them!",
    "Rob a bank in the game.",
    "Chase the dream.",
    "Art is long, life is short.",
    "Mark my words.",
    "Jack of all trades.",
    "Pat the dough dry.",
    "May was rainy.",
    "Dawn comes early.",
    "Sunny days ahead.",
    "Miles away from home.",
    "Penny for your thoughts.",
    "My favorite band is Radiohead.",
    "I'm a huge fan of Manchester United.",
    "I'm reading a biography of Lincoln.",
    "My hometown is Springfield.",
    "I got tickets for Hamilton.",
    "The sequel to Inception is great.",
    "Can you explain the Pythagorean theorem?",
    "Make a packing list for Iceland.",
    "I need a recipe for Pad Thai.",
    "My dog is a Golden Retriever.",
    "My car is a Honda Civic.",
    "I just turned 30.",
    "I have a Master's degree.",
    "My favourite colour is Blue.",
    "I'm an INTJ.",
    "Remind me on Friday.",
    "Actually, never mind.",
    "Also, Could you shorten it?",
    "Thanks a lot, Claude.",
    "ok thanks Gemini",
    "Hey Siri, set a timer.",
    "Write a SQL query that joins Orders with Customers.",
    "Rename the column Name to Title.",
    "The button says Submit.",
    "Click Save and then Close.",
    "Open Settings and go to Privacy.",
    "The error says Access Denied.",
    "What is the meaning of the word Serendipity?",
    "How do you say hello in Welsh?",
    "Is Pluto a planet?",
    "I've read War and Peace twice.",
    "My favorite movie is The Godfather.",
    "I love Star Wars.",
    "Who plays Iron Man?",
    "I watched a documentary about Steve Jobs.",
    "I had COVID last month.",
    "I go to church on Sundays.",
    "My son is in Year 4.",
    "I'm in the Army.",
    "Use the Fibonacci sequence.",
    "Plan a trip along Route 66.",
    "I moved from Austin to Denver.",
    "My parents are from Kerala.",
    "We flew to Phuket.",
    "My brother lives near Gothenburg.",
    "I'm traveling to Patagonia with friends.",
    "I met my wife in Vermont.",
    "She told Congress the truth.",
    "Call it Version 2.",
    "I used Comic Sans.",
    "Let me use Option B.",
    "Let's go with Plan A.",
    "I'm on the Keto diet.",
    "I like Indian food and French wine.",
    "The Great Wall is long.",
    "Merry Christmas!",
    "New Year's Eve is the worst.",
    "Suppose Alice works at Acme.",
    "Imagine my boss is named Bob.",
    "What should I cook for Thanksgiving?",
    "I play the cello in the Leipzig youth orchestra.",
    "We discussed the Treaty of Versailles with the students.",
    "Convert 30 degrees Celsius to Fahrenheit.",
    "I asked God for help.",
    "I talked to Support and they said no.",
    "I talked to Sales about it.",
    "I emailed Customer Service twice.",
    "I spoke with HR today.",
    "Ask Jeeves was a search engine.",
    "I told the Board.",
    "I'm meeting Legal tomorrow.",
    "He plays for Real Madrid.",
    "I visited Stonehenge with my class.",
    "I love Taylor Swift.",
    "I went to see Coldplay.",
    "Is Sarah a common name?",
    "Give me a list of baby names like Emma and Noah.",
    "What does the name Felix mean?",
]


NOTHING_SAID = [
    "Wow, she did it!",
    "Woohoo! She told me.",
    "Definitely, I asked him.",
    "Agreed. She is right.",
    "Cool, and I like it.",
    "Brumhoo, she did it!",
    "Slugs ate all my salad.",
    "Networking plays a big role.",
    "Investors want a plan.",
    "My zodiac sign is Leo.",
    "Please don't use Comic Sans.",
    "The difference between Gabbro and Basalt is the grain.",
    "We drove between Tekapo and Kaikoura.",
    "I have top10 lists and use part2 of it.",
    "We asked the customer KYC questions.",
    "I posted it on Social Media.",
]


@pytest.mark.parametrize("text", NOTHING + NOTHING_SAID)
def test_what_only_looks_like_a_name_is_none(text):
    assert found(text) == {}


@pytest.mark.parametrize(
    ("text", "relationship"),
    [
        ("My manager Sarah is nice.", "manager"),
        ("my co-founder, Ben, left", "co-founder"),
        ("Ana is my sister.", "sister"),
        ("Tom, my best friend, is ill.", "friend"),
        ("My cat is called Miso.", "cat"),
        ("A friend of mine, Jonas, is a pilot.", "friend"),
        ("My wife's brother Karl is a vet.", "wife's brother"),
        ("My business partner of ten years, Anselm, left.", "partner"),
        ("Our client Northwind pays late.", "client"),
        ("The designer, Mia, is new.", None),
        ("I met Tom yesterday.", None),
    ],
)
def test_a_relationship_is_the_one_to_the_user(text, relationship):
    assert only(text).relationship == relationship


def test_all_members_of_a_list_have_its_relationship():
    assert [name.relationship for name in names("My kids Leo and Mia start school.")] == ["child", "child"]


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("Sarah Chen's email is sarah@acme.com.", ("email", "sarah@acme.com")),
        ("You can call Tom, his number is +49 30 123456.", ("phone", "+49 30 123456")),
        ("Dana is our product manager.", ("title", "product manager")),
        ("Angela Martin is the VP of Sales.", ("title", "VP of Sales")),
        ("Sarah leads the billing team.", ("department", "billing")),
        ("My sister Ana lives in Porto.", ("location", "Porto")),
        ("My cat Miso is 6.", ("age", "6")),
        ("My 6-year-old son Theo sings.", ("age", "6")),
        ("Ana's birthday is on 3 March.", ("birthday", "3 March")),
    ],
)
def test_an_attribute_of_a_person_is_read(text, attribute):
    assert attribute in only(text).attributes


def test_contact_details_come_before_other_attributes():
    person = only("My cat sitter Ana is 30, lives in Porto and her email is ana@example.org")
    assert [name for name, _ in person.attributes] == ["email", "location", "age"]


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("Sarah works at Initech.", ("works at", "Initech")),
        ("I met Sarah from Acme.", ("works at", "Acme")),
        ("Tom is married to Julia.", ("married to", "Julia")),
        ("Nia Thompson is the CTO of Greenleaf.", ("works at", "Greenleaf")),
        ("My brother Luke and his wife Hannah visit us.", ("married to", "Hannah")),
    ],
)
def test_a_relation_between_two_names_is_read(text, relation):
    assert names(text)[0].relations == (relation,)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("My manager Sarah leads the billing team.", ("Sarah leads the billing team",)),
        ("My cofounder is Ben. He handles sales and I write the code.", ("Ben handles sales",)),
        ("I met Sarah yesterday.", ()),
        ("Does Sarah lead the billing team?", ()),
        ("My sister Ana likes " + "very " * 40 + "long walks.", ()),
    ],
)
def test_a_fact_is_a_short_sentence_of_which_the_name_is_the_subject(text, facts):
    assert only(text).facts == facts


@pytest.mark.parametrize(
    ("text", "name", "alias"),
    [
        ("Ask @sarah.", "Sarah", "@sarah"),
        ("Project Atlas is late.", "Atlas", "Project Atlas"),
        ("My cofounder Ben left.", "Ben", "my cofounder"),
        ("Sarah Chen called. I told Sarah that you are busy.", "Sarah Chen", "Sarah"),
        ("I have an appointment with Dr. Weber.", "Dr. Weber", "Weber"),
        ("Uncle Bob is coming.", "Bob", "Uncle Bob"),
        ("we moved to postgres", "PostgreSQL", "postgres"),
        ("We signed Acme Inc. as a client.", "Acme Inc", "Acme"),
    ],
)
def test_what_else_a_text_calls_a_name_is_an_alias(text, name, alias):
    assert alias in {entry.name: entry.aliases for entry in names(text)}[name]


def test_a_name_that_comes_up_twice_is_one():
    assert found("I met Sarah. Sarah thinks that we should wait.") == {"Sarah": "person"}


def test_a_company_is_one_with_and_without_its_legal_form():
    assert found("We signed Acme Inc. as a client. I work at Acme.") == {"Acme Inc": "organization"}


def test_a_strong_cue_is_more_certain_than_a_weak_one():
    assert only("My sister Nkechi is here.").confidence > only("I met Nkechi.").confidence


@pytest.mark.parametrize(
    "text",
    [
        "```python\nsarah = Person('My sister Ana')\n```",
        '{"manager": "My manager Sarah"}',
        "| my sister Ana | my manager Tom |\n| --- | --- |\n| my cat Miso | x |",
        "> my manager Sarah said no",
        "Proofread this: My manager Sarah leads the team.",
        "`my manager Sarah`",
    ],
)
def test_code_tables_quotations_and_pasted_texts_are_not_read(text):
    assert found(text) == {}


def test_a_story_leaves_only_the_people_of_the_user():
    text = "Write a bedtime story for my daughter Mia. Roland met Sarah and told Tom."
    assert found(text) == {"Mia": "person"}


@pytest.mark.parametrize(
    "piece",
    [
        "Sarah ", "A", "a@", "my sister ", "Dr. ", "@a", "called ", "Ana, ", "`", "x: summarize ", "Ab.Cd_", "Sarah's ",
        "University of ", "I'm (", "Sarah and ", "A.", "Argo ", "phone 1-", "birthday is ", "Sarah\n",
        "Ana, my sister\n",         "translate a ", "is 6 ", "** ", "import a ",
    ],
)  # fmt: skip
def test_a_hostile_text_is_read_in_linear_time(piece):
    def seconds(length: int) -> float:
        text = (piece * length)[:length]
        began = time.perf_counter()
        names(text)
        return time.perf_counter() - began

    short, long = min(seconds(25_000) for _ in range(3)), seconds(100_000)
    assert long < 12 * short + 0.5


PIECES = "My sister Ana , . is called @tom Dr University of 's ( \" and 6".split()


@settings(deadline=None)
@given(st.text() | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_every_text_can_be_read(text):
    assert all(name.name and name.kind and 0 < name.confidence <= 1 for name in names(text))


@pytest.mark.parametrize("text", ["", " ", "\n", "\ud800", "'s", "Dr.", "@", "my sister", "called", "is my sister"])
def test_a_text_without_names_has_none(text):
    assert names(text) == []
