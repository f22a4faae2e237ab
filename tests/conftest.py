"""Fixtures that several test modules use."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken.registry
from hypothesis import HealthCheck, settings
from langchain_openai import ChatOpenAI
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

from langchain_ctxbudget.tokens import vocab
from tests.servers import chroma_server, in_memory, postgres

__all__ = ["chroma_server", "postgres"]

EVALUATION_DATA = Path(os.environ.get("CTXBUDGET_EVALUATION_DATA", "evaluation-data"))

# Other work may share the machine, so time tells nothing: there is no deadline, and a test does not
# fail because its examples took long to make (Hypothesis allows 30 s on the clock).
TIMELESS: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("package", max_examples=25, **TIMELESS)
settings.register_profile("long", max_examples=400, **TIMELESS)
settings.load_profile("package")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkStealingScheduling:
    """Whoever has nothing left takes of what others have: tests take milliseconds, or minutes."""
    return WorkStealingScheduling(config, log)


def pytest_configure() -> None:
    if folder := in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)


@pytest.fixture(scope="session")
def offline_tiktoken() -> Iterator[None]:
    """Gives tiktoken o200k_base without fetching it.

    That of this package, whose identity `test_vocab` proves.
    """
    before = dict(tiktoken.registry.ENCODINGS)
    tiktoken.registry.ENCODINGS["o200k_base"] = vocab.encoding()
    yield
    tiktoken.registry.ENCODINGS.clear()
    tiktoken.registry.ENCODINGS.update(before)


@pytest.fixture(scope="session")
def chat_openai(offline_tiktoken: None) -> ChatOpenAI:
    """A model that counts tokens without a network; calling it is not possible."""
    return ChatOpenAI(model="gpt-4o", api_key="not-used")
