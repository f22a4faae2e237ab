"""The layer of the topics that a message is about."""

from collections.abc import Sequence
from dataclasses import replace

from langchain_ctxbudget.budget import Fragment, Layer, Situation
from langchain_ctxbudget.knowledge import Found, Subject
from langchain_ctxbudget.layers.base import Chosen, View
from langchain_ctxbudget.layers.subjects import SubjectsLayer
from langchain_ctxbudget.messages import Count

MAX_TOPICS = 2
"""Topics that a prompt shows."""
PRIMARY_PERCENT = 70
"""The share of their room that the first of two topics gets."""


class TopicsLayer(SubjectsLayer):
    """What is known of the topics of the message."""

    name = Layer.TOPICS
    title = Layer.TOPICS.full_name
    section = "## Topics\n"

    def found(self, view: View) -> Found:
        """Returns the topics that the message is about, and those left out."""
        return view.known.detected.topics

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with the number of topics, and what their texts cost."""
        lines = [topic.line for topic in self.found(view).subjects if topic.line][:MAX_TOPICS]
        return replace(
            situation,
            topic_count=len(lines),
            topic_tokens=sum(map(view.counter.count_text, lines)),
            overhead_tokens=situation.overhead_tokens + self.section_tokens(view),
        )

    def items(self, view: View, tokens: int) -> Chosen:
        """Returns the texts of the surest topics.

        The first one gets 70 %, the second what it leaves. Where the whole does not fit, its first
        lines stand for it, or the first sentences of a declared one.
        """
        count = view.counter.count_text
        found = self.found(view)
        shown = [topic for topic in found.subjects if topic.line][:MAX_TOPICS]
        return self.chosen(found, shown, self._texts(shown, tokens, count), count)

    def _texts(
        self, topics: Sequence[Subject], budget_tokens: int, count: Count
    ) -> list[Fragment | None]:
        """Returns the texts: one has the whole budget, the second what the first leaves."""
        room_tokens = budget_tokens
        reserved_tokens = 0
        if len(topics) == MAX_TOPICS:
            room_tokens = budget_tokens * PRIMARY_PERCENT // 100
            reserved_tokens = budget_tokens - room_tokens
        texts: list[Fragment | None] = []
        for rank, topic in enumerate(topics):
            text = self.item(topic, rank, room_tokens, count)
            texts.append(text)
            room_tokens = reserved_tokens if text is None else budget_tokens - text.tokens
        return texts
