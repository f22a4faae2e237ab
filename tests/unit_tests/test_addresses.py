"""Which strings are paths and addresses, and which are the texts of documents."""

import pytest

from langchain_ctxbudget.documents import addresses

PATHS = [
    "/nope/x.md",
    "/nope",
    "/nope/",
    " /nope/x.md ",
    "/home/ada/My Documents",
    "/home/ada/My Documents/final report.docx",
    "/home/ada/notes, old.md",
    "~",
    "~/x.md",
    "~ada/x",
    "./docs",
    "./x",
    "../docs/a b.txt",
    "docs/",
    "docs/x.md",
    "docs/*.md",
    "docs/My notes.md",
    "docs\\x.md",
    "src/main.py",
    "a/b/c.json",
    "Ünïcode/ñandú.md",
    "notes.md",
    "My notes.md",
    "My yearly notes 2026.PDF",
    "report.final.pdf",
    "C:\\x.md",
    "C:\\Program Files",
    "C:\\Program Files\\App\\read me.txt",
    "C:/Users/Ada/My Documents/x.pdf",
    "\\\\server\\share\\x",
    "//server/share/x.md",
]
TEXTS = [
    "Hello",
    "The kettle is descaled with citric acid.",
    "and/or",
    "Take tea and/or coffee.",
    "km/h",
    "w/o",
    "1/2",
    "24/7",
    "2026/01/05",
    "TCP/IP",
    "Yes/No",
    "A/B test results: 5 % up.",
    "Read docs/x.md first.",
    "Everything about it is in notes.md",
    "The file is C:\\x.md.",
    "See https://example.com/x.html",
    "Node.js",
    "example.com",
    "ada@example.com",
    "v2.0",
    "3.14",
    "U.S.A",
    "e.g.",
    "...",
    "-",
    "~5 minutes",
    "/remind me to buy milk",
    "/r/python is a subreddit about Python",
    "// a comment in code",
    "/* css */",
    "</p>",
    '{"a": "b/c"}',
    "# Title\n\ndocs/x.md",
    "/nope/x.md\n/nope/y.md",
    "/9j/4AAQSkZJRg" * 100,
    "字が青い。",
    "nul\0",
    "\ud800",
    "",
]


@pytest.mark.parametrize("text", PATHS)
def test_what_is_written_as_a_path_looks_like_one(text: str) -> None:
    assert addresses.looks_like_path(text)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_is_neither_a_path_nor_an_address(text: str) -> None:
    assert not addresses.looks_like_path(text)
    assert not addresses.exists(text)
    assert not addresses.is_address(text)


@pytest.mark.parametrize(
    "text", ["https://example.com", "http://a/b.html?c=1 ", "s3://bucket/x.pdf", "file:///x.md"]
)
def test_an_address_alone_is_one(text: str) -> None:
    assert addresses.is_address(text)
