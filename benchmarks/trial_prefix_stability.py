"""How much of each prompt the previous prompt of the conversation already had.

A conversation is replayed turn by turn: assemble for the user's message, then add the exchange. The stable zone is
everything before the current turn; a provider's prompt cache hits on the common prefix.

    python benchmarks/trial_prefix_stability.py FILE.jsonl.gz --budget 8192
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from langchain_core.messages import HumanMessage
from rich.console import Console
from rich.progress import track
from rich.table import Table

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.cli.formats import ConversationFile, read_conversations

Row = tuple[float, float, bool]


def replay(conversation: ConversationFile, budget: int, turns: int) -> list[Row]:
    """Share of the stable zone, share of the prompt, and whether the cut moved, per turn after the first."""
    rows: list[Row] = []
    user, key = "replay", conversation.conversation_id
    with ContextPipeline({"max_context_tokens": budget}, system_prompt="You are a helpful assistant.") as pipeline:
        for message in conversation.messages:
            if isinstance(message, HumanMessage):
                if len(rows) >= turns:
                    break
                stability = pipeline.assemble(message.text, user_id=user, conversation_id=key).report.stability
                if stability.stable_zone_share is not None and stability.prompt_share is not None:
                    rows.append((stability.stable_zone_share, stability.prompt_share, stability.compaction_step))
            pipeline.add_messages([message], user_id=user, conversation_id=key)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--budget", type=int, default=8192)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    table = Table(
        "conversation",
        "turns",
        "stable zone, mean",
        "stable zone, no step",
        "whole prompt, mean",
        "steps",
        title=f"share of the prompt that the previous prompt had, budget {options.budget:,}",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for conversation in track(read_conversations(options.data), description="replaying", console=Console(stderr=True)):
        rows = replay(conversation, options.budget, options.turns)
        quiet = [zone for zone, _, step in rows if not step]
        table.add_row(
            conversation.conversation_id,
            str(len(rows)),
            f"{statistics.fmean(zone for zone, _, _ in rows):.1%}",
            f"{statistics.fmean(quiet):.1%}",
            f"{statistics.fmean(prompt for _, prompt, _ in rows):.1%}",
            f"{sum(step for _, _, step in rows)} (1 in {len(rows) / max(1, sum(s for _, _, s in rows)):.0f})",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
