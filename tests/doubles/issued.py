"""What the doubles have given out, and know again: signatures of thoughts, ids of items.

Real servers remember what they have issued. Here it can be read from the thing itself: a signature
names its provider and a digest of the thought, the id of an item the reasoning that it needs. A
signature that names no provider was made up by a test, and passes.
"""

import base64
import hashlib

PROVIDERS = ("anthropic", "google", "openai", "mistral")
_NEEDS = "_needs_"


def signature(provider: str, thought: str) -> str:
    """The signature of a thought, as its provider writes it."""
    return base64.b64encode(f"{provider}:{_digest(thought)}".encode()).decode()


def _digest(thought: str) -> str:
    return hashlib.sha256(thought.encode()).hexdigest()[:12]


def is_signature_of(provider: str, thought: str | None, text: object) -> bool:
    """Whether a text may be the signature of a thought; None: of any thought."""
    try:
        author, _, digest = base64.b64decode(str(text)).decode().partition(":")
    except ValueError:
        return True
    if author not in PROVIDERS:
        return True
    return author == provider and _fits(thought, digest)


def _fits(thought: str | None, digest: str) -> bool:
    return thought is None or _digest(thought) == digest


def item_id(prefix: str, number: object, needs: str = "") -> str:
    """The id of an item of OpenAI's Responses, and of the reasoning that it may need."""
    own = f"{prefix}{number}"
    if needs:
        return f"{own}{_NEEDS}{needs}"
    return own


def needed_by(identifier: str) -> str:
    """The id of the reasoning that an item needs; empty if it needs none."""
    return identifier.partition(_NEEDS)[2]
