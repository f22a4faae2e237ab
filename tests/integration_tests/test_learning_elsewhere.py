"""Learning while another process changes what is known of the same user: two stores over the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.knowledge import records
from tests.integration_tests.conftest import Call
from tests.integration_tests.test_learning import (
    ADA,
    CHANGES,
    FILLER,
    HERE,
    STORY,
    THERE,
    everything,
    human,
    learn,
    opened,
    system,
    texts,
)


class Shared(InMemoryStore):
    """The data of another store, as a second process has it; something may happen there right before a write."""

    def __init__(self, other: InMemoryStore | None = None) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None
        self.happened = False
        if other is not None:
            self._data, self._vectors = other._data, other._vectors

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        if self.meanwhile and any(isinstance(op, PutOp) and records.KNOWLEDGE in op.namespace for op in todo):
            work, self.meanwhile, self.happened = self.meanwhile, None, True
            work()
        return super().batch(todo)


def deleting(pipeline: ContextPipeline, word: str, added: str) -> Callable[[], object]:
    """Forget what has a word in it, by hand, and say something else."""

    def work() -> None:
        [fact] = [fact for fact in pipeline.knowledge.list_facts(**ADA) if word in fact.text]
        pipeline.knowledge.delete(fact.id, **ADA)
        pipeline.knowledge.add_fact(added, **ADA)

    return work


def test_what_is_deleted_elsewhere_while_something_is_learned_is_not_shown(call: Call) -> None:
    store = Shared()
    with opened(store) as one, opened(Shared(store)) as other:
        learn(one, human(*STORY))
        shown = system(call(one, "assemble", "Hello", **THERE))
        store.meanwhile = deleting(other, "Lisbon", "Plays the cello")
        learn(one, human("My favourite drink is tea.", *FILLER, first=6))
        assert store.happened
        assert texts(one) == texts(other)
        after = system(call(one, "assemble", "Hello", **THERE))
    assert ("Lisbon" in shown, "cello" in shown) == (True, False)
    assert ("Lisbon" in after, "cello" in after) == (False, True)


def test_erasing_a_user_elsewhere_while_something_is_learned_leaves_nothing_known() -> None:
    store = Shared()
    with opened(store) as one, opened(Shared(store)) as other:
        learn(one, human(*STORY))
        store.meanwhile = lambda: other.erase_user(**ADA)
        learn(one, human(*CHANGES, first=6))
        assert store.happened
        one.end_session(**HERE)
        assert one.flush(30)
        assert not [text for text in everything(store) if f'"{records.KNOWLEDGE}' in text]
