"""Generated conversations, turns and settings."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.settings import CustomLayer, LayerRequest

WORDS = (
    "the plan budget Ada Bonn 2026-08-03 42,50 € we decided agreed [OPEN] question? error() "
    "`main.py` 北京 русский नमस्ते 🙂 </context> user: - [note] ## A/B /path \n\n . !"
).split(" ")

text = st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=60).map(" ".join)
sentences = text.filter(lambda value: bool(value.strip()))
names = st.none() | st.sampled_from(["Ada", "Zoë Müller", "a/b <c>", "田中", "x" * 80])
ids = st.sampled_from(["c1", "c2", "c3", "c4"])
dates = st.none() | st.dates().map(lambda day: f"{day.isoformat()}T08:30:00")
blocks = st.lists(
    st.builds(lambda value: {"type": "text", "text": value}, text)
    | st.just(
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    ),
    max_size=3,
)
arguments = st.dictionaries(st.sampled_from(["city", "page"]), st.integers() | text, max_size=2)
calls = st.lists(
    st.builds(lambda key, args: {"name": "look_up", "args": args, "id": key}, ids, arguments),
    max_size=3,
)


def _dated(message: BaseMessage, date: str | None) -> BaseMessage:
    if date:
        message.additional_kwargs["created_at"] = date
    return message


plain = st.builds(HumanMessage, content=text | blocks, name=names) | st.builds(
    AIMessage, content=text | blocks, name=names, tool_calls=calls
)
results = st.builds(ToolMessage, content=text, tool_call_id=ids)
notes = st.builds(SystemMessage, content=text)
history = st.lists(st.builds(_dated, plain | results | notes, dates), max_size=40)
human = st.builds(HumanMessage, content=sentences, name=names)
turns: st.SearchStrategy[Any] = (
    sentences
    | human
    | st.builds(
        lambda first, rest: [first, *rest],
        human,
        st.lists(st.builds(AIMessage, content=text, tool_calls=calls) | results, max_size=6),
    )
)
budgets = st.integers(min_value=1, max_value=3000)
lines = st.lists(sentences, max_size=4).map(tuple)

RATIOS = (
    (0.3, 0.4, 0.3),
    (0.35, 0.35, 0.3),
    (0.6, 0.45, 0.0),
    (0.0, 0.95, 0.0),
    (0.5, 0.0, 0.5),
    (0.0, 0.0, 1.0),
)
SHARES = (
    {},
    {"system": 0.0, "history": 1.0, "entities": 0.0, "retrieval": 0.0, "query": 0.0},
    {"system": 0.1, "history": 0.1, "entities": 0.4, "retrieval": 0.4, "query": 0.0},
)
LAYERS = ("preferences", "history", "topics", "entities", "retrieval")

elastic = st.just("elastic") | st.just({"strategy": "elastic"})
seed = st.just({"strategy": "elastic", "profile": "seed"})
ratio = st.builds(
    lambda parts, exchanges: {
        "strategy": "ratio",
        "memory": parts[0],
        "history": parts[1],
        "reserve": parts[2],
        "min_exchanges": exchanges,
        "max_system_share": 1.0,  # what is refused otherwise has a test of its own
    },
    st.sampled_from(RATIOS),
    st.integers(0, 10),
)
fixed = st.sampled_from(SHARES).map(lambda shares: {"strategy": "fixed", **shares})
dynamic = st.just("dynamic")


def prioritized(own: Sequence[str] = ()) -> st.SearchStrategy[Any]:
    orders = st.lists(
        st.sampled_from((*LAYERS, *own)), unique=True, max_size=len(LAYERS) + len(own)
    )
    return st.just("prioritized") | orders.map(
        lambda order: {"strategy": "prioritized", "order": order}
    )


def allocations(own: Sequence[str] = ()) -> dict[str, st.SearchStrategy[Any]]:
    """The setting `allocation` by kind, as it would stand in JSON.

    Args:
        own: names of the application's own layers.
    """
    return {
        "elastic": elastic,
        "elastic (seed)": seed,
        "ratio": ratio,
        "fixed": fixed,
        "dynamic": dynamic,
        "prioritized": prioritized(own),
    }


OWN_NAMES = ("open files", "weather", "日程", "<context>")


def _fails(request: LayerRequest) -> list[str]:
    raise ConnectionError(request.query[:10])


@st.composite
def own_layers(draw: st.DrawFn) -> tuple[CustomLayer, ...]:
    names = draw(st.lists(st.sampled_from(OWN_NAMES), unique=True, max_size=2))
    return tuple(_own_layer(draw, name) for name in names)


def _own_layer(draw: st.DrawFn, name: str) -> CustomLayer:
    items = draw(lines)
    source = draw(st.sampled_from([items, lambda _: items, _fails]))
    low, ideal = sorted(draw(st.tuples(*[st.integers(0, 400)] * 2)))
    return CustomLayer(
        name=name,
        items=source,
        min_tokens=draw(st.sampled_from([0, low])),
        ideal_tokens=ideal,
        priority=draw(st.integers(0, 100)),
    )


@st.composite
def _settings(draw: st.DrawFn) -> dict[str, Any]:
    plain = {**draw(_plain_settings), "layers": draw(own_layers())}
    choices = allocations([layer.name for layer in plain["layers"]])
    return {**plain, "allocation": draw(st.one_of(*choices.values()))}


_plain_settings = st.fixed_dictionaries(
    {
        "learn": st.just(False),  # what is learned when would depend on how fast a thread is
        "personality": st.sampled_from([None, "helpful", {"kind": "expert", "domain": "tax law"}]),
        "response_style": st.sampled_from([None, {"verbosity": "concise", "bullets": True}]),
        "preferences": lines,
        "memories": lines,
        "topics": st.lists(
            st.builds(
                lambda label, context: {"label": label, "context": context},
                st.sampled_from(["plan", "Bonn", "北京"]),
                sentences,
            ),
            max_size=3,
        ),
        "entities": st.lists(
            st.builds(
                lambda name, context: {"name": name, "context": context},
                st.sampled_from(["Ada", "budget"]),
                sentences,
            ),
            max_size=4,
        ),
        "include_entities": st.booleans(),
        "emphasis": st.sampled_from(["recall", "balanced", "cache"]),
        "depth": st.sampled_from(["minimal", "standard", "deep"]),
        "prioritize_history": st.booleans(),
        "keep_messages": st.integers(0, 12),
        "oversized_message": st.sampled_from(["error", "clip"]),
    }
)
settings = _settings()
"""Settings with an allocation of some kind, without a budget."""
