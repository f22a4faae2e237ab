"""What a message says beside its content, in `additional_kwargs`.

| key | what it holds | who sends it again (as of November 2026) |
|---|---|---|
| `audio` | the sound and the transcript of a spoken answer | `langchain-openai`, by its id |
| `refusal` | why a model of OpenAI's does not answer | nobody |
| `reasoning_content` | thoughts of models of DeepSeek, xAI, Groq, Ollama | `langchain-ollama` |

OpenAI forgets a sound after an hour and then refuses its id: "Assistant audio ... not found",
`audio_not_found` (community.openai.com, topic 1046769).
"""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.content.blocks import Block, text_block

AUDIO = "audio"
REFUSAL = "refusal"
REASONING = "reasoning_content"
_KEYS = frozenset({AUDIO, REFUSAL, REASONING})


def has_parts_beside(message: BaseMessage) -> bool:
    """Tells if a message may say something beside its content."""
    return not _KEYS.isdisjoint(message.additional_kwargs)


def blocks_beside(message: BaseMessage) -> dict[str, Block]:
    """Returns what an assistant's message says beside its content, as blocks by their keys."""
    if not isinstance(message, AIMessage) or not has_parts_beside(message):
        return {}
    beside: dict[str, Block] = {}
    for key in (REASONING, AUDIO, REFUSAL):
        block = _block_of(key, message.additional_kwargs.get(key))
        if block is not None:
            beside[key] = block
    return beside


def _block_of(key: str, value: object) -> Block | None:
    """Returns what stands under a key as a block; None where that says nothing."""
    if key == AUDIO:
        return _spoken(value) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not value.strip():
        return None
    return {"type": REASONING, REASONING: value} if key == REASONING else text_block(value)


def _spoken(audio: Mapping[str, Any]) -> Block:
    """Returns the transcript of a spoken answer as text; one without a transcript is a sound."""
    transcript = audio.get("transcript")
    if isinstance(transcript, str) and transcript.strip():
        return text_block(transcript)
    return {**audio, "type": AUDIO}


def without_beside(message: BaseMessage, keys: set[str]) -> dict[str, Any]:
    """Returns the `additional_kwargs` of a message without what stands under some keys."""
    return {key: value for key, value in message.additional_kwargs.items() if key not in keys}
