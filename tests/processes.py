"""Processes of their own that start at once.

Forked from one that has imported what takes seconds, and done nothing.
"""

from multiprocessing import get_context

FORKED = get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        "chromadb.api.async_fastapi",
        "chromadb.api.fastapi",
        "chromadb.api.rust",
        "langchain_ctxbudget.stores.chroma",
        "tests.integration_tests.test_kills",
        "tests.integration_tests.test_many_writers",
        "wordllama",
    ]
)
