"""Every kind of derived data, and what happens to all of them.

Whoever adds a kind adds it to `KINDS`; then edits, removals, clearing, erasing, handing over,
exports and forks know it.
"""

from collections.abc import Sequence

from langgraph.store.base import BaseStore

from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.ages import AGES, Ages
from langchain_ctxbudget.history.backgrounds import SENT
from langchain_ctxbudget.history.derived import Change, DerivedKind
from langchain_ctxbudget.history.log import CUTS
from langchain_ctxbudget.history.segments import Segments
from langchain_ctxbudget.history.summarizing import Summaries
from langchain_ctxbudget.stores import CutsRecord, Scope, Value


class Cuts(DerivedKind):
    """The cuts of a conversation, in one record."""

    name = CUTS
    is_remade = False  # another one could be chosen, and a restart would go on with another prompt

    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        """Keeps the cuts for which only messages before the change count."""
        [value] = yield from self.get(store, change.scope, [CUTS])
        if value is None:
            return
        record = _cuts_in(value)
        cuts = record.cuts if record else ()
        staying = tuple(cut for cut in cuts if max(cut.position, cut.cleared) <= change.first)
        if staying:
            value = CutsRecord(cuts=staying).to_value()
            yield from self.put(store, change.scope, {CUTS: value})
        else:
            yield from self.forget(store, change.scope, [CUTS])

    def handed_over(self, value: Value) -> Value | None:
        """Returns cuts from which the next prompt is rebuilt.

        It would else repeat what was shown of the former owner.
        """
        record = _cuts_in(value)
        if record is None:
            return None
        cuts = tuple(cut.model_copy(update={"prefix": ""}) for cut in record.cuts)
        return CutsRecord(cuts=cuts).to_value()


def _cuts_in(value: Value) -> CutsRecord | None:
    """Returns stored cuts; None where they cannot be read: they are chosen again."""
    try:
        return CutsRecord.read(value, "the cuts")
    except StoreDataError:
        return None


class Backgrounds(DerivedKind):
    """The backgrounds with which messages were sent, by the positions of the messages."""

    name = SENT
    is_remade = False  # what was sent once cannot be chosen again

    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        """Deletes all of them: any may quote what is changed."""
        return self.clear(store, change.scope)

    def handed_over(self, value: Value) -> None:
        """Returns nothing: it has quotes of the former owner's other conversations."""


_BACKGROUNDS = Backgrounds()
KINDS: Sequence[DerivedKind] = (Cuts(), Summaries(), _BACKGROUNDS, Segments(), Ages())


def forget_derived(store: BaseStore, change: Change) -> Flow[None]:
    """Deletes all that is derived from messages that are about to change."""
    for kind in KINDS:
        yield from kind.forget_changed(store, change)


def clear_derived(store: BaseStore, scope: Scope) -> Flow[None]:
    """Deletes all that is derived from the messages of a conversation."""
    for kind in KINDS:
        yield from kind.clear(store, scope)


def clear_backgrounds(store: BaseStore, scope: Scope) -> Flow[None]:
    """Deletes the backgrounds of a conversation: they may quote what is erased elsewhere."""
    return _BACKGROUNDS.clear(store, scope)


def erase_backgrounds(store: BaseStore, user_id: str) -> Flow[int]:
    """Deletes the backgrounds of all conversations of a user; returns how many there were."""
    return _BACKGROUNDS.place(store).erase(user_id, SENT)


def clear_unused(store: BaseStore, scope: Scope) -> Flow[int]:
    """Deletes what is derived from a conversation that nobody uses.

    The ages of its messages stay: the next sweep needs them. Returns how many pieces there were.
    """
    count = yield from count_unused(store, scope)
    if count:
        for kind in _unused_kinds():
            yield from kind.clear(store, scope)
    return count


def count_unused(store: BaseStore, scope: Scope) -> Flow[int]:
    """Returns how many pieces `clear_unused` would delete."""
    count = 0
    for kind in _unused_kinds():
        keys = yield from kind.keys(store, scope)
        count += len(keys)
    return count


def _unused_kinds() -> list[DerivedKind]:
    """Returns the kinds that nobody needs of a conversation to which nobody writes."""
    return [kind for kind in KINDS if kind.name != AGES]


def erase_derived(store: BaseStore, user_id: str) -> Flow[int]:
    """Deletes all that is derived from a user's messages.

    Returns how many records of the user there were: those that are not made again at no cost.
    """
    count = 0
    for kind in KINDS:
        erased = yield from kind.place(store).erase(user_id, kind.name)
        if not kind.is_remade:
            count += erased
    return count


def hand_over_derived(store: BaseStore, old: Scope, new: Scope) -> Flow[None]:
    """Copies to the next owner of a conversation what is derived from its messages."""
    for kind in KINDS:
        yield from kind.hand_over(store, old, new)


def remade_kinds() -> frozenset[str]:
    """Returns the names of the kinds that are made again at no cost; no export has them."""
    return frozenset(kind.name for kind in KINDS if kind.is_remade)
