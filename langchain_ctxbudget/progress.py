"""What a step has done to a prompt on its way, as plain data for people who watch a stream."""

from __future__ import annotations

from typing import Any

from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.draft import Draft


def progress(name: str, draft: Draft) -> dict[str, Any]:
    """What one of the six steps did.

    Args:
        name: of the step.
        draft: that it has just run on.

    Returns:
        numbers, names of topics and entities, and the step's time in milliseconds.
    """
    done: dict[str, Any] = {"milliseconds": round(draft.timings_ms[name], 3)}
    match name:
        case "detect_topics":
            done["topics"] = [topic.id for topic in draft.detected.topics]
            done["entities"] = [entity.id for entity in draft.detected.entities]
        case "compute_budget":
            allocation = draft.allocated
            done["budget_tokens"], done["strategy"] = draft.limit_tokens, allocation.strategy
            done["layers"] = {str(layer): tokens for layer, tokens in allocation.tokens.items()}
        case "fetch_bundles":
            fragments = (*draft.preferences, *draft.bundles.fragments)
            own = [part for rendered in draft.own.values() for part in rendered.fragments]
            done["items"] = len(fragments) + len(own)
            done["tokens"] = sum(part.tokens for part in (*fragments, *own))
        case "compact_history":
            view = draft.history
            done["strategy"], done["compaction_step"] = view.strategy, view.step
            done["messages"] = len(draft.conversation.entries)
            done["verbatim"] = sum(len(part.messages) for part in view.groups)
        case "retrieve":
            found = [part for part in draft.content.volatile if part.layer == Layer.RETRIEVAL]
            done["items"], done["tokens"] = len(found), sum(part.tokens for part in found)
            done["chosen_before"] = draft.fixed is not None
        case _:
            report = draft.context.report if draft.context else None
            if report is not None:
                done["tokens"], done["budget_tokens"] = report.total_tokens, report.budget_tokens
                done["messages"] = len(draft.context.messages) if draft.context else 0
    return done
