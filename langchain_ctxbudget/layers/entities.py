"""The layer of the people and things that a message is about."""

from collections.abc import Sequence
from dataclasses import replace

from langchain_ctxbudget.budget import Layer, Situation
from langchain_ctxbudget.knowledge import Found
from langchain_ctxbudget.layers.base import Chosen, Rung, Staying, View
from langchain_ctxbudget.layers.subjects import SubjectsLayer
from langchain_ctxbudget.messages import water_level


class EntitiesLayer(SubjectsLayer):
    """What is known of the people and things in the message."""

    name = Layer.ENTITIES
    title = Layer.ENTITIES.full_name
    section = "## People and things\n"

    def found(self, view: View) -> Found:
        """Returns the entities that the message is about, and those left out."""
        return view.known.detected.entities

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with the number of entities, and what their texts cost."""
        most = view.settings.entity_context.most_entities
        lines = [entity.line for entity in self.found(view).subjects if entity.line][:most]
        return replace(
            situation,
            entity_count=len(lines),
            entity_tokens=sum(map(view.counter.count_text, lines)),
            overhead_tokens=situation.overhead_tokens + self.section_tokens(view),
        )

    def items(self, view: View, tokens: int) -> Chosen:
        """Returns the texts of the surest entities, each cut to the same share of the grant."""
        count = view.counter.count_text
        found = self.found(view)
        with_text = [entity for entity in found.subjects if entity.line]
        shown = with_text[: view.settings.entity_context.most_entities]
        room_tokens = water_level([count(entity.line) for entity in shown], tokens)
        texts = [self.item(entity, rank, room_tokens, count) for rank, entity in enumerate(shown)]
        return self.chosen(found, shown, texts, count)

    def staying(self, rung: Rung) -> Sequence[Staying]:
        """Returns how many entities stay when a rung of the last resort is taken."""
        if rung is Rung.HEAVY:
            return [Staying(number=3)]
        if rung is Rung.EXTREME:
            return [Staying(number=1)]
        return ()
