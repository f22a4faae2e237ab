"""The demo conversation is what the demo says of it."""

import pytest

from langchain_ctxbudget import demo

MESSAGES = demo.demo_messages()
ANSWER = ("Etch & Field", "38p", "16 October")


@pytest.mark.parametrize("part", ANSWER)
def test_the_evidence_holds_the_answer_and_no_later_message_does(part: str) -> None:
    evidence = [i for i, m in enumerate(MESSAGES) if m.id in demo.DEMO_EVIDENCE_IDS]
    assert any(part in str(MESSAGES[i].content) for i in evidence)
    assert not [m.id for m in MESSAGES[max(evidence) + 1 :] if part in str(m.content)]
