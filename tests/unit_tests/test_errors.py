"""Errors say what is wrong with numbers, and can be caught as what they are."""

import copy
import inspect
import pickle

from langchain_core.exceptions import LangChainException

from langchain_ctxbudget import errors
from langchain_ctxbudget.errors import BudgetTooSmallError, CtxBudgetError

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, CtxBudgetError)]
FLOORS = {"L0 system prompt": 900, "L7 message": 1_200}
TOO_SMALL = BudgetTooSmallError(1_000, FLOORS, "Raise max_context_tokens.")

WITH_FLOORS = {
    errors.BudgetError: errors.BudgetError("It does not fit into 1,000 tokens:", 1_000, FLOORS, "Shorten it."),
    BudgetTooSmallError: TOO_SMALL,
    errors.SystemPromptTooLargeError: errors.SystemPromptTooLargeError(
        900, 250, "25% of the window", "max_system_share"
    ),
    errors.InvalidAllocationError: errors.InvalidAllocationError("mine", 1_000, FLOORS),
}


def example(kind):
    return WITH_FLOORS.get(kind) or kind("what is wrong")


def test_a_budget_error_lists_every_floor_and_the_sum():
    lines = str(TOO_SMALL).splitlines()
    assert lines == [
        "The budget is 1,000 tokens, but what must be sent needs 2,100:",
        "  L0 system prompt       900",
        "  L7 message           1,200",
        "Raise max_context_tokens.",
    ]


def test_every_error_is_one_of_the_package_and_of_langchain_and_survives_pickling():
    for kind in ALL:
        assert issubclass(kind, CtxBudgetError)
        assert issubclass(kind, LangChainException)
        assert issubclass(kind, ValueError) or not issubclass(kind, (errors.BudgetError, errors.InputError))
        for error in (pickle.loads(pickle.dumps(example(kind))), copy.deepcopy(example(kind))):
            assert (type(error), str(error)) == (kind, str(example(kind)))
            if kind in WITH_FLOORS:
                assert error.floors
                assert all(name in str(error) and f"{tokens:,}" in str(error) for name, tokens in error.floors.items())
                assert f"{error.budget_tokens:,}" in str(error)
