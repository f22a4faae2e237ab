"""The estimate: not below the exact count, and not far above it on English."""

from __future__ import annotations

import base64
import json
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core import vocab
from langchain_ctxbudget.core.estimate import text_pieces
from langchain_ctxbudget.core.tokens import EstimatingCounter, TiktokenCounter

PROSE = """The harbour was quiet that morning, and the gulls had not yet come back from the open water. Margaret
walked along the quay with her brother's letter folded in her pocket, wondering whether she should answer it before
the ferry left or wait until evening, when the house would be empty. Nothing about the journey had been planned; they
had simply packed two bags, locked the door and taken the first train north. By the time the mountains appeared,
everyone in the carriage was asleep except the conductor, who was reading a detective novel and laughing to himself."""

DIALOGUE = """"I don't think that's what she meant," said Tom. "You've read it twice and you still haven't answered."
"Because there's nothing to answer! She's selling the boat, we're keeping the shed, and that's that."
"And the money?" He put his cup down. "We'd agreed on half in March and the rest when the roof was done."
"Half of what? Nobody's paid anybody anything yet, and the roof isn't going to mend itself."""

MANUAL = """Unplug the machine before you open the cover. Remove the two screws at the back and slide the plate to the
left until it comes loose. Clean the filter under warm water without soap, let it dry for at least four hours and put
it back with the arrow pointing up. If the red light keeps blinking, the pump has to be replaced by a technician."""

SOURCE = '''
def visit_rows(self, table: "Table", *, limit: int | None = None) -> dict[str, list[float]]:
    """Collects the values of every column."""
    collected = defaultdict(list)
    for index, row in enumerate(table.rows()):
        if limit is not None and index >= limit:
            break
        for key, value in row.items():
            collected[key.strip().lower()].append(float(value or 0.0))  # blanks count as zero
    return {k: v for k, v in collected.items() if len(v) > 1}
'''

RECORD = {
    "order": "A-20417",
    "customer": {"first_name": "Greta", "zip": "10115", "vip": True, "phone": None},
    "items": [{"sku": f"K-{1000 + i}", "qty": i % 4, "price": 19.95 + i, "tags": ["new", "sale"]} for i in range(6)],
}

_BYTES = random.Random(20_260).randbytes(1_500)

CORPUS = {
    "english prose": PROSE,
    "english dialogue": DIALOGUE,
    "english manual": MANUAL,
    "chat": "hey! so sorry i'm late lol, couldn't find my keys... grab a coffee later? maybe 3pm? sooo tired haha",
    "german": "Der Bäcker an der Ecke öffnet schon um fünf Uhr, weil die Straßenbahnfahrer vor ihrer ersten Schicht "
    "frühstücken möchten. Die Genehmigungsbehörde hat den Umbau endlich bewilligt.",
    "french": "L'été dernier, nous avons loué une vieille maison près de la forêt, "
    "où les enfants jouaient jusqu'au soir.",
    "polish": "Wczoraj wieczorem spotkaliśmy się w małej kawiarni, żeby omówić szczegóły podróży na Śląsk.",
    "turkish": "Bu sabah kardeşimle birlikte pazara gittik ve taze sebze aldık, çünkü akşam misafirler gelecek.",
    "vietnamese": "Sáng nay tôi đi chợ mua rau và trái cây tươi cho bữa tối của gia đình, trời mưa nhẹ.",
    "greek": "Σήμερα το πρωί πήγαμε στην αγορά για να αγοράσουμε φρέσκα λαχανικά και ψωμί.",
    "russian": "Утром мы поехали на дачу, но дорога была закрыта из-за ремонта, и пришлось возвращаться в город. "
    "Бабушка уже накрыла на стол и сказала, что пироги остынут, если мы не поторопимся.",
    "arabic": "ذهبت في الصباح إلى السوق مع أخي لأننا أردنا أن نشتري الخضار الطازجة قبل أن يزدحم المكان. "
    "قال البائع إن الطماطم وصلت من المزرعة هذا اليوم.",
    "hebrew": "הבוקר הלכתי לשוק עם אחי כי רצינו לקנות ירקות טריים לפני שיהיה צפוף.",
    "hindi": "आज सुबह हम लोग बाज़ार गए थे और वहाँ से ताज़ी सब्ज़ियाँ लेकर आए। माँ ने कहा कि शाम को मेहमान आने वाले हैं।",
    "thai": "เช้านี้ฉันไปตลาดกับแม่เพื่อซื้อผักสดและผลไม้",
    "chinese": "今天早上我和妹妹一起去了公园，湖边的柳树已经发芽了。卖早点的老人告诉我们，下个月这里要举办音乐会。",
    "japanese": "今朝は駅前の喫茶店でゆっくり朝ごはんを食べました。店長さんが新しいコーヒー豆を勧めてくれました。",
    "korean": "오늘 아침에는 동생과 함께 시장에 다녀왔습니다. 과일 가게 아주머니가 귤을 몇 개 더 주셨어요.",
    "emoji": "😀🎉👍🏽 party tonight!! 🥳🥳🥳 👨‍👩‍👧‍👦 ❤️🔥 see you 😘🌊🏔️",
    "json": json.dumps(RECORD),
    "json, indented": json.dumps(RECORD, indent=2),
    "python": SOURCE,
    "base64": base64.b64encode(_BYTES).decode(),
    "hexadecimal": _BYTES.hex(),
    "digits": "".join(str(byte) for byte in _BYTES),
    "numbers": " ".join(f"{byte / 7:.5f}" for byte in _BYTES),
    "white space": "a\n\n\n   b\t\t\tc \n \n\r\n    d        e\n\t\n  \t x"
    + " " * 300
    + "\n" * 90
    + "\t" * 40
    + "\u3000\u00a0",
    "punctuation": '--- *** ### {{}} [[a]](b) <div class="x">...</div> !!??'
    " || && == != => :: ;; \\\\ // @@ ~~ ^^ %% $$ ```",
    "rulers": "\n".join(mark * 80 for mark in "-=*#_~.+<>|/"),
    "capitals": "IMPORTANT: DO NOT OPEN THE CONTAINER BEFORE THE PRESSURE VALVE HAS BEEN RELEASED BY AN INSPECTOR",
    "names": "Siobhan Krzyzewski met Nguyen Thi Bich Ngoc and Oluwaseun Adebayo in Szekesfehervar and Llanfairpwll.",
    "table": "| id | name | total |\n|----|------|-------|\n"
    + "".join(f"| {i} | n{i} | {i * 3.5} |\n" for i in range(20)),
    "url": "https://example.org/a/b_c-d/index.php?id=48213&session=f3a9&lang=de#top",
}

# Ten scripts and kinds of content, and what else is often sent: several texts of each.
KINDS: dict[str, list[str]] = {
    "english": [
        PROSE,
        DIALOGUE,
        MANUAL,
        (
            "Our lease ends in May, and the landlord wants to know by Friday whether we are staying another year. "
            "I'd rather not move, but the heating has failed three times this winter and nobody answers the phone."
        ),
        (
            "Photosynthesis stores the energy of sunlight in sugar. Chlorophyll absorbs mostly red and blue light, "
            "which is why leaves look green; in autumn it is broken down first, and yellow pigments become visible."
        ),
        (
            "Bring the stock to a boil, add the barley and let it simmer for forty minutes. Season with salt and a "
            "little lemon juice. It tastes better on the second day."
        ),
    ],
    "german": [
        CORPUS["german"],
        "Könnten Sie mir bitte bis Donnerstag mitteilen, ob der Besprechungsraum im dritten Stock noch frei ist?",
        "Nach dem Gewitter roch der Garten nach nasser Erde, und unter dem Apfelbaum lagen überall grüne Früchte.",
        "Die Krankenversicherung übernimmt die Behandlungskosten nur, wenn vorher eine Überweisung ausgestellt wurde.",
    ],
    "russian": [
        CORPUS["russian"],
        "Я давно хотел спросить, почему ты решил уехать из города, когда у тебя там была хорошая работа.",
        "Поезд опоздал на сорок минут, но встречающие всё ещё стояли на перроне и махали нам руками.",
        "Для теста нужно взять два стакана муки, одно яйцо и немного соли, а потом дать ему отдохнуть.",
    ],
    "arabic": [
        CORPUS["arabic"],
        "هل يمكنك أن ترسل لي عنوان المكتب الجديد قبل يوم الخميس لأن الاجتماع يبدأ في التاسعة صباحا؟",
        "كانت جدتي تحكي لنا كل مساء قصة عن البحر والصيادين الذين لم يعودوا إلى القرية.",
        "يحتاج هذا النبات إلى ضوء كثير وماء قليل، ولا يجب أن يوضع بالقرب من النافذة في الشتاء.",
    ],
    "hindi": [
        CORPUS["hindi"],
        "क्या आप मुझे बता सकते हैं कि अगली रेलगाड़ी कितने बजे आएगी और किस प्लेटफ़ॉर्म पर रुकेगी?",
        "बारिश के कारण मैच रद्द हो गया, लेकिन बच्चे फिर भी मैदान में खेलते रहे।",
        "इस किताब में लेखक ने अपने बचपन के गाँव की कहानियाँ बहुत सरल भाषा में लिखी हैं।",
    ],
    "chinese": [
        CORPUS["chinese"],
        "请问下周三的会议改到几点了？我那天下午要去医院，可能会晚到半个小时。",
        "这家餐馆的豆腐做得特别好，不过周末人太多，最好提前打电话订位子。",
        "爷爷年轻的时候当过船员，他总说海上的星星比城里亮得多。",
    ],
    "japanese": [
        CORPUS["japanese"],
        "来週の火曜日に引っ越すので、荷物を運ぶのを手伝ってもらえませんか。",
        "このアプリは、写真を撮るだけで植物の名前を教えてくれるそうです。",
        "祖母の家の庭には大きな柿の木があって、秋になると毎日のように実を取りました。",
    ],
    "korean": [
        CORPUS["korean"],
        "다음 주에 회사를 옮기게 되어서 이번 주말에는 책상을 정리해야 합니다.",
        "비가 그치자 아이들이 운동장으로 뛰어나가 축구를 하기 시작했다.",
        "이 약은 식사 후에 하루 두 번 드시고, 졸릴 수 있으니 운전은 피하세요.",
    ],
    "emoji": [
        CORPUS["emoji"],
        "🎂🎈🎁 happy birthday!!! 🥂🍾 see you at 8 👋🏼",
        "👩🏽‍🚀🚀🌕 🧑‍🤝‍🧑 🏳️‍🌈 🇩🇪🇯🇵🇧🇷",
        "ok 👍 👍🏿 ☔️⚡️☀️ 1️⃣2️⃣3️⃣ ✅❌ 🤷‍♀️🤦🏻‍♂️",
    ],
    "json": [
        CORPUS["json"],
        CORPUS["json, indented"],
        '{"id":"9f1c2d7e","ok":true,"error":null,"page":{"next":"/v2/orders?after=8812&limit=50","total":1204}}',
        (
            '[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":'
            '{"city":{"type":"string"},"unit":{"enum":["celsius","fahrenheit"]}},"required":["city"]}}}]'
        ),
        json.dumps({"größe": "3,5 m²", "名前": "花子", "temps": [-3.25, 0, 18.5e-7], "path": "C:\\Temp\\x.txt"}),
    ],
    "python": [
        SOURCE,
        (
            "import asyncio\n\n\nasync def main() -> None:\n    async with asyncio.TaskGroup() as group:\n"
            "        for number in range(3):\n            group.create_task(asyncio.sleep(number * 0.1))\n\n\n"
            'if __name__ == "__main__":\n    asyncio.run(main())\n'
        ),
        (
            "class Shelf(Generic[T]):\n    __slots__ = ('_items',)\n\n    def __init__(self, items: Sequence = ()):\n"
            "        self._items = deque(items, maxlen=1 << 10)\n\n    @property\n    def first(self) -> T | None:\n"
            "        return self._items[0] if self._items else None\n"
        ),
        (
            "assert re.fullmatch(r'(?P<year>\\d{4})-(?P<month>0[1-9]|1[0-2])', '2031-07') is not None\n"
            "x = [[(i ^ j) & 0xFF for j in range(8)] for i in range(8)]; print(*x, sep='\\n')\n"
        ),
    ],
    "base64": [
        CORPUS["base64"],
        base64.b64encode(b"A letter that nobody has to read, over and over. " * 12).decode(),
        base64.urlsafe_b64encode(_BYTES[:400]).decode(),
        base64.b64encode(bytes(600)).decode(),
    ],
    "digits": [
        CORPUS["digits"],
        CORPUS["numbers"],
        "+49 30 901820, 2031-04-17T09:45:00.125Z, 192.168.0.14, 4,294,967,296, 6.02214076e23, 00:1b:44:11:3a:b7",
        "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899",
    ],
}

EXACT, ESTIMATE = TiktokenCounter(), EstimatingCounter()


def windows(text: str) -> list[str]:
    """Every part of a text of one word and of five."""
    words = text.split(" ")
    return [" ".join(words[start:end]) for start in range(len(words)) for end in (start + 1, start + 5)]


def low(texts: list[str]) -> list[str]:
    """The texts that are estimated below the exact count."""
    return [text for text in texts if ESTIMATE.count_text(text) < EXACT.count_text(text)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_any_text_of_a_kind_is_not_below_the_exact_count(kind: str) -> None:
    texts = KINDS[kind]
    assert low([*texts, "\n".join(texts), *(line for text in texts for line in text.splitlines())]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_any_part_of_a_kind_is_not_below_the_exact_count(kind: str) -> None:
    assert low([part for text in KINDS[kind] for part in windows(text)]) == []


# What is promised is a corpus of kinds, not any text: who looks for it finds texts that are estimated a token too low,
# such as the same rare word over and over. So what is drawn here are parts of the corpus, as they stand in it.
PARTS = {kind: sorted({part for text in texts for part in windows(text) if part}) for kind, texts in KINDS.items()}
PART = st.sampled_from(sorted(KINDS)).flatmap(lambda kind: st.sampled_from(PARTS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_any_beginning_of_a_kind_is_not_below_the_exact_count(kind: str) -> None:
    words = [text.split(" ") for text in KINDS[kind]]
    beginnings = [" ".join(line[:end]) for line in words for end in range(1, len(line) + 1, 1 + len(line) // 200)]
    assert low([*beginnings, *(beginning.replace(" ", "\n") for beginning in beginnings)]) == []


def test_the_estimate_of_encoded_bytes_is_not_below_the_exact_count() -> None:
    dice = random.Random(11)
    chunks = [dice.randbytes(dice.randint(1, 400)) for _ in range(500)]
    assert low([base64.b64encode(chunk).decode() for chunk in chunks]) == []


@settings(deadline=None, max_examples=300)
@given(st.integers(min_value=0) | st.binary(max_size=400).map(int.from_bytes))
def test_the_estimate_of_any_whole_number_is_not_below_the_exact_count(number: int) -> None:
    assert low([str(number)]) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PART,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(PART, inside, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=300)
@given(JSON, st.booleans(), st.sampled_from([None, 2]))
def test_the_estimate_of_json_with_parts_of_a_kind_is_not_below_the_exact_count(
    value: object, ascii_only: bool, indent: int
) -> None:
    assert low([json.dumps(value, ensure_ascii=ascii_only, indent=indent)]) == []


@pytest.mark.parametrize("text", KINDS["english"])
def test_the_estimate_of_any_english_text_is_at_most_1_6_times_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) <= 1.6 * EXACT.count_text(text)


# -- lines add up


def lines_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    """Lines as those of a fence, with these texts."""
    line = st.tuples(st.sampled_from("-[#<"), texts, st.sampled_from(["\n", "\n\n", "\n  "]))
    return st.lists(line.map(lambda parts: "".join(parts).rstrip(" ")), max_size=12)


@settings(deadline=None, max_examples=500)
@given(lines_of(st.text() | st.sampled_from(PROSE.split("\n"))))
def test_lines_cost_together_what_they_cost_one_by_one(lines: list[str]) -> None:
    assert ESTIMATE.count_text("".join(lines)) == sum(map(ESTIMATE.count_text, lines))


@settings(deadline=None, max_examples=500)
@given(lines_of(PART.map(lambda part: f" {part}")))
def test_lines_of_a_kind_are_not_estimated_below_the_exact_count(lines: list[str]) -> None:
    assert low(["".join(lines)]) == []


def test_a_list_of_english_lines_is_estimated_at_most_at_1_6_times_the_exact_count() -> None:
    text = "".join(f"- {line}\n" for line in (PROSE + MANUAL).split("\n"))
    assert ESTIMATE.count_text(text) <= 1.6 * EXACT.count_text(text)


@given(st.text(st.characters() | st.sampled_from("-[#<\n"), max_size=40))
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    pieces = text_pieces(text)
    assert "".join(pieces) == text
    assert all(piece[0] in "-[#<" for piece in pieces[1:])
    assert all(piece.endswith("\n") for piece in pieces[:-1])


@pytest.mark.parametrize(
    ("letters", "length"), [("er", 200), ("in", 1_000), ("at", 50), ("re", 5_000), ("ER", 1_000), ("brm", 200)]
)
def test_a_pair_of_letters_over_and_over_is_not_estimated_below_the_exact_count(letters: str, length: int) -> None:
    assert low([letters * length]) == []


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS)
def test_the_estimate_of_a_text_is_not_below_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


@pytest.mark.parametrize("name", CORPUS)
def test_the_estimate_of_every_part_is_not_below_the_exact_count(name: str) -> None:
    assert low([part for part in windows(CORPUS[name]) if part]) == []


@pytest.mark.parametrize("name", ["english prose", "english dialogue", "english manual"])
def test_the_estimate_of_english_is_at_most_1_6_times_the_exact_count(name: str) -> None:
    assert ESTIMATE.count_text(CORPUS[name]) <= 1.6 * EXACT.count_text(CORPUS[name])


@pytest.mark.parametrize("character", [chr(code) for code in range(128) if not chr(code).isalnum()])
def test_the_estimate_of_a_run_of_one_character_is_not_below_the_exact_count(character: str) -> None:
    for length in (*range(1, 140), 255, 256, 1_000, 5_000):
        assert ESTIMATE.count_text(character * length) >= EXACT.count_text(character * length)


def letters(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


# Of Russian, Arabic and Hindi no spaces: with some common words between, random letters pass for language.
ALPHABETS = {
    "punctuation": string.punctuation + " \n",
    "latin": letters(0xC0, 0x24F) + " ",
    "cyrillic": letters(0x410, 0x44F),
    "arabic": letters(0x621, 0x64A),
    "devanagari": letters(0x904, 0x94D),
    "kana": letters(0x3041, 0x30FA) + " ",
    "hangul": letters(0xAC00, 0xD7A3) + " ",
    "han": letters(0x4E00, 0x9FA5) + " ",
    "emoji": letters(0x1F300, 0x1F9FF) + " \u200d\ufe0f",
}


@settings(deadline=None, max_examples=1_000)
@given(st.text(st.characters(exclude_categories=[], exclude_characters=string.ascii_letters)))
def test_the_estimate_of_any_text_without_ascii_letters_is_not_below_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


@settings(deadline=None, max_examples=1_000)
@given(st.sampled_from(sorted(ALPHABETS)).flatmap(lambda name: st.text(ALPHABETS[name])))
def test_the_estimate_of_random_letters_of_a_script_is_not_below_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


@pytest.mark.parametrize("alphabet", [string.ascii_letters + string.digits, string.ascii_uppercase + " "])
def test_the_estimate_of_many_texts_of_random_ascii_letters_is_not_below_the_exact_count(alphabet: str) -> None:
    dice = random.Random(13)
    assert low(["".join(dice.choices(alphabet, k=dice.randint(1, 40))) for _ in range(2_000)]) == []


def test_the_estimate_of_many_random_words_is_not_below_the_exact_count() -> None:
    dice = random.Random(7)
    words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 12))) for _ in range(2_000)]
    for start in range(0, len(words), 20):
        text = " ".join(words[start : start + 20])
        assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


def test_a_text_with_pairs_of_surrogates_is_not_estimated_below_the_exact_count() -> None:
    assert ESTIMATE.count_text("\ud83d\ude00 \ud800") >= EXACT.count_text("\ud83d\ude00 \ud800")


def test_an_ascii_text_is_estimated_without_the_vocabulary() -> None:
    vocab._single_characters.cache_clear()
    EstimatingCounter().count_text(PROSE)
    assert vocab._single_characters.cache_info().currsize == 0


def test_it_says_that_it_estimates() -> None:
    assert (ESTIMATE.name, ESTIMATE.mode) == ("estimate", "estimated")
