"""Values of settings: style, limits of retrieval, and what an application declares."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, PlainValidator, model_validator

from langchain_ctxbudget.budget import (
    TITLES,
    Flag,
    Layer,
    LayerSpec,
    NonNegative,
    Parameters,
    Positive,
    ShareOrNone,
    Text,
)
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.messages import one_line, packaged

Source = Literal["conversations", "memories", "documents"]
SOURCES: tuple[Source, ...] = ("conversations", "memories", "documents")

ToolKind: TypeAlias = Literal["read", "edit", "write", "run", "search", "todo", "other"]
"""What a tool does: read, edit or write a file, run a command, search, keep a to-do list, or other.

Each kind has an object in `history/tool_kinds.py`, which says what the work state tells of it.
"""

ForeignThread: TypeAlias = Literal["show", "error", "share"]
"""What happens in a run whose thread is another user's."""

STYLES: Mapping[str, Mapping[str, str]] = json.loads(packaged("styles.json"))
"""The instruction for every kind of personality, and every value of a `ResponseStyle`."""

_FIELD = re.compile(r"\{(speaker|text)\}")
"""A field of a template for the lines of a summary."""


class Personality(Parameters):
    """The personality of the assistant.

    An expert has a domain, a custom one a description.

    >>> Personality.of({"kind": "expert", "domain": "tax law"}).text
    'You are an expert in tax law. Answer accurately and in depth.'
    """

    setting: ClassVar[str] = "personality"
    kind: Literal["helpful", "expert", "conversational", "custom"] = "helpful"
    domain: str = ""
    """The field of an expert."""
    description: str = ""
    """The instruction of a custom personality."""

    @model_validator(mode="after")
    def _says_enough(self) -> Self:
        if self.kind == "expert":
            self._require_text("domain", self.domain)
        if self.kind == "custom":
            self._require_text("description", self.description)
        return self

    def _require_text(self, name: str, text: str) -> None:
        if not text.strip():
            raise InvalidSettingsError(
                f"personality.{name} must be a non-empty string for {self.kind!r}"
            )

    @classmethod
    def of(cls, value: object) -> Self:
        """Returns a personality from one, a mapping of its fields, or a kind that needs no more."""
        return super().of({"kind": value} if isinstance(value, str) else value)

    @property
    def text(self) -> str:
        """The instruction."""
        template = STYLES["personality"][self.kind]
        domain = one_line(self.domain)
        return template.format(domain=domain, description=self.description.strip())


class ResponseStyle(Parameters):
    """The way in which the assistant answers; None leaves a point open.

    >>> ResponseStyle(verbosity="concise", links=False).lines
    ('Answer briefly and leave out what was not asked for.', 'Do not include links.')
    """

    setting: ClassVar[str] = "response_style"
    style: Literal["formal", "professional", "casual", "friendly"] | None = None
    verbosity: Literal["concise", "moderate", "detailed"] | None = None
    technical_level: Literal["beginner", "intermediate", "expert"] | None = None
    bullets: Flag | None = None
    numbered_lists: Flag | None = None
    code_blocks: Flag | None = None
    links: Flag | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """One instruction for every point that is settled."""
        settled = self.model_dump(exclude_none=True)
        return tuple(STYLES[name][str(value).lower()] for name, value in settled.items())


class RetrievalSettings(Parameters):
    """Limits and weights of retrieval, in the application's own numbers.

    The ranking knows age and names already, as far as measurements show that they help; the weights
    add to it.

    >>> RetrievalSettings(min_relevance=0.05, most_items=8).recency_weight
    0.0
    """

    setting: ClassVar[str] = "retrieval"
    candidates: Positive | None = None
    """The best texts of all, which weights, a reranker and packing see. None: 50 for a reranker,
    else 256, or one for eight tokens of room."""
    most_items: NonNegative | None = None
    """The most texts that are quoted for one message; None: as many as are worth their tokens."""
    min_relevance: ShareOrNone = 0.0
    """The least probability that a message needs a text; less likely texts stay out."""
    recency_weight: ShareOrNone = 0.0
    """Raises what is new: a text of today by 0.2 times this share of the distance between the best
    candidate and the last, one of a year ago by 1 / e of that."""
    entity_weight: ShareOrNone = 0.0
    """Raises what names the message's entities: a text with all of them by 0.3 times this share of
    that distance."""
    memory_weights: tuple[ShareOrNone, ShareOrNone, ShareOrNone, ShareOrNone] | None = None
    """The order of memories among themselves by similarity, certainty (1 if pinned), `exp(-days /
    365)` and type, for instance `(0.4, 0.3, 0.2, 0.1)`; None: by the one ranking of all texts."""


class EntityContext(Parameters):
    """How much a prompt says of people and things.

    The last two hold for a whole pipeline.
    """

    setting: ClassVar[str] = "entity_context"
    most_entities: NonNegative = 3
    min_relevance: ShareOrNone = 0.35
    """The least confidence of a detection."""
    attributes_per_entity: NonNegative = 5
    relationships: Flag = True


class HistoryFormat(Parameters):
    """How the summary of compacted history is written."""

    setting: ClassVar[str] = "history_format"
    summary_tokens: NonNegative | None = None
    speakers: Flag = True
    timestamps: Flag = True
    template: Annotated[str, Field(pattern=r"^[^\r\n]*\{text\}[^\r\n]*$")] = "{speaker}: {text}"
    """A line with its speaker, for instance `"{text} ({speaker})"`."""

    def line(self, speaker: str, text: str) -> str:
        """Returns a line of a summary; the text alone where no speaker is named."""
        if not speaker or not self.speakers:
            return text
        values = {"speaker": speaker, "text": text}
        return _FIELD.sub(lambda field: values[field[1]], self.template)


Days: TypeAlias = Annotated[float, Field(strict=True, gt=0, le=36_500)]
Hours: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=24 * 36_500)]
"""A number of days, up to a hundred years."""


class RetentionPolicy(Parameters):
    """For how many days what is stored of users is kept; None keeps it for good.

    `ContextPipeline.sweep` erases what is older. The age of a message counts from the time that it
    names (`created_at`), or from when it was stored, whichever is earlier.

    >>> RetentionPolicy(messages=90, facts=365, keep_pinned=True).messages
    90.0
    """

    setting: ClassVar[str] = "retention"
    messages: Days | None = None
    """Days for messages. All that was made of one goes with it: summaries, vectors, quotes, and the
    facts and rules that only erased messages tell."""
    facts: Days | None = None
    """Days since a fact was last said; also for topics, people and devices that have not come up
    since."""
    snapshots: Days | None = None
    """Days for the reports of prompts that `keep_snapshots` keeps."""
    derived: Days | None = None
    """Days since anybody wrote to a conversation, after which its summaries, vectors and cuts are
    deleted. They are made again when it goes on; a model's summaries cost again."""
    keep_pinned: Flag = False
    """True: pinned messages, and facts that are pinned or written by hand, stay."""
    keep_rules: Flag = False
    """True: a message stays while a rule that it lays down is in force."""
    every_hours: Hours | None = None
    """The pipeline sweeps by itself, in the background, at most once in so many hours; None: only
    when `sweep` is called."""


class _Declared(Parameters):
    """Something that the application declares.

    Messages are searched for its name and its aliases.
    """

    context: Text
    """The text that goes into the prompt when it comes up."""
    aliases: tuple[Text, ...] = ()


class Topic(_Declared):
    """A topic that the application declares."""

    label: Text

    @property
    def names(self) -> tuple[str, ...]:
        """Every word for it, its label first."""
        return (self.label, *self.aliases)


class Entity(_Declared):
    """A person, project, organisation or tool that the application declares."""

    name: Text
    type: Text = "concept"
    """`person`, `project`, `organization`, `tool`, `concept` or any other word."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every word for it, its name first."""
        return (self.name, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRequest:
    """The question that the function of a custom layer answers."""

    query: str
    """The words of the current turn's human message."""
    budget_tokens: int
    """The tokens for the layer, its heading included; it is filled with the first items that
    fit."""
    user_id: str
    conversation_id: str
    left_tokens: int = 0
    """What is left of the prompt's budget for calls and results before older messages give way to
    them."""


def _items_of(value: object) -> object:
    if callable(value):
        return value
    texts = value if isinstance(value, Sequence) and not isinstance(value, str) else (None,)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("must be a list of non-empty strings, or a function that gives them")
    return tuple(texts)


LayerItems: TypeAlias = Annotated[
    Sequence[str] | Callable[[LayerRequest], Sequence[str]], PlainValidator(_items_of)
]


class CustomLayer(Parameters):
    """A layer of the application's own: open files, the weather, a ticket.

    Part of the volatile zone.

    Every item is one entry of the layer: as many as fit are taken in the given order, and the first
    one that does not fit is shortened where that is possible. Where the function fails, the layer
    is empty and the report says so. A function is called once per assembly, in a worker thread
    under async.

    >>> CustomLayer(name="open files", items=["main.py: print('hi')"], ideal_tokens=800).priority
    70
    """

    name: Text
    """Its name in reports, and its heading in the prompt."""
    items: LayerItems
    """Its items, most important first, or a function that is told the budget and gives them."""
    ideal_tokens: NonNegative
    """The size it would like, and the most it can use."""
    min_tokens: NonNegative = 0
    """Below this it is left out."""
    priority: Annotated[int, Field(strict=True, ge=0, le=100)] = 70
    """0 to 100; topics have 70, entities 65, retrieval 75, history 90."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        taken = {text.casefold() for text in (*Layer, *TITLES.values())}
        if self.name.casefold() in taken or not self.name.isprintable():
            raise ValueError(f"name {self.name!r} is a layer of the package, or not one line")
        if self.min_tokens > self.ideal_tokens:
            raise ValueError(
                f"layer {self.name!r} needs min_tokens <= ideal_tokens, "
                f"not {self.min_tokens} and {self.ideal_tokens}"
            )
        return self

    @property
    def spec(self) -> LayerSpec:
        """Its demand, for the strategies."""
        return LayerSpec(
            self.name,
            self.min_tokens,
            self.ideal_tokens,
            self.ideal_tokens,
            priority=self.priority,
            elasticity=0.5,
        )
