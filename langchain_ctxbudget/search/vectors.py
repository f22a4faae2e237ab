"""Vectors of texts: cosines without what all texts share, and vectors without a network.

What the texts of a conversation share (its language, its tone, its people) makes all of them alike,
so their mean is taken off before a cosine is. The mean is that of the first texts, renewed when
there are a quarter more: it depends on the texts alone, and between two of its changes a new text
costs nothing for the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import DTypeLike, NDArray

from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.messages import encodable
from langchain_ctxbudget.search.scores import ALL, Places, Scores

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Vectors = NDArray[np.float32]
FEW = 32
"""Fewer texts than this have no mean worth the name: others that are compared join it."""
GROWTH = 1.25
"""The mean is renewed when there are so many times as many texts."""
DECIMALS = 6
"""Cosines are rounded: their last bits depend on how they are added up."""
_WORD_BITS = 64
NO_LENGTH = 1e-9
"""A vector that is shorter has no direction."""
_NO_DIFFERENCE = 1e-5
"""A vector that is less far from the mean is the mean, but for rounding."""
_AT_ONCE = 512
"""Vectors that are worked on together, so that little memory is taken."""


class Rows:
    """Numbers, or vectors of one width; adding a row costs the same however many there are."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._buffer: NDArray[Any] = np.zeros(0, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> NDArray[Any]:
        """All of them, not copied; shape `(len(self),)` or `(len(self), width)`."""
        return self._buffer[: self._length]

    def extend(self, new: Sequence[Any] | NDArray[Any]) -> None:
        """Appends rows.

        Raises:
            ValueError: If their widths differ from each other or from those there.
        """
        rows = np.asarray(new, dtype=self._buffer.dtype)
        if not len(rows):
            return
        end = self._length + len(rows)
        if not self._length:
            self._grow(end, rows.shape[1:])
        elif end > len(self._buffer):
            self._grow(end, self._buffer.shape[1:])
        self._buffer[self._length : end] = rows
        self._length = end

    def _grow(self, length: int, width: tuple[int, ...]) -> None:
        """Makes room for so many rows, and for as many again as there are."""
        bigger = np.zeros((max(length, 2 * self._length, _WORD_BITS), *width), self._buffer.dtype)
        if self._length:
            bigger[: self._length] = self.values
        self._buffer = bigger

    def truncate(self, length: int) -> None:
        """Keeps only the first ones."""
        self._length = min(self._length, length)


class CentredVectors:
    """Vectors in the order in which they were added, each of length 1."""

    def __init__(self) -> None:
        self.rows = Rows(np.int8)
        """The vectors as they are stored: each so long that its largest value is 127."""
        self._signs: list[Rows] = []
        """The signs of the vectors' values without the mean, 64 a number and a column; made when
        they are asked for."""
        self._mean: Vectors = np.zeros(0, np.float32)
        self._in_mean = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """The number of values of each; 0 while there are none."""
        return self.rows.values.shape[1] if len(self) else 0

    def at(self, places: Places = ALL, before: Sequence[Vectors] = ()) -> Vectors:
        """Returns the vectors, or some of them, with others `before` them.

        To copy all of them takes longer.
        """
        stored = self.rows.values[places]
        if before:  # while there are no rows, they have no width
            stored = stored.reshape(-1, before[0].shape[1])
        rows = np.concatenate((*before, stored), dtype=np.float32)
        own = rows[len(rows) - len(stored) :]
        own /= np.maximum(_lengths_of(own), 1)[..., np.newaxis]
        return rows

    def extend(self, vectors: Sequence[Sequence[float]] | NDArray[Any]) -> None:
        """Adds some, of one width; those of zeros are similar to nothing."""
        rows = units(np.asarray(vectors, np.float32))
        largest = np.abs(rows).max(axis=-1, initial=NO_LENGTH, keepdims=True)
        self.rows.extend(np.rint(rows * (np.iinfo(np.int8).max / largest)))

    def truncate(self, length: int) -> None:
        """Keeps only the first ones."""
        for rows in (self.rows, *self._signs):
            rows.truncate(length)
        if length < self._in_mean:
            self._in_mean = 0

    def likeness(self, query: NDArray[Any]) -> NDArray[np.int16]:
        """Returns in how many signs every vector is like a query.

        The more, the smaller is the angle between them.
        """
        [target] = units(np.asarray([query], np.float32))
        mean = self._renewed_mean()
        self._sign_new_vectors(mean)
        alike = np.full(len(self), self.width, np.int16)
        target_signs = signs((target > mean)[np.newaxis])[0]
        # To count by columns takes a quarter of the time that rows take.
        for column, sign in zip(self._signs, target_signs, strict=True):
            alike -= np.bitwise_count(column.values ^ sign)
        return alike

    def _sign_new_vectors(self, mean: Vectors) -> None:
        """Adds the signs of the vectors that have none yet."""
        if not self._signs:
            columns = -(-self.width // _WORD_BITS)
            self._signs = [Rows(np.uint64) for _ in range(columns)]
        for start in range(len(self._signs[0]), len(self), _AT_ONCE):
            new_signs = signs(self.at(slice(start, start + _AT_ONCE)) > mean)
            for column, values in zip(self._signs, new_signs.T, strict=True):
                column.extend(values)

    def compared(self, others: Vectors | None = None, places: Places = ALL) -> "Compared":
        """Returns what can be compared with a query: others, then vectors at some places."""
        before = [] if others is None or not len(others) else [units(others)]
        rows = self.at(places, before)
        if len(self) >= FEW:
            return Compared(rows, self._renewed_mean())
        if not len(rows):
            return Compared(rows, np.zeros(1, np.float32))
        return Compared(rows, rows.mean(axis=0))

    def _renewed_mean(self) -> Vectors:
        """Returns the mean, renewed if there are a quarter more texts."""
        counted = texts_in_mean(len(self))
        if counted != self._in_mean:
            sums = [
                self.at(slice(start, min(start + _AT_ONCE, counted))).sum(axis=0, dtype=np.float64)
                for start in range(0, counted, _AT_ONCE)
            ]
            self._mean = (np.add.reduce(sums) / counted).astype(np.float32)
            self._in_mean = counted
            self._signs = []
        return self._mean


class Compared:
    """Vectors of length 1 without what they have in common.

    Those of zeros are similar to nothing.
    """

    def __init__(self, rows: Vectors, mean: Vectors) -> None:
        """Takes over vectors, and takes the mean off them."""
        is_zero = np.einsum("...i,...i", rows, rows) == 0
        rows -= mean
        lengths = np.maximum(_lengths_of(rows), _NO_DIFFERENCE)
        self._mean = mean
        self._rows = rows
        self._lengths = np.where(is_zero, np.float32(np.inf), lengths)

    def cosines(self, query: NDArray[Any]) -> Scores:
        """Returns the cosine of every vector with a query."""
        [target] = units(np.asarray([query], np.float32))
        return self._cosines_with(target - self._mean)

    def to_mean(self, numbers: NDArray[np.intp], weights: Scores) -> Scores:
        """Returns the cosine of every vector with the mean of some, by number and weight."""
        return self._cosines_with(weights / self._lengths[numbers] @ self._rows[numbers])

    def _cosines_with(self, direction: NDArray[Any]) -> Scores:
        if not len(self._rows):
            return np.zeros(0)
        length = max(float(np.linalg.norm(direction)), NO_LENGTH)
        direction = np.asarray(direction / length, np.float32)
        # In this thread: under load, a second one of BLAS would be waited for.
        products = np.einsum("ij,j->i", self._rows, direction)
        cosines: Scores = np.round((products / self._lengths).astype(np.float64), DECIMALS)
        return cosines


def texts_in_mean(texts: int) -> int:
    """Returns of how many of the first texts a mean is taken.

    `FEW`, and a quarter more each time there are so many.
    """
    counted = FEW
    following = int(counted * GROWTH)
    while following <= texts:
        counted = following
        following = int(counted * GROWTH)
    return counted


def signs(positive: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Returns the signs of vectors, one bit each, in whole numbers of 64."""
    padding = -positive.shape[1] % _WORD_BITS
    padded = np.pad(positive, ((0, 0), (0, padding)))
    return np.packbits(padded, axis=1).view(np.uint64)


def units(vectors: Vectors) -> Vectors:
    """Returns vectors of length 1; those without any length stay.

    Raises:
        ValueError: If a value is not a number.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("the embeddings hold values that are not numbers (NaN or infinite)")
    return np.asarray(vectors / np.where(lengths > NO_LENGTH, lengths, 1), np.float32)


def _lengths_of(rows: Vectors) -> Vectors:
    """Returns the length of every vector."""
    lengths: Vectors = np.sqrt(np.einsum("...i,...i", rows, rows))
    return lengths


def comparable(vectors: Sequence[Sequence[float]], width: int) -> Vectors:
    """Returns vectors as they came, and zeros for those that cannot be compared.

    These hold values that are no numbers, or have another width.
    """
    rows = np.zeros((len(vectors), width), np.float32)
    for number, vector in enumerate(vectors):
        row = np.asarray(vector, np.float32)
        if row.shape == (width,) and np.isfinite(np.linalg.norm(row)):
            rows[number] = row
    return rows


def as_query(vector: Sequence[float], width: int = 0) -> Vectors:
    """Returns the vector of a query.

    Args:
        vector: The vector.
        width: The width of the vectors that it is compared with, 0 if there are none yet.

    Raises:
        ValueError: If it cannot be compared with them.
    """
    target = np.asarray(vector, np.float32)
    units(target)
    if not target.size or width not in (0, target.size):
        raise ValueError(
            f"the vector of the query has {target.size} dimensions, "
            f"and those of the texts have {width}"
        )
    return target


# Static word vectors
#
# Vectors and tokenizer are two files in the wheel of `wordllama`, which are read directly:
# importing the package would configure the root logger and could end in a download. A text is the
# mean of its tokens' vectors, the frequent ones weighing less: `a / (a + p)` with a token's
# probability `p` (Arora, Liang and Ma, ICLR 2017), which follows by Zipf's law from its place in
# the tokenizer's list: merged tokens, then single characters, each roughly by frequency.

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
# The tokenizer's list: 3 special tokens and 256 bytes, the merged tokens, the single characters.
_FIRST_MERGED = 259
_FIRST_CHARACTER = 29_871
_SIF_A = 1e-3
"""The probability `a` of a token that weighs half."""
_BATCH = 64
"""Texts that are tokenized together."""
_MOST_CHARACTERS = 32_768
"""Characters that are read of each text."""


@dataclass(frozen=True, slots=True)
class _Model:
    tokenizer: "Tokenizer"
    vectors: Vectors
    """A row per token, as half-precision numbers: half of the memory."""
    weights: Vectors
    """Near 0 for the most frequent tokens, near 1 for the rare ones."""


class LocalEmbeddings(Embeddings):
    """Sentence vectors of 256 dimensions and length 1 from static word vectors, offline.

    They are loaded when first used (about 0.1 s and 33 MB, once per process). A text without any
    token has the zero vector, which is similar to nothing. Threads may share an instance.

    Example:
        >>> from langchain_ctxbudget import LocalEmbeddings
        >>> len(LocalEmbeddings().embed_query("Where is my umbrella?"))
        256
    """

    model = "wordllama-l2-supercat-256-sif"
    """Names the vectors: stores refuse to mix those of different models."""
    dimensions = 256

    def __init__(self) -> None:
        """Checks that the vectors are installed, else raises `EmbeddingsUnavailableError`."""
        if not local_embeddings_available():
            raise EmbeddingsUnavailableError(
                "LocalEmbeddings needs the word vectors of the package wordllama, "
                "which is not installed here: "
                "pip install wordllama, or pass any other LangChain embeddings"
            )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Returns a vector per text; of a very long one, of its first 32,768 characters."""
        model = _load()
        sums = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = [encodable(text[:_MOST_CHARACTERS]) for text in texts[start : start + _BATCH]]
            encodings = model.tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            # One text at a time: its rows stay in the processor's cache.
            for row, encoding in enumerate(encodings, start):
                tokens = encoding.ids
                if not tokens:
                    continue
                weighted = model.vectors.take(tokens, axis=0) * model.weights[tokens, np.newaxis]
                sums[row] = np.add.reduceat(weighted, [0])[0]
        rows: list[list[float]] = units(sums).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Returns the vector of one text; the same as that of a document."""
        return self.embed_documents([text])[0]

    def embed_words(self, weights: Mapping[str, float]) -> list[float]:
        """Returns the vector of words with a weight each, such as how rare they are."""
        model = _load()
        tokens: list[int] = []
        tokens_per_word: list[int] = []
        for word in weights:
            ids = model.tokenizer.encode(encodable(word), add_special_tokens=False).ids
            tokens += ids
            tokens_per_word.append(len(ids))
        usual = model.weights[tokens]
        wanted = np.repeat(np.array([*weights.values()], np.float32), tokens_per_word)
        vectors = model.vectors[tokens] * usual[:, np.newaxis]
        vector: list[float] = ((wanted / usual) @ vectors).tolist()
        return vector


def local_embeddings_available() -> bool:
    """Tells if the package of the word vectors is installed.

    Reads no file, as it may be asked on an event loop.
    """
    return find_spec("wordllama") is not None


@cache
def _load() -> _Model:
    """Reads the files of `wordllama`, which is found without importing it."""
    from safetensors.numpy import load_file  # noqa: PLC0415 - comes with wordllama, which is optional
    from tokenizers import Tokenizer  # noqa: PLC0415

    folder = _folder_of_model()
    vectors = load_file(folder / _WEIGHTS)["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    return _Model(tokenizer, vectors, weights=_weights_of_tokens(len(vectors)))


def _folder_of_model() -> Path:
    """Returns the folder of `wordllama` that has its files.

    Raises:
        EmbeddingsUnavailableError: If there is none any more.
    """
    spec = find_spec("wordllama")
    locations = (spec.submodule_search_locations or ()) if spec else ()
    for folder in map(Path, locations):
        if (folder / _WEIGHTS).is_file() and (folder / _TOKENIZER).is_file():
            return folder
    raise EmbeddingsUnavailableError(
        "The word vectors of the package wordllama are gone: pip install wordllama"
    )


def _weights_of_tokens(size: int) -> Vectors:
    """Returns the weight of each of so many tokens, by its place in the tokenizer's list."""
    ids = np.arange(size)
    rank = np.where(ids < _FIRST_CHARACTER, ids - _FIRST_MERGED, ids - _FIRST_CHARACTER) + 1
    rank[:_FIRST_MERGED] = size  # bytes and special tokens stand for what is rare
    probabilities = 1 / (rank * np.log(size))
    weights: Vectors = (_SIF_A / (_SIF_A + probabilities)).astype(np.float32)
    return weights
