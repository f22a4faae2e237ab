"""Trains what tells how likely a message needs anything said earlier.

    python training/train_need.py [--held-out CONVERSATION ...] [--write]

Each file in `training/conversations` is a conversation that one author wrote; each message of the
user, and each question about it, names the older messages that it needs. The messages in
`training/general.txt` need none, wherever they are asked; those in `training/wordings` are worded
as messages that need something or nothing. It is trained from all conversations but those that are
held out, and judged by these. With `--write`, its weights also go into the package. Needs scipy;
the same data give the same bytes.
"""

import argparse
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from langchain_ctxbudget import LocalEmbeddings
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import OpenConversation, editing
from langchain_ctxbudget.retrieval import Searched, gather
from langchain_ctxbudget.search.need import (
    NEWEST_IN_PROMPT,
    SIGNS,
    WEIGHTS_FILE,
    NeedInputs,
    TrainedNeed,
    probabilities_of,
    signs_of,
)
from langchain_ctxbudget.sentences.features import BUCKETS
from langchain_ctxbudget.sentences.wording import Wording, buckets_of, last_sentences
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TiktokenCounter

HERE = Path(__file__).parent
CONVERSATIONS = HERE / "conversations"
WORDINGS = HERE / "wordings"
GENERAL = HERE / "general.txt"
PACKAGE = HERE.parent / "langchain_ctxbudget"
STEPS_OF_WEIGHTS = 127
"""Steps on each side of 0 in which the weights of words are stored, in a byte each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPolicy:
    """What is learned from messages, and how long."""

    penalty: float = 1e-3
    """How much large weights of signs cost (L2)."""
    wording_penalty: float = 1e-5
    """The same for the weights of words."""
    most_steps: int = 300
    """Steps of an optimisation (L-BFGS)."""
    general_every: int = 60
    """After so many messages, general messages are asked."""
    general_at_once: int = 8
    """How many of them."""
    general_share: float = 1.0
    """How much a general message counts."""
    parts: int = 3
    """Messages of no conversation are divided into so many parts: each is judged by weights of
    words that were made without it."""


POLICY = TrainingPolicy()


@dataclass(frozen=True, slots=True)
class Asked:
    """A message, and whether it needs anything."""

    inputs: NeedInputs
    needs: bool
    conversation: str
    part: int
    """The part of a general message, -1 of any other."""


# Reading


def conversations() -> list[str]:
    """Returns the names of all conversations."""
    return sorted(path.stem for path in CONVERSATIONS.glob("*.jsonl"))


def read(names: Sequence[str]) -> list[Asked]:
    """Returns all that is asked in some conversations."""
    general = GENERAL.read_text(encoding="utf-8").splitlines()
    order = np.random.default_rng(7).permutation(len(general)).tolist()
    asked: list[Asked] = []
    for number, name in enumerate(names):
        begin = number * len(general) // len(names)
        asked += _asked_in(name, [general[place] for place in order[begin:] + order[:begin]])
    return asked


def read_worded() -> list[tuple[str, bool]]:
    """Returns messages without a conversation, and whether they are worded as if needing any."""
    worded: list[tuple[str, bool]] = []
    for path in sorted(WORDINGS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            worded.append((row["text"], row["needs"]))
    return worded


def _asked_in(name: str, general: Sequence[str]) -> Iterator[Asked]:
    """Yields what is asked in a conversation, each behind the messages before it."""
    lines = (CONVERSATIONS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    head, *rows = map(json.loads, lines)
    is_chat_of_people = head["kind"] == "people"
    messages = _messages(rows)
    open_conversation = OpenConversation(Scope("author", name))
    embeddings = LocalEmbeddings()
    counter = TiktokenCounter()
    queries = [
        *_queries(rows, is_chat_of_people=is_chat_of_people),
        *_general_queries(len(messages), general),
    ]
    queries.sort(key=lambda query: query[0])
    for position, group in groupby(queries, key=lambda query: query[0]):
        if position <= NEWEST_IN_PROMPT:
            continue
        editing.hold(open_conversation, messages[:position])
        searched = Searched.of(open_conversation.seen_with(counter))
        for _, text, needs, part in group:
            pool = drive(gather(searched, text, embeddings, [], []))
            is_older = any(number < position - NEWEST_IN_PROMPT for number in needs)
            if pool.need_inputs is not None:
                yield Asked(pool.need_inputs, is_older, name, part)


def _messages(rows: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """Returns the messages of a conversation; the first speaker is the user."""
    said = [row for row in rows if "text" in row]
    messages: list[BaseMessage] = []
    for row in said:
        kind = HumanMessage if row["who"] == said[0]["who"] else AIMessage
        day = {"created_at": f"{row['day']}T09:00:00"} if row.get("day") else {}
        number = str(row["n"])
        messages.append(kind(row["text"], name=row["who"], id=number, additional_kwargs=day))
    return messages


Query = tuple[int, str, Sequence[int], int]
"""How many messages were said before, the text, the numbers of those that it needs, its part."""


def _queries(rows: Sequence[dict[str, Any]], *, is_chat_of_people: bool) -> Iterator[Query]:
    """Yields the messages of the user, and the questions about the conversation."""
    position = 0
    for row in rows:
        needs = row.get("needs", [])
        if "ask" in row:
            yield position, row["ask"], needs, -1
            continue
        is_query = needs if is_chat_of_people else row["who"] == "user"
        if is_query:
            yield position, row["text"], needs, -1
        position += 1


def _general_queries(messages: int, general: Sequence[str]) -> Iterator[Query]:
    """Yields general messages, a few now and then."""
    number = 0
    for position in range(POLICY.general_every, messages, POLICY.general_every):
        for _ in range(POLICY.general_at_once):
            place = number % len(general)
            yield position, general[place], (), _part_of(general[place])
            number += 1


def _part_of(text: str) -> int:
    """Returns the number of the part that a message of no conversation belongs to."""
    return zlib.crc32(text.encode()) % POLICY.parts


# Training


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages by their words, and whether they need anything."""

    words: csr_matrix
    """The features of the mean sentence of each, shape (messages, buckets)."""
    needs: NDArray[np.bool_]
    shares: NDArray[np.float64]
    """How much each counts."""
    groups: NDArray[np.int64]
    """Messages of one group are judged by weights that were made without them."""

    def chosen(self, is_chosen: NDArray[np.bool_]) -> "Messages":
        """Returns some of them."""
        return Messages(
            self.words[is_chosen],
            self.needs[is_chosen],
            self.shares[is_chosen],
            self.groups[is_chosen],
        )


def trained(asked: Sequence[Asked], worded: Sequence[tuple[str, bool]]) -> TrainedNeed:
    """Returns the weights of signs and words.

    Args:
        asked: What is asked in conversations, from which the weights of signs are made.
        worded: Messages that need something or nothing, for the weights of words.
    """
    messages = _messages_of(asked, worded)
    wording = _fitted_wording(messages)
    signs = np.array([signs_of(one.inputs, wording) for one in asked], np.float64)
    signs[:, WORDING] = _judged_by_others(messages)[: len(asked)]
    means = signs.mean(axis=0)
    scales = np.maximum(signs.std(axis=0), LEAST_SCALE)
    scaled = csr_matrix(np.column_stack(((signs - means) / scales, np.ones(len(signs)))))
    needs = messages.needs[: len(asked)]
    fitted = _fitted(scaled, needs, messages.shares[: len(asked)], POLICY.penalty)
    weights = fitted[:-1] / scales
    bias = fitted[-1:] - means @ weights
    arrays = (signs.min(axis=0), signs.max(axis=0), means, weights, bias)
    return TrainedNeed(wording, *(array.astype(np.float32) for array in arrays))


WORDING = SIGNS.index("wording")
LEAST_SCALE = 1e-3
"""A sign that deviates less is the same everywhere."""


def _messages_of(asked: Sequence[Asked], worded: Sequence[tuple[str, bool]]) -> Messages:
    """Returns what is asked in conversations, and behind it the messages without any."""
    texts = [one.inputs.text for one in asked] + [text for text, _ in worded]
    names = sorted({one.conversation for one in asked})
    groups = [names.index(one.conversation) if one.part < 0 else -1 - one.part for one in asked]
    of_worded = [-1 - _part_of(text) for text, _ in worded]
    shares = [1.0 if one.part < 0 else POLICY.general_share for one in asked]
    return Messages(
        words=_words_of(texts),
        needs=np.array([one.needs for one in asked] + [needs for _, needs in worded]),
        shares=np.array(shares + [1.0] * len(worded)),
        groups=np.array(groups + of_worded),
    )


def _words_of(texts: Sequence[str]) -> csr_matrix:
    """Returns the features of the mean sentence of each text, shape (texts, buckets)."""
    owners: list[NDArray[np.int64]] = []
    buckets: list[NDArray[np.int64]] = []
    scales: list[NDArray[np.float32]] = []
    for number, text in enumerate(texts):
        sentences = last_sentences(text)
        if not sentences:
            continue
        buckets_of_one, scales_of_one = buckets_of(sentences)
        owners.append(np.full(len(buckets_of_one), number))
        buckets.append(buckets_of_one)
        scales.append(scales_of_one / len(sentences))
    places = (np.concatenate(owners), np.concatenate(buckets))
    return csr_matrix((np.concatenate(scales).astype(np.float64), places), (len(texts), BUCKETS))


def _fitted_wording(messages: Messages) -> Wording:
    """Returns the weights of words."""
    used = np.flatnonzero(np.asarray((messages.words != 0).sum(axis=0)).ravel())
    matrix = messages.words[:, used]
    fitted = _fitted(matrix, messages.needs, messages.shares, POLICY.wording_penalty)
    step = float(np.abs(fitted).max()) / STEPS_OF_WEIGHTS
    by_bucket = np.zeros(BUCKETS, np.int8)
    by_bucket[used] = np.rint(fitted / step).astype(np.int8)
    return Wording(by_bucket, step)


def _judged_by_others(messages: Messages) -> NDArray[np.float64]:
    """Returns the score of each message's words, by weights that were made without its group."""
    scores = np.zeros(len(messages.needs))
    for group in np.unique(messages.groups).tolist():
        is_judged = messages.groups == group
        wording = _fitted_wording(messages.chosen(~is_judged))
        scores[is_judged] = messages.words[is_judged] @ wording.by_bucket * wording.step
    return scores


def _fitted(
    matrix: csr_matrix,
    needs: NDArray[np.bool_],
    shares: NDArray[np.float64],
    penalty: float,
) -> NDArray[np.float64]:
    """Returns the weights of a logistic regression, one for each column."""
    share_of_each = shares / shares.sum()

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Returns what weights cost, and the gradient of that."""
        found = 1 / (1 + np.exp(-(matrix @ weights)))
        error = (found - needs) * share_of_each
        surprise = -(share_of_each * np.log(np.where(needs, found, 1 - found) + 1e-12)).sum()
        gradient = matrix.T @ error + 2 * penalty * weights
        return float(surprise + penalty * (weights * weights).sum()), gradient

    options = {"maxiter": POLICY.most_steps}
    begin = np.zeros(matrix.shape[1])
    result = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options)
    weights: NDArray[np.float64] = result.x
    return weights


# Judging


def table(weights: TrainedNeed, asked: Sequence[Asked]) -> Iterator[str]:
    """Yields lines that say how well messages that need something are told from others."""
    signs = np.array([signs_of(one.inputs, weights.wording) for one in asked])
    found = probabilities_of(signs, weights)
    needs = np.array([one.needs for one in asked])
    is_general = np.array([one.part >= 0 for one in asked])
    for name, others in (("general messages", is_general), ("others", ~is_general & ~needs)):
        chosen = needs | others
        order = found[chosen].argsort().argsort()
        ones = int(needs.sum())
        area = (order[needs[chosen]].sum() - ones * (ones - 1) / 2) / (ones * int(others.sum()))
        yield f"{ones:,} that need something against {others.sum():,} {name}: AUC {area:.3f}"
    for name, chosen in (("need something", needs), ("general", is_general)):
        quantiles = np.percentile(found[chosen], [5, 25, 50, 75, 95]).round(2).tolist()
        yield f"probabilities of those that are {name} (5, 25, 50, 75, 95 %): {quantiles}"


def run_in_one_thread() -> None:
    """Starts the script again with one thread: sums by several differ in their last digits."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - itself, without a shell


def main() -> None:
    """Trains, and judges what was learned or writes it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-out", nargs="*", default=[], metavar="CONVERSATION")
    parser.add_argument("--write", action="store_true", help="write the weights into the package")
    options = parser.parse_args()
    names = [name for name in conversations() if name not in options.held_out]
    weights = trained(read(names), read_worded())
    if options.write:
        (PACKAGE / WEIGHTS_FILE).write_bytes(weights.to_bytes())
    if options.held_out:
        print("\n".join(table(weights, read(options.held_out))))


if __name__ == "__main__":
    run_in_one_thread()
    main()
