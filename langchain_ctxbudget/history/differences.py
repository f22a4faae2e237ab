"""What has to change in a stored conversation so that it holds the messages that somebody gives."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import MessageConflictError
from langchain_ctxbudget.history.conversation import OpenConversation
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.messages import SeenMessages, content_id, fingerprint, plainly_same
from langchain_ctxbudget.providers import (
    PROFILES,
    CallIds,
    accepted_history,
    ids_of_calls,
    without_call_ids,
)

TASK = -1
"""The state of an agent that runs inside another one's tool; its messages are archived when the
outer one goes on."""

MOST_NUMBERED = 20
"""An id of a call that is used again more often than this is not known again in what was sent."""


@dataclass(frozen=True, slots=True)
class IdentifiedMessage:
    """A message that has an id, and its fingerprint."""

    message: BaseMessage
    fingerprint: str
    has_given_id: bool
    """True if whoever gave the message gave the id, too."""

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.message.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes that turn a conversation into the wanted one."""

    ids: Sequence[str]
    """The ids of all messages that were given, in order."""
    appended: Sequence[IdentifiedMessage] = ()
    edited: Sequence[IdentifiedMessage] = ()
    removed: Sequence[str] = ()
    moved: Sequence[str] = ()
    """Ids of those that are appended, and are there already at another place."""
    state: int | None = None
    """Which of the agent's states the messages are, see `Place`; None for the newest."""
    forgotten: int = 0
    """The number of stored messages that the agent's state has forgotten."""

    @property
    def changes_log(self) -> bool:
        """True if anything has to be written."""
        return bool(self.appended or self.edited or self.removed)


def additions(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> Difference:
    """Returns the difference that appends the messages that are not there yet.

    Raises:
        MessageConflictError: A message has the id of another one that says something else.
    """
    table = conversation.table
    appended: dict[str, IdentifiedMessage] = {}
    identified = identify(messages, table, adds=True)
    for message in identified:
        position = table.positions.get(message.id)
        if position is None:
            first = appended.setdefault(message.id, message)
            is_same = first.fingerprint == message.fingerprint
        elif table.fingerprint(position) == message.fingerprint:
            is_same = True
        else:
            is_same = _is_as_sent(table[position].message, message)

        if not is_same:
            raise MessageConflictError(
                f"The conversation {conversation.scope.conversation_id!r} knows message "
                f"{message.id!r} with other content, and add_messages only appends. Nothing was "
                f"written. To change a message, call `edit_message`; to change or remove several, "
                f"call `sync` with all messages as they should be"
            )
    ids = [message.id for message in identified]
    return Difference(ids=ids, appended=list(appended.values()))


def _is_as_sent(stored: BaseMessage, message: IdentifiedMessage) -> bool:
    """Returns whether a message is the stored one as some provider gets it."""
    ids = list(ids_of_calls(message.message))
    given = fingerprint(without_call_ids(message.message))
    for profile in PROFILES.values():
        if not _are_sent_as(ids_of_calls(stored), ids, profile.call_ids):
            continue
        # Behind another one, as what is first may stay as it is.
        _, *sent = accepted_history([HumanMessage("."), stored], profile)
        if any(fingerprint(without_call_ids(form)) == given for form in sent or [stored]):
            return True
    return False


def _are_sent_as(stored_ids: Sequence[str], given_ids: Sequence[str], rules: CallIds) -> bool:
    """Returns whether ids of calls are those of stored ones as a provider gets them."""
    if len(stored_ids) != len(given_ids):
        return False
    return all(
        given == rules.accepted(stored) or given in _numbered(rules.accepted(stored), rules)
        for stored, given in zip(stored_ids, given_ids, strict=True)
    )


def _numbered(call_id: str, rules: CallIds) -> list[str]:
    """Returns what an id is sent as where others have used it before."""
    return [rules.numbered(call_id, number) for number in range(1, MOST_NUMBERED + 1)]


def difference_to_state(
    conversation: OpenConversation, messages: Sequence[BaseMessage], *, goes_on: bool, task: bool
) -> Difference:
    """Returns the difference between a conversation and the messages of an agent's state.

    Args:
        conversation: The conversation, up to date.
        messages: All messages of the state.
        goes_on: True if the state has not forgotten what it lacks: it has removed that.
        task: True for the state of an agent that runs inside another one's tool.
    """
    appended = _only_appended(conversation, messages)
    if appended is not None:
        return Difference(
            ids=[*conversation.table.ids, *(message.id for message in appended)],
            appended=appended,
            state=TASK if task else conversation.newest_state,
        )

    table = conversation.table
    wanted = _under_stored_ids(conversation, messages)
    order = list(wanted)
    staying, missing = _split(table.ids, wanted)
    in_place = _length_of_same_beginning(staying, order)

    states = dict(zip(table.ids, table.facts.values["state"].tolist(), strict=True))
    state = _state_of(
        staying=set(map(states.__getitem__, staying)),
        missing=set(map(states.__getitem__, missing)),
        newest=conversation.newest_state,
        goes_on=goes_on,
        task=task,
    )

    return Difference(
        ids=order,
        state=state.number,
        appended=[wanted[message_id] for message_id in order[in_place:]],
        edited=_edited(table, [wanted[message_id] for message_id in staying]),
        removed=[message_id for message_id in missing if states[message_id] in state.owned],
        moved=staying[in_place:],
        forgotten=len(missing) if state.has_forgotten else 0,
    )


def is_within(conversation: OpenConversation, turn: Sequence[BaseMessage]) -> bool:
    """Tells whether a turn has all that is stored, as where a second agent goes on with it.

    Then the stored messages are none that a state without them has forgotten.
    """
    stored_ids = conversation.table.ids
    if not 0 < len(stored_ids) <= len(turn):
        return False
    return _under_stored_ids(conversation, turn).keys() >= set(stored_ids)


def _only_appended(
    conversation: OpenConversation, messages: Sequence[BaseMessage]
) -> list[IdentifiedMessage] | None:
    """Returns what follows the stored messages, or None if anything else has to change.

    Nearly always an agent's state is what is stored, and then something new.
    """
    table = conversation.table
    appended = messages[len(table) :]
    ids = [message.id for message in appended]
    has_new_ids = all(ids) and len(set(ids)) == len(ids) and table.positions.keys().isdisjoint(ids)
    if has_new_ids and begins_with_stored(conversation, messages):
        return with_fingerprints(appended)
    return None


def _split(ids: Iterable[str], wanted: Container[str]) -> tuple[list[str], list[str]]:
    """Returns the ids that are wanted, and those that are not."""
    staying: list[str] = []
    missing: list[str] = []
    for message_id in ids:
        if message_id in wanted:
            staying.append(message_id)
        else:
            missing.append(message_id)
    return staying, missing


def _edited(table: MessageTable, messages: Iterable[IdentifiedMessage]) -> list[IdentifiedMessage]:
    """Returns the messages that do not say what the stored ones of their ids say."""
    edited: list[IdentifiedMessage] = []
    for message in messages:
        position = table.positions[message.id]
        if table.fingerprint(position) != message.fingerprint:
            edited.append(message)
    return edited


def _length_of_same_beginning(staying: Sequence[str], order: Sequence[str]) -> int:
    """Returns how many of the stored messages that stay are at their place in the wanted order."""
    for position, (stored_id, wanted_id) in enumerate(zip(staying, order, strict=False)):
        if stored_id != wanted_id:
            return position
    return len(staying)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AgentState:
    """Which of an agent's states some messages are."""

    number: int
    owned: set[int]
    """The states whose messages it has removed if it lacks them."""
    has_forgotten: bool = False
    """True if it holds none of what is stored, as after a restart."""


def _state_of(
    *, staying: set[int], missing: set[int], newest: int, goes_on: bool, task: bool
) -> _AgentState:
    """Returns which state some messages are.

    Args:
        staying: The states of the stored messages that are among them.
        missing: The states of the stored messages that are not.
        newest: The newest state of the conversation.
        goes_on: True if they have not forgotten what they lack.
        task: True if an agent that runs inside another one's tool has them.
    """
    if task:
        return _AgentState(number=TASK, owned={TASK} | staying | missing)

    owned = {TASK} | staying
    newest_missing = max(missing, default=TASK)
    has_forgotten = False
    if owned == {TASK} and newest_missing > TASK:
        # Nothing of any state is left: the state was lost, or it removed all that it once held.
        has_forgotten = not goes_on or newest_missing < newest
        owned.add(newest_missing + 1 if has_forgotten else newest_missing)

    number = max(owned)
    if number == TASK:
        number = newest
    return _AgentState(number=number, owned=owned, has_forgotten=has_forgotten)


def _under_stored_ids(
    conversation: OpenConversation, messages: Sequence[BaseMessage]
) -> dict[str, IdentifiedMessage]:
    """Returns messages under the conversation's ids for them, in order.

    That is their own id, or the id of a stored message with the same words: whoever keeps no ids
    gives each message under a new one with every turn. Whoever has forgotten says "hello" again:
    words count only among the messages of the states that ids tell of, else of the newest one.

    Raises:
        MessageConflictError: Two messages have the same id and say different things.
    """
    table = conversation.table
    identified = _distinct(identify(messages, table))
    known_positions: dict[str, int] = {}
    for message_id, message in identified.items():
        position = table.positions.get(message_id)
        if message.has_given_id and position is not None:
            known_positions[message_id] = position

    positions_saying: Mapping[str, list[int]] = {}
    if len(known_positions) < len(identified):
        positions_saying = _positions_by_words(conversation, known_positions)

    taken = {*identified, *table.ids}
    first_free = 0
    wanted: dict[str, IdentifiedMessage] = {}
    for message_id, message in identified.items():
        position = known_positions.get(message_id)
        if position is None:
            position = _first_from(positions_saying.get(message.fingerprint, ()), first_free)

        stored_id = message_id
        if position is not None:
            stored_id = table.ids[position]
            first_free = max(first_free, position + 1)
        elif message_id in table.positions:  # made of what another message says, too
            stored_id = _free_content_id(message.fingerprint, taken)
            taken.add(stored_id)

        wanted[stored_id] = IdentifiedMessage(
            _with_id(message.message, stored_id), message.fingerprint, has_given_id=True
        )
    return wanted


def _distinct(messages: Iterable[IdentifiedMessage]) -> dict[str, IdentifiedMessage]:
    """Returns messages by their ids.

    Raises:
        MessageConflictError: Two have the same id and say different things.
    """
    by_id: dict[str, IdentifiedMessage] = {}
    for message in messages:
        first = by_id.setdefault(message.id, message)
        if first.fingerprint != message.fingerprint:
            raise MessageConflictError(
                f"messages has id {message.id!r} twice, with other content; ids must be unique"
            )
    return by_id


def _positions_by_words(
    conversation: OpenConversation, known_positions: Mapping[str, int]
) -> dict[str, list[int]]:
    """Returns where the stored messages stand that may be the given ones, by their fingerprints."""
    table = conversation.table
    state_column = table.facts.values["state"]
    states = set(state_column[list(known_positions.values())].tolist())
    if not states:
        states = {conversation.newest_state}

    positions_saying: defaultdict[str, list[int]] = defaultdict(list)
    for position, message_id in enumerate(table.ids):
        if state_column[position] in states and message_id not in known_positions:
            positions_saying[table.fingerprint(position)].append(position)
    return positions_saying


def _first_from(positions: Sequence[int], first: int) -> int | None:
    """Returns the first of some ascending positions that is not before `first`."""
    index = bisect_left(positions, first)
    return positions[index] if index < len(positions) else None


def _free_content_id(content: str, taken: set[str]) -> str:
    """Returns the first id made of a fingerprint that no message has."""
    number = 1
    while content_id(content, number) in taken:
        number += 1
    return content_id(content, number)


def _with_id(message: BaseMessage, message_id: str) -> BaseMessage:
    if message.id == message_id:
        return message
    return message.model_copy(update={"id": message_id})


def begins_with_stored(conversation: OpenConversation, messages: Sequence[BaseMessage]) -> bool:
    """Returns whether an agent's messages begin with the stored ones.

    Those that were checked before are only compared by identity.
    """
    table = conversation.table
    end = len(table)
    seen, digest = conversation.seen_state
    if not (table.holds(len(seen.messages), digest) and seen.begin(messages)):
        seen = SeenMessages()

    checked = len(seen.messages)
    unchecked = messages[checked:end]
    if [message.id for message in unchecked] != table.ids[checked:]:
        return False
    for position, message in enumerate(unchecked, checked):
        if not _says_stored(table, position, message):
            return False

    if checked < end:
        conversation.seen_state = (seen.grown(messages[:end]), table.digest())
    return True


def _says_stored(table: MessageTable, position: int, message: BaseMessage) -> bool:
    """Returns whether a message says what a stored one says, without decoding that one."""
    entry = table.held.get(position)
    if entry is not None:
        return plainly_same(message, entry.message)
    return fingerprint(message) == table.fingerprint(position)


def identify(
    messages: Sequence[BaseMessage], table: MessageTable, *, adds: bool = False
) -> list[IdentifiedMessage]:
    """Returns messages with ids and fingerprints.

    An id is made of what a message says, and how often that was said.

    Args:
        messages: Messages with or without ids.
        table: The messages that are stored.
        adds: True if they come after what is stored, so that what was said before counts.
    """
    times_said: Counter[str] = Counter()
    given_ids = {str(message.id) for message in messages if message.id}
    identified: list[IdentifiedMessage] = []
    for message in messages:
        content = _fingerprint_of(message, table)
        if adds and content not in times_said:
            times_said[content] = table.times_said(content)
        times_said[content] += 1
        if message.id:
            identified.append(IdentifiedMessage(message, content, has_given_id=True))
            continue

        message_id = content_id(content, times_said[content])
        while message_id in given_ids or (adds and message_id in table.positions):
            times_said[content] += 1
            message_id = content_id(content, times_said[content])
        identified.append(
            IdentifiedMessage(_with_id(message, message_id), content, has_given_id=False)
        )
    return identified


def _fingerprint_of(message: BaseMessage, table: MessageTable) -> str:
    """Returns a message's fingerprint; the stored one where the message is as it was."""
    position = table.positions.get(message.id or "")
    if position is not None and _says_stored(table, position, message):
        return table.fingerprint(position)
    return fingerprint(message)


def with_fingerprints(messages: Iterable[BaseMessage]) -> list[IdentifiedMessage]:
    """Returns messages that have ids with their fingerprints."""
    return [
        IdentifiedMessage(message, fingerprint(message), has_given_id=True) for message in messages
    ]


def records_of(
    messages: Iterable[IdentifiedMessage],
    *,
    lane: str = "",
    clock: int = 0,
    first: int = 0,
    state: int = 0,
) -> list[stores.MessageRecord]:
    """Returns the records of messages that stand in a row in a lane, from number `first` on."""
    records = []
    for number, message in enumerate(messages, first):
        place = stores.Place(clock=clock, lane=lane, number=number, state=state)
        records.append(stores.MessageRecord.of(message.message, place, named=message.has_given_id))
    return records
