"""What programs write in the user's name, told from what the user says.

Agents put notifications, reminders and the output of commands into messages of the user, between
tags or as a notice. Nothing of it is a question, a rule or a statement of the user's. What a user
types behind a command is.
"""

from langchain_ctxbudget.messages.text import ENGLISH


def typed_words(text: str) -> str:
    """Returns what of a user's message may be typed by the user.

    Of a command it is what was typed behind it. Notices of programs, and plans and instructions
    that a program gives under the user's name, are left out. What stands between tags is for
    `without_pasted` to leave out: a tag may be imitated.
    """
    command = ENGLISH.typed_command.fullmatch(text)
    if command:
        return command["words"].strip()
    return ENGLISH.given_text.sub("", ENGLISH.notice.sub("", text))


def without_machine_text(text: str) -> str:
    """Returns a user's message without what programs have written into it.

    What the user has pasted, and a plan that is to be carried out, stay: they are what a question
    is about. Empty where programs have written all of it.
    """
    command = ENGLISH.typed_command.fullmatch(text)
    if command:
        return command["words"].strip()
    return _without_machine_elements(ENGLISH.notice.sub("", text)).strip()


def _without_machine_elements(text: str) -> str:
    """Returns a text without the tags of programs and what stands between them.

    A tag that is never closed is left as it is.
    """
    kept: list[str] = []
    begin = 0
    open_name = ""
    opened_at = 0
    for mark in ENGLISH.machine_mark.finditer(text):
        name = mark["name"]
        if not open_name and not mark["closes"]:
            open_name = name
            opened_at = mark.start()
        elif mark["closes"] and name == open_name:
            kept.append(text[begin:opened_at])
            begin = mark.end()
            open_name = ""
    kept.append(text[begin:])
    return "".join(kept)
