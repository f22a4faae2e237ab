"""The turns of a conversation, and where they have answers."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.messages import is_user


def split_turns(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    """Splits a conversation into turns, each from a message of the user up to the next.

    Messages before the first one of the user are a turn of their own.
    """
    turns: list[list[BaseMessage]] = []
    for message in messages:
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def answers_in(turn: Sequence[BaseMessage]) -> list[int]:
    """Returns the positions of the answers in a turn.

    A message of the model at the beginning of the conversation answers nothing.
    """
    return [place for place, message in enumerate(turn) if place and isinstance(message, AIMessage)]
