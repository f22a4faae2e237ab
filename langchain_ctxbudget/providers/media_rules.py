"""What images, files and recordings cost with a provider, and how many of them it takes.

The classes are here; each provider's values stand in its profile. A size that nobody knows, as of
an image that is given by its address, has one assumption: an image costs the most that its rule can
give, or that of a screen of 2,560 x 1,440 pixels where a rule knows no most; anything else costs
3,000 tokens, as a full page of a PDF, a minute and a half of sound or ten seconds of video do.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Protocol

from langchain_ctxbudget.content import Size

ASSUMED_SIZE = Size(2_560, 1_440)
"""Of an image whose size is not known, where the rule does not tell the most."""
ASSUMED_TOKENS = 3_000
"""Of a file or a recording of which neither the bytes nor the length is known."""
MEGABYTE = 1_048_576
"""Bytes."""
_PREFIX_ENDS = re.compile("[/:.]")
"""What stands between the names of gateways and that of a model (`us.anthropic.claude-...`)."""


class ImageRule(Protocol):
    """How a model counts the tokens of an image."""

    def tokens(self, size: Size | None, detail: str = "") -> int:
        """Returns the tokens of an image of a size, None if it is not known.

        `detail` is how closely it is to be looked at, as its block says it: `low`, `high` ...
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """A base, and a price for each tile of 512 x 512 pixels, after the image was made smaller."""

    base_tokens: int = 85
    tile_tokens: int = 170
    tile_side: int = 512
    """Pixels."""
    long_side: int = 2_048
    short_side: int = 768
    """No image is larger than this when it is cut into tiles."""

    def tokens(self, size: Size | None, detail: str = "") -> int:
        """Returns the tokens of an image; with low detail the base alone."""
        if detail == "low":
            return self.base_tokens
        return self.base_tokens + self.tile_tokens * self._tiles(size)

    def _tiles(self, size: Size | None) -> int:
        """Returns the tiles that cover an image; the most of them where its size is not known."""
        short, long = sorted(size or (self.short_side, self.long_side))
        if long > self.long_side:
            short = short * self.long_side // long
            long = self.long_side
        if short > self.short_side:
            long = long * self.short_side // short
            short = self.short_side
        return ceil(max(1, short) / self.tile_side) * ceil(max(1, long) / self.tile_side)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """A price for each patch that covers the image, after the image was made small enough."""

    side: int
    """Pixels of the side of a patch."""
    most_patches: int | None = None
    """A larger image is made smaller until it has so few; None: it is not."""
    longest_side: int | None = None
    """Pixels; a larger image is made smaller."""
    patch_tokens: float = 1.0

    def tokens(self, size: Size | None, detail: str = "") -> int:
        """Returns the tokens of an image; the detail makes no difference."""
        del detail
        return ceil(self._patches(size) * self.patch_tokens)

    def _patches(self, size: Size | None) -> int:
        """Returns the patches that cover an image; the most of them where its size is not known."""
        if size is None and self.most_patches is not None:
            return self.most_patches
        size = size or ASSUMED_SIZE
        scale = min(1.0, (self.longest_side or max(size)) / max(size))
        width = size.width * scale
        height = size.height * scale
        patches = self._covering(width, height)
        if self.most_patches is None or patches <= self.most_patches:
            return patches
        return min(self.most_patches, self._patches_of_smaller(width, height))

    def _patches_of_smaller(self, width: float, height: float) -> int:
        """Returns the patches of a too large image, made just small enough."""
        least = 1
        most = ceil(width)
        while least < most:  # the widest image that has few enough
            middle = (least + most + 1) // 2
            if self._covering(middle, middle * height / width) <= (self.most_patches or 0):
                least = middle
            else:
                most = middle - 1
        return self._covering(least, least * height / width)

    def _covering(self, width: float, height: float) -> int:
        """Returns how many patches cover an image."""
        # Less than a hundredth of a pixel is the error of a division.
        columns = ceil((width - 0.01) / self.side)
        rows = ceil((height - 0.01) / self.side)
        return max(1, columns) * max(1, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchBudget(Patches):
    """Patches as OpenAI counts them: its guide tells to which size an image is made smaller."""

    side: int = 32
    low_side: int = 512
    """Pixels; with low detail the model sees an image of no more."""

    def tokens(self, size: Size | None, detail: str = "") -> int:
        """Returns the tokens of an image; with low detail those of a small one."""
        if detail == "low":
            patches = self._covering(self.low_side, self.low_side)
        else:
            patches = self._patches(size)
        return ceil(patches * self.patch_tokens)

    def _patches_of_smaller(self, width: float, height: float) -> int:
        budget = self.most_patches or 0
        shrink = sqrt(self.side**2 * budget / (width * height))
        columns = width * shrink / self.side
        rows = height * shrink / self.side
        if min(columns, rows) < 1:  # a line: the guide's rule gives no size for it
            return budget
        adjusted = shrink * min(int(columns) / columns, int(rows) / rows)
        return self._covering(width * adjusted, height * adjusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTiles:
    """A price for each tile that it takes to cover the image in its own size."""

    tile_tokens: int
    tile_side: int
    """Pixels."""
    small_side: int
    """An image with no longer side than this is one tile."""

    def tokens(self, size: Size | None, detail: str = "") -> int:
        """Returns the tokens of an image; the detail makes no difference."""
        del detail
        width, height = size or ASSUMED_SIZE
        if max(width, height) <= self.small_side:
            return self.tile_tokens
        return self.tile_tokens * ceil(width / self.tile_side) * ceil(height / self.tile_side)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolutions:
    """One price for all images, by the resolution that is asked for."""

    default_tokens: int
    tokens_by_detail: tuple[tuple[str, int], ...] = ()

    def tokens(self, size: Size | None, detail: str = "") -> int:
        """Returns the tokens of an image; its size makes no difference."""
        del size
        return dict(self.tokens_by_detail).get(detail, self.default_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRates:
    """What media cost with one model, in tokens."""

    # Where nothing is known of a provider: the finest patches and the most of them that one of the
    # others documents (Anthropic's), which is also what most open models take (28 pixels).
    image: ImageRule = Patches(side=28, most_patches=4_784, longest_side=2_576)
    page_tokens: int = 3_000
    """A page of a PDF: the most that Anthropic says its text takes, "PDF support"; with OpenAI and
    Google it takes less."""
    page_bytes: int = 30_000
    """What a page is taken to have in a PDF whose pages cannot be counted."""
    file_bytes_per_token: int = 10
    """Of a file of any other kind: its text is compressed, or stands among fonts and pictures."""
    second_tokens: int = 32
    """Of a recording whose seconds are known (Google's "Audio understanding")."""
    recording_bytes_per_token: int = 100
    """Of other sound and of video: 32 tokens a second at 3 KB a second, a low rate for speech."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """How many media, and how large ones, a request may have; None: as many as there are.

    Bytes are those of the request, so four characters of base64 count four.
    """

    most_images: int | None = None
    longest_side: int | None = None
    """Pixels of an image."""
    many_images: int | None = None
    """With more images than this, `longest_side_of_many` holds for each of them."""
    longest_side_of_many: int | None = None
    image_bytes: int | None = None
    """Of one image."""
    file_bytes: int | None = None
    """Of one file."""
    request_bytes: int | None = None
    """Of all media of a request together."""
    most_pages: int | None = None
    """Of all PDFs of a request together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRules:
    """What a provider charges for media, and how many of them it takes."""

    rates: MediaRates = field(default_factory=MediaRates)
    images_of_families: Mapping[str, ImageRule] = field(default_factory=dict)
    """How models count images whose names begin so; of several, the longest beginning holds. All
    others count them as the rates say."""
    limits: MediaLimits = field(default_factory=MediaLimits)

    def rates_for(self, model_name: str) -> MediaRates:
        """Returns what media cost with a model of this provider."""
        families = [
            family for family in self.images_of_families if _begins_with(model_name.lower(), family)
        ]
        if not families:
            return self.rates
        return replace(self.rates, image=self.images_of_families[max(families, key=len)])


def _begins_with(model_name: str, family: str) -> bool:
    """Tells if a name begins with that of a family, alone or behind those of gateways."""
    behind_prefixes = (model_name[mark.end() :] for mark in _PREFIX_ENDS.finditer(model_name))
    return model_name.startswith(family) or any(name.startswith(family) for name in behind_prefixes)
