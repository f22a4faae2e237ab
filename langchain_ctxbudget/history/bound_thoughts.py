"""Thoughts that are bound to what they were made behind.

Where a provider checks that (`Profile.binds_thoughts`), a thought is sent only as long as nothing
before it has changed. A conversation is planned without those that will not be sent, so that they
cost nothing; `prompt/bound_thoughts.py` has the last word.
"""

from collections.abc import Collection, Container

from langchain_ctxbudget.history.backgrounds import Background
from langchain_ctxbudget.history.columns import Entry
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.stores import CutRecord


def with_thoughts_at(conversation: Conversation, kept: Container[int]) -> Conversation:
    """Returns a conversation in which only the messages at some positions have their thoughts.

    It is as it was where the provider does not bind them.
    """
    conversation = conversation.thinking or conversation
    if not conversation.profile.binds_thoughts:
        return conversation
    end = len(conversation.entries)
    lost = [at for at in conversation.table.thoughts if at < end and at not in kept]
    if not lost:
        return conversation

    costs = conversation.cost_column.copy()
    bare_entries: dict[int, Entry] = {}
    for position in lost:
        entry = conversation.entries[position]
        bare, tokens = conversation.columns.without_thoughts(position, entry, conversation.counter)
        bare_entries[position] = bare
        if costs[position]:  # else it is in no prompt
            costs[position] = tokens
    return conversation.with_bare_entries(bare_entries, costs)


def bound_since(backgrounds: Collection[Background], record: CutRecord) -> set[int]:
    """Returns the positions of answers that were made behind prompts with a cut.

    These are prompts that the next one may extend. A background with texts that are shown once
    stands otherwise in the next prompt, so what was thought behind it is not among them.
    """
    positions: set[int] = set()
    for background in backgrounds:
        if background.stands_behind(record) and background.lasting == background:
            positions.update(background.answers)
    return positions
