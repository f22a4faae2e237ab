"""In which forms a provider's LangChain package, and its API, read media and other blocks.

The classes are here; each provider's values stand in its profile.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from langchain_ctxbudget.content import Carrier, Medium, MediumKind, Shape, carrier_of

IMAGE_TYPES = "image/(png|jpeg|gif|webp)"
"""What OpenAI, Anthropic and Mistral take."""
ANY_ADDRESS = r"https?://(?!generativelanguage\.googleapis\.com/)"
"""Files at Google's own address are read by Gemini alone."""
_SAME_TYPES = (
    ("image/jpeg", "image/jpg", "image/pjpeg"),
    ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"),
    ("audio/mp3", "audio/mpeg"),
)
"""MIME types that are names of one thing."""


class MediaInResults(Enum):
    """Where the media in the result of a tool are sent."""

    INSIDE = "in the result"
    BEHIND = "in a message of the user behind the results of the round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """The shapes of block in which a provider reads one kind of medium.

    They depend on what the block has: bytes, an address or the id of a file. A medium in any other
    shape is written in the first one. Where there is no shape, the provider does not take it.
    """

    with_bytes: tuple[Shape, ...] = ()
    by_address: tuple[Shape, ...] = ()
    by_file_id: tuple[Shape, ...] = ()
    types: str = ""
    """A pattern of the MIME types that are taken; empty: any."""

    def shapes(self, carrier: Carrier | None) -> tuple[Shape, ...]:
        """Returns the shapes in which a medium is read that a block has in this way."""
        match carrier:
            case Carrier.BYTES:
                return self.with_bytes
            case Carrier.ADDRESS:
                return self.by_address
            case Carrier.FILE_ID:
                return self.by_file_id
            case None:
                return ()

    def accepted_type(self, mime_type: str) -> str | None:
        """Returns the name by which the provider takes a MIME type; None if it does not take it."""
        for name in _names_of(mime_type):
            if not self.types or re.fullmatch(self.types, name):
                return name
        return None


def _names_of(mime_type: str) -> tuple[str, ...]:
    """Returns all names of a MIME type, its own first."""
    for names in _SAME_TYPES:
        if mime_type in names:
            return (mime_type, *names)
    return (mime_type,)


NOT_TAKEN = Readable()


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaForms:
    """Which media and other blocks a provider's LangChain package and its API read."""

    kinds: Mapping[MediumKind, Readable] = field(default_factory=dict)
    """What is read of each kind; a kind that is not here is not taken."""
    in_results: MediaInResults = MediaInResults.INSIDE
    not_in_results: frozenset[Shape] = frozenset()
    """Shapes that the package does not read in the results of tools."""
    blocks: frozenset[str] = frozenset()
    """The types of blocks that are read besides media and text, in messages of the user and in
    results; all others are sent as text."""
    addresses: str = ANY_ADDRESS
    """A pattern of how an address begins that can be fetched."""
    refused_file_ids: str = ""
    """A pattern of how the ids of files begin that are another provider's; empty: none."""

    def shapes(self, medium: Medium, *, in_result: bool) -> tuple[Shape, ...]:
        """Returns the shapes in which a medium is read; none if the provider does not take it."""
        if not self._can_be_reached(medium):
            return ()
        shapes = self.kinds.get(medium.kind, NOT_TAKEN).shapes(carrier_of(medium))
        if not in_result or self.in_results is MediaInResults.BEHIND:
            return shapes
        return tuple(shape for shape in shapes if shape not in self.not_in_results)

    def accepted_type(self, medium: Medium) -> str | None:
        """Returns the name by which the provider takes a medium's MIME type; None if it does not.

        A medium without bytes need not tell its type: the name is empty then.
        """
        if not medium.mime_type and not medium.payload:
            return ""
        return self.kinds.get(medium.kind, NOT_TAKEN).accepted_type(medium.mime_type)

    def _can_be_reached(self, medium: Medium) -> bool:
        """Tells if the provider may fetch the address of a medium, or knows the id of its file."""
        match carrier_of(medium):
            case Carrier.ADDRESS:
                return re.match(self.addresses, medium.address) is not None
            case Carrier.FILE_ID:
                return not self._is_of_others(medium.file_id)
            case _:
                return True

    def _is_of_others(self, file_id: str) -> bool:
        """Tells if the id of a file is another provider's."""
        if not self.refused_file_ids:
            return False
        return re.match(self.refused_file_ids, file_id) is not None
