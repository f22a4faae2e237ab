"""A layer of one's own: the files that are open in an editor, beside history and retrieval.

The layer says what it wants (min, ideal, priority). A function gives its items, most important
first, and is told how many tokens it has. Everything runs offline.

    python examples/open_files_layer.py
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.settings import CustomLayer, LayerRequest

LAYER = "open files"
OPEN_FILES = {
    "lending.py": "MAX_TOOLS = 5\nLOAN_DAYS = 7\n\ndef due(day):\n    return day + LOAN_DAYS\n" * 6,
    "labels.py": "FIRST, LAST = 1001, 1644\n\ndef is_number(text):\n    return FIRST <= int(text) <= LAST\n"
    * 4,
    "kiosk.py": "def greet(member):\n    return f'Hello {member.name}'\n" * 8,
}
"""What an editor would tell: names and contents, the one that was touched last first."""


def open_files(request: LayerRequest) -> Sequence[str]:
    """The open files, those that the message names first."""
    named = [name for name in OPEN_FILES if name in request.query]
    others = [name for name in OPEN_FILES if name not in named]
    return [f"{name}\n{OPEN_FILES[name]}" for name in (*named, *others)]


def show(report: ContextReport) -> None:
    """What the layer was given and what became of its items."""
    layer = report.layer(LAYER)
    print(
        f"budget {report.budget_tokens:>5,}: planned {layer.allocated_tokens:>3}, used {layer.used_tokens:>3}"
    )
    for item in layer.items:
        print(f"    {item.status:<9}{item.reason:<11}{item.tokens:>4}  {item.preview[:40]}")


def main() -> None:
    """Ask about one of the files, then see what other budgets would have given the layer."""
    layer = CustomLayer(
        name=LAYER,
        items=open_files,
        min_tokens=60,
        ideal_tokens=400,
        priority=80,
    )
    history = [
        turn
        for number in range(1, 61)
        for turn in (
            HumanMessage(
                f"Note {number}: shelf {number} holds drills, saws and clamps; two of them need new blades."
            ),
            AIMessage(f"Shelf {number} is on the list for the next inspection, blades included."),
        )
    ]
    with ContextPipeline({"max_context_tokens": 1_500, "layers": [layer]}) as pipeline:
        pipeline.add_messages(history, user_id="maya", conversation_id="editor")
        question = "Which numbers does labels.py accept?"
        context = pipeline.assemble(question, user_id="maya", conversation_id="editor")
        print(context.report)
        print()
        for report in pipeline.what_if([300, 600, 1_500, 6_000]):
            show(report)


if __name__ == "__main__":
    main()
