"""Embeddings of one's own: a sentence-transformers model in a folder, without torch or network.

The folder holds `model.onnx` and `tokenizer.json`, for instance of all-MiniLM-L6-v2. Without a
folder, the example shows what the default embeddings find.

    python examples/onnx_embeddings.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from langchain_core.embeddings import Embeddings
from tokenizers import Tokenizer

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.demo import DEMO_EVIDENCE_IDS, DEMO_QUESTION, demo_messages

LONGEST_TEXT = 256
"""In tokens; what is behind is not read."""
BATCH = 32
"""Texts that the model reads at once."""


class OnnxEmbeddings(Embeddings):
    """The mean of what a model makes of a text's tokens, of length 1."""

    model = "all-MiniLM-L6-v2-onnx"
    """Vectors are stored under this name: give another model another one."""

    def __init__(self, folder: Path) -> None:
        """Reads the model and its tokenizer from a folder."""
        self.session = onnxruntime.InferenceSession(folder / "model.onnx")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST_TEXT)
        self.tokenizer.enable_padding()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Returns a vector for each text."""
        rows: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            rows += self._embed(texts[start : start + BATCH])
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Returns the vector of a question."""
        [row] = self._embed([text])
        return row

    def _embed(self, texts: list[str]) -> list[list[float]]:
        encodings = self.tokenizer.encode_batch(texts)
        tokens = np.array([encoding.ids for encoding in encodings])
        mask = np.array([encoding.attention_mask for encoding in encodings])
        inputs = {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(tokens),
        }
        states = np.asarray(self.session.run(None, inputs)[0])
        sums = (states * mask[..., np.newaxis]).sum(axis=1)
        rows: list[list[float]] = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).tolist()
        return rows


def show(name: str, embeddings: Embeddings | None) -> None:
    """How many of the messages that answer the question of the demo stand in its prompt."""
    settings = {"max_context_tokens": 3_000, "learn": False}
    with ContextPipeline(settings, embeddings=embeddings) as pipeline:
        chat = pipeline.conversation("tools", user_id="maya")
        chat.add(demo_messages())
        chat.assemble(DEMO_QUESTION)
        states = chat.coverage()
    word_for_word = {*states["verbatim"], *states["retrieved"]}
    found = word_for_word.intersection(DEMO_EVIDENCE_IDS)
    print(f"{name}: {len(found)} of {len(DEMO_EVIDENCE_IDS)} messages found")


def main() -> None:
    """The default embeddings, and those of the folder."""
    show("default", None)
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        show(folder.name, OnnxEmbeddings(folder))


if __name__ == "__main__":
    main()
