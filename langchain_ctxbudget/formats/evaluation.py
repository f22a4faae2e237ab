"""Long conversations as evaluation sets publish them: `{"id", "turns", "questions"}`, one to a line."""

from __future__ import annotations

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.formats.document import Node
from langchain_ctxbudget.formats.model import Draft


def read_conversation(node: Node) -> Draft:
    """The turns as messages: the first speaker is the human, everyone else the assistant.

    Raises:
        ConversationFormatError: a turn has no speaker or no text.
    """
    turns = list(node.get("turns").items())
    human = turns[0].get("speaker").text() if turns else ""
    return Draft(
        format="evaluation",
        conversation_id=node.get("id").identifier(),
        title=node.get("title").optional_text(),
        messages=[_read_turn(turn, human) for turn in turns],
    )


def _read_turn(turn: Node, human: str) -> BaseMessage:
    speaker, time = turn.get("speaker").text(), turn.get("time").time()
    return (HumanMessage if speaker == human else AIMessage)(
        content=turn.get("text").text(),
        name=speaker,
        id=turn.get("id").identifier(),
        additional_kwargs={"created_at": time} if time else {},
    )
