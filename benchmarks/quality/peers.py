"""Other libraries, each set up as its own documentation says; none is needed to import this module.

All of them run offline: the embeddings are `LocalEmbeddings`, the stores are in memory, no language
model is called.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import tiktoken
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget import LocalEmbeddings
from quality.data import Turn
from quality.scoring import count
from quality.systems import SYSTEM_PROMPT, USER, Snippets, System

ENCODING = "o200k_base"


class ChromaRetriever(Snippets):
    """`Chroma.as_retriever` with as many documents as can fill the budget."""

    name = "langchain-chroma"
    install = "langchain-chroma>=1.0,<2"

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        chroma = import_module("langchain_chroma").Chroma
        self.store = chroma(
            collection_name=f"turns-{uuid4()}",
            embedding_function=LocalEmbeddings(),
            collection_metadata={"hnsw:space": "cosine"},
        )

    def index(self, turns: Sequence[Turn]) -> None:
        places = range(len(self.turns) - len(turns), len(self.turns))
        found = zip(turns, places, strict=True)
        self.store.add_documents(
            [Document(turn.line, metadata={"place": place}) for turn, place in found]
        )

    def ranked(self, question: str, limit: int) -> Iterable[int]:
        retriever = self.store.as_retriever(search_kwargs={"k": limit})
        return (document.metadata["place"] for document in retriever.invoke(question))

    def close(self) -> None:
        self.store.delete_collection()


class Mem0(Snippets):
    """`Memory.add(infer=False)` per message, and `search` without a threshold: the budget decides.

    As `pip install mem0ai` leaves it, search is by vectors alone. Its keyword and entity scores
    need fastembed and spaCy with a model each from the network; where they are installed, mem0 uses
    them by itself.
    """

    name = "mem0"
    install = "mem0ai>=2.0,<3 langchain>=1.4,<2"

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="mem0-"))
        embeddings = LocalEmbeddings()
        logging.getLogger("mem0").setLevel(
            logging.ERROR
        )  # it names the optional parts at every insertion
        warnings.filterwarnings("ignore", "Payload indexes have no effect")
        store = {
            "client": import_module("qdrant_client").QdrantClient(":memory:"),
            "collection_name": "turns",
            "embedding_model_dims": embeddings.dimensions,
        }
        self.memory = import_module("mem0").Memory.from_config(
            {
                "embedder": {"provider": "langchain", "config": {"model": embeddings}},
                "vector_store": {"provider": "qdrant", "config": store},
                "llm": {"provider": "openai", "config": {"api_key": "not-used"}},
                "history_db_path": ":memory:",
            }
        )

    def index(self, turns: Sequence[Turn]) -> None:
        for place, turn in enumerate(turns, len(self.turns) - len(turns)):
            message = {
                "role": "user" if turn.human else "assistant",
                "name": turn.speaker,
                "content": turn.line,
            }
            self.memory.add([message], user_id=USER, metadata={"place": place}, infer=False)

    def ranked(self, question: str, limit: int) -> Iterable[int]:
        found = self.memory.search(question, filters={"user_id": USER}, top_k=limit, threshold=0.0)
        return (memory["metadata"]["place"] for memory in found["results"])

    def close(self) -> None:
        self.memory.close()


class LlamaIndex(System):
    """`Memory` with a `VectorMemoryBlock` in the proportions of its defaults, used as LlamaIndex's agents use it.

    70 % of the limit for recent messages, which leave it by 10 %; each such batch is one node of
    the vector store, and the two nearest to the last 5 messages come back. The block is left out if
    it does not fit (priority 1; at 0 it would go over). The question is put into the memory, which
    then builds the prompt; afterwards it is taken out. The limit is the budget without the system
    prompt, which an agent adds.
    """

    name = "llama-index"
    install = "llama-index-core>=0.14,<0.15 llama-index-embeddings-langchain>=0.6,<1 llama-index-vector-stores-chroma>=0.6,<1"
    ratio = 0.7
    flush = 0.1
    message_tokens = 0
    block: Mapping[str, int] = MappingProxyType(
        {"similarity_top_k": 2, "retrieval_context_window": 5}
    )

    def __init__(self, budgets: Sequence[int]) -> None:
        super().__init__(budgets)
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        self.chat_message = import_module("llama_index.core.llms").ChatMessage
        self.active = import_module(
            "llama_index.core.storage.chat_store.base_db"
        ).MessageStatus.ACTIVE
        self.embeddings = import_module("llama_index.embeddings.langchain").LangchainEmbedding(
            LocalEmbeddings()
        )
        self.chroma = import_module("chromadb").EphemeralClient()
        self.runner = asyncio.Runner()
        self.engines: list[Any] = []
        self.collections: list[Any] = []
        self.memories = {budget: self.memory(budget) for budget in budgets}

    def memory(self, budget: int) -> Any:  # noqa: ANN401 - of an optional library
        library = import_module("llama_index.core.memory")
        store = import_module("llama_index.vector_stores.chroma").ChromaVectorStore
        name = f"batches-{uuid4()}"
        self.collections.append(
            self.chroma.create_collection(name, metadata={"hnsw:space": "cosine"})
        )
        vectors = library.VectorMemoryBlock(
            vector_store=store(chroma_collection=self.collections[-1]),
            embed_model=self.embeddings,
            priority=1,
            **self.block,
        )
        self.engines.append(
            import_module("sqlalchemy.ext.asyncio").create_async_engine("sqlite+aiosqlite://")
        )
        return library.Memory.from_defaults(
            token_limit=budget - count([SystemMessage(SYSTEM_PROMPT)]),
            token_flush_size=max(1, int(self.flush * budget)),
            chat_history_token_ratio=self.ratio,
            memory_blocks=[vectors],
            tokenizer_fn=self.tokens,
            async_engine=self.engines[-1],
        )

    def tokens(self, text: str) -> list[int]:
        return [*_encoded(text), *[0] * self.message_tokens]

    def add(self, turns: Sequence[Turn]) -> None:
        for memory in self.memories.values():
            for turn in turns:  # one by one, as a chat goes
                role = "user" if turn.human else "assistant"
                self.runner.run(memory.aput(self.chat_message(role=role, content=turn.dated)))

    def assemble(self, question: str, budget: int) -> Sequence[BaseMessage]:
        kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
        told = self.runner.run(self.told(self.memories[budget], question))
        return [
            SystemMessage(SYSTEM_PROMPT),
            *(kinds[part.role.value](str(part.content)) for part in told),
        ]

    async def told(self, memory: Any, question: str) -> list[Any]:  # noqa: ANN401
        """The messages of an agent's next call."""
        await memory.aput(self.chat_message(role="user", content=question))
        active = await memory.aget_all(status=self.active)
        self.prepare(memory, active)
        told: list[Any] = await memory.aget(input=question)
        await memory.aset(active[:-1])
        return told

    def prepare(self, memory: Any, active: Sequence[Any]) -> None:  # noqa: ANN401
        """Set what depends on the question."""

    def close(self) -> None:
        for engine in self.engines:
            self.runner.run(engine.dispose())
        for collection in self.collections:
            self.chroma.delete_collection(collection.name)
        self.runner.close()


class LlamaIndexTuned(LlamaIndex):
    """The same, as well as its options and its hook for node postprocessors allow.

    30 % for recent messages, an exchange per node, as many nodes as fit, and the question alone as
    the query. Its token counter adds what a message costs by itself.
    """

    name = "llama-index-tuned"
    ratio = 0.3
    flush = 0.0
    message_tokens = 4
    # An agent's memory has the question twice, in its messages and as its input: these two are the
    # query.
    block = MappingProxyType({"similarity_top_k": 200, "retrieval_context_window": 2})

    def memory(self, budget: int) -> Any:  # noqa: ANN401
        memory = super().memory(budget)
        memory.memory_blocks[0].node_postprocessors = [_fitting()]
        return memory

    def prepare(self, memory: Any, active: Sequence[Any]) -> None:  # noqa: ANN401
        spent = sum(len(self.tokens(str(message.content))) for message in active)
        memory.memory_blocks[0].node_postprocessors[0].room = (
            memory.token_limit - spent - _TEMPLATE_TOKENS
        )


_TEMPLATE_TOKENS = 20
"""Around the block of what was retrieved."""


def _fitting() -> Any:  # noqa: ANN401
    """A postprocessor that passes the nodes that fit, best first."""
    types = import_module("llama_index.core.postprocessor.types")

    # Its base is not known where the library is missing.
    class Fitting(types.BaseNodePostprocessor):  # type: ignore[misc, name-defined]
        room: int = 0

        def _postprocess_nodes(self, nodes: list[Any], query_bundle: object = None) -> list[Any]:  # noqa: ARG002
            left = self.room
            kept = []
            for node in nodes:
                tokens = len(_encoded(node.get_content() + "\n\n"))
                if tokens <= left:
                    kept.append(node)
                    left -= tokens
            return kept

    return Fitting()


@lru_cache(maxsize=100_000)
def _encoded(text: str) -> list[int]:
    return tiktoken.get_encoding(ENCODING).encode(text, disallowed_special=())
