"""`LocalEmbeddings`: static word vectors that need no network, no model server and no torch.

Vectors and tokenizer are two files in the wheel of `wordllama`, which are read directly: importing the package would
configure the root logger and could end in a download. A text is the mean of its tokens' vectors, the frequent ones
weighing less: `a / (a + p)` with a token's probability `p` (Arora, Liang and Ma, ICLR 2017), which follows by
Zipf's law from its place in the tokenizer's list: merged tokens, then single characters, each roughly by frequency.
"""

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.search.vectors import units

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
# The tokenizer's list: 3 special tokens and 256 bytes, the merged tokens, the single characters.
_FIRST_MERGED = 259
_FIRST_CHARACTER = 29_871
_SIF_A = 1e-3
_BATCH, _MOST_CHARACTERS = 64, 32_768
"""Texts that are tokenized together, and what is read of each."""


class _Model(NamedTuple):
    tokenizer: "Tokenizer"
    vectors: npt.NDArray[np.float32]
    """A row per token, its weight multiplied in."""
    weights: npt.NDArray[np.float32]
    """Near 0 for the most frequent tokens, near 1 for the rare ones."""


class LocalEmbeddings(Embeddings):
    """Sentence vectors of 256 dimensions and length 1 from static word vectors, offline.

    They are loaded when first used (about 0.1 s and 33 MB, once per process). A text without any token has the zero
    vector, which is similar to nothing. Threads may share an instance.

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
        tokenizer, vectors, _ = _load()
        sums = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = [_valid(text[:_MOST_CHARACTERS]) for text in texts[start : start + _BATCH]]
            for row, encoding in enumerate(tokenizer.encode_batch_fast(batch, add_special_tokens=False), start):
                if tokens := encoding.ids:  # one text at a time: its rows stay in the processor's cache
                    sums[row] = np.add.reduceat(vectors.take(tokens, axis=0), [0])[0]
        rows: list[list[float]] = units(sums).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text; the same as that of a document."""
        return self.embed_documents([text])[0]

    def embed_words(self, weights: Mapping[str, float]) -> list[float]:
        """The vector of words of which each counts as much as is given, as by how rare it is in a conversation."""
        tokenizer, vectors, usual = _load()
        found = [tokenizer.encode(_valid(word), add_special_tokens=False).ids for word in weights]
        tokens = [token for ids in found for token in ids]
        given = np.repeat(np.array([*weights.values()], np.float32), [*map(len, found)])
        vector: list[float] = ((given / usual[tokens]) @ vectors[tokens]).tolist()
        return vector


def local_embeddings_available() -> bool:
    """Tells if the package of the word vectors is installed; reads no file, as it may be asked on an event loop."""
    return find_spec("wordllama") is not None


@cache
def _load() -> _Model:
    """Reads the files of `wordllama`, which is found without importing it."""
    from safetensors.numpy import load_file  # noqa: PLC0415 - comes with wordllama, which is optional
    from tokenizers import Tokenizer  # noqa: PLC0415

    spec = find_spec("wordllama")
    folders = map(Path, (spec.submodule_search_locations or ()) if spec else ())
    folder = next((one for one in folders if (one / _WEIGHTS).is_file() and (one / _TOKENIZER).is_file()), None)
    if folder is None:
        raise EmbeddingsUnavailableError("The word vectors of the package wordllama are gone: pip install wordllama")
    vectors = load_file(folder / _WEIGHTS)["embedding.weight"].astype(np.float32)
    ids, size = np.arange(len(vectors)), len(vectors)
    rank = np.where(ids < _FIRST_CHARACTER, ids - _FIRST_MERGED, ids - _FIRST_CHARACTER) + 1
    rank[:_FIRST_MERGED] = size  # bytes and special tokens stand for what is rare
    weights = (_SIF_A / (_SIF_A + 1 / (rank * np.log(size)))).astype(np.float32)
    return _Model(Tokenizer.from_file(str(folder / _TOKENIZER)), vectors * weights[:, np.newaxis], weights)


def _valid(text: str) -> str:
    """A text without lone surrogates, which the tokenizer refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")
