"""Errors say what is wrong with numbers, and can be caught as what they are."""

import copy
import inspect
import pickle

import pytest
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


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_one_of_the_package_and_of_langchain(kind):
    assert issubclass(kind, CtxBudgetError)
    assert issubclass(kind, LangChainException)


@pytest.mark.parametrize("kind", [k for k in ALL if issubclass(k, (errors.BudgetError, errors.InputError))])
def test_errors_about_arguments_are_value_errors(kind):
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize("kind", ALL)
def test_every_error_survives_pickling(kind):
    error = pickle.loads(pickle.dumps(example(kind)))
    assert (type(error), str(error)) == (kind, str(example(kind)))


def test_a_budget_error_lists_every_floor_and_the_sum():
    lines = str(TOO_SMALL).splitlines()
    assert lines == [
        "The budget is 1,000 tokens, but what must be sent needs 2,100:",
        "  L0 system prompt       900",
        "  L7 message           1,200",
        "Raise max_context_tokens.",
    ]


@pytest.mark.parametrize("copied", [pickle.loads(pickle.dumps(TOO_SMALL)), copy.deepcopy(TOO_SMALL)])
def test_a_copied_budget_error_has_its_numbers(copied):
    assert (copied.budget_tokens, copied.floors, copied.advice) == (
        1_000,
        {"L0 system prompt": 900, "L7 message": 1_200},
        "Raise max_context_tokens.",
    )


@pytest.mark.parametrize("kind", WITH_FLOORS)
def test_every_budget_error_has_its_floors_as_data_and_in_its_message(kind):
    error = pickle.loads(pickle.dumps(example(kind)))
    assert error.floors
    assert all(name in str(error) and f"{tokens:,}" in str(error) for name, tokens in error.floors.items())
    assert f"{error.budget_tokens:,}" in str(error)


def test_a_budget_error_keeps_its_own_floors():
    floors = {"L0": 5}
    error = BudgetTooSmallError(1, floors, "x")
    floors["L0"] = 6
    assert error.floors == {"L0": 5}


def test_a_budget_error_without_floors_has_a_message():
    assert "needs 0" in str(BudgetTooSmallError(1, {}, "x"))
