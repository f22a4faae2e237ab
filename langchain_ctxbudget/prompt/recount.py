"""The check behind "it fits": the messages are counted once more, apart from what made them.

A prompt is put together with costs that were counted earlier: columns of the conversation, clips,
the turn as it was read last, what the messages of the history cost. The recount uses none of these,
only the counter and the messages as they go out. Where it finds another total than the prompt was
made with, whoever makes the prompt makes it again `without_caches`; a difference that remains is a
`TokenCountError`, never a prompt that is over its limit.
"""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import TokenCountError
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.tokens import CalibratedCounter, TokenCounter

MADE_AGAIN = "made again without costs that were counted before: {problem}"
"""The line of the report where the first try was wrong."""


def require_recount(
    plan: Plan, messages: Sequence[BaseMessage], marked: Sequence[BaseMessage], planned: int
) -> None:
    """Raises an error unless a prompt counts what it was planned with, within its limit.

    Args:
        plan: the finished plan.
        messages: the messages as they were counted.
        marked: what is sent: with marks for a provider's cache, or without.
        planned: the tokens that the prompt was made with, tools and response format included.

    Raises:
        TokenCountError: the count differs, or is over the limit.
    """
    # A mark turns a text into a content block with this text, which costs the same by this
    # package's counters, as a block does whose mark is taken away. How a counter of the
    # application's own takes that is its own matter.
    sent = messages if _has_own_rule_for_messages(plan.counter) else marked
    counted = _sum_of_messages(plan.counter, sent) + sum(plan.extras.values())
    limit = plan.limit_tokens - plan.allocated.reserve_tokens
    if counted != planned or counted > limit:
        raise TokenCountError.of(planned, counted, limit, plan.counter.name)


def without_caches(plan: Plan) -> Plan:
    """Returns a plan that has just begun, for which everything is counted now.

    Messages are counted on copies as they are sent.
    """
    conversation = plan.conversation.counted_anew()
    counted = replace(plan, conversation=conversation, uses_known_costs=False)
    return counted.with_background(plan.background)


def own_total(counter: TokenCounter, messages: Sequence[BaseMessage]) -> str:
    """Returns a line for the report where a counter counts whole lists otherwise than messages.

    Empty for counters that have no rule of their own for lists.
    """
    usual_rules = (TokenCounter.count_messages, CalibratedCounter.count_messages)
    if type(counter).count_messages in usual_rules:
        return ""
    whole = counter.count_messages(messages)
    parts = _sum_of_messages(counter, messages)
    if whole == parts:
        return ""
    return (
        f"{type(counter).__name__}.count_messages counts {whole:,} tokens for the messages, which "
        f"count {parts:,} one by one (count_message, and count_messages([]) once); the prompt was "
        "made with the latter"
    )


def _sum_of_messages(counter: TokenCounter, messages: Sequence[BaseMessage]) -> int:
    """Returns the tokens of messages as prompts are made with them: of each, and of an empty list.

    That is the rule of `TokenCounter.count_messages`. A counter of the application's own may have
    another one, which need not add up; `own_total` tells of that, and nothing is refused.
    """
    return counter.count_messages([]) + sum(map(counter.count_message, messages))


def _has_own_rule_for_messages(counter: TokenCounter) -> bool:
    inner = counter.inner if isinstance(counter, CalibratedCounter) else counter
    return type(inner).count_message is not TokenCounter.count_message
