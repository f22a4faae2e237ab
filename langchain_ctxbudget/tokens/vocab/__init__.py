"""The o200k_base vocabulary, carried as data, so that exact counts need no network.

The file holds the 199,998 tokens sorted by rank, so that a token's place is its rank: first the
length of every token, one byte each, then the tokens one after another, compressed with zlib
(0.99 MB; xz saves 0.18 MB and costs 40 ms). `scripts/build_vocab.py` makes it from tiktoken's own
file. See NOTICE for its licence.
"""

import io
import re
import zlib
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import count
from typing import TYPE_CHECKING

from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.errors import TokenizerUnavailableError

if TYPE_CHECKING:
    from tiktoken import Encoding

FILE_NAME = "o200k_base.zlib"
FILE_SHA256 = "815ad0c59958aa18ac2136a9d9ac315c38394f2584aefdc5e2aa426fb96722c4"
TOKENS = 199_998

SPECIAL_TOKENS = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
PATTERN = (
    resources.files(__name__)
    .joinpath("o200k_base.pattern")
    .read_text(encoding="utf-8")
    .replace("\n", "")
)
"""How text is cut into pieces before byte pairs are merged: words with an optional capital part,
numbers of up to three digits, punctuation, line ends, white space."""
_LONGEST_RUN = 500_000
_LONG_RUN = re.compile(rf"(\s{{{_LONGEST_RUN}}})")
"""tiktoken's expression engine gives up on a run of white space of a million characters."""


def ranks(packed: bytes) -> dict[bytes, int]:
    """Returns every token with its rank, from the bytes of the file.

    Raises:
        TokenizerUnavailableError: These are not the bytes of the file.
    """
    if sha256(packed).hexdigest() != FILE_SHA256:
        raise TokenizerUnavailableError(
            f"The vocabulary file {FILE_NAME} of langchain-ctxbudget is missing or damaged "
            f"({len(packed):,} bytes). Reinstall the package: "
            f"{install_command()} --force-reinstall --no-deps"
        )
    stream = io.BytesIO(zlib.decompress(packed))
    return dict(zip(map(stream.read, stream.read(TOKENS)), count(), strict=False))


@cache
def encoding() -> "Encoding":
    """Returns the o200k_base encoding, built when first asked for."""
    from tiktoken import Encoding  # noqa: PLC0415

    file = resources.files(__name__).joinpath(FILE_NAME)
    known = ranks(file.read_bytes() if file.is_file() else b"")
    made = Encoding(
        "o200k_base", pat_str=PATTERN, mergeable_ranks=known, special_tokens=SPECIAL_TOKENS
    )
    made._mergeable_ranks = {}  # noqa: SLF001 - 30 MB that only pickling reads
    return made


def count_tokens(encoding: "Encoding", text: str) -> int:
    """Counts the tokens of a text, in parts around runs of white space that are too long."""
    if len(text) <= _LONGEST_RUN:
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(part)) for part in _LONG_RUN.split(text))
