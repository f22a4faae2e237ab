"""Holds games, stories and suppositions to ending learning for their passage, and for no more."""

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.knowledge.games import begins_game, is_played, supposes

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GAME = "Let's play a game: you are a dragon and I am a knight named Roland."
CASTLE = "I live in the castle of Camelot with my horse."
NURSE = "I work as a nurse in Leeds."
CHILD = "My daughter Mia is eight years old."


class Learned:
    """What was learned from a conversation, and what was not."""

    def __init__(self, *messages: BaseMessage | str) -> None:
        """Learns from some messages; a text is the user's, and is answered with "Noted."."""
        with ContextPipeline({"max_context_tokens": 4_000}, system_prompt="Help.") as pipeline:
            chat = pipeline.conversation("c1", user_id="ada")
            for message in messages:
                if isinstance(message, str):
                    chat.add(HumanMessage(message), AIMessage("Noted."))
                else:
                    chat.add(message)
            chat.end_session()
            pipeline.flush(20)
            facts = pipeline.knowledge.list_facts(user_id="ada")
            self.facts = [fact.text[1:-1] for fact in facts]
            self.suspended = chat.status().suspended
            self.notes = chat.assemble("Hello").report.notes


def said(text: str, minute: int) -> HumanMessage:
    """A message of the user, so many minutes after noon."""
    at = NOON + timedelta(minutes=minute)
    return HumanMessage(text, additional_kwargs={"created_at": at.isoformat()})


@pytest.fixture(scope="module")
def played() -> Learned:
    return Learned(GAME, CASTLE, f"OK, enough. {NURSE}")


def test_of_a_game_nothing_is_learned(played: Learned) -> None:
    assert CASTLE not in played.facts


def test_a_game_ends_where_the_user_steps_out_of_it(played: Learned) -> None:
    assert played.facts == [NURSE]


def test_the_report_tells_how_many_messages_belong_to_a_game(played: Learned) -> None:
    assert played.notes == (
        "nothing was learned from 2 messages: a game, a story or a supposition",
    )


def test_the_status_tells_where_they_stand(played: Learned) -> None:
    assert played.suspended == ((0, 1), (2, 3))


def test_a_game_of_which_nothing_comes_up_any_more_has_ended() -> None:
    learned = Learned(GAME, "What is the capital of France?", "How do I sort a list?", CHILD)

    assert learned.facts == [CHILD]


def test_a_game_goes_on_while_the_replies_are_of_it() -> None:
    reply = AIMessage("The dragon roars at you.")
    messages = []
    for text in (GAME, "I wait.", "I hide.", "I run away.", CASTLE):
        messages += [HumanMessage(text), reply]

    assert Learned(*messages).facts == []


def test_a_game_ends_after_half_an_hour_of_silence() -> None:
    learned = Learned(said(GAME, 0), said(NURSE, 30))

    assert learned.facts == [NURSE]


def test_a_play_of_both_goes_on_behind_its_lines() -> None:
    learned = Learned(
        HumanMessage("*draws a sword* Who goes there?"), AIMessage("*hides* Only me."), CASTLE
    )

    assert learned.facts == []


IN_EVERY_CHAT = "From now on, in every chat, call me Sir Kunibert the knight."


def test_a_rule_of_a_game_is_none() -> None:
    pipeline = ContextPipeline()
    chat = pipeline.conversation("c1", user_id="ada")
    chat.add(HumanMessage("Let's play: you are a dragon and I am the knight Kunibert."))
    chat.add(AIMessage("As you wish."), HumanMessage(IN_EVERY_CHAT), AIMessage("As you wish."))

    assert chat.rules() == []
    assert pipeline.conversation("c2", user_id="ada").rules() == []


def test_a_rule_behind_a_game_is_one() -> None:
    chat = ContextPipeline().conversation("c1", user_id="ada")
    chat.add(HumanMessage("Let's play: you are a dragon and I am the knight Kunibert."))
    chat.add(AIMessage("Roar."), HumanMessage("OK, end of the game."), AIMessage("Fine."))
    chat.add(HumanMessage("Never push to main without asking me first."))

    assert len(chat.rules()) == 1


def test_a_rule_of_a_played_line_ends_with_the_reply_to_it() -> None:
    chat = ContextPipeline().conversation("c1", user_id="ada")
    chat.add(HumanMessage("*draws a sword*\nNever push to main without asking me first."))
    before = chat.rules()
    chat.add(AIMessage("*breathes fire*\nRoar."))

    assert (len(before), chat.rules()) == (1, [])


def test_a_supposition_ends_with_its_message() -> None:
    learned = Learned("Say I'm a lawyer in Berlin: what visa do I need?", CHILD)

    assert learned.facts == [CHILD]


def test_of_a_supposition_no_other_sentence_is_learned() -> None:
    assert Learned(f"Imagine I am seventy. {CHILD} What may I eat?").facts == []


@pytest.mark.parametrize(
    "text",
    [
        "You'll be the first to know!",
        "Can you simulate a dice roll?",
        "Act as a consultant for my company.",
        "Let's role-play a job interview: you are the interviewer.",
    ],
)
def test_a_word_of_games_does_not_end_learning(text: str) -> None:
    assert Learned(text, NURSE).facts == [NURSE]


def test_a_conversation_without_a_game_has_no_note() -> None:
    assert Learned(NURSE).notes == ()


@pytest.mark.parametrize(
    "text",
    [
        GAME,
        "Let's play a game! You are the dragon. I'm the knight.",
        "Let's pretend I'm a pirate captain.",
        "Let's tell a story in which you are the sea and I'm a sailor.",
        "Lass uns ein Spiel spielen: du bist ein Drache und ich bin ein Ritter.",
        "Juguemos: tú eres un dragón y yo soy un caballero.",
        "Jouons : tu es un dragon et je suis un chevalier.",
        "Giochiamo: tu sei un drago e io sono un cavaliere.",
        "Vamos brincar: você é um dragão e eu sou um cavaleiro.",
        "Zagrajmy: jesteś smokiem, a ja jestem rycerzem.",
        "我们来玩角色扮演，你是龙，我是骑士。",
    ],
)
def test_a_game_begins_where_the_user_takes_a_part(text: str) -> None:
    assert begins_game(text, "")


@pytest.mark.parametrize(
    "text",
    [
        "Let's play tennis on Sunday, I'm free.",
        "We're playing against Leeds and I'm the goalkeeper.",
        "I am an actor and I play Hamlet next week.",
        "Pretend you are a doctor. I am 34 years old and my back hurts.",
        "You are a helpful assistant. I am a nurse in Leeds.",
        "Let's write an email to my boss: I am a nurse and you are my editor.",
        "I have to pretend to like my boss.",
        "Rewrite this: \"Let's pretend I'm a pirate.\"",
        "Ich spiele Fußball und du bist mein Coach.",
    ],
)
def test_no_game_begins_with_a_word_of_games(text: str) -> None:
    assert not begins_game(text, "")


@pytest.mark.parametrize(
    "text",
    ["Suppose I have two kids.", "Angenommen ich bin Student.", "Supongamos que tengo dos hijos."],
)
def test_what_is_supposed_of_the_user_is_a_supposition(text: str) -> None:
    assert supposes(text)


@pytest.mark.parametrize("text", ["I suppose so.", "I can't imagine my life without tea."])
def test_a_word_of_suppositions_supposes_nothing(text: str) -> None:
    assert not supposes(text)


def test_a_list_with_bold_words_is_no_line_of_a_play() -> None:
    assert not is_played("*   **Fri:** open\n*   **Sat:** open")
