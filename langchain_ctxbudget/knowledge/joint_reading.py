"""Learning from messages and summing them up in one call of a model, where both are due at once.

Both read the same messages, so these are sent once. The model gets the instructions of both, and
its reply has the fields of both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_ctxbudget import llm
from langchain_ctxbudget.history import ChatModelSummarizer, Digest, SummaryRequest
from langchain_ctxbudget.knowledge import extraction, records
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import ReadMessage
from langchain_ctxbudget.tokens import Purpose, TokenCounter, estimate_tokens

_TASKS = """You have two tasks, and answer both in one reply, with the fields of both.

# Task 1

{learning}

# Task 2

{summary}

The segment of task 2 is all of the messages, the earlier ones and the new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointQuestion:
    """Messages to learn from that are also the end of a span to sum up."""

    said: Sequence[ReadMessage]
    """The messages to learn from."""
    before: Sequence[ReadMessage]
    """The messages of the span before them."""
    known: Knowledge
    """What is known of the user."""
    request: SummaryRequest
    """The span, as a summary of it alone is asked for."""


class JointReader:
    """A model that learns from messages and sums up their span in one call."""

    def __init__(
        self, extractor: extraction.ChatModelExtractor, summarizer: ChatModelSummarizer
    ) -> None:
        self._extractor = extractor
        self._summarizer = summarizer
        self._schema = _joined(extraction.SCHEMA, summarizer.schema)
        self._model = llm.StructuredModel(
            extractor.model.model,
            self._schema,
            purpose=Purpose.LEARNING_AND_SUMMARY,
            names=("learn_and_summarize", "knowledge_extraction"),
            quotes=False,
            reply_tokens=extractor.model.reply_tokens + summarizer.model.reply_tokens,
        )

    def read(
        self,
        question: JointQuestion,
        counter: TokenCounter,
        book: Callable[[llm.AnsweredCall], None],
    ) -> tuple[records.Learned, Digest] | None:
        """Returns what a model learns from messages, and their span's digest.

        Returns None if the messages do not fit the model's window whole.

        Args:
            question: The messages.
            counter: Counts the tokens of the digest.
            book: Is told of each call that was answered, for usage.

        Raises:
            ModelReplyError: Both attempts have failed.
        """
        instructions = _TASKS.format(
            learning=extraction.INSTRUCTIONS,
            summary=self._summarizer.instructions(question.request),
        )
        in_words = extraction.schema_in_words(self._schema)
        facts, texts = self._extractor.texts_of(question.said, question.before, question.known)
        data = self._summarizer.before(question.request) + "".join(texts)
        prompt_tokens = sum(map(estimate_tokens, (instructions, in_words, data)))
        room_tokens = self._model.window_tokens - self._model.reply_tokens - llm.FRAMING_TOKENS
        if prompt_tokens > room_tokens:
            return None
        read = partial(self._parts, question.request, counter)
        failed = "told nothing that can be used"
        reply, digest = self._model.ask(
            instructions, in_words, data, read, failed=failed, book=book
        )
        return extraction.learned_in(reply, question.said, facts, self._model.name), digest

    def _parts(
        self, request: SummaryRequest, counter: TokenCounter, reply: str | Mapping[str, object]
    ) -> tuple[extraction.LearnedAboutUser, Digest]:
        """Returns both parts of a reply.

        Raises:
            ValueError: One of them cannot be used. The error's text has nothing of the reply in it.
        """
        learned = extraction.read_reply(reply)
        try:
            digest = self._summarizer.read(request, counter, reply)
        except ValueError as error:
            reason, _, _ = str(error).partition(":")  # behind the colon stands the reply
            raise ValueError(reason) from None
        return learned, digest


def _joined(*schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a schema with the fields of several."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for schema in schemas:
        properties.update(schema["properties"])
        required += schema["properties"]
    return {
        "title": "LearnedAndSummed",
        "description": "What messages tell about the user, and a digest of them.",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
