"""Tells how much of the package one call passes through.

    python benchmarks/path.py [--verbose]

The calls are a warm `assemble`, on a conversation that has had prompts before, and an `add` of a
question and its answer. For each it counts the functions of the package that are called, the
modules that they stand in, and the changes of module: how often the next function that begins or
goes on stands in another module than the one before. `--verbose` lists the functions.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from langchain_core.messages import AIMessage, HumanMessage

import langchain_ctxbudget
from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.demo import demo_messages

PACKAGE = Path(langchain_ctxbudget.__file__).parent
QUESTION = "And when did I buy the labels?"


class CallPath:
    """The functions of the package that a call passes, in one thread."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        """How often each was begun or gone on with, by module and name."""
        self.changes = 0
        self._module = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Notes an event of `sys.setprofile`."""
        path = Path(frame.f_code.co_filename)
        if event != "call" or not path.is_relative_to(PACKAGE):
            return
        module = path.relative_to(PACKAGE).as_posix()
        self.functions[module, frame.f_code.co_qualname] += 1
        if module != self._module:
            self.changes += 1
            self._module = module

    def __str__(self) -> str:
        modules = {module for module, _ in self.functions}
        return (
            f"{len(self.functions)} functions in {len(modules)} modules, "
            f"{self.changes:,} changes of module"
        )


def path_of(call: Callable[[], object]) -> CallPath:
    path = CallPath()
    sys.setprofile(path)
    try:
        call()
    finally:
        sys.setprofile(None)
    return path


def main() -> None:
    with ContextPipeline({"max_context_tokens": 4_000}) as pipeline:
        chat = pipeline.conversation("c1", user_id="ada")
        chat.add(demo_messages())
        for number in range(3):
            context = chat.assemble(f"Which colour has my bike, number {number}?")
            chat.add(context.turn, AIMessage(f"Blue, for the {number}th time."))
        pipeline.flush()
        paths = {"assemble": path_of(lambda: chat.assemble(QUESTION))}
        pipeline.flush()
        answer = AIMessage("On Monday.")
        paths["add"] = path_of(lambda: chat.add(HumanMessage(QUESTION), answer))

    for name, path in paths.items():
        print(f"{name}: {path}")
        if "--verbose" in sys.argv:
            for (module, function), times in path.functions.items():
                print(f"    {module} {function} {times}")


if __name__ == "__main__":
    main()
