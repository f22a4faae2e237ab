"""A handbook of ten pages, written for tests, and twenty questions about it.

Each question comes with a phrase that only the chunk has that answers it.
"""

PAGES = {
    "visiting.md": """\
# Visiting the tool library

## Opening hours

We are open from Tuesday to Friday between two and seven, and on Saturdays from ten to four. On
public holidays the door stays shut. The return box beside the gate takes small tools at any hour.

## How to find us

The library is in the old fire station on Quay Road. Take tram 4 to the last stop and walk towards
the river. Cars can stop in the yard for loading, twenty minutes at most.

## Access

The ramp is at the side door. Ring the lower bell and somebody opens. The toilets on the ground
floor are wide enough for a wheelchair.
""",
    "membership.md": """\
# Membership

## Joining

Bring a card with your photo and a letter with your address. Joining takes ten minutes. People
under sixteen join together with an adult who signs for them.

## Fees

A year costs thirty pounds, or twelve for students and people without work. Nobody is turned away:
ask at the desk for the hardship fund and no questions are asked.

## Leaving

Tell us by mail and return everything you have on loan. The part of the fee for the months that are
left goes to the hardship fund; it cannot be paid out.
""",
    "borrowing.md": """\
# Borrowing

## How long

Hand tools go out for two weeks, power tools for one. A loan can be renewed twice unless somebody
else has reserved the tool.

## How many

Five tools at once, of which two may be power tools. Sets count as one tool.

## Late returns

Each tool costs fifty pence for every day it is late, up to ten pounds. Whoever is late three times
in a year cannot reserve for a month. Illness counts as a reason: tell the desk.

## Reservations

Reserve on the web page or at the desk. A reserved tool waits for three days; then it goes to the
next in line.
""",
    "damage.md": """\
# Damage and loss

## Wear

Blunt blades and worn belts are our business. Tell the desk when you bring the tool back, so that
the next person does not take it home.

## Breakage

If a tool breaks in normal use, you pay nothing. If it was left in the rain or used for something
else than it is made for, you pay the repair, up to sixty pounds.

## Lost tools

A lost tool is paid for at what it would cost second hand. If it turns up within six months, you get
the money back less ten pounds.
""",
    "drills.md": """\
# Drills

## Cordless drill

The cordless drill has two batteries. Charge both before you go: a full charge takes fifty minutes.
Its chuck takes bits up to ten millimetres.

## Hammer drill

For concrete and stone take the hammer drill. Set the lever to the hammer sign. Its bits have a
slotted shank and do not fit the cordless drill.

## Care

Wipe dust from the vents after each use. Do not oil the chuck. Bits that have turned blue have lost
their hardness and go into the red bucket.
""",
    "saws.md": """\
# Saws

## Circular saw

The guard has to close by itself; try it before each use. The blade cuts sixty-five millimetres deep
at a right angle, forty-five at a slant. Wear glasses and ear protection.

## Jigsaw

Blades with fine teeth are for metal, coarse ones for wood. Set the stroke to zero for metal and
to three for quick cuts in wood.

## Chainsaw

The chainsaw is lent only to members who have shown a certificate. Trousers and helmet go with it
and have to be worn. Fill the chain oil each time you fill the petrol.
""",
    "catalogue.md": """\
# Catalogue

The catalogue has a small interface for those who write programs.

## Searching

Ask for tools by a word in their names:

```bash
curl "https://catalogue.example/tools?word=drill"
```

The answer is a list with number, name and shelf of each tool.

## Reserving

Send the number of a tool with your card number:

```python
import requests

answer = requests.post(
    "https://catalogue.example/reservations",
    json={"tool": 118, "card": "C-2041"},
    timeout=10,
)

if answer.status_code == 409:
    print("Somebody was faster.")
```

A tool that is out answers with the day on which it is due.

## Limits

Sixty calls a minute for each address. Whoever asks more often gets an answer with the status 429
and should wait for as many seconds as the header says.
""",
    "backup.md": """\
# Backups of the catalogue

## When

The database is copied every night at three. Copies stay for thirty days, those of the first of a
month for two years.

## By hand

Before a change of the schema make a copy by hand:

```bash
pg_dump --format=custom catalogue > before.dump

ls -l before.dump
```

## Restoring

Stop the web page first. Then read the copy back:

```bash
systemctl stop catalogue

pg_restore --clean --dbname=catalogue before.dump

systemctl start catalogue
```

Two people do this together. Write into the log book which copy was taken and why.
""",
    "workshop.md": """\
# Workshop

## Booking

The workshop has four benches. A bench costs three pounds an hour. Book by phone or at the desk, at
the latest on the day before.

## Safety

Long hair is tied back and loose sleeves are rolled up. The red button beside the door cuts the
power of all machines. First aid hangs above the sink.

## Children

Children from eight years on may work at the low bench while an adult stands beside them. Machines
are for people over sixteen.

## Courses

On the first Sunday of each month there is a course: sharpening in spring, bicycles in summer,
chairs in autumn, lamps in winter. It costs eight pounds with tea.
""",
    "volunteers.md": """\
# Volunteers

## Shifts

A shift is three hours long and has two people. Enter yourself into the plan on the wall by the
twentieth of the month before. Whoever cannot come finds somebody else and tells Imani.

## Keys

There are six keys. They hang in the safe, whose code Imani changes every quarter. Keys never leave
the house over night.

## The till

Count the till at the beginning and at the end and write both into the green book. Differences of
more than five pounds are told to the treasurer on the same day.
""",
}
"""Texts of the pages, by their sources."""

QUESTIONS = [
    ("Can I come on a Saturday?", "on Saturdays from ten to four"),
    ("Which tram goes to the library?", "Take tram 4"),
    ("Is there a way in with a wheelchair?", "wide enough for a wheelchair"),
    ("What do I bring for joining?", "a card with your photo"),
    ("How much is it for students?", "twelve for students"),
    ("Do I get my fee back when I leave?", "it cannot be paid out"),
    ("For how long may I keep a power tool?", "power tools for one"),
    ("What do I pay when I am late?", "fifty pence for every day"),
    ("How many tools can I take at once?", "Five tools at once"),
    ("I left the sander in the rain and it broke, what do I pay?", "up to sixty pounds"),
    ("I found the lost tool again, what happens with the money?", "turns up within six months"),
    ("How long does charging the drill take?", "fifty minutes"),
    ("Which drill is right for concrete?", "For concrete and stone"),
    ("How deep does the circular saw cut?", "sixty-five millimetres deep"),
    ("Who may borrow the chainsaw?", "shown a certificate"),
    ("How do I reserve a tool from a program?", "requests.post("),
    ("How often may a program ask the catalogue?", "Sixty calls a minute"),
    ("How do I restore the database from a copy?", "pg_restore"),
    ("How old must children be to work in the workshop?", "from eight years on"),
    ("What if the till differs at the end of a shift?", "Count the till"),
]
"""What is asked, and a phrase of the chunk that answers it."""
