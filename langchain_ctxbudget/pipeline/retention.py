"""Retention: what is older than a policy says is erased, for one user or for all.

A conversation is looked at without being opened: its lanes, and the age of its oldest message as
the last sweep noted it. Only what has something to erase is opened, under its lock, and changed as
an application changes it: other processes are told, and nothing derived from an erased message
stays. So a sweep can be repeated, cut off, or run by several processes at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from langgraph.store.base import PutOp

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import (
    CtxBudgetError,
    InvalidSettingsError,
    StoreDataError,
    checks_names,
)
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.knowledge import Knowledge, known, merging
from langchain_ctxbudget.pipeline.snapshots import SNAPSHOTS
from langchain_ctxbudget.pipeline.stored import OldMessages, StoredConversation
from langchain_ctxbudget.settings import RetentionPolicy

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.workspace import Workspace


@checks_names()
@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep has erased, or would erase.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> ContextPipeline().sweep({"messages": 90}).messages
        0
    """

    messages: int = 0
    conversations: int = 0
    """Conversations of which no message was left: they are gone."""
    facts: int = 0
    """Facts, topics, people and rules, by their own age or with the messages that told them; and
    devices."""
    snapshots: int = 0
    derived: int = 0
    """Pieces of derived data of conversations that nobody has written to."""
    users: int = 0
    """Users whose records were looked at."""
    failures: tuple[str, ...] = ()
    """What could not be swept, and why; the next sweep tries again."""

    def __add__(self, other: "SweepResult") -> "SweepResult":
        sums: dict[str, Any] = {}
        for each in fields(self):
            sums[each.name] = getattr(self, each.name) + getattr(other, each.name)
        return SweepResult(**sums)

    @property
    def erased(self) -> int:
        """The number of messages, facts, reports and pieces of derived data."""
        return self.messages + self.facts + self.snapshots + self.derived


def sweep(
    workspace: "Workspace", policy: RetentionPolicy | None, *, is_dry_run: bool
) -> Flow[SweepResult]:
    """Erases what is older than a policy says, also in the stores that runs brought along.

    Args:
        workspace: the workspace.
        policy: the policy; None: the one in the settings, or in those saved for a user.
        is_dry_run: True to tell what would be erased, and write nothing.
    """
    result = SweepResult()
    for one in (workspace, *workspace.of_runs()):
        users = yield from users_of(one)
        result += SweepResult(failures=users.failures)
        for user_id in users.ids:
            result += yield from sweep_if_readable(one, policy, user_id, is_dry_run=is_dry_run)
    return result


def sweep_user(
    workspace: "Workspace", policy: RetentionPolicy | None, user_id: str, *, is_dry_run: bool
) -> Flow[SweepResult]:
    """Erases of one user what is older than a policy says, in all stores; see `sweep`."""
    user_id = stores.require_id("user_id", user_id)
    result = SweepResult(users=1)
    for one in (workspace, *workspace.of_runs()):
        swept = yield from sweep_in(one, policy, user_id, is_dry_run=is_dry_run)
        result += replace(swept, users=0)
    return result


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a store."""

    ids: list[str]
    failures: tuple[str, ...]
    """What to say of users whose ids cannot be told from what is stored."""


def users_of(workspace: "Workspace") -> Flow[Users]:
    """Returns the users of a store, by the labels of their records."""
    namespaces = yield from stores.read_namespaces(workspace.store, (stores.ROOT,), max_depth=2)
    labels = {namespace[1] for namespace in namespaces if len(namespace) > 1}
    labels.discard(stores.owners.OUTSIDE_OF_USERS)
    ids: list[str] = []
    for name in sorted(labels):
        user_id = stores.user_of(name)
        if user_id is not None:
            ids.append(user_id)
    if len(ids) == len(labels):
        return Users(ids, ())
    failure = (
        f"users not swept: {len(labels) - len(ids)}; the store has their ids, of more than "
        f"{stores.LONGEST_LABEL} characters, in short: name them to `sweep_user`"
    )
    return Users(ids, (failure,))


def sweep_if_readable(
    workspace: "Workspace", policy: RetentionPolicy | None, user_id: str, *, is_dry_run: bool
) -> Flow[SweepResult]:
    """Erases what is too old of one of many users in one store.

    Damaged records of the user are told as a failure: the others are swept nevertheless.
    """
    try:
        return (yield from sweep_in(workspace, policy, user_id, is_dry_run=is_dry_run))
    except StoreDataError as error:
        return SweepResult(users=1, failures=(f"{user_id!r} not swept to the end: {error}",))


def sweep_in(
    workspace: "Workspace", policy: RetentionPolicy | None, user_id: str, *, is_dry_run: bool
) -> Flow[SweepResult]:
    """Erases what is older than a policy says of one user in one store."""
    if policy is None:
        policy = yield from _policy_of(workspace, user_id)
    conversations: list[history.ages.ListedConversation] = []
    if policy.messages is not None or policy.derived is not None:
        conversations = yield from history.ages.list_conversations(workspace.store, user_id)
    user_sweep = _UserSweep(
        workspace=workspace,
        user_id=user_id,
        policy=policy,
        now=stores.utc(workspace.clock()),
        conversations=conversations,
    )
    if is_dry_run:
        return (yield from user_sweep.foretell())
    return (yield from user_sweep.run())


def _policy_of(workspace: "Workspace", user_id: str) -> Flow[RetentionPolicy]:
    """Returns the policy in the settings of a user.

    Raises:
        StoreDataError: the settings saved for the user cannot be used. The pipeline's own must not
            stand in for them: they may erase what the user's keep.
    """
    place = stores.settings_place(user_id, None)
    saved = yield from stores.read_settings(workspace.store, place)
    try:
        return workspace.settings.override(saved).retention
    except InvalidSettingsError as error:
        raise StoreDataError(
            f"The settings saved for {user_id!r} cannot be used, and may keep more than a sweep "
            f"without them: {error}. Save them again, or name a policy to `sweep_user`"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _UserSweep:
    """A sweep over the records that one store has of one user."""

    workspace: "Workspace"
    user_id: str
    policy: RetentionPolicy
    now: datetime
    conversations: Sequence[history.ages.ListedConversation]
    failures: list[str] = field(default_factory=list)

    def run(self) -> Flow[SweepResult]:
        """Erases what is too old."""
        workspace = self.workspace
        before = self._before(self.policy.messages)
        old: dict[stores.Scope, OldMessages] = {}
        conversations = 0
        knowledge: Knowledge | None = None
        due = yield from self._due_conversations(notes=True)
        for scope in due:
            if knowledge is None:
                knowledge = yield from known.read(workspace.store, self.user_id)
            stored = StoredConversation(workspace, scope)
            try:
                old[scope] = yield from stored.erase_old(before, self.policy)
                if old[scope].is_all:
                    conversations += yield from stored.dissolve()
            except CtxBudgetError as error:
                self._note_failure(scope, error)

        facts = yield from self._forget_facts(knowledge)
        messages = sum(each.count for each in old.values())
        if messages or facts:
            yield from self._forget_quotes()
        snapshots = yield from self._snapshots()
        yield from stores.bulk.write(workspace.store, snapshots)
        derived = yield from self._clear_unused()
        return self._result(messages, conversations, facts, len(snapshots), derived)

    def foretell(self) -> Flow[SweepResult]:
        """Returns what would be erased, and writes nothing."""
        workspace = self.workspace
        before = self._before(self.policy.messages)
        knowledge = yield from known.read(workspace.store, self.user_id)
        after = knowledge
        messages = 0
        conversations = 0
        due = yield from self._due_conversations(notes=False)
        for scope in due:
            try:
                old = yield from StoredConversation(workspace, scope).old_messages(
                    before, self.policy
                )
            except CtxBudgetError as error:
                self._note_failure(scope, error)
                continue
            messages += old.count
            conversations += old.is_all
            after = merging.without_messages(
                after, scope.conversation_id, old.there, self.now, is_gone=old.is_all
            )

        devices = 0
        if self.policy.facts is not None:
            oldest = self._before(self.policy.facts)
            learning = workspace.workers.learning
            devices = len((yield from learning.old_devices(self.user_id, oldest)))
            after = merging.without_older(
                after, oldest, self.now, keep_pinned=self.policy.keep_pinned
            )
        snapshots = yield from self._snapshots()
        derived = 0
        for scope in self._unused():
            derived += yield from history.count_unused(workspace.store, scope)
        facts = devices + _items(knowledge) - _items(after)
        return self._result(messages, conversations, facts, len(snapshots), derived)

    def _result(
        self, messages: int, conversations: int, facts: int, snapshots: int, derived: int
    ) -> SweepResult:
        return SweepResult(
            messages=messages,
            conversations=conversations,
            facts=facts,
            snapshots=snapshots,
            derived=derived,
            users=1,
            failures=tuple(self.failures),
        )

    def _before(self, days: float | None) -> datetime:
        """Returns the time before which something is too old; the beginning of time for None."""
        if days is None:
            return datetime.min.replace(tzinfo=self.now.tzinfo)
        return self.now - timedelta(days=days)

    def _note_failure(self, scope: stores.Scope, error: CtxBudgetError) -> None:
        self.failures.append(f"{scope.conversation_id!r} of {self.user_id!r} not swept: {error}")

    def _due_conversations(self, *, notes: bool) -> Flow[list[stores.Scope]]:
        """Returns the conversations that have messages that are too old.

        Also those that an earlier sweep has emptied, and not deleted.

        Args:
            notes: Whether the ages of their messages are noted for the next sweep.
        """
        if self.policy.messages is None:
            return []
        store = self.workspace.store
        before = self._before(self.policy.messages)
        due: list[stores.Scope] = []
        known_ages = yield from history.ages.read_ages(store, self.conversations)
        for conversation, known_age in zip(self.conversations, known_ages, strict=True):
            scope = conversation.scope
            try:
                ages = yield from history.ages.brought_up_to_date(store, conversation, known_age)
            except CtxBudgetError as error:
                self._note_failure(scope, error)
                continue
            if notes and ages != known_age:
                yield from history.ages.note(store, scope, ages)
            if (ages.oldest or conversation.written_at) < before:
                due.append(scope)
        return due

    def _forget_facts(self, knowledge: Knowledge | None) -> Flow[int]:
        """Forgets what has not come up for long; returns how much is gone since the sweep began.

        Args:
            knowledge: What was known then; None where nothing was erased since.
        """
        workspace = self.workspace
        forgotten = 0
        if self.policy.facts is not None:
            if knowledge is None:
                knowledge = yield from known.read(workspace.store, self.user_id)
            forgotten = yield from workspace.workers.learning.forget_older(
                self.user_id,
                self._before(self.policy.facts),
                keep_pinned=self.policy.keep_pinned,
            )
        if knowledge is None:
            return 0
        after = yield from known.read(workspace.store, self.user_id)
        return forgotten + max(0, _items(knowledge) - _items(after))

    def _forget_quotes(self) -> Flow[None]:
        """Forgets what prompts of the user have shown: it may quote what is erased."""
        workspace = self.workspace
        conversation_ids = yield from history.log.read_conversations(workspace.store, self.user_id)
        for conversation_id in conversation_ids:
            scope = stores.Scope(self.user_id, conversation_id)
            yield from StoredConversation(workspace, scope).forget_backgrounds()
        workspace.forget_prompts(lambda scope: scope.user_id == self.user_id)
        workspace.forget_by_text()

    def _snapshots(self) -> Flow[list[PutOp]]:
        """Returns the deletions of the reports that are too old."""
        if self.policy.snapshots is None:
            return []
        before = self._before(self.policy.snapshots)
        path = (stores.ROOT, stores.label(self.user_id), SNAPSHOTS)
        items = yield from stores.bulk.read_below(self.workspace.store, path)
        old = [item for item in items if stores.utc(item.created_at) < before]
        return stores.bulk.deletions_of(old)

    def _unused(self) -> list[stores.Scope]:
        """Returns the conversations that nobody has written to for long."""
        if self.policy.derived is None:
            return []
        before = self._before(self.policy.derived)
        return [each.scope for each in self.conversations if each.written_at < before]

    def _clear_unused(self) -> Flow[int]:
        """Deletes what is derived from conversations that nobody has written to for long."""
        workspace = self.workspace
        count = 0
        for scope in self._unused():
            clearing = history.clear_unused(workspace.store, scope)
            count += yield from workspace.open_conversations.alone(scope, clearing)
        return count


def _items(knowledge: Knowledge) -> int:
    """Returns how many items are known of a user."""
    lists = (
        knowledge.facts,
        knowledge.ended_facts,
        knowledge.rules,
        knowledge.topics,
        knowledge.entities,
    )
    return sum(map(len, lists))
