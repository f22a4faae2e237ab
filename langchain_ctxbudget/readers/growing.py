"""Conversations put together from the requests that were sent while they grew.

A trace has every call of a model, and each call has the whole conversation so far. Read one by one,
a conversation of a hundred turns would be a hundred conversations. Here they become one again, with
each message once. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.messages import plain_text, split_instructions

Key = tuple[str, ...]
"""What tells a message from the others, however often and in whatever form it was sent."""
START: Key = ()
"""Stands before the first message."""
SURE_RUN = 2
"""So many messages in a row have to be the same where neither list is matched to its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model."""

    messages: Sequence[BaseMessage]
    """What was sent, and the model's answer at the end."""
    thread: str | None = None
    """The thread that the trace says it belongs to."""
    tools: Sequence[dict[str, Any]] = ()
    """The tools that it offered, in the form in which the trace has them."""


@dataclass(slots=True, kw_only=True)
class GrownConversation:
    """A conversation put together from requests."""

    thread: str | None
    instructions: list[str]
    """The texts of the system messages in front, as they were sent last."""
    messages: list[BaseMessage]
    """Each once, without the system messages in front; as it was when it first appeared."""
    tools: Sequence[dict[str, Any]]
    """The tools that were offered last."""
    requests: list[int]
    """The positions of the requests that belong to it."""
    keys: list[Key] = field(repr=False)
    """The keys of its messages."""
    times: Counter[Key] = field(repr=False, default_factory=Counter)
    """How often it has each key."""
    beginnings: list[int] = field(repr=False, default_factory=list)
    """A hash of the messages up to each."""

    def go_on(self, kept: int, messages: Sequence[BaseMessage], keys: Sequence[Key]) -> None:
        """Takes in messages behind the first ones, so many of which are kept."""
        self.times.subtract(self.keys[kept:])
        self.times.update(keys)
        self.messages[kept:] = messages
        self.keys[kept:] = keys
        before = self.beginnings[kept - 1] if kept else 0
        self.beginnings[kept:] = _beginnings(keys, before)

    def with_instructions(self) -> list[BaseMessage]:
        """Returns the messages behind their system messages."""
        return [*map(SystemMessage, self.instructions), *self.messages]


def grown(requests: Iterable[Request]) -> list[GrownConversation]:
    """Returns the conversations that requests belong to, in the order in which they began.

    A request belongs to a conversation if it goes on where that ends, or is a part of its
    beginning. So it does if its oldest messages were left out or summarised, and if results were
    clipped: calls and results are the same where their ids are. What is the same in another
    conversation's beginning, and goes on differently, is a conversation of its own.

    Requests of one thread with the same instructions also belong together if one begins with a
    message that is new (the history was not sent), and if only the last answer differs (it was made
    again, or rewritten: the later one stands). Requests of different threads never do.

    Args:
        requests: In the order in which they were sent.
    """
    threads: defaultdict[str | None, _Thread] = defaultdict(_Thread)
    conversations: list[GrownConversation] = []
    for number, request in enumerate(requests):
        thread = threads[request.thread]
        instructions, messages = split_instructions(request.messages)
        keys = list(map(key_of, messages))
        joint = thread.joint_with(instructions, messages, keys)
        if joint is None:
            conversation = GrownConversation(
                thread=request.thread,
                instructions=instructions,
                messages=[],
                tools=request.tools,
                requests=[],
                keys=[],
            )
            conversations.append(conversation)
            joint = _Joint(conversation, kept=0, shared=0)
        conversation = joint.conversation
        conversation.requests.append(number)
        if joint.shared < len(keys):
            thread.forget_end(conversation)
            conversation.go_on(joint.kept, messages[joint.shared :], keys[joint.shared :])
            conversation.instructions = instructions or conversation.instructions
            conversation.tools = request.tools or conversation.tools
            thread.remember(conversation, joint.kept)
    return [conversation for conversation in conversations if conversation.messages]


def key_of(message: BaseMessage) -> Key:
    """Returns what tells a message from others: the ids of its calls, of what it answers, or words.

    Thoughts and white space do not count, as they are often not sent again.
    """
    if isinstance(message, ToolMessage) and message.tool_call_id:
        return ("result", message.tool_call_id)
    if isinstance(message, AIMessage) and message.tool_calls:
        ids = [call["id"] for call in message.tool_calls]
        if all(ids):
            return ("calls", *map(str, ids))
    return (message.type, " ".join(plain_text(message).split()))


@dataclass(frozen=True, slots=True)
class _Joint:
    """Where a request goes on in a conversation."""

    conversation: GrownConversation
    kept: int
    """So many messages of the conversation stay; all but a rewritten answer."""
    shared: int
    """So many messages of the request are in it already."""


class _Thread:
    """The conversations of one thread, found by how they begin and by how they end."""

    def __init__(self) -> None:
        self._by_beginning: dict[int, GrownConversation] = {}
        self._by_end: defaultdict[tuple[Key, ...], dict[int, GrownConversation]] = defaultdict(dict)
        self._newest: GrownConversation | None = None

    def remember(self, conversation: GrownConversation, kept: int) -> None:
        """Notes a conversation that has begun, or has grown behind messages that were kept."""
        for beginning in conversation.beginnings[kept:]:
            self._by_beginning.setdefault(beginning, conversation)
        for end in _ends(conversation.keys):
            self._by_end[end][id(conversation)] = conversation
        self._newest = conversation

    def forget_end(self, conversation: GrownConversation) -> None:
        """Forgets how a conversation ends that is about to grow."""
        for end in _ends(conversation.keys):
            self._by_end[end].pop(id(conversation), None)

    def joint_with(
        self, instructions: list[str], messages: Sequence[BaseMessage], keys: Sequence[Key]
    ) -> _Joint | None:
        """Returns where a request goes on; None if it begins a conversation."""
        if not keys:
            return None
        return (
            self._part(keys)
            or self._continuation(keys)
            or self._other_answer(instructions, messages, keys)
            or self._next_turn(instructions, keys)
        )

    def _part(self, keys: Sequence[Key]) -> _Joint | None:
        """Returns the conversation that begins with the request."""
        *_, whole = _beginnings(keys)
        conversation = self._by_beginning.get(whole)
        # An answer that was made again has changed what it begins with.
        if conversation is None or conversation.keys[: len(keys)] != keys:
            return None
        return _Joint(conversation, len(conversation.keys), len(keys))

    def _continuation(self, keys: Sequence[Key]) -> _Joint | None:
        """Returns the conversation whose end stands in the request, with most messages before it.

        One that the request begins with comes first, the longest of several.
        """
        best: _Joint | None = None
        best_rank = (False, 0)
        for position in range(len(keys)):
            for conversation in self._ending_at(keys, position):
                run = _run_back(conversation.keys, keys, position)
                is_beginning = run == len(conversation.keys) == position + 1
                reaches_a_beginning = run in (len(conversation.keys), position + 1)
                rank = (is_beginning, run)
                if (reaches_a_beginning or run >= SURE_RUN) and rank > best_rank:
                    best = _Joint(conversation, len(conversation.keys), position + 1)
                    best_rank = rank
        return best

    def _ending_at(self, keys: Sequence[Key], position: int) -> Iterator[GrownConversation]:
        """Yields the conversations that may end with a message of a request and those before it.

        Many end with the same word, so it is looked for with the message before it. Without one,
        in the request or in the conversation, it is looked for alone.
        """
        if position:
            yield from self._by_end.get(tuple(keys[position - 1 : position + 1]), {}).values()
            yield from self._by_end.get((START, keys[position]), {}).values()
        else:
            yield from self._by_end.get((keys[0],), {}).values()

    def _other_answer(
        self, instructions: list[str], messages: Sequence[BaseMessage], keys: Sequence[Key]
    ) -> _Joint | None:
        """Returns the newest conversation if the request has it with another last answer."""
        conversation = self._with_the_same(instructions)
        if conversation is None:
            return None
        before = len(conversation.keys) - 1
        begins_the_same = 0 < before < len(keys) and conversation.keys[:before] == keys[:before]
        if not begins_the_same:
            return None
        if _is_answer(conversation.messages[before]) and _is_answer(messages[before]):
            return _Joint(conversation, before, before)
        return None

    def _next_turn(self, instructions: list[str], keys: Sequence[Key]) -> _Joint | None:
        """Returns the newest conversation if the request begins with a message it has not."""
        conversation = self._with_the_same(instructions)
        if conversation is not None and not conversation.times[keys[0]]:
            return _Joint(conversation, len(conversation.keys), 0)
        return None

    def _with_the_same(self, instructions: list[str]) -> GrownConversation | None:
        """Returns the thread's newest conversation if it has a name and the same instructions."""
        newest = self._newest
        if newest is None or newest.thread is None or newest.instructions != instructions:
            return None
        return newest


def _ends(keys: Sequence[Key]) -> list[tuple[Key, ...]]:
    """Returns what a conversation is found by: its last message, alone and with the one before."""
    if not keys:
        return []
    return [(keys[-1],), tuple((START, *keys)[-SURE_RUN:])]


def _beginnings(keys: Iterable[Key], before: int = 0) -> Iterator[int]:
    """Yields, after each key, a hash of all keys up to it."""
    for key in keys:
        before = hash((before, key))
        yield before


def _run_back(known: Sequence[Key], keys: Sequence[Key], position: int) -> int:
    """Returns how many messages are the same, from the end of one list and a position back."""
    run = 0
    while run < len(known) and run <= position and known[-1 - run] == keys[position - run]:
        run += 1
    return run


def _is_answer(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and not message.tool_calls
