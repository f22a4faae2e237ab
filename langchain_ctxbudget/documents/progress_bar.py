"""How far adding documents has come, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_ctxbudget.documents.writing import Advance


@contextmanager
def progress_bar(total: int, shown: bool | None) -> Iterator[Advance]:  # noqa: FBT001 - the caller's own argument
    """A progress bar on stderr; yields what moves it on.

    Args:
        total: documents, as far as one knows.
        shown: None: on a terminal.
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda _documents, _chunks: None
        return
    from rich.console import Console  # noqa: PLC0415 - not needed where nobody looks
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    documents = chunks = 0
    columns = (TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[chunks]:,} chunks"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("documents", total=total, chunks=0)

        def advance(done: int, written: int) -> None:
            nonlocal documents, chunks
            documents, chunks = documents + done, chunks + written
            progress.update(task, completed=documents, total=max(total, documents), chunks=chunks)

        yield advance
