"""The conversations.json of a ChatGPT data export.

OpenAI publishes no schema; this follows what public descriptions of real exports agree on (2023 to 2026).
A conversation is a tree of nodes, because an edited question or a regenerated answer is a branch. What the
user last saw is the path from the root to `current_node`.

How each thing is mapped:

- Authors `user`, `assistant` and `system` are human, AI and system messages. An author `tool` (browser,
  python, files) is an AI message named after the tool: what the assistant looked up is on its side, and no
  tool result stands without its call.
- `text` and `multimodal_text`: the texts of the parts; an image, sound or video is `[image: its pointer]`.
- `code` and `execution_output`: a fenced block.
- `tether_quote` and `sonic_webpage`: title and address, then the text.
- `tether_browsing_display`: its result, else its summary.
- `user_editable_context`, `model_editable_context`: a system message, where not hidden (they nearly always are).
- `thoughts` and `reasoning_recap` are left out: the model's working, not something said.
- Any other type: its parts, `text`, `result`, `summary`, `content` or `output`, else `[its type]`.
- Messages that are hidden, have weight 0 or are empty are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.formats.document import Node
from langchain_ctxbudget.formats.model import Draft

_CLASSES: dict[str, type[BaseMessage]] = {
    "user": HumanMessage,
    "assistant": AIMessage,
    "tool": AIMessage,
    "system": SystemMessage,
}
_NOT_SAID = {"thoughts", "reasoning_recap"}
_CONTEXT = {"user_editable_context", "model_editable_context"}
_CONTEXT_FIELDS = ("user_profile", "user_instructions", "model_set_context")
_TEXT_FIELDS = ("text", "result", "summary", "content", "output")


def read_conversation(node: Node) -> Draft:
    """The conversation as the user last saw it.

    Raises:
        ConversationFormatError: the tree or a message is not of the export's form.
    """
    return Draft(
        format="chatgpt",
        conversation_id=node.get("conversation_id").identifier() or node.get("id").identifier(),
        title=node.get("title").optional_text(),
        messages=[message for part in _path(node) if (message := _read_message(part))],
    )


def _path(conversation: Node) -> list[Node]:
    """The nodes of the tree from the root to the current node."""
    tree = conversation.get("mapping")
    nodes = {key: tree.entry(key) for key in tree.fields()}
    for entry in nodes.values():
        entry.fields()
    current = conversation.get("current_node").value
    if not isinstance(current, str) or current not in nodes:
        current = _newest_leaf(tree, nodes)
    path: list[Node] = []
    visited: set[str] = set()
    while isinstance(current, str) and current in nodes:
        if current in visited:
            raise nodes[current].complaint("this node is its own ancestor")
        visited.add(current)
        path.append(nodes[current])
        current = nodes[current].get("parent").value
    return path[::-1]


def _newest_leaf(tree: Node, nodes: dict[str, Node]) -> str | None:
    """Where the newest child of the newest child and so on leads, from the first root."""
    if not nodes:
        return None
    parents = ((key, node.get("parent").value) for key, node in nodes.items())
    leaf = next((key for key, parent in parents if not isinstance(parent, str) or parent not in nodes), None)
    if leaf is None:
        raise tree.complaint("expected a root, saw a parent in every node")
    visited = {leaf}
    while children := [
        child.value
        for child in nodes[leaf].get("children").items()
        if child.text() in nodes and child.value not in visited
    ]:
        # Equal or absent times: the later in the list was made later.
        leaf = max(reversed(children), key=lambda child: _seconds(nodes[child]))
        visited.add(leaf)
    return leaf


def _seconds(node: Node) -> float:
    message = node.get("message")
    time = message.get("create_time").value if message.value is not None else None
    return float(time) if isinstance(time, int | float) and abs(time) < 1e15 else 0.0  # noqa: PLR2004 - absurd


def _read_message(node: Node) -> BaseMessage | None:
    message = node.get("message")
    if message.value is None or _is_hidden(message):
        return None
    author, content = message.get("author"), message.get("content")
    role = author.get("role")
    cls = _CLASSES.get(role.text())
    if cls is None:
        raise role.error(f"one of {', '.join(_CLASSES)}")
    kind = _kind(content)
    if content.value is None or kind in _NOT_SAID:
        return None
    text = _render(content)
    if not text.strip():
        return None
    time = message.get("create_time").time()
    name = author.get("name").optional_text()
    return (SystemMessage if kind in _CONTEXT else cls)(
        content=text,
        id=message.get("id").identifier() or node.get("id").identifier(),
        name=name or ("tool" if role.value == "tool" else None),
        additional_kwargs={"created_at": time} if time else {},
    )


def _is_hidden(message: Node) -> bool:
    metadata = message.get("metadata")
    hidden = metadata.value is not None and metadata.get("is_visually_hidden_from_conversation").value
    return bool(hidden) or message.get("weight").value == 0


def _kind(content: Node) -> str | None:
    return None if content.value is None else content.get("content_type").optional_text()


def _render(content: Node) -> str:
    """The text of a message's content, or of one of its parts that is an object."""
    kind = _kind(content) or "text"
    if kind.endswith("_pointer"):
        return _render_pointer(content, kind)
    if kind in _CONTEXT:
        return "\n".join(_strings(content, _CONTEXT_FIELDS))
    text = "\n".join(part for part in _parts(content) if part) or next(_strings(content, _TEXT_FIELDS), "")
    if kind in ("code", "execution_output") and text:
        language = content.get("language").optional_text() or ""
        return f"```{'' if language == 'unknown' else language}\n{text}\n```"
    if kind in ("tether_quote", "sonic_webpage"):
        return "\n".join([*_strings(content, ("title", "url")), text])
    return text or ("" if _is_known(content) else f"[{kind}]")


def _parts(content: Node) -> Iterator[str]:
    for part in content.get("parts").items():
        if isinstance(part.value, str):
            yield part.text()
        elif part.value is not None:
            yield _render(part)


def _strings(content: Node, keys: tuple[str, ...]) -> Iterator[str]:
    return (
        content.get(key).text() for key in keys if isinstance(content.get(key).value, str) and content.get(key).value
    )


def _is_known(content: Node) -> bool:
    """Whether an empty content is known to be empty: it has a field that text is read from."""
    return any(key in content.fields() for key in ("parts", *_TEXT_FIELDS))


def _render_pointer(part: Node, kind: str) -> str:
    """An image, a sound or a video, by its kind and the name of its file in the export."""
    what = kind.split("_", 1)[0].replace("real", "voice")
    pointer = next(_strings(part, ("asset_pointer",)), None)
    return f"[{what}: {pointer}]" if pointer else f"[{what}]"
