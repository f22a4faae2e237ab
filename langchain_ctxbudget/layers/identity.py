"""The layer of the system prompt, which is always sent word for word."""

from dataclasses import replace

from langchain_ctxbudget.budget import Layer, Reason, Situation, Status
from langchain_ctxbudget.layers.base import Place, PromptLayer, Sent, View
from langchain_ctxbudget.report import ReportItem, preview

SYSTEM_PROMPT = "system prompt"
"""The id of the item that the system prompt is."""


class IdentityLayer(PromptLayer):
    """The system prompt."""

    name = Layer.IDENTITY
    title = Layer.IDENTITY.full_name
    place = Place.SYSTEM_PROMPT
    is_required = True

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with what the system prompt costs."""
        return replace(situation, identity_tokens=_tokens(view))

    def explained_messages(self, view: View, _sent: Sent) -> list[ReportItem]:
        """Returns the system prompt as an item, if there is one."""
        if not view.system_prompt:
            return []
        item = ReportItem(
            id=SYSTEM_PROMPT,
            tokens=_tokens(view),
            status=Status.INCLUDED,
            reason=Reason.REQUIRED,
            preview=preview(view.system_prompt),
        )
        return [item]


def _tokens(view: View) -> int:
    return view.counter.count_text(view.system_prompt) if view.system_prompt else 0
