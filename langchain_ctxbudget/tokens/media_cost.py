"""The cost of images, files, sounds and videos, by the rates of a model.

It is estimated, never by counting bytes as text. A medium costs the same wherever it stands:
in a message, in the result of a tool, or inside a block of another kind.
"""

from math import ceil

from langchain_ctxbudget.content import Medium, decoded, is_pdf, measures_of
from langchain_ctxbudget.messages import Count
from langchain_ctxbudget.providers import ASSUMED_TOKENS, MediaRates


def medium_tokens(medium: Medium, count: Count, rates: MediaRates) -> int:
    """Returns the tokens of an image, a file, a sound or a video."""
    if medium.kind == "image":
        return rates.image.tokens(measures_of(medium).size, medium.detail)
    if not medium.size_bytes:
        return ASSUMED_TOKENS
    if medium.kind in ("audio", "video"):
        return _recording_tokens(medium, rates)
    if medium.mime_type.startswith("text/"):
        return count(decoded(medium.payload).decode("utf-8", "replace"))
    if is_pdf(medium):
        return _pages_of(medium, rates) * rates.page_tokens
    return ceil(medium.size_bytes / rates.file_bytes_per_token)


def _recording_tokens(medium: Medium, rates: MediaRates) -> int:
    seconds = measures_of(medium).seconds
    if seconds is None:
        return ceil(medium.size_bytes / rates.recording_bytes_per_token)
    return ceil(seconds * rates.second_tokens)


def _pages_of(medium: Medium, rates: MediaRates) -> int:
    """Returns the pages of a PDF, by its bytes where they cannot be counted; at least one."""
    return measures_of(medium).pages or ceil(medium.size_bytes / rates.page_bytes)
