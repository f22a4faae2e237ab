"""The carried vocabulary is tiktoken's own, whole, and is refused when it is damaged."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import tiktoken_ext.openai_public

from langchain_ctxbudget.core import vocab
from langchain_ctxbudget.errors import TokenizerUnavailableError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packed() -> bytes:
    return (Path(vocab.__file__).parent / vocab.FILE_NAME).read_bytes()


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What tiktoken's source says of o200k_base: the sha256 that it expects takes the place of the tokens."""

    def expected(_url: str, expected_hash: str) -> str:
        return expected_hash

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", expected)
    return tiktoken_ext.openai_public.o200k_base()


def tiktoken_text(ranks: dict[bytes, int]) -> bytes:
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for token, rank in ranks.items())


def test_the_tokens_are_those_that_tiktoken_expects(packed: bytes, upstream: dict[str, Any]) -> None:
    assert sha256(tiktoken_text(vocab.ranks(packed))).hexdigest() == upstream["mergeable_ranks"]


def test_the_pattern_is_that_of_tiktoken(upstream: dict[str, Any]) -> None:
    assert upstream["pat_str"] == vocab.PATTERN


def test_the_special_tokens_are_those_of_tiktoken(upstream: dict[str, Any]) -> None:
    assert upstream["special_tokens"] == vocab.SPECIAL_TOKENS


def test_every_token_is_there_once(packed: bytes) -> None:
    assert sorted(vocab.ranks(packed).values()) == list(range(vocab.TOKENS))


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:5] + b"!" + data[6:]])
def test_a_damaged_file_is_refused_with_the_remedy(packed: bytes, damage: Any) -> None:
    with pytest.raises(TokenizerUnavailableError, match=r"damaged.*pip install --force-reinstall"):
        vocab.ranks(damage(packed))


def test_a_missing_file_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocab, "FILE_NAME", "gone.zlib")
    with pytest.raises(TokenizerUnavailableError, match=r"cannot be read.*pip install --force-reinstall"):
        vocab._encoding.__wrapped__()


def test_threads_share_one_encoding() -> None:
    vocab._encoding.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        encodings = list(threads.map(lambda _: vocab.encoding(), range(8)))
    assert len({id(encoding) for encoding in encodings}) == 1
    assert vocab._encoding.cache_info().misses == 1


def test_a_single_character_is_one_token() -> None:
    count = vocab.encoding().encode_ordinary
    assert all(len(count(chr(character))) == 1 for character in vocab.single_characters())


def test_the_build_script_makes_the_file_from_that_of_tiktoken(packed: bytes, tmp_path: Path) -> None:
    ranks = vocab.ranks(packed)
    source, target = tmp_path / "o200k_base.tiktoken", tmp_path / "made.zlib"
    source.write_bytes(tiktoken_text(ranks))
    script = ROOT / "scripts" / "build_vocab.py"
    subprocess.run([sys.executable, str(script), str(source), str(target)], check=True, capture_output=True)
    # Another build of zlib may compress to other bytes; what they hold is the same.
    made = vocab.zlib.decompress(target.read_bytes())
    assert made == vocab.zlib.decompress(packed)


def test_importing_the_counters_loads_neither_the_vocabulary_nor_tiktoken() -> None:
    code = (
        "import sys; import langchain_ctxbudget.core.tokens as tokens; tokens.TiktokenCounter();"
        "from langchain_ctxbudget.core import vocab;"
        "assert vocab._encoding.cache_info().currsize == 0; assert 'tiktoken' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
