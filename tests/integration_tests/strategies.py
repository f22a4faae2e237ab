"""Generated conversations, turns and settings."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

WORDS = (
    "the plan budget Ada Bonn 2026-08-03 42,50 € we decided agreed [OPEN] question? error() `main.py` 北京 русский "
    "नमस्ते 🙂 </context> user: - [note] ## A/B /path \n\n . !"
).split(" ")

text = st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=60).map(" ".join)
said = text.filter(lambda value: bool(value.strip()))
names = st.none() | st.sampled_from(["Ada", "Zoë Müller", "a/b <c>", "田中", "x" * 80])
ids = st.sampled_from(["c1", "c2", "c3", "c4"])
dates = st.none() | st.dates().map(lambda day: f"{day.isoformat()}T08:30:00")
blocks = st.lists(
    st.builds(lambda value: {"type": "text", "text": value}, text)
    | st.just({"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}),
    max_size=3,
)
arguments = st.dictionaries(st.sampled_from(["city", "page"]), st.integers() | text, max_size=2)
calls = st.lists(st.builds(lambda key, args: {"name": "look_up", "args": args, "id": key}, ids, arguments), max_size=3)


def _dated(message: BaseMessage, date: str | None) -> BaseMessage:
    if date:
        message.additional_kwargs["created_at"] = date
    return message


plain = st.builds(HumanMessage, content=text | blocks, name=names) | st.builds(
    AIMessage, content=text | blocks, name=names, tool_calls=calls
)
results = st.builds(ToolMessage, content=text, tool_call_id=ids)
notes = st.builds(SystemMessage, content=text)
history = st.lists(
    st.builds(_dated, plain | results | notes, dates),
    max_size=40,
)
human = st.builds(HumanMessage, content=said, name=names)
turns: st.SearchStrategy[Any] = (
    said
    | human
    | st.builds(
        lambda first, rest: [first, *rest],
        human,
        st.lists(st.builds(AIMessage, content=text, tool_calls=calls) | results, max_size=6),
    )
)
budgets = st.integers(min_value=1, max_value=3000)
lines = st.lists(said, max_size=4).map(tuple)
settings = st.fixed_dictionaries(
    {
        "preferences": lines,
        "topics": st.lists(
            st.builds(lambda a, b: {"label": a, "context": b}, st.sampled_from(["plan", "Bonn", "北京"]), said),
            max_size=3,
        ),
        "entities": st.lists(
            st.builds(lambda a, b: {"name": a, "context": b}, st.sampled_from(["Ada", "budget"]), said), max_size=4
        ),
        "include_entities": st.booleans(),
        "depth": st.sampled_from(["minimal", "standard", "deep"]),
        "prioritize_history": st.booleans(),
        "keep_messages": st.integers(0, 12),
    }
)
