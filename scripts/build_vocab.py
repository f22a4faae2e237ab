"""Makes the package's vocabulary file from tiktoken's o200k_base file.

    python scripts/build_vocab.py o200k_base.tiktoken
    langchain_ctxbudget/tokens/vocab/o200k_base.zlib

The source file is the one that tiktoken downloads; it checks its sha256 itself. What is printed is
the sha256 of the result, which `langchain_ctxbudget/tokens/vocab/__init__.py` pins as
`FILE_SHA256`.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import sys
import zlib
from base64 import b64decode
from hashlib import sha256
from pathlib import Path


def tokens_of(source: bytes) -> list[bytes]:
    """The tokens of a `.tiktoken` file, which are checked to stand in the order of their ranks."""
    tokens = []
    for place, line in enumerate(source.splitlines()):
        token, rank = line.split()
        if int(rank) != place:
            raise ValueError(f"Line {place + 1} has rank {int(rank)}, expected {place}")
        tokens.append(b64decode(token))
    return tokens


def main(source: str, target: str) -> None:
    """Writes the file and prints its sha256."""
    tokens = tokens_of(Path(source).read_bytes())
    packed = zlib.compress(bytes(map(len, tokens)) + b"".join(tokens), level=9)
    Path(target).write_bytes(packed)
    sys.stdout.write(f"{sha256(packed).hexdigest()}  {len(packed):,} bytes\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
