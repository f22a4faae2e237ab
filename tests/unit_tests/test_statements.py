"""What a user's message says about the user."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.rules.statements import Statement, statements


def texts(message):
    return [found.text for found in statements(message)]


IDENTITY = [
    ("My name is Ben", "Name is Ben", "name"),
    ("my name's Priya Nair", "Name is Priya Nair", "name"),
    ("Hi, I'm Ben!", "Name is Ben", "name"),
    ("Hello! I'm Ana from Porto.", "Name is Ana", "name"),
    ("I live in Lisbon", "Lives in Lisbon", "home"),
    ("I'm living in Berlin these days", "Living in Berlin these days", "home"),
    ("i live in leeds", "Lives in leeds", "home"),
    ("I’m based in Nairobi", "Is based in Nairobi", "home"),
    ("We moved to Oslo last year", "Moved to Oslo last year", "home"),
    ("I recently moved from Rome to Milan.", "Recently moved from Rome to Milan", "home"),
    ("I live near the coast with three dogs", "Lives near the coast with three dogs", "home"),
    ("I grew up in Kerala", "Grew up in Kerala", "childhood home"),
    ("I was born in 1984 in Turin", "Was born in 1984 in Turin", "birth"),
    ("I'm originally from Brazil", "Is originally from Brazil", "origin"),
    ("im from glasgow", "Is from glasgow", "origin"),
    ("I'm German", "Is German", "nationality"),
    ("I am 34 years old", "Is 34 years old", "age"),
    ("I'm 41.", "Is 41", "age"),
    ("I turned 40 last week", "Turned 40 last week", "age"),
    ("I'm in my early thirties", "Is in my early thirties".replace("my", "their"), "age"),
    ("My birthday is on 3 May", "Birthday is on 3 May", "birthday"),
    ("I'm a nurse", "Is a nurse", "job"),
    ("I'm a software engineer at Siemens", "Is a software engineer at Siemens", "job"),
    ("I work as a paralegal in Dublin", "Works as a paralegal in Dublin", "job"),
    ("I work at Acme", "Works at Acme", "employer"),
    (
        "I've been working for the city of Graz since 2015",
        "Has been working for the city of Graz since 2015",
        "employer",
    ),
    ("I work from home on Fridays", "Works from home on Fridays", ""),
    ("I'm retired", "Is retired", "job"),
    ("I joined Spotify in March", "Joined Spotify in March", "employer"),
    ("I'm the CTO of a small startup", "Is the CTO of a small startup", "job"),
    ("I teach chemistry at a high school", "Teaches chemistry at a high school", ""),
    ("I run a small bakery in Ghent", "Runs a small bakery in Ghent", ""),
    ("I'm studying law in Vienna", "Studying law in Vienna", "studies"),
    ("I have a PhD in physics", "Has a PhD in physics", ""),
    ("I've got ten years of experience with Java", "Has got ten years of experience with Java", ""),
    ("I speak Portuguese and a bit of Dutch", "Speaks Portuguese and a bit of Dutch", ""),
    ("My native language is Tamil", "Native language is Tamil", "native language"),
    ("I'm in the CET time zone", "Is in the CET time zone", "time zone"),
    ("My time zone is UTC+2", "Time zone is UTC+2", "time zone"),
    ("I'm married with two kids", "Is married with two kids", "marital status"),
    ("My wife's name is Ana", "Wife's name is Ana", "partner"),
    ("My wife is called Ana", "Wife is called Ana", "partner"),
    ("My daughter Emma is six", "Daughter Emma is six", ""),
    ("My brother lives in Toronto", "Brother lives in Toronto", ""),
    ("My son is allergic to eggs", "Son is allergic to eggs", ""),
    ("Our dog Rex is a greyhound", "Dog Rex is a greyhound", ""),
    ("I have two cats, Miso and Tofu", "Has two cats, Miso and Tofu", ""),
    ("We adopted a puppy last weekend", "Adopted a puppy last weekend", ""),
    ("I'm allergic to peanuts", "Is allergic to peanuts", ""),
    ("I have type 1 diabetes", "Has type 1 diabetes", ""),
    ("I'm lactose intolerant", "Is lactose intolerant", ""),
    ("I was diagnosed with ADHD last year", "Was diagnosed with ADHD last year", ""),
    ("im vegetarian btw", "Is vegetarian", "diet"),
    ("I've been vegan since 2019", "Has been vegan since 2019", "diet"),
    ("I can't eat gluten", "Cannot eat gluten", ""),
    ("I don't eat pork", "Does not eat pork", ""),
    ("I don't drink alcohol", "Does not drink alcohol", ""),
    ("I'm left-handed", "Is left-handed", ""),
    ("I drive a 2012 Volvo", "Drives a 2012 Volvo", ""),
    ("I own a cabin in Norway", "Owns a cabin in Norway", ""),
    ("I play the cello in an orchestra", "Plays the cello in an orchestra", ""),
    ("I volunteer at an animal shelter", "Volunteers at an animal shelter", ""),
    ("My pronouns are they/them", "Pronouns are they/them", "pronouns"),
    ("I go to the gym three times a week", "Goes to the gym three times a week", ""),
    ("I'm not a programmer", "Is not a programmer", ""),
    ("I'm new to Rust", "Is new to Rust", ""),
    ("I used to live in Paris", "Used to live in Paris", ""),
    ("I got married in June", "Got married in June", "marital status"),
    ("I lost my job in April", "Lost my job in April".replace("my", "their"), ""),
    ("My boss is called Karen", "Boss is called Karen", ""),
    ("Emma is my daughter", "Daughter is Emma", ""),
]
PREFERENCES = [
    ("I prefer tea to coffee", "Prefers tea to coffee", "prefers:coffee or tea"),
    ("I love hiking", "Loves hiking", "prefers:hiking"),
    ("I really like Thai food", "Really likes Thai food", "prefers:thai food"),
    ("I hate cilantro", "Hates cilantro", "prefers:cilantro"),
    ("I don't like horror movies", "Does not like horror movies", "prefers:horror movie"),
    ("I can't stand olives", "Cannot stand olives", "prefers:olive"),
    ("I enjoy long walks and jazz", "Enjoys long walks and jazz", "prefers:long walk"),
    ("My favourite colour is green", "Favourite colour is green", "favourite colour"),
    ("my favorite band is Radiohead", "Favorite band is Radiohead", "favourite band"),
    ("Green is my favorite color", "Favorite color is Green", "favourite colour"),
    ("I prefer direct answers without preamble", "Prefers direct answers without preamble", None),
    ("I prefer short answers", "Prefers short answers", "answer length"),
    ("Please keep your answers short", "Wants the assistant to keep its answers short", "answer length"),
    ("Please always answer in French", "Wants the assistant to always answer in French", "answer language"),
    ("Never use emojis", "Wants the assistant to never use emojis", "emojis"),
    ("Always use metric units, please", "Wants the assistant to always use metric units", "units"),
    ("From now on, reply in Spanish", "Wants the assistant to reply in Spanish", "answer language"),
    ("Don't use emojis in your answers", "Wants the assistant not to use emojis in its answers", "emojis"),
    ("Call me Ben", "Wants to be called Ben", "called"),
    ("I go by Max", "Goes by Max", "called"),
    ("I use Neovim", "Uses Neovim", "editor"),
    ("I switched to Emacs", "Switched to Emacs", "editor"),
    ("My editor is VS Code", "Editor is VS Code", "editor"),
    ("I prefer dark mode", "Prefers dark mode", "theme"),
    ("I'm a huge fan of Terry Pratchett", "Is a huge fan of Terry Pratchett", "prefers:terry pratchett"),
    ("I'm not a fan of mushrooms", "Is not a fan of mushrooms", "prefers:mushroom"),
    ("I'm really into bouldering", "Is really into bouldering", "prefers:bouldering"),
    ("I'm a morning person", "Is a morning person", ""),
    ("I'd rather not fly", "Would rather not fly", ""),
    ("I avoid dairy", "Avoids dairy", "prefers:dairy"),
    ("I like it when you explain step by step", "Likes it when you explain step by step", ""),
    ("I've always loved the sea", "Has always loved the sea", "prefers:sea"),
]
PROJECTS = [
    ("I'm building a local-first chat app", "Building a local-first chat app", ""),
    ("We're building a marketplace for used bikes", "Building a marketplace for used bikes", ""),
    ("I'm working on a novel about Iceland", "Working on a novel about Iceland", ""),
    ("I'm writing my master's thesis on bees", "Writing their master's thesis on bees", ""),
    ("I'm learning Japanese", "Learning Japanese", ""),
    ("I've been learning Rust for a month", "Has been learning Rust for a month", ""),
    ("I'm training for a marathon in Berlin", "Training for a marathon in Berlin", ""),
    ("We're moving to Oslo in May", "Moving to Oslo in May", "next home"),
    ("I'm planning a trip to Japan in April", "Planning a trip to Japan in April", ""),
    ("We plan to launch in September", "Plans to launch in September", ""),
    ("I've decided to go with Postgres", "Has decided to go with Postgres", ""),
    ("We decided against Kubernetes", "Decided against Kubernetes", ""),
    ("Let's go with Postgres", "Decided to go with Postgres", ""),
    ("We'll go with Hetzner for hosting", "Will go with Hetzner for hosting", ""),
    ("Our launch is on 3 March", "Launch is on 3 March", "launch"),
    ("Our budget is 20,000 euros", "Budget is 20,000 euros", "budget"),
    ("My goal is to run a half marathon", "Goal is to run a half marathon", "goal"),
    ("The deadline is Friday", "The deadline is Friday", "deadline"),
    ("The project is called Nimbus", "The project is called Nimbus", ""),
    ("I'm getting married in August", "Getting married in August", ""),
    ("I'm starting a new job on Monday", "Starting a new job on Monday", ""),
    ("I have an exam on 12 June", "Has an exam on 12 June", ""),
    ("We're using FastAPI for the backend", "Using FastAPI for the backend", ""),
    ("We use Postgres in production", "Uses Postgres in production", ""),
    ("I want to learn Italian this year", "Wants to learn Italian this year", ""),
    ("I'm saving up for a house", "Saving up for a house", ""),
    ("I'm looking for a new job", "Looking for a new job", ""),
    ("We're renovating our kitchen", "Renovating their kitchen", ""),
    ("I'm thinking about moving to Spain", "Thinking about moving to Spain", ""),
    ("I might move to Canada next year", "Might move to Canada next year", "next home"),
    ("I'm flying to Tokyo on 9 March", "Flying to Tokyo on 9 March", ""),
    ("I'm trying to lose weight", "Trying to lose weight", ""),
    ("We need to ship by Friday", "Needs to ship by Friday", ""),
]
HABITS = [
    ("I usually run on Tuesdays", "Usually runs on Tuesdays", ""),
    ("I always write queries by hand", "Always writes queries by hand", ""),
    ("In winter I repair old radios", "Repairs old radios in winter", ""),
    ("please use grams in recipes, cups drive me nuts", "Wants the assistant to use grams in recipes", "weight unit"),
    ("Please answer in British spelling", "Wants the assistant to answer in British spelling", "spelling"),
    (
        "please give me distances in kilometres",
        "Wants the assistant to give them distances in kilometres",
        "distance unit",
    ),
    ("Don't suggest paid plugins", "Wants the assistant not to suggest paid plugins", ""),
    ("No lists please", "Wants no lists", ""),
    ("Short sentences, please", "Wants short sentences", ""),
]
OWN = [
    ("I never work Wednesdays", "Never works Wednesdays", ""),
    ("I cycle to work every day", "Cycles to work every day", ""),
    ("My left knee has been a problem since an operation", "Left knee has been a problem since an operation", ""),
    ("My shifts rotate every two weeks", "Shifts rotate every two weeks", ""),
    ("My youngest starts kindergarten in August", "Youngest starts kindergarten in August", ""),
    ("My school doesn't allow phones", "School does not allow phones", ""),
    ("Half of my soil samples come from a farm", "Soil samples come from a farm", ""),
    ("I've worked there for eleven years", "Has worked there for eleven years", ""),
    ("I ran my first marathon in Valencia", "Ran my first marathon in Valencia".replace("my", "their"), ""),
    ("I learned to cook from my aunt", "Learned to cook from their aunt", ""),
    ("I've got a tiny kitchen with a gas oven", "Has got a tiny kitchen with a gas oven", ""),
    ("I can barely hear on the left side", "Can barely hear on the left side", ""),
    ("By training I'm a chemist", "Is a chemist by training", "job"),
]
TEAMS = [
    ("We make returnable packaging", "Makes returnable packaging", ""),
    ("We closed our seed round in March", "Closed their seed round in March", ""),
    ("We're going with annual billing", "Going with annual billing", ""),
    ("We track everything in HubSpot", "Tracks everything in HubSpot", ""),
    ("For the website we chose Shopify", "Chose Shopify for the website", ""),
    ("I'll go with plain REST then", "Will go with plain REST then", ""),
    ("next I want to add a scale under each hive", "Wants to add a scale under each hive next", ""),
    ("It's for a dashboard that I'm building for my bees", "Building a dashboard for their bees", ""),
    ("The build runs on a Raspberry Pi in my shed", "The build runs on a Raspberry Pi in their shed", ""),
    ("My supervisor wants a draft by the end of May", "Supervisor wants a draft by the end of May", ""),
    ("The council wants a new exit before Christmas", "The council wants a new exit before Christmas", ""),
]
CATEGORIES = {"identity": IDENTITY + OWN, "preference": PREFERENCES + HABITS, "project": PROJECTS + TEAMS}


@pytest.mark.parametrize(("message", "text", "slot"), [row for rows in CATEGORIES.values() for row in rows])
def test_a_statement_about_oneself_is_found(message, text, slot):
    assert text in texts(message)


@pytest.mark.parametrize(("message", "text", "slot"), [row for rows in CATEGORIES.values() for row in rows])
def test_a_statement_is_found_as_one(message, text, slot):
    assert len(statements(message)) == 1 or message.count("Rex") or message.startswith("Hello! I'm Ana")


@pytest.mark.parametrize(
    ("message", "slot"), [(row[0], row[2]) for rows in CATEGORIES.values() for row in rows if row[2] is not None]
)
def test_a_statement_names_what_it_is_a_value_of(message, slot):
    assert statements(message)[0].slot == slot


@pytest.mark.parametrize(
    ("message", "category"), [(row[0], category) for category, rows in CATEGORIES.items() for row in rows]
)
def test_a_statement_has_its_category(message, category):
    assert statements(message)[0].category == category


QUESTIONS = """
Do I live in a flood zone?
Am I a good fit for this job?
Can I work from home in Portugal?
What if I moved to Berlin?
Should I learn Rust or Go?
I live in Lisbon, right?
Is it bad that I like pineapple on pizza?
Could you tell me how I can work at Google?
Why do I hate Mondays?
Is my daughter too young for this?
What's my favourite colour?
where do i live
do you know where I work
What would you do if you were me?
Who is my boss?
""".strip().split("\n")
HYPOTHETICAL = """
If I lived in Paris, I would eat croissants every day.
Suppose I work at NASA.
Imagine I'm a pirate and I live on a ship.
Let's say I have two kids and a dog.
Pretend I am your teacher. I'm 50 years old.
I wish I lived in Rome.
I would live in Oslo if it were warmer.
If we moved to Spain, we would need a car.
Assume I have a dog named Rex.
What if I'm allergic to nuts?
Let's role-play: I'm a detective from Chicago.
Act as if I were a doctor.
Unless I get a raise, I'm leaving.
""".strip().split("\n")
OTHERS_WORDS = r"""
She said I love cats.
My boss told me I am a good manager.
"I live in Paris" is my example sentence.
He wrote: I work at Acme.
> I live in Lisbon
Translate this: I live in Lisbon and work as a nurse.
Translate "My name is Ben and I like tea" into French.
Proofread this text: I am a teacher from Spain.
Write a story: I live in a castle and have a dragon.
Write a poem that begins with: I am a king
How do you say "I am allergic to nuts" in Japanese?
The lyrics: I was born in the USA
The narrator says I hate Mondays.
My wife says she likes jazz.
Customer: I live in Berlin
My sister thinks I'm lazy
He is allergic to peanuts.
They live in Lisbon.
Her favourite colour is red.
You are a helpful assistant.
```\nI live in Lisbon\n```
{"name": "Ben", "text": "I live in Lisbon"}
| I live in | Lisbon |\n|---|---|\n| my | dog |
name = "I live in Lisbon"
Fix the grammar: I has two dog.
""".strip().split("\n")
OTHERS_WORDS = [line.replace("\\n", "\n") for line in OTHERS_WORDS]
REQUESTS = """
I want you to write a poem about autumn
I need help with my homework
I'd like a table with three columns
I'd like to know more about Lisbon
I want to know how to cook rice
I need a regex for dates
I want to make sure this is right
I'd love to see an example
I would like you to explain that again
I'm looking for a way to sort a list
I want this in blue
Please write an email to my boss
Please answer the question
Keep it short
I need to understand closures
I'd prefer a table
I want a function that parses dates
Call me back when it is done
Give me five ideas
Don't change the function name
Always returns None for some reason
Use the second option
Add a comment to the function
I have to write an email
""".strip().split("\n")
MOMENTARY = """
I'm tired
I'm confused
I'm looking at line 3
I have a question
I have a problem with my code
I have an idea
I think so
I see
I get an error
I'm getting a TypeError
I'm stuck
I'm not sure
I'm sure it works
I'm sorry
I'm back
I'm done
I'm OK
I'm trying to fix this bug
I'm using the code above
I'm running into a problem
I'm running this script
I'm on page 3
I'm on it
I'm in a meeting
I'm just asking
I'm wondering about the weather
I'm afraid that won't work
I'm having trouble with the install
I moved the file to /tmp
I tried that
I just ran the tests
I changed line 4
I used the first example
I'm a bit lost
I'm 90% sure
I'm 5 minutes late
I'm talking about the second one
I have no idea
I have to go
I've been debugging this for hours
I don't know
I don't understand
I don't see it
I can't get it to work
I can't find the button
I'm going to try that
I'm going to bed
I'll try it tomorrow
I'll check
My code is broken
My question is about the second step
My guess is that it leaks
My problem is the cache
My internet is slow
My boss is angry today
My dog is barking
My head hurts
Our API returns 500
We should fix it
Our meeting is over
I mean the other file
I forgot the link
I started the server
I opened the file
I'm writing to ask about the invoice
I'm working on it
I'm working on that bug
I have a list of numbers
I have a table with two columns
I have a function that has a parent class
""".strip().split("\n")
PLEASANTRIES = """
I love it, thanks!
I like your answer
I like that
I prefer that one
I like it
I like the second option
I love this
I love you
I prefer the first version
I like how you explained it
I like the idea
I hate it
I appreciate your help
I enjoyed our chat
I hate to bother you
I love the new title
I'm glad that it works
I'm happy with the result
I agree
Thanks, I got it
I hope you are well
I like both
Yeah right, I love waiting in line
Oh great, I love Mondays
I just love it when the build fails
Sure, I love paying taxes /s
I love how this crashes every time
""".strip().split("\n")


@pytest.mark.parametrize("message", QUESTIONS)
def test_a_question_says_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", HYPOTHETICAL)
def test_what_is_only_supposed_says_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", OTHERS_WORDS)
def test_the_words_of_others_say_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", REQUESTS)
def test_a_request_says_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", MOMENTARY)
def test_a_momentary_state_says_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", PLEASANTRIES)
def test_a_pleasantry_says_nothing(message):
    assert texts(message) == []


SHOWN = """
I love the blue vase in the pic
I like my hand-painted bowl
I love the colors and the vibe
Love and acceptance should be everyone's right
I love hearing about it
I'm really looking forward to it
I was in it
Building a community is really cool
""".strip().split("\n")
OBLIGATIONS = """
We should fix it
We gotta look after it
I open the door
I walk into the tavern
I scroll through the list
My code is a mess
My last exam was awful
Please write an email in French
Please give me a list in kilometres
We need to fix it
We make a great team
I require a concrete plan
""".strip().split("\n")
PLAYED = [
    "Look at this,\nI live beneath the sea,\nmy house is made of shells,\nI love the drowned bells.",
    'What do you think?\n"I wander through the night\nmy house is made of shells\nI love the drowned bells"',
    "*I draw my sword and step forward* I live in the castle.",
    "You are the dragon and I'm a knight. I live in a castle.",
]


@pytest.mark.parametrize("message", SHOWN)
def test_praise_of_what_was_shown_says_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", OBLIGATIONS)
def test_what_one_should_do_or_does_once_says_nothing(message):
    assert texts(message) == []


@pytest.mark.parametrize("message", PLAYED)
def test_verse_and_stage_directions_say_nothing(message):
    assert texts(message) == []


def test_several_short_lines_are_no_verse():
    assert texts("hey there\nI live in Rome\nmy name is Ben\nwhat now?") == ["Lives in Rome", "Name is Ben"]


@pytest.mark.parametrize(
    "message", ["sounds great I live in Rome", "ok cool We live in Rome", "I live in Rome :) What is new?"]
)
def test_a_sentence_begins_where_its_mark_was_left_out(message):
    assert texts(message) == ["Lives in Rome"]


@pytest.mark.parametrize("message", ["I left Acme", "Left Acme", "I left my job at Acme", "I quit my job"])
def test_who_leaves_a_job_has_no_employer(message):
    assert [(found.slot, found.ends) for found in statements(message)] == [("employer", True)]


def test_a_job_that_was_left_years_ago_is_not_the_one_of_today():
    assert [(found.slot, found.ends) for found in statements("I left Google in 2014")] == [("", False)]


def test_a_partners_name_is_no_marital_status():
    assert [found.slot for found in statements("I'm married. My wife is called Ana.")] == ["marital status", "partner"]


def test_what_was_given_up_takes_the_place_of_the_liking():
    (liked,), (over,) = statements("I love cigarettes"), statements("I gave up cigarettes two years ago")
    assert (over.slot, over.ends) == (liked.slot, False)


def test_an_object_is_not_cut_at_its_first_comma():
    (found,) = statements("I'm passionate about creating a safe, inviting place for kids")
    assert (found.text, found.slot) == ("Is passionate about creating a safe, inviting place for kids", "")


SPLIT = [
    (
        "I'm Ben, 34, and I live in Leeds with my wife Ana",
        ["Name is Ben", "Is 34", "Lives in Leeds with their wife Ana"],
    ),
    ("I'm vegetarian, what can I cook?", ["Is vegetarian"]),
    ("I live in Lisbon and work at Siemens.", ["Lives in Lisbon", "Works at Siemens"]),
    ("I don't eat pork because I'm Muslim", ["Does not eat pork", "Is Muslim"]),
    ("I love tea but I hate coffee", ["Loves tea", "Hates coffee"]),
    ("I'm a nurse from Leeds and I have two kids.", ["Is a nurse from Leeds", "Has two kids"]),
    ("Since I'm allergic to nuts, which bars are safe?", ["Is allergic to nuts"]),
    ("Thanks! By the way, I moved to Oslo. Is it cold?", ["Moved to Oslo"]),
    ("I have two cats and a dog", ["Has two cats and a dog"]),
]


@pytest.mark.parametrize(("message", "found"), SPLIT)
def test_a_sentence_is_split_where_that_is_safe(message, found):
    assert texts(message) == found


@pytest.mark.parametrize(
    ("message", "slot"),
    [
        ("I no longer work at Acme", "employer"),
        ("I don't work at Acme anymore", "employer"),
        ("I'm not vegan any more", "diet"),
        ("I don't eat vegetarian any more", "diet"),
        ("I no longer live in Rome", "home"),
        ("I no longer like coffee", "prefers:coffee"),
        ("We don't live in Spain any longer", "home"),
        ("I no longer use Vim", "editor"),
    ],
)
def test_a_statement_may_only_end_what_was_so(message, slot):
    assert [(found.slot, found.ends) for found in statements(message)] == [(slot, True)]


@pytest.mark.parametrize("message", ["I live in Rome", "I don't eat pork", "I moved to Oslo", "I'm not a programmer"])
def test_a_new_value_does_not_only_end_the_old_one(message):
    assert [found.ends for found in statements(message)] == [False]


@pytest.mark.parametrize(
    ("message", "confidence"),
    [
        ("I live in Rome", 0.9),
        ("I think I'm allergic to cats", 0.6),
        ("Maybe I'm lactose intolerant", 0.6),
        ("I might move to Canada next year", 0.6),
        ("Remember that I live in Rome", 0.95),
        ("For the record, I live in Rome", 0.95),
        ("Please remember: I'm allergic to nuts", 0.95),
    ],
)
def test_a_statement_is_as_sure_as_it_was_said(message, confidence):
    assert [found.confidence for found in statements(message)] == [confidence]


@pytest.mark.parametrize("message", ["I live in Oslo", "I moved to Oslo", "I'm based in Oslo", "We relocated to Oslo"])
def test_phrasings_of_the_same_share_a_slot(message):
    assert [found.slot for found in statements(message)] == ["home"]


@pytest.mark.parametrize(
    "lead", ["btw, ", "Also, ", "oh and ", "Well, ", "Hi! ", "By the way ", "ok so ", "FYI: ", "- "]
)
def test_what_leads_in_is_left_out(lead):
    assert texts(f"{lead}I live in Rome") == ["Lives in Rome"]


def test_a_statement_is_short():
    (found,) = statements("I love " + "very long walks along the river with friends and " * 7 + "jazz")
    assert len(found.text) <= 160


def test_the_same_said_twice_is_one_statement():
    assert len(statements("I live in Rome. Yes, I live in Rome.")) == 1


HOSTILE = [
    "I ",
    "my ",
    "I am ",
    "I'm a ",
    "and I ",
    "I like ",
    "a",
    "my dog ",
    '"',
    "'",
    ", ",
    "I have a ",
    "- I am in Rome\n",
    "\n",
    " ",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_input_takes_linear_time(piece):
    message = "I " + piece * (100_000 // len(piece))
    began = time.process_time()
    statements(message)
    assert time.process_time() - began < 2


@given(
    st.text()
    | st.lists(st.sampled_from("I my am like live in a and not have , . ? ' Rome the dog is we no longer".split())).map(
        " ".join
    )
)
@settings(max_examples=300, deadline=None)
def test_any_text_gives_short_statements_with_known_categories(message):
    for found in statements(message):
        assert isinstance(found, Statement)
        assert found.text.strip()
        assert len(found.text) <= 160
        assert found.category in CATEGORIES
        assert 0 < found.confidence <= 1
