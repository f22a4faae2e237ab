"""A sentence as the rules of `naming` read it: lower-case words, and the capitalised runs that may be names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from langchain_ctxbudget.core.rules import naming_capitals as capitals
from langchain_ctxbudget.core.rules import naming_tools
from langchain_ctxbudget.core.rules import naming_words as words
from langchain_ctxbudget.core.rules.naming_words import word_set
from langchain_ctxbudget.core.rules.phrase_words import ORDINARY
from langchain_ctxbudget.core.text import STOP_WORDS

NAME = "\0"
"""Stands for a mention among the words of a sentence."""
MOST_WORDS = 5
"""A longer run of capitalised words is no name."""
SHOUTED_SHARE = 0.6

_PLAIN_TOKEN = re.compile(r"[^\W\d_](?:['’&.-]?[\w+#])*|\d[\w.:%-]*|[^\w\s]")  # noqa: RUF001
# The same where addresses, handles or code may be among them.
_TOKEN = re.compile(
    r"https?://\S+|`[^`]*`|[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}|@[A-Za-z][\w-]{1,30}(?![\w/.(]\w)|"
    + _PLAIN_TOKEN.pattern
)
_FILE_OR_CODE = re.compile(r"_|[a-z]\.[a-z]|\d{3}|::")
_NUMBERED = re.compile(r"([a-z]{3,12})\d{1,2}")
"""As some tools are written: "lme4"."""
_COUNTED = word_set(
    "part year day phase step level version vol top web utf sha base grade week type covid class room group round"
    " test file table col item mp gpt row line page chapter section season episode unit figure fig task problem"
)
_CAMEL = re.compile(r"[a-z][A-Z]")
_MARKS = frozenset(",.!?…")
_ENDS, _OPENS = frozenset(".!?:;…•"), frozenset("\"'“‘*-(")  # noqa: RUF001
_STOPPED = (
    capitals.EXCLAMATIONS
    | capitals.CALENDAR
    | capitals.PEOPLES
    | capitals.PLACES
    | capitals.FAMOUS
    | capitals.NOT_NAMES
)
_ORDINARY = word_set("black white red blue green first second third north south east west")
_STARTERS = words.STARTERS | capitals.EXCLAMATIONS
_STRIPPED = capitals.CALENDAR | capitals.PEOPLES | capitals.NOT_NAMES
_PLAIN = capitals.NOT_NAMES | words.JOBS | words.RELATIONSHIPS | frozenset({"project", "projects", "team", "operation"})
_SURNAMES = word_set("baker cook dean carpenter painter judge chair cleaner gardener chef")
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}s$")
_HANDLES_OF_NOBODY = word_set(
    "here channel everyone all team property override media import dataclass staticmethod classmethod pytest param"
    " return returns types angular latest next app client media me admin support test component injectable"
)


CALLED = frozenset({"called", "named", "codenamed", "code-named", "nicknamed"})
_AND = frozenset({"and", "with", "is", "to"})
_QUOTES = frozenset("\"'“‘*")  # noqa: RUF001
_NO_NAMES = STOP_WORDS | word_set("off back today yesterday twice again about earlier mum mom dad last next late")


@dataclass(slots=True, kw_only=True)
class Mention:
    """A run of words that may be a name, and what is found out about it."""

    text: str
    words: tuple[str, ...]
    at: int
    """Its place among the words of the sentence."""
    start: int
    end: int
    initial: bool = False
    """Whether a sentence begins with it: its capital says nothing."""
    possessive: bool = False
    weak: bool = False
    """Whether it is a place, a day or the like, unless somebody is said to be called so."""
    acronym: bool = False
    titled: bool = False
    handle: bool = False
    doubtful: bool = False
    """Whether it begins a sentence as an ordinary word may: "Slugs ate ...", "Hurrah, ..."."""
    small: bool = False
    """Whether it is a name only where the text says that something is called so."""
    lower: bool = False
    tool: str = ""
    """The tool's own spelling."""
    certain: bool = True
    """Whether the tool needs no words around it to be one."""
    kind: str = ""
    confidence: float = 0.0
    relationship: str | None = None
    aliases: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    relations: list[tuple[str, str]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    @property
    def given(self) -> bool:
        """Whether it begins with a common given name."""
        return self.words[0] in words.GIVEN and not self.acronym


@dataclass(slots=True, kw_only=True)
class Sentence:
    """The words of a sentence, `NAME` in the place of each mention."""

    text: str
    low: list[str]
    raw: list[str]
    mentions: list[Mention]

    def word(self, at: int) -> str:
        """The word at a place; empty beyond the ends."""
        return self.low[at] if 0 <= at < len(self.low) else ""


def read(text: str) -> Sentence | None:
    """The words and possible names of a sentence; None where it has no names or is shouted."""
    pattern = _TOKEN if "@" in text or "`" in text or "://" in text else _PLAIN_TOKEN
    tokens = [(found[0], *found.span()) for found in pattern.finditer(text)]
    sentence = Sentence(text=text, low=[], raw=[], mentions=[])
    i, initial = 0, True
    while i < len(tokens):
        token, _, end = tokens[i]
        if (
            token[0].isalpha()
            and token.islower()
            and not token[-1].isdigit()
            and token not in _MAY_BEGIN
            and (not i or tokens[i - 1][0].lower() not in _NAMING)
        ):
            sentence.low.append(token.replace("’", "'"))  # noqa: RUF001
            sentence.raw.append(token)
            initial = False
            i += 1
            continue
        mention, after = _mention(tokens, i, text, initial=initial)
        if mention:
            mention.at = len(sentence.low)
            sentence.mentions.append(mention)
            sentence.low.append(NAME)
            sentence.raw.append(mention.text)
            i, initial = after, False
            continue
        sentence.low.append(token.lower().replace("’", "'"))  # noqa: RUF001
        sentence.raw.append(token)
        ends = token in _ENDS and not (token == "." and end < len(text) and not text[end].isspace())  # noqa: S105
        initial = ends or (initial and token in _OPENS)
        i += 1
    if not sentence.mentions:
        return None
    letters = [token for token, _, _ in tokens if token[0].isalpha() and len(token) > 1]
    if len(letters) > 2 and sum(token.isupper() for token in letters) > SHOUTED_SHARE * len(letters):  # noqa: PLR2004
        return None
    if _is_heading(letters, text):
        return None
    return sentence


def _is_heading(letters: list[str], text: str) -> bool:
    """Whether all words of three letters and more are capitalised, and nothing ends it."""
    long = [token for token in letters if len(token) > 3]  # noqa: PLR2004
    return len(long) > 2 and text[-1] not in ".!?" and all(token[0].isupper() for token in long)  # noqa: PLR2004


def _mention(tokens: list[tuple[str, int, int]], i: int, text: str, *, initial: bool) -> tuple[Mention | None, int]:  # noqa: PLR0911
    token, start, end = tokens[i]
    if token[0] == "@" and len(token) > 1:
        return (_handle(token, start, end), i + 1) if token[1:].lower() not in _HANDLES_OF_NOBODY else (None, i)
    if not token[0].isalpha() or "@" in token:
        return None, i
    if token[0].islower() and i and (small := _small(tokens, i)):
        return small, i + 1
    if token.islower() and token in _SMALL_ORGANISATIONS:
        return None, i
    if tool := _tool(tokens, i, text, initial=initial):
        return tool
    if not _is_capital(token) or (initial and _bare(token)[0] in _STARTERS):
        return None, i
    first, titled = i, False
    low = token.lower()
    if low in words.TITLES or (low in words.KIN_TITLES and low != "cousin"):
        dotted = i + 1 < len(tokens) and tokens[i + 1][0] == "."
        i += 2 if dotted else 1
        if i >= len(tokens) or not _is_capital(tokens[i][0]) or tokens[i][1] - tokens[i - 1][2] != 1:
            return None, first
        titled = True
    elif low in _PLAIN and low not in words.SHY and low not in words.ALSO_GIVEN:
        return None, first
    return _run(tokens, first, i, text, initial=initial, titled=titled)


def _run(  # noqa: C901, PLR0911, PLR0912
    tokens: list[tuple[str, int, int]], first: int, i: int, text: str, *, initial: bool, titled: bool
) -> tuple[Mention | None, int]:
    """The run of capitalised words from a token on."""
    run: list[str] = []
    last, possessive, known = first, False, 0
    head = _bare(tokens[i][0])[0]
    while i < len(tokens) and len(run) <= MOST_WORDS:
        token = tokens[i][0]
        gap = not run or text[tokens[i - 1][2] : tokens[i][1]] == " "
        if not gap:
            break
        if not _is_capital(token):
            following = tokens[i + 1][0] if i + 1 < len(tokens) else ""
            joins = (
                token in words.CONNECTORS
                or token == "&"  # noqa: S105
                or (token == "of" and run and _bare(run[-1])[0] in words.ORGANISATION_HEADS)  # noqa: S105
            )
            if run and joins and following and _is_capital(following) and not (token == "&" and known):  # noqa: S105
                run.append(token)
                i += 1
                continue
            break
        bare, possessive = _bare(token)
        if run and (bare in capitals.NOT_NAMES or (token.isupper() and len(token) > 1 and bare in words.JOBS)):
            possessive = False
            break
        run.append(token)
        last = i
        i += 1
        if possessive and not (i < len(tokens) and tokens[i][0].lower() in words.ORGANISATION_WORDS):
            break
        if bare == "st" and i + 1 < len(tokens) and tokens[i][0] == "." and _is_capital(tokens[i + 1][0]):
            run.append(tokens[i + 1][0])
            possessive, last, i = _bare(tokens[i + 1][0])[1], i + 1, i + 2
    if not run:
        return None, first
    start, end = tokens[first][1], tokens[last][2]
    lows = [_bare(word)[0] for word in run]
    is_organisation = not words.ORGANISATION_WORDS.isdisjoint(lows) or lows[-1] in words.ORGANISATION_ENDS
    if lows[-1] in words.JOBS - _SURNAMES and lows[0] not in words.GIVEN and len(run) > 1:
        return None, first
    if initial and not titled and len(run) > 1 and lows[0] not in words.GIVEN and lows[1] in words.GIVEN:
        return None, first
    while len(run) > 1 and not is_organisation and lows[-1] in _STRIPPED:
        last, run, lows, possessive = last - 1, run[:-1], lows[:-1], False
        end = tokens[last][2]
    if len(run) > 1 and not is_organisation and lows[0] in _STRIPPED - _ORDINARY and not titled:
        return None, first
    name = text[start:end]
    if possessive:
        name = name[:-2]
    if (
        _FILE_OR_CODE.search(name.replace("Dr.", ""))
        and not titled
        and "." in name[1:-1]
        and name.lower() not in words.ORGANISATIONS
    ):
        return None, first
    if len(run) > MOST_WORDS or "_" in name:
        return None, first
    phrase = " ".join(lows)
    mention = Mention(
        text=name, words=tuple(lows), at=0, start=start, end=end, initial=initial, possessive=possessive, titled=titled
    )
    mention.weak = lows[0] in STOP_WORDS or (
        not titled
        and (
            all(low in _STOPPED for low in lows)
            or phrase in capitals.PLACE_PAIRS
            or phrase in capitals.PLACEHOLDERS
            or (lows[-1] in capitals.FAMOUS and len(lows) > 1)
            or head in capitals.ASSISTANTS
        )
    )
    following = tokens[last + 1][0] if last + 1 < len(tokens) else "."
    mention.doubtful = initial and len(run) == 1 and not mention.given and not titled and _may_begin(head, following)
    mention.acronym = len(run) == 1 and (name.isupper() or _PLURAL_ACRONYM.match(name) is not None)
    return mention, last + 1


def _may_begin(word: str, following: str) -> bool:
    """Whether an ordinary word may begin a sentence so: an exclamation, a known word, a plural, an -ing form."""
    is_plural = word.endswith("s") and not word.endswith(("ss", "us"))
    return following in _MARKS or is_plural or word.endswith("ing") or word in ORDINARY


def _small(tokens: list[tuple[str, int, int]], i: int) -> Mention | None:
    """A name that is written small: "my dog is called rex", "my sister anna", "lme4"."""
    token, start, end = tokens[i]
    if (numbered := _NUMBERED.fullmatch(token)) and numbered[1] not in _COUNTED:
        return Mention(text=token, words=(token,), at=0, start=start, end=end, tool=token, certain=False, lower=True)
    before = tokens[i - 1][0].lower()
    low, possessive = _bare(token)
    given = low in words.GIVEN and low not in words.SHY
    if before in _QUOTES and i > 1:
        before = tokens[i - 2][0].lower()
    if before in {"at", "for"} and low in _SMALL_ORGANISATIONS:
        return Mention(
            text=low.capitalize(), words=(low,), at=0, start=start, end=end, possessive=possessive, lower=True
        )
    called = before in CALLED and len(low) > 2 and low not in _NO_NAMES and low not in words.STARTERS  # noqa: PLR2004
    if not (called or (given and before in words.RELATIONSHIPS | words.ADDRESSING | _AND)) or not low.isalpha():
        return None
    name = low.capitalize() if given else token
    return Mention(text=name, words=(low,), at=0, start=start, end=end, possessive=possessive, small=called, lower=True)


def _handle(token: str, start: int, end: int) -> Mention:
    plain = token[1:].isalpha() and len(token) > 3  # noqa: PLR2004
    name = token[1:].capitalize() if plain and not _CAMEL.search(token) else token
    return Mention(
        text=name, words=(token[1:].lower(),), at=0, start=start, end=end, handle=True, aliases=[token] if plain else []
    )


def _tool(tokens: list[tuple[str, int, int]], i: int, text: str, *, initial: bool) -> tuple[Mention | None, int] | None:
    """The known tool that begins at a token."""
    token, start, _ = tokens[i]
    first = _bare(token)[0]
    for length in range(min(3, len(tokens) - i, _LONGEST.get(first, 0)), 0, -1):
        last = tokens[i + length - 1]
        if length > 1 and last[2] - start > 40:  # noqa: PLR2004
            continue
        spelled = (first,) if length == 1 else tuple(_bare(part)[0] for part, _, _ in tokens[i : i + length])
        name = naming_tools.ANY_CASE.get(spelled)
        capital = token[0].isupper() or any(c.isupper() for c in token)
        certain = bool(name) and (capital or first not in naming_tools.LOWER_CASE_ONLY_WITH_A_CUE)
        if not name and capital:
            name = naming_tools.CAPITALISED.get(spelled)
            certain = bool(name) and not initial
            name = name or naming_tools.IN_CONTEXT.get(spelled)
        if not name:
            continue
        following = tokens[i + length] if i + length < len(tokens) else None
        if following and text[last[2] : following[1]] == "" and following[0][0] in "/(=":
            return None
        if (
            following
            and length == 1
            and not naming_tools.ANY_CASE.get(spelled)
            and _is_name_part(following, last, text)
        ):
            continue
        return (
            Mention(
                text=text[start : last[2]], words=spelled, at=0, start=start, end=last[2], initial=initial,
                possessive=_bare(last[0])[1], tool=name, certain=certain,
            ),
            i + length,
        )  # fmt: skip
    return None


def _is_name_part(following: tuple[str, int, int], last: tuple[str, int, int], text: str) -> bool:
    """Whether a capitalised word follows that would make it another name: "Ruby Patel"."""
    return text[last[2] : following[1]] == " " and _is_capital(following[0]) and not following[0].isupper()


def _bare(token: str) -> tuple[str, bool]:
    """A word in lower case without its genitive, and whether it had one."""
    low = token.lower()
    if low[-2:] in {"'s", "’s"}:  # noqa: RUF001
        return low[:-2], True
    return low, False


def _is_capital(token: str) -> bool:
    if not token[0].isupper():
        return False
    return len(token) > 1 and not (_CAMEL.search(token[:-1]) and len(token) > 24)  # noqa: PLR2004


_MAY_BEGIN = frozenset(words.GIVEN)
_SMALL_ORGANISATIONS = word_set("google microsoft amazon facebook netflix siemens spotify uber airbnb stripe tesla")
_MAY_BEGIN |= _SMALL_ORGANISATIONS
_NAMING = CALLED | _QUOTES
_LONGEST: dict[str, int] = {}
for _spelling in (*naming_tools.ANY_CASE, *naming_tools.CAPITALISED, *naming_tools.IN_CONTEXT):
    _LONGEST[_spelling[0]] = max(_LONGEST.get(_spelling[0], 0), len(_spelling))
_MAY_BEGIN |= frozenset(_LONGEST)
