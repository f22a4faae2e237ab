"""Tells what a user says from mails, letters and reported speech in the user's message.

A mail or a letter that was pasted has no marks around it. It is recognised by how mails look in any
language: lines such as "From: Bob <bob@example.org>", or one that ends in "wrote:" behind a date. A
mail may imitate its own end, so all behind its head counts as a part of it.
"""

import re
from itertools import pairwise

from langchain_ctxbudget.messages.text import vocabulary

LETTERS = vocabulary("messages", "letters")
_COLONS = (":", "\uff1a")
LEFT_OUT = "\n[\u2026]\n"
"""No sentence, so that nobody reads what stands before and after it as one."""
FEWEST_HEADERS = 2
"""Lines of a mail's head at least."""
MOST_WORDS_OF_GREETING = 5
"""Of a line that greets somebody, or says goodbye."""


def without_letters(text: str) -> str:
    """Returns a text without mails and letters, and without texts that are given to be worked on.

    What is to be translated or proofread is nobody's rule, whoever has written it.
    """
    mail = _mail_begin(text)
    if mail is not None:
        text = text[:mail] + LEFT_OUT
    letter = _shown_letter_begin(text)
    if letter is not None:
        text = text[:letter] + LEFT_OUT
    given = _given_span(text)
    if given is not None:
        begin, end = given
        text = text[:begin] + LEFT_OUT + text[end:]
    return text if any(map(str.isalnum, text)) else ""


def somebody_elses_from(text: str) -> int:
    """Returns where words begin that may be somebody else's; the length of the text if none do.

    They do behind "From: Bob", and at the greeting of a letter that somebody has signed. Such words
    may be the user's all the same, so they only take nothing back.
    """
    sender = LETTERS.sender.search(text)
    begins = [len(text)] if sender is None else [sender.start()]
    greeting = _greeting_of_signed_letter(text)
    if greeting is not None:
        begins.append(greeting)
    return min(begins)


def without_reported_speech(sentence: str) -> str:
    """Returns a sentence without what somebody else says in it: "Bob says you may deploy".

    What stands before such a clause stays, and so does what the user concludes from it. Nothing
    stays if all of the sentence may be somebody else's word.
    """
    if LETTERS.reported_whole.search(sentence):
        return ""
    reported = LETTERS.reported.search(sentence)
    if reported is None:
        return sentence
    clauses = LETTERS.clause_end.finditer(sentence, 0, reported.start())
    begin = max((found.end() for found in clauses), default=0)
    conclusion = LETTERS.concludes.search(sentence, reported.end())
    end = len(sentence) if conclusion is None else conclusion.start()
    return sentence[:begin] + sentence[end:]


def _has_colon(text: str) -> bool:
    """Tells whether a text has a colon, without which it has no mail and announces no text."""
    return ":" in text or "\uff1a" in text


# Mails


def _mail_begin(text: str) -> int | None:
    """Returns where the head of the first mail begins; None if there is none."""
    if not _has_colon(text):
        return None
    begins = [found.start() for found in LETTERS.wrote.finditer(text)]
    begins += [found.start() for found in LETTERS.headers.finditer(text) if _is_head(found[0])]
    return min(begins, default=None)


def _is_head(lines: str) -> bool:
    """Tells whether lines of names and values are the head of a mail."""
    headers = lines.strip().split("\n")
    addresses = [line for line in headers if LETTERS.address.search(line)]
    times = [line for line in headers if LETTERS.time.search(line)]
    senders = [line for line in headers if LETTERS.sender.match(line)]
    subjects = [line for line in headers if LETTERS.subject.match(line)]
    kinds = [addresses, times, senders, subjects]
    lines_of_mails = {line for kind in kinds for line in kind}
    if len(lines_of_mails) < FEWEST_HEADERS:
        return False
    return len(addresses) > 1 or sum(map(bool, kinds)) >= FEWEST_HEADERS


# Letters


def _shown_letter_begin(text: str) -> int | None:
    """Returns where a letter begins that the user shows; None if there is none.

    Its greeting stands in a line behind the user's own words. These announce it with a colon, or a
    line behind the greeting says goodbye. One at the beginning of a message may be addressed to the
    assistant.
    """
    greetings = [found.start() for found in LETTERS.salutation.finditer(text)]
    if not greetings:
        return None
    last_goodbye = max((found.start() for found in LETTERS.closing.finditer(text)), default=0)
    for begin in greetings:
        own_words = text[:begin].rstrip()
        is_letter = begin < last_goodbye or own_words.endswith(_COLONS)
        if own_words and is_letter:
            return begin
    return None


def _greeting_of_signed_letter(text: str) -> int | None:
    """Returns where a letter begins that has a greeting and is signed; None if there is none."""
    lines = [line for line in re.finditer(r"[^\n]+", text) if line[0].strip()]
    is_signed = len(lines) > FEWEST_HEADERS and _is_signed(lines[-2][0], lines[-1][0])
    if not is_signed:
        return None
    for line in lines[:-2]:
        if _is_short(line[0]) and line[0].rstrip().endswith(_GREETING_ENDS):
            return line.start()
    return None


_GREETING_ENDS = (",", "!", "\uff0c", "\uff01")


def _is_signed(goodbye: str, name: str) -> bool:
    """Tells whether the last two lines of a text say goodbye and give a name."""
    if not _is_short(goodbye) or not LETTERS.name.fullmatch(name):
        return False
    is_in_capitals = all(not word[0].islower() for word in name.split())
    return is_in_capitals and not LETTERS.ends.search(goodbye.rstrip("!"))


def _is_short(line: str) -> bool:
    return len(line.split()) <= MOST_WORDS_OF_GREETING


# Texts that are given to be worked on


def _given_span(text: str) -> tuple[int, int] | None:
    """Returns where a text stands that is to be worked on; None if there is none.

    It is announced with a colon. One that goes on in the same line, and is no letter, ends with its
    paragraph.
    """
    if not _has_colon(text):
        return None
    for request in LETTERS.works_on.finditer(text):
        if LETTERS.works_always.search(request[0]):
            continue
        begin = request.end()
        paragraph_end = text.find("\n\n", begin)
        given = text[begin:]
        is_letter = LETTERS.greeting.match(given) or not given.split("\n")[0].strip()
        if paragraph_end < 0 or is_letter or _ends_signed(given):
            return begin, len(text)
        return begin, paragraph_end
    return None


def _ends_signed(text: str) -> bool:
    """Tells whether a text ends as a letter does."""
    lines = [line for line in text.split("\n") if line.strip()]
    return any(_is_signed(*pair) for pair in list(pairwise(lines))[-1:])
