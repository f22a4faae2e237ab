"""Pictures, documents and sounds of known sizes, the same in every run."""

import base64
import io
import random
import wave
from functools import cache

from PIL import Image

URL = "https://example.org/picture.png"


@cache
def picture(width: int, height: int, kind: str = "png", *, is_noise: bool = False) -> str:
    """A picture in base64; noise does not compress, so it has about 3 bytes a pixel."""
    image = Image.new("RGB", (width, height), (200, 220, 240))
    if is_noise:
        noise = random.Random(0).randbytes(width * height * 3)
        image = Image.frombytes("RGB", (width, height), noise)
    content = io.BytesIO()
    image.save(content, kind)
    return base64.b64encode(content.getvalue()).decode()


@cache
def document(pages: int = 1, size: int = 600) -> str:
    """A PDF in base64, of at least so many bytes."""
    page = b"<< /Type /Page /Parent 2 0 R >>\nendobj\n"
    content = b"%PDF-1.4\n" + page * pages
    content += b"%" + b"x" * max(0, size - len(content)) + b"\n%%EOF\n"
    return base64.b64encode(content).decode()


@cache
def sound(seconds: float = 0.2) -> str:
    """A WAV file of silence in base64."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(b"\0\0" * int(8_000 * seconds))
    return base64.b64encode(content.getvalue()).decode()


def film() -> str:
    """What passes for a short MP4 file in base64."""
    return base64.b64encode(b"\0\0\0\x18ftypmp42" + b"\0" * 500).decode()
