"""What a layer of the application's own says no longer is marked in the prompt."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.settings import CustomLayer, LayerRequest

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
RENEWED = "## open files (now; what stands above under this name is out of date)"
PLAIN = "## open files"


class Editor:
    """Open files, which a test changes, and a conversation about them."""

    def __init__(self, *files: str, **settings: Any) -> None:
        self.files: Sequence[str] = files
        layer = CustomLayer(name="open files", items=self.opened, ideal_tokens=200)
        self.settings = {"max_context_tokens": 4_000, "layers": [layer], "learn": False, **settings}
        self.pipeline = ContextPipeline(self.settings, store=InMemoryStore())

    def restart(self) -> None:
        self.pipeline = ContextPipeline(self.settings, store=self.pipeline.store)

    def opened(self, _request: LayerRequest) -> Sequence[str]:
        if "broken" in self.files:
            raise OSError("no editor")
        return self.files

    def ask(self, *files: str) -> AssembledContext:
        """Asks something while some files are open, and has it answered."""
        self.files = files
        context = self.pipeline.assemble("Which file is next?", **SCOPE)
        self.pipeline.add_messages([*context.turn, AIMessage("That one.")], **SCOPE)
        return context

    def lines(self, *files: str) -> list[str]:
        """Returns the lines about open files in front of the newest question."""
        text = self.ask(*files).messages[-1].text
        return [line for line in text.splitlines() if line.startswith(("## open", "- "))]


def test_a_new_text_says_that_the_old_one_is_out_of_date() -> None:
    editor = Editor()
    editor.ask("main.py")
    assert editor.lines("menu.py") == [RENEWED, "- menu.py"]


def test_all_items_stand_there_again() -> None:
    editor = Editor()
    editor.ask("main.py", "cart.py")
    assert editor.lines("cart.py", "menu.py") == [RENEWED, "- cart.py", "- menu.py"]


def test_what_holds_is_not_repeated() -> None:
    editor = Editor()
    editor.ask("main.py")
    assert editor.lines("main.py") == []


def test_one_more_item_makes_nothing_out_of_date() -> None:
    editor = Editor()
    editor.ask("main.py")
    assert editor.lines("main.py", "menu.py") == [PLAIN, "- menu.py"]


def test_a_layer_that_is_empty_now_says_so() -> None:
    editor = Editor()
    editor.ask("main.py")
    assert editor.lines() == [RENEWED, "- Nothing at the moment."]


def test_it_says_so_once() -> None:
    editor = Editor()
    editor.ask("main.py")
    editor.ask()
    assert editor.lines() == []


def test_a_text_that_comes_back_stands_there_again() -> None:
    editor = Editor()
    for file in ("main.py", "menu.py"):
        editor.ask(file)
    assert editor.lines("main.py") == [RENEWED, "- main.py"]


def test_a_restart_changes_nothing() -> None:
    editor = Editor()
    for file in ("main.py", "menu.py"):
        editor.ask(file)
    editor.restart()
    assert editor.lines("menu.py") == []
    assert editor.lines("main.py") == [RENEWED, "- main.py"]


def test_a_function_that_fails_makes_nothing_out_of_date() -> None:
    editor = Editor()
    editor.ask("main.py")
    assert editor.lines("broken") == []


def test_a_prompt_still_begins_as_the_last_one() -> None:
    editor = Editor()
    first = [message.content for message in editor.ask("main.py").messages]
    second = [message.content for message in editor.ask("menu.py").messages]
    assert second[: len(first)] == first


@pytest.mark.parametrize(
    ("budget", "reason"), [(4_000, "over_ideal"), (200, "no_room")], ids=["ideal", "budget"]
)
def test_the_reason_names_what_the_limit_is(budget: int, reason: str) -> None:
    editor = Editor(max_context_tokens=budget)
    layer = editor.ask(*(f"file_{number}.py " * 12 for number in range(20))).report.layer(
        "open files"
    )
    assert {str(item.reason) for item in layer.items if item.status == "omitted"} == {reason}
