"""Learning by a chat model: structured where it can, in one call that shows what is known already, always sourced.

A reply that is late, empty or unreadable is asked for once more, and then it is an `ExtractionError`: the caller keeps
what it has. What the model is asked, and how the fields of its reply are read, is in `core.extraction_prompts`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_ctxbudget.core import extraction_prompts as prompts
from langchain_ctxbudget.core.digest import Line
from langchain_ctxbudget.core.sameness import says_the_same
from langchain_ctxbudget.core.text import fold, iso_date, terms
from langchain_ctxbudget.core.tokens import unwrapped
from langchain_ctxbudget.errors import ExtractionError, InputError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.model_call import (
    DEFAULT_WINDOW_TOKENS,
    FRAMING_TOKENS,
    TooSlowError,
    bound_to_schema,
    content_of,
    model_call,
    name_of,
    profile_window,
)
from langchain_ctxbudget.knowledge.learned import Learned, LearnedEntity, LearnedFact, LearnedTopic, Said
from langchain_ctxbudget.knowledge.records import (
    Domain,
    EntityProfile,
    EntityType,
    Fact,
    FactCategory,
    Proficiency,
    TopicProfile,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

ATTEMPTS = 2
REPLY_TOKENS = 1_500
"""Kept free for the reply, but at most a quarter of the window."""
KNOWN_SHARE, EARLIER_SHARE = 1 / 4, 1 / 10
"""Of what the instructions and the reply leave, for what is known and for earlier messages."""
MOST_FACTS, MOST_NAMES = 150, 100
"""Known facts that are shown at most (as many as are kept); topics and entities, of each."""
_NOBODY = frozenset(
    (
        *("i", "me", "myself", "user", "the user", "assistant", "the assistant", "you", "yourself", "we", "us", "he"),
        *("him", "himself", "she", "her", "hers", "herself", "it", "itself", "they", "them", "themselves", "this"),
        *("that", "these", "those", "who", "someone", "somebody", "everyone", "everybody", "nobody", "one"),
    )
)
"""What small models take for entities and names all the same."""
_BELONGS = re.compile(r"(?:my|your|his|her|its|our|their|(?:the )?user['’]s)\s")  # noqa: RUF001 - models write both
"""How a description begins: "my sister" is no name."""

Item = Mapping[str, Any]
Profile = TypeVar("Profile", Fact, TopicProfile, EntityProfile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known already: the model is shown it, so that it updates instead of adding.

    Example:
        >>> Known().facts
        ()
    """

    facts: tuple[Fact, ...] = ()
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()


class ChatModelExtractor:
    """Learns about a user with any chat model.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langchain_ctxbudget.flow import drive
        >>> reply = '{"facts": [{"text": "Lives in Lisbon", "category": "identity", "messages": [1]}]}'
        >>> extractor = ChatModelExtractor(FakeListChatModel(responses=[reply]))
        >>> said = [Said(id="m1", digest="d1", text="I live in Lisbon.")]
        >>> [(fact.text, fact.message_ids) for fact in drive(extractor.extract(said, [], Known())).facts]
        [('Lives in Lisbon', ('m1',))]
    """

    def __init__(
        self, model: BaseChatModel, *, timeout_seconds: float = 60.0, window_tokens: int | None = None
    ) -> None:
        """Choose the model.

        Args:
            model: any chat model. One that can be bound to a schema is; the others, and the second attempt, get the
                format in words.
            timeout_seconds: how long one call may take, its own retries included, in seconds.
            window_tokens: the model's window where its profile does not tell it, in tokens; None: 16,000.

        Raises:
            InputError: one of the numbers is not positive.
        """
        for name, value in {"timeout_seconds": timeout_seconds, "window_tokens": window_tokens}.items():
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0, not {value!r}")
        inner = unwrapped(model)
        self.name: str = name_of(inner)
        """For `Learned.made_by`."""
        self.model, self.timeout_seconds = model, timeout_seconds
        self.window_tokens = profile_window(inner) or window_tokens or DEFAULT_WINDOW_TOKENS
        self._with_schema = bound_to_schema(model, prompts.SCHEMA)
        asking_tokens = prompts.asking_tokens(with_schema=self._with_schema is not None) + FRAMING_TOKENS
        self._room_tokens = self.window_tokens - asking_tokens - min(REPLY_TOKENS, self.window_tokens // 4)

    def fits(self, said: Sequence[Said]) -> int:
        """How many of the first messages fit into one call; a long message is shown by its head and its tail.

        Args:
            said: the messages to learn from, in order.

        Raises:
            InputError: not even the first one fits.
        """
        return len(self._shown(said))

    def extract(self, said: Sequence[Said], before: Sequence[Said], known: Known) -> Flow[Learned]:
        """Learn from the first messages that fit into one call, as many as `fits` tells.

        Args:
            said: the messages to learn from, in order; at least one.
            before: some messages before them, for context only; the last ones that fit are shown.
            known: what is known of the user; the most relevant that fits is shown.

        Raises:
            InputError: there are no messages, or not even the first one fits.
            ExtractionError: both attempts failed.
        """
        if not said:
            raise InputError("There are no messages to learn from: pass at least one")
        shown = self._shown(said)
        said = said[: len(shown)]
        facts, blocks = _shown_of(known, said, int(self._room_tokens * KNOWN_SHARE))
        earlier = prompts.earlier_messages(_lines(before), int(self._room_tokens * EARLIER_SHARE))
        blocks += [prompts.block(prompts.EARLIER_HEADING, earlier), prompts.block(prompts.MESSAGES_HEADING, shown)]
        lists = yield from self._ask("".join(blocks))
        return _learned(lists, said, facts, self.name)

    def _shown(self, said: Sequence[Said]) -> list[str]:
        """The first messages that fit, as the model is shown them."""
        room_tokens = int(self._room_tokens * (1 - KNOWN_SHARE - EARLIER_SHARE))
        shown = prompts.new_messages(_lines(said), room_tokens)
        if said and not shown:
            raise InputError(
                f"{self.name} has a window of {self.window_tokens:,} tokens, of which the prompt and the reply leave "
                f"{max(0, room_tokens):,} for messages: the first one does not fit. Use a model with a larger window, "
                "or tell its real one with window_tokens"
            )
        return shown

    def _ask(self, data: str) -> Flow[dict[str, list[Item]]]:
        """The lists of a reply, asked for as often as allowed.

        What failed is told without the texts of errors and replies, which may repeat what users said.
        """
        failures: list[str] = []
        for attempt in range(1, ATTEMPTS + 1):
            # A server that refuses or garbles a schema may still follow words.
            bound = self._with_schema if attempt < ATTEMPTS else None
            messages = [SystemMessage(prompts.instructions(as_json=bound is None)), HumanMessage(data)]
            try:
                reply = yield model_call(
                    self.model if bound is None else bound,
                    messages,
                    self.timeout_seconds,
                    run_name="learn_about_user",
                    source="knowledge_extraction",
                )
            except TooSlowError:
                failures.append(f"no reply within {self.timeout_seconds:g} seconds")
                continue
            except Exception as error:  # noqa: BLE001 - models and their clients raise anything
                failures.append(_kind_of(error))
                continue
            try:
                return prompts.read_lists(content_of(reply))
            except ValueError as error:
                failures.append(str(error))
        told = "; ".join(f"attempt {number}: {failure}" for number, failure in enumerate(failures, 1))
        raise ExtractionError(f"{self.name} told nothing that can be used: {told}")


def _kind_of(error: Exception) -> str:
    """An error without its text: its class, and the status where a server answered."""
    status = getattr(error, "status_code", None)
    return f"{type(error).__name__} ({status})" if isinstance(status, int) else type(error).__name__


# What the model is shown


def _lines(said: Iterable[Said]) -> list[Line]:
    return [
        Line(
            position=position,
            speaker=message.speaker,
            date=_date(message.at),
            text=message.text,
            from_user=message.from_user,
        )
        for position, message in enumerate(said)
    ]


def _date(at: datetime | None) -> str:
    return at.date().isoformat() if at else ""


def _shown_of(known: Known, said: Sequence[Said], room_tokens: int) -> tuple[list[Fact], list[str]]:
    """The facts that are shown, in the order of their ids, and the blocks of all that is known.

    What shares most terms with the new messages comes first, then what is pinned, important, recent. Facts get half
    of the room, topics half of what they leave, entities the rest.
    """
    wanted = frozenset(term for message in said for term in terms(message.text))

    def shared(*texts: str) -> int:
        return len(wanted.intersection(term for text in texts for term in terms(text)))

    facts = _ranked(
        (fact for fact in known.facts if fact.is_current),
        lambda fact: (shared(fact.text, fact.slot), fact.pinned, _seconds(fact.last_seen)),
    )[:MOST_FACTS]
    topics = _ranked(
        known.topics,
        lambda topic: (
            shared(topic.label, *topic.aliases),
            topic.pinned,
            topic.importance_score,
            _seconds(topic.last_engaged_at),
        ),
    )[:MOST_NAMES]
    entities = _ranked(
        known.entities,
        lambda entity: (
            shared(entity.name, *entity.aliases),
            entity.pinned,
            entity.importance_score,
            _seconds(entity.last_mentioned_at),
        ),
    )[:MOST_NAMES]
    shown_facts = prompts.taken((_fact_item(number, fact) for number, fact in enumerate(facts, 1)), room_tokens // 2)
    room_tokens -= prompts.tokens(shown_facts)
    shown_topics = prompts.taken((prompts.name_item(t.label, t.aliases) for t in topics), room_tokens // 2)
    room_tokens -= prompts.tokens(shown_topics)
    shown_entities = prompts.taken(map(_entity_item, entities), room_tokens)
    blocks = [
        prompts.block(prompts.FACTS_HEADING, shown_facts),
        prompts.block(prompts.TOPICS_HEADING, shown_topics),
        prompts.block(prompts.ENTITIES_HEADING, shown_entities),
    ]
    return facts[: len(shown_facts)], blocks


def _ranked(profiles: Iterable[Profile], relevance: Callable[[Profile], tuple[float, ...]]) -> list[Profile]:
    """The most relevant first; of equals, by id, so that the order never depends on the store's."""
    return sorted(sorted(profiles, key=lambda profile: profile.id), key=relevance, reverse=True)


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0


def _fact_item(number: int, fact: Fact) -> str:
    date = _date(fact.valid_from or fact.last_seen)
    return prompts.fact_item(number, fact.text, category=fact.category, slot=fact.slot, date=date)


def _entity_item(entity: EntityProfile) -> str:
    note = ", ".join(filter(None, (entity.type, entity.relationship)))
    return prompts.name_item(entity.name, entity.aliases, note)


# What it replied


def _learned(lists: Mapping[str, Sequence[Item]], said: Sequence[Said], facts: Sequence[Fact], made_by: str) -> Learned:
    """The items of a reply that can be used: each of them names one of the new messages at least."""
    ids = [message.id for message in said]

    def sources(item: Item) -> tuple[str, ...]:
        return tuple(ids[number - 1] for number in prompts.messages_in(item.get("messages"), len(ids)))

    def sourced(name: str) -> Iterable[tuple[Item, tuple[str, ...]]]:
        return ((item, found) for item in lists[name] if (found := sources(item)))

    return Learned(
        facts=_with_own_slots([fact for item, found in sourced("facts") if (fact := _fact(item, found, facts))]),
        topics=tuple(topic for item, found in sourced("topics") if (topic := _topic(item, found))),
        entities=tuple(entity for item, found in sourced("entities") if (entity := _entity(item, found))),
        made_by=made_by,
    )


def _fact(item: Item, sources: tuple[str, ...], facts: Sequence[Fact]) -> LearnedFact | None:
    text = prompts.statement_in(item.get("text"))
    category = prompts.choice_in(item.get("category"), prompts.CATEGORIES)
    confidence = prompts.confidence_in(item.get("confidence"))
    if not text or not category or not confidence:
        return None
    supersedes = tuple(facts[n - 1].id for n in prompts.facts_in(item.get("supersedes"), len(facts)))
    updates = (facts[n - 1].id for n in prompts.facts_in(item.get("updates"), len(facts)))
    slot = fold(prompts.text_in(item.get("slot")))
    begin, end = _day(item.get("valid_from")), _day(item.get("valid_until"))
    return LearnedFact(
        text=text,
        category=cast("FactCategory", category),
        confidence=confidence,
        slot="" if slot in prompts.CATEGORIES else slot,
        message_ids=sources,
        supersedes=supersedes,
        # What is no longer true is not said again.
        same_as=next((same for same in updates if same not in supersedes), ""),
        valid_from=begin,
        valid_until=None if begin and end and end < begin else end,
    )


def _with_own_slots(facts: Sequence[LearnedFact]) -> tuple[LearnedFact, ...]:
    """The facts of a reply: what it names as the slot of several is none, but for one that merely ended."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for fact in facts:
        if fact.valid_until is None:
            values[fact.slot].append(fact.text)
    shared = {slot for slot, (first, *rest) in values.items() if not all(says_the_same(first, text) for text in rest)}
    return tuple(replace(fact, slot="") if fact.slot in shared else fact for fact in facts)


def _day(value: object) -> datetime | None:
    """The beginning of a day, in UTC."""
    try:
        date = iso_date(value.strip()) if isinstance(value, str) else None
        return datetime.fromisoformat(date).replace(tzinfo=UTC) if date else None
    except ValueError:  # the year 0
        return None


def _topic(item: Item, sources: tuple[str, ...]) -> LearnedTopic | None:
    label = prompts.text_in(item.get("label"))
    if not label:
        return None
    proficiency = prompts.choice_in(item.get("proficiency"), prompts.PROFICIENCIES)
    return LearnedTopic(
        label=label,
        aliases=_others(item, label),
        parent=prompts.text_in(item.get("parent")) or None,
        domain=cast("Domain | None", prompts.choice_in(item.get("domain"), prompts.DOMAINS)),
        proficiency=None if proficiency == "unknown" else cast("Proficiency | None", proficiency),
        message_ids=sources,
    )


def _entity(item: Item, sources: tuple[str, ...]) -> LearnedEntity | None:
    name = prompts.text_in(item.get("name"))
    if not _is_name(name):
        return None
    kind = prompts.choice_in(item.get("type"), prompts.ENTITY_TYPES)
    return LearnedEntity(
        name=name,
        type=cast("EntityType", kind or "concept"),
        aliases=_others(item, name),
        relationship=prompts.text_in(item.get("relationship")) or None,
        attributes=prompts.pairs_in(item.get("attributes"), "name", "value"),
        relations=prompts.pairs_in(item.get("relations"), "relation", "target"),
        facts=prompts.texts_in(item.get("facts"), prompts.TEXT_CHARACTERS),
        message_ids=sources,
    )


def _others(item: Item, name: str) -> tuple[str, ...]:
    """The aliases of an item that are names, and not its own."""
    aliases = prompts.texts_in(item.get("aliases"))
    return tuple(alias for alias in aliases if _is_name(alias) and fold(alias) != fold(name))


def _is_name(text: str) -> bool:
    """Whether a text can name something: no pronoun, but for an abbreviation like "IT", and no description."""
    is_abbreviation = text.isupper() and len(text) > 1
    return bool(text) and (is_abbreviation or fold(text) not in _NOBODY) and not _BELONGS.match(text)
