"""Groups of messages as layers count and explain them."""

from collections.abc import Iterable
from itertools import chain

from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.messages import Group, plain_text
from langchain_ctxbudget.report import JOINED, ReportItem, preview
from langchain_ctxbudget.tokens import TokenCounter


def group_tokens(group: Group, counter: TokenCounter) -> int:
    """Returns the cost of a group in a prompt."""
    return sum(map(counter.count_message, group.messages))


def positions_of(groups: Iterable[Group]) -> set[int]:
    """Returns the positions of the messages of groups."""
    return {*chain.from_iterable(group.positions for group in groups)}


def group_item(group: Group, counter: TokenCounter, status: Status, reason: Reason) -> ReportItem:
    """Returns what a report says of a group; it is one item."""
    return ReportItem(
        id=JOINED.join(message.id or message.type for message in group.messages),
        tokens=group_tokens(group, counter),
        status=status,
        reason=reason,
        preview=preview(plain_text(group.messages[0])),
    )
