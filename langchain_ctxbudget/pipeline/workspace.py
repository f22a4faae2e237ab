"""A store, the conversations in it that are open, and the workers over them."""

import logging
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from cachetools import LRUCache
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import ForeignUserError, InputError, StoreDataError, StoreError
from langchain_ctxbudget.flow import Flow, T, batch, drive, locked, with_fallback
from langchain_ctxbudget.knowledge import (
    NOTHING,
    ClientPresence,
    Knowledge,
    Learning,
    known,
    records,
)
from langchain_ctxbudget.messages import Preservation, checked, forget_texts, split_instructions
from langchain_ctxbudget.pipeline import handover
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping, Prices, RecentPrompts
from langchain_ctxbudget.prompt import Request, merged
from langchain_ctxbudget.retrieval import Sources, search
from langchain_ctxbudget.search import LocalEmbeddings, Vectors, local_embeddings_available
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import ChatModel, TokenCounter
from langchain_ctxbudget.worker import AFTER_FORK, PAUSE_SECONDS, Cancelled, Worker, new_mutex

if TYPE_CHECKING:
    from langchain_ctxbudget.documents import Catalogue

_log = logging.getLogger(__name__)
V = TypeVar("V")
R = TypeVar("R", bound=stores.Record)
FOREIGN_THREAD = (
    "the thread %r is another user's: the prompt is made from the run's state, and nothing of it is stored, learned or "
    "found later; to hand the thread over, call `hand_over`; where people share threads, set on_foreign_thread='share'"
)
MOST_KEPT = 16
"""Workspaces and models of runs that are kept; one more is let go of, but not closed, as a run may
use it."""


class LruCache(Generic[V]):
    """A small cache for threads; the value that was unused for longest goes first."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._values: LRUCache[Hashable, V] = LRUCache(MOST_KEPT)

    def find(self, key: Hashable, make: Callable[[], V]) -> V:
        """Returns the value under a key; makes it if there is none."""
        with self._mutex:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def all(self) -> list[V]:
        """Returns everything that is kept."""
        with self._mutex:
            return list(self._values.values())


class Stored(NamedTuple):
    """The settings of a prompt, and what else is stored beside the messages of its conversation."""

    settings: ContextSettings
    settings_from: tuple[str, ...]
    knowledge: Knowledge
    """Where nothing is learned, what was written by hand."""
    expected: tuple[str, ...]
    """Ids of topics and entities that are likely to come up on the device."""


class ConversationStatus(NamedTuple):
    """The background work on a conversation, and the form and savings of its last prompt."""

    is_extracting: bool
    last_extraction: datetime | None
    is_compacting: bool
    compaction_stage: str
    saved_tokens: int
    extraction_waits_until: datetime | None = None
    """The time before which a model that has failed is not asked again; None: nothing waits for
    it."""
    suspended: tuple[tuple[int, int], ...] = ()
    """The passages from which rules do not learn, as a part is played there: first and last
    message, counted from 1."""


class Workspace:
    """A store, the conversations in it that are open, and the workers over them.

    Shared by threads and tasks.
    """

    def __init__(
        self,
        settings: ContextSettings,
        counter: TokenCounter,
        *,
        store: BaseStore | None = None,
        embeddings: Embeddings | None = None,
        writer_id: str | None = None,
        summary_model: "ChatModel | None" = None,
        clock: stores.Clock,
        prices: Prices | None = None,
        recent: RecentPrompts | None = None,
    ) -> None:
        """Sets up as `ContextPipeline` says; nothing is read or written before it is needed."""
        self.settings = settings
        self.counter = counter
        self.clock = clock
        self.writer_id = stores.label(writer_id) if writer_id else stores.new_token()
        self.recent = recent or RecentPrompts()
        self.open_conversations = history.OpenConversations()
        self._store = stores.PrivateStore() if store is None else store
        self._embeddings = embeddings
        self._closed, self._process = False, os.getpid()
        self._of_runs: LruCache[Workspace] = LruCache()
        same: dict[str, Any] = {
            "embeddings": embeddings,
            "summary_model": summary_model,
            "clock": clock,
        }
        self._again = partial(
            Workspace, settings, counter, **same, prices=prices, recent=self.recent
        )
        self.summarizing = (
            history.Summarizing(summary_model, self) if summary_model is not None else None
        )
        self.sealing: Worker[stores.Scope] = Worker(self._seal)
        self.sealing_others: Worker[stores.Scope] = Worker(
            self._seal_other, pause_seconds=PAUSE_SECONDS
        )
        """Stores conversations in segments that were read for prompts of others."""
        self.libraries = history.Libraries(self._note_other)
        """The other conversations of users, as prompts search them."""
        self.vectors: dict[bytes, Vectors] = {}
        """Vectors of texts that were found outside of open conversations, by digests of the
        texts."""
        self._ahead: dict[stores.Scope, str] = {}
        """Words that are likely to come up, by the conversations that wait to be read ahead."""
        self.learning = Learning(self, summary_model)
        self.bookkeeping = Bookkeeping(lambda: self.store, clock, prices)

    @property
    def store(self) -> BaseStore:
        """The store of the conversations.

        A `StoreError` where the pipeline is closed, or of another process.
        """
        if self._closed:
            raise StoreError("This pipeline is closed; its store can no longer be used")
        if self._process != os.getpid():
            raise StoreError(
                f"This pipeline belongs to the parent of this process, which was forked. {AFTER_FORK}"
            )
        return self._store

    @cached_property
    def catalogue(self) -> "Catalogue":
        """The documents of the store, with a cache of those that were read."""
        from langchain_ctxbudget.documents import Catalogue  # noqa: PLC0415

        return Catalogue(self.store)

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The embeddings of retrieval; None where none were given and none are installed."""
        return self._embeddings or (LocalEmbeddings() if local_embeddings_available() else None)

    def over(self, store: BaseStore | None) -> "Workspace":
        """Returns the same over the store that a run brought along; None is this one."""
        if store is None or store is self._store:
            return self
        return self._of_runs.find(id(store), partial(self._again, store=store))

    def close(self) -> None:
        """Writes everything that is pending and ends the background work.

        A store that was passed in stays open.
        """
        if self._process != os.getpid():
            return
        for other in self._of_runs.all():
            other.close()
        self.bookkeeping.close()
        self.sealing.close()
        self.sealing_others.close()
        self.learning.close()
        if self.summarizing:
            self.summarizing.worker.close()
        self._closed = True

    def finish(self) -> list[Worker[Any]]:
        """Returns the workers that are busy."""
        workers: list[Worker[Any]] = [self.learning.worker, self.sealing, self.sealing_others]
        workers += [self.summarizing.worker] if self.summarizing else []
        others = (worker for other in self._of_runs.all() for worker in other.finish())
        return [*workers, self.bookkeeping.finish(), *others]

    def using(
        self, scope: stores.Scope, body: Callable[[history.OpenConversation], Flow[T]]
    ) -> Flow[T]:
        """Runs a flow with a conversation, alone."""
        _ = self.store  # in the child of a fork, nobody lets go of the conversation's lock any more
        return self.open_conversations.using(scope, body)

    def recall(
        self, scope: stores.Scope, body: Callable[[history.OpenConversation], Flow[T]]
    ) -> Flow[T]:
        """Runs a flow with a conversation that is up to date, alone."""
        self.learning.worker.rest()  # somebody waits for this
        self.sealing_others.rest()

        def refreshed(conversation: history.OpenConversation) -> Flow[T]:
            yield from history.editing.refresh(self.store, conversation)
            return (yield from body(conversation))

        return self.using(scope, refreshed)

    def of_run(
        self, conversation: history.OpenConversation, thread: str, *, claims: bool = True
    ) -> Flow[history.OpenConversation]:
        """Returns the conversation that a run's messages belong to.

        One apart, where the thread is another user's.

        A thread that is nobody's yet becomes the user's, where the run `claims` it. One that was
        found to be the user's is not looked for again while the log goes on; another user's is, as
        it may be handed over.
        """
        scope = conversation.scope
        if not scope.is_kept or scope.is_shared or conversation.owned_thread == thread:
            return conversation
        if claims:
            is_foreign = not (yield from stores.owners.claim(self.store, scope, thread))
        else:
            is_foreign = yield from stores.owners.belongs_to_another(
                self.store, scope.user_id, thread
            )
        if not is_foreign:
            conversation.apart = None
            conversation.owned_thread = thread if claims else None
            return conversation
        because = FOREIGN_THREAD % thread
        if self.settings.on_foreign_thread == "error":
            raise ForeignUserError(
                f"The thread {thread!r} is another user's, and on_foreign_thread is 'error'. Take another thread_id, "
                f"hand the thread over with `hand_over`, or set on_foreign_thread to 'show' or 'share'"
            )
        if conversation.apart is None:
            conversation.apart = conversation_apart(scope, because)
            _log.warning("%s", because)
        return conversation.apart

    def keep_guests(
        self,
        conversation: history.OpenConversation,
        messages: Sequence[BaseMessage],
        thread: str | None,
    ) -> Flow[None]:
        """Keeps which messages of an agent's state, before they are copied, are not the user's who owns the thread."""
        scope = conversation.scope
        if thread is None or not scope.is_kept or scope.is_shared:
            return
        known = conversation.table.positions
        new = list(
            takewhile(lambda message: message.id and message.id not in known, reversed(messages))
        )
        yield from stores.guests.keep(self.store, scope, thread, new[::-1], conversation.own_turn)

    def change(
        self,
        scope: stores.Scope,
        change: Callable[[history.Editor], Flow[T]],
        on_removal: history.OnRemoval | None = None,
        *,
        surely: bool = True,
    ) -> Flow[T]:
        """Changes a conversation, and has it learned from in the background."""
        if on_removal not in (None, "archive", "forget"):
            raise InputError(f"on_removal must be 'archive' or 'forget', not {on_removal!r}")

        def body(conversation: history.OpenConversation) -> Flow[T]:
            conversation.table.tree(
                self.settings.span_messages
            )  # it tells what was derived from what
            before = len(conversation.table), conversation.table.digest()
            result = yield from change(history.Editor(self.store, conversation, self.writer_id))
            if not conversation.table.holds(
                *before
            ):  # what was edited or removed must not live on there
                yield from self.libraries.forget(scope)
            if on_removal is not None and (surely or not conversation.table.holds(*before)):
                yield from self.learning.forget(scope, conversation)
                if on_removal == "forget":
                    forget_texts()
            conversation.table.read_ahead(before[0], self.settings.span_messages)
            self.learning.note(conversation)
            self.note_segments(conversation)
            return result

        return self.recall(scope, body)

    def note_segments(self, conversation: history.OpenConversation) -> None:
        """Stores the derived data of older messages in the background, if some is not stored yet."""
        lasting = conversation.scope.is_kept and not isinstance(self.store, stores.PrivateStore)
        if lasting and next(history.segments.lacking(conversation), None):
            self.sealing.submit(conversation.scope)

    def read_ahead(self, scope: stores.Scope, words: str) -> None:
        """Opens a conversation in the background and ranks it for some words, so that its next prompt embeds little."""
        self._ahead[scope] = words
        self.sealing.submit(scope)

    def _note_other(self, scope: stores.Scope) -> None:
        """Stores a conversation in segments in the background, as it was read for a prompt of another one."""
        if not isinstance(self.store, stores.PrivateStore):
            self.sealing_others.rest()  # the prompt is not made yet
            self.sealing_others.submit(scope)

    def _seal(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        if (words := self._ahead.pop(scope, None)) is not None:
            drive(self.recall(scope, partial(self._rank, words)))
        while not (cancelled or isinstance(self.store, stores.PrivateStore)):
            if not drive(self.recall(scope, partial(history.segments.seal, self.store))):
                break

    def _seal_other(self, scope: stores.Scope, cancelled: Cancelled) -> None:
        def step() -> Flow[bool]:
            opened = self.open_conversations.find(scope)
            return (yield from self.libraries.seal(self.store, scope, opened))

        while not cancelled and drive(self.open_conversations.alone(scope, step())):
            self.sealing_others.wait_for_pause()

    def _rank(self, words: str, conversation: history.OpenConversation) -> Flow[None]:
        scope = conversation.scope
        names = self.settings.sources if words else ()
        given = self.catalogue, scope.user_id, names, self.embeddings, scope.conversation_id
        sources = Sources(*given, vectors=self.vectors, others=self.libraries.of(scope.user_id))
        yield from search(sources, words, 0, conversation.seen_with(self.counter))

    def sync(
        self,
        messages: Sequence[BaseMessage],
        scope: stores.Scope,
        on_removal: history.OnRemoval,
        *,
        task: bool = False,
    ) -> Flow[list[str]]:
        """Makes a conversation equal to an agent's state; see `Editor.sync`."""
        given = checked(messages, "messages")
        return self.change(
            scope,
            lambda editor: editor.sync(given, on_removal, task=task),
            on_removal,
            surely=False,
        )

    def copy_state(
        self,
        scope: stores.Scope,
        messages: Sequence[BaseMessage],
        *,
        thread: str | None,
        task: bool = False,
    ) -> Flow[None]:
        """Copies an agent's state into the store, unless its thread is another user's.

        Where that fails, the next prompt does it, or says that it cannot.
        """
        _, given = split_instructions(checked(messages, "messages"))

        def copy(editor: history.Editor) -> Flow[None]:
            if thread is not None:
                seen = yield from self.of_run(editor.conversation, thread)
                if seen is not editor.conversation:
                    return
                yield from self.keep_guests(seen, given, thread)
            yield from editor.sync(given, "archive", task=task)

        try:
            yield from self.change(scope, copy, "archive", surely=False)
        except Exception as error:  # noqa: BLE001 - the state is the truth; the copy is tried again
            _log.warning(
                "conversation %r not copied to the store: %s", scope.conversation_id, error
            )

    def ask_for_rebuild(self, scope: stores.Scope, *, thread: str | None) -> Flow[None]:
        """Has the next prompt of a conversation written anew, with older messages compacted."""

        def body(conversation: history.OpenConversation) -> Flow[None]:
            if thread is not None:
                conversation = yield from self.of_run(conversation, thread, claims=False)
            if conversation.scope.is_kept:
                yield from self.read_marks(conversation)
            conversation.cuts = {
                key: cut.model_copy(update={"prefix": ""}) for key, cut in conversation.cuts.items()
            }
            conversation.cuts_unsaved = True

        return self.recall(scope, body)

    def read_marks(self, conversation: history.OpenConversation) -> Flow[None]:
        """Reads a conversation's compaction cuts and its pins.

        `StoreError` where these cannot be read.
        """
        self._name_maker(conversation)
        places = [conversation.scope.place(history.CUTS), conversation.scope.place(history.PINS)]
        failures = list[str]()
        cuts, pins = yield from batch(self.store, places)
        _take_up_cuts(conversation, cuts, [])
        _take_up_pins(conversation, pins, failures)
        if failures:
            raise StoreError(failures[0])

    def clear(self, scope: stores.Scope) -> Flow[None]:
        """Deletes a conversation and everything that was derived from it, also in the stores of runs."""
        self.bookkeeping.ledger.forget(scope)

        def body(conversation: history.OpenConversation) -> Flow[None]:
            path = (
                stores.ROOT,
                stores.label(scope.user_id),
                "*",
                stores.label(scope.conversation_id),
            )
            yield from self.learning.forget(scope)
            yield from stores.owners.release(self.store, scope)
            yield from self.libraries.forget(scope)
            try:
                yield from stores.bulk.delete_below(self.store, path, history.LANES, history.JOINED)
            finally:  # wherever it ends, what is left is read again; nothing may wait for a lock here
                yield from self._forget(conversation)
                forget_texts()
                self.vectors.clear()
            yield from self.libraries.forget(
                scope
            )  # a prompt of another conversation may have read it meanwhile

        yield from self.using(scope, body)
        yield from self._forget_apart(lambda other: other.conversation_id == scope.conversation_id)
        for other in self._of_runs.all():
            yield from other.clear(scope)

    def erase(self, user_id: str) -> Flow[int]:
        """Deletes everything of a user, also in the stores of runs.

        Returns how many records there were.
        """
        path = (stores.ROOT, stores.label(stores.require_id("user_id", user_id)))
        self.bookkeeping.ledger.erase(user_id)
        # Whatever is under way with a conversation ends before anything is deleted; and what was
        # begun in between is deleted in the end.
        count = 0
        yield from self._forget_apart(lambda _: True)
        for _ in range(2):
            for scope in self.open_conversations.all():
                if scope.user_id == user_id:
                    yield from self.using(scope, self._forget)
            yield from self.libraries.erase(user_id)
            known.interrupted(self.store, user_id)
            count += yield from stores.owners.release_all(self.store, user_id)
            deletion = stores.bulk.delete_below(
                self.store, path, history.LANES, history.JOINED, derived=history.SEGMENTS
            )
            count += yield from locked(known.lock_of(self.store, user_id), deletion)
        self.catalogue.forget(stores.label(user_id))
        yield from self.libraries.erase(user_id)
        self.vectors.clear()
        self.recent.forget(lambda scope: scope.user_id == user_id)
        for scope in self.open_conversations.all():
            if scope.user_id == user_id:
                self.open_conversations.drop(scope)
        forget_texts()
        for other in self._of_runs.all():
            count += yield from other.erase(user_id)
        return count

    def hand_over(self, conversation_id: str, from_user: str, to_user: str) -> Flow[None]:
        """Gives a thread to another user, with all that is stored of it, also in the stores of runs."""
        nowhere: list[ForeignUserError] = []
        workspaces = [self, *self._of_runs.all()]
        for workspace in workspaces:
            try:
                yield from workspace.hand_over_here(conversation_id, from_user, to_user)
            except ForeignUserError as error:
                nowhere.append(error)
        if len(nowhere) == len(workspaces):
            raise nowhere[0]

    def hand_over_here(self, conversation_id: str, from_user: str, to_user: str) -> Flow[None]:
        """Gives a thread to another user, in this store alone."""
        ids = yield from handover.conversations_of(
            self.store, conversation_id, (from_user, to_user)
        )
        scopes = [
            stores.Scope(user, one) for user in sorted((from_user, to_user)) for one in sorted(ids)
        ]

        def move(opened: Sequence[history.OpenConversation]) -> Flow[None]:
            try:
                begun = yield from handover.begin(self.store, ids, from_user, to_user)
                if begun is None:
                    return
                if not begun.is_copied:
                    yield from begun.copy()
                for one in ids:
                    yield from self.learning.forget(stores.Scope(from_user, one))
                yield from begun.finish()
            finally:  # wherever it ends, what is there is read again
                for conversation in opened:
                    yield from self._forget(conversation)
                self.vectors.clear()

        yield from self._using_all(scopes, move)
        for one in ids:
            self.bookkeeping.ledger.forget(stores.Scope(from_user, one))

    def _using_all(
        self,
        scopes: Sequence[stores.Scope],
        body: Callable[[Sequence[history.OpenConversation]], Flow[T]],
        opened: Sequence[history.OpenConversation] = (),
    ) -> Flow[T]:
        """Runs a flow with several conversations, alone.

        Whoever needs several takes them in one order.
        """
        if not scopes:
            return (yield from body(opened))

        def with_next(conversation: history.OpenConversation) -> Flow[T]:
            return (yield from self._using_all(scopes[1:], body, (*opened, conversation)))

        return (yield from self.using(scopes[0], with_next))

    def _forget_apart(self, chosen: Callable[[stores.Scope], bool]) -> Flow[None]:
        """Forgets what runs in other users' threads have in memory, of the conversations that are chosen."""

        def forget(conversation: history.OpenConversation) -> Flow[None]:
            yield from ()
            conversation.apart = None

        for scope, conversation in self.open_conversations.all().items():
            if conversation.apart is not None and chosen(scope):
                yield from self.using(scope, forget)
        self.recent.forget(lambda scope: not scope.is_kept and chosen(scope))

    def _forget(self, conversation: history.OpenConversation) -> Flow[None]:
        yield from ()
        conversation.reset()
        self.recent.forget(lambda scope: scope == conversation.scope)

    def read_stored(
        self, conversation: history.OpenConversation, request: Request, failures: list[str]
    ) -> Flow[Stored]:
        """Reads a conversation's cuts, pins, snapshot and progress, the settings and the knowledge, in one batch.

        Nothing of it is needed for a prompt: where the read fails, that is added to `failures`, and
        the turn goes on.
        """
        self._name_maker(conversation)
        scope = conversation.scope
        store = self.store
        user = conversation.scope.user_id
        if conversation.apart_because:
            settings, sources = merged(self.settings, {}, request.settings, failures)
            return Stored(settings, sources, NOTHING, ())
        kinds = {"cuts": history.CUTS, "pins": history.PINS, "snapshot": records.SNAPSHOT}
        if self.settings.learn and not scope.is_shared:
            kinds["learning"] = records.LEARNING
        places = {name: scope.place(kind) for name, kind in kinds.items()}
        places |= {"mark": records.mark_place(user), "user": stores.settings_place(user, None)}
        if request.persona_id is not None:
            places["persona"] = stores.settings_place(user, request.persona_id)
        if request.device_id is not None:
            places["device"] = records.PRESENCE.place(
                user, stores.require_id("device_id", request.device_id)
            )
        what = "compaction cuts, pins and saved settings not read"
        items = yield from with_fallback(batch(store, places.values()), None, what, failures)
        found: dict[str, object] = (
            dict(zip(places, items, strict=True)) if items is not None else {}
        )
        knowledge = None
        if found:
            _take_up_pins(conversation, found["pins"], failures)
            _take_up_cuts(conversation, found["cuts"], failures)
            if scope.is_kept and conversation.sent_read < len(conversation.table):
                yield from history.editing.read_sent(store, conversation)
            if not conversation.snapshot_unsaved:
                what = "what the conversation shows of the facts"
                shown = _read(stores.SnapshotRecord, found["snapshot"], what, failures)
                conversation.snapshot = shown or conversation.snapshot
            if "learning" in found:
                progress = _read(
                    records.ProgressRecord, found["learning"], "progress of learning", failures
                )
                self.learning.take_up(scope, progress or records.ProgressRecord())
            reading = known.read(store, user, found["mark"], marked=True)
            knowledge = yield from with_fallback(
                reading, None, "what is known about the user not read", failures
            )
        saved = {source: stores.settings_in(found.get(source)) for source in ("user", "persona")}
        settings, sources = merged(self.settings, saved, request.settings, failures)
        device = _read(ClientPresence, found.get("device"), "what is open on the device", failures)
        expected = (*device.predicted_topics, *device.predicted_entities) if device else ()
        knowledge = knowledge or known.kept_of(store, user).knowledge or Knowledge(is_read=False)
        return Stored(
            settings, sources, knowledge if settings.learn else knowledge.by_hand, expected
        )

    def _name_maker(self, conversation: history.OpenConversation) -> None:
        conversation.table.made.maker = (
            self.summarizing.summarizer.fingerprint if self.summarizing else ""
        )


def conversation_apart(scope: stores.Scope, because: str) -> history.OpenConversation:
    """Returns an empty conversation in memory only, for a run whose thread is not the user's."""
    conversation = history.OpenConversation(replace(scope, is_kept=False))
    conversation.apart_because = because
    return conversation


def _read(record: type[R], found: object, what: str, failures: list[str]) -> R | None:
    """Returns a stored record; a damaged one counts as missing, as it can be derived again."""
    try:
        return record.found(found)
    except StoreDataError as error:
        failures.append(f"{what} not read: {error}")
        return None


def _take_up_pins(
    conversation: history.OpenConversation, found: object, failures: list[str]
) -> None:
    before = len(failures)
    record = _read(stores.PinsRecord, found, "pins", failures)
    pins: Mapping[str, Preservation] = record.pins if record else {}
    if len(failures) == before and pins != conversation.pins:
        conversation.pin(pins)


def _take_up_cuts(
    conversation: history.OpenConversation, found: object, failures: list[str]
) -> None:
    record = _read(stores.CutsRecord, found, "compaction cuts", failures)
    newer = {cut.cut_key: cut for cut in record.cuts} if record else {}
    before = conversation.cuts
    conversation.cuts = {}
    for key in [
        *(key for key in newer if key not in before),
        *before,
    ]:  # what was used here last stays last
        cut = (
            before[key]
            if key in before and (key not in newer or conversation.cuts_unsaved)
            else newer[key]
        )
        if conversation.cut_is_valid(cut):
            conversation.use(cut)
