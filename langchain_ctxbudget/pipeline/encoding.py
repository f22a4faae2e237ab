"""Encodes messages in the background, so that no prompt waits for the vectors of many."""

import atexit
import os
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.flow import Flow, drive
from langchain_ctxbudget.search import Vectors
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.worker import Cancelled, Worker

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.workspace import Workspace

ENCODED_TOGETHER = 16
"""Messages that are encoded before the worker looks whether a prompt is being made."""
PAUSE_SECONDS = 0.05
"""How long nobody may have asked for a prompt before the next messages are encoded."""
_PATIENCE_SECONDS = 1.0
"""How long the end of the process waits for a text that is being encoded."""
_process_of: WeakKeyDictionary[Worker[Any], int] = WeakKeyDictionary()
"""The process of every worker that encodes."""


def _stop() -> None:
    """Ends the work before the interpreter does: it would end the process within compiled code."""
    for worker, process in list(_process_of.items()):
        if process == os.getpid():  # in the child of a fork nobody works, and a lock may be held
            worker.close()
            worker.flush(_PATIENCE_SECONDS)


atexit.register(_stop)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages that are to be encoded."""

    index: history.MessageIndex
    """The index that they are in; another one once the conversation was changed."""
    start: int
    """The position of the first one."""
    texts: list[str]


class Encoding:
    """Gives the messages of conversations sentence vectors, the oldest first.

    The conversation is free while texts are encoded: a prompt takes the vectors that are there.
    """

    def __init__(self, workspace: "Workspace") -> None:
        """Sets up; the thread begins with the first messages."""
        self._workspace = workspace
        self.worker: Worker[stores.Scope] = Worker(self._encode, pause_seconds=PAUSE_SECONDS)
        _process_of[self.worker] = os.getpid()

    def note(self, conversation: history.OpenConversation, settings: ContextSettings) -> None:
        """Has a conversation encoded, if the settings say so and messages of it are not."""
        if not settings.encoder or not conversation.scope.is_kept:
            return
        if len(conversation.table) > len(conversation.table.search_index.encoded):
            self.worker.submit(conversation.scope)

    def _encode(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        """Encodes what is not encoded of a conversation."""
        workspace = self._workspace
        while not cancelled:
            batch = drive(workspace.using(scope, self._next))
            if not batch.texts:
                return
            texts = takewhile(lambda _: not cancelled, batch.texts)
            vectors = [workspace.encoder.encode([text])[0] for text in texts]
            if not vectors:
                return
            drive(workspace.using(scope, partial(self._take, batch, np.array(vectors))))
            self.worker.wait_for_pause()

    def _next(self, conversation: history.OpenConversation) -> Flow[_Batch]:
        """Returns the next messages to encode; none once all are encoded."""
        yield from ()
        index = conversation.table.search_index
        index.encoded_with(self._workspace.encoder.model)
        texts = index.texts_to_encode(conversation.table, ENCODED_TOGETHER)
        return _Batch(index, len(index.encoded), texts)

    def _take(
        self, batch: _Batch, vectors: Vectors, conversation: history.OpenConversation
    ) -> Flow[None]:
        """Takes in vectors, unless messages were changed or encoded by a prompt meanwhile."""
        yield from ()
        index = conversation.table.search_index
        if index is not batch.index or len(index.encoded) != batch.start:
            return
        index.encoded.extend(vectors)
        if len(index.encoded) == len(conversation.table):
            self._workspace.workers.sealing.note(conversation)
