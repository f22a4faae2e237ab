"""Phrases that say how far a rule reaches or that it ends, and those that only look like them."""

import pytest

from langchain_ctxbudget.sentences import (
    Label,
    read,
    says_in_all_conversations,
    takes_back_last_rule,
)
from langchain_ctxbudget.sentences.phrases import plain_request

TAKE_BACK = [
    "I take that rule back.",
    "I take back that rule.",
    "Take that rule back, please.",
    "OK, forget that rule.",
    "Actually, you can drop that rule again.",
    "Let's scrap the last rule, it was silly.",
    "Please disregard my previous instruction.",
    "Scrap the rule I gave you.",
    "Never mind that rule.",
    "I'm dropping that rule.",
    "That rule no longer applies.",
    "That rule doesn't apply any more.",
    "This rule is off now.",
    "Diese Regel gilt nicht mehr.",
    "Diese Regel nehme ich zurück.",
    "Oublie cette règle.",
    "Olvida esa regla.",
    "Dimentica quella regola!",
    "Esqueça essa regra.",
    "Vergeet die regel.",
]
DO_NOT = [
    "Keep that rule.",
    "Remember that rule, please.",
    "Don't forget that rule.",
    "Never drop that rule.",
    "Please do not ignore that rule.",
    "You should not drop that rule.",
    "Should I drop that rule?",
    "Is that rule gone?",
    "If I forget that rule, remind me.",
    "You can forget that rule about emoji.",
    "I take back the rule about emoji.",
    "They dropped that rule in 2019.",
    "Delete that rule from the stylesheet.",
    "Remove this rule from the firewall config.",
    "He took that rule from his old firm.",
    "Diese Regel ist mir wichtig.",
]


@pytest.mark.parametrize("sentence", TAKE_BACK)
def test_it_takes_the_last_rule_back(sentence: str) -> None:
    assert takes_back_last_rule(sentence)


@pytest.mark.parametrize("sentence", DO_NOT)
def test_it_does_not(sentence: str) -> None:
    assert not takes_back_last_rule(sentence)


def test_the_reader_is_sure_of_it() -> None:
    [(said,)] = read(["I take that rule back."])
    assert (said.label, said.lifting) == (Label.LIFTING, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        'My boss wrote "I take that rule back."',
        "Please proofread this mail:\n\nDear team,\n\nI take that rule back.\n\nBest,\nAda",
    ],
    ids=["in quotation marks", "in a letter"],
)
def test_somebody_elses_words_take_nothing_back(text: str) -> None:
    [found] = read([text])
    assert [said for said in found if said.lifting == 1.0] == []


@pytest.mark.parametrize("sentence", TAKE_BACK[:10])
@pytest.mark.parametrize("beginning", ["Don't", "Never", "If they ask, do not", "She says she'd"])
def test_words_before_it_change_what_it_says(beginning: str, sentence: str) -> None:
    assert not takes_back_last_rule(f"{beginning} {sentence[:1].lower()}{sentence[1:]}")


# How far a rule reaches


@pytest.mark.parametrize(
    "rule",
    [
        "No emoji in any of our chats.",
        "Don't use emoji in any chat.",
        "In all my conversations, answer in French.",
        "Answer briefly across our chats.",
        "No emoji in any of our threads.",
        "In every chat with me, begin with the answer.",
        "Keine Emojis, in allen unseren Chats.",
        "Pas d'emoji dans toutes nos conversations.",
        "Sin emojis en todos los chats.",
        "Geen emoji in al onze gesprekken, in elke chat.",
    ],
)
def test_a_rule_says_that_it_holds_in_all_conversations(rule: str) -> None:
    assert says_in_all_conversations(rule)
    [(said,)] = read([rule])
    assert said.label is Label.USER_RULE


@pytest.mark.parametrize(
    "rule",
    [
        "No emoji, please.",
        "Log the id in all chats with customers.",
        "Count the words in all conversations of the support team.",
        "Keep the tone of this conversation.",
        "Write a summary of every chat that was closed.",
        "Release the lock in every thread.",
        "Close the cursor in all sessions.",
    ],
)
def test_other_rules_do_not(rule: str) -> None:
    assert not says_in_all_conversations(rule)


@pytest.mark.parametrize(
    ("sentence", "plain"),
    [
        ("Please answer in German.", "Answer in German."),
        ("Bitte, duze mich.", "Duze mich."),
        ("请用中文回答。", "用中文回答。"),
        ("Would you please stop that?", "Stop that."),
        ("I don't want you to call me.", "Don't call me."),
        ("Do not call me.", "Don't call me."),
    ],
)
def test_a_request_is_plain_without_its_politeness(sentence: str, plain: str) -> None:
    assert plain_request(sentence) == plain


@pytest.mark.parametrize(
    "sentence", ["Answer in German.", "Pleased to meet you.", "Could you?", "Please", "", "?"]
)
def test_what_is_plain_or_asks_for_nothing_has_no_plainer_form(sentence: str) -> None:
    assert plain_request(sentence) == ""
