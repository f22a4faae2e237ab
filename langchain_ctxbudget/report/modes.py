"""What a prompt is, compared with the last one, and why: decided in the room `prompt`."""

from langchain_ctxbudget.budget import ExplainedCode


class Mode(ExplainedCode):
    """What a prompt is, compared with the last one."""

    EXTENDED = "extended", "the last prompt with more at its end"
    REPEATED = "repeated", "the last prompt once more"
    SHORTENED = "shortened", "the last prompt without its middle, with more at its end"
    CLIPPED = "clipped", "the last prompt with large messages in short, and more at its end"
    REBUILT = "rebuilt", "rebuilt"

    @property
    def extends_last(self) -> bool:
        """Tells whether the prompt begins as the last one, so that a cache holds that part."""
        return self is not Mode.REBUILT

    @property
    def adds_background(self) -> bool:
        """Tells whether its background is one more beside those that earlier turns still have."""
        return self not in (Mode.REBUILT, Mode.REPEATED)


class Cause(ExplainedCode):
    """Why a prompt has its mode."""

    HAS_ROOM = "has_room", "there is room at its end"
    NOTHING_SAID = "nothing_said", "nothing was said since it was rebuilt"
    FULL = "full", "the last prompt is full"
    UNPAID = "unpaid", "it is full, and what was saved so far does not pay for a rebuild"
    NOT_GROWING = "not_growing", "with these settings every prompt is chosen anew"
    FIRST = "first", "there is no earlier prompt to go on from"
    COLD = "cold", "no cache holds the last prompt any more"
    TURN_OUTGROWN = "turn_outgrown", "the turn has outgrown the room that was planned for it"
    OTHER_MODEL = "other_model", "the last prompt went to another model"
    OTHER_TOOLS = "other_tools", "the last prompt had other tools, or another response format"
    COMPACTED = "compacted", "the provider has compacted the conversation itself"
    OTHER_SYSTEM_PROMPT = "other_system_prompt", "the last prompt had another system prompt"
    ABOUT_USER = (
        "about_user",
        "what it says about the user has changed: a fact, a rule or a saved setting",
    )
    OTHER_BEGINNING = (
        "other_beginning",
        "another process made the last prompt, with another system prompt, tools or facts",
    )
    EDITED = "edited", "a message sent before was edited, removed or pinned, or one came in between"
