"""Trains the reader of sentences, tells how well it reads, and writes its weights.

    python training/train.py [--held-out AUTHOR ...] [--write]

Each file in `training/data` was written by one author, a message a line. The reader is trained from
all authors but those that are held out, and judged by the sentences of these, so that nobody's
manner of writing is in both. With `--write`, its weights also go into the package. Needs scipy; the
same data give the same bytes.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from langchain_ctxbudget.sentences.features import (
    BUCKETS,
    Features,
    PlacedSentence,
    features_of,
    placed,
)
from langchain_ctxbudget.sentences.reader import (
    LABELS,
    RARITY_STEP,
    WEIGHTS_FILE,
    Label,
    Probabilities,
    Weights,
    probabilities,
)

DATA = Path(__file__).parent / "data"
PACKAGE = Path(__file__).parents[1] / "langchain_ctxbudget"
STEPS_OF_WEIGHTS = 127
"""Steps on each side of 0 in which weights are stored, in a byte each."""
MARKS = 256
"""How many different marks features have."""
FALSE_SHARES = (0.01, 0.03, 0.05)
"""Shares of all other sentences that may be taken for one of a label, in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPolicy:
    """What is learned from sentences, and how long."""

    penalty: float = 1e-6
    """How much large weights cost (L2)."""
    most_steps: int = 150
    """Steps of the optimisation (L-BFGS)."""
    rarity_power: float = 0.5
    """The power of the inverse document frequency by which features are scaled."""
    least_authors: int = 2
    """A feature of fewer authors is somebody's manner, or their subject."""


TRAINING_POLICY = TrainingPolicy()
SHARES = {"p": 0.3, "v": 0.3}
"""How much a sentence counts of two authors who have filled a gap with plain rules: they wrote more
of them than anybody states."""


@dataclass(frozen=True)
class Sentences:
    """Sentences, each with what it is; all of one length."""

    placed: Sequence[PlacedSentence]
    labels: NDArray[np.int64]
    """The number of the label of each."""
    languages: Sequence[str]
    shares: NDArray[np.float64]
    """How much each counts in training."""
    authors: NDArray[np.int64]
    """The number of the author of each."""

    def chosen(self, is_chosen: NDArray[np.bool_]) -> "Sentences":
        """Returns some of them."""
        numbers = np.flatnonzero(is_chosen).tolist()
        return Sentences(
            placed=[self.placed[number] for number in numbers],
            labels=self.labels[is_chosen],
            languages=[self.languages[number] for number in numbers],
            shares=self.shares[is_chosen],
            authors=self.authors[is_chosen],
        )


def authors() -> list[str]:
    """Returns the names of all authors."""
    return sorted(path.stem for path in DATA.glob("*.jsonl"))


def read(names: Sequence[str]) -> Sentences:
    """Returns the sentences of some authors."""
    sentences: list[PlacedSentence] = []
    labels: list[int] = []
    languages: list[str] = []
    shares: list[float] = []
    author_numbers: list[int] = []
    for number, name in enumerate(names):
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            rows = message["sentences"]
            sentences += placed([text.strip() for _, text, *_ in rows])
            labels += map(_label, rows)
            languages += [message["lang"]] * len(rows)
            shares += [SHARES.get(name, 1.0)] * len(rows)
            author_numbers += [number] * len(rows)
    return Sentences(
        placed=sentences,
        labels=np.array(labels),
        languages=languages,
        shares=np.array(shares),
        authors=np.array(author_numbers),
    )


def _label(row: Sequence[str]) -> int:
    """Returns the number of a sentence's label.

    Args:
        row: Label, text and, of a rule that holds everywhere, `user`.
    """
    label, _, *scope = row
    if label == Label.RULE and scope == ["user"]:
        return LABELS.index(Label.USER_RULE)
    return LABELS.index(Label(label))


# Training


def trained(sentences: Sentences) -> Weights:
    """Returns the weights of a reader that has learned from sentences."""
    features = features_of(sentences.placed)
    count = len(sentences.placed)
    marks, occurrences = _known_features(features, sentences.authors)
    inverse = np.log((1 + count) / (1 + occurrences)) / np.log(1 + count)
    steps_of_rarity = np.rint(inverse**TRAINING_POLICY.rarity_power / RARITY_STEP)
    rarity = steps_of_rarity.clip(1, 255).astype(np.uint8)
    rarity[occurrences == 0] = 0

    scales = features.scaled(rarity * np.float32(RARITY_STEP), marks).astype(np.float64)
    matrix = csr_matrix((scales, (features.owners, features.buckets)), (count, BUCKETS))
    by_bucket, bias = _fitted(matrix, sentences.labels, sentences.shares)
    step = float(np.abs(by_bucket).max()) / STEPS_OF_WEIGHTS
    steps = np.rint(by_bucket / step).astype(np.int8)
    return Weights(
        by_bucket=steps,
        step=step,
        bias=bias.astype(np.float32),
        rarity=rarity,
        marks=marks,
    )


def _known_features(
    features: Features, authors: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the mark of the feature that each bucket stands for, and how many sentences have it.

    Of the features that several authors have, it is the one in most sentences; where a bucket has
    none, no sentence has it.
    """
    keys = features.buckets * MARKS + features.marks
    known, sentence_counts = _distinct_owners(keys, features.owners)
    _, author_counts = _distinct_owners(keys, authors[features.owners])
    counts = np.where(author_counts >= TRAINING_POLICY.least_authors, sentence_counts, 0)
    order = np.argsort(counts, kind="stable")
    buckets = known[order] // MARKS
    marks = np.zeros(BUCKETS, np.uint8)
    marks[buckets] = known[order] % MARKS  # of several, the last one stays: the most frequent
    occurrences = np.zeros(BUCKETS, np.int64)
    occurrences[buckets] = counts[order]
    return marks, occurrences


def _distinct_owners(
    keys: NDArray[np.int64], owners: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns all keys, each once and in order, and how many different owners each has."""
    most = int(owners.max()) + 1
    pairs = np.unique(keys * most + owners)
    return np.unique(pairs // most, return_counts=True)


def _fitted(
    matrix: csr_matrix, labels: NDArray[np.int64], shares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the weights of a multinomial regression, shape (buckets, labels), and its biases."""
    count = matrix.shape[0]
    used = np.flatnonzero(np.asarray((matrix != 0).sum(axis=0)).ravel())
    matrix = matrix[:, used]
    targets = np.eye(len(LABELS))[labels]
    shares = shares / shares.sum()
    penalty = TRAINING_POLICY.penalty

    def loss(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Returns what weights and biases cost, and the gradient of that."""
        weights = values[: -len(LABELS)].reshape(-1, len(LABELS))
        bias = values[-len(LABELS) :]
        scores = matrix @ weights + bias
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        found = exponentials / exponentials.sum(axis=1, keepdims=True)
        error = (found - targets) * shares[:, np.newaxis]
        surprise = -(shares * np.log(found[np.arange(count), labels] + 1e-12)).sum()
        gradient = matrix.T @ error + 2 * penalty * weights
        value = float(surprise + penalty * (weights * weights).sum())
        return value, np.concatenate([gradient.ravel(), error.sum(axis=0)])

    begin = np.zeros((len(used) + 1) * len(LABELS))
    options = {"maxiter": TRAINING_POLICY.most_steps}
    result = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options)
    by_bucket = np.zeros((BUCKETS, len(LABELS)))
    by_bucket[used] = result.x[: -len(LABELS)].reshape(-1, len(LABELS))
    return by_bucket, result.x[-len(LABELS) :]


# Judging


def table(weights: Weights, sentences: Sentences) -> Iterator[str]:
    """Yields a line for every label: how well its sentences are told from all others."""
    found = _rules_as_one(probabilities(sentences.placed, weights))
    # The first two labels are rules, and count as one: wherever it holds, a rule is a rule.
    right = np.maximum(sentences.labels - 1, 0)
    names = [Label.RULE, *LABELS[2:]]
    accuracy = (found.argmax(axis=1) == right).mean()
    yield f"{len(right):,} sentences, {accuracy:.1%} right"
    yield f"{'':10} {'n':>6} {'AUC':>6}  found where 1, 3, 5 % of the others are taken for one"
    for number, name in enumerate(names):
        is_one = right == number
        if is_one.any():
            yield f"{name:10} {is_one.sum():6,} {_judged(found[:, number], is_one)}"


def _rules_as_one(found: Probabilities) -> Probabilities:
    """Returns probabilities with one column for both kinds of rules."""
    return np.column_stack([found[:, 0] + found[:, 1], found[:, 2:]])


def _judged(scores: NDArray[np.float32], is_one: NDArray[np.bool_]) -> str:
    """Returns how well scores tell sentences of a label from all others, in a line."""
    order = scores.argsort().argsort()
    ones = int(is_one.sum())
    area = (order[is_one].sum() - ones * (ones - 1) / 2) / (ones * (~is_one).sum())
    others = np.sort(scores[~is_one])[::-1]
    limits = [others[int(len(others) * share)] for share in FALSE_SHARES]
    shares = [f"{(scores[is_one] > limit).mean():4.0%}" for limit in limits]
    return f"{area:6.3f}  {'  '.join(shares)}"


def run_in_one_thread() -> None:
    """Starts the script again with one thread: sums by several differ in their last digits."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - itself, without a shell


def main() -> None:
    """Trains a reader, and judges it or writes its weights."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-out", nargs="*", default=["t"], metavar="AUTHOR")
    parser.add_argument("--write", action="store_true", help="write the weights into the package")
    options = parser.parse_args()
    names = [name for name in authors() if name not in options.held_out]
    weights = trained(read(names))
    if options.write:
        (PACKAGE / WEIGHTS_FILE).write_bytes(weights.to_bytes())
    judged = read(options.held_out)
    is_english = np.array([language == "en" for language in judged.languages])
    for name, chosen in (("English", is_english), ("other languages", ~is_english)):
        print(f"\n{name}, by {', '.join(options.held_out)}:")
        print("\n".join(table(weights, judged.chosen(chosen))))


if __name__ == "__main__":
    run_in_one_thread()
    main()
