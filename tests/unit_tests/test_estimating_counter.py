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

EXACT, ESTIMATE = TiktokenCounter(), EstimatingCounter()


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS)
def test_the_estimate_of_a_text_is_not_below_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


@pytest.mark.parametrize("name", CORPUS)
def test_the_estimate_of_every_part_is_not_below_the_exact_count(name: str) -> None:
    words = CORPUS[name].split(" ")
    parts = [" ".join(words[start:end]) for start in range(len(words)) for end in (start + 1, start + 5)]
    low = [part for part in parts if part and ESTIMATE.count_text(part) < EXACT.count_text(part)]
    assert low == []


@pytest.mark.parametrize("name", ["english prose", "english dialogue", "english manual"])
def test_the_estimate_of_english_is_at_most_1_6_times_the_exact_count(name: str) -> None:
    assert ESTIMATE.count_text(CORPUS[name]) <= 1.6 * EXACT.count_text(CORPUS[name])


@pytest.mark.parametrize("character", [chr(code) for code in range(128) if not chr(code).isalnum()])
def test_the_estimate_of_a_run_of_one_character_is_not_below_the_exact_count(character: str) -> None:
    for length in (*range(1, 140), 255, 256, 1_000, 5_000):
        assert ESTIMATE.count_text(character * length) >= EXACT.count_text(character * length)


def letters(first: int, last: int) -> str:
    return "".join(chr(code) for code in range(first, last + 1)) + " "


ALPHABETS = {
    "letters and digits": string.ascii_letters + string.digits,
    "capitals": string.ascii_uppercase + " ",
    "punctuation": string.punctuation + " \n",
    "latin": letters(0xC0, 0x24F),
    "cyrillic": letters(0x410, 0x44F),
    "arabic": letters(0x621, 0x64A),
    "devanagari": letters(0x904, 0x94D),
    "kana": letters(0x3041, 0x30FA),
    "hangul": letters(0xAC00, 0xD7A3),
    "han": letters(0x4E00, 0x9FA5),
    "emoji": letters(0x1F300, 0x1F9FF) + "\u200d\ufe0f",
}


@settings(deadline=None, max_examples=1_000)
@given(st.text(st.characters(exclude_categories=[])))
def test_the_estimate_of_any_unicode_text_is_not_below_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


@settings(deadline=None, max_examples=1_000)
@given(st.sampled_from(sorted(ALPHABETS)).flatmap(lambda name: st.text(ALPHABETS[name])))
def test_the_estimate_of_random_letters_of_a_script_is_not_below_the_exact_count(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text)


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
