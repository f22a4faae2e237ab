"""Vectors of texts.

Those without a network, cosines without what all texts share, and where a subject ends.

What the texts of a conversation share (its language, its tone, its people) makes all of them alike,
so their mean is taken off before a cosine is. The mean is that of the first texts, renewed when
there are a quarter more: it depends on the texts alone, and between two of its changes a new text
costs nothing for the others. Below which cosine a subject ends is decided by as many texts: in a
chat of short messages neighbours have little in common within a subject, too.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import DTypeLike, NDArray

from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.messages import vocabulary
from langchain_ctxbudget.search.ranking import Numbers, Scores
from langchain_ctxbudget.tokens import encodable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Vectors = NDArray[np.float32]
FEW = 32
GROWTH = 1.25
"""Fewer texts than this have no mean worth the name: others that are compared join it."""
DECIMALS = 6
"""Cosines are rounded: their last bits depend on how they are added up."""
_WORD = 64
_TINY = 1e-9
_NO_LENGTH = 1e-5
_FIRST_CAPACITY = 64
_AT_ONCE = 512
BEFORE = 4
AFTER = 3
"""Texts before a place and from it on that are compared."""
UNLIKE = 0.15
UNLIKE_AFTER_GREETING = 0.3
NEVER = -2.0
"""Cosines below which two stretches of text have nothing to do with each other; after a greeting
more readily."""
UNUSUAL_DEVIATIONS = 1.5
"""A link is unusually weak so many standard deviations below the mean of the conversation's
links."""
_GREETING = re.compile(vocabulary("search")["greeting"], re.IGNORECASE)


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

        Raises `ValueError` if their widths differ from each other or from those there.
        """
        rows = np.asarray(new, dtype=self._buffer.dtype)
        if not len(rows):
            return
        width = self._buffer.shape[1:] if self._length else rows.shape[1:]
        end = self._length + len(rows)
        if not self._length or end > len(self._buffer):
            bigger = np.zeros((max(end, 2 * self._length, _FIRST_CAPACITY), *width), rows.dtype)
            if self._length:
                bigger[: self._length] = self.values
            self._buffer = bigger
        self._buffer[self._length : end] = rows
        self._length = end

    def truncate(self, length: int) -> None:
        """Keeps only the first ones."""
        self._length = min(self._length, length)


class CentredVectors:
    """Vectors in the order in which they were added, each of length 1."""

    def __init__(self) -> None:
        self.rows = Rows(np.int8)
        """The vectors as they are stored: each so long that its largest value is 127."""
        self._signs: list[Rows] = []
        """Of each the signs of its values without the mean, 64 a number and a column; made when
        they are asked for."""
        self._mean: Vectors = np.zeros(0, np.float32)
        self._in_mean = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """The number of values of each; 0 while there are none."""
        return self.rows.values.shape[1] if len(self) else 0

    def at(
        self, places: slice | NDArray[np.intp] = slice(None), before: Sequence[Vectors] = ()
    ) -> Vectors:
        """Returns the vectors, or some of them, with others `before` them.

        To copy all of them takes longer.
        """
        found = self.rows.values[places]
        rows = np.concatenate(
            (*before, found.reshape(-1, before[0].shape[1]) if before else found), dtype=np.float32
        )
        own = rows[len(rows) - len(found) :]
        own /= np.maximum(np.sqrt(np.einsum("...i,...i", own, own)), 1)[..., np.newaxis]
        return rows

    def extend(self, vectors: Sequence[Sequence[float]] | NDArray[Any]) -> None:
        """Adds some, of one width; those of zeros are similar to nothing."""
        rows = units(np.asarray(vectors, np.float32))
        largest = np.abs(rows).max(axis=-1, initial=_TINY, keepdims=True)
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
        mean = self._common()
        self._signs = self._signs or [Rows(np.uint64) for _ in range(-(-self.width // _WORD))]
        for start in range(len(self._signs[0]), len(self), _AT_ONCE):
            made = signs(self.at(slice(start, start + _AT_ONCE)) > mean)
            for column, values in zip(self._signs, made.T, strict=True):
                column.extend(values)
        alike = np.full(len(self), self.width, np.int16)
        for column, sign in zip(self._signs, signs((target > mean)[np.newaxis])[0], strict=True):
            alike -= np.bitwise_count(
                column.values ^ sign
            )  # columns take a quarter of the time of rows
        return alike

    def compared(
        self, others: Vectors | None = None, places: slice | NDArray[np.intp] = slice(None)
    ) -> "Compared":
        """Returns what can be compared with a query.

        First others, then those of its own at some places.
        """
        rows = self.at(places, [] if others is None or not len(others) else [units(others)])
        if len(self) >= FEW:
            return Compared(rows, self._common())
        return Compared(rows, rows.mean(axis=0) if len(rows) else np.zeros(1, np.float32))

    def _common(self) -> Vectors:
        """Returns the mean, brought up to date; each step of it has a quarter more texts."""
        counted = texts_in_mean(len(self))
        if counted != self._in_mean:
            parts = (
                slice(start, min(start + _AT_ONCE, counted))
                for start in range(0, counted, _AT_ONCE)
            )
            total = np.add.reduce([self.at(part).sum(axis=0, dtype=np.float64) for part in parts])
            self._in_mean, self._mean = counted, (total / counted).astype(np.float32)
            self._signs = []
        return self._mean


class Compared:
    """Vectors of length 1 without what they have in common.

    Those of zeros are similar to nothing.
    """

    def __init__(self, rows: Vectors, mean: Vectors) -> None:
        """Takes over vectors, and takes the mean off them."""
        is_zero = np.einsum("...i,...i", rows, rows) == 0
        self._mean = mean
        rows -= mean
        lengths = np.maximum(np.sqrt(np.einsum("...i,...i", rows, rows)), _NO_LENGTH)
        self._rows, self._lengths = rows, np.where(is_zero, np.float32(np.inf), lengths)

    def cosines(self, query: NDArray[Any]) -> Scores:
        """Returns the cosine of every vector with a query."""
        [target] = units(np.asarray([query], np.float32))
        return self._with(target - self._mean)

    def to_mean(self, numbers: NDArray[np.intp], weights: Scores) -> Scores:
        """Returns the cosine of every vector with the mean of some, by number and weight."""
        return self._with(weights / self._lengths[numbers] @ self._rows[numbers])

    def _with(self, aim: NDArray[Any]) -> Scores:
        if not len(self._rows):
            return np.zeros(0)
        aim = np.asarray(aim / max(float(np.linalg.norm(aim)), _TINY), np.float32)
        cosines = np.einsum(
            "ij,j->i", self._rows, aim
        )  # in this thread: a second one of BLAS is waited for under load
        found: Scores = np.round((cosines / self._lengths).astype(np.float64), DECIMALS)
        return found


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
    return np.packbits(np.pad(positive, ((0, 0), (0, -positive.shape[1] % _WORD))), axis=1).view(
        np.uint64
    )


def units(vectors: Vectors) -> Vectors:
    """Returns vectors of length 1; those without any length stay.

    A value that is not a number is a `ValueError`.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError("the embeddings hold values that are not numbers (NaN or infinite)")
    return np.asarray(vectors / np.where(lengths > _TINY, lengths, 1), np.float32)


def comparable(vectors: Sequence[Sequence[float]], width: int) -> Vectors:
    """Returns vectors as they came, and zeros for those that hold values that are no numbers, or have another width."""
    rows = np.zeros((len(vectors), width), np.float32)
    for number, vector in enumerate(vectors):
        row = np.asarray(vector, np.float32)
        if row.shape == (width,) and np.isfinite(np.linalg.norm(row)):
            rows[number] = row
    return rows


def as_query(vector: Sequence[float], width: int = 0) -> Vectors:
    """Returns the vector of a query, if it can be compared with vectors of a width (0.

    There are none yet).
    """
    target = np.asarray(vector, np.float32)
    units(target)
    if not target.size or width not in (0, target.size):
        raise ValueError(
            f"the vector of the query has {target.size} dimensions, and those of the texts have {width}"
        )
    return target


def limit(text: str, *, from_user: bool) -> float:
    """Returns the cosine with what stands before it below which a text begins a subject (TextTiling: Hearst 1997)."""
    greets = from_user and _GREETING.match(text)
    return UNLIKE_AFTER_GREETING if greets else UNLIKE if from_user else NEVER


def links(vectors: Vectors, start: int = 0) -> Vectors:
    """Returns the cosine of each text, with those after it, with those before it, `(texts - start,)`; 1 for the first.

    A text's link is final when `AFTER - 1` more texts follow.
    """
    first = max(0, start - BEFORE)
    rows = vectors[first:]
    before = np.zeros_like(rows)
    after = rows.copy()
    for distance in range(1, min(BEFORE, len(rows) - 1) + 1):
        before[distance:] += rows[:-distance]
    for distance in range(1, min(AFTER, len(rows))):
        after[:-distance] += rows[distance:]
    norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    similarity: Vectors = np.einsum("ij,ij->i", before, after) / np.maximum(norms, np.float32(1e-9))
    if not first and len(similarity):
        similarity[0] = 1.0
    return similarity[start - first :]


def usual_limit(session: Numbers, links: Vectors) -> float:
    """Returns the limit below which a user's text begins a subject, in a conversation whose texts have these sessions.

    It is `UNLIKE`, or less where the links within the sessions of the first texts are so weak that
    many lie below it. All `links` must be final: then the limit depends on the texts alone.
    """
    if len(links) < FEW:
        return UNLIKE
    first = texts_in_mean(len(links))
    is_within = session[1:first] == session[: first - 1]
    within = links[1:first][is_within]
    if len(within) < FEW // 2:
        return UNLIKE
    unusual = within.mean(dtype=np.float64) - UNUSUAL_DEVIATIONS * within.std(dtype=np.float64)
    return min(UNLIKE, round(float(unusual), DECIMALS))


def subjects(session: Numbers, links: Vectors, limits: Vectors, usual: float = UNLIKE) -> Numbers:
    """Returns the number of every text's subject, from 0 and never falling.

    Sessions, cut where a subject begins.

    `usual` takes the place of the limit of a user's texts that do not greet.
    """
    starts = np.diff(session, prepend=session[:1]) > 0
    known = min(len(links), len(limits), len(session))
    lowered = np.where(limits[:known] == np.float32(UNLIKE), np.float32(usual), limits[:known])
    starts[:known] |= links[:known] < lowered
    return np.cumsum(starts, dtype=np.int32)


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
_BATCH = 64
_MOST_CHARACTERS = 32_768
"""Texts that are tokenized together, and what is read of each."""


class _Model(NamedTuple):
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
                "LocalEmbeddings needs the word vectors of the package wordllama, which is not installed here: "
                "pip install wordllama, or pass any other LangChain embeddings"
            )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector per text; of a very long one, of its first 32,768 characters."""
        tokenizer, vectors, weights = _load()
        sums = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = [encodable(text[:_MOST_CHARACTERS]) for text in texts[start : start + _BATCH]]
            for row, encoding in enumerate(
                tokenizer.encode_batch_fast(batch, add_special_tokens=False), start
            ):
                if (
                    tokens := encoding.ids
                ):  # one text at a time: its rows stay in the processor's cache
                    sums[row] = np.add.reduceat(
                        vectors.take(tokens, axis=0) * weights[tokens, np.newaxis], [0]
                    )[0]
        rows: list[list[float]] = units(sums).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text; the same as that of a document."""
        return self.embed_documents([text])[0]

    def embed_words(self, weights: Mapping[str, float]) -> list[float]:
        """The vector of words with a weight each, such as their rarity in a conversation."""
        tokenizer, vectors, usual = _load()
        found = [
            tokenizer.encode(encodable(word), add_special_tokens=False).ids for word in weights
        ]
        tokens = [token for ids in found for token in ids]
        given = np.repeat(np.array([*weights.values()], np.float32), [*map(len, found)])
        vector: list[float] = (
            (given / usual[tokens]) @ (vectors[tokens] * usual[tokens, np.newaxis])
        ).tolist()
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

    spec = find_spec("wordllama")
    folders = map(Path, (spec.submodule_search_locations or ()) if spec else ())
    folder = next(
        (one for one in folders if (one / _WEIGHTS).is_file() and (one / _TOKENIZER).is_file()),
        None,
    )
    if folder is None:
        raise EmbeddingsUnavailableError(
            "The word vectors of the package wordllama are gone: pip install wordllama"
        )
    vectors = load_file(folder / _WEIGHTS)["embedding.weight"]
    ids = np.arange(len(vectors))
    size = len(vectors)
    rank = np.where(ids < _FIRST_CHARACTER, ids - _FIRST_MERGED, ids - _FIRST_CHARACTER) + 1
    rank[:_FIRST_MERGED] = size  # bytes and special tokens stand for what is rare
    weights = (_SIF_A / (_SIF_A + 1 / (rank * np.log(size)))).astype(np.float32)
    return _Model(Tokenizer.from_file(str(folder / _TOKENIZER)), vectors, weights)
