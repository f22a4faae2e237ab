"""Cases of a test of which a few stand for all in the quick suite."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def few_are_quick(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """Returns cases for `parametrize`; all but the first ones belong to the long suite.

    A case that the quick suite leaves out has to fail for the same reason as one that it has.
    """
    return [case if number < quick else slow(case) for number, case in enumerate(cases)]


def slow(case: Any) -> ParameterSet:
    """Returns a case that belongs to the long suite; a case that has a name or marks keeps them."""
    parameters = ParameterSet.extract_from(case, force_tuple=True)
    marks = [*parameters.marks, pytest.mark.slow]
    return pytest.param(*parameters.values, marks=marks, id=parameters.id)
