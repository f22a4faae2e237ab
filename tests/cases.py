"""Cases of a test of which a few stand for all in the quick suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def few_are_quick(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """Returns cases for `parametrize`; all but the first ones belong to the long suite.

    A case that the quick suite leaves out has to fail for the same reason as one that it has.
    """
    return [
        case if number < quick else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
