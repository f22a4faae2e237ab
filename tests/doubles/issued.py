"""What the doubles have given out, and know again: signatures of thoughts, ids of items.

Real servers remember what they have issued. Here it can be read from the thing itself: a signature
names its provider, a digest of the thought, and one of the request that it answers, as far as the
provider binds it to that; the id of an item the reasoning that it needs. A signature that names no
provider was made up by a test, and passes.
"""

import base64
import hashlib
from collections.abc import Callable
from typing import Any

PROVIDERS = ("anthropic", "google", "openai", "mistral")
_NEEDS = "_needs_"


def signature(provider: str, thought: str, behind: str = "") -> str:
    """The signature of a thought, as its provider writes it; `behind` is what it is bound to."""
    bound = f":{_digest(behind)}" if behind else ""
    return base64.b64encode(f"{provider}:{_digest(thought)}{bound}".encode()).decode()


def is_bound_to(behind: str, text: object) -> bool:
    """Whether a thought may stand behind something; one that was bound to nothing may not."""
    parts = _parts_of(text)
    if not parts or parts[0] not in PROVIDERS:
        return True
    return parts[2:] == [_digest(behind)]


def resigned(value: Any, sign: Callable[[str], str]) -> Any:
    """JSON of a message with other signatures of Claude in place of those in it."""
    if isinstance(value, dict):
        return {key: resigned(part, sign) for key, part in value.items()}
    if isinstance(value, list):
        return [resigned(part, sign) for part in value]
    if isinstance(value, str) and _parts_of(value)[:1] == ["anthropic"]:
        return sign(value)
    return value


def bound_to(behind: str, text: str) -> str:
    """The signature of a thought that is bound to what stands before it."""
    author, thought = _parts_of(text)[:2]
    return base64.b64encode(f"{author}:{thought}:{_digest(behind)}".encode()).decode()


def _parts_of(text: object) -> list[str]:
    """The parts of a signature; none for one that was made up by a test."""
    try:
        return base64.b64decode(str(text)).decode().split(":")
    except ValueError:
        return []


def _digest(thought: str) -> str:
    return hashlib.sha256(thought.encode()).hexdigest()[:12]


def is_signature_of(provider: str, thought: str | None, text: object) -> bool:
    """Whether a text may be the signature of a thought; None: of any thought."""
    parts = _parts_of(text)
    if not parts or parts[0] not in PROVIDERS:
        return True
    return parts[0] == provider and (thought is None or _digest(thought) == parts[1])


def item_id(prefix: str, number: object, needs: str = "") -> str:
    """The id of an item of OpenAI's Responses, and of the reasoning that it may need."""
    own = f"{prefix}{number}"
    if needs:
        return f"{own}{_NEEDS}{needs}"
    return own


def needed_by(identifier: str) -> str:
    """The id of the reasoning that an item needs; empty if it needs none."""
    return identifier.partition(_NEEDS)[2]
