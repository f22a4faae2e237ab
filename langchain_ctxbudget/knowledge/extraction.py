"""Learning by a chat model: one call that shows existing knowledge; its answers name their sources.

The messages, and what is known, are data: they stand inside fences. New messages have numbers,
which the reply names as its sources; known facts have short ids (F1, F2, ...), so that the reply
updates and supersedes them. What of a reply cannot be used is left out, and never takes the rest
with it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Annotated, Any, Literal, TypeVar, get_args

import pydantic
from langchain_core.utils.function_calling import convert_to_json_schema
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, OnErrorOmit, WrapValidator

from langchain_ctxbudget import llm, messages
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.grounding import Ground, said_by_user
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    MOST_TEXT_CHARACTERS,
    EntityProfile,
    Fact,
    FactCategory,
    LearnedEntity,
    LearnedFact,
    LearnedTopic,
    Profile,
    ReadMessage,
)
from langchain_ctxbudget.messages import (
    CONTEXT,
    clip_text,
    encodable,
    fences,
    fold,
    says_the_same,
    terms,
    water_level,
)
from langchain_ctxbudget.tokens import ChatModel, Purpose, estimate_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionPolicy:
    """How the window of a model is divided."""

    reply_tokens: int = 3_000
    """The longest reply, kept free for it, but at most a quarter of the window."""
    known_share: float = 1 / 4
    """The share for what is known, of what the instructions and the reply leave."""
    earlier_share: float = 1 / 10
    """The share for earlier messages, of the same."""
    earlier_tokens: int = 300
    """The most of an earlier message that is shown: of a longer one, its head and its tail."""
    name_characters: int = 80
    """The longest name, label, slot or relation that is read from a reply."""
    most_facts: int = 8
    """Facts that are taken from one reply: the first ones that stand in the messages."""


EXTRACTION = ExtractionPolicy()


# What is read from a reply


def _or(default: object) -> WrapValidator:
    """Reads a value that cannot be used as another one."""

    def read(value: Any, handler: Any) -> Any:  # noqa: ANN401 - what a model says
        try:
            return handler(value)
        except pydantic.ValidationError:
            return default

    return WrapValidator(read)


def _text(value: object, characters: int = MOST_TEXT_CHARACTERS) -> str:
    """Reads a text and clips it; raises a `ValueError` for one that says nothing."""
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - what pydantic takes for a wrong value
    text = messages.clipped(encodable(value), characters)
    if not any(character.isalnum() for character in text):
        raise ValueError("no text")
    return text


_label = partial(_text, characters=EXTRACTION.name_characters)


def _share(value: float) -> float:
    """Reads a share; checked here, as not every provider takes a schema with limits of numbers."""
    if not 0 <= value <= 1:
        raise ValueError("no share")
    return value


def _name(value: object) -> str:
    """Reads a name; raises a `ValueError` for a word that names nobody, such as "the user"."""
    text = _label(value)
    is_acronym = text.isupper() and len(text) > 1
    if not is_acronym and ENGLISH.nobody.fullmatch(fold(text)):
        raise ValueError("no name")
    return text


def _pairs(notes: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Reads "role: accountant" and the like as names and values."""
    pairs = []
    for note in notes:
        name, _, value = note.partition(":")
        name = name.strip()
        value = value.strip()
        if name and value:
            pairs.append((name[: EXTRACTION.name_characters], value))
    return tuple(pairs)


T = TypeVar("T")
Text = Annotated[str, BeforeValidator(_text)]
Label = Annotated[str, BeforeValidator(_label)]
Name = Annotated[str, BeforeValidator(_name)]
Maybe = Annotated[str, BeforeValidator(_label), _or("")]
Many = Annotated[tuple[OnErrorOmit[T], ...], _or(())]


class _Note(BaseModel):
    # All fields are required and none is a union, as clients and servers differ in what else they
    # take.
    model_config = pydantic.ConfigDict(extra="forbid")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:  # noqa: ANN401 - what a model says
        if not isinstance(value, Mapping):
            return value
        return {name: value.get(name) for name in cls.model_fields}


class _FactNote(_Note):
    messages: Annotated[list[int], _or(())] = Field(
        description="the numbers of the messages it comes from"
    )
    text: Text = Field(
        description="about the user, third person without a subject, understandable on its own"
    )
    category: FactCategory
    confidence: Annotated[float, AfterValidator(_share), _or(0.8)] = Field(description="0 to 1")
    updates: Maybe = Field(
        description="the id (F1) of the known fact that it repeats or refines; else empty"
    )
    supersedes: Many[str] = Field(description="the ids of known facts that are no longer true")
    slot: Maybe = Field(
        description="what it is the only value of, such as home or employer; else empty"
    )


class _TopicNote(_Note):
    messages: list[int]
    label: Label = Field(description="two or three words")
    aliases: Many[Name]
    parent: Maybe = Field(description="the label of a broader topic; else empty")
    domain: Annotated[Literal[records.Domain, ""], _or("")]
    proficiency: Annotated[records.Proficiency, _or("unknown")]


class _EntityNote(_Note):
    messages: list[int]
    name: Name
    type: Annotated[records.EntityType, _or("concept")] = Field(
        description="person for human beings alone; animal for a pet"
    )
    aliases: Many[Name]
    relationship: Maybe = Field(
        description="to the user, such as sister, mother's cat or cofounder; else empty"
    )
    attributes: Many[Text] = Field(description="'role: accountant' and the like")
    relations: Many[Text] = Field(description="to other entities, 'works at: Acme' and the like")
    facts: Many[Text] = Field(description="what was said about it")


class LearnedAboutUser(_Note):
    """Everything that new messages tell about the user."""

    facts: Many[_FactNote]
    topics: Many[_TopicNote]
    entities: Many[_EntityNote]


SCHEMA = convert_to_json_schema(LearnedAboutUser)


def read_reply(reply: str | Mapping[str, Any]) -> LearnedAboutUser:
    """Reads a reply.

    Raises:
        ValueError: It is something else. The message says what, and nothing of what stands in it.
    """
    names = tuple(LearnedAboutUser.model_fields)
    fields = llm.reply_object(reply, names)
    learned = LearnedAboutUser.model_validate(fields)
    facts = [note for note in learned.facts if not llm.is_refusal(note.text)]
    if not (facts or learned.topics or learned.entities):
        llm.require_no_refusal(reply, fields)
    if not any(isinstance(fields.get(name), list | tuple) for name in names):
        raise ValueError(f"a reply without lists of {', '.join(names)}")
    return learned.model_copy(update={"facts": tuple(facts)})


# What a model is asked


def schema_in_words(schema: Mapping[str, Any]) -> str:
    """Returns what asks for a reply of a JSON schema."""
    request = "Reply with one JSON object of this JSON schema and nothing else:"
    return f"\n\n{request}\n{json.dumps(schema)}"


_WORDING = messages.packaged("knowledge/extraction.md").strip()
INSTRUCTIONS = _WORDING.format(
    TEXT_CHARACTERS=MOST_TEXT_CHARACTERS, MOST_FACTS=EXTRACTION.most_facts, CONTEXT=CONTEXT
)
_AS_JSON = schema_in_words(SCHEMA)
FACTS_HEADING = "Known facts about the user:\n"
TOPICS_HEADING = "Known topics:\n"
ENTITIES_HEADING = "Known people and things:\n"
EARLIER_HEADING = "Earlier messages, for understanding only; nothing is noted from them:\n"
MESSAGES_HEADING = "The new messages:\n"
_HEADINGS = (FACTS_HEADING, TOPICS_HEADING, ENTITIES_HEADING, EARLIER_HEADING, MESSAGES_HEADING)


class ChatModelExtractor:
    """Learns about a user with any chat model.

    A model that can be bound to a schema is. The others, and the second attempt, get the schema in
    words.
    """

    def __init__(self, model: ChatModel) -> None:
        names = ("learn_about_user", "knowledge_extraction")
        self.model = llm.StructuredModel(
            model,
            SCHEMA,
            purpose=Purpose.LEARNING,
            names=names,
            quotes=False,
            reply_tokens=EXTRACTION.reply_tokens,
        )
        # The schema is sent either way.
        frame = [INSTRUCTIONS, _AS_JSON, *(_fenced(heading, ["-\n"]) for heading in _HEADINGS)]
        frame_tokens = sum(estimate_tokens(text) for text in frame) + llm.FRAMING_TOKENS
        self._room_tokens = self.model.window_tokens - (frame_tokens + self.model.reply_tokens)

    def extract(
        self,
        said: Sequence[ReadMessage],
        before: Sequence[ReadMessage],
        known: Knowledge,
        book: Callable[[llm.AnsweredCall], None] | None = None,
    ) -> records.Learned:
        """Learns from some messages; the longest are clipped if they do not all fit.

        Args:
            said: The messages.
            before: Messages right before them, of which the model sees the last ones that fit.
            known: What is known, of which the model sees the most relevant part that fits.
            book: Gets every call that the model has answered.

        Raises:
            ModelReplyError: Both attempts have failed, or the window is too small.
        """
        new_items = self._new_items(said)
        facts, known_texts = _shown_of(known, said, int(self._room_tokens * EXTRACTION.known_share))
        earlier_items = self._earlier_items(before)
        data = "".join(
            (
                *known_texts,
                _fenced(EARLIER_HEADING, earlier_items),
                _fenced(MESSAGES_HEADING, new_items),
            )
        )
        reply = self.model.ask(
            INSTRUCTIONS,
            _AS_JSON,
            data,
            read_reply,
            failed="told nothing that can be used",
            book=book,
        )
        return learned_in(reply, said, facts, self.model.name)

    def texts_of(
        self, said: Sequence[ReadMessage], before: Sequence[ReadMessage], known: Knowledge
    ) -> tuple[list[Fact], list[str]]:
        """Returns the facts that a prompt shows, in the order of their ids, and all of its texts.

        The messages stand in it whole, those before them too.
        """
        facts, texts = _shown_of(known, said, int(self._room_tokens * EXTRACTION.known_share))
        most_tokens = self.model.window_tokens
        earlier_items = [_item(message, most_tokens) for message in before]
        new_items = [_item(message, most_tokens, number) for number, message in enumerate(said, 1)]
        texts.append(_fenced(EARLIER_HEADING, earlier_items))
        texts.append(_fenced(MESSAGES_HEADING, new_items))
        return facts, texts

    def _new_items(self, said: Sequence[ReadMessage]) -> list[str]:
        """Returns the messages to learn from as numbered items, clipped so that all fit.

        Raises:
            ModelReplyError: There is no room for any of them.
        """
        share = 1 - EXTRACTION.known_share - EXTRACTION.earlier_share
        room_tokens = int(self._room_tokens * share)
        whole = [_item(message, room_tokens, number) for number, message in enumerate(said, 1)]
        most_tokens = water_level([estimate_tokens(item) for item in whole], room_tokens)
        clipped = [_item(message, most_tokens, number) for number, message in enumerate(said, 1)]
        if not any(clipped):
            raise self.model.too_small(room_tokens)
        return clipped

    def _earlier_items(self, before: Sequence[ReadMessage]) -> list[str]:
        """Returns the last of the messages before as items, as many as fit."""
        room_tokens = int(self._room_tokens * EXTRACTION.earlier_share)
        newest_first = [_item(message, EXTRACTION.earlier_tokens) for message in reversed(before)]
        return _first_that_fit(newest_first, room_tokens)[::-1]


def _fenced(heading: str, items: Sequence[str]) -> str:
    """Returns items inside a fence below a heading; empty without any."""
    if not items:
        return ""
    return f"{heading}{fences.opening(CONTEXT)}{''.join(items)}{fences.closing(CONTEXT)}"


def _first_that_fit(items: Iterable[str], room_tokens: int) -> list[str]:
    """Returns the first items that fit a room; none behind one that is empty."""
    fitting: list[str] = []
    tokens_left = room_tokens
    for item in items:
        tokens_left -= estimate_tokens(item)
        if not item or tokens_left < 0:
            break
        fitting.append(item)
    return fitting


def _item(message: ReadMessage, room_tokens: int, number: int | None = None) -> str:
    """Returns a message as an item; empty where not even its head and its tail fit a room."""
    head = "- "
    if number is not None:
        head += f"{number}. "
    if message.at:
        head += f"[{message.at.date().isoformat()}] "
    head += "the user" if message.from_user else "not the user"
    speaker = fences.as_data(messages.clipped(encodable(message.speaker), llm.SPEAKER_CHARACTERS))
    if speaker:
        head += f" ({speaker})"

    def with_head(text: str) -> str:
        return f"{head}: {fences.as_item(text)}\n"

    clipped = clip_text(
        encodable(message.text), lambda text: estimate_tokens(with_head(text)), room_tokens
    )
    return "" if clipped is None else with_head(clipped)


def _shown_of(
    known: Knowledge, said: Sequence[ReadMessage], room_tokens: int
) -> tuple[list[Fact], list[str]]:
    """Returns the facts that are shown, in the order of their ids, and the texts of all that is.

    Facts get half of the room, topics and entities a quarter each. What has more terms of the
    messages comes first.
    """
    message_terms: set[str] = set()
    for message in said:
        message_terms.update(terms(message.text))

    def rank(item: Fact | Profile) -> tuple[int, bool, float, str]:
        last = item.last_seen if isinstance(item, Fact) else item.last_engaged_at
        age = -last.timestamp() if last else 0.0
        return -len(message_terms & _terms_of(item)), not item.pinned, age, item.id

    facts = sorted(known.facts, key=rank)
    fact_items = [_fact_item(number, fact) for number, fact in enumerate(facts, 1)]
    topic_items = [_name_item(topic) for topic in sorted(known.topics, key=rank)]
    entity_items = [_name_item(entity) for entity in sorted(known.entities, key=rank)]
    shown_facts = _first_that_fit(fact_items, room_tokens // 2)
    texts = [
        _fenced(FACTS_HEADING, shown_facts),
        _fenced(TOPICS_HEADING, _first_that_fit(topic_items, room_tokens // 4)),
        _fenced(ENTITIES_HEADING, _first_that_fit(entity_items, room_tokens // 4)),
    ]
    return facts[: len(shown_facts)], texts


def _terms_of(item: Fact | Profile) -> set[str]:
    """Returns the terms of a fact and its slot, or of the names of a topic or an entity."""
    texts = (item.text, item.slot) if isinstance(item, Fact) else item.names
    found: set[str] = set()
    for text in texts:
        found.update(terms(text))
    return found


def _flat(text: str) -> str:
    return fences.as_data(messages.clipped(encodable(text), MOST_TEXT_CHARACTERS))


def _fact_item(number: int, fact: Fact) -> str:
    kind: str = fact.category
    if fact.slot:
        kind += f", {_flat(fact.slot)}"
    return f"- F{number} [{fact.last_seen.date().isoformat()}] ({kind}): {_flat(fact.text)}\n"


def _name_item(profile: Profile) -> str:
    name = profile.names[0]
    if profile.aliases:
        name += f" (also {', '.join(profile.aliases)})"
    item = f"- {_flat(name)}"
    if isinstance(profile, EntityProfile):
        note: str = profile.type
        if profile.relationship:
            note += f", {profile.relationship}"
        item += f": {_flat(note)}"
    return f"{item}\n"


# What a reply teaches


def learned_in(
    reply: LearnedAboutUser, said: Sequence[ReadMessage], known: Sequence[Fact], made_by: str
) -> records.Learned:
    """Returns what a reply says, of which every part stands in messages.

    Args:
        reply: The reply.
        said: The messages, in the order of their numbers.
        known: The facts that were shown, in the order of their ids.
        made_by: The name of the model.
    """
    known_facts = {f"F{number}": fact for number, fact in enumerate(known, 1)}
    facts = []
    for note in reply.facts:
        message_ids = _ids(_sources_of(note, said, known_facts))
        if message_ids and note.confidence:
            facts.append(_learned_fact(note, message_ids, known_facts))

    entities = []
    for entity in reply.entities:
        learned = _learned_entity(entity, _cited(entity, said))
        if learned is not None:
            entities.append(learned)

    topics = []
    for topic in reply.topics:
        message_ids = _ids(_cited(topic, said))
        if message_ids:
            topics.append(_learned_topic(topic, message_ids))
    return records.Learned(
        facts=_with_single_slots(facts[: EXTRACTION.most_facts]),
        entities=tuple(entities),
        topics=tuple(topics),
        made_by=made_by,
    )


def _ids(said: Sequence[ReadMessage]) -> tuple[str, ...]:
    return tuple(message.id for message in said)


def _cited(
    note: _FactNote | _TopicNote | _EntityNote, said: Sequence[ReadMessage]
) -> list[ReadMessage]:
    """Returns the messages that a note names, in their order."""
    numbers = [number for number in sorted(set(note.messages)) if 0 < number <= len(said)]
    return [said[number - 1] for number in numbers]


def _sources_of(
    note: _FactNote, said: Sequence[ReadMessage], known: Mapping[str, Fact]
) -> list[ReadMessage]:
    """Returns the messages in which the names and numbers of a fact stand; none where they do not.

    These are the messages that it names, of which the user's count. One that names none is looked
    for in all that the user said.

    Args:
        note: The fact.
        said: The messages, in the order of their numbers.
        known: The facts that were shown by their short ids: a note may repeat those that it names.
    """
    names = [name.upper() for name in (note.updates, *note.supersedes)]
    known_texts = [known[name].text for name in names if name in known]
    if note.messages:
        cited = _cited(note, said)
        return cited if Ground(said_by_user(cited), known_texts).bears(note.text) else []

    own = [message for message in said if message.from_user]
    if not Ground(own, known_texts).bears(note.text):
        return []
    shared = [Ground([message]).shared_terms(note.text) for message in own]
    most = max(shared, default=0)
    return [message for message, count in zip(own, shared, strict=True) if 0 < count == most]


def _learned_fact(
    note: _FactNote, message_ids: tuple[str, ...], known: Mapping[str, Fact]
) -> LearnedFact:
    """Returns the fact of a note, with the ids of the known facts that it names."""
    names = dict.fromkeys(name.upper() for name in note.supersedes)
    superseded_ids = tuple(known[name].id for name in names if name in known)
    same = known.get(note.updates.upper())
    same_id = same.id if same else ""
    if same_id in superseded_ids:  # what is no longer true is not said again
        same_id = ""
    slot = fold(note.slot)
    if slot in get_args(FactCategory):
        slot = ""
    return LearnedFact(
        text=note.text,
        category=note.category,
        confidence=note.confidence,
        slot=slot,
        message_ids=message_ids,
        supersedes=superseded_ids,
        same_as=same_id,
    )


def _with_single_slots(facts: Sequence[LearnedFact]) -> tuple[LearnedFact, ...]:
    """Returns facts without those slots that several of them have.

    Such a slot has more than one value, and is none.
    """
    texts_of: dict[str, list[str]] = {}
    for fact in facts:
        texts_of.setdefault(fact.slot, []).append(fact.text)
    shared = {slot for slot, texts in texts_of.items() if _say_different_things(texts)}
    return tuple(fact._replace(slot="") if fact.slot in shared else fact for fact in facts)


def _say_different_things(texts: Sequence[str]) -> bool:
    """Returns whether any two of some texts do."""
    return not all(says_the_same(one, other) for one, other in combinations(texts, 2))


def _learned_entity(note: _EntityNote, cited: Sequence[ReadMessage]) -> LearnedEntity | None:
    """Returns a person or thing with what stands in the messages that name it; None in none."""
    ground = Ground(cited, [note.name])
    if not Ground(cited).names(note.name):
        return None
    return LearnedEntity(
        name=note.name,
        type=note.type,
        aliases=tuple(filter(ground.names, note.aliases)),
        relationship=note.relationship,
        facts=tuple(filter(ground.bears, note.facts)),
        attributes=_pairs(filter(ground.bears, note.attributes)),
        relations=_pairs(filter(ground.bears, note.relations)),
        message_ids=_ids(cited),
    )


def _learned_topic(note: _TopicNote, message_ids: tuple[str, ...]) -> LearnedTopic:
    return LearnedTopic(
        label=note.label,
        aliases=note.aliases,
        parent=note.parent,
        domain=note.domain,
        proficiency=note.proficiency,
        message_ids=message_ids,
    )
