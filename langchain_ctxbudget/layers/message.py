"""The layer of the current turn: the user's message, and in an agent's loop calls and results."""

from dataclasses import replace

from langchain_ctxbudget.budget import Layer, Reason, Situation, Status
from langchain_ctxbudget.layers.base import Place, PromptLayer, Sent, TurnView, View
from langchain_ctxbudget.layers.groups import group_item, positions_of
from langchain_ctxbudget.messages import plain_text
from langchain_ctxbudget.report import ReportItem, preview


class MessageLayer(PromptLayer):
    """The current turn."""

    name = Layer.MESSAGE
    title = Layer.MESSAGE.full_name
    place = Place.TURN
    is_required = True

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with what the turn takes, and with the work state as overhead."""
        turn = view.turn
        return replace(
            situation,
            message_tokens=turn.tokens + turn.free_tokens,
            overhead_tokens=situation.overhead_tokens + turn.work_tokens,
        )

    def granted_tokens(self, tokens: int, turn: TurnView) -> int:
        """Returns the turn's grant without its work state, which a report counts as arc."""
        return tokens - turn.own_work_tokens

    def explained_messages(self, view: View, sent: Sent) -> list[ReportItem]:
        """Returns the groups of the turn: sent, left out, or impossible to send."""
        turn = view.turn
        counter = view.counter
        items: list[ReportItem] = []
        for group in sent.groups:
            if group.start in turn.clipped:
                items.append(group_item(group, counter, Status.SHRUNK, Reason.CLIPPED))
            else:
                items.append(group_item(group, counter, Status.INCLUDED, Reason.REQUIRED))
        items += [
            group_item(group, counter, Status.OMITTED, Reason.NO_ROOM) for group in turn.left_out
        ]
        end = len(view.conversation.entries)
        known = positions_of((*turn.groups, *turn.left_out))
        for position, message in enumerate(turn.given):
            if position not in known:
                is_compacted = view.conversation.is_before_compaction(end + position)
                item = ReportItem(
                    id=message.id or message.type,
                    tokens=counter.count_message(message),
                    status=Status.OMITTED,
                    reason=Reason.COMPACTED if is_compacted else Reason.REPAIRED,
                    preview=preview(plain_text(message)),
                )
                items.append(item)
        return items
