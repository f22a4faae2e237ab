"""The examples in docstrings."""

import doctest
import importlib
import pkgutil

import langchain_ctxbudget


def test_they_print_what_they_say() -> None:
    names = [
        module.name
        for module in pkgutil.walk_packages(langchain_ctxbudget.__path__, "langchain_ctxbudget.")
    ]
    for name in names:
        if not name.endswith("__main__"):
            assert doctest.testmod(importlib.import_module(name)).failed == 0, name


def test_every_public_class_has_one() -> None:
    public = [getattr(langchain_ctxbudget, name) for name in langchain_ctxbudget.__all__]
    assert [
        one.__name__ for one in public if isinstance(one, type) and ">>>" not in (one.__doc__ or "")
    ] == []
