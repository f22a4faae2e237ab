"""A summary made of a conversation's own sentences: deterministic, in order, attributed.

Sentences stand whole, but for very long ones. Those of the user are chosen by what the reader of
sentences takes them for, and all others by their look: names, numbers and code in them. A summary
has zones that share its room: one if it is `windowed`, two if `compacted` (the older 40 of 75
messages, and the others), and one a level if `multi_level`.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from itertools import chain, groupby

from langchain_ctxbudget import messages
from langchain_ctxbudget.history.backgrounds import with_headings
from langchain_ctxbudget.messages import (
    CHARACTERS_PER_TOKEN,
    Count,
    begins_in_the_middle,
    cut_sentence,
    fences,
    one_line,
    prose_spans,
    terms,
    word_count,
)
from langchain_ctxbudget.search import about, is_name
from langchain_ctxbudget.sentences import Label, Said, read
from langchain_ctxbudget.settings import HistoryFormat
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

MOST_KEPT = 16
"""Sentences that a digest keeps, and names."""
CHARACTERS_PER_NODE = 900 * CHARACTERS_PER_TOKEN
"""Characters of the sentences that a digest of a higher level keeps."""
MOST_CANDIDATES = 600
"""Sentences from which a summary chooses, the most important ones of all spans."""
PARTS = {"windowed": (1,), "compacted": (10, 25), "multi_level": (5, 10, 15)}
"""The parts of the room that each zone of a strategy may take, oldest first."""
OLDER_SHARE = 40 / 75
"""The share of the compacted messages that are in the older zone, which has less room."""
PATTERNS = messages.vocabulary("history", "patterns")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorthPolicy:
    """How many points a sentence is worth, and what it must have to be kept at all."""

    plain: float = 4.0
    """Points of a sentence without a name, a number or code."""
    telling: float = 10.0
    """Points of a sentence with one."""
    most_matter: int = 8
    """The most points for what it is about, one a term."""
    statement: float = 20.0
    """Points more for something lasting that the user states, or decides."""
    decision: float = 4.0
    """Points more for what is decided: of a decision and a statement, the decision is kept."""
    of_user: float = 6.0
    """Points more for anything else that the user says."""
    of_model: float = 20.0
    """Points more for what a model writes: it has read its whole span, so it stands first."""
    told_first: float = 10.0
    """Points more for a model's overview, and for what it calls a decision or open."""
    off_for_tool: float = 8.0
    """Points less for what a tool returns."""
    fewest_words: int = 3
    """Words of a sentence of a document at least."""
    words_of_a_line: int = 5
    """Words of any other sentence with a name or a number at least, so no "Ready for Phase 2."."""
    matter: int = 2
    """Terms that a sentence is about at least."""
    matter_without_names: int = 3
    """Terms of a decision without a name or a number at least; one with fewer counts as anything
    else that the user says."""
    matter_of_request: int = 5
    """Terms of a user's question without a name or a number at least, and of any of the user's
    sentences in a script without capitals."""
    end_sentences: int = 2
    """Sentences at each end of a message that may tell what it is about: what stands between is
    detail, or pasted. Of an assistant's message only these are read."""
    most_initials: int = 2
    """Capitals in a row that are not taken for a name, as in "OK" and "AI"."""
    letters_share: float = 0.6
    """Letters among the characters of a sentence at least."""


WORTH = WorthPolicy()


def matter_of(text: str) -> frozenset[str]:
    """Returns the terms that a sentence is about, without stop words and generic ones."""
    return frozenset(about(terms(text))) - generic_terms()


@cache
def generic_terms() -> frozenset[str]:
    """Returns the terms that stand in any question and decision, whatever these are about."""
    return frozenset(terms(PATTERNS["generic"]))


class Kind(StrEnum):
    """The part that a sentence plays in a conversation."""

    DECISION = "decision"
    """What a model calls one."""
    OPEN = "open"
    """A question that is open, as a model says."""
    STATEMENT = "statement"
    """Something lasting that the user states, or decides."""
    PLAIN = "plain"


_LABELS_LEFT_OUT = (Label.COURTESY, Label.RULE, Label.USER_RULE)
"""What a summary leaves out: rules stand in front of it as long as they are in force."""


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a summariser reads it."""

    position: int
    speaker: str
    date: str | None
    text: str
    from_user: bool
    own_words: str = ""
    """What a user says in it themselves; empty where somebody else speaks."""
    said: tuple[Said, ...] = ()
    """What the sentences of `own_words` are."""
    calls_tools: bool = False

    @property
    def is_assistants(self) -> bool:
        """True if neither a user speaks nor a tool."""
        return bool(self.speaker) and not self.from_user and not self.speaker.startswith("tool")


@dataclass(frozen=True)
class Sentence:
    """A sentence worth keeping."""

    position: int
    """The message it comes from; of a model's sentence, the first message of its span."""
    order: int
    """Its place within that message, or within the model's summary."""
    speaker: str
    """Empty where a model wrote it."""
    date: str | None
    text: str
    score: float
    kind: Kind

    @cached_property
    def terms(self) -> frozenset[str]:
        """The stems of its words."""
        return frozenset(terms(self.text))

    @cached_property
    def matter(self) -> frozenset[str]:
        """The terms that it is about."""
        return matter_of(self.text)

    @property
    def attributed(self) -> str:
        """The sentence with its date, and who said it."""
        date = f"[{self.date}] " if self.date else ""
        speaker = f"{self.speaker}: " if self.speaker else ""
        return f"{date}{speaker}{self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The sentences and names of a span of messages that are worth keeping.

    It is made once, and kept under the hash of the span.
    """

    first: int
    end: int
    level: int
    """1 for messages, 2 for five digests of level 1, and so on."""
    sentences: tuple[Sentence, ...]
    artifacts: tuple[str, ...] = ()
    """Names of files, functions and the like, the most mentioned first."""
    made_by: str = EXTRACTION
    """`extraction`, or the name of the model that wrote it."""
    open_questions: tuple[str, ...] = ()
    """A model's: everything that is open at the end of the span, also from before it."""

    def placed(self, first: int) -> "Digest":
        """Returns the digest of the same messages at another place of the conversation."""
        shift = first - self.first
        if not shift:
            return self
        sentences = tuple(
            replace(sentence, position=sentence.position + shift) for sentence in self.sentences
        )
        return replace(self, first=first, end=self.end + shift, sentences=sentences)


def is_question(sentence: str) -> bool:
    """Returns True if a sentence ends in a question mark of any script."""
    return bool(PATTERNS.asks.search(sentence))


def worth_of(text: str) -> float:
    """Returns how much a sentence is worth by its look: names and numbers in it, and its matter."""
    worth = WORTH.telling if tells_something(text) else WORTH.plain
    return worth + min(WORTH.most_matter, len(matter_of(text)))


def tells_something(text: str, speakers: Collection[str] = ()) -> bool:
    """Returns True if a sentence has a number, a name behind its first word, or code.

    Args:
        text: The sentence.
        speakers: The names of those who speak, by words. These tell nothing, nor do their
            beginnings: who is addressed is often called in short.
    """
    if has_figures(text):
        return True
    words = PATTERNS.word_within.findall(text)
    names = filter(_is_name, words)
    return not all(any(speaker.startswith(name) for speaker in speakers) for name in names)


def has_figures(text: str) -> bool:
    """Returns True if a sentence has a number or code."""
    return bool(PATTERNS.number.search(text) or PATTERNS.code.search(text))


def _is_name(word: str) -> bool:
    """Returns True if a word within a sentence is a name; "OK" and "AI" are none."""
    return word[0].isupper() and (len(word) > WORTH.most_initials or not word.isupper())


def _has_capitals(text: str) -> bool:
    """Returns True if a text is in a script with capitals, so that names can be seen in it."""
    return text.lower() != text.upper()


def told_of(sentence: Sentence, digest: Digest) -> tuple[int, int]:
    """Returns the messages of which a sentence of a digest tells, as first and end position.

    Of a model's sentence, they are all messages that the model has read; else it is the one that
    says it.
    """
    if sentence.speaker:
        return sentence.position, sentence.position + 1
    return digest.first, digest.end


def digest_messages(lines: Sequence[Line], first: int, end: int) -> Digest:
    """Returns the digest of a span of messages."""
    names = messages.artifacts(line.text for line in lines)[:MOST_KEPT]
    return Digest(first=first, end=end, level=1, sentences=keep_sentences(lines), artifacts=names)


def merge(children: Sequence[Digest]) -> Digest:
    """Returns one digest of several spans of one level in a row.

    It has the sentences of theirs that are important and cover most, and is no larger at any level.
    """
    pool = list(chain.from_iterable(child.sentences for child in children))
    characters = [len(sentence.text) for sentence in pool]
    picked = choose(pool, characters, CHARACTERS_PER_NODE, MOST_KEPT)
    return Digest(
        first=children[0].first,
        end=children[-1].end,
        level=children[0].level + 1,
        sentences=tuple(pool[i] for i in picked),
        artifacts=merged_artifacts(children, MOST_KEPT),
    )


def merged_artifacts(digests: Iterable[Digest], most: int | None = None) -> tuple[str, ...]:
    """Returns the names that rank high in many digests; of equal ones, the first."""
    weights: defaultdict[str, float] = defaultdict(float)
    for digest in digests:
        for rank, name in enumerate(digest.artifacts, start=1):
            weights[name] += 1 / rank  # names are mentioned by Zipf's law
    return tuple(sorted(weights, key=lambda name: -weights[name])[:most])


def keep_sentences(lines: Iterable[Line], limit: int = MOST_KEPT) -> tuple[Sentence, ...]:
    """Returns the sentences of a span that are worth keeping, in order; of equal ones the first."""
    lines = list(lines)
    names = {word for line in lines for word in line.speaker.split()}
    candidates = [found.as_sentence() for found in _read(lines) if found.is_telling(names)]
    best: dict[str, Sentence] = {}
    for sentence in sorted(candidates, key=lambda s: (-s.score, s.position, s.order)):
        if len(best) == limit:
            break
        best.setdefault(sentence.text, sentence)
    return tuple(sorted(best.values(), key=lambda sentence: (sentence.position, sentence.order)))


@dataclass(frozen=True, slots=True)
class _Found:
    """A sentence of a message, and what it is."""

    line: Line
    order: int
    text: str
    is_at_end: bool
    """True if it is one of the first or the last ones of its message."""
    label: Label = Label.NONE

    def is_telling(self, speakers: Collection[str]) -> bool:
        """Returns True if it still says something to somebody who does not know the rest.

        Args:
            speakers: Words that are names of those who speak.
        """
        if not self.line.speaker:
            return word_count(self.text) >= WORTH.fewest_words
        return self._stands_alone and self._tells_enough(speakers)

    @property
    def _stands_alone(self) -> bool:
        """True if it is whole, in words, and needs none before it."""
        if self.label in _LABELS_LEFT_OUT or begins_in_the_middle(self.text):
            return False
        return self._is_whole and _is_in_letters(self.text)

    def _tells_enough(self, speakers: Collection[str]) -> bool:
        """Returns True if it has enough of what it is about, for what it is."""
        matter = len(matter_of(self.text))
        if self.kind is Kind.STATEMENT:
            return matter >= WORTH.matter
        has_names = tells_something(self.text, speakers)
        if not self.is_at_end or (self._asks and not self.line.from_user):
            return False
        if self._needs_figures and not has_figures(self.text):
            return False
        if has_names:
            return word_count(self.text) >= WORTH.words_of_a_line and matter >= WORTH.matter
        may_lack_names = self._asks or not _has_capitals(self.text)
        return self.line.from_user and may_lack_names and matter >= WORTH.matter_of_request

    @property
    def _is_whole(self) -> bool:
        """True if it ends like a sentence, or is all that a user says."""
        if PATTERNS.ends.search(self.text) or self._asks:
            return True
        return self.line.from_user and self.text == one_line(self.line.own_words)

    @property
    def _needs_figures(self) -> bool:
        """True if an assistant says it, who names many things that nobody has spoken of."""
        return self.line.is_assistants and not is_name(self.line.speaker)

    @property
    def _asks(self) -> bool:
        return self.label is Label.QUESTION or is_question(self.text)

    @property
    def kind(self) -> Kind:
        """The part that it plays: only the user states something, and no question does."""
        if not self.line.from_user or self._asks:
            return Kind.PLAIN
        if self.label is Label.STATEMENT or self._decides_something:
            return Kind.STATEMENT
        return Kind.PLAIN

    @property
    def _decides_something(self) -> bool:
        """True for a decision that says what it is about."""
        if self.label is not Label.DECISION:
            return False
        has_names = tells_something(self.text)
        return has_names or len(matter_of(self.text)) >= WORTH.matter_without_names

    def as_sentence(self) -> Sentence:
        """Returns it as a sentence that is worth keeping."""
        return Sentence(
            position=self.line.position,
            order=self.order,
            speaker=self.line.speaker,
            date=self.line.date,
            text=self.text,
            score=self._score,
            kind=self.kind,
        )

    @property
    def _score(self) -> float:
        score = worth_of(self.text)
        if self.kind is Kind.STATEMENT:
            score += WORTH.statement
            if self._decides_something:
                score += WORTH.decision
        elif self.line.from_user:
            score += WORTH.of_user
        elif self.line.speaker.startswith("tool"):
            score -= WORTH.off_for_tool
        return score


def _read(lines: Iterable[Line]) -> list[_Found]:
    """Returns the sentences of messages, each with what it is.

    The user's have been read before. Of an assistant's those at the ends of a message are read now,
    as courtesies stand there.
    """
    all_found = list(chain.from_iterable(map(_sentences_in, lines)))
    unread: list[int] = []
    for number, found in enumerate(all_found):
        if found.line.is_assistants and found.is_at_end:
            unread.append(number)
    readings = read([all_found[number].text for number in unread])
    for number, said in zip(unread, readings, strict=True):
        if said:
            all_found[number] = replace(all_found[number], label=said[0].label)
    return all_found


def _sentences_in(line: Line) -> list[_Found]:
    """Returns the sentences of a message, the user's with what they are.

    There are none in a message that calls tools: it announces what comes.
    """
    if line.calls_tools:
        return []
    words = line.own_words if line.from_user else line.text
    labels = {(said.begin, said.end): said.label for said in line.said}
    spans = prose_spans(words)
    found: list[_Found] = []
    for order, (begin, end) in enumerate(spans):
        text = cut_sentence(one_line(words[begin:end]))
        is_at_end = order < WORTH.end_sentences or order >= len(spans) - WORTH.end_sentences
        label = labels.get((begin, end), Label.NONE)
        found.append(_Found(line, order, text, is_at_end=is_at_end, label=label))
    return found


def _is_in_letters(text: str) -> bool:
    """Returns True if a text is mostly letters, as no row of a table is."""
    letters = sum(map(str.isalpha, text))
    return letters >= WORTH.letters_share * len(text)


def choose(
    sentences: Sequence[Sentence], costs: Sequence[int], budget: int, most: int | None = None
) -> list[int]:
    """Returns the sentences to put into a summary within a budget, as indexes in order.

    It is greedy, by importance and coverage per token (after Lin and Bilmes 2010): the gain of a
    sentence is the weight of its terms that no chosen sentence has yet, times its importance
    squared, over its cost.
    """
    pool = heapq.nsmallest(
        MOST_CANDIDATES, range(len(sentences)), key=lambda i: (-sentences[i].score, i)
    )
    weights = _weights_of_terms([sentences[i] for i in pool])
    covered: set[str] = set()
    chosen: list[int] = []
    budget_left = budget

    def gain_of(i: int) -> float:
        # Summed up exactly: sets have no fixed order.
        gain = math.fsum(map(weights.__getitem__, sentences[i].terms - covered))
        return gain * sentences[i].score ** 2 / max(1, costs[i])

    # Gains only fall, so a stale one is an upper bound: the top that is still the top when renewed
    # is the best.
    queue = [(-gain_of(i), i) for i in pool]
    heapq.heapify(queue)
    while queue and len(chosen) != most:
        _, i = heapq.heappop(queue)
        if costs[i] > budget_left:
            continue
        gain = gain_of(i)
        if gain <= 0:
            continue
        if queue and gain < -queue[0][0]:
            heapq.heappush(queue, (-gain, i))
            continue
        chosen.append(i)
        covered |= sentences[i].terms
        budget_left -= costs[i]
    return sorted(chosen)


def _weights_of_terms(sentences: Sequence[Sentence]) -> dict[str, float]:
    """Returns the weight of each term of some sentences, which is larger the rarer it is."""
    frequency = Counter(chain.from_iterable(sentence.terms for sentence in sentences))
    weight_of = {times: math.log(1 + len(sentences) / times) for times in set(frequency.values())}
    return {term: weight_of[times] for term, times in frequency.items()}


def summary_lines(
    strategy: str,
    digests: Sequence[Digest],
    cut: int,
    count: Count,
    room_tokens: int,
    *,
    texts_shown: Sequence[str],
    open_questions: frozenset[str],
    form: HistoryFormat,
) -> list[SummaryLine]:
    """Returns the lines that stand for everything before the cut.

    Args:
        strategy: The strategy of the history.
        digests: The digests of everything before the cut, oldest first.
        cut: The position of the cut.
        count: Counts the tokens of a text.
        room_tokens: The room of the summary.
        texts_shown: Texts that stand in the prompt; a sentence in one of them is left out.
        open_questions: The questions that are still open; others are left out.
        form: How a line is written.
    """
    zones = [
        (zone, list(spans))
        for zone, spans in groupby(digests, lambda digest: zone_of(strategy, digest, cut))
    ]
    parts_of = PARTS[strategy]
    lines: list[SummaryLine] = []
    tokens_left = room_tokens
    parts_left = sum(parts_of[zone] for zone, _ in zones)
    for zone, spans in zones:
        room = tokens_left * parts_of[zone] // parts_left
        of_spans = [_lines_of(digest, texts_shown, open_questions, form) for digest in spans]
        chosen = _zone_lines(of_spans, count, room)
        parts_left -= parts_of[zone]
        tokens_left -= sum(map(count, with_headings(chosen)))
        lines += chosen
    return lines


def zone_of(strategy: str, digest: Digest, cut: int) -> int:
    """Returns the zone of a strategy to which a span before the cut belongs.

    Levels from three on are one.
    """
    if strategy == "multi_level":
        return 3 - min(digest.level, 3)
    if strategy == "compacted" and digest.level == 1:
        return int(digest.first >= cut * OLDER_SHARE)
    return 0


def _lines_of(
    digest: Digest,
    texts_shown: Sequence[str],
    open_questions: frozenset[str],
    form: HistoryFormat,
) -> list[tuple[Sentence, SummaryLine]]:
    """Returns the sentences of a span that may be shown, each with its line."""
    pairs: list[tuple[Sentence, SummaryLine]] = []
    for sentence in digest.sentences:
        is_open = sentence.kind is Kind.OPEN
        if is_open and sentence.text not in open_questions:
            continue
        if any(sentence.text in shown for shown in texts_shown):
            continue
        text = fences.as_data(sentence.text)
        if is_open and "[OPEN]" not in sentence.text:
            text = f"[OPEN] {text}"
        has_heading = sentence.date and form.timestamps
        first, end = told_of(sentence, digest)
        line = SummaryLine(
            position=sentence.position,
            order=sentence.order,
            heading=f"[{sentence.date}]\n" if has_heading else "",
            text=f"- {form.line(sentence.speaker, text)}\n",
            first=first,
            end=end,
            made_by=digest.made_by,
            value=sentence.score,
        )
        pairs.append((sentence, line))
    return pairs


def _zone_lines(
    spans: Sequence[Sequence[tuple[Sentence, SummaryLine]]], count: Count, room_tokens: int
) -> list[SummaryLine]:
    """Returns the lines of a zone that fit with their headings.

    The best line of every span comes first, then those that add most.
    """
    pairs = list(chain.from_iterable(spans))
    sentences = [sentence for sentence, _ in pairs]
    lines = [line for _, line in pairs]
    costs = [count(line.text) for line in lines]
    ranked_by_span = _ranked_by_span(list(map(len, spans)), lines)
    room = room_tokens
    while room > 0:  # what the headings cost is known once sentences are chosen
        best = _best_of_spans(ranked_by_span, costs, room)
        free = [0 if i in best else cost for i, cost in enumerate(costs)]
        tokens_left = room - sum(costs[i] for i in best)
        best.update(choose(sentences, free, tokens_left))
        chosen = [lines[i] for i in sorted(best)]
        excess = sum(map(count, with_headings(chosen))) - room_tokens
        if excess <= 0:
            return chosen
        room -= excess
    return []


def _ranked_by_span(lengths: Sequence[int], lines: Sequence[SummaryLine]) -> list[list[int]]:
    """Returns the indexes of the lines of every span that has any, the best line first."""
    ranked: list[list[int]] = []
    first = 0
    for length in lengths:
        if length:
            indexes = range(first, first + length)
            ranked.append(sorted(indexes, key=lambda i: -lines[i].value))
        first += length
    return ranked


def _best_of_spans(
    ranked_by_span: Sequence[Sequence[int]], costs: Sequence[int], room_tokens: int
) -> set[int]:
    """Returns the best line of every span that fits its share of the room, newest span first."""
    best: set[int] = set()
    tokens_left = room_tokens
    spans_left = len(ranked_by_span)
    for indexes in reversed(ranked_by_span):
        fitting = next((i for i in indexes if costs[i] <= tokens_left // spans_left), None)
        if fitting is not None:
            best.add(fitting)
            tokens_left -= costs[fitting]
        spans_left -= 1
    return best
