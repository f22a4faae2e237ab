"""Corrects whose somebody or something is by the words of the user's messages.

Now and then a model takes the Max of "my mother's cat Max" for the mother. Only English wordings
are found.
"""

import re
from collections.abc import Sequence

from langchain_ctxbudget.knowledge.records import Learned, LearnedEntity, ReadMessage

_OF_THE_USER = re.compile(r"(?i)^(?:my|(?:the )?user['\u2019]s) ")
"""Words with which a model may begin a relationship."""
_OWNED = r"(?:['\u2019]s|(?<=s)['\u2019])(?: [\w-]+){1,3}?"
"""What follows on an owner, and says what is owned: "'s old cat"."""
_CALLED = r",?(?: (?:(?:is|was) )?(?:called|named))?"
"""What may stand between that and its name."""


def with_stated_relationships(learned: Learned, messages: Sequence[ReadMessage]) -> Learned:
    """Returns what was learned, in which nobody and nothing is taken for its owner.

    Args:
        learned: What was learned.
        messages: The user's messages that it was learned from.
    """
    text_of = {message.id: message.text for message in messages}
    entities: list[LearnedEntity] = []
    for entity in learned.entities:
        texts = [text_of[name] for name in entity.message_ids if name in text_of]
        entities.append(_with_stated_relationship(entity, texts))
    return learned._replace(entities=tuple(entities))


def _with_stated_relationship(entity: LearnedEntity, texts: Sequence[str]) -> LearnedEntity:
    """Returns an entity with the relationship that texts state, where it was taken for its owner.

    As its type was the owner's, too, it becomes a concept.
    """
    owner = _OF_THE_USER.sub("", entity.relationship).strip()
    if not owner:
        return entity
    stated = re.compile(rf"(?i)\b({re.escape(owner)}{_OWNED}){_CALLED} {re.escape(entity.name)}\b")
    for text in texts:
        match = stated.search(text)
        if match:
            return entity._replace(relationship=match[1], type="concept")
    return entity
