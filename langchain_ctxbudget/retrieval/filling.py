"""Takes texts into a budget, one line each, with their headings and with what goes with them."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import Conversation, Entry
from langchain_ctxbudget.messages import fences, head_end, one_line, replaced, sentences
from langchain_ctxbudget.retrieval.contradicted import contradiction
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.searched import MOST_CHARACTERS_PER_TOKEN, Other
from langchain_ctxbudget.search import highest, most_about

OWN_SECTION = "## Said earlier in this conversation\n"
MIXED_SECTION = "## Found for this message\n"
HERE = "[in this conversation]\n"
"""Stands above a message without a date where it could seem to be a part of what comes from
elsewhere."""
MEMORY_SHARE = 0.4
"""Share of the budget that memories take at most while anything else has use for it."""
_MOST_TITLE_CHARACTERS = 80
_HEADING = re.compile("#{1,6} ")
_NO_HEADING = str.maketrans("[]", "()")


@dataclass(frozen=True, slots=True)
class FillingPolicy:
    """How a budget is filled."""

    smallest_item_tokens: int = 8
    """Room that is too little for anything."""
    named_share: float = 0.6
    """Share of the room that a document which the message names takes at most as a whole."""
    long_tokens: int = 160
    """Tokens from which the most relevant text may be too long to be taken whole."""
    long_share: float = 0.125
    """Share of the room from which it may be."""
    passage_tokens: int = 64
    """Tokens that are kept free for a passage of it, in a small room `long_share` of it."""


@dataclass(frozen=True, slots=True)
class ReplyPolicy:
    """How a question comes with something of its reply, and a reply with its short question."""

    share: float = 0.1
    """Share of the budget that sentences of replies, and questions, take at most."""
    least_characters: int = 20
    """A sentence with fewer, or as many, says too little."""
    short_characters: int = 70
    """A reply, or a question, that is not longer comes whole; a sentence is better not longer."""
    most_characters: int = 160
    """The longest sentence that comes."""
    looked_through_characters: int = 400
    """The beginning of a reply in which a sentence is looked for."""
    long_word_letters: int = 4
    """Letters from which a word that a sentence shares with the question counts."""


FILLING = FillingPolicy()
REPLIES = ReplyPolicy()


@dataclass
class Selection:
    """Texts that were taken, and the room that is left.

    A text is known by its number in the pool.
    """

    conversation: Conversation
    pool: Pool
    tokens_left: int
    may_come: NDArray[np.bool_]
    """True for texts that may go with others; the prompt does not have them."""
    most_items: int
    is_numbered: bool
    """Lines have the numbers of their messages."""
    transient_tokens: int
    """What is taken with the last tokens of the budget is only for this prompt."""
    paid_headings: set[tuple[bool, str]] = field(default_factory=set)
    """The headings that are paid, above transient texts and above others."""
    chosen: dict[int, Fragment] = field(default_factory=dict)
    threads: dict[str, list[str]] = field(default_factory=dict)
    """The other conversations that are quoted, by their titles: of several without one, or with the
    same, each gets a number."""

    def __post_init__(self) -> None:
        """Divides the budget."""
        self.memory_tokens_left = int(self.tokens_left * MEMORY_SHARE)
        self.reply_tokens_left = int(self.tokens_left * REPLIES.share)
        self.is_mixed = bool(self.pool.others or self.pool.named)
        self.count = self.conversation.counter.count_text

    # Taking texts

    def take_named(self) -> list[Fragment]:
        """Takes the documents that a message names: whole, or as their summary."""
        taken: list[Fragment] = []
        for whole, summary in self.pool.named:
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
        """Takes a document, or its summary; None where it is empty or has no room."""
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
        """Takes texts in their order, and a passage of the most relevant one if it is too long."""
        share_tokens = int(self.tokens_left * FILLING.long_share)
        most_relevant = self._long_text(numbers, share_tokens)
        kept = 0 if most_relevant is None else min(FILLING.passage_tokens, share_tokens)
        self.tokens_left -= kept
        self._take_in_order(numbers)
        self.tokens_left += kept
        if most_relevant is not None and most_relevant not in self.chosen and not self._is_full:
            self._take_passage(most_relevant)
        # What nothing else has use for, memories may have.
        self.memory_tokens_left = self.tokens_left
        self._take_in_order(numbers)

    @property
    def _is_full(self) -> bool:
        """Tells whether no more items may come, however much room there is."""
        return len(self.chosen) >= self.most_items

    def _long_text(self, numbers: Sequence[int], share_tokens: int) -> int | None:
        """Returns the most relevant text if it is long for the room; None if it is not."""
        best = highest(np.array(numbers, np.intp), self.pool.ranking.relevance, 1).tolist()
        if best and self.pool.costs[best[0]] >= max(FILLING.long_tokens, share_tokens):
            return int(best[0])
        return None

    def _take_in_order(self, numbers: Sequence[int]) -> None:
        """Takes the texts that fit, and are not taken whole yet; others are skipped."""
        for number in numbers:
            if self.tokens_left < FILLING.smallest_item_tokens or self._is_full:
                return
            part = self.chosen.get(number)
            if part is None or part.status is not Status.INCLUDED:
                self._take_if_it_fits(number, part)

    def _take_if_it_fits(self, number: int, part: Fragment | None) -> None:
        """Takes a text whole where there is room, in place of a part of it that was taken."""
        room = self.tokens_left
        if part is not None:
            room += part.tokens
        tokens = self._cost(number, room)
        if tokens is None:
            return
        text = self.pool.text(number)
        price = tokens + self._price_of(self._heading(text))
        if source_of(text) == "memories":
            if price > min(room, self.memory_tokens_left):
                return
            self.memory_tokens_left -= price
        elif price > room:
            return
        self._add(number, self._line(number), tokens)
        self._take_exchange(number)

    def _take_passage(self, number: int) -> None:
        """Takes of a message, from the words of the question on, as much as there is room for."""
        text = self.pool.text(number)
        position = self.pool.position(number)
        start = most_about(text.text, self.pool.question.terms)
        if position is None or start is None:
            return
        room = self.tokens_left - self._price_of(self._heading(text))
        rest = text.text[start:][: MOST_CHARACTERS_PER_TOKEN * max(room, 0)]
        beginning = "… " if start else ""

        def line(size: int) -> str:
            passage = rest
            if size < len(rest):
                passage = f"{rest[: head_end(rest[: size + 1], size)].rstrip()} …"
            return fences.item(text.speaker, f"{beginning}{passage}", f"#{position + 1} ")

        size = bisect_right(range(1, len(rest) + 1), room, key=lambda size: self.count(line(size)))
        if size:
            self._add(number, line(size), self.count(line(size)), Status.SHRUNK)

    # What goes with a text: its reply, or its question

    def _take_exchange(self, number: int) -> None:
        """Takes the reply to a question, or a sentence of it, and the short question of a reply."""
        if self._is_exchange(number):
            self._take_reply(number)
        if self._is_exchange(number - 1):
            question = self.pool.text(number - 1)
            if len(question.text) <= REPLIES.short_characters:
                line = self._line(number - 1)
                self._take_beside(number - 1, line, self.reply_tokens_left // 2)

    def _is_exchange(self, question: int) -> bool:
        """Tells whether a text is a question here, and the next one is somebody's reply to it."""
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
        """Takes all of a short reply to a question, else the sentence that answers best."""
        number = question + 1
        reply = self.pool.text(number)
        if len(reply.text) <= REPLIES.short_characters:
            self._take_beside(number, self._line(number))
            return
        sentence = _answering_sentence(self.pool.text(question).text, reply.text)
        if not sentence:
            return
        reference = ""
        if self.is_numbered:
            reference = f"#{(self.pool.position(number) or 0) + 1} "
        line = fences.item(reply.speaker, f"{sentence} …", reference)
        self._take_beside(number, line, self.reply_tokens_left, Status.SHRUNK)

    def _take_beside(
        self,
        number: int,
        line: str,
        most_tokens: int | None = None,
        status: Status = Status.INCLUDED,
    ) -> None:
        """Takes the line of a message that goes with another one, where there is room.

        Args:
            number: The message.
            line: What is quoted of it.
            most_tokens: What is kept for such lines; None if it may take all that is left.
            status: Whether the line has all of it.
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
        """Says on a user's statements that later ones replace them.

        Where there is no room for a mark, the texts go that are worth least.

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
        elif number < len(self.pool.others):  # without its mark, it would be taken for true
            self.tokens_left += self.chosen.pop(number).tokens

    def _marks_of_this_conversation(self, shown: Iterable[int]) -> tuple[dict[int, str], set[int]]:
        """Returns the marks of quotes that a later statement here replaces.

        Also returns the quotes that must stay: those of both statements of such pairs.
        """
        quoted = self._numbers_by_position()
        entries = self.conversation.entries
        is_human = self.conversation.table.human.values
        by_users = {at: entries[at] for at in {*shown, *quoted} if is_human[at]}
        statements = {at: (entry.speaker, entry.text) for at, entry in by_users.items()}

        marks: dict[int, str] = {}
        needed: set[int] = set()
        for older, newer, thing in replaced(statements):
            needed.update(quoted[at] for at in (older, newer) if at in quoted)
            if older in quoted:
                day = by_users[newer].date
                since = f" on {day}" if day else ""
                marks[quoted[older]] = f"superseded{since}: {thing}"
        return marks, needed

    def _numbers_by_position(self) -> dict[int, int]:
        """Returns the number of each message of this conversation that was taken, by position."""
        numbers: dict[int, int] = {}
        for number in self.chosen:
            position = self.pool.position(number)
            if position is not None:
                numbers[position] = number
        return numbers

    def _marks_of_other_conversations(self) -> dict[int, str]:
        """Returns the marks of quotes from other conversations that no longer hold."""
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
        """Returns what was taken in the order in which it stands, transient texts at the end.

        Texts from elsewhere come first, then messages by their dates.
        """

        def order(item: tuple[int, Fragment]) -> tuple[bool, bool, str, int]:
            number, fragment = item
            is_message = number >= len(self.pool.others)
            day = self.pool.text(number).date or "" if is_message else ""
            return fragment.transient, is_message, day, number

        return sorted(self.chosen.items(), key=order)

    def _add(self, number: int, line: str, tokens: int, status: Status = Status.INCLUDED) -> None:
        """Takes a text, or a part of it, and pays for it; the whole takes the place of a part."""
        text = self.pool.text(number)
        value = float(self.pool.ranking.keys[number])
        is_transient = self._is_transient
        fragment = self._fragment(text, line, tokens, value, status)
        self.tokens_left -= tokens + self._price_of(fragment.heading)
        part = self.chosen.get(number)
        if part is not None:
            self.tokens_left += part.tokens
        if not isinstance(text, Entry) and text.source == "conversations":
            titles = self.threads.setdefault(text.label, [])
            if text.title not in titles:
                titles.append(text.title)
        self.paid_headings.add((is_transient, fragment.heading))
        self.chosen[number] = replace(fragment, transient=is_transient)

    @property
    def _is_transient(self) -> bool:
        """Tells whether what is taken now is only for this prompt."""
        return self.tokens_left < self.transient_tokens

    def _fragment(
        self, text: Other | Entry, line: str, tokens: int, value: float, status: Status
    ) -> Fragment:
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
        )

    def _line(self, number: int) -> str:
        """Returns the line that quotes a text whole."""
        position = self.pool.position(number)
        if position is None:
            other = self.pool.others[number]
            return fences.item(other.speaker, other.text)
        return self.conversation.quoted(position, numbered=self.is_numbered)

    def _cost(self, number: int, most_tokens: int) -> int | None:
        """Returns the tokens of a text's line; None where they are more than `most_tokens`.

        Then they need not be counted.
        """
        position = self.pool.position(number)
        if position is not None:
            return self.conversation.count_quote(position, most_tokens, numbered=self.is_numbered)
        if len(self.pool.others[number].text) > MOST_CHARACTERS_PER_TOKEN * most_tokens:
            return None
        return self.count(self._line(number))

    def _price_of(self, heading: str) -> int:
        """Returns what a heading costs above a text that is taken now: nothing if it is paid."""
        if (self._is_transient, heading) in self.paid_headings:
            return 0
        return self.count(heading)

    def _heading(self, text: Other | Entry) -> str:
        """Returns the line that texts of one place or messages of one day stand under."""
        if isinstance(text, Entry):
            if text.date:
                return f"[{text.date}]\n"
            return HERE if self.is_mixed else ""
        if text.source == "memories":
            return "[known about the user]\n"
        if text.source == "documents":
            day = f", {text.date}" if text.date else ""
            return f"[document: {_title(text.title)}{day}]\n"

        titles = self.threads.get(text.label, [])
        number = titles.index(text.title) if text.title in titles else len(titles)
        which = f" ({number + 1})" if number else ""
        return f"[{_heading_of_other_conversation(text)}{which}]\n"


def _heading_of_other_conversation(text: Other) -> str:
    """Returns the heading of another conversation's messages: the day, and its title if any."""
    day = f"{text.date}, " if text.date else ""
    title = _title(text.label)
    if not title:
        return f"{day}in another conversation"
    return f"{day}in another conversation: {title}"


def _title(text: str) -> str:
    """Returns a title as a heading can have it: one line, not too long, without brackets."""
    return fences.as_data(one_line(text)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING))


def _answering_sentence(question: str, reply: str) -> str:
    """Returns one of the first sentences of a reply, empty where none will do.

    It is a short one with most words of the question or, if none is short, the shortest one.
    """
    usable = [sentence for sentence in _first_sentences(reply) if _is_usable(sentence)]
    short = [sentence for sentence in usable if len(sentence) <= REPLIES.short_characters]
    if not short:
        return min(usable, key=len, default="")
    words = question.lower().split()
    long_words = {word for word in words if len(word) >= REPLIES.long_word_letters}
    return max(short, key=lambda sentence: len(long_words.intersection(sentence.lower().split())))


def _first_sentences(reply: str) -> list[str]:
    """Returns the whole sentences at the beginning of a reply."""
    looked_through = REPLIES.looked_through_characters
    beginning = sentences(reply[:looked_through])
    if len(reply) > looked_through:
        return beginning[:-1]  # the last one was cut
    return beginning


def _is_usable(sentence: str) -> bool:
    """Tells whether a sentence says something by itself, and is not too long."""
    if _HEADING.match(sentence):
        return False
    return REPLIES.least_characters < len(sentence) <= REPLIES.most_characters


def source_of(text: Other | Entry) -> str:
    """Returns where a text is from: `messages` of this conversation, or elsewhere."""
    return "messages" if isinstance(text, Entry) else text.source
