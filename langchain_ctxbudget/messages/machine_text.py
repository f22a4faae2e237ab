"""Tells what programs write in the user's name from what the user says.

Agents put notifications, reminders and the output of commands into messages of the user, between
tags or as a notice. None of that is a question, a rule or a statement of the user. What the user
types behind a command may be one.
"""

from langchain_ctxbudget.messages.text import ENGLISH


def typed_words(text: str) -> str:
    """Returns the part of a user's message that the user may have typed.

    Of a command it is what was typed behind it. Notices of programs are left out, and so are plans
    and instructions that a program gives in the user's name. Tags are left to `without_pasted`, as
    somebody may imitate them.
    """
    argument = _typed_behind_command(text)
    if argument is not None:
        return argument
    return ENGLISH.given_text.sub("", ENGLISH.notice.sub("", text))


def without_machine_text(text: str) -> str:
    """Returns a user's message without what programs have written into it; empty if that is all.

    What the user has pasted, and a plan that is to be carried out, stay, as a question may be about
    them.
    """
    argument = _typed_behind_command(text)
    if argument is not None:
        return argument
    return _without_machine_elements(ENGLISH.notice.sub("", text)).strip()


def _typed_behind_command(text: str) -> str | None:
    """Returns what the user has typed behind a command; None if the message is no command."""
    command = ENGLISH.typed_command.fullmatch(text)
    return command["words"].strip() if command else None


def _without_machine_elements(text: str) -> str:
    """Returns a text without the tags of programs and without what stands between them.

    A tag that is never closed stays.
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
