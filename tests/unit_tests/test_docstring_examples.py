"""Holds the examples in docstrings to what they print, and every public class to having one."""

import doctest
import importlib
import pkgutil

import pytest

import langchain_ctxbudget

MODULES = [
    module.name
    for module in pkgutil.walk_packages(langchain_ctxbudget.__path__, "langchain_ctxbudget.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_public_class_has_an_example() -> None:
    public = [getattr(langchain_ctxbudget, name) for name in langchain_ctxbudget.__all__]
    classes = [value for value in public if isinstance(value, type)]

    assert [value.__name__ for value in classes if ">>>" not in (value.__doc__ or "")] == []
