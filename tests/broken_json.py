"""JSON with a few values that are missing, doubled or something else."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, 10**400, "", "text", "user", "{", "[1]", [], {}, [[]], [None], [{}]]
)


@st.composite
def broken(draw: st.DrawFn, files: Mapping[str, list[Any]]) -> list[Any]:
    """The records of one of several files, broken at up to four places."""
    name = draw(st.sampled_from(list(files)))
    records: list[Any] = json.loads(json.dumps(files[name]))
    for _ in range(draw(st.integers(1, 4))):
        _break(draw, records)
    return records


def _break(draw: st.DrawFn, value: Any) -> None:
    """Breaks something inside of a list or an object."""
    keys = list(range(len(value))) if isinstance(value, list) else list(value)
    if not keys:
        return
    key = draw(st.sampled_from(keys))
    inner = value[key]
    if isinstance(inner, list | dict) and inner and draw(st.integers(0, 4)):
        _break(draw, inner)
    elif draw(st.booleans()):
        value[key] = deepcopy(draw(LEAVES))
    elif isinstance(value, dict):
        del value[key]
    else:
        value.append(inner)
