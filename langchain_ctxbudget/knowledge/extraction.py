"""Learning by a chat model: one call that shows existing knowledge; its answers name their sources.

The messages, and what is known, are data: they stand inside fences. New messages have numbers,
which the reply names as its sources; known facts have short ids (F1, F2, ...), so that the reply
updates and supersedes them. What of a reply cannot be used is left out, and never takes the rest
with it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Annotated, Any, Literal, TypeVar, get_args

import pydantic
from langchain_core.utils.function_calling import convert_to_json_schema
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, OnErrorOmit, WrapValidator

from langchain_ctxbudget import llm, messages
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    MOST_TEXT_CHARACTERS,
    Fact,
    FactCategory,
    Profile,
    Said,
)
from langchain_ctxbudget.messages import (
    CONTEXT,
    clip_text,
    fences,
    fold,
    says_the_same,
    terms,
    water_level,
)
from langchain_ctxbudget.tokens import ChatModel, encodable, estimate_tokens

REPLY_TOKENS = 1_500
"""Kept free for the reply, but at most a quarter of the window."""
KNOWN_SHARE = 1 / 4
EARLIER_SHARE = 1 / 10
"""Shares of what the instructions and the reply leave, for what is known and for earlier
messages."""
NAME_CHARACTERS = 80
"""The longest name, label, slot or relation."""
EARLIER_TOKENS = 300
"""The most of an earlier message that is shown: of a longer one, its head and its tail."""


def _or(default: object) -> WrapValidator:
    """Reads a value that cannot be used as another one."""

    def read(value: Any, handler: Any) -> Any:  # noqa: ANN401 - what a model says
        try:
            return handler(value)
        except pydantic.ValidationError:
            return default

    return WrapValidator(read)


def _text(value: object, characters: int = MOST_TEXT_CHARACTERS) -> str:
    text = messages.clipped(encodable(value), characters) if isinstance(value, str) else ""
    if not any(map(str.isalnum, text)):
        raise ValueError("no text")
    return text


_label = partial(_text, characters=NAME_CHARACTERS)


def _name(value: object) -> str:
    text = _label(value)
    if not (text.isupper() and len(text) > 1) and ENGLISH.nobody.fullmatch(fold(text)):
        raise ValueError("no name")
    return text


def _pairs(notes: Iterable[str]) -> tuple[tuple[str, str], ...]:
    pairs = (
        (name.strip(), value.strip()) for name, _, value in (note.partition(":") for note in notes)
    )
    return tuple((name[:NAME_CHARACTERS], value) for name, value in pairs if name and value)


T = TypeVar("T")
Text = Annotated[str, BeforeValidator(_text)]
Label = Annotated[str, BeforeValidator(_label)]
Name = Annotated[str, BeforeValidator(_name)]
Maybe = Annotated[str, BeforeValidator(_label), _or("")]
Many = Annotated[tuple[OnErrorOmit[T], ...], _or(())]
Pairs = Annotated[Many[Text], AfterValidator(_pairs)]


class _Note(BaseModel):
    # All fields are required and none is a union, as clients and servers differ in what else they
    # take.
    model_config = pydantic.ConfigDict(extra="forbid")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:  # noqa: ANN401 - what a model says
        return (
            {name: given.get(name) for name in cls.model_fields}
            if isinstance(given, Mapping)
            else given
        )


class _FactNote(_Note):
    messages: list[int] = Field(description="the numbers of the messages it comes from")
    text: Text = Field(
        description="about the user, third person without a subject, understandable on its own"
    )
    category: FactCategory
    confidence: Annotated[float, Field(ge=0, le=1), _or(0.8)]
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
    type: Annotated[records.EntityType, _or("concept")]
    aliases: Many[Name]
    relationship: Maybe = Field(description="to the user, such as sister or cofounder; else empty")
    attributes: Pairs = Field(description="'role: accountant' and the like")
    relations: Pairs = Field(description="to other entities, 'works at: Acme' and the like")
    facts: Many[Text] = Field(description="what was said about it")


class LearnedAboutUser(_Note):
    """Everything that new messages tell about the user."""

    facts: Many[_FactNote]
    topics: Many[_TopicNote]
    entities: Many[_EntityNote]


SCHEMA = convert_to_json_schema(LearnedAboutUser)


def _read(reply: str | Mapping[str, Any]) -> LearnedAboutUser:
    """Reads a reply; a `ValueError` says what it is instead, and nothing of what stands in it."""
    fields = llm.reply_object(reply, tuple(LearnedAboutUser.model_fields))
    if not any(
        isinstance(fields.get(name), list | tuple) for name in LearnedAboutUser.model_fields
    ):
        raise ValueError(f"a reply without lists of {', '.join(LearnedAboutUser.model_fields)}")
    return LearnedAboutUser.model_validate(fields)


_WORDING = messages.packaged("knowledge/extraction.md").strip()
_INSTRUCTIONS = _WORDING.format(TEXT_CHARACTERS=MOST_TEXT_CHARACTERS, CONTEXT=CONTEXT)
_AS_JSON = (
    f"\n\nReply with one JSON object of this JSON schema and nothing else:\n{json.dumps(SCHEMA)}"
)

FACTS_HEADING = "Known facts about the user:\n"
TOPICS_HEADING = "Known topics:\n"
ENTITIES_HEADING = "Known people and things:\n"
EARLIER_HEADING = "Earlier messages, for understanding only; nothing is noted from them:\n"
MESSAGES_HEADING = "The new messages:\n"
_HEADINGS = (FACTS_HEADING, TOPICS_HEADING, ENTITIES_HEADING, EARLIER_HEADING, MESSAGES_HEADING)


class ChatModelExtractor:
    """Learns about a user with any chat model.

    A model that can be bound to a schema is; the others, and the second attempt, get the schema in
    words.
    """

    def __init__(self, model: ChatModel) -> None:
        names = ("learn_about_user", "knowledge_extraction")
        self.model = llm.StructuredModel(model, SCHEMA, names=names, quotes=False)
        window = self.model.window_tokens
        # The schema is sent either way.
        frame = (_INSTRUCTIONS, _AS_JSON, *(_block(heading, ["-\n"]) for heading in _HEADINGS))
        taken = (
            sum(map(estimate_tokens, frame)) + llm.FRAMING_TOKENS + min(REPLY_TOKENS, window // 4)
        )
        self._room_tokens = window - taken

    def extract(
        self, said: Sequence[Said], before: Sequence[Said], known: Knowledge
    ) -> records.Learned:
        """Learns from some messages; the longest are clipped if they do not all fit.

        Of the messages `before` them, and of what is known, the model sees what fits: the last
        ones, the most relevant. A `ModelReplyError` says why both attempts failed, or that the
        window is too small.
        """
        room = int(self._room_tokens * (1 - KNOWN_SHARE - EARLIER_SHARE))
        whole = [_message(one, room, f"{number}. ") for number, one in enumerate(said, 1)]
        most = water_level([estimate_tokens(item) for item in whole], room)
        shown = [_message(one, most, f"{number}. ") for number, one in enumerate(said, 1)]
        if not any(shown):
            raise self.model.too_small(room)
        facts, blocks = _shown_of(known, said, int(self._room_tokens * KNOWN_SHARE))
        room = int(self._room_tokens * EARLIER_SHARE)
        earlier = _taken((_message(one, EARLIER_TOKENS) for one in reversed(before)), room)[::-1]
        blocks += [_block(EARLIER_HEADING, earlier), _block(MESSAGES_HEADING, shown)]
        failed = "told nothing that can be used"
        reply = self.model.ask(_INSTRUCTIONS, _AS_JSON, "".join(blocks), _read, failed=failed)
        return _learned(reply, said, facts, self.model.name)


def _block(heading: str, items: Sequence[str]) -> str:
    return (
        f"{heading}{fences.opening(CONTEXT)}{''.join(items)}{fences.closing(CONTEXT)}"
        if items
        else ""
    )


def _taken(items: Iterable[str], room_tokens: int) -> list[str]:
    """Returns the first items that fit; none behind one that is empty."""
    found: list[str] = []
    for item in takewhile(bool, items):
        room_tokens -= estimate_tokens(item)
        if room_tokens < 0:
            break
        found.append(item)
    return found


def _message(said: Said, room_tokens: int, place: str = "") -> str:
    """Returns a message as an item; empty where not even its head and its tail fit."""
    speaker = fences.as_data(messages.clipped(encodable(said.speaker), llm.SPEAKER_CHARACTERS))
    who = ("the user" if said.from_user else "not the user") + (f" ({speaker})" if speaker else "")
    head = f"- {place}{f'[{said.at.date().isoformat()}] ' if said.at else ''}{who}: "

    def item(text: str) -> str:
        return f"{head}{fences.as_item(text)}\n"

    text = clip_text(encodable(said.text), lambda text: estimate_tokens(item(text)), room_tokens)
    return "" if text is None else item(text)


def _shown_of(
    known: Knowledge, said: Sequence[Said], room_tokens: int
) -> tuple[list[Fact], list[str]]:
    """Returns the facts that are shown, in the order of their ids, and the blocks of all that is known."""
    wanted = frozenset(term for message in said for term in terms(message.text))

    def rank(one: Fact | Profile) -> tuple[int, bool, float, str]:
        texts = (one.text, one.slot) if isinstance(one, Fact) else one.names
        last = one.last_seen if isinstance(one, Fact) else one.last_engaged_at
        shared = len(wanted.intersection(term for text in texts for term in terms(text)))
        return -shared, not one.pinned, -last.timestamp() if last else 0.0, one.id

    facts = sorted(known.facts, key=rank)
    shown = _taken(
        (_fact_item(number, fact) for number, fact in enumerate(facts, 1)), room_tokens // 2
    )
    blocks = [_block(FACTS_HEADING, shown)]
    for heading, profiles in ((TOPICS_HEADING, known.topics), (ENTITIES_HEADING, known.entities)):
        blocks.append(
            _block(heading, _taken(map(_name_item, sorted(profiles, key=rank)), room_tokens // 4))
        )
    return facts[: len(shown)], blocks


def _flat(text: str) -> str:
    return fences.as_data(messages.clipped(encodable(text), MOST_TEXT_CHARACTERS))


def _fact_item(number: int, fact: Fact) -> str:
    kind = f"{fact.category}, {_flat(fact.slot)}" if fact.slot else fact.category
    return f"- F{number} [{fact.last_seen.date().isoformat()}] ({kind}): {_flat(fact.text)}\n"


def _name_item(profile: Profile) -> str:
    others = f" (also {', '.join(profile.aliases)})" if profile.aliases else ""
    kinds = (
        (profile.type, profile.relationship) if isinstance(profile, records.EntityProfile) else ()
    )
    note = ", ".join(filter(None, kinds))
    return f"- {_flat(f'{profile.names[0]}{others}')}{f': {_flat(note)}' if note else ''}\n"


def _learned(
    reply: LearnedAboutUser, said: Sequence[Said], known: Sequence[Fact], made_by: str
) -> records.Learned:
    by_id = {f"F{number}": fact.id for number, fact in enumerate(known, 1)}

    def sourced(notes: Iterable[_FactNote | _TopicNote | _EntityNote]) -> Iterator[dict[str, Any]]:
        """Yields the fields of those notes that name a message, with the ids of their messages."""
        for note in notes:
            if ids := tuple(
                said[number - 1].id
                for number in sorted({*note.messages})
                if 0 < number <= len(said)
            ):
                yield {name: value for name, value in note if name != "messages"} | {
                    "message_ids": ids
                }

    facts = []
    for fields in sourced(reply.facts):
        gone = tuple(
            by_id[name]
            for name in dict.fromkeys(map(str.upper, fields["supersedes"]))
            if name in by_id
        )
        same = by_id.get(fields.pop("updates").upper(), "")
        slot = fold(fields["slot"])
        fields["slot"] = "" if slot in get_args(FactCategory) else slot
        # What is no longer true is not said again.
        fields |= {"supersedes": gone, "same_as": "" if same in gone else same}
        facts += [records.LearnedFact(**fields)] if fields["confidence"] else []
    # A slot of several facts has more than one value, and is none.
    several = {
        a.slot
        for a in facts
        for b in facts
        if a.slot == b.slot and not says_the_same(a.text, b.text)
    }
    return records.Learned(
        facts=tuple(fact._replace(slot="") if fact.slot in several else fact for fact in facts),
        entities=tuple(records.LearnedEntity(**fields) for fields in sourced(reply.entities)),
        topics=tuple(records.LearnedTopic(**fields) for fields in sourced(reply.topics)),
        made_by=made_by,
    )
