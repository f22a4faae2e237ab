"""Thoughts are sent only behind what they were made behind, where a provider binds them to that.

Whoever makes a prompt notes a digest of it with the background of its turn (`Background.answers`):
the next message is the answer to it. Later prompts show the thoughts of an answer as long as the
same stands before it, and lose them otherwise. A rebuild loses all, so a prompt is planned without
those of which that is known; the finished prompt is compared with what was noted.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import has_thoughts, is_text, without_thoughts
from langchain_ctxbudget.history import Background, bound_since, with_thoughts_at
from langchain_ctxbudget.messages import Group, fingerprint
from langchain_ctxbudget.prompt import assembly
from langchain_ctxbudget.prompt.fitting import Settled
from langchain_ctxbudget.prompt.plan import Plan, PlannedTurn
from langchain_ctxbudget.prompt.turn_room import given_turn
from langchain_ctxbudget.providers import UNBOUND, Repair, repairs_of_lost_thoughts
from langchain_ctxbudget.stores import CutRecord
from langchain_ctxbudget.tokens import schemas_text

NOTHING: frozenset[int] = frozenset()


# Planning


def read_to_extend(plan: Plan) -> Plan:
    """Returns a plan with its messages read as a prompt shows them that extends the last one.

    They have the thoughts that were made behind prompts which that prompt goes on with.
    """
    if not plan.conversation.profile.binds_thoughts:
        return _read_whole(plan)
    kept = _answers_of_turn(plan)
    record = _last_cut(plan)
    if record is not None:
        kept |= bound_since(plan.conversation.backgrounds.values(), record)
    return _read(plan, kept)


def read_to_rebuild(plan: Plan) -> Plan:
    """Returns a plan with its messages read as a rebuilt prompt shows them, without thoughts.

    Where prompts do not grow, those of the turn may stay: the rest may be chosen as before.
    """
    if not plan.conversation.profile.binds_thoughts:
        return _read_whole(plan)
    return _read(plan, NOTHING if plan.grows else _answers_of_turn(plan))


def _read_whole(plan: Plan) -> Plan:
    """Returns a plan whose messages have all their thoughts."""
    return replace(plan, turn=PlannedTurn(given=given_turn(plan, plan.request.turn)))


def _read(plan: Plan, kept: Container[int]) -> Plan:
    """Returns a plan in which only the messages at some positions have their thoughts."""
    plan = replace(plan, conversation=with_thoughts_at(plan.conversation, kept))
    turn: list[BaseMessage] = []
    repairs: list[Repair] = []
    for position, message in enumerate(plan.request.turn, len(plan.conversation.entries)):
        if position in kept or not has_thoughts(message):
            turn.append(message)
        else:
            turn.append(without_thoughts(message))
            repairs += repairs_of_lost_thoughts(message, plan.conversation.profile)
    given = given_turn(plan, turn)
    given = replace(given, repairs=(*given.repairs, *repairs))
    return replace(plan, turn=PlannedTurn(given=given))


def _answers_of_turn(plan: Plan) -> frozenset[int]:
    """Returns the positions of the turn's messages that are answers to prompts of this turn."""
    if plan.background is None:
        return NOTHING
    return frozenset(plan.background.answers)


def _last_cut(plan: Plan) -> CutRecord | None:
    """Returns the cut of the prompt that this one may extend."""
    usual_cut, long_cut = plan.cuts
    if long_cut is not None and long_cut.begun == len(plan.conversation.entries):
        return long_cut
    return usual_cut


# The finished prompt


def with_bound_thoughts(settled: Settled) -> tuple[Settled, str]:
    """Returns a prompt without thoughts before which something has changed, and its digest.

    The digest is empty where the provider does not bind thoughts.
    """
    plan = settled.plan
    if not plan.conversation.profile.binds_thoughts:
        return settled, ""
    call = plan.request.call
    before = _Before(schemas_text(plan.tools.given, call.response_format))
    noted = _noted_digests(settled)
    lost: dict[int, BaseMessage] = {}
    for message in settled.built.messages:
        key = id(message)
        if key in noted and noted[key] != before.digest():
            lost[key] = without_thoughts(message)
        before.add(lost.get(key, message))
    if lost:
        settled = _replaced(settled, lost)
    return settled, before.digest()


class _Before:
    """What stands in a prompt before one of its messages, or before its answer."""

    def __init__(self, schemas: str) -> None:
        self._read = blake2b(digest_size=8)
        self._unread = [schemas]

    def add(self, message: BaseMessage) -> None:
        """Adds what a provider reads of a message."""
        if is_text(message):
            self._unread += [message.type, str(message.content)]
            return
        bare = message.model_copy(update={"additional_kwargs": {}, "name": None})
        self._unread.append(fingerprint(bare))

    def digest(self) -> str:
        """Returns a digest of all that was added."""
        texts = "\0".join([*self._unread, ""])
        self._read.update(texts.encode("utf-8", "surrogatepass"))
        self._unread = []
        return self._read.hexdigest()


def _noted_digests(settled: Settled) -> dict[int, str]:
    """Returns what was noted of the messages with thoughts, by the ids of their objects.

    It is a digest of the prompt that a message is the answer to; empty where none is known.
    """
    plan = settled.plan
    of_history: dict[int, str] = {}
    for background in plan.conversation.backgrounds.values():
        of_history |= background.answers
    of_turn: Mapping[int, str] = {}
    if plan.background is not None:
        of_turn = plan.background.answers
    first_of_turn = len(plan.conversation.entries)
    return {
        **_noted_in(settled.content.history, of_history, 0),
        **_noted_in(settled.content.turn, of_turn, first_of_turn),
    }


def _noted_in(groups: Sequence[Group], answers: Mapping[int, str], first: int) -> dict[int, str]:
    """Returns what was noted of the messages of groups that have thoughts: the first ones.

    `first` is the position of the first message of all groups.
    """
    noted: dict[int, str] = {}
    for group in groups:
        message = group.messages[0]
        if not has_thoughts(message):
            continue
        noted[id(message)] = ""
        if group.start >= 0:
            noted[id(message)] = answers.get(first + group.start, "")
    return noted


def _replaced(settled: Settled, lost: Mapping[int, BaseMessage]) -> Settled:
    """Returns a prompt with other messages in place of some, by the ids of their objects."""
    content = replace(
        settled.content,
        history=_groups_with(settled.content.history, lost),
        turn=_groups_with(settled.content.turn, lost),
    )
    plan = settled.plan
    repairs = [UNBOUND.repair_of(message) for message in lost.values()]
    gave_way = plan.gave_way
    plan = replace(plan, gave_way=replace(gave_way, repairs=(*gave_way.repairs, *repairs)))
    built = assembly.build(content)
    extras_tokens = sum(plan.extras.values())
    measured = assembly.measure(content, built, plan.counter, plan.cost, extras_tokens)
    return Settled(plan, content, built, measured)


def _groups_with(groups: Sequence[Group], lost: Mapping[int, BaseMessage]) -> tuple[Group, ...]:
    """Returns groups with other messages in place of some."""
    replaced: list[Group] = []
    for group in groups:
        first, *results = group.messages
        messages = (lost.get(id(first), first), *results)
        replaced.append(replace(group, messages=messages))
    return tuple(replaced)


def with_answer(background: Background, settled: Settled, prompt_digest: str) -> Background:
    """Returns the background of a turn with the answer to a prompt, which comes next.

    Of earlier answers, those stay whose thoughts the prompt shows: what is lost stays lost.
    """
    plan = settled.plan
    end = len(plan.conversation.entries)
    answers = {end + len(plan.request.turn): prompt_digest}
    for group in settled.content.turn:
        position = end + max(0, group.start)
        if position in background.answers and has_thoughts(group.messages[0]):
            answers[position] = background.answers[position]
    return replace(background, answers=answers)
