"""Whether JSON has the form that a provider's own Python package declares for it.

OpenAI and Anthropic generate the `TypedDict`s of their packages from the published schema of their
API. What is not declared there is refused: OpenAI answers "Unknown parameter: 'input[0].x'" and
"Invalid value: 'x'. Supported values are: ...", Anthropic "Extra inputs are not permitted" and
"Input tag 'x' found using 'type' does not match any of the expected tags".
"""

import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union

from typing_extensions import is_typeddict

Problems = Iterator[str]
_SEQUENCES = (list, Sequence, Iterable, tuple)
_SCALARS: Mapping[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bool: (bool,),
}


def problems_of_form(
    value: object, hint: Any, where: str, *, may_lack: Collection[str] = ()
) -> Problems:
    """What is wrong with the form of a value.

    Args:
        value: JSON, as Python has read it.
        hint: The type that the provider's package declares for it.
        where: What the value is called in the problems.
        may_lack: Keys, as `type.key`, that are declared to be required and are not.
    """
    choices = _choices(hint)
    if isinstance(value, Mapping):
        yield from _problems_of_object(value, choices, where, may_lack)
    elif isinstance(value, list):
        yield from _problems_of_list(value, choices, where, may_lack)
    elif not any(_accepts(choice, value) for choice in choices):
        yield f"{where}: invalid value {value!r:.60}"


@cache
def _choices(hint: Any) -> tuple[Any, ...]:
    """The types of which a value may have one."""
    origin = typing.get_origin(hint)
    if origin in (Annotated, Required, NotRequired):
        return _choices(typing.get_args(hint)[0])
    if origin in (Union, types.UnionType):
        choices: list[Any] = []
        for inner in typing.get_args(hint):
            choices += _choices(inner)
        return tuple(choices)
    if isinstance(hint, typing.NewType):
        return _choices(hint.__supertype__)
    return (hint,)


def _accepts(choice: Any, value: object) -> bool:
    """Whether a type is that of a value which is neither an object nor a list."""
    if choice in (object, Any):
        return True
    if choice is None or choice is type(None):
        return value is None
    if typing.get_origin(choice) is Literal:
        return value in typing.get_args(choice)
    if isinstance(value, bool) and choice is not bool:
        return False
    return isinstance(value, _SCALARS.get(choice, ()))


def _problems_of_list(
    values: Sequence[object], choices: Sequence[Any], where: str, may_lack: Collection[str]
) -> Problems:
    if any(choice in (object, Any) for choice in choices):
        return
    inner = [_item_hint(choice) for choice in choices if _is_sequence(choice)]
    if not inner:
        yield f"{where}: a list is not permitted here"
        return
    hint = Union[tuple(inner)]  # noqa: UP007 - of a number that is not known
    for number, value in enumerate(values):
        yield from problems_of_form(value, hint, f"{where}[{number}]", may_lack=may_lack)


def _is_sequence(choice: Any) -> bool:
    origin = typing.get_origin(choice)
    if origin is None:
        return False
    return origin in _SEQUENCES or getattr(origin, "__name__", "") == "SequenceNotStr"


def _item_hint(choice: Any) -> Any:
    return typing.get_args(choice)[0]


def _problems_of_object(
    value: Mapping[str, Any], choices: Sequence[Any], where: str, may_lack: Collection[str]
) -> Problems:
    if any(map(_is_any_object, choices)):
        return
    fitting = [choice for choice in choices if _may_be_meant(value, choice)]
    if not fitting:
        tags = {key: value[key] for key in ("role", "type") if key in value}
        yield f"{where}: no such object is permitted here: {tags or sorted(value)}"
        return
    results = [list(_problems_in(value, form, where, may_lack)) for form in fitting]
    yield from min(results, key=_closeness)


def _may_be_meant(value: Mapping[str, Any], choice: Any) -> bool:
    """Whether a type is a form of object that has the tags of a value."""
    return is_typeddict(choice) and _has_tags_of(value, choice)


def _closeness(problems: Sequence[str]) -> tuple[int, int]:
    """Few problems are close, and of as few those which lie deepest."""
    return len(problems), -max(map(len, problems), default=0)


def _is_any_object(choice: Any) -> bool:
    if choice in (object, Any):
        return True
    origin = typing.get_origin(choice) or choice
    return origin in (dict, Mapping)


@cache
def _fields(form: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(form, include_extras=True)


@cache
def _required(form: Any) -> frozenset[str]:
    names = [name for name, hint in _fields(form).items() if typing.get_origin(hint) is Required]
    return frozenset(names) | form.__required_keys__ if form.__total__ else frozenset(names)


@cache
def _tags(form: Any) -> Mapping[str, tuple[Any, ...]]:
    """The values by which a form is known."""
    tags = {}
    for name in ("role", "type"):
        values: list[Any] = []
        for choice in _choices(_fields(form).get(name)):
            if typing.get_origin(choice) is Literal:
                values += typing.get_args(choice)
        if values:
            tags[name] = tuple(values)
    return tags


def _has_tags_of(value: Mapping[str, Any], form: Any) -> bool:
    for name, values in _tags(form).items():
        if name in value and value[name] not in values:
            return False
        if name not in value and name in _required(form):
            return False
    return True


def _problems_in(
    value: Mapping[str, Any], form: Any, where: str, may_lack: Collection[str]
) -> Problems:
    fields = _fields(form)
    kind = value.get("type") or value.get("role")
    for name in sorted(_required(form) - value.keys()):
        if f"{kind}.{name}" not in may_lack:
            yield f"{where}: missing required parameter {name!r} of {kind!r}"
    for name, inner in value.items():
        if name not in fields:
            yield f"{where}: unknown parameter {name!r} of {kind!r}"
            continue
        yield from problems_of_form(inner, fields[name], f"{where}.{name}", may_lack=may_lack)


Rule = Callable[[Mapping[str, Any]], Problems]
"""One thing that a provider refuses: from the body of a request to what is wrong with it."""


def problems_by(rules: Iterable[Rule], body: Mapping[str, Any]) -> list[str]:
    """What rules refuse in a request: that of the first rule which refuses anything."""
    for rule in rules:
        problems = list(rule(body))
        if problems:
            return problems
    return []
