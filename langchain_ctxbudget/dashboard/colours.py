"""The colours of layers and of messages' states as a stylesheet, from where reports have them."""

from collections.abc import Iterator

from langchain_ctxbudget.report import CUSTOM_COLOURS, LAYER_COLOURS, STATES, on_dark


def stylesheet() -> str:
    """Returns a rule for each colour, which is lighter on a dark ground."""
    return "".join(_rules())


def _rules() -> Iterator[str]:
    for layer, colour in LAYER_COLOURS.items():
        yield _rule(f"layer-{layer}", "--layer", colour)
    for number, colour in enumerate(CUSTOM_COLOURS):
        yield _rule(f"layer-own{number}", "--layer", colour)
    for state, style in STATES.items():
        if state != "omitted":  # it is as the ground of the page
            yield _rule(f"state-{state}", "--state", style.colour)


def _rule(name: str, variable: str, colour: str) -> str:
    return f".{name} {{ {variable}: light-dark({colour}, {on_dark(colour)}); }}\n"
