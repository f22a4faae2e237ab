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
    listing = history.ages.Listing()
    if policy.messages is not None or policy.derived is not None:
        listing = yield from history.ages.list_conversations(workspace.store, user_id)
    user_sweep = _UserSweep(
        workspace=workspace,
        user_id=user_id,
        policy=policy,
        is_dry_run=is_dry_run,
        now=stores.utc(workspace.clock()),
        conversations=listing.conversations,
    )
    for conversation_id, error in listing.damaged.items():
        user_sweep.note_failure(conversation_id, error)
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
class _ErasedMessages:
    """What a sweep has erased of a user's messages, or would erase."""

    messages: int
    conversations: int
    knowledge: Knowledge | None
    """What is known of the user without them; None where nobody has looked."""
    facts: int
    """The number of items that were known by them alone."""


_NOTHING_ERASED = _ErasedMessages(messages=0, conversations=0, knowledge=None, facts=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UserSweep:
    """A sweep over the records that one store has of one user.

    A dry run takes the same steps, and writes nothing. So that it tells what a sweep erases, each
    step counts what is there before messages are erased: reports and derived data go first, and
    what is learned anew afterwards is not counted.
    """

    workspace: "Workspace"
    user_id: str
    policy: RetentionPolicy
    is_dry_run: bool
    now: datetime
    conversations: Sequence[history.ages.ListedConversation]
    failures: list[str] = field(default_factory=list)

    def run(self) -> Flow[SweepResult]:
        """Erases what is too old."""
        snapshots = yield from self._erase_snapshots()
        derived = yield from self._clear_unused()
        erased = yield from self._erase_messages()
        facts = erased.facts
        facts += yield from self._forget_facts(erased.knowledge)
        if (erased.messages or facts) and not self.is_dry_run:
            yield from self._forget_quotes()
        return SweepResult(
            messages=erased.messages,
            conversations=erased.conversations,
            facts=facts,
            snapshots=snapshots,
            derived=derived,
            users=1,
            failures=tuple(self.failures),
        )

    def note_failure(self, conversation_id: str, error: CtxBudgetError) -> None:
        """Notes that a conversation could not be swept."""
        self.failures.append(f"{conversation_id!r} of {self.user_id!r} not swept: {error}")

    def _before(self, days: float) -> datetime:
        """Returns the time before which something is too old."""
        return self.now - timedelta(days=days)

    # Reports and derived data

    def _erase_snapshots(self) -> Flow[int]:
        """Erases the reports that are too old; returns how many there were."""
        if self.policy.snapshots is None:
            return 0
        before = self._before(self.policy.snapshots)
        path = (stores.ROOT, stores.label(self.user_id), SNAPSHOTS)
        items = yield from stores.bulk.read_below(self.workspace.store, path)
        old = [item for item in items if stores.utc(item.created_at) < before]
        if not self.is_dry_run:
            yield from stores.bulk.write(self.workspace.store, stores.bulk.deletions_of(old))
        return len(old)

    def _clear_unused(self) -> Flow[int]:
        """Deletes what is derived from conversations that nobody has written to for long.

        Returns how many pieces there were.
        """
        if self.policy.derived is None:
            return 0
        workspace = self.workspace
        before = self._before(self.policy.derived)
        count = 0
        for conversation in self.conversations:
            if conversation.written_at >= before:
                continue
            scope = conversation.scope
            if self.is_dry_run:
                count += yield from history.count_unused(workspace.store, scope)
            else:
                clearing = history.clear_unused(workspace.store, scope)
                count += yield from workspace.open_conversations.alone(scope, clearing)
        return count

    # Messages

    def _erase_messages(self) -> Flow[_ErasedMessages]:
        """Erases the messages that are too old, and conversations that have no others."""
        if self.policy.messages is None:
            return _NOTHING_ERASED
        before = self._before(self.policy.messages)
        due = yield from self._due_conversations(before)
        if not due:
            return _NOTHING_ERASED
        known_before = yield from known.read(self.workspace.store, self.user_id)
        knowledge = known_before
        messages = 0
        conversations = 0
        for conversation in due:
            scope = conversation.scope
            try:
                old = yield from self._erase_old(conversation, before)
            except CtxBudgetError as error:
                self.note_failure(scope.conversation_id, error)
                continue
            messages += old.count
            knowledge = merging.without_messages(
                knowledge, scope.conversation_id, old.there, self.now, is_gone=old.is_all
            )
            if old.is_all:
                conversations += yield from self._dissolve(scope)
        return _ErasedMessages(
            messages=messages,
            conversations=conversations,
            knowledge=knowledge,
            facts=_items(known_before) - _items(knowledge),
        )

    def _erase_old(
        self, conversation: history.ages.ListedConversation, before: datetime
    ) -> Flow[OldMessages]:
        """Erases the messages of a conversation that are too old, and returns them."""
        stored = StoredConversation(self.workspace, conversation.scope)
        if self.is_dry_run:
            return stored.old_messages(before, self.policy)
        return stored.erase_old(before, self.policy, conversation.written_at)

    def _dissolve(self, scope: stores.Scope) -> Flow[bool]:
        """Deletes what is left of a conversation without messages; returns whether it is gone."""
        if self.is_dry_run:
            return True
        try:
            return (yield from StoredConversation(self.workspace, scope).dissolve())
        except CtxBudgetError as error:
            self.note_failure(scope.conversation_id, error)
            return False

    def _due_conversations(self, before: datetime) -> Flow[list[history.ages.ListedConversation]]:
        """Returns the conversations that have messages that are too old.

        Also those that an earlier sweep has emptied, and not deleted. Notes the ages of all
        messages for the next sweep.
        """
        store = self.workspace.store
        due: list[history.ages.ListedConversation] = []
        for conversation in self.conversations:
            scope = conversation.scope
            try:
                ages = yield from history.ages.brought_up_to_date(
                    store, scope, conversation.heads, conversation.ages
                )
            except CtxBudgetError as error:
                self.note_failure(scope.conversation_id, error)
                continue
            if ages != conversation.ages and not self.is_dry_run:
                yield from history.ages.note(store, scope, ages)
            if (ages.oldest or conversation.written_at) < before:
                due.append(conversation)
        return due

    def _forget_quotes(self) -> Flow[None]:
        """Forgets what prompts of the user have shown: it may quote what is erased."""
        workspace = self.workspace
        yield from history.erase_backgrounds(workspace.store, self.user_id)
        # Those that are open have theirs in memory, and may have written them again meanwhile.
        for scope in workspace.open_conversations.all():
            if scope.user_id == self.user_id:
                yield from StoredConversation(workspace, scope).forget_backgrounds()
        workspace.forget_prompts(lambda scope: scope.user_id == self.user_id)
        workspace.forget_by_text()

    # Facts

    def _forget_facts(self, knowledge: Knowledge | None) -> Flow[int]:
        """Forgets what has not come up for long; returns how many items and devices that were.

        Args:
            knowledge: What is known without the messages that are erased; None: what is stored.
        """
        if self.policy.facts is None:
            return 0
        workspace = self.workspace
        learning = workspace.workers.learning
        before = self._before(self.policy.facts)
        keep_pinned = self.policy.keep_pinned
        if knowledge is None:
            knowledge = yield from known.read(workspace.store, self.user_id)
        after = merging.without_older(knowledge, before, self.now, keep_pinned=keep_pinned)
        if self.is_dry_run:
            devices = len((yield from learning.old_devices(self.user_id, before)))
        else:
            devices = yield from learning.forget_older(
                self.user_id, before, keep_pinned=keep_pinned
            )
        return devices + _items(knowledge) - _items(after)


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
