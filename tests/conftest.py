"""Fixtures that several test modules use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiktoken.registry
from hypothesis import settings
from langchain_openai import ChatOpenAI
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

from langchain_ctxbudget.tokens import vocab
from tests.servers import chroma_server, in_memory, postgres

__all__ = ["chroma_server", "postgres"]

EVALUATION_DATA = Path(os.environ.get("CTXBUDGET_EVALUATION_DATA", "evaluation-data"))

# Other work may share the machine, so there is no deadline.
settings.register_profile("package", deadline=None, max_examples=25)
settings.register_profile("long", deadline=None, max_examples=400)
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
