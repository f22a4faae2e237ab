"""Conversations that are trees: an edited question, or a new answer, begins another branch."""

from collections.abc import Mapping, Sequence
from itertools import chain

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.readers.base import ReadConversation, id_of_beginning


def conversation_of(
    transcripts: Sequence[list[BaseMessage]],
    *,
    conversation_id: str | None,
    title: str | None,
    notes: tuple[str, ...] = (),
) -> ReadConversation:
    """Returns a conversation with its other branches, which get a number behind id and title.

    Args:
        transcripts: The messages of every branch, the one that was seen last in front.
        conversation_id: The file's own; without one, it is made of the conversation's beginning.
        title: The file's own.
        notes: What a user should know about the reading.
    """
    seen: list[BaseMessage] = []
    others: list[list[BaseMessage]] = []
    if transcripts:
        seen = transcripts[0]
        others = [messages for messages in transcripts[1:] if messages and messages != seen]
    own_id = conversation_id or id_of_beginning(seen)
    return ReadConversation(
        conversation_id=own_id,
        title=title,
        messages=seen,
        notes=notes,
        branches=tuple(
            ReadConversation(
                conversation_id=f"{own_id}-branch-{number}",
                title=title and f"{title} (branch {number})",
                messages=messages,
            )
            for number, messages in enumerate(others, 1)
        ),
    )


def branches(
    parents: Mapping[str, str | None],
    times: Mapping[str, float],
    current: str | None = None,
) -> list[list[str]]:
    """Returns every branch of a tree, each as the keys of its messages from the first one on.

    Args:
        parents: The parent of each message, in the order of the file. A parent that is not in the
            file is none.
        times: When messages were said, in seconds; of two without a time, the later one in the
            file is the newer.
        current: The last message of the branch that the user saw last; where it is not in the
            file, the newest last message of a branch takes its place.

    Returns:
        The branch that was seen last, then the others, the newest first.
    """
    ends = _ends(parents, times)
    if current is not None and current in parents:
        if current in ends:
            ends.remove(current)
        ends.insert(0, current)
    return [_path_to(end, parents) for end in ends]


def transcript_of(
    branch: Sequence[str], messages_by_key: Mapping[str, Sequence[BaseMessage]]
) -> list[BaseMessage]:
    """Returns what was said on a branch, of which each place may hold several messages."""
    return list(chain.from_iterable(messages_by_key[key] for key in branch))


def _ends(parents: Mapping[str, str | None], times: Mapping[str, float]) -> list[str]:
    """Returns the last messages of branches, the newest first."""
    with_replies = set(parents.values())
    ends = [key for key in parents if key not in with_replies]
    ends.reverse()
    ends.sort(key=lambda key: -times.get(key, 0.0))
    return ends


def _path_to(end: str, parents: Mapping[str, str | None]) -> list[str]:
    """Returns the keys from the first message to this one; a circle is gone through once."""
    path: dict[str, None] = {}
    key: str | None = end
    while key is not None and key in parents and key not in path:
        path[key] = None
        key = parents[key]
    return list(reversed(path))
