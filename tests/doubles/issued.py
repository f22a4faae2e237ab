"""What the doubles have given out, and know again: signatures of thoughts, ids of items.

Real servers remember what they have issued. Here it can be read from the thing itself. A signature
names its provider, a digest of the thought and, where the provider binds the thought, a digest of
what stands before it. The id of an item names the reasoning that it needs. A signature that names
no provider was made up by a test, and passes.
"""

import base64
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

PROVIDERS = ("anthropic", "google", "openai", "mistral")
_NEEDS = "_needs_"


class _Signature(NamedTuple):
    """What a signature says."""

    provider: str
    thought: str
    """The digest of the thought."""
    behind: str = ""
    """The digest of what stands before the thought; empty if it is not bound to that."""

    def __str__(self) -> str:
        fields = [self.provider, self.thought]
        if self.behind:
            fields.append(self.behind)
        return base64.b64encode(":".join(fields).encode()).decode()


def signature(provider: str, thought: str, behind: str = "") -> str:
    """The signature of a thought, as its provider writes it; `behind` is what it is bound to."""
    if not behind:
        return str(_Signature(provider, _digest(thought)))
    return str(_Signature(provider, _digest(thought), _digest(behind)))


def is_bound_to(behind: str, text: object) -> bool:
    """Whether a thought may stand behind something; one that was bound to nothing may not."""
    issued = _issued(text)
    return issued is None or issued.behind == _digest(behind)


def is_signature_of(provider: str, thought: str | None, text: object) -> bool:
    """Whether a text may be the signature of a thought; None: of any thought."""
    issued = _issued(text)
    if issued is None:
        return True
    if issued.provider != provider:
        return False
    return thought is None or issued.thought == _digest(thought)


def bound_to(behind: str, text: str) -> str:
    """The signature of the same thought, bound to what stands before it."""
    issued = _issued(text)
    assert issued is not None
    return str(issued._replace(behind=_digest(behind)))


def resigned(value: Any, sign: Callable[[str], str]) -> Any:
    """JSON of a message with other signatures of Claude in place of those in it."""
    if isinstance(value, dict):
        return {key: resigned(part, sign) for key, part in value.items()}
    if isinstance(value, list):
        return [resigned(part, sign) for part in value]
    issued = _issued(value)
    if issued is not None and issued.provider == "anthropic":
        return sign(value)
    return value


def _issued(text: object) -> _Signature | None:
    """What a signature says that a double has given out; None for one that a test has made up."""
    try:
        provider, *fields = base64.b64decode(str(text)).decode().split(":")
    except ValueError:
        return None
    if provider not in PROVIDERS:
        return None
    return _Signature(provider, *fields)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Ids of items


def item_id(prefix: str, number: object, needs: str = "") -> str:
    """The id of an item of OpenAI's Responses, and of the reasoning that it may need."""
    own = f"{prefix}{number}"
    if needs:
        return f"{own}{_NEEDS}{needs}"
    return own


def needed_by(identifier: str) -> str:
    """The id of the reasoning that an item needs; empty if it needs none."""
    return identifier.partition(_NEEDS)[2]
