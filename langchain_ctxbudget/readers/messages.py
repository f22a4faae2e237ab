"""Messages of OpenAI, Anthropic and LangChain, as applications keep them."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from langchain_ctxbudget.readers.base import (
    GroupReader,
    JsonObject,
    ReadConversation,
    id_of_beginning,
)
from langchain_ctxbudget.readers.fields import TITLE_KEYS, id_at, objects_in, text_at
from langchain_ctxbudget.readers.message_forms import is_message, messages_in


class Messages(GroupReader):
    """Reads messages in a list or line by line, and objects with `messages`."""

    name: ClassVar[str] = "messages"
    accepts: ClassVar[str] = (
        "messages of openai, anthropic or langchain (as messages_to_dict, model_dump or dumps "
        'write them), or objects with "messages"'
    )

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a message, or has a list of them."""
        return isinstance(record.get("messages"), list) or is_message(record)

    def groups(self, records: Sequence[JsonObject]) -> Iterable[Sequence[JsonObject]]:
        """Returns each object with messages, and all messages outside of such as one."""
        alone = [record for record in records if "messages" not in record]
        if alone:
            yield alone
        for record in records:
            if "messages" in record:
                yield [record]

    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the conversation of one object with messages, or of messages."""
        first = records[0]
        if "messages" not in first:
            messages = messages_in(records)
            return ReadConversation(conversation_id=id_of_beginning(messages), messages=messages)
        messages = messages_in(first["messages"])
        return ReadConversation(
            conversation_id=id_at(first) or id_of_beginning(messages),
            title=text_at(first, *TITLE_KEYS),
            messages=messages,
            tools=tuple(objects_in(first.get("tools"))),
        )
