"""Random conversations with every kind of part of every provider, and switches between them.

A conversation is made of steps, each a turn of the user with all that follows. A step has a number
of its own, from which all of it is made, so that it stays the same when others are left out: a
conversation that fails can be made shorter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from tests.fuzz import samples
from tests.fuzz.replies import SERVED, VOICES, Call, Reply, Voice, add_item

Json = dict[str, Any]

WORD_ENDINGS = ("", "é", "北京", "🙂", "-x", "ß", "русский", "_1")

CALL_IDS = {"anthropic": "toolu_", "google": "0f8c-", "mistral": "", "ollama": "9b2e-"}
"""How the ids of calls begin, by provider."""


@dataclass(frozen=True)
class Step:
    """One turn of the user: what kind of turn, whose model answers, and its number."""

    kind: str
    voice: Voice
    number: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.voice}) #{self.number}"


class Scene:
    """One step under way: its messages so far, and numbers for what is made."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.random = Random(f"{step.kind}/{step.voice}/{step.number}")
        self.messages: list[BaseMessage] = []
        self._replies = 0
        self._words = 0
        self._calls = 0

    # -- the user

    def words(self, most: int = 30) -> str:
        """Words of the user, of which no two are the same in a conversation."""
        words = []
        for _ in range(self.random.randint(1, most)):
            self._words += 1
            ending = self.random.choice(WORD_ENDINGS)
            words.append(f"u{self.step.number}w{self._words}{ending}")
        return " ".join(words)

    def ask(self, content: Any = None, name: str | None = None) -> None:
        if content is None:
            content = self.words(self.random.choice([5, 30, 200]))
        number = len(self.messages)
        identifier = f"h{self.step.number}-{number}"
        self.messages.append(HumanMessage(content, name=name, id=identifier))

    # -- the model

    def reply(self) -> Reply:
        self._replies += 1
        return Reply(self.step.voice, f"{self.step.number}x{self._replies}x", self.random)

    def add(self, reply: Reply) -> None:
        self.messages.append(reply.message())

    def say(self, text: str = "It is done.", *, thinks: bool | None = None) -> None:
        reply = self.reply()
        if thinks or (thinks is None and self.random.random() < 0.4):
            reply.think("Let me see.")
        reply.say(text)
        self.add(reply)

    def new_call(self, name: str = "look_up") -> Call:
        self._calls += 1
        number = f"{self.step.number}x{self._calls}"
        return Call(f"{CALL_IDS.get(self.step.voice.provider, 'call_')}{number}", name)

    def call(self, *calls: Call, says: str = "") -> None:
        reply = self.reply()
        if self.random.random() < 0.5:
            reply.think("I look it up.")
        if says:
            reply.say(says)
        for call in calls:
            reply.call(call)
        self.add(reply)

    # -- the tools

    def answer(self, call: Call, content: Any = "Nobody.", **more: Any) -> None:
        number = len(self.messages)
        message = ToolMessage(
            content,
            tool_call_id=call.call_id,
            name=call.name,
            id=f"t{self.step.number}-{number}",
            **more,
        )
        self.messages.append(message)


# -- turns without tools


def chat(scene: Scene) -> None:
    scene.ask()
    scene.say("word " * scene.random.choice([3, 50, 400]))


def named_speaker(scene: Scene) -> None:
    name = scene.random.choice(["Jörg", "Järg", "田中", "Ada Lovelace", "ada", "x" * 80, "a<b"])
    scene.ask(name=name)
    scene.say()


def thinking(scene: Scene) -> None:
    scene.ask()
    reply = scene.reply()
    reply.think("First this. " * scene.random.choice([1, 60]))
    reply.say("So it is.")
    if scene.random.random() < 0.3:
        reply.think("Then that.")
        reply.say("And so on.")
    scene.add(reply)


def served(scene: Scene) -> None:
    """The model uses tools of its provider, and says what came of it."""
    scene.ask()
    reply = scene.reply()
    for tool in scene.random.sample(SERVED, scene.random.randint(1, 3)):
        if scene.random.random() < 0.5:
            reply.think("I use a tool.")
        if scene.random.random() < 0.3:
            reply.say("Let me use a tool.")
        reply.serve(tool)
    reply.say("The tools say that the plan is green.")
    scene.add(reply)


def served_only(scene: Scene) -> None:
    """The model uses a tool of its provider and says nothing."""
    scene.ask()
    reply = scene.reply()
    reply.think("I use a tool.")
    reply.serve(scene.random.choice(SERVED))
    if not reply.parts:
        reply.say("I have none.")
    scene.add(reply)


def unsaid(scene: Scene) -> None:
    """An answer without words: only thoughts, white space, nothing at all."""
    scene.ask()
    content: Any = scene.random.choice(["", " \n", [], [{"type": "text", "text": ""}]])
    scene.messages.append(AIMessage(content, id=f"ai{scene.step.number}"))
    scene.ask()
    scene.say()


def unanswered(scene: Scene) -> None:
    """The user speaks twice."""
    scene.ask()
    scene.ask()
    scene.say()


# -- turns with tools


def one_call(scene: Scene) -> None:
    scene.ask()
    call = scene.new_call()
    scene.call(call, says=scene.random.choice(["", "One moment."]))
    scene.answer(call, _any_result(scene))
    scene.say()


def many_calls(scene: Scene) -> None:
    scene.ask()
    for _ in range(scene.random.randint(1, 6)):
        calls = [scene.new_call() for _ in range(scene.random.randint(1, 3))]
        scene.call(*calls)
        for call in scene.random.sample(calls, len(calls)):
            scene.answer(call, _any_result(scene), status=scene.random.choice(["success", "error"]))
    scene.say()


def late_result(scene: Scene) -> None:
    """The result comes behind the next message of the user."""
    scene.ask()
    call = scene.new_call()
    scene.call(call)
    if scene.random.random() < 0.5:
        scene.answer(call, "pending")
    scene.ask()
    scene.answer(call, "The late result.")
    scene.say()


def result_twice(scene: Scene) -> None:
    scene.ask()
    call = scene.new_call()
    scene.call(call)
    scene.answer(call, "pending")
    scene.answer(call, "The second result.")
    scene.say()


def missing_result(scene: Scene) -> None:
    scene.ask()
    calls = [scene.new_call() for _ in range(scene.random.randint(1, 3))]
    scene.call(*calls, says=scene.random.choice(["", "One moment."]))
    for call in calls[1:]:
        scene.answer(call)
    if scene.random.random() < 0.5:
        scene.say()


def lost_call(scene: Scene) -> None:
    """A result whose call is gone."""
    scene.ask()
    scene.answer(scene.new_call())
    scene.say()


def odd_ids(scene: Scene) -> None:
    """Ids of calls that are long, empty, repeated or of characters that are refused."""
    scene.ask()
    identifier = scene.random.choice(
        ["", "functions.look_up:0", "x" * 90, "call_1", "call_1", f"call_{'y' * 400}"]
    )
    call = Call(identifier)
    scene.call(call)
    scene.answer(call)
    scene.say()


def odd_names(scene: Scene) -> None:
    scene.ask()
    call = scene.new_call(scene.random.choice(["web search", "näher", "a.b", "x" * 70, "1st"]))
    scene.call(call)
    scene.answer(call)
    scene.say()


def broken_call(scene: Scene) -> None:
    """Arguments that are no JSON."""
    scene.ask()
    call = Call(scene.new_call().call_id, "look_up", '{"page": ')
    scene.call(call)
    scene.answer(call, "Error: the arguments cannot be read.", status="error")
    scene.say()


def pictures_of_tools(scene: Scene) -> None:
    """A loop in which every result is a picture."""
    scene.ask()
    for _ in range(scene.random.randint(2, 12)):
        call = scene.new_call("screenshot")
        scene.call(call)
        scene.answer(call, [_picture(scene), {"type": "text", "text": "The screen."}])
    scene.say()


def screens(scene: Scene) -> None:
    """A loop of OpenAI's computer use; another model has a tool for it."""
    if scene.step.voice.provider != "responses":
        pictures_of_tools(scene)
        return
    scene.ask()
    for number in range(scene.random.randint(1, 8)):
        reply = scene.reply()
        if scene.random.random() < 0.5:
            reply.think("I click.")
        _call_of_the_computer(reply, scene.new_call().call_id)
        scene.add(reply)
        call_id = reply.parts[-1]["call_id"]
        scene.messages.append(_screenshot(scene, call_id, number))
    scene.say()


def _call_of_the_computer(reply: Reply, call_id: str) -> None:
    action = {"type": "click", "x": 1, "y": 2, "button": "left"}
    add_item(
        reply,
        "cu_",
        type="computer_call",
        call_id=call_id,
        action=action,
        pending_safety_checks=[],
    )


def _screenshot(scene: Scene, call_id: str, number: int) -> ToolMessage:
    url = f"data:image/png;base64,{samples.picture(1024, 768)}"
    content: Any = [{"type": "input_image", "image_url": url}]
    if scene.random.random() < 0.3:
        content = url
    return ToolMessage(
        content,
        tool_call_id=call_id,
        additional_kwargs={"type": "computer_call_output"},
        id=f"t{scene.step.number}-c{number}",
    )


def custom_call(scene: Scene) -> None:
    """A tool that takes free text, of OpenAI; a common call for other models."""
    if scene.step.voice.provider != "responses":
        one_call(scene)
        return
    scene.ask()
    reply = scene.reply()
    reply.think("I run it.")
    call = scene.new_call("run")
    add_item(
        reply, "ctc_", type="custom_tool_call", call_id=call.call_id, name="run", input="ls -l"
    )
    scene.add(reply)
    content: Any = [{"type": "custom_tool_call_output", "output": "4 files."}]
    scene.answer(call, content)
    scene.say()


def patch(scene: Scene) -> None:
    """A patch that OpenAI's model asks the application to apply."""
    if scene.step.voice.provider != "responses" or scene.step.voice.output_version == "v0":
        one_call(scene)
        return
    scene.ask()
    reply = scene.reply()
    call_id = scene.new_call().call_id
    operation = {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}
    add_item(reply, "apc_", type="apply_patch_call", call_id=call_id, operation=operation)
    scene.add(reply)
    output = {
        "type": "apply_patch_call_output",
        "call_id": call_id,
        "status": "completed",
        "output": "Applied.",
    }
    scene.messages.append(HumanMessage([output], id=f"h{scene.step.number}-out"))
    scene.say()


# -- what the user attaches


def user_media(scene: Scene) -> None:
    scene.ask(_with_words(scene, [_medium(scene) for _ in range(scene.random.randint(1, 3))]))
    scene.say("I see.")


def many_pictures(scene: Scene) -> None:
    """More pictures than Anthropic takes, in one message or in many."""
    picture = {"type": "image_url", "image_url": {"url": samples.URL, "detail": "low"}}
    if scene.random.random() < 0.3:
        scene.ask(_with_words(scene, [picture] * 110))
        scene.say()
        return
    for _ in range(11):
        scene.ask(_with_words(scene, [picture] * 10))
        scene.say("I see.")


def user_marks(scene: Scene) -> None:
    """The application marks for Anthropic's cache itself."""
    block = {"type": "text", "text": scene.words(), "cache_control": {"type": "ephemeral"}}
    scene.ask([block])
    scene.say()


def user_sources(scene: Scene) -> None:
    scene.ask(_with_words(scene, [_search_result(scene) for _ in range(3)]))
    scene.say()


def raw_results(scene: Scene) -> None:
    """Results as Anthropic's API has them, in a message of the user."""
    scene.ask()
    call = scene.new_call()
    scene.call(call)
    content = [{"type": "text", "text": "Found."}]
    if scene.random.random() < 0.5:
        source = {"type": "base64", "media_type": "image/png", "data": samples.picture(64, 48)}
        content.append({"type": "image", "source": source})
    result: Json = {"type": "tool_result", "tool_use_id": call.call_id, "content": content}
    scene.messages.append(HumanMessage([result], id=f"h{scene.step.number}-raw"))
    scene.say()


def _with_words(scene: Scene, blocks: list[Json]) -> list[Json]:
    text = {"type": "text", "text": scene.words()}
    place = scene.random.randint(0, len(blocks))
    return [*blocks[:place], text, *blocks[place:]]


SIZES = ((1, 1), (64, 48), (640, 480), (1024, 768), (2560, 1440), (4000, 3000))


def _picture(scene: Scene) -> Json:
    """A picture in one of the forms in which LangChain and providers write it."""
    data = samples.picture(*scene.random.choice(SIZES))
    url = f"data:image/png;base64,{data}"
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return scene.random.choice(
        [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "image_url", "image_url": {"url": samples.URL, "detail": "low"}},
            {"type": "image", "base64": data, "mime_type": "image/png"},
            {"type": "image", "url": samples.URL},
            {"type": "image", "source_type": "base64", "data": data, "mime_type": "image/png"},
            {"type": "image", "source_type": "url", "url": samples.URL},
            {"type": "image", "source": source},
            {"type": "image", "source": {"type": "url", "url": samples.URL}},
        ]
    )


def _medium(scene: Scene) -> Json:
    """A picture, a file, a sound or a film."""
    pdf = samples.document()
    return scene.random.choice(
        [
            _picture(scene),
            _picture(scene),
            {"type": "image", "file_id": "file-abc", "mime_type": "image/png"},
            {
                "type": "file",
                "base64": pdf,
                "mime_type": "application/pdf",
                "filename": "a.pdf",
            },
            {"type": "file", "file_id": "file-abc"},
            {"type": "file", "url": "https://example.org/a.pdf"},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{pdf}"},
            },
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": pdf},
            },
            {"type": "text-plain", "text": "Notes. " * 20, "mime_type": "text/plain"},
            {"type": "audio", "base64": samples.sound(), "mime_type": "audio/wav"},
            {"type": "input_audio", "input_audio": {"data": samples.sound(), "format": "wav"}},
            {"type": "video", "base64": samples.film(), "mime_type": "video/mp4"},
            {"type": "media", "data": samples.film(), "mime_type": "video/mp4"},
            {"type": "media", "file_uri": "https://example.org/v", "mime_type": "video/mp4"},
        ]
    )


def _search_result(scene: Scene) -> Json:
    text = "The plan is green. " * scene.random.choice([1, 20])
    return {
        "type": "search_result",
        "source": "https://example.org",
        "title": "A page",
        "content": [{"type": "text", "text": text}],
    }


def _any_result(scene: Scene) -> Any:
    """What a tool returns: a text, blocks, media."""
    kind = scene.random.choice(_RESULTS)
    return kind(scene)


_RESULTS: Sequence[Callable[[Scene], Any]] = (
    lambda scene: "Nobody.",
    lambda scene: "found " * scene.random.choice([10, 300, 3_000]),
    lambda scene: "",
    lambda scene: '{"rows": [1, 2, 3]}',
    lambda scene: [{"type": "text", "text": "Found."}],
    lambda scene: ["Found.", "And more."],
    lambda scene: [_picture(scene)],
    lambda scene: [{"type": "text", "text": "See."}, _picture(scene)],
    lambda scene: [_search_result(scene) for _ in range(scene.random.randint(1, 10))],
    lambda scene: [{"type": "json", "json": {"rows": [1, 2]}}],
    lambda scene: [
        {
            "type": "file",
            "base64": samples.document(),
            "mime_type": "application/pdf",
            "filename": "a.pdf",
        }
    ],
    lambda scene: [
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Read me. " * 30},
            "title": "Notes",
        }
    ],
)

KINDS: Mapping[str, Callable[[Scene], None]] = {
    step.__name__.replace("_", " "): step
    for step in (
        chat,
        named_speaker,
        thinking,
        served,
        served_only,
        unsaid,
        unanswered,
        one_call,
        many_calls,
        late_result,
        result_twice,
        missing_result,
        lost_call,
        odd_ids,
        odd_names,
        broken_call,
        pictures_of_tools,
        screens,
        custom_call,
        patch,
        user_media,
        many_pictures,
        user_marks,
        user_sources,
        raw_results,
    )
}


@dataclass(frozen=True)
class Conversation:
    """Steps, of which the last one may be the current turn of a prompt."""

    steps: Sequence[Step]

    @classmethod
    def of(cls, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> "Conversation":
        """The conversation of a seed: some steps, with a switch of the model now and then."""
        random = Random(seed)
        voice = random.choice(VOICES)
        steps = []
        for _ in range(random.choice([1, 2, 4, 8, 14])):
            if random.random() < 0.25:
                voice = random.choice(VOICES)
            steps.append(Step(random.choice(kinds), voice, random.randrange(1_000_000)))
        return cls(tuple(steps))

    def turns(self) -> list[list[BaseMessage]]:
        """The messages of every step."""
        return [list(messages_of(step)) for step in self.steps]

    def without(self, place: int) -> "Conversation":
        """The conversation without one of its steps."""
        return Conversation((*self.steps[:place], *self.steps[place + 1 :]))

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def messages_of(step: Step) -> Iterator[BaseMessage]:
    """The messages of a step."""
    scene = Scene(step)
    KINDS[step.kind](scene)
    yield from scene.messages
