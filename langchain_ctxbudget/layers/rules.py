"""The standing rules in the layer of preferences: which a prompt says, and as which lines.

A prompt says each rule in one of three places. If it shows the message of the rule word for word,
that is enough. If that message was left out of the middle of the prompt, a line in its place says
the rule. All other rules stand first in the stable zone, as quotations with their days. These
quotations stay the same between two rebuilds, unless a rule is added or lifted by hand: what the
user has said about rules since then stands in the prompt anyway.

A prompt may still say a rule that no longer holds: its message stands there, or its line does until
the next rebuild. Taking either out would break the cache, so the background of the next turn says
once that the rule no longer holds. A rule that was laid down in another conversation since the last
rebuild is told in the same way: once by a background, and by the stable zone from the next rebuild
on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.history import HistoryView
from langchain_ctxbudget.knowledge import (
    RULE_POLICY,
    StandingRule,
    StandingRules,
    says_the_same_rule,
)
from langchain_ctxbudget.layers.base import View
from langchain_ctxbudget.messages import Count, Group, fences, one_line, plain_text
from langchain_ctxbudget.retrieval import Other

HEADING = (
    "## Standing rules\n"
    "# They hold until the user takes them back; where two contradict, the newer one holds.\n"
)
RULES_SECTION = "## Standing rules of the user, to be followed\n"
"""The line above how rules have changed."""
FIRST_VALUE = 1_000.0
"""The value of the first line, above that of any preference; each further line has 1 less."""


@dataclass(frozen=True, slots=True)
class Change:
    """A way in which the rules in force differ from what a prompt states of them."""

    words: str
    """What stands in front of the rule."""
    mark: str
    """What the id of the line has in front of that of the rule."""


ENDED = Change("- No longer holds, as the user has taken it back: ", "lifted ")
ADDED = Change(
    "- Also follow this rule, which the user has laid down in another conversation: ", "added "
)


@dataclass(frozen=True, slots=True)
class ShownRules:
    """The rules that a prompt says in its stable zone."""

    fragments: tuple[Fragment, ...] = ()
    left_out: tuple[Fragment, ...] = ()
    """Those that take more than the share of the budget that rules have."""

    no_longer: tuple[Fragment, ...] = ()
    """Lines that tell which rules no longer hold, although a message states them."""

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the rules that it says."""
        return frozenset(line.id for line in self.fragments)

    @property
    def text(self) -> str:
        """The rules with the line above them; empty where none are shown."""
        lines = "".join(part.text for part in (*self.fragments, *self.no_longer))
        return f"{HEADING}{lines}" if lines else ""

    @property
    def warning(self) -> str:
        """What a report says if some are left out; else empty."""
        if not self.left_out:
            return ""
        share = f"{RULE_POLICY.most_share:.0%} of the budget"
        return (
            f"standing rules that are not in the prompt: {len(self.left_out)}, as all together "
            f"take more than {share}: lift some (`chat.lift_rule`), or raise max_context_tokens"
        )


def shown_rules(view: View) -> ShownRules:
    """Returns the rules that the stable zone says.

    Those of the application come first, then the user's in order of time. Where not all fit their
    share of the budget, see `_by_precedence`.
    """
    groups = view.history.groups
    missing = [
        rule
        for rule in _in_force(view)
        if not _is_said(rule, groups) and not _is_in_left_out_middle(rule, view)
    ]
    return _fitting(missing, view.counter.count_text, view.limit_tokens)


def rules_of_window(
    rules: StandingRules, history: HistoryView, count: Count, limit_tokens: int
) -> ShownRules:
    """Returns the rules that stand before a part of a conversation without a system message.

    Args:
        rules: The rules of the conversation.
        history: The part of it.
        count: Counts tokens.
        limit_tokens: The most tokens of all.
    """
    in_force = list(rules.all_in_force)
    if history.record is not None:
        # What was said behind the cut stands in the part itself.
        until = max(history.record.begun, history.record.position)
        in_force = [rule for rule in rules.in_force(until) if rule.id not in rules.taken_back_here]
    missing = [rule for rule in in_force if not _is_said(rule, history.groups)]
    still_said = [rule for rule in rules.lifted_beside if _is_said(rule, history.groups)]
    return replace(
        _fitting(missing, count, limit_tokens),
        no_longer=tuple(_notice(ENDED, rule, count) for rule in still_said),
    )


def changes_of_rules(view: View) -> tuple[Fragment, ...]:
    """Returns lines that tell how the rules in force differ from what the prompt states of them.

    Rules that no longer hold come first, then those from elsewhere that it does not say yet. What
    an earlier background of the prompt tells is not told again.
    """
    count = view.counter.count_text
    shown = shown_rules(view)
    told = {part.id: part for part in view.earlier_fragments}
    told_rules = _told_rules(told)
    ended = _ended_rules(view, shown)
    added = _added_rules(view, shown, ended, told_rules)
    notices = [_notice(ENDED, rule, count) for rule in ended]
    notices += [
        _notice_of_line(ENDED, told_rule.id, told_rule.line, count)
        for told_rule in _no_longer_in_force(told_rules, view.known.rules)
    ]
    notices += [_notice(ADDED, rule, count) for rule in added]
    by_id = {notice.id: notice for notice in notices}
    return tuple(notice for notice in by_id.values() if notice.id not in told)


def _ended_rules(view: View, shown: ShownRules) -> list[StandingRule]:
    """Returns the rules that the prompt states, and that no longer hold."""
    rules = view.known.rules
    ended = [rule for rule in rules.lifted_beside if _is_stated(rule, view)]
    for lifting in rules.liftings:
        rule = lifting.rule
        is_there = rule.id in shown.ids or _is_in_middle_note(rule, view)
        if is_there and not rules.is_in_force_again(rule):
            ended.append(rule)
    return ended


def _added_rules(
    view: View,
    shown: ShownRules,
    ended: Iterable[StandingRule],
    told_rules: Iterable["_ToldRule"],
) -> list[StandingRule]:
    """Returns the rules from elsewhere and by hand that the prompt does not say yet.

    Args:
        view: What the layer may look at.
        shown: The rules of the stable zone.
        ended: The rules that no longer hold.
        told_rules: The rules from elsewhere that earlier backgrounds tell.
    """
    holding_ids = shown.ids.difference(rule.id for rule in ended)
    words = [rule.text for rule in _in_force(view) if rule.id in holding_ids]
    words += [told_rule.words for told_rule in told_rules]
    known_ids = shown.ids.union(line.id for line in shown.left_out)
    return [
        rule
        for rule in view.known.rules.all_in_force
        if rule.position is None and rule.id not in known_ids and not _is_said_by_any(words, rule)
    ]


def _no_longer_in_force(
    told_rules: Iterable["_ToldRule"], rules: StandingRules
) -> Iterator["_ToldRule"]:
    """Yields the told rules that no rule in force says, too."""
    for told_rule in told_rules:
        if not any(says_the_same_rule(rule, told_rule.words) for rule in rules.all_in_force):
            yield told_rule


@dataclass(frozen=True, slots=True)
class _ToldRule:
    """A rule from elsewhere that an earlier background of the prompt tells."""

    id: str
    line: str
    """The rule as a quotation with its day."""

    @property
    def words(self) -> str:
        """The user's own words."""
        return self.line[1 : self.line.rindex('"')]


def _told_rules(told: Mapping[str, Fragment]) -> list[_ToldRule]:
    """Returns the rules from elsewhere that backgrounds tell, and of which none tells the end."""
    rules: list[_ToldRule] = []
    for part in told.values():
        rule_id = part.id.removeprefix(ADDED.mark)
        if part.id.startswith(ADDED.mark) and ENDED.mark + rule_id not in told:
            rules.append(_ToldRule(rule_id, part.text.removeprefix(ADDED.words)))
    return rules


def _is_said_by_any(words: Iterable[str], rule: StandingRule) -> bool:
    """Tells whether one of the rules that a prompt states says the same as a rule."""
    return any(says_the_same_rule(rule, text) for text in words)


def _is_stated(rule: StandingRule, view: View) -> bool:
    """Tells whether a prompt states a rule before its turn, and the turn does not state it anew."""
    if any(one_line(rule.text) in one_line(plain_text(message)) for message in view.turn.given):
        return False
    return _is_said(rule, view.history.groups) or _is_in_middle_note(rule, view)


def _fitting(missing: Sequence[StandingRule], count: Count, limit_tokens: int) -> ShownRules:
    """Returns the lines of rules: those that fit the rules' share of a budget, and the others."""
    if not missing:
        return ShownRules()
    lines = {rule.id: _fragment(rule, place, count) for place, rule in enumerate(missing)}
    tokens_left = int(limit_tokens * RULE_POLICY.most_share) - count(HEADING)
    kept: set[str] = set()
    for rule in _by_precedence(missing):
        tokens = lines[rule.id].tokens
        if tokens <= tokens_left:
            tokens_left -= tokens
            kept.add(rule.id)
    return ShownRules(
        fragments=tuple(line for line in lines.values() if line.id in kept),
        left_out=tuple(line for line in lines.values() if line.id not in kept),
    )


def _by_precedence(rules: Sequence[StandingRule]) -> list[StandingRule]:
    """Returns rules in the order in which they get room.

    The application's are first, in their order, then those of which the reader is sure, then the
    others, the newest first.
    """
    given = [rule for rule in rules if rule.is_given]
    newest_first = [rule for rule in reversed(rules) if not rule.is_given]
    return [*given, *sorted(newest_first, key=lambda rule: rule.is_doubtful)]


def rules_tokens(view: View) -> int:
    """Returns the most tokens that rules take in the stable zone, with the line above them."""
    return tokens_of_rules(_in_force(view), view.counter.count_text, view.limit_tokens)


def tokens_of_rules(rules: Iterable[StandingRule], count: Count, limit_tokens: int) -> int:
    """Returns the most tokens that rules take within a budget, with the line above them."""
    tokens = sum(_fragment(rule, 0, count).tokens for rule in rules)
    if not tokens:
        return 0
    return min(tokens + count(HEADING), int(limit_tokens * RULE_POLICY.most_share))


@dataclass(frozen=True, slots=True)
class SaidByRules:
    """Messages that say nothing but rules which the stable zone shows: these are not quoted."""

    positions: frozenset[int] = frozenset()
    """Those of the conversation, by position."""
    elsewhere: frozenset[tuple[str, str]] = frozenset()
    """Those of other conversations: the id of each one's conversation, and its words."""

    def has(self, text: Other) -> bool:
        """Tells whether a text from elsewhere is one of them."""
        conversations = {conversation for conversation, _ in self.elsewhere}
        if text.source != "conversations" or text.title not in conversations:
            return False
        return (text.title, one_line(text.text)) in self.elsewhere


def said_by_rules(view: View) -> SaidByRules:
    """Returns the messages that say nothing but rules which the stable zone shows."""
    shown_ids = shown_rules(view).ids
    rules = [
        rule
        for rule in view.known.rules.all_in_force
        if rule.id in shown_ids or _is_in_middle_note(rule, view)
    ]
    entries = view.conversation.entries
    words = _words_by_position(rules)
    return SaidByRules(
        positions=frozenset(
            position for position, texts in words.items() if _is_all(entries[position].text, texts)
        ),
        elsewhere=frozenset(
            (rule.conversation_id, one_line(rule.text))
            for rule in rules
            if rule.position is None and rule.message_id
        ),
    )


def _words_by_position(rules: Iterable[StandingRule]) -> dict[int, list[str]]:
    """Returns the words of the rules that each message of the conversation states."""
    words: dict[int, list[str]] = {}
    for rule in rules:
        if rule.position is not None:
            words.setdefault(rule.position, []).append(rule.text)
    return words


def _is_all(text: str, parts: Sequence[str]) -> bool:
    """Tells whether a text has no letter or figure besides its parts."""
    rest = one_line(text)
    for part in parts:
        rest = rest.replace(part, "")
    return not any(map(str.isalnum, rest))


def says_rules_since(view: View, position: int) -> bool:
    """Tells whether the prompt says what was laid down or taken back from a position on."""
    said = view.known.rules.said_between(position, len(view.conversation.entries))
    return all(
        _is_said(sentence, view.history.groups) or _is_in_middle_note(sentence, view)
        for sentence in said
    )


def _is_in_middle_note(sentence: StandingRule, view: View) -> bool:
    """Tells whether a sentence about rules stands where the middle of the prompt is left out."""
    cut = view.history.record
    return cut is not None and rule_line(sentence) in cut.rules_within


def _is_in_left_out_middle(rule: StandingRule, view: View) -> bool:
    """Tells whether the message of a rule is left out of the middle of the prompt.

    The line that stands there says what of such rules still holds. One that it does not say was
    replaced or taken back by what stands behind it.
    """
    cut = view.history.record
    if cut is None or rule.position is None:
        return False
    first, end = cut.left_out
    return first <= rule.position < end


def _in_force(view: View) -> list[StandingRule]:
    """Returns the rules in force when the prompt was last rebuilt, which may be now."""
    rules = view.known.rules
    cut = view.history.record
    if not view.continuation.mode.extends_last or cut is None:
        return list(rules.all_in_force)
    snapshot = view.conversation.snapshot
    return rules.in_force(
        until=cut.begun, shown_elsewhere=None if snapshot is None else snapshot.rules
    )


def _is_said(rule: StandingRule, groups: Iterable[Group]) -> bool:
    """Tells whether a message that stands in a prompt states a rule word for word."""
    position = rule.position
    if position is None:
        return False
    for group in groups:
        if position in group.positions and len(group.positions) == len(group.messages):
            message = group.messages[group.positions.index(position)]
            return one_line(rule.text) in one_line(plain_text(message))
    return False


def rule_line(rule: StandingRule) -> str:
    """Returns the line of a rule: one of a user is a quotation with its day."""
    text = fences.as_item(one_line(rule.text))
    if rule.is_given:
        return f"- {text}\n"
    day = f" ({rule.day})" if rule.day else ""
    return f'- "{text}"{day}\n'


def _notice(change: Change, rule: StandingRule, count: Count) -> Fragment:
    """Returns the line that tells that a rule no longer holds, or that it does from now on."""
    return _notice_of_line(change, rule.id, rule_line(rule).removeprefix("- "), count)


def _notice_of_line(change: Change, rule_id: str, rule: str, count: Count) -> Fragment:
    """Returns the same line for a rule of which only the id and the quotation are known."""
    line = change.words + rule
    return Fragment(
        layer=Layer.RETRIEVAL,
        id=change.mark + rule_id,
        text=line,
        tokens=count(line),
        reason=Reason.STANDING_RULE,
        value=FIRST_VALUE,
        section=RULES_SECTION,
    )


def _fragment(rule: StandingRule, place: int, count: Count) -> Fragment:
    """Returns the line of a rule as it stands in the stable zone."""
    line = rule_line(rule)
    return Fragment(
        layer=Layer.PREFERENCES,
        id=rule.id,
        text=line,
        tokens=count(line),
        reason=Reason.STANDING_RULE,
        status=Status.INCLUDED,
        heading=HEADING,
        value=FIRST_VALUE - place,
    )
