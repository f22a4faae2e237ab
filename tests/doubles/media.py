"""Pictures, sounds and files in a request: what they are, and whether they are what they say."""

import base64
import binascii
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO

from PIL import Image

from tests.doubles.schemas import Problems

MEGABYTE = 1024 * 1024
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


@dataclass(frozen=True)
class Medium:
    """Bytes in base64, and the type that they are said to have."""

    media_type: str
    data: str

    @classmethod
    def in_url(cls, url: str) -> "Medium | None":
        """The medium in a data URL; None for any other address."""
        match = _DATA_URL.fullmatch(url)
        return cls(*match.groups()) if match else None

    @cached_property
    def content(self) -> bytes | None:
        """The bytes; None if they are not valid base64."""
        return decoded(self.data)

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def sides(self) -> tuple[int, int]:
        """Width and height of a picture in pixels; zeros where it cannot be read."""
        return _sides_and_type(self.data)[0]

    @property
    def true_type(self) -> str:
        """The type that the bytes of a picture tell; empty where they cannot be read."""
        return _sides_and_type(self.data)[1]

    def problems(self, accepted_types: Collection[str], where: str) -> Problems:
        """What is wrong with it where only some types are accepted.

        Anthropic: "Image does not match the provided media type", "Could not process image";
        OpenAI: "You uploaded an unsupported image. Please make sure your image is valid."; Google:
        "Unsupported MIME type", "Base64 decoding failed", "Unable to process input image".
        """
        if self.media_type not in accepted_types:
            yield f"{where}: unsupported media type {self.media_type!r}"
        elif not self.content:
            yield f"{where}: invalid base64 data {self.data!r:.30}"
        elif self.is_image and self.true_type != self.media_type:
            yield f"{where}: could not process image: {self.true_type!r} as {self.media_type!r}"
        elif self.media_type == "application/pdf" and not self.content.startswith(b"%PDF"):
            yield f"{where}: the PDF specified was not valid"


@lru_cache(maxsize=4_096)
def decoded(data: str) -> bytes | None:
    """The bytes of base64; None if it is not valid."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


@lru_cache(maxsize=4_096)
def _sides_and_type(data: str) -> tuple[tuple[int, int], str]:
    try:
        with Image.open(BytesIO(decoded(data) or b"")) as image:
            return image.size, Image.MIME[image.format or ""]
    except (OSError, KeyError):
        return (0, 0), ""
