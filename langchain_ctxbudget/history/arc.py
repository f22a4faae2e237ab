"""The arc of a conversation: its story, what was decided, what is open, what it is about now.

It has whole sentences that somebody has said and that stand by themselves; where there are none, it
has no line. Decisions and open questions come from a model's digests alone: read by eye, without a
model one decision of four was right, and open questions were not found.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from langchain_ctxbudget.history import extractive
from langchain_ctxbudget.history.extractive import PATTERNS, Digest, Kind, Line, Sentence
from langchain_ctxbudget.messages import (
    Count,
    begins_in_the_middle,
    ends_as_statement,
    fences,
    one_line,
    units,
)
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

NARRATIVE = "# So far\n"
DECISIONS = "# Decisions\n"
OPEN = "# Open questions\n"
FOCUS = "# Current focus\n"
ARTIFACTS = "# Artifacts\n"
SECTIONS = {
    NARRATIVE: 60.0,
    DECISIONS: 70.0,
    OPEN: 82.0,
    FOCUS: 81.0,
    ARTIFACTS: 80.0,
}
"""The headings in the order in which they stand, and the values of their lines."""
NO_MESSAGES = (0, 0)
"""The span of a line that sums up no message: of names, and of what the user wishes for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcPolicy:
    """How many lines an arc has, what they are worth, and which sentences are about one thing."""

    newest_value: float = 100.0
    """The value of the newest line of the story."""
    most_worth: float = 10.0
    """The most by which the values of lines of one section differ."""
    windowed_story_lines: int = 1
    compacted_story_lines: int = 3
    """Lines of the story; where several levels are compacted, every span has one."""
    most_listed: int = 5
    """Decisions, and open questions, of a windowed history; others have all that fit."""
    most_names: int = 5
    """Names of files and functions."""
    focus_messages: int = 10
    """The newest messages before the cut, among which the focus is."""
    most_wishes: int = 5
    """Of these, the messages of the user that are looked at, the newest ones."""
    fewest_terms: int = 3
    """Terms of a person's line of the story at least."""
    fewest_shared: int = 2
    """Terms that two sentences about one thing have in common at least: one is chance."""
    shared_share: float = 0.55
    """Two sentences are about one thing if this share of the matter of the older one is common to
    both: a question and its answer, two decisions."""
    fewest_tokens: int = 100
    """In less room an arc has only what a model wrote."""


ARC_POLICY = ArcPolicy()


def answers(question: str, text: str) -> bool:
    """Returns True if a sentence of a later text answers a question.

    It does if it has most of the question's terms and others, and asks nothing itself.
    """
    matter = extractive.matter_of(question)
    if len(matter) < ARC_POLICY.fewest_shared:
        return False
    return any(_answers(matter, unit) for unit in units(text))


def _answers(matter: frozenset[str], sentence: str) -> bool:
    """Returns True if a sentence is about a matter, and says more."""
    if extractive.is_question(sentence):
        return False
    terms_of_sentence = extractive.matter_of(sentence)
    shared = matter & terms_of_sentence
    return _is_most_of(len(matter), len(shared)) and len(terms_of_sentence) > len(shared)


def _is_most_of(term_count: int, shared_count: int) -> bool:
    """Returns True if two sentences share enough of the terms of one to be about one thing."""
    least = max(ARC_POLICY.fewest_shared, ARC_POLICY.shared_share * term_count)
    return shared_count >= least


def last_by_model(digests: Sequence[Digest]) -> Digest | None:
    """Returns the newest digest that a model wrote; None where there is none."""
    by_model = (digest for digest in reversed(digests) if digest.made_by != EXTRACTION)
    return next(by_model, None)


def still_open(digest: Digest, later: Iterable[Line]) -> tuple[str, ...]:
    """Returns the questions of a model's digest that no later message answers."""
    text = "\n".join(line.text for line in later)
    return tuple(question for question in digest.open_questions if not answers(question, text))


def arc_of(
    digests: Sequence[Digest],
    strategy: str,
    *,
    open_questions: Sequence[str],
    focus: Sequence[Line],
    count: Count,
    budget_tokens: int,
) -> list[SummaryLine]:
    """Returns the arc's lines within a budget.

    Args:
        digests: The digests of everything before the cut, oldest first.
        strategy: The strategy of the history.
        open_questions: What the last digest of a model left open, and still is.
        focus: The newest messages before the cut.
        count: Counts the tokens of a text.
        budget_tokens: The room of the arc.
    """
    lines: list[SummaryLine] = []
    if digests:
        most = ARC_POLICY.most_listed if strategy == "windowed" else None
        questions = _open_lines(last_by_model(digests), open_questions)
        lines = [*_story(digests, strategy), *questions[:most], *_decisions(digests)[:most]]
        if strategy != "windowed":
            lines += _now(digests, focus)
    if budget_tokens < ARC_POLICY.fewest_tokens:
        # A small room is of more use to quotes, which are chosen for the question.
        lines = [line for line in lines if line.made_by != EXTRACTION]

    chosen = _fitting(lines, count, budget_tokens)
    order = list(SECTIONS)
    chosen.sort(key=lambda line: (order.index(line.heading), line.position))
    return chosen


def _fitting(lines: Iterable[SummaryLine], count: Count, budget_tokens: int) -> list[SummaryLine]:
    """Returns the lines that fit a budget with their headings, each text once, by their values."""
    tokens_left = budget_tokens
    shown: set[str] = set()
    chosen: list[SummaryLine] = []
    for line in sorted(lines, key=lambda line: -line.value):
        cost = count(line.text)
        if line.heading not in shown:
            cost += count(line.heading)
        if cost <= tokens_left and line.text not in shown:
            tokens_left -= cost
            shown |= {line.heading, line.text}
            chosen.append(line)
    return chosen


def _line(
    section: str,
    text: str,
    *,
    position: int,
    made_by: str = EXTRACTION,
    span: tuple[int, int] = NO_MESSAGES,
    worth: float = 0,
) -> SummaryLine:
    """Returns a line of a section.

    Args:
        section: The heading of the section.
        text: The words of the line.
        position: The message that says them.
        made_by: Who wrote them: `extraction`, or the name of a model.
        span: The first and the end position of the messages of which it tells.
        worth: Ranks it among the other lines of its section, 0 to 1.
    """
    first, end = span
    return SummaryLine(
        position=position,
        heading=section,
        text=f"- {fences.as_data(one_line(text))}\n",
        first=first,
        end=end,
        made_by=made_by,
        value=SECTIONS[section] + ARC_POLICY.most_worth * worth,
    )


def _stands_alone(sentence: Sentence) -> bool:
    """Returns True if a sentence is whole, no tool's, and needs none before it."""
    text = sentence.text.strip()
    if sentence.speaker.startswith("tool") or not PATTERNS.begins.match(text):
        return False
    if text[-1] in "…:,;":
        return False
    return extractive.is_question(text) or not begins_in_the_middle(text)


def _says_something(sentence: Sentence) -> bool:
    """Returns True if a sentence stands alone, has some matter, and belongs to no other section."""
    is_plain = sentence.kind in (Kind.PLAIN, Kind.STATEMENT)
    return is_plain and len(sentence.matter) > 1 and _stands_alone(sentence)


def _story(digests: Sequence[Digest], strategy: str) -> list[SummaryLine]:
    """Returns the story, a sentence for each part of the conversation that has one."""
    # About as many digests in each part; none is empty.
    number = min(_story_parts(strategy, len(digests)), len(digests))
    lines: list[SummaryLine] = []
    for start, end in pairwise(len(digests) * i // number for i in range(number + 1)):
        part = digests[start:end]
        sentence = _story_sentence(part)
        if sentence is not None:
            digest = next(digest for digest in part if sentence in digest.sentences)
            lines.append(
                _line(
                    NARRATIVE,
                    sentence.attributed,
                    position=sentence.position,
                    made_by=digest.made_by,
                    span=extractive.told_of(sentence, digest),
                    worth=start / len(digests),
                )
            )
    if lines:
        lines[-1] = lines[-1].model_copy(update={"value": ARC_POLICY.newest_value})
    return lines


def _story_parts(strategy: str, digest_count: int) -> int:
    """Returns how many parts of a conversation have a line in the story."""
    if strategy == "windowed":
        return ARC_POLICY.windowed_story_lines
    if strategy == "compacted":
        return ARC_POLICY.compacted_story_lines
    return digest_count


def _story_sentence(digests: Iterable[Digest]) -> Sentence | None:
    """Returns the sentence that tells a part of the story best; None if none tells it.

    It is the last overview that a model wrote, else the sentence with most of the part's matter.
    """
    sentences = list(chain.from_iterable(digest.sentences for digest in digests))
    plain = list(filter(_is_plain_statement, sentences))
    by_model = [sentence for sentence in plain if not sentence.speaker]
    overviews = [sentence for sentence in by_model if not sentence.order]
    if overviews:
        return overviews[-1]

    times_of = Counter(chain.from_iterable(sentence.matter for sentence in sentences))
    by_people = [sentence for sentence in plain if _is_of_the_story(sentence, times_of)]

    def value_of(sentence: Sentence) -> float:
        mentions = _mentions_elsewhere(sentence, times_of)
        return float(mentions * sentence.score / len(sentence.text) ** 0.5)

    return max([*by_model, *by_people], key=value_of, default=None)


def _is_plain_statement(sentence: Sentence) -> bool:
    """Returns True if a sentence says something and does not ask."""
    return _says_something(sentence) and ends_as_statement(sentence.text)


def _mentions_elsewhere(sentence: Sentence, times_of: Mapping[str, int]) -> int:
    """Returns how often other sentences mention the matter of one."""
    return sum(times_of[term] - 1 for term in sentence.matter)


def _is_of_the_story(sentence: Sentence, times_of: Mapping[str, int]) -> bool:
    """Returns True if a sentence is a person's and about what other sentences mention, too."""
    if sentence.speaker in ("", "assistant"):
        return False
    number = len(sentence.matter)
    return (
        number >= ARC_POLICY.fewest_terms and _mentions_elsewhere(sentence, times_of) >= number / 2
    )


def _now(digests: Sequence[Digest], focus: Sequence[Line]) -> list[SummaryLine]:
    """Returns what the conversation is about now: the user's last wish, and the main names."""
    lines: list[SummaryLine] = []
    wish = _newest_wish(focus)
    if wish is not None:
        lines.append(_line(FOCUS, wish.attributed, position=wish.position))

    names = extractive.merged_artifacts(reversed(digests))
    names_of_code = [name for name in names if PATTERNS.named_as_code.search(name)]
    if names_of_code:
        last = digests[-1]
        text = ", ".join(names_of_code[: ARC_POLICY.most_names])
        lines.append(_line(ARTIFACTS, text, position=last.end - 1, made_by=last.made_by))
    return lines


def _newest_wish(focus: Iterable[Line]) -> Sentence | None:
    """Returns the most important sentence of the user's last messages that stands by itself."""
    of_user = [line for line in focus if line.own_words]
    wishes = filter(_says_something, extractive.keep_sentences(of_user[-ARC_POLICY.most_wishes :]))
    return max(wishes, key=lambda wish: (wish.score, wish.position), default=None)


class _Decision(NamedTuple):
    """A decision, and the digest in which it stands."""

    sentence: Sentence
    digest: Digest


def _decisions(digests: Sequence[Digest]) -> list[SummaryLine]:
    """Returns the decisions, the newest first; of decisions on one matter only the newest."""
    newer: list[Sentence] = []
    lines: list[SummaryLine] = []
    for sentence, digest in _newest_decisions(digests):
        if not _stands_alone(sentence) or any(_supersedes(other, sentence) for other in newer):
            continue
        newer.append(sentence)
        lines.append(
            _line(
                DECISIONS,
                sentence.attributed,
                position=sentence.position,
                made_by=digest.made_by,
                span=extractive.told_of(sentence, digest),
                worth=sentence.position / digests[-1].end,
            )
        )
    return lines


def _newest_decisions(digests: Iterable[Digest]) -> list[_Decision]:
    """Returns the decisions in digests, the newest first."""
    decisions: list[_Decision] = []
    for digest in digests:
        of_kind = (s for s in digest.sentences if s.kind is Kind.DECISION)
        decisions.extend(_Decision(sentence, digest) for sentence in of_kind)
    decisions.sort(key=_place_of, reverse=True)
    return decisions


def _place_of(decision: _Decision) -> tuple[int, int]:
    """Returns what puts decisions in order of time."""
    return decision.sentence.position, decision.sentence.order


def _supersedes(newer: Sentence, older: Sentence) -> bool:
    """Returns True if two decisions are on one matter."""
    newer_matter = _matter_without_numbers(newer)
    older_matter = _matter_without_numbers(older)
    if newer_matter == older_matter:
        return True
    return _is_most_of(len(older_matter), len(newer_matter & older_matter))


def _matter_without_numbers(decision: Sentence) -> set[str]:
    # Numbers are what a new decision changes.
    return {term for term in decision.matter if not term[0].isdigit()}


def _open_lines(digest: Digest | None, questions: Sequence[str]) -> list[SummaryLine]:
    """Returns the lines of what a model's digest leaves open, the last question first."""
    if digest is None:
        return []
    lines: list[SummaryLine] = []
    for rank, question in enumerate(questions, 1):
        lines.append(
            _line(
                OPEN,
                f"[OPEN] {question}",
                position=digest.end - 1,
                made_by=digest.made_by,
                span=(digest.first, digest.end),
                worth=rank / len(questions),
            )
        )
    return lines[::-1]
