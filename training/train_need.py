"""Trains the network that tells how likely a message needs anything said earlier.

    python training/train_need.py [--held-out CONVERSATION ...] [--write]

Each file in `training/conversations` is a conversation that one author wrote; each message of the
user, and each question about it, names the older messages that it needs. The messages in
`training/general.txt` need none, wherever they are asked. The network is trained from all
conversations but those that are held out, and judged by these. With `--write`, its weights also go
into the package. Needs scipy; the same data give the same bytes.
"""

import argparse
import json
import os
import sys
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
    NeedWeights,
    probabilities_of,
    signs_of,
)
from langchain_ctxbudget.sentences.features import BUCKETS
from langchain_ctxbudget.sentences.wording import Wording, buckets_of, last_sentences
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TiktokenCounter

HERE = Path(__file__).parent
CONVERSATIONS = HERE / "conversations"
GENERAL = HERE / "general.txt"
PACKAGE = HERE.parent / "langchain_ctxbudget"
STEPS_OF_WEIGHTS = 127
"""Steps on each side of 0 in which the weights of words are stored, in a byte each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPolicy:
    """What is learned from messages, and how long."""

    units: int = 12
    """Units of the hidden layer."""
    networks: int = 4
    """Networks, of which the best fitted one is kept: where they begin is drawn at random."""
    penalty: float = 3e-3
    """How much large weights of the network cost (L2)."""
    wording_penalty: float = 3e-4
    """The same for the weights of words."""
    most_steps: int = 300
    """Steps of an optimisation (L-BFGS)."""
    general_every: int = 60
    """After so many messages, general messages are asked."""
    general_at_once: int = 8
    """How many of them."""
    general_share: float = 0.5
    """How much a general message counts."""
    parts: int = 3
    """The general messages are divided into so many parts: the weights of words are judged by
    general messages that they were not made from."""


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
    for name in names:
        asked += _asked_in(name, [general[number] for number in order])
    return asked


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
            yield position, general[place], (), place % POLICY.parts
            number += 1


# Training


def trained(asked: Sequence[Asked]) -> NeedWeights:
    """Returns the weights of a network that has learned from messages."""
    words = _words_of(asked)
    needs = np.array([one.needs for one in asked])
    shares = np.array([1.0 if one.part < 0 else POLICY.general_share for one in asked])
    wording = _fitted_wording(words, needs, shares)
    signs = np.array([signs_of(one.inputs, wording) for one in asked], np.float64)
    signs[:, WORDING] = _judged_by_others(asked, words, needs, shares)
    lows = signs.min(axis=0)
    highs = signs.max(axis=0)
    means = signs.mean(axis=0)
    scales = np.maximum(signs.std(axis=0), 1e-3)
    scaled = (signs - means) / scales
    fits = [_fitted_network(scaled, needs, shares, seed) for seed in range(POLICY.networks)]
    _, hidden, hidden_bias, output, output_bias = min(fits, key=lambda fit: fit[0])
    arrays = (lows, highs, means, scales, hidden, hidden_bias, output, output_bias)
    return NeedWeights(wording, *(array.astype(np.float32) for array in arrays))


WORDING = SIGNS.index("wording")
"""The place of the score of the words among the signs."""


def _words_of(asked: Sequence[Asked]) -> csr_matrix:
    """Returns the features of the mean sentence of each message, shape (messages, buckets)."""
    owners: list[NDArray[np.int64]] = []
    buckets: list[NDArray[np.int64]] = []
    scales: list[NDArray[np.float32]] = []
    for number, one in enumerate(asked):
        sentences = last_sentences(one.inputs.text)
        if not sentences:
            continue
        buckets_of_one, scales_of_one = buckets_of(sentences)
        owners.append(np.full(len(buckets_of_one), number))
        buckets.append(buckets_of_one)
        scales.append(scales_of_one / len(sentences))
    places = (np.concatenate(owners), np.concatenate(buckets))
    return csr_matrix((np.concatenate(scales).astype(np.float64), places), (len(asked), BUCKETS))


def _fitted_wording(
    words: csr_matrix, needs: NDArray[np.bool_], shares: NDArray[np.float64]
) -> Wording:
    """Returns the weights of words, by a logistic regression without a bias."""
    used = np.flatnonzero(np.asarray((words != 0).sum(axis=0)).ravel())
    matrix = words[:, used]
    share_of_each = shares / shares.sum()

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Returns what weights cost, and the gradient of that."""
        found = 1 / (1 + np.exp(-(matrix @ weights)))
        error = (found - needs) * share_of_each
        surprise = -(share_of_each * np.log(np.where(needs, found, 1 - found) + 1e-12)).sum()
        gradient = matrix.T @ error + 2 * POLICY.wording_penalty * weights
        return float(surprise + POLICY.wording_penalty * (weights * weights).sum()), gradient

    options = {"maxiter": POLICY.most_steps}
    result = minimize(loss, np.zeros(len(used)), jac=True, method="L-BFGS-B", options=options)
    step = float(np.abs(result.x).max()) / STEPS_OF_WEIGHTS
    by_bucket = np.zeros(BUCKETS, np.int8)
    by_bucket[used] = np.rint(result.x / step).astype(np.int8)
    return Wording(by_bucket, step)


def _judged_by_others(
    asked: Sequence[Asked],
    words: csr_matrix,
    needs: NDArray[np.bool_],
    shares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the score of each message's words by weights that were made without it.

    They were made without its conversation and, of a general message, without its part.
    """
    names = np.array([one.conversation for one in asked])
    parts = np.array([one.part for one in asked])
    scores = np.zeros(len(asked))
    for number, name in enumerate(sorted(set(names))):
        is_judged = names == name
        is_known = ~is_judged & (parts != number % POLICY.parts)
        wording = _fitted_wording(words[is_known], needs[is_known], shares[is_known])
        scores[is_judged] = words[is_judged] @ wording.by_bucket * wording.step
    return scores


Network = tuple[float, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""What a network costs, the weights and biases of its units, the weights and bias of its output."""


def _fitted_network(
    signs: NDArray[np.float64], needs: NDArray[np.bool_], shares: NDArray[np.float64], seed: int
) -> Network:
    """Returns a network with one hidden layer that has learned from scaled signs."""
    random = np.random.default_rng(seed)
    count = signs.shape[1]
    shapes = ((count, POLICY.units), (POLICY.units,), (POLICY.units,), (1,))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    begin = random.normal(0, 0.3, ends[-1])
    share_of_each = shares / shares.sum()

    def split(values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        parts = np.split(values, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Returns what a network costs, and the gradient of that."""
        hidden, hidden_bias, output, output_bias = split(values)
        units = signs @ hidden + hidden_bias
        active = np.maximum(units, 0)
        found = 1 / (1 + np.exp(-(active @ output + output_bias)))
        surprise = -(share_of_each * np.log(np.where(needs, found, 1 - found) + 1e-12)).sum()
        size = (hidden * hidden).sum() + (output * output).sum()
        error = (found - needs) * share_of_each
        back = np.outer(error, output) * (units > 0)
        gradients = (
            signs.T @ back + 2 * POLICY.penalty * hidden,
            back.sum(axis=0),
            active.T @ error + 2 * POLICY.penalty * output,
            error.sum(keepdims=True),
        )
        gradient = np.concatenate([part.ravel() for part in gradients])
        return float(surprise + POLICY.penalty * size), gradient

    options = {"maxiter": POLICY.most_steps}
    result = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options)
    return (float(result.fun), *split(result.x))  # type: ignore[return-value]


# Judging


def table(weights: NeedWeights, asked: Sequence[Asked]) -> Iterator[str]:
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
    """Trains a network, and judges it or writes its weights."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-out", nargs="*", default=[], metavar="CONVERSATION")
    parser.add_argument("--write", action="store_true", help="write the weights into the package")
    options = parser.parse_args()
    names = [name for name in conversations() if name not in options.held_out]
    weights = trained(read(names))
    if options.write:
        (PACKAGE / WEIGHTS_FILE).write_bytes(weights.to_bytes())
    if options.held_out:
        print("\n".join(table(weights, read(options.held_out))))


if __name__ == "__main__":
    run_in_one_thread()
    main()
