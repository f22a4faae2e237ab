"""Quotes texts within a budget: lines with headings, replies, and marks on old statements."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import Conversation, Entry
from langchain_ctxbudget.messages import fences, head_end, replacements_in, terms, with_borders
from langchain_ctxbudget.retrieval.citations import as_title, citation_of, heading_of_document
from langchain_ctxbudget.retrieval.contradicted import contradiction
from langchain_ctxbudget.retrieval.excerpts import answering
from langchain_ctxbudget.retrieval.index_lines import most_telling, says_something
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.searched import MOST_CHARACTERS_PER_TOKEN, Other
from langchain_ctxbudget.search import about, highest, most_about, says_nothing

OWN_SECTION = "## Said earlier in this conversation\n"
MIXED_SECTION = "## Found for this message\n"
HERE = "[in this conversation]\n"
"""The heading of messages of this conversation that have no date, where others are quoted too."""
MEMORY_SHARE = 0.4
"""The largest share of the budget for memories, as long as other texts could use the rest."""


@dataclass(frozen=True, slots=True)
class FillingPolicy:
    """How a budget is filled with texts of any length."""

    smallest_item_tokens: int = 8
    """In less room than this, no text is tried any more."""
    named_share: float = 0.6
    """A document that the message names is taken whole if it is at most this share of the room."""
    long_tokens: int = 160
    """The most relevant text is long if it costs at least this, and at least `long_share` of the
    room. Then there may be no room for all of it, and room is kept free for a passage."""
    long_share: float = 0.125
    """See `long_tokens`."""
    passage_tokens: int = 64
    """The room that is kept free for the passage: at most this, and at most `long_share`."""
    index_line_tokens: int = 26
    """The most tokens of a line of the index for a question about everything."""
    index_whole_tokens: int = 52
    """A text that costs no more stands in the index whole."""
    index_share: float = 0.6
    """The largest share of the room for the index; the rest is for whole texts."""


@dataclass(frozen=True, slots=True)
class ReplyPolicy:
    """How a question is quoted with a part of its reply, and a reply with its short question."""

    share: float = 0.1
    """The largest share of the budget for such sentences and questions."""
    short_characters: int = 70
    """A reply or a question is quoted whole if it is not longer."""


FILLING = FillingPolicy()
REPLIES = ReplyPolicy()


@dataclass
class Selection:
    """The texts that are quoted so far, and the room that is left.

    To take a text is to quote it and pay for it. Texts are known by their numbers in the pool.
    """

    conversation: Conversation
    pool: Pool
    tokens_left: int
    may_come: NDArray[np.bool_]
    """True for texts that may be taken beside others: not those that the prompt shows already."""
    most_items: int
    is_numbered: bool
    """True if lines have the numbers of their messages."""
    transient_tokens: int
    """How many tokens of the budget, counted from its end, are for this prompt alone. Quotes that
    lie wholly in this part are marked as transient."""
    paid_headings: set[str] = field(default_factory=set)
    """The headings that are paid for."""
    chosen: dict[int, Fragment] = field(default_factory=dict)
    """The quotes of the texts that are taken, by the numbers of these."""
    passages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The numbers of the chunks that one quote shows, by its number, where it shows several."""
    titles_by_label: dict[str, list[str]] = field(default_factory=dict)
    """The titles of the other conversations that are quoted, by the label that a heading shows. If
    several have one label, or none, the heading numbers them."""

    def __post_init__(self) -> None:
        """Divides the budget."""
        self.memory_tokens_left = int(self.tokens_left * MEMORY_SHARE)
        self.reply_tokens_left = int(self.tokens_left * REPLIES.share)
        self.is_mixed = bool(self.pool.others or self.pool.named_documents)
        self.count = self.conversation.counter.count_text
        lexical = self.pool.searched.index.lexical
        self.worths = lexical.rarities(about(self.pool.question.terms))

    # Taking texts

    def take_named(self) -> list[Fragment]:
        """Takes the documents that a message names, whole or in summary; returns the quotes."""
        taken: list[Fragment] = []
        for whole, summary in self.pool.named_documents:
            part = None
            if whole is not None:
                most_tokens = int(self.tokens_left * FILLING.named_share)
                part = self._take_document(whole, most_tokens, Status.INCLUDED)
            if part is None:
                part = self._take_document(summary, self.tokens_left, Status.SHRUNK)
            if part is not None:
                taken.append(part)
        return taken

    def _take_document(self, document: Other, most_tokens: int, status: Status) -> Fragment | None:
        """Takes a document, or its summary, and returns its quote.

        Returns None if it is empty or costs more than `most_tokens`.
        """
        if not document.text.strip():
            return None
        line = fences.item("", document.text)
        value = float(self.pool.ranking.keys.max(initial=0.0)) + 1  # comes before any other
        part = self._fragment(document, line, self.count(line), value, status)
        price = part.tokens + self.count(part.heading)
        if price > most_tokens:
            return None
        self.tokens_left -= price
        return replace(part, reason=Reason.DETECTED)

    def fill(self, numbers: Sequence[int]) -> None:
        """Takes the texts that fit, in their order.

        If the one that says most of an identifier of the message, or else the most relevant one,
        finds no room, a passage of it is taken. In the end, memories may have the room for which
        there was no other text.
        """
        share_tokens = int(self.tokens_left * FILLING.long_share)
        long_text = self._identified_text(numbers)
        passage_tokens = min(FILLING.passage_tokens, self.tokens_left)
        if long_text is None:
            long_text = self._long_text(numbers, share_tokens)
            passage_tokens = min(FILLING.passage_tokens, share_tokens)
        if long_text is None:
            passage_tokens = 0
        self.tokens_left -= passage_tokens
        self._take_in_order(numbers)
        self.tokens_left += passage_tokens
        if long_text is not None and long_text not in self.chosen and not self._is_full:
            self._take_passage(long_text)

        self.memory_tokens_left = self.tokens_left
        self._take_in_order(numbers)

    def take_index(self, numbers: Sequence[int]) -> None:
        """Takes a short line of each text that says something, while the index has room.

        Of a text that is longer than such a line, it is the sentence that tells most.
        """
        tokens_for_texts = int(self.tokens_left * (1 - FILLING.index_share))
        lines: set[str] = set()
        for number in numbers:
            room = self.tokens_left - tokens_for_texts
            if room < FILLING.index_line_tokens or self._is_full:
                return
            line, status = self._index_line(number)
            if not line or line in lines:
                continue
            tokens = self.count(line)
            if tokens + self._price_of(self._heading(self.pool.text(number))) <= room:
                self._add(number, line, tokens, status)
                lines.add(line)

    def _index_line(self, number: int) -> tuple[str, Status]:
        """Returns a line of the index, and whether it quotes all of its text.

        It is empty if no sentence says anything. Where the order is asked for in which the user
        asked, the user's questions say something.
        """
        question = self.pool.question
        with_questions = question.asks_for_order
        text = self.pool.text(number)
        tokens = self._cost(number, FILLING.index_whole_tokens)
        if tokens is not None and tokens <= FILLING.index_whole_tokens:
            if not says_something(text.text, with_questions=with_questions):
                return "", Status.OMITTED
            return self._line(number), Status.INCLUDED
        rarities = self.pool.searched.index.lexical.rarities
        worths = rarities(question.matter)
        sentence = most_telling(text.text, worths, rarities, with_questions=with_questions)
        if not sentence:
            return "", Status.OMITTED
        return self._line_of_sentence(number, sentence), Status.SHRUNK

    def _line_of_sentence(self, number: int, sentence: str) -> str:
        """Returns a line of the index with a sentence, or with as much of it as there is room."""
        text = self.pool.text(number)
        reference = self._reference(number)

        def line(size: int) -> str:
            """Returns the line with so many characters of the sentence at most."""
            if size >= len(sentence):
                return fences.item(text.speaker, f"{sentence} …", reference)
            beginning = sentence[: head_end(sentence[: size + 1], size)].rstrip()
            return fences.item(text.speaker, f"{beginning} …", reference)

        sizes = range(1, len(sentence) + 1)
        most_tokens = FILLING.index_line_tokens
        size = bisect_right(sizes, most_tokens, key=lambda size: self.count(line(size)))
        return line(size)

    def _reference(self, number: int) -> str:
        """Returns what a line begins with so that its message can be looked up, if it can."""
        position = self.pool.position(number)
        if not self.is_numbered or position is None:
            return ""
        return f"#{position + 1} "

    @property
    def _is_full(self) -> bool:
        """Tells whether no more items may come, however much room there is."""
        return len(self.chosen) >= self.most_items

    def _identified_text(self, numbers: Sequence[int]) -> int | None:
        """Returns the text longer than a passage that says most of an identifier of the message."""
        evidence = self.pool.evidence
        candidates = np.array(numbers, np.intp)
        is_long = self.pool.costs[candidates] > FILLING.passage_tokens
        identified = candidates[evidence.identified[candidates] & is_long]
        best = highest(identified, evidence.distinctness, 1).tolist()
        return int(best[0]) if best else None

    def _long_text(self, numbers: Sequence[int], share_tokens: int) -> int | None:
        """Returns the most relevant text if it is long for the room; None if it is not."""
        best = highest(np.array(numbers, np.intp), self.pool.ranking.relevance, 1).tolist()
        if best and self.pool.costs[best[0]] >= max(FILLING.long_tokens, share_tokens):
            return int(best[0])
        return None

    def _take_in_order(self, numbers: Sequence[int]) -> None:
        """Takes the texts that fit, except those that are taken whole already."""
        for number in numbers:
            if self.tokens_left < FILLING.smallest_item_tokens or self._is_full:
                return
            part = self.chosen.get(number)
            if part is None or part.status is not Status.INCLUDED:
                self._take_if_it_fits(number, part)

    def _take_if_it_fits(self, number: int, part: Fragment | None) -> None:
        """Takes a text whole if there is room, in place of a part of it that was taken before.

        Its reply or its question is taken beside it.
        """
        room = self.tokens_left
        if part is not None:
            room += part.tokens
        tokens = self._cost(number, room)
        if tokens is None:
            return
        text = self.pool.text(number)
        if says_nothing(text.text):
            return
        price = tokens + self._price_of(self._heading(text))
        if source_of(text) == "memories":
            if price > min(room, self.memory_tokens_left):
                return
            self.memory_tokens_left -= price
        elif price > room:
            return
        self._add(number, self._line(number), tokens)
        self._take_reply_and_question(number)

    def _take_passage(self, number: int) -> None:
        """Takes a passage of a message, as long as there is room for.

        It begins at the place where the message is most about the question. Nothing is taken if
        there is no such place, or if the text is not from this conversation.
        """
        text = self.pool.text(number)
        position = self.pool.position(number)
        start = most_about(text.text, self.pool.question.terms)
        if position is None or start is None:
            return
        room = self.tokens_left - self._price_of(self._heading(text))
        rest = text.text[start:][: MOST_CHARACTERS_PER_TOKEN * max(room, 0)]

        def line(size: int) -> str:
            """Returns the line of a passage that has at most so many characters."""
            end = size
            if size < len(rest):
                end = head_end(rest[: size + 1], size)
            passage = with_borders(text.text, start, start + end)
            return fences.item(text.speaker, passage, f"#{position + 1} ")

        size = bisect_right(range(1, len(rest) + 1), room, key=lambda size: self.count(line(size)))
        if size:
            self._add(number, line(size), self.count(line(size)), Status.SHRUNK)

    # What goes with a text: its reply, or its question

    def _take_reply_and_question(self, number: int) -> None:
        """Takes what goes with a text: a question's reply, and a reply's short question."""
        if self._is_question_with_reply(number):
            self._take_reply(number)
        if self._is_question_with_reply(number - 1):
            question = self.pool.text(number - 1)
            if len(question.text) <= REPLIES.short_characters:
                line = self._line(number - 1)
                self._take_beside(number - 1, line, self.reply_tokens_left // 2)

    def _is_question_with_reply(self, question: int) -> bool:
        """Tells whether a text is a question in this conversation, and the next one its reply.

        The next text must be the next message, and somebody else's.
        """
        places = self.pool.places
        at = question - len(self.pool.others)
        if not 0 <= at < len(places) - 1:
            return False
        position = places[at]
        index = self.pool.searched.index
        if places[at + 1] != position + 1 or not index.asks.values[position]:
            return False
        return bool(index.speaker.values[position] != index.speaker.values[position + 1])

    def _take_reply(self, question: int) -> None:
        """Takes the reply to a question: all of it if it is short, else what answers of it."""
        number = question + 1
        reply = self.pool.text(number)
        if len(reply.text) <= REPLIES.short_characters:
            self._take_beside(number, self._line(number))
            return
        excerpt = self._excerpt_of_reply(question, reply.text)
        if not excerpt:
            return
        line = fences.item(reply.speaker, f"{excerpt} …", self._reference(number))
        self._take_beside(number, line, self.reply_tokens_left, Status.SHRUNK)

    def _excerpt_of_reply(self, question: int, reply: str) -> str:
        """Returns the sentences of a reply that answer its question; empty if none does.

        They have to do with the message, too.
        """
        lexical = self.pool.searched.index.lexical
        quoted = lexical.rarities(about(terms(self.pool.text(question).text)))
        position = self.pool.position(question + 1)
        if position is None or not lexical.counts_of(position, {**self.worths, **quoted}):
            return ""
        return answering(reply, self.worths, quoted)

    def _take_beside(
        self,
        number: int,
        line: str,
        most_tokens: int | None = None,
        status: Status = Status.INCLUDED,
    ) -> None:
        """Takes a message beside another one, if there is room and it is not quoted yet.

        Args:
            number: The message.
            line: The line that quotes it.
            most_tokens: What the line may take of the room for replies and questions; None if it
                may take all the room that is left.
            status: Whether the line quotes all of the message.
        """
        if self.pool.position(number) is None or not self.may_come[number] or self._is_full:
            return
        sayings = self.pool.sayings
        if sayings[number] in sayings[[*self.chosen]]:
            return
        tokens = self.count(line)
        room = self.tokens_left
        if most_tokens is not None:
            room = min(room, most_tokens)
        if tokens + self._price_of(self._heading(self.pool.text(number))) > room:
            return
        if most_tokens is not None:
            self.reply_tokens_left -= tokens
        self._add(number, line, tokens, status)

    # Statements that were replaced

    def mark_replaced(self, shown: Iterable[int]) -> None:
        """Marks quotes of statements that a later statement of the user has replaced.

        To make room for a mark, quotes that are worth least go.

        Args:
            shown: The positions of messages that stand in the prompt word for word.
        """
        marks, needed = self._marks_of_this_conversation(shown)
        marks |= self._marks_of_other_conversations()
        needed |= marks.keys()
        spare = [number for number in self.chosen if number not in needed]
        for number, mark in marks.items():
            self._mark(number, mark, spare)

    def _mark(self, number: int, mark: str, spare: list[int]) -> None:
        """Adds a mark to a quote, and drops spare quotes, the last ones first, to make room."""
        part = self.chosen[number]
        text = f"{part.text.rstrip()} ({mark})\n"
        marked = replace(part, text=text, tokens=self.count(text), reason=Reason.SUPERSEDED)
        added_tokens = marked.tokens - part.tokens
        while added_tokens > self.tokens_left and spare:
            self.tokens_left += self.chosen.pop(spare.pop()).tokens
        if added_tokens <= self.tokens_left:
            self.tokens_left -= added_tokens
            self.chosen[number] = marked
        elif number < len(self.pool.others):
            # Nothing near it in the prompt would tell that it no longer holds.
            self.tokens_left += self.chosen.pop(number).tokens

    def _marks_of_this_conversation(self, shown: Iterable[int]) -> tuple[dict[int, str], set[int]]:
        """Returns the marks of quotes that a later statement in this conversation has replaced.

        Also returns the quotes that must stay: the replaced ones and those that replace them.
        """
        quoted = self._numbers_by_position()
        entries = self.conversation.entries
        is_human = self.conversation.table.human.values
        by_users = {at: entries[at] for at in {*shown, *quoted} if is_human[at]}
        statements = {at: (entry.speaker, entry.text) for at, entry in by_users.items()}

        marks: dict[int, str] = {}
        needed: set[int] = set()
        for older, newer, thing in replacements_in(statements):
            needed.update(quoted[at] for at in (older, newer) if at in quoted)
            if older in quoted:
                day = by_users[newer].date
                since = f" on {day}" if day else ""
                marks[quoted[older]] = f"superseded{since}: {thing}"
        return marks, needed

    def _numbers_by_position(self) -> dict[int, int]:
        """Returns the numbers of the messages of this conversation that are taken, by position."""
        numbers: dict[int, int] = {}
        for number in self.chosen:
            position = self.pool.position(number)
            if position is not None:
                numbers[position] = number
        return numbers

    def _marks_of_other_conversations(self) -> dict[int, str]:
        """Returns the marks of quotes from other conversations that something later contradicts."""
        marks: dict[int, str] = {}
        for number in sorted(self.chosen):
            if number >= len(self.pool.others):
                break
            other = self.pool.others[number]
            if other.source != "conversations" or not other.from_user:
                continue
            mark = contradiction(other, self.conversation, self.pool)
            if mark:
                marks[number] = mark
        return marks

    # Lines, headings and what they cost

    def in_order(self) -> list[tuple[int, Fragment]]:
        """Returns the quotes in the order in which they stand in the prompt, with their numbers.

        Texts from elsewhere come first, then messages by their dates. The last ones are transient.
        """

        def order(item: tuple[int, Fragment]) -> tuple[bool, str, int]:
            number, _ = item
            is_message = number >= len(self.pool.others)
            day = self.pool.text(number).date or "" if is_message else ""
            return is_message, day, number

        return self._with_transient_end(sorted(self.chosen.items(), key=order))

    def _with_transient_end(self, quotes: list[tuple[int, Fragment]]) -> list[tuple[int, Fragment]]:
        """Returns quotes of which the last ones are transient.

        So the next prompt still begins with all that stands before them, in order of time.
        """
        tokens = self.transient_tokens - self.tokens_left
        for place in reversed(range(len(quotes))):
            number, fragment = quotes[place]
            tokens -= fragment.tokens
            if tokens < 0:
                break
            quotes[place] = (number, replace(fragment, transient=True))
        return quotes

    def _add(self, number: int, line: str, tokens: int, status: Status = Status.INCLUDED) -> None:
        """Takes a text, or a part of it, and pays for it; it takes the place of an earlier part."""
        text = self.pool.text(number)
        value = float(self.pool.ranking.keys[number])
        fragment = self._fragment(text, line, tokens, value, status)
        self.tokens_left -= tokens + self._price_of(fragment.heading)
        part = self.chosen.get(number)
        if part is not None:
            self.tokens_left += part.tokens
        if not isinstance(text, Entry) and text.source == "conversations":
            titles = self.titles_by_label.setdefault(text.label, [])
            if text.title not in titles:
                titles.append(text.title)
        self.paid_headings.add(fragment.heading)
        self.chosen[number] = fragment

    def _fragment(
        self, text: Other | Entry, line: str, tokens: int, value: float, status: Status
    ) -> Fragment:
        """Returns the quote of a text, under its heading."""
        return Fragment(
            layer=Layer.RETRIEVAL,
            id=text.id,
            text=line,
            tokens=tokens,
            reason=Reason.RELEVANT,
            status=status,
            section=MIXED_SECTION if self.is_mixed else OWN_SECTION,
            heading=self._heading(text),
            value=value,
            source=source_of(text),
            citation=citation_of([text]),
        )

    def _line(self, number: int) -> str:
        """Returns the line that quotes a text whole."""
        position = self.pool.position(number)
        if position is None:
            other = self.pool.others[number]
            return fences.item(other.speaker, other.text)
        return self.conversation.quoted(position, numbered=self.is_numbered)

    def _cost(self, number: int, most_tokens: int) -> int | None:
        """Returns the tokens of a text's line, or None if they are surely more than `most_tokens`.

        None saves counting them.
        """
        position = self.pool.position(number)
        if position is not None:
            return self.conversation.count_quote(position, most_tokens, numbered=self.is_numbered)
        if len(self.pool.others[number].text) > MOST_CHARACTERS_PER_TOKEN * most_tokens:
            return None
        return self.count(self._line(number))

    def _price_of(self, heading: str) -> int:
        """Returns what a heading costs above a text that is taken now: 0 if it is paid for."""
        if heading in self.paid_headings:
            return 0
        return self.count(heading)

    def _heading(self, text: Other | Entry) -> str:
        """Returns the heading of a text: its day, or its document or conversation."""
        if isinstance(text, Entry):
            if text.date:
                return f"[{text.date}]\n"
            return HERE if self.is_mixed else ""
        if text.source == "memories":
            return "[known about the user]\n"
        citation = citation_of([text])
        if citation is not None:
            return heading_of_document(citation, text.date)

        titles = self.titles_by_label.get(text.label, [])
        number = titles.index(text.title) if text.title in titles else len(titles)
        which = f" ({number + 1})" if number else ""
        return f"[{_heading_of_other_conversation(text)}{which}]\n"


def _heading_of_other_conversation(text: Other) -> str:
    """Returns the heading of another conversation's messages: their day, and its title if any."""
    day = f"{text.date}, " if text.date else ""
    title = as_title(text.label)
    if not title:
        return f"{day}in another conversation"
    return f"{day}in another conversation: {title}"


def source_of(text: Other | Entry) -> str:
    """Returns where a text is from: `messages` for this conversation, else its source."""
    return "messages" if isinstance(text, Entry) else text.source
